"""Figures of stages and of comparisons: values to Plotly, pure, no Streamlit."""
