"""The calculators equal what the engine really holds, and no measured time is below a floor."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from longpole.errors import UsageError
from longpole_engine import roofline
from longpole_engine.commands import engine
from longpole_engine.config import EngineConfig, KvFormat, Weights
from longpole_engine.kv.pool import num_pages
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.runner import Rows, Runner


def runner(checkpoint: Checkpoint, **changes: Any) -> Runner:
    config = {"max_num_seqs": 2, "max_model_tokens": 64, "is_prefix_cached": False}
    return Runner(checkpoint, EngineConfig(**{**config, "num_threads": 1, **changes}))


@pytest.mark.parametrize("weights", list(Weights))
def test_bytes_of_weights_are_those_of_the_tensors_a_step_reads(
    tiny_model: Checkpoint, weights: Weights
) -> None:
    made = runner(tiny_model, weights=weights)
    assert made.read_bytes(1, 0) == roofline.weight_bytes(tiny_model.config, weights)
    assert made.read_bytes(0, 0) == 0
    assert made.read_bytes(1, 20) > made.read_bytes(1, 0)


@pytest.mark.parametrize("kv_format", list(KvFormat))
def test_bytes_of_keys_and_values_are_those_of_the_pool(
    tiny_model: Checkpoint, kv_format: KvFormat
) -> None:
    made = runner(tiny_model, kv_format=kv_format)
    whole = sum(tensor.nbytes for tensor in made.store._tensors())
    assert whole == roofline.kv_bytes(tiny_model.config, kv_format, 64, num_seqs=2)
    assert roofline.kv_bytes(tiny_model.config, kv_format, 65) == whole // 8 * 5


def test_parameters_are_those_of_the_checkpoint(tiny_model: Checkpoint) -> None:
    total = sum(tensor.numel() for tensor in tiny_model.tensors.values())
    assert roofline.num_params(tiny_model.config) == total


@pytest.mark.weights
def test_the_real_model_has_the_published_sizes(smollm2: Checkpoint) -> None:
    assert roofline.num_params(smollm2.config) == 134_515_008
    found = roofline.floors(smollm2.config, Weights.INT8, KvFormat.FP32, 1024)
    assert found.kv_bytes_per_token == 46_080  # by 3 key heads, not 9 heads
    assert found.kv_bytes == 1024 * 46_080
    assert found.decode_floor_s is None


def test_no_step_is_faster_than_its_floor(tiny_model: Checkpoint) -> None:
    machine = roofline.measure_machine(1)
    made = runner(tiny_model)
    decode_s = prefill_s = float("inf")
    pages = list(range(num_pages(64)))
    for _ in range(3):
        begun = time.perf_counter()
        made.prompt([Rows(pages, 0, [5] * 48, 1)])
        prefill_s = min(prefill_s, time.perf_counter() - begun)
        begun = time.perf_counter()
        made.decode([Rows(pages, 48, [5], 1)])
        decode_s = min(decode_s, time.perf_counter() - begun)
    sizes = (tiny_model.config, Weights.INT4, KvFormat.FP32)
    decode = roofline.floors(*sizes, 49, machine=machine)
    prefill = roofline.floors(*sizes, 48, machine=machine)
    assert decode.decode_floor_s is not None
    assert prefill.prefill_floor_s is not None
    assert 0 < decode.decode_floor_s <= decode_s
    assert 0 < prefill.prefill_floor_s <= prefill_s


def test_a_sequence_of_nothing_is_refused(tiny_model: Checkpoint) -> None:
    with pytest.raises(UsageError, match="both are at least 1"):
        roofline.floors(tiny_model.config, Weights.INT4, KvFormat.FP32, 0)


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_the_command_prints_what_the_calculator_says(
    flags: list[str], tiny_model: Checkpoint
) -> None:
    given = ["--model", "tiny", "--read-gb-s", "1", "--tflops", "0.001", "--tokens", "32"]
    done = CliRunner().invoke(engine, ["roofline", *given, *flags])
    assert done.exit_code == 0, done.output
    wanted = roofline.floors(
        tiny_model.config, Weights.INT4, KvFormat.FP32, 32, machine=roofline.Machine(1e9, 1e9)
    )
    if flags:
        assert wanted._asdict().items() <= json.loads(done.output).items()
    else:
        assert f"{wanted.weight_bytes:,} bytes" in done.output


def test_the_command_refuses_in_one_sentence() -> None:
    run: Callable[..., Any] = CliRunner().invoke
    given = ["--read-gb-s", "1", "--tflops", "1", "--model", "tiny"]
    done = run(engine, ["roofline", *given, "--seqs", "0"])
    assert isinstance(done.exception, UsageError)
