"""Converted weights on disk: a GGUF file is read once, later starts map the result.

Reading and dequantising GGUF takes seconds; mapping a safetensors file takes none. One file a
model in the user's cache folder, private to the user, replaced atomically, and keyed by the
source's content: the same weights in another environment are not converted, nor kept, twice.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from longpole_engine.models.checkpoint import Checkpoint, TextSpec
from longpole_engine.models.llama import LlamaConfig

_log = logging.getLogger("longpole.engine.cache")

_FORMAT = 1
"""Raise it when the layout of the cached file changes."""


def folder() -> Path:
    """``$XDG_CACHE_HOME/longpole``, or ``~/.cache/longpole``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "longpole"


def through(
    source: Path, convert: Callable[[Path], Checkpoint], begin: Callable[[str], None]
) -> Checkpoint:
    """The model in ``source``: from the cache, else converted and put there.

    A cache that cannot be written costs the next start its time and nothing else.

    Args:
        source: the file to convert.
        convert: reads it; what it raises is passed on.
        begin: told when converting begins.
    """
    path = _path(source)
    cached = _read(path) if path.is_file() else None
    if cached is not None:
        return cached
    begin("convert")
    _log.info("converting %s (once)", source.name)
    checkpoint = convert(source)
    try:
        _write(path, checkpoint)
    except OSError as error:
        _log.warning("weights are not cached, %s: %s", path, error)
    return checkpoint


def _path(source: Path) -> Path:
    with source.open("rb") as file:
        content = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=8)).hexdigest()
    return folder() / f"{source.stem}-{content}-{_FORMAT}.safetensors"


def _read(path: Path) -> Checkpoint | None:
    """``None`` if the file is damaged: it is converted anew."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            facts = file.metadata()
            config = LlamaConfig(**json.loads(facts["config"]))
            text = json.loads(facts["text"])
            spec = TextSpec(text["tokenizer_json"], text["chat_template"], tuple(text["eos_ids"]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no dict
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        _log.warning("cached weights %s cannot be used (%s): converting again", path, error)
        return None
    return Checkpoint(config, tensors, spec)


def _write(path: Path, checkpoint: Checkpoint) -> None:
    from safetensors.torch import save_file

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = {
        "config": json.dumps(asdict(checkpoint.config)),
        "text": json.dumps(asdict(checkpoint.text)),
    }
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    os.close(descriptor)
    try:
        save_file(checkpoint.tensors, temporary, metadata=facts)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    for old in path.parent.iterdir():
        if old != path and _model(old) == _model(path):
            with contextlib.suppress(OSError):  # another user's, or already gone
                old.unlink()


def _model(cached: Path) -> str | None:
    """The model's name in a cached file's name; ``None`` if it is none of ours."""
    found = re.fullmatch(r"(.+)-[0-9a-f]{16}-\d+\.safetensors", cached.name)
    return found[1] if found else None
