"""The file Streamlit runs for every page.

It lies apart because Streamlit takes a folder ``pages`` beside its script for pages of its own.
"""

from longpole_dashboard.app import main

main()
