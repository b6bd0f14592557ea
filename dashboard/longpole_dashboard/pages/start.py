"""Start: how to send the first span, and a live wait for it."""

import streamlit as st

from longpole_dashboard import data, widgets
from longpole_dashboard.model import text
from longpole_dashboard.model.window import Bounds
from longpole_dashboard.pages.base import Page
from longpole_dashboard.source import source
from longpole_dashboard.widgets import Selection

POLL_S = 2

_INSTRUMENT = """\
import longpole, openai
longpole.init()
client = longpole.wrap(openai.OpenAI())"""

_ENVIRONMENT = "export OTEL_EXPORTER_OTLP_ENDPOINT={url}"


def draw(selected: Selection, held: Bounds) -> None:
    """Three lines to instrument an application, the endpoint, and what has arrived."""
    st.title("Start")
    _waiting(held.num_traces)
    st.subheader("Instrument an application")
    st.code(_INSTRUMENT, language="python")
    url = source().url or "http://127.0.0.1:4318"
    st.markdown("It sends OTLP over HTTP to the collector; another address is one variable:")
    st.code(_ENVIRONMENT.format(url=url), language="bash")
    st.markdown("Anything that already exports OpenTelemetry spans can send there as it is.")
    st.subheader("Or look at a real workload first")
    st.code("longpole demo", language="bash")
    st.markdown("A real model on this machine, a real workload, one planted fault; no key needed.")


@st.fragment(run_every=POLL_S)
def _waiting(num_before: int) -> None:
    held = data.bounds()
    if held.num_traces > num_before == 0:
        st.rerun()
    if held.num_traces:
        widgets.note(f"{text.counted(held.num_traces, 'workflow')} received.", "better")
    elif source().is_recorded:
        widgets.note(f"There is no workflow in {source().describe()}.")
    else:
        widgets.note(f"Waiting for the first span. Listening: {source().describe()}.")


PAGE = Page("Start", ":material/rocket_launch:", 90, draw)
