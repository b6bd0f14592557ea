"""Figures, a file a page or a subject: values to Plotly, pure, no Streamlit."""
