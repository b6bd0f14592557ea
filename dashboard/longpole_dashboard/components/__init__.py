"""Our own Streamlit components: plain JavaScript and CSS, no build step, no foreign request.

Names in them (spans, routes, attributes) come from outside and are hostile until shown otherwise:
the scripts write text through ``textContent`` only.
"""
