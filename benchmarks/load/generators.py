"""The generators: ours, and the peers in virtual environments of their own, made once.

These lie in ``LONGPOLE_BENCH_CACHE`` (default ``~/.cache/longpole-bench``) as ``load-NAME``.
Prompts are made with the engine's tokenizers, so that nothing is fetched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.sdk.environment import ROOT, Unavailable

_LIMIT_S = 600


class Ask(NamedTuple):
    """A run: so many requests at a constant rate."""

    url: str
    model: str
    rate: float
    num: int
    output_tokens: int
    input_tokens: int = 64


class Measured(NamedTuple):
    """What one run of a generator told; times are means over its requests."""

    cpu_s: float
    ttft_ms: float
    tpot_ms: float
    num: int
    document: dict[str, Any]


class Generator(NamedTuple):
    """A load generator.

    Attributes:
        title: for the table.
        packages: to install; none for ours.
        command: words after the interpreter, given the run, a tokenizer's folder and a folder.
        read: means of TTFT and TPOT, the number of whole answers, and the document, from there.
    """

    title: str
    packages: tuple[str, ...]
    command: Callable[[Ask, Path, Path], list[str]]
    read: Callable[[Path], tuple[float, float, int, dict[str, Any]]]


def _ours(ask: Ask, tokenizer: Path, out: Path) -> list[str]:
    run = "from longpole.cli import main; main()"
    lengths = ["--input-tokens", str(ask.input_tokens), "--output-tokens", str(ask.output_tokens)]
    many = ["--arrivals", f"constant:{ask.rate:g}", "--requests", str(ask.num)]
    return ["-c", run, "load", ask.url, "--model", ask.model, *many, *lengths, "--json"]


def _read_ours(out: Path) -> tuple[float, float, int, dict[str, Any]]:
    found = json.loads((out / "stdout").read_text())

    def mean(name: str) -> float:
        parts = [found[part]["service"][name] for part in ("warm", "cold")]
        num = sum(part["num"] for part in parts)
        return sum(part["mean"] * part["num"] for part in parts if part["num"]) / max(1, num)

    return mean("ttft_ms"), mean("tpot_ms"), found["num_completed"], found


def _aiperf(ask: Ask, tokenizer: Path, out: Path) -> list[str]:
    return [
        "-m", "aiperf", "profile", "-m", ask.model, "--url", ask.url, "--endpoint-type", "chat",
        "--streaming", "--tokenizer", str(tokenizer), "--use-server-token-count",
        "--request-rate", f"{ask.rate:g}", "--arrival-pattern", "constant",
        "--request-count", str(ask.num), "--isl", str(ask.input_tokens), "--osl",
        str(ask.output_tokens), "--ui", "none", "--no-server-metrics", "--no-gpu-telemetry",
        "--artifact-dir", str(out),
    ]  # fmt: skip


def _read_aiperf(out: Path) -> tuple[float, float, int, dict[str, Any]]:
    found = json.loads((out / "profile_export_aiperf.json").read_text())
    num = int(found["request_count"]["avg"])
    ttft_ms, tpot_ms = (
        float(found[name]["avg"]) for name in ("time_to_first_token", "inter_token_latency")
    )
    return ttft_ms, tpot_ms, num, found


def _guidellm(ask: Ask, tokenizer: Path, out: Path) -> list[str]:
    lengths = f"prompt_tokens={ask.input_tokens},output_tokens={ask.output_tokens}"
    return [
        "-m", "guidellm", "run",
        "--backend", f"kind=openai_http,target={ask.url},model={ask.model}",
        "--profile", f"kind=constant,rate={ask.rate:g}",
        "--constraint", f"kind=max_requests,count={ask.num}",
        "--tokenizer", f"kind=huggingface_auto,model={tokenizer}",
        "--data", f"kind=synthetic_text,{lengths}",
        "--output", f"kind=json,path={out / 'guidellm.json'}", "--disable-console",
    ]  # fmt: skip


def _read_guidellm(out: Path) -> tuple[float, float, int, dict[str, Any]]:
    (found,) = json.loads((out / "guidellm.json").read_text())["benchmarks"]
    ttft_ms, tpot_ms = (
        float(found["metrics"][name]["successful"]["mean"])
        for name in ("time_to_first_token_ms", "inter_token_latency_ms")
    )
    num = int(found["metrics"]["request_totals"]["successful"])
    return ttft_ms, tpot_ms, num, {}


GENERATORS = {
    "longpole": Generator("longpole load", (), _ours, _read_ours),
    "aiperf": Generator("AIPerf", ("aiperf==0.13.0",), _aiperf, _read_aiperf),
    "guidellm": Generator(
        "GuideLLM", (f"torch=={version('torch')}", "guidellm==0.8.1"), _guidellm, _read_guidellm
    ),
}
PEERS = ("aiperf", "guidellm")


def python_of(name: str) -> str:
    """The interpreter a generator runs in, after installing what is missing.

    Raises:
        Unavailable: pip failed.
    """
    packages = GENERATORS[name].packages
    if not packages:
        return sys.executable
    cache = Path(os.environ.get("LONGPOLE_BENCH_CACHE", "~/.cache/longpole-bench")).expanduser()
    folder = cache / f"load-{name}"
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    if not stamp.exists() or stamp.read_text() != "\n".join(packages):
        cache.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", str(folder)], folder.with_suffix(".log"), 120)
        pip = [str(python), "-m", "pip", "install", "--quiet", *packages]
        _run(pip, folder.with_suffix(".log"), 1800)
        stamp.write_text("\n".join(packages))
    return str(python)


def run(name: str, ask: Ask, tokenizer: Path, out: Path) -> Measured:
    """Run a generator to its end.

    Args:
        name: of the generator.
        ask: what it sends.
        tokenizer: a folder with a tokenizer of the Hugging Face kind.
        out: a new folder for what it writes.

    Raises:
        Unavailable: it could not be installed, failed, or did not get every answer.
    """
    generator = GENERATORS[name]
    python = python_of(name)
    out.mkdir(parents=True)
    metered = [sys.executable, "-m", "benchmarks.load.metered", str(out / "cpu.json")]
    _run([*metered, python, *generator.command(ask, tokenizer, out)], out / "stdout", _LIMIT_S)
    ttft_ms, tpot_ms, num, document = generator.read(out)
    if num < ask.num:
        raise Unavailable(f"{generator.title}: {num} of {ask.num} requests were answered")
    cpu_s = json.loads((out / "cpu.json").read_text())["cpu_s"]
    return Measured(cpu_s, ttft_ms, tpot_ms, num, document)


def _run(command: list[str], stdout: Path, limit_s: float) -> None:
    environ = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    with stdout.open("wb") as file, stdout.with_suffix(".err").open("wb") as errors:
        done = subprocess.run(  # noqa: S603 - our own
            command, cwd=ROOT, env=environ, stdout=file, stderr=errors, timeout=limit_s, check=False
        )
    if done.returncode:
        said = stdout.with_suffix(".err").read_text(errors="replace").strip().splitlines()[-1:]
        raise Unavailable(f"{' '.join(command[:4])} ...: {''.join(said)}")
