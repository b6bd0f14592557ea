"""The forward pass against transformers, and each format against fp32."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from longpole_engine.config import EngineConfig, Weights
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.ops import linear, quant
from longpole_engine.runner import Rows, Runner
from longpole_engine.text.tokenizer import Tokenizer

MakeParts = Callable[[Checkpoint], dict[str, torch.Tensor]]

TEXT = (
    "The lighthouse stood on the northern cape, where the wind never rested. Every evening the "
    "keeper climbed the 212 steps, wound the clockwork and lit the lamp, and every morning he "
    "wrote in the log how many ships had passed. In the winter of 1911 a storm broke the glass; "
    "he held a blanket before the flame until dawn, and no ship was lost. When the cape got "
    "electricity, the company thanked him with a watch. It is always four minutes slow."
)


PAGES = list(range(32))
SCATTERED = PAGES[::-1]


def runner(checkpoint: Checkpoint, weights: Weights) -> Runner:
    config = EngineConfig(
        weights=weights, max_num_seqs=4, max_model_tokens=512, prefix_cache_mb=64, num_threads=1
    )
    return Runner(checkpoint, config)


def reference(checkpoint: Checkpoint, make_parts: MakeParts) -> Any:
    """The same tensors in transformers' model."""
    from transformers import LlamaConfig, LlamaForCausalLM

    c = checkpoint.config
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=c.vocab_size,
            hidden_size=c.hidden_size,
            intermediate_size=c.ffn_size,
            num_hidden_layers=c.num_layers,
            num_attention_heads=c.num_heads,
            num_key_value_heads=c.num_kv_heads,
            head_dim=c.head_dim,
            max_position_embeddings=c.context_tokens,
            rms_norm_eps=c.rms_eps,
            rope_parameters={"rope_type": "default", "rope_theta": c.rope_base},
            tie_word_embeddings=True,
        )
    )
    parts = make_parts(checkpoint)
    model.load_state_dict({**parts, "lm_head.weight": parts["model.embed_tokens.weight"]})
    return model.eval()


@torch.inference_mode()
def logits_by_steps(run: Runner, tokens: list[int], num_prompt: int) -> torch.Tensor:
    """Logits after each token from the prompt's last on: prompt at once, the rest one by one."""
    first = run.prompt([Rows(PAGES, 0, tokens[:num_prompt], 1)])
    rest = [run.decode([Rows(PAGES, at, [tokens[at]], 1)]) for at in range(num_prompt, len(tokens))]
    return torch.cat([first, *rest])


@torch.inference_mode()
def assert_logits_equal_transformers(
    checkpoint: Checkpoint, tokens: list[int], make_parts: MakeParts
) -> None:
    expected = reference(checkpoint, make_parts)(torch.tensor([tokens])).logits[0]
    run = runner(checkpoint, Weights.FP32)
    stepped = logits_by_steps(run, tokens, 20)
    assert (stepped - expected[19:]).abs().max() <= 1e-4
    assert torch.equal(stepped.argmax(-1), expected[19:].argmax(-1))
    # the whole prompt at once, all its rows; then again on top of a cached beginning
    whole = run.prompt([Rows(SCATTERED, 0, tokens, len(tokens))])
    assert (whole - expected).abs().max() <= 1e-4
    rest = run.prompt([Rows(SCATTERED, 16, tokens[16:], 1)])
    assert (rest[0] - expected[-1]).abs().max() <= 1e-4


def test_tiny_logits_equal_transformers(
    tiny_model: Checkpoint, hugging_face_parts: MakeParts
) -> None:
    tokens = Tokenizer(tiny_model.text.tokenizer_json).encode(TEXT[:90])
    assert_logits_equal_transformers(tiny_model, tokens, hugging_face_parts)


@pytest.mark.weights
def test_smollm2_logits_equal_transformers(
    smollm2: Checkpoint, hugging_face_parts: MakeParts
) -> None:
    tokens = Tokenizer(smollm2.text.tokenizer_json).encode(TEXT[:150])
    assert_logits_equal_transformers(smollm2, tokens, hugging_face_parts)


@torch.inference_mode()
def test_a_ragged_batch_equals_each_sequence_alone(tiny_model: Checkpoint) -> None:
    run = runner(tiny_model, Weights.FP32)
    prompts = [[5, 6, 7], list(range(10, 60)), [9] * 20]
    alone = []
    for prompt in prompts:
        run.prompt([Rows(PAGES, 0, prompt, 1)])
        alone.append(run.decode([Rows(PAGES, len(prompt), [3], 1)])[0])
    tables = [PAGES[4 * slot : 4 * slot + 4] for slot in range(3)]
    run.prompt([Rows(table, 0, p, 0) for table, p in zip(tables, prompts, strict=True)])
    together = run.decode(
        [Rows(table, len(p), [3], 1) for table, p in zip(tables, prompts, strict=True)]
    )
    assert (together - torch.stack(alone)).abs().max() <= 1e-4


@pytest.fixture(scope="module")
def exact_loss(smollm2: Checkpoint, hugging_face_parts: MakeParts) -> float:
    """Mean loss of transformers' fp32 model on the text after its first 20 tokens."""
    tokens = Tokenizer(smollm2.text.tokenizer_json).encode(TEXT)
    with torch.inference_mode():
        model = reference(smollm2, hugging_face_parts)
        logits = model(torch.tensor([tokens[:-1]])).logits[0, 19:]
    return functional.cross_entropy(logits, torch.tensor(tokens[20:])).item()


@pytest.mark.weights
@pytest.mark.parametrize(("weights", "bound"), [(Weights.INT8, 1.01), (Weights.INT4, 1.02)])
def test_packed_weights_keep_the_perplexity(
    smollm2: Checkpoint, exact_loss: float, weights: Weights, bound: float
) -> None:
    tokens = Tokenizer(smollm2.text.tokenizer_json).encode(TEXT)
    logits = logits_by_steps(runner(smollm2, weights), tokens[:-1], 20)
    loss = functional.cross_entropy(logits, torch.tensor(tokens[20:])).item()
    assert math.exp(loss - exact_loss) <= bound


@pytest.mark.weights
def test_int4_recovers_the_files_own_numbers(smollm2: Checkpoint) -> None:
    """Q4_1 groups span 0..15, so minimum and maximum give back offset and step."""
    for name in ("layers.0.qkv", "layers.17.gate_up", "layers.29.down"):
        weight = smollm2.tensors[name]
        value, step, low = quant.to_int4(weight)
        groups = value.view(len(value), -1, quant.INT4_GROUP)
        again = low[..., None] + step[..., None] * groups
        assert (again.view(weight.shape) - weight).abs().max() <= 1e-6


@pytest.mark.parametrize("make", [linear.bf16, linear.int8, linear.int8_head, linear.int4])
def test_packed_rows_do_not_depend_on_their_neighbours(
    make: Callable[[torch.Tensor], linear.Linear],
) -> None:
    torch.manual_seed(3)
    weight, x = torch.randn(96, 64) * 0.1, torch.randn(16, 64)
    op = make(weight)
    alone = op(x[:1])
    for num_rows in (2, 3, 4, 8, 16):
        assert torch.equal(op(x[:num_rows])[:1], alone)


@pytest.mark.parametrize(("make", "bound"), [(linear.int8, 0.02), (linear.int4, 0.12)])
def test_packed_layers_come_close_to_dense_ones(
    make: Callable[[torch.Tensor], linear.Linear], bound: float
) -> None:
    torch.manual_seed(4)
    weight, x = torch.randn(96, 64), torch.randn(5, 64)
    weight[3] = 0.0  # a row without range
    dense = linear.dense(weight)(x)
    error = (make(weight)(x).float() - dense).abs().mean() / dense.abs().mean()
    assert error < bound


def test_bf16_layers_have_the_bits_of_the_plain_product() -> None:
    torch.manual_seed(5)
    weight, x = torch.randn(96, 64), torch.randn(20, 64)
    op = linear.bf16(weight)
    for num_rows in (1, 4, 20):
        plain = functional.linear(x[:num_rows].bfloat16(), weight.bfloat16())
        assert torch.equal(op(x[:num_rows]), plain)
    assert op.num_bytes == 2 * weight.numel()


@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
def test_the_int8_head_loses_nothing_but_what_its_weights_do(size: float) -> None:
    """Activations in 16 bits: nearer to the exact product than int8 with bf16 activations."""
    torch.manual_seed(6)
    weight, x = torch.randn(96, 64), torch.randn(5, 64) * size
    x[1] = 0.0
    x[2, 1:] = 0.0  # one number carries the row's scale
    values, scale = quant.to_int8(weight)
    exact = x.double() @ (values.double() * scale.bfloat16().double()[:, None]).T
    head, plain = linear.int8_head(weight), linear.int8(weight)
    error = (head(x).double() - exact).abs().sum()
    assert torch.equal(head(x)[1], torch.zeros(96))
    assert error <= (plain(x).double() - exact).abs().sum()
    assert head.num_bytes == plain.num_bytes
