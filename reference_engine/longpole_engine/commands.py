"""Commands of the engine: ``longpole engine serve``."""

from __future__ import annotations

import os
import time

import click

from longpole import config as configuration
from longpole.errors import LongpoleError
from longpole_engine.settings import DEFAULTS


@click.group("engine")
def engine() -> None:
    """The reference engine: a real model on this machine's CPU."""


@engine.command("serve")
@click.option("--host", help="Address to listen on.  [127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 takes a free one.  [8000]")
@click.option("--model", help="smollm2, tiny, a GGUF file or a Hugging Face folder.  [smollm2]")
@click.option("--numerics", type=click.Choice(["fast", "invariant"]), help="[fast]")
@click.option("--weights", type=click.Choice(["int4", "int8", "bf16", "fp32"]), help="[int4]")
@click.option("--max-num-seqs", type=int, help="Requests that run at a time.  [8]")
@click.option("--policy", type=click.Choice(["fcfs", "priority", "shortest", "slo"]), help="[fcfs]")
@click.option("--max-step-tokens", type=int, help="Tokens a step may compute.  [160]")
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
