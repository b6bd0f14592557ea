"""Decoding over tables of tensors equals the engine's own decoding; the core stands alone."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from longpole_engine.attention.tables import gathered
from longpole_engine.config import EngineConfig, Weights
from longpole_engine.kv.pool import PAGE_TOKENS
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.models.graphs import GraphDecoder, best_kernel
from longpole_engine.models.llama import Llama
from longpole_engine.runner import Rows, Runner

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("heads", [(4, 2, 16), (9, 3, 64)])
def test_gathered_attention_equals_a_loop_over_tokens(heads: tuple[int, int, int]) -> None:
    num_heads, num_kv_heads, head_dim = heads
    torch.manual_seed(0)
    memory = torch.randn(12 * PAGE_TOKENS, 2, num_kv_heads, head_dim)
    pages = torch.randperm(12).view(3, 4).to(torch.int32)
    lengths = torch.tensor([1, 40, 64], dtype=torch.int32)
    q = torch.randn(3, num_heads, head_dim)
    found = gathered(q, memory, pages, lengths)
    for row in range(3):
        at = [int(pages[row, t // 16]) * 16 + t % 16 for t in range(int(lengths[row]))]
        for head in range(num_heads):
            own = head // (num_heads // num_kv_heads)
            keys, values = memory[at, 0, own].double(), memory[at, 1, own].double()
            weight = (keys @ q[row, head].double() / head_dim**0.5).softmax(0)
            assert torch.allclose(found[row, head].double(), weight @ values, atol=1e-5)


def test_a_step_over_tables_gives_the_runners_logits(tiny_model: Checkpoint) -> None:
    config = EngineConfig(
        weights=Weights.FP32,
        max_num_seqs=3,
        max_model_tokens=64,
        is_prefix_cached=False,
        num_threads=1,
    )
    runner = Runner(tiny_model, config)
    tables, lengths = [[9, 2, 5], [1, 7, 3], [4, 0, 8]], [5, 17, 30]
    for row, (table, length) in enumerate(zip(tables, lengths, strict=True)):
        runner.prompt([Rows(table, 0, [row + 3] * length, 0)])
    layers = [layer.clone() for layer in runner.store.layers]
    model = Llama(tiny_model.config, tiny_model.tensors, Weights.FP32, 64)
    decoder = GraphDecoder(model, layers, 3, 3)
    pages = torch.tensor(tables, dtype=torch.int32)
    for step in range(4):
        rows = [
            Rows(table, length + step, [20 + step], 1)
            for table, length in zip(tables, lengths, strict=True)
        ]
        positions = torch.tensor(lengths) + step
        found = decoder.step(torch.full((3,), 20 + step), positions, pages)
        assert torch.allclose(found, runner.decode(rows), atol=1e-4)


def test_without_a_gpu_pages_are_gathered() -> None:
    assert best_kernel(torch.device("cpu")) is gathered


def test_the_core_imports_with_torch_and_numpy_alone() -> None:
    code = """
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    names = {
        "click", "fastapi", "gguf", "jinja2", "numba", "opentelemetry", "prometheus_client",
        "psutil", "pydantic", "safetensors", "starlette", "tokenizers", "transformers", "uvicorn",
    }
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocked())
import torch
from longpole_engine import config, roofline, runner
from longpole_engine.kv import manager, pool, prefix, store
from longpole_engine.models import checkpoint, graphs, llama
from longpole_engine.attention import exact, paged, tables
from longpole_engine.sampling import sampler
from longpole_engine.scheduler import ledger, sim
from longpole_engine.telemetry import events, steps, story
from longpole_engine.config import EngineConfig, KvFormat, Weights
small = llama.LlamaConfig(1, 64, 4, 2, 16, 128, 64, 256, 1e4, 1e-5)
shapes = {"qkv": (128, 64), "attn_out": (64, 64), "gate_up": (256, 64), "down": (64, 128)}
tensors = {"embed": torch.randn(64, 64), "norm": torch.ones(64)}
for name in ("attn_norm", "ffn_norm"):
    tensors["layers.0." + name] = torch.ones(64)
for name, shape in shapes.items():
    tensors["layers.0." + name] = torch.randn(shape)
made = runner.Runner(
    checkpoint.Checkpoint(small, tensors, None),
    EngineConfig(max_model_tokens=64, prefix_cache_mb=1, num_threads=1),
)
made.warm_up()
print(roofline.weight_bytes(small, Weights.INT4))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


def test_the_gpu_check_says_so_where_there_is_no_gpu() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    command = [sys.executable, str(ROOT / "scripts" / "gpu_check")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no GPU" in done.stderr
