"""Figures of single pages, a file each: values to Plotly, pure, no Streamlit."""
