import pytest

from longpole.vocab import Stage, keys

SCOPE = "openlit.instrumentation.openai"
FIRST_TOKEN = "gen_ai.server.time_to_first_token"


@pytest.fixture
def read(otlp):
    """The canonical form of one chat span."""

    def canonical(attributes, *, scope=SCOPE, **fields):
        attributes = {keys.OPERATION: "chat"} | attributes
        (span,) = otlp.canonical(otlp.span(attributes=attributes, kind=3, **fields), scope=scope)
        assert span.dialect == "openlit"
        return span

    return canonical


def test_the_sdks_name_on_the_span_is_enough(read):
    assert read({"telemetry.sdk.name": "openlit"}, scope="anything").is_model_call


def test_a_time_that_starts_at_the_headers_is_no_time_to_first_token(read):
    span = read({keys.REQUEST_STREAM: True, FIRST_TOKEN: 0.18})
    assert span.ttft_ns is None
    assert span.first_chunk_ns is None
    assert "ttft_after_headers" in span.flags
    assert span.attributes[FIRST_TOKEN] == "0.18"


def test_a_call_that_was_not_streamed_has_none_either(read):
    span = read({keys.REQUEST_STREAM: False, FIRST_TOKEN: 0.45})
    assert (span.ttft_ns, span.flags) == (None, [])


@pytest.mark.parametrize(
    ("provider", "whole", "flags"),
    [
        ("anthropic", 1456, ["input_excluded_cache"]),
        ("openai", 176 + 1280, ["input_excluded_cache"]),
    ],
)
def test_input_holds_the_cached_tokens(read, provider, whole, flags):
    span = read(
        {
            keys.PROVIDER: provider,
            keys.INPUT_TOKENS: 176,
            keys.CACHED_INPUT_TOKENS: 1024,
            keys.CACHE_CREATION_TOKENS: 256,
        }
    )
    assert (span.input_tokens, span.flags) == (whole, flags)


def test_a_small_cached_part_is_added_for_anthropic_alone(read):
    tokens = {keys.INPUT_TOKENS: 100, keys.CACHED_INPUT_TOKENS: 10}
    assert read({keys.PROVIDER: "anthropic"} | tokens).input_tokens == 110
    assert read({keys.PROVIDER: "openai"} | tokens).input_tokens == 100


@pytest.mark.parametrize(
    ("scope", "is_streamed", "cached", "is_estimated"),
    [
        (SCOPE, True, None, True),
        (SCOPE, True, 0, False),
        (SCOPE, False, None, False),
        ("openlit.instrumentation.ollama", True, None, False),
    ],
)
def test_tokens_the_library_counted_by_itself_are_marked(
    read, scope, is_streamed, cached, is_estimated
):
    given = {keys.REQUEST_STREAM: is_streamed, keys.INPUT_TOKENS: 33, keys.OUTPUT_TOKENS: 24}
    if cached is not None:
        given[keys.CACHED_INPUT_TOKENS] = cached
    span = read(given, scope=scope)
    assert (span.input_tokens, span.output_tokens) == (33, 24)
    assert ("tokens_estimated" in span.flags) is is_estimated


def test_a_vector_stores_query_is_retrieval(read):
    assert read({keys.OPERATION: "vectordb"}).stage == Stage.RETRIEVAL


def test_plain_traced_functions_are_plain_spans(otlp):
    (span,) = otlp.canonical(otlp.span(name="lookup"), scope="openlit.trace")
    assert (span.dialect, span.operation, span.is_model_call) == ("openlit", None, False)
