"""Commands of the engine: ``longpole engine serve``."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import click

from longpole import config as configuration
from longpole.errors import LongpoleError
from longpole_engine.load.commands import proxy
from longpole_engine.load.incident_command import incident
from longpole_engine.load.matrix_command import matrix
from longpole_engine.settings import DEFAULTS

if TYPE_CHECKING:
    from longpole_engine.roofline import Floors
    from longpole_engine.shapes import Shape, Shown

_FORMATS = ("int4", "int8", "bf16", "fp32")
_MODEL = "smollm2, tiny, a GGUF file or a Hugging Face folder."


@click.group("engine")
def engine() -> None:
    """The reference engine: a real model on this machine's CPU."""


engine.add_command(proxy)
engine.add_command(incident)
engine.add_command(matrix)


@engine.command("serve")
@click.option("--host", help="Address to listen on.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one.  [8000]")
@click.option("--model", help="smollm2, tiny, a GGUF file or a Hugging Face folder.  [smollm2]")
@click.option("--numerics", type=click.Choice(["fast", "invariant"]), help="[fast]")
@click.option("--weights", type=click.Choice(["int4", "int8", "bf16", "fp32"]), help="[int4]")
@click.option("--max-num-seqs", type=int, help="Requests that run at a time.  [8]")
@click.option("--policy", type=click.Choice(["fcfs", "priority", "shortest", "slo"]), help="[fcfs]")
@click.option("--max-step-tokens", type=int, help="Tokens a step may compute.  [160]")
@click.option("--speculation", type=click.Choice(["off", "ngram", "self", "draft"]), help="[ngram]")
@click.option("--num-drafts", type=click.IntRange(0), help="Tokens drafted at a time at most.")
@click.option("--draft-model", help="Whose drafts --speculation draft takes.")
@click.option("--no-chunked-prefill", is_flag=True, help="Run every prompt in one step.")
@click.option("--no-prefix-cache", is_flag=True, help="Run every prompt in full.")
@click.option("--insecure-no-auth", is_flag=True, help="Allow a host others can reach.")
def serve(
    no_chunked_prefill: bool,
    no_prefix_cache: bool,
    insecure_no_auth: bool,
    **flags: str | int | None,
) -> None:
    """Serve a model through an OpenAI-compatible API.

    Flags win over LONGPOLE_ENGINE_* variables, those over [engine] in longpole.toml.
    """
    began = time.monotonic()
    settings = configuration.settings("engine", DEFAULTS)
    for key, value in flags.items():
        if value is not None:
            settings[key] = configuration.Setting(value, "flag")
    for key, is_off in (("prefix_cache", no_prefix_cache), ("chunked_prefill", no_chunked_prefill)):
        if is_off:
            settings[key] = configuration.Setting(value=False, source="flag")
    # Threads of a kernel sleep while they wait instead of spinning: on cores shared with other
    # work a spinning thread keeps its own partner from running. Read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from longpole_engine.server.main import run
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing.startswith("longpole"):
            raise
        raise LongpoleError(
            f"`longpole engine serve` needs {missing}: pip install 'longpole[engine]'"
        ) from error

    def on_ready(address: str, model: str) -> None:
        seconds = time.monotonic() - began
        click.echo(f"engine ready  {address}  model '{model}'  ({seconds:.1f} s)", err=True)

    run(settings, is_open=insecure_no_auth, on_ready=on_ready)


@engine.command("roofline")
@click.option("--model", default="smollm2", show_default=True, help=_MODEL)
@click.option("--weights", type=click.Choice(_FORMATS), default="int4", show_default=True)
@click.option(
    "--kv-format", type=click.Choice(["fp32", "bf16", "int8"]), default="fp32", show_default=True
)
@click.option("--tokens", type=int, default=1024, show_default=True, help="Length of a sequence.")
@click.option("--seqs", type=int, default=1, show_default=True, help="That decode together.")
@click.option("--read-gb-s", type=float, help="Memory bandwidth; measured here unless given.")
@click.option("--tflops", type=float, help="Arithmetic at best; measured here unless given.")
@click.option("--threads", type=click.IntRange(1), help="That measure; all cores unless given.")
@click.option("--json", "is_json", is_flag=True, help="One JSON document.")
def roofline(
    model: str,
    weights: str,
    kv_format: str,
    tokens: int,
    seqs: int,
    read_gb_s: float | None,
    tflops: float | None,
    threads: int | None,
    is_json: bool,
) -> None:
    """Say what a model must hold and read, and the least time that takes.

    The floors leave out everything but bytes and arithmetic: no measured time is below them.
    """
    _need_torch()
    from longpole_engine import roofline as calculator
    from longpole_engine.config import KvFormat, Weights
    from longpole_engine.models.loader import load

    checkpoint = load(model)
    if read_gb_s is None or tflops is None:
        measured = calculator.measure_machine(threads or os.cpu_count() or 1)
        read_gb_s = measured.read_bytes_s / 1e9 if read_gb_s is None else read_gb_s
        tflops = measured.flops / 1e12 if tflops is None else tflops
    found = calculator.floors(
        checkpoint.config,
        Weights(weights),
        KvFormat(kv_format),
        tokens,
        seqs,
        calculator.Machine(read_gb_s * 1e9, tflops * 1e12),
        is_tied="head" not in checkpoint.tensors,
    )
    if is_json:
        machine = {"read_gb_s": read_gb_s, "tflops": tflops}
        asked = {"model": model, "weights": weights, "kv_format": kv_format}
        sizes = {"tokens": tokens, "seqs": seqs}
        document = {"schema": "longpole.engine.roofline/1", **asked, **sizes, "machine": machine}
        click.echo(json.dumps({**document, **found._asdict()}, indent=1))
        return
    click.echo(f"machine                {read_gb_s:.1f} GB/s read, {tflops:.3f} TFLOP/s")
    _echo_floors(found, seqs)


def _echo_floors(found: Floors, num_seqs: int) -> None:
    decode_s, prefill_s = found.decode_floor_s or 0.0, found.prefill_floor_s or 0.0
    click.echo(f"parameters             {found.num_params:,}")
    click.echo(f"weights, one step      {found.weight_bytes:,} bytes")
    click.echo(f"keys and values        {found.kv_bytes_per_token:,} bytes a token")
    click.echo(f"pages of the sequences {found.kv_bytes:,} bytes")
    click.echo(f"decode floor           {decode_s * 1e3:.2f} ms a step of {num_seqs} sequences")
    click.echo(f"prefill floor          {prefill_s * 1e3:.1f} ms for the prompts")


@engine.command("shape")
@click.argument("names", nargs=-1)
@click.option("--model", default="smollm2", show_default=True, help=_MODEL)
@click.option("--long-tokens", type=int, default=1024, show_default=True, help="Of long prompts.")
@click.option("--threads", type=click.IntRange(1), default=2, show_default=True)
@click.option("--json", "is_json", is_flag=True, help="One JSON document.")
def shape(
    names: tuple[str, ...], model: str, long_tokens: int, threads: int, is_json: bool
) -> None:
    """Make a latency shape happen, beside a control without its cause; without names: list them.

    Exit code 1 if a shape did not show.
    """
    _need_torch()
    from longpole_engine import shapes
    from longpole_engine.models.loader import load

    if not names:
        for one in shapes.SHAPES.values():
            click.echo(f"{one.name:<22}{one.text}")
        return
    chosen = [shapes.find(name) for name in names]
    extra = {"num_threads": threads, "num_decode_threads": threads}
    scene = shapes.Scene(model, load(model), long_tokens, extra)
    rows: list[dict[str, Any]] = []
    for one in chosen:
        shown = one.run(scene)
        is_shown = one.is_shown(shown.shape, shown.control)
        settings = {key: str(value) for key, value in shown.settings.items()}
        rows.append(
            {
                "name": one.name,
                "text": one.text,
                "settings": settings,
                "key": one.key,
                "shape": shown.shape,
                "control": shown.control,
                "is_shown": is_shown,
            }
        )
        if not is_json:
            _echo_shape(one, shown, is_shown=is_shown)
    if is_json:
        schema = "longpole.engine.shapes/1"
        click.echo(json.dumps({"schema": schema, "model": model, "shapes": rows}, indent=1))
    if not all(row["is_shown"] for row in rows):
        raise SystemExit(1)


def _echo_shape(shape: Shape, shown: Shown, *, is_shown: bool) -> None:
    click.echo(f"{shape.name}: {shape.text}")
    for key, value in shown.settings.items():
        click.echo(f"    {key} = {value}")
    click.echo(f"    {'':<24}{'shape':>12}{'control':>12}")
    for key, value in shown.shape.items():
        mark = "  <" if key == shape.key else ""
        click.echo(f"    {key:<24}{value:>12.2f}{shown.control[key]:>12.2f}{mark}")
    click.echo(f"    {'shown' if is_shown else 'NOT SHOWN'}")


def _need_torch() -> None:
    """Say how to install what is missing, in one sentence."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import torch  # noqa: F401 - only whether it is there
    except ModuleNotFoundError as error:
        raise LongpoleError(
            f"`longpole engine` needs {error.name}: pip install 'longpole[engine]'"
        ) from error
