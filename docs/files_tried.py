"""Files of other programs, from the file to a verdict: a table in docs/read_your_files.md.

    python docs/files_tried.py        writes each file, runs ``CODE`` on it, and writes the table

The models are trained ones of :mod:`benchmarks.provability`, written into each format; where an architecture has none
among them, its weights are random, and a figure is refused. Logits are compared with the class that reads the format:
those of transformers (which nanoGPT and minGPT share with GPT-2), and TransformerLens' own.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tasks_tried import as_gpt2, cells, run_code, write_table
from torch import Tensor

import models
from benchmarks.provability.ordinary_models import MODELS, ordinary_model

TABLE = re.compile(r"^\| file \| read by .*?\|$(?=\n\n)", re.MULTILINE | re.DOTALL)
CODE = """\
task = {task}
model = models.load(path, task=task{options})
pairs = variable_pairs(task, {pairs}, n=64)
figure = interp.activation_patching(model, pairs).figure()
verdict = interp.certify(model, minutes=2)"""
ADD = 'formatted("{a:3}+{b:3}={s:4r}", "a + b", variables="addition")', '"carry_in", 1'
#: How the tasks of other models are said, and what two problems of a pair differ in.
OTHER = {
    "add-3-rotary-0": ('formatted("{a:3r}+{b:3r}={s:4r}", "a + b", variables="addition")', '"carry_in", 1'),
    "modular-addition-59": ('formatted("{a}{b}=", "(a + b) % 59", base=59)', '"a", 0'),
}
Model = models.ArithmeticTransformer
Own = Callable[[Tensor], Tensor]
#: Writes a file of a model, and gives its path and the logits of the class that reads it.
Write = Callable[[Model, Path], tuple[Path, Own]]


def _stored(name: str) -> Model:
    if not (MODELS / name).exists():
        return models.load(name)
    return models.load(MODELS / name, task=ordinary_model(name).made_task())


def _folder(model: Model, place: Path, **options: Any) -> tuple[Path, Own]:
    gpt2 = as_gpt2(model)
    gpt2.save_pretrained(place, **options)
    return place, lambda tokens: gpt2(tokens).logits


def _folder_of_bin(model: Model, place: Path) -> tuple[Path, Own]:
    _, own = _folder(model, place)
    (place / "model.safetensors").unlink()
    torch.save(as_gpt2(model).state_dict(), place / "pytorch_model.bin")
    return place, own


def _random(kind: type[transformers.PreTrainedConfig], **fields: Any) -> Write:
    """Of an architecture without a trained model here."""

    def write(model: Model, place: Path) -> tuple[Path, Own]:
        size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
        size |= {"vocab_size": model.config.d_vocab, "max_position_embeddings": 32, "initializer_range": 0.3}
        torch.manual_seed(0)
        made = transformers.AutoModelForCausalLM.from_config(kind(**size | fields)).eval()
        made.save_pretrained(place)
        return place, lambda tokens: made(tokens).logits

    return write


def _gpt(key: str | None, prefix: str = "") -> Write:
    """nanoGPT's and minGPT's checkpoints: GPT-2's names, with matrices [out, in]."""

    def write(model: Model, place: Path) -> tuple[Path, Own]:
        gpt2, path = as_gpt2(model), place / "ckpt.pt"
        state = {prefix + n: x.T if ".c_" in n and x.ndim == 2 else x for n, x in gpt2.state_dict().items()}
        torch.save(state if key is None else {key: state, "model_args": {"n_head": model.config.n_heads}}, path)
        return path, lambda tokens: gpt2(tokens).logits

    return write


#: The axes of EasyTransformer's tensors, in TransformerLens' order.
EASY = {"W_E": (1, 0), "W_pos": (1, 0), "W_U": (1, 0), "W_in": (1, 0), "W_out": (1, 0)}
EASY |= {f"W_{letter}": (0, 2, 1) for letter in "QKVO"}


def _easy(state: dict[str, Tensor]) -> dict[str, Tensor]:
    order = lambda name: EASY.get(name.rsplit(".", 1)[1])  # noqa: E731
    return {n: x if (axes := order(n)) is None else x.permute(axes).contiguous() for n, x in state.items()}


def _wrapped(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"model.{n}": x for n, x in state.items()}


def _nanda(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The grokking models' layout: as EasyTransformer's but W_O [d_model, head and d_head], W_pos and W_U, and no
    biases of attention and logits."""
    found = {n: x for n, x in _easy(state).items() if ".attn.b_" not in n and not n.endswith("b_U")}
    found |= {n: state[n] for n in ("pos_embed.W_pos", "unembed.W_U")}
    return found | {n: state[n].flatten(0, 1).T for n in state if n.endswith("W_O")}


def _lens(name: str, layout: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict, config: str = "cfg") -> Write:
    """A TransformerLens state dict in one of its layouts, with its config under a name, if it has one."""

    def write(model: Model, place: Path) -> tuple[Path, Own]:
        stock = model.to_transformer_bridge()
        stock.enable_compatibility_mode(no_processing=True)
        said = {"act_fn": model.config.act_fn, "normalization_type": model.config.normalization_type}
        said |= {"n_heads": model.config.n_heads}
        state = layout({n: x.detach() for n, x in model.all_weights().items()})
        torch.save({"model": state, config: said} if config else state, place / name)
        return place / name, lambda tokens: stock(tokens, prepend_bos=False)

    return write


def _beside(model: Model, place: Path) -> tuple[Path, Own]:
    """A native bridge's state dict with its config in a file beside it."""
    stock = model.to_transformer_bridge()
    torch.save(stock.state_dict(), place / "bridge.pt")
    fields = {n: x for n, x in stock.cfg.to_dict().items() if isinstance(x, str | int | float | bool | type(None))}
    (place / "config.json").write_text(json.dumps(fields))
    return place / "bridge.pt", lambda tokens: stock(tokens, prepend_bos=False)


def _named(suffix: str) -> Write:
    def write(model: Model, place: Path) -> tuple[Path, Own]:
        stock, path = model.to_transformer_bridge(), place / f"w{suffix}"
        state = {n.replace(".", "/"): x.detach().contiguous() for n, x in model.all_weights().items()}
        np.savez(path, **{n: x.numpy() for n, x in state.items()}) if suffix == ".npz" else save_file(state, path)
        return path, lambda tokens: stock(tokens, prepend_bos=False)

    return write


NAMES = ", config=config, names=names"
#: What the file is, what is added to ``models.load``, the model in it, and what writes it.
FILES: tuple[tuple[str, str, str, Write], ...] = (
    ("GPT-2 folder", "", "add-3-gelu-new-0", _folder),
    ("GPT-2 folder in shards", "", "add-3-gelu-new-0", lambda m, p: _folder(m, p, max_shard_size="8KB")),
    ("GPT-2 folder with pytorch_model.bin", "", "add-3-silu-0", _folder_of_bin),
    ("GPT-NeoX folder", "", "random", _random(transformers.GPTNeoXConfig, rotary_pct=0.5)),
    ("Llama folder", "", "random", _random(transformers.LlamaConfig, num_key_value_heads=1)),
    ("Mistral folder", "", "random", _random(transformers.MistralConfig, num_key_value_heads=2, sliding_window=None)),
    ("Qwen2 folder", "", "random", _random(transformers.Qwen2Config, num_key_value_heads=2)),
    ("Qwen3 folder", "", "random", _random(transformers.Qwen3Config, num_key_value_heads=2, head_dim=8)),
    ("nanoGPT checkpoint", "", "add-3-ln-gelu-0", _gpt("model")),
    ("nanoGPT, compiled", "", "add-3-ln-gelu-1", _gpt("model", "_orig_mod.")),
    ("nanoGPT, by accelerate", "", "add-3-four-heads-0", _gpt("model_state_dict", "module.")),
    ("nanoGPT, by PyTorch Lightning", "", "add-3-one-head-0", _gpt("state_dict", "model.")),
    ("minGPT state dict", ', config={"n_heads": 2}', "add-3-gelu-new-0", _gpt(None)),
    ("TransformerLens state dict with its config", "", "add-3-no-norm-relu-0", _lens("lens.pt")),
    ("the same by PyTorch Lightning", "", "add-3-d64-0", _lens("last.ckpt", _wrapped, "config")),
    ("the same, activation not said", ', config={"act_fn": "gelu"}', "add-3-d16-0", _lens("lens.pt", config="")),
    ("native bridge, config in a file beside it", "", "add-3-ln-gelu-0", _beside),
    ("EasyTransformer's layout", "", "add-3-no-norm-relu-1", _lens("easy.pt", _easy)),
    ("Nanda's grokking layout", "", "modular-addition-59", _lens("grokked.pth", _nanda, "config")),
    ("QuantaMaths", "", "add-3-no-norm-relu-1", _lens("add_d3_l1_h2_t8K_s1.pth", config="cfg")),
    ("tensors in .npz, named", NAMES, "add-3-d64-0", _named(".npz")),
    ("tensors in .safetensors, named", NAMES, "add-3-rotary-0", _named(".safetensors")),
)


@torch.no_grad()
def row(file: str, options: str, name: str, write: Write, place: Path) -> dict[str, str]:
    """What came of a file."""
    model = _stored("add-3-ln-gelu-0" if name == "random" else name)
    path, own = write(model, place)
    task, pairs = OTHER.get(name, ADD)
    known = {"path": path, "config": model.config, "names": {n: n.replace(".", "/") for n in model.all_weights()}}
    space, seconds = run_code(CODE.format(task=task, options=options, pairs=pairs), **known)
    call = f"`models.load(path, task=task{options})`"
    return {"file": file, "read by": call, "model": name, **cells(space, seconds, own)}


def main() -> None:
    rows = []
    for file in FILES:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "model"
            folder.mkdir()
            rows.append(row(*file, folder))
        print(rows[-1], flush=True)
    write_table(TABLE, rows)


if __name__ == "__main__":
    main()
