"""Streaming the whole vocabulary: the pieces joined are the text, at every token of the way."""

from random import Random

import pytest

from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.text.detokenize import Detokenizer
from longpole_engine.text.stops import StopBuffer
from longpole_engine.text.tokenizer import Tokenizer


@pytest.mark.weights
@pytest.mark.parametrize("seed", range(3))
def test_all_tokens_in_a_random_order_stream_exactly(smollm2: Checkpoint, seed: int) -> None:
    words = Tokenizer(smollm2.text.tokenizer_json)
    tokens = list(range(words.vocab_size))
    Random(seed).shuffle(tokens)
    text = b"".join(words.token_bytes(token) for token in tokens).decode("utf-8", "replace")
    detokenizer, stops = Detokenizer(words.token_bytes), StopBuffer(("never to be found",))
    at = 0
    for token in [*tokens, None]:
        piece = detokenizer.finish() if token is None else detokenizer.push(token)
        shown = stops.push(piece) + (stops.finish() if token is None else "")
        assert text.startswith(shown, at)
        at += len(shown)
    assert at == len(text)


@pytest.mark.weights
def test_no_token_of_a_valid_text_shows_half_a_character(smollm2: Checkpoint) -> None:
    """Every token that ends inside a character waits for the rest of it."""
    words = Tokenizer(smollm2.text.tokenizer_json)
    num_open = 0
    for token in range(words.vocab_size):
        data = words.token_bytes(token)
        try:
            data.decode()
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                continue  # begins inside a character
            num_open += 1
            assert "\ufffd" not in Detokenizer(words.token_bytes).push(token)
    assert num_open > 0
