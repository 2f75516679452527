"""Files that are damaged or made to harm: each is refused in one sentence, before it takes memory."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import models
from models.errors import UserError
from models.files import headers
from models.importers import contents
from models.tasks.formats.formatted_task import formatted
from tests.sampling import every_third

TASK = formatted("{a:3}+{b:3}={s:4}", "a + b")
CONFIG: dict[str, Any] = {
    "model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 12, "n_positions": 16,
    "activation_function": "gelu_new",
}  # fmt: skip
D = 8
SHAPES = {
    "wte.weight": (12, D), "wpe.weight": (16, D), "ln_f.weight": (D,), "ln_f.bias": (D,), "h.0.ln_1.weight": (D,),
    "h.0.ln_1.bias": (D,), "h.0.ln_2.weight": (D,), "h.0.ln_2.bias": (D,), "h.0.attn.c_attn.weight": (D, 3 * D),
    "h.0.attn.c_attn.bias": (3 * D,), "h.0.attn.c_proj.weight": (D, D), "h.0.attn.c_proj.bias": (D,),
    "h.0.mlp.c_fc.weight": (D, 4 * D), "h.0.mlp.c_fc.bias": (4 * D,), "h.0.mlp.c_proj.weight": (4 * D, D),
    "h.0.mlp.c_proj.bias": (D,),
}  # fmt: skip
MATRIX = "h.0.attn.c_proj.weight"


def state() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def folder(path: Path, config: dict[str, Any] | None = None, tensors: Any = None, binary: bool = False) -> Path:
    (path / "config.json").write_text(json.dumps(CONFIG | (config or {})))
    if binary:
        torch.save(state() if tensors is None else tensors, path / "pytorch_model.bin")
    else:
        save_file(state() if tensors is None else tensors, path / "model.safetensors")
    return path


def test_the_folder_that_is_damaged_below_can_be_read(tmp_path: Path) -> None:
    model = models.load(folder(tmp_path), task=TASK)
    assert torch.equal(model.W_O[0].flatten(0, 1), state()[MATRIX]) and torch.equal(model.W_U, model.W_E.T)


VALUES = ["x", [1], {}, True, 0, -1, 2.5, 10**400, float("nan"), float("inf"), 3]


@pytest.mark.parametrize(
    "key", every_third([*CONFIG, "layer_norm_epsilon", "n_inner", "rope_scaling", "tie_word_embeddings"], 2)
)
def test_every_value_of_a_config_is_taken_or_refused_in_one_sentence(key: str, tmp_path: Path) -> None:
    for kind in ("gpt2", "llama", "gpt_neox"):
        own = {} if kind == "gpt2" else {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        own |= {"intermediate_size": 32, "hidden_act": "silu"}
        for value in VALUES:
            refused_or_read(folder(tmp_path, {"model_type": kind} | own | {key: value}))


def refused_or_read(path: Path, **options: Any) -> bool:
    try:
        models.load(path, task=TASK, **options)
    except UserError as error:
        assert "\n" not in str(error) and len(str(error)) < 1000
        return False
    return True


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64])
@pytest.mark.parametrize("name", ["wte.weight", MATRIX])
def test_a_weight_of_another_kind_of_number_is_refused(dtype: torch.dtype, name: str, tmp_path: Path) -> None:
    tensors = state()
    tensors[name] = tensors[name].to(dtype)
    with pytest.raises(UserError, match=name):
        models.load(folder(tmp_path, tensors=tensors, binary=True), task=TASK)


TENSORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "sparse": lambda x: x.to_sparse(),
    "sparse rows": lambda x: x.to_sparse_csr(),
    "repeated": lambda x: x[:1, :1].clone().expand(1 << 20, 1 << 20),
    "without values": lambda x: x.to("meta"),
    "quantised": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    "a number": lambda x: 3,
    "a list": lambda x: [x],
}


@pytest.mark.parametrize("kind", TENSORS)
@pytest.mark.filterwarnings("ignore")
def test_what_is_no_dense_tensor_is_refused(kind: str, tmp_path: Path) -> None:
    tensors: dict[Any, Any] = state()
    tensors[MATRIX] = TENSORS[kind](tensors[MATRIX])
    for binary in (tmp_path / "a.pt", None):
        with pytest.raises(UserError):
            if binary is None:
                models.load(folder(tmp_path, tensors=tensors, binary=True), task=TASK)
            else:
                torch.save({"model": {f"transformer.{n}": t for n, t in tensors.items()}}, binary)
                models.load(binary, task=TASK, config={"n_heads": 2})


@pytest.mark.parametrize("key", [3, None, ("a",), 2.5, b"wte.weight"])
def test_a_tensor_without_a_name_is_refused(key: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError):
        models.load(folder(tmp_path, tensors=state() | {key: torch.zeros(2)}, binary=True), task=TASK)


@pytest.mark.parametrize("tied", [True, None, False])
def test_a_head_beside_a_tied_embedding_is_the_embedding_or_refused(tied: bool | None, tmp_path: Path) -> None:
    said = {} if tied is None else {"tie_word_embeddings": tied}
    same, other = state()["wte.weight"].clone(), torch.ones(12, D)
    assert refused_or_read(folder(tmp_path, said, state() | {"lm_head.weight": same}))
    assert refused_or_read(folder(tmp_path, said, state() | {"lm_head.weight": other})) == (tied is False)
    if tied is False:
        assert torch.equal(models.load(tmp_path, task=TASK).W_U, other.T)


@pytest.mark.parametrize(
    "names",
    [
        "model.safetensors.index.json", "config.json", "../a.safetensors", "/etc/passwd", "", ".", "\0",
        "a.safetensors.index.json", "absent.safetensors",
    ],
)  # fmt: skip
def test_an_index_names_files_of_tensors_in_its_folder(names: str, tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "part.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(SHAPES, "part.safetensors")}))
    assert refused_or_read(tmp_path)
    index.write_text(json.dumps({"weight_map": dict.fromkeys(SHAPES, names)}))
    assert not refused_or_read(tmp_path)


def test_a_link_stays_in_its_folder_or_leads_to_the_hubs_blobs(tmp_path: Path) -> None:
    hub = tmp_path / "models--a" / "snapshots" / "1"
    hub.mkdir(parents=True)
    folder(hub)
    (tmp_path / "models--a" / "blobs").mkdir()
    for place, read in ((tmp_path / "models--a" / "blobs" / "f3", True), (tmp_path / "elsewhere", False)):
        for name in ("model.safetensors", "config.json"):
            (hub / name).resolve().rename(place)
            (hub / name).unlink(missing_ok=True)
            (hub / name).symlink_to(place)
            assert refused_or_read(hub) == read
            (hub / name).unlink()
            place.rename(hub / name)


def header(metadata: Any) -> bytes:
    text = json.dumps({"__metadata__": metadata}) if not isinstance(metadata, str) else metadata
    return len(text).to_bytes(8, "little") + text.encode()


@pytest.mark.parametrize(
    "metadata",
    [
        5, None, [], {"carrylens": "5"}, {"carrylens": "null"}, {"carrylens": "[" * 10**5}, {"carrylens": "{}"},
        {"carrylens": '{"sha256": "a", "metadata": 5}'}, {"carrylens": '{"sha256": "a", "metadata": null}'},
        {"carrylens": '{"sha256": "a", "metadata": {"a": {}}}'}, "[" * 10**5, '{"__metadata__": ' + '{"a":' * 10**4,
    ],
    ids=range(12),
)  # fmt: skip
def test_metadata_that_is_none_is_refused(metadata: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(header(metadata))
    for task in (None, TASK):
        with pytest.raises(UserError):
            models.load(path, task=task)


def test_an_archive_is_not_unpacked_before_its_size_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed zeros, and one stored record that many entries name."""
    monkeypatch.setattr(contents, "MOST_UNPACKED", 1 << 20)
    zeros = np.zeros(1 << 20, np.float32)
    np.savez_compressed(tmp_path / "a.npz", a=zeros)
    torch.save(state(), tmp_path / "plain.pt")
    with (
        zipfile.ZipFile(tmp_path / "plain.pt") as plain,
        zipfile.ZipFile(tmp_path / "packed.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name) + bytes(1 << 20) * name.endswith("/data/0"))
    for name in ("a.npz", "packed.pt"):
        assert (tmp_path / name).stat().st_size < 1 << 16
        with pytest.raises(UserError, match="unpacks to"):
            models.load(tmp_path / name, task=TASK)


@pytest.mark.parametrize("suffix", [".pt", ".npz", ".safetensors", ".bin", ".json", ".pth", ".ckpt"])
def test_arbitrary_bytes_are_refused(suffix: str, tmp_path: Path) -> None:
    empty, text = io.BytesIO(), b'{"a": [1, 2'
    zipfile.ZipFile(empty, "w").close()
    for data in (b"", b"\0" * 100, text, b"PK\x03\x04" + bytes(50), empty.getvalue(), b"[" * 10**5, b"\x80\x04."):
        (tmp_path / f"a{suffix}").write_bytes(data)
        for task in (None, TASK):
            with pytest.raises(UserError):
                models.load(tmp_path / f"a{suffix}", task=task)


HUGE = 300 << 30  # bytes; nothing of them but the first is stored
SMALL = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
LIES = {"a": {"dtype": "F32", "shape": [(HUGE - 1000) // 4], "data_offsets": [0, HUGE - 1000]}}


def of_header(listed: Any) -> bytes:
    text = json.dumps(listed).ljust(992).encode()
    return len(text).to_bytes(8, "little") + text


BEGINS = [b"", b"\x80\x02}q", b"PK\x03\x04", b"{", of_header(SMALL), of_header(LIES), b"\xff" * 16]


@pytest.mark.parametrize("begins", BEGINS, ids=range(len(BEGINS)))
def test_a_huge_file_is_refused_by_its_header_or_its_size_before_it_is_read(begins: bytes, tmp_path: Path) -> None:
    """Sparse files: they take no room on the disk, and no machine has the memory to read them."""
    for suffix in (".pt", ".npz", ".safetensors", ".bin", ".json", ".pth", ".ckpt"):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(begins)
        with path.open("r+b") as file:
            file.truncate(HUGE)
        tracemalloc.start()
        try:
            for ask in (lambda path=path: models.load(path, task=TASK), lambda path=path: models.guess(path)):
                with pytest.raises(UserError):
                    ask()
            assert tracemalloc.get_traced_memory()[1] < 256 << 20  # a header may have 100 MB
        finally:
            tracemalloc.stop()


def test_the_files_of_a_folder_are_looked_at_before_they_are_read_too(tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).unlink(missing_ok=True)
        folder(tmp_path)
        with (tmp_path / name).open("wb") as file:
            file.truncate(HUGE)
        with pytest.raises(UserError):
            models.load(tmp_path, task=TASK)


def test_a_large_file_with_a_right_header_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "LARGE", 0)
    tensors = {f"transformer.{name}": value for name, value in state().items()}
    save_file(tensors, tmp_path / "a.safetensors")
    torch.save(tensors, tmp_path / "a.pt")
    torch.save(tensors, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    np.savez(tmp_path / "a.npz", **{name: value.numpy() for name, value in tensors.items()})
    for name in ("a.safetensors", "a.pt", "old.pt", "a.npz"):
        assert refused_or_read(tmp_path / name, config={"n_heads": 2})
        data = (tmp_path / name).read_bytes()
        if name != "old.pt":  # which says where it ends only when it is read
            (tmp_path / name).write_bytes(data + bytes(1000) if name == "a.safetensors" else data[:-30])
            assert not refused_or_read(tmp_path / name, config={"n_heads": 2})


@pytest.mark.parametrize("value", VALUES)
def test_settings_of_a_published_checkpoint_are_refused_in_one_sentence(value: Any, tmp_path: Path) -> None:
    config = {"pos_rank": 3, "qkv_rank": 3, "attn_out_rank": 2, "ffn_rank": 3, "d_ff": 14}
    for name in config:
        torch.save({"model_config": config | {name: value}, "model_state": {}}, tmp_path / "a.pt")
        with pytest.raises(UserError):
            models.load(tmp_path / "a.pt")
