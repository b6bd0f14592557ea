"""LlamaIndex as OpenInference's instrumentation 4.6 tells of it, names and kinds as recorded."""

import pytest

SCOPE = "openinference.instrumentation.llama_index"


@pytest.mark.parametrize(
    ("name", "kind", "is_model_call"),
    [
        ("OpenAI.chat", "LLM", True),
        ("OpenAI.astream_chat", "LLM", True),
        ("OpenAI._prepare_chat_with_tools", "LLM", False),
        ("OpenAIEmbedding._get_query_embedding", "EMBEDDING", True),
        ("BaseWorkflowAgent.run_agent_step", "CHAIN", False),
        ("FunctionTool.acall", "TOOL", False),
    ],
)
def test_what_only_prepares_a_call_is_none(otlp, name, kind, is_model_call):
    attributes = {"openinference.span.kind": kind}
    (span,) = otlp.canonical(otlp.span(name=name, attributes=attributes), scope=SCOPE)
    assert (span.dialect, span.is_model_call) == ("openinference", is_model_call)
