import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longpole.errors import BadInput
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.text.chat import ChatTemplate
from longpole_engine.text.detokenize import Detokenizer
from longpole_engine.text.tokenizer import Tokenizer

MIXED = "Grüße, 東京 🗼!\n\tThe 2nd café — naïve; Ελλάδα, 한국어, שלום 👩‍👩‍👧‍👦 x²"


@pytest.fixture(scope="session")
def tiny_words(tiny_model: Checkpoint) -> Tokenizer:
    return Tokenizer(tiny_model.text.tokenizer_json)


@pytest.fixture(scope="session")
def words(smollm2: Checkpoint) -> Tokenizer:
    return Tokenizer(smollm2.text.tokenizer_json)


def streamed(words: Tokenizer, tokens: list[int]) -> list[str]:
    detokenizer = Detokenizer(words.token_bytes)
    return [*(detokenizer.push(token) for token in tokens), detokenizer.finish()]


def whole(words: Tokenizer, tokens: list[int]) -> str:
    return b"".join(words.token_bytes(token) for token in tokens).decode("utf-8", "replace")


@given(text=st.text(max_size=60))
def test_tiny_text_survives_the_round_trip(tiny_words: Tokenizer, text: str) -> None:
    tokens = tiny_words.encode(text)
    assert "".join(streamed(tiny_words, tokens)) == text or "<|" in text


@given(tokens=st.lists(st.integers(0, 511), max_size=60))
def test_pieces_joined_equal_the_whole_in_any_order_of_tokens(
    tiny_words: Tokenizer, tokens: list[int]
) -> None:
    assert "".join(streamed(tiny_words, tokens)) == whole(tiny_words, tokens)


@given(text=st.text(max_size=60))
def test_no_half_character_is_ever_shown(tiny_words: Tokenizer, text: str) -> None:
    tokens = tiny_words.encode(text.replace("\ufffd", ""))
    assert not any("\ufffd" in piece for piece in streamed(tiny_words, tokens))


def test_an_answer_that_ends_inside_a_character_shows_it_once_at_the_end(
    tiny_words: Tokenizer,
) -> None:
    pieces = streamed(tiny_words, tiny_words.encode("ok 🗼")[:-1])
    assert "".join(pieces[:-1]) == "ok "
    assert pieces[-1] == "\ufffd"


def test_special_tokens_are_recognised_and_leave_no_text(tiny_words: Tokenizer) -> None:
    assert tiny_words.encode("<|im_start|>") == [1]
    assert "".join(streamed(tiny_words, [1, *tiny_words.encode("hi"), 2])) == "hi"
    assert tiny_words.token_bytes(10**6) == b""


@pytest.mark.weights
@settings(max_examples=60, deadline=None)
@given(tokens=st.lists(st.integers(0, 49_151), max_size=200))
def test_the_real_vocabulary_streams_exactly(words: Tokenizer, tokens: list[int]) -> None:
    assert "".join(streamed(words, tokens)) == whole(words, tokens)


@pytest.mark.weights
def test_every_token_of_the_real_vocabulary_decodes_as_its_library_does(
    smollm2: Checkpoint, words: Tokenizer
) -> None:
    import tokenizers

    library = tokenizers.Tokenizer.from_str(smollm2.text.tokenizer_json)
    assert words.vocab_size == 49_152
    for start in range(0, 49_152, 97):
        tokens = list(range(start, min(start + 97, 49_152)))
        assert "".join(streamed(words, tokens)) == library.decode(tokens)


@pytest.mark.weights
def test_real_text_survives_the_round_trip(words: Tokenizer) -> None:
    tokens = words.encode(MIXED)
    pieces = streamed(words, tokens)
    assert "".join(pieces) == MIXED
    assert not any("\ufffd" in piece for piece in pieces)
    assert len(words.encode("2048")) == 4  # each digit a token


@pytest.mark.weights
def test_the_real_chat_template_gives_the_models_own_prompt(smollm2: Checkpoint) -> None:
    template = ChatTemplate(smollm2.text.chat_template or "")
    assert template.render([{"role": "user", "content": "Hi"}]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, "
        "trained by Hugging Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    "source",
    ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ raise_exception('no') }}"],
)
def test_a_template_reaches_nothing_but_its_messages(source: str) -> None:
    with pytest.raises(BadInput, match="refuses"):
        ChatTemplate(source).render([{"role": "user", "content": "Hi"}])


def test_a_broken_template_is_named() -> None:
    with pytest.raises(BadInput, match="does not compile"):
        ChatTemplate("{% if %}")
