"""Files that people have: each reader gives the logits of the class that wrote them, or says what it cannot read."""

import json
import math
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch.nn import functional as F

import models
from models.errors import UserError
from models.importers.adopt import adopt
from models.importers.hugging_face import gpt2_weights
from models.importers.loaded_files import fitted_task
from models.importers.named_tensors import NamedTensors
from models.importers.nearest_file_format import nearest
from models.tasks.formats.formatted_task import formatted
from tests.conformance.table import ROWS
from tests.sampling import sampled

TASK = formatted("{a:3}+{b:3}={s:4}", "a + b", variables="addition")
D_VOCAB = 20  # more than the task's 12: a padded vocabulary
SHAPE = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24, "vocab_size": D_VOCAB,
    "initializer_range": 0.3, "max_position_embeddings": 64,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LINEAR = {"rope_type": "linear", "factor": 3.0}
GPT2 = {"n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": D_VOCAB, "n_positions": 32, "initializer_range": 0.3}
FOLDERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "GPT-2": (transformers.GPT2Config, GPT2),
    "GPT-2, ReLU, unscaled": (
        transformers.GPT2Config,
        GPT2 | {"activation_function": "relu", "scale_attn_weights": False},
    ),
    "GPT-NeoX": (transformers.GPTNeoXConfig, SHAPE | {"rotary_pct": 0.5}),
    "GPT-NeoX, sequential": (transformers.GPTNeoXConfig, SHAPE | {"rotary_pct": 1.0, "use_parallel_residual": False}),
    "Llama 3": (
        transformers.LlamaConfig,
        SHAPE | {"num_key_value_heads": 2, "rope_scaling": LLAMA3 | {"original_max_position_embeddings": 16}},
    ),
    "Llama, linear": (
        transformers.LlamaConfig,
        SHAPE | {"num_key_value_heads": 1, "rope_scaling": LINEAR, "attention_bias": True},
    ),
    "Mistral": (transformers.MistralConfig, SHAPE | {"num_key_value_heads": 2, "head_dim": 6, "sliding_window": None}),
    "Qwen2": (transformers.Qwen2Config, SHAPE | {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "Qwen3": (transformers.Qwen3Config, SHAPE | {"num_key_value_heads": 2, "head_dim": 8}),
}


def saved(name: str, folder: Path, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    kind, fields = FOLDERS[name]
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(kind(**fields)).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))  # gains and biases too
    model.save_pretrained(folder, **options)
    return model


def in_float64(model: Any) -> None:
    """Llama's family rounds angles and norms to float32, whatever the model's dtype; this is their formula without."""

    def norm(self: Any) -> Any:
        return lambda x: self.weight * x / (x.square().mean(-1, keepdim=True) + self.variance_epsilon).sqrt()

    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = norm(module)
        if hasattr(module, "inv_freq"):

            def angles(x: Any, position_ids: Any, *_: Any, own: Any = module, **__: Any) -> Any:
                inverse = exact_frequencies(own).to(x.dtype)
                angle = position_ids[:, :, None].to(x.dtype) * inverse
                angle = torch.cat((angle, angle), -1)
                return angle.cos(), angle.sin()

            module.forward = angles


def exact_frequencies(rotary: Any) -> torch.Tensor:
    """The inverse frequencies in float64: a power of the base, divided or mixed as the stored float32 ones are."""
    rope, n = rotary.config.rope_parameters, len(rotary.inv_freq)
    plain = rope["rope_theta"] ** (-torch.arange(n, dtype=torch.float64) / n)
    if rope["rope_type"] == "linear":
        return plain / rope["factor"]
    if rope["rope_type"] == "llama3":
        low, high = (rope["original_max_position_embeddings"] / rope[f"{end}_freq_factor"] for end in ("low", "high"))
        length = 2 * math.pi / plain
        mix = (low * high / length - high) / (low - high)
        found = torch.where(length > low, plain / rope["factor"], (1 - mix) * plain / rope["factor"] + mix * plain)
        return torch.where(length < high, plain, found)
    return plain


def assert_logits(found: Any, expected: Any, scale: float) -> None:
    assert (found - expected).abs().max() <= scale * expected.abs().max()


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("dtype, scale", [(torch.float32, 1e-5), (torch.float64, 1e-10)], ids=["float32", "float64"])
@torch.no_grad()
def test_a_hugging_face_folder_gives_its_logits(name: str, dtype: torch.dtype, scale: float, tmp_path: Path):
    original = saved(name, tmp_path, dtype)
    if dtype == torch.float64:
        in_float64(original)
    model = models.load(tmp_path, task=TASK)
    tokens = torch.randint(D_VOCAB, (4, TASK.input_length), generator=torch.Generator().manual_seed(0))
    assert model.dtype == dtype
    assert_logits(model(tokens), original(tokens).logits, scale)


def test_a_task_is_given_as_text_to_a_file_and_to_a_question(tmp_path: Path) -> None:
    text = "{a:3}+{b:3}={s:4}; a + b; variables=addition"
    saved("GPT-2", tmp_path)
    model = models.load(tmp_path, task=text)
    assert model.task.definition == TASK.definition
    problems = TASK.sample(20, torch.Generator().manual_seed(0))
    assert models.score(model, problems, task=text).correct == models.score(model, problems).correct
    with pytest.raises(UserError):
        models.load(tmp_path, task="{a:3}+{b:3}={s:4}")


@torch.no_grad()
def test_shards_and_old_binary_files_are_read(tmp_path: Path):
    original = saved("GPT-2", tmp_path / "shards", max_shard_size="4KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    binary = tmp_path / "binary"
    binary.mkdir()
    torch.save(original.state_dict(), binary / "pytorch_model.bin")
    (binary / "config.json").write_text((tmp_path / "shards/config.json").read_text())
    tokens = TASK.encode(["57+48"])
    for folder in ("shards", "binary"):
        assert_logits(models.load(tmp_path / folder, task=TASK)(tokens), original(tokens).logits, 1e-5)


def changed(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(
    "fields, named",
    [
        ({"model_type": "bert"}, "bert"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ({"activation_function": "mish"}, "mish"),
        ({"n_embd": 20}, r"\[20, 16\].*\[20, 20\]"),
        ({"n_layer": 3}, "h.2.ln_1.weight"),
        ({"n_layer": 1}, "h.1."),
        ({"n_head": "4"}, "n_head"),
        ({"n_positions": 4}, "wpe"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_named(fields: dict[str, Any], named: str, tmp_path: Path):
    saved("GPT-2", tmp_path)
    changed(tmp_path, **fields)
    with pytest.raises(UserError, match=named):
        models.load(tmp_path, task=TASK)


def test_a_folder_needs_a_task_that_fits(tmp_path: Path):
    saved("GPT-2", tmp_path)
    for task, named in ((None, "task="), (formatted("{a}{b}=", "(a + b) % 113", base=113), "114"), (long_task(), "41")):
        with pytest.raises(UserError, match=named):
            models.load(tmp_path, task=task)


def long_task() -> Any:
    return formatted("{a:13}+{b:13}={s:14}", "a + b")


@pytest.mark.parametrize("positions", ["standard", "rotary", "none"])
@pytest.mark.parametrize("unused", [0, 1, 57])
def test_positions_that_a_format_leaves_unused_are_said(positions: Any, unused: int):
    """Of models with a table of positions, which says how long the sequences were that they were trained on."""
    size = dict(n_layers=1, d_model=8, n_heads=1, d_head=8, d_mlp=8, d_vocab=TASK.d_vocab, act_fn="relu")
    config = models.TransformerConfig(
        **size, n_ctx=TASK.input_length + 1 + unused, positional_embedding_type=positions, rotary_dim=8
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert fitted_task(TASK, config, "a file") is TASK
    assert [f"{unused} of the {config.n_ctx} positions" in str(each.message) for each in caught] == [True] * bool(
        unused and positions == "standard"
    )


def test_a_rope_scaling_that_is_not_known_is_refused(tmp_path: Path):
    saved("Llama 3", tmp_path)
    changed(tmp_path, rope_parameters={"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4})
    with pytest.raises(UserError, match="yarn"):
        models.load(tmp_path, task=TASK)


class NanoBlock(nn.Module):
    def __init__(self, d: int, heads: int, bias: bool, act: str):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(d, bias=bias), nn.LayerNorm(d, bias=bias)
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.c_attn, self.attn.c_proj = nn.Linear(d, 3 * d, bias=bias), nn.Linear(d, d, bias=bias)
        self.attn.register_buffer("bias", torch.ones(32, 32).tril()[None, None])
        self.mlp.c_fc, self.mlp.c_proj = nn.Linear(d, 4 * d, bias=bias), nn.Linear(4 * d, d, bias=bias)
        self.heads, self.act = heads, act

    def forward(self, x: Any) -> Any:
        n, length, d = x.shape
        q, k, v = (
            y.view(n, length, self.heads, -1).transpose(1, 2) for y in self.attn.c_attn(self.ln_1(x)).split(d, 2)
        )
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, length, d)
        x = x + self.attn.c_proj(z)
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate=self.act))


class NanoGPT(nn.Module):
    """A module with nanoGPT's names (or minGPT's: tanh GELU), written from its description."""

    def __init__(self, bias: bool = True, act: str = "none", d: int = 24, heads: int = 3):
        super().__init__()
        torch.manual_seed(0)
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(D_VOCAB, d),
                "wpe": nn.Embedding(32, d),
                "h": nn.ModuleList([NanoBlock(d, heads, bias, act) for _ in range(2)]),
                "ln_f": nn.LayerNorm(d, bias=bias),
            }
        )
        self.lm_head = nn.Linear(d, D_VOCAB, bias=False)
        self.args = {"n_layer": 2, "n_head": heads, "n_embd": d, "block_size": 32, "bias": bias, "vocab_size": D_VOCAB}

    def forward(self, tokens: Any) -> Any:
        parts: Any = self.transformer
        x = parts["wte"](tokens) + parts["wpe"](torch.arange(tokens.shape[1]))
        for block in parts["h"]:
            x = block(x)
        return self.lm_head(parts["ln_f"](x)), None


@pytest.mark.parametrize("bias", [True, False], ids=["biases", "no biases"])
@pytest.mark.parametrize("prefix", ["", "_orig_mod."])
@torch.no_grad()
def test_a_nanogpt_checkpoint_gives_its_logits(bias: bool, prefix: str, tmp_path: Path):
    original = NanoGPT(bias).eval()
    state = {prefix + name: value for name, value in original.state_dict().items()}
    torch.save({"model": state, "model_args": original.args, "iter_num": 5, "config": {"x": 1}}, tmp_path / "ckpt.pt")
    model = models.load(tmp_path / "ckpt.pt", task=TASK)
    tokens = TASK.encode(["57+48", "999+1"])
    assert_logits(model(tokens), original(tokens)[0], 1e-5)


WRAPPED = {
    "PyTorch Lightning": ("state_dict", "model.", "hyper_parameters"),
    "accelerate": ("model_state_dict", "module.", "model_args"),
    "both and compiled": ("state_dict", "model.module._orig_mod.", "hyper_parameters"),
}


@pytest.mark.parametrize("name", WRAPPED)
@torch.no_grad()
def test_a_wrapped_nanogpt_gives_its_logits_and_says_what_was_left_out(name: str, tmp_path: Path):
    original, (key, prefix, args) = NanoGPT().eval(), WRAPPED[name]
    state = {prefix + name: value for name, value in original.state_dict().items()}
    torch.save({key: state, args: original.args, "epoch": 5}, tmp_path / "last.ckpt")
    model = models.load(tmp_path / "last.ckpt", task=TASK)
    tokens = TASK.encode(["57+48", "999+1"])
    assert_logits(model(tokens), original(tokens)[0], 1e-5)
    for said in ("nanoGPT", "2 layers", "left out 2 buffers such as transformer.h.0.attn.bias", "gelu"):
        assert said in model.load_report


@torch.no_grad()
def lens_logits(w: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    """A HookedTransformer's forward pass from its formulas: pre-norm, LayerNorm, ReLU, learned positions, biases."""
    norm = lambda x, at: F.layer_norm(x, x.shape[-1:], w[f"{at}.w"], w[f"{at}.b"], 1e-5)  # noqa: E731
    x, layer = w["embed.W_E"][tokens] + w["pos_embed.W_pos"][: tokens.shape[1]], 0
    while (at := f"blocks.{layer}") + ".attn.W_Q" in w:
        y = norm(x, f"{at}.ln1")
        q, k, v = (
            torch.einsum("bpd,hde->bhpe", y, w[f"{at}.attn.W_{c}"]) + w[f"{at}.attn.b_{c}"][:, None] for c in "QKV"
        )
        z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + torch.einsum("bhpe,hed->bpd", z, w[f"{at}.attn.W_O"]) + w[f"{at}.attn.b_O"]
        y = torch.relu(norm(x, f"{at}.ln2") @ w[f"{at}.mlp.W_in"] + w[f"{at}.mlp.b_in"])
        x, layer = x + y @ w[f"{at}.mlp.W_out"] + w[f"{at}.mlp.b_out"], layer + 1
    return norm(x, "ln_final") @ w["unembed.W_U"] + w["unembed.b_U"]


def lens_state(d: int = 16, h: int = 2, e: int = 8, m: int = 24, n: int = 12, out: int = 12) -> dict[str, torch.Tensor]:
    shapes: dict[str, tuple[int, ...]] = {
        "embed.W_E": (D_VOCAB, d), "pos_embed.W_pos": (n, d), "ln_final.w": (d,), "ln_final.b": (d,),
        "unembed.W_U": (d, out), "unembed.b_U": (out,),
    }  # fmt: skip
    for i in range(2):
        shapes |= {f"blocks.{i}.attn.W_{c}": (h, d, e) for c in "QKV"} | {
            f"blocks.{i}.attn.b_{c}": (h, e) for c in "QKV"
        }
        shapes |= {f"blocks.{i}.attn.W_O": (h, e, d), f"blocks.{i}.attn.b_O": (d,)}
        shapes |= {f"blocks.{i}.ln{norm}.{kind}": (d,) for norm in (1, 2) for kind in "wb"}
        shapes |= {f"blocks.{i}.mlp.W_in": (d, m), f"blocks.{i}.mlp.b_in": (m,)}
        shapes |= {f"blocks.{i}.mlp.W_out": (m, d), f"blocks.{i}.mlp.b_out": (d,)}
    generator = torch.Generator().manual_seed(0)
    state = {name: torch.randn(shape, generator=generator) / 3 for name, shape in shapes.items()}
    return state | {f"blocks.{i}.attn.mask": torch.ones(n, n).tril() for i in range(2)}


@pytest.mark.parametrize("prefix", ["", "model."])
@torch.no_grad()
def test_a_hooked_transformers_state_dict_gives_the_logits_of_its_formulas(prefix: str, tmp_path: Path):
    state = lens_state()
    torch.save({"state_dict": {prefix + name: value for name, value in state.items()}}, tmp_path / "lens.pt")
    model = models.load(tmp_path / "lens.pt", task=TASK, config={"act_fn": "relu"})
    tokens = TASK.encode(["57+48", "999+1"])
    assert_logits(model(tokens), lens_logits(state, tokens), 1e-5)
    assert model(tokens).shape[-1] == 12 and model.config.d_vocab == D_VOCAB  # fewer logits than tokens
    assert "attention scores are divided by 2.828" in model.load_report and "eps is 1e-05" in model.load_report


@torch.no_grad()
def test_a_model_starts_at_a_later_position_of_its_table(tmp_path: Path):
    state = lens_state(n=20)
    torch.save(state, tmp_path / "lens.pt")
    tokens = TASK.encode(["57+48"])
    model = models.load(tmp_path / "lens.pt", task=TASK, config={"act_fn": "relu", "first_position": 5})
    moved = state | {"pos_embed.W_pos": state["pos_embed.W_pos"][5:]}
    assert_logits(model(tokens), lens_logits(moved, tokens), 1e-5)
    assert model.config.n_ctx == 15
    for config in ({"first_position": 25}, {"n_ctx": 21}, {"first_position": -1}, {"n_ctx": "a"}):
        with pytest.raises(UserError):
            models.load(tmp_path / "lens.pt", task=TASK, config={"act_fn": "relu", **config})


@torch.no_grad()
def test_a_context_longer_than_the_config_says_needs_positions_without_a_table(tmp_path: Path):
    original = saved("Llama, linear", tmp_path / "llama")
    task = formatted("{a:9}+{b:9}={s:10}" + "<x>" * 60, "a + b")
    wide = {"vocab_size": D_VOCAB}
    assert original.config.vocab_size == wide["vocab_size"] and original.config.max_position_embeddings == 64
    with pytest.raises(UserError, match="positions"):
        models.load(tmp_path / "llama", task=task)
    model = models.load(tmp_path / "llama", task=task, config={"n_ctx": 96})
    tokens = task.encode(["57+48"])
    assert tokens.shape[1] > 64 and model.config.n_ctx == 96
    assert_logits(model(tokens), original(tokens).logits, 1e-5)
    saved("GPT-2", tmp_path / "gpt2")
    with pytest.raises(UserError, match="never trained"):
        models.load(tmp_path / "gpt2", task=TASK, config={"n_ctx": 33})
    with pytest.raises(UserError, match="config of its own"):
        models.load(tmp_path / "gpt2", task=TASK, config={"act_fn": "relu"})


def test_a_file_that_no_reader_takes_is_refused_with_the_nearest_format_and_the_first_tensor(tmp_path: Path):
    state = lens_state()
    state["embedding.W_E"] = state.pop("embed.W_E")
    torch.save(state, tmp_path / "a.pt")
    found = nearest(state)
    assert found is not None and found.format == "a TransformerLens state dict"
    assert (found.tensor, found.shape, found.like) == ("embedding.W_E", (20, 16), "embed.W_E")
    gpt = {name.replace("transformer.", "trunk."): value for name, value in NanoGPT().state_dict().items()}
    torch.save(gpt, tmp_path / "b.pt")
    found = nearest(gpt)
    assert found is not None and (found.format, found.tensor) == ("a nanoGPT or minGPT checkpoint", "trunk.wte.weight")
    for file in ("a.pt", "b.pt"):
        with pytest.raises(UserError):
            models.load(tmp_path / file, task=TASK)
    torch.save({"x": torch.ones(2)}, tmp_path / "c.pt")
    assert nearest({"x": torch.ones(2)}) is None
    with pytest.raises(UserError):
        models.load(tmp_path / "c.pt", task=TASK)


def test_a_config_is_not_ignored_silently():
    with pytest.raises(UserError, match="its own config"):
        models.load(Path(models.zoo.resolve("microadder-57")), config={"act_fn": "relu"})


def test_a_file_is_unpickled_once(tmp_path: Path, monkeypatch):
    original, read, load = NanoGPT().eval(), [], torch.load
    torch.save({"model": original.state_dict(), "model_args": original.args}, tmp_path / "ckpt.pt")
    monkeypatch.setattr(torch, "load", lambda *args, **options: read.append(1) or load(*args, **options))
    models.load(tmp_path / "ckpt.pt", task=TASK)
    assert len(read) == 1


@torch.no_grad()
def test_a_mingpt_checkpoint_needs_its_number_of_heads(tmp_path: Path):
    original = NanoGPT(act="tanh").double().eval()
    torch.save(original.state_dict(), tmp_path / "model.pt")
    with pytest.raises(UserError, match="n_heads"):
        models.load(tmp_path / "model.pt", task=TASK)
    model = models.load(tmp_path / "model.pt", task=TASK, config={"n_heads": 3})
    tokens = TASK.encode(["57+48"])
    assert_logits(model(tokens), original(tokens)[0], 1e-10)


@pytest.mark.parametrize(
    "name", ["LN, 1 layer", "gated, no biases", "rotary, neighbours", "attention only", "adder-456"]
)
@torch.no_grad()
def test_a_state_dict_with_hooked_transformers_names_is_read(name: str, tmp_path: Path):
    row = next(row for row in ROWS if row.name == name)
    original = row.build(0)
    cfg = original.config
    config = {"act_fn": cfg.act_fn, "eps": cfg.eps, "attn_scale": cfg.score_scale, "rotary_base": cfg.rotary_base}
    config |= {"n_ctx": cfg.n_ctx, "normalization_type": cfg.normalization_type}
    config |= {"positional_embedding_type": "standard" if "pos_embed.W_pos" in original.all_weights() else "rotary"}
    torch.save({"state_dict": dict(original.all_weights()), "config": config}, tmp_path / "lens.pth")
    tokens = original.task.encode(original.task.sample(3, torch.Generator().manual_seed(1)))
    assert_logits(models.load(tmp_path / "lens.pth", task=original.task)(tokens), original(tokens), 1e-6)


@torch.no_grad()
def test_shared_key_heads_of_a_hooked_transformer_are_copied(tmp_path: Path):
    original = next(row for row in ROWS if row.name == "LN, 1 layer").build(0)
    weights = {name: value.clone() for name, value in original.all_weights().items()}
    for layer in range(original.cfg.n_layers):
        for name in ("W_K", "W_V", "b_K", "b_V"):
            first = weights.pop(f"blocks.{layer}.attn.{name}")[:1]
            weights[f"blocks.{layer}.attn._{name}"] = first
    config = {"act_fn": original.config.act_fn, "n_key_value_heads": 1}
    torch.save({"state_dict": weights, "cfg": config}, tmp_path / "shared.pt")
    model = models.load(tmp_path / "shared.pt", task=original.task)
    key = model.blocks[0].attn.W_K
    assert all(torch.equal(key[0], key[head]) for head in range(original.cfg.n_heads))


def test_a_state_dict_without_an_activation_function_is_refused_and_quantamaths_names_tell_it(tmp_path: Path):
    original = next(row for row in ROWS if row.name == "LN, 1 layer").build(0)
    torch.save(dict(original.all_weights()), tmp_path / "some.pth")
    with pytest.raises(UserError, match="act_fn"):
        models.load(tmp_path / "some.pth", task=original.task)
    torch.save(dict(original.all_weights()), tmp_path / "sub_d6_l2_h3_t30K_s372001.pth")
    assert models.load(tmp_path / "sub_d6_l2_h3_t30K_s372001.pth", task=original.task).config.act_fn == "relu"


def config_of_nano(module: NanoGPT) -> models.TransformerConfig:
    return models.TransformerConfig(
        n_layers=2, d_model=24, n_heads=3, d_head=8, d_mlp=96, d_vocab=D_VOCAB, n_ctx=32, normalization_type="LN"
    )


def nano_weights(module: nn.Module) -> Any:
    tensors = NamedTensors(module.state_dict(), "nano")
    return gpt2_weights(tensors, config_of_nano(NanoGPT()), linear=True)


@torch.no_grad()
def test_a_live_module_is_adopted_and_compared():
    module = NanoGPT()
    model = adopt(module, config_of_nano(module), nano_weights, TASK)
    tokens = TASK.encode(["57+48"])
    assert_logits(model(tokens), module.eval()(tokens)[0], 1e-5)
    assert model.dtype == torch.float32


@pytest.mark.parametrize(
    "part, hook", [("h.0.mlp.c_fc", "blocks.0"), ("h.1.attn.c_proj", "blocks.1"), ("ln_f", "after")]
)
def test_an_adopted_model_that_differs_is_refused_with_the_part(part: str, hook: str):
    module = NanoGPT()

    def wrong(module: nn.Module) -> Any:
        changed = NanoGPT().to(next(module.parameters()).dtype)
        changed.load_state_dict(module.state_dict())
        with torch.no_grad():
            changed.get_submodule(f"transformer.{part}").weight.mul_(1.01)
        return nano_weights(changed)

    parts = {f"blocks.{i}.hook_resid_post": f"transformer.h.{i}" for i in range(2)}
    with pytest.raises(UserError, match=hook):
        adopt(module, config_of_nano(module), wrong, TASK, parts=parts)


def test_tensors_by_name_need_every_weight(tmp_path: Path):
    original = next(row for row in ROWS if row.name == "LN, 1 layer").build(0)
    tensors = {name.replace(".", "/"): value.detach().numpy() for name, value in original.all_weights().items()}
    np.savez(tmp_path / "weights.npz", **tensors)
    names = {name.replace("/", "."): name for name in tensors}
    with torch.no_grad():
        model = models.load(tmp_path / "weights.npz", task=original.task, config=original.config, names=names)
        tokens = original.task.encode(original.task.sample(2, torch.Generator().manual_seed(1)))
        assert torch.equal(model(tokens), original(tokens))
    names.pop("unembed.W_U")
    with pytest.raises(UserError, match="unembed.W_U"):
        models.load(tmp_path / "weights.npz", task=original.task, config=original.config, names=names)


def test_a_file_with_code_is_refused(tmp_path: Path):
    torch.save({"model": print}, tmp_path / "code.pt")
    with pytest.raises(UserError, match="code"):
        models.load(tmp_path / "code.pt", task=TASK)


# ---- TransformerLens' earlier layouts


def grokking_logits(w: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    """The forward pass of the grokking models' own class, from its formulas: one layer, ReLU, no norms."""
    x = torch.einsum("dbp->bpd", w["embed.W_E"][:, tokens]) + w["pos_embed.W_pos"][: tokens.shape[-1]]
    q, k, v = (torch.einsum("ihd,bpd->biph", w[f"blocks.0.attn.W_{letter}"], x) for letter in "QKV")
    scores = torch.einsum("biph,biqh->biqp", k, q) / q.shape[-1] ** 0.5
    future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    pattern = scores.masked_fill(future, -1e10).softmax(-1)
    z = torch.einsum("biph,biqp->biqh", v, pattern)
    x = x + torch.einsum("df,bqf->bqd", w["blocks.0.attn.W_O"], z.transpose(1, 2).flatten(2))
    hidden = torch.relu(torch.einsum("md,bpd->bpm", w["blocks.0.mlp.W_in"], x) + w["blocks.0.mlp.b_in"])
    x = x + torch.einsum("dm,bpm->bpd", w["blocks.0.mlp.W_out"], hidden) + w["blocks.0.mlp.b_out"]
    return x @ w["unembed.W_U"]


def grokking_state(v: int, o: int, d: int, h: int, k: int, m: int) -> dict[str, torch.Tensor]:
    shapes = {
        "embed.W_E": (d, v), "pos_embed.W_pos": (12, d), "unembed.W_U": (d, o), "blocks.0.attn.W_O": (d, h * k),
        "blocks.0.mlp.W_in": (m, d), "blocks.0.mlp.W_out": (d, m), "blocks.0.mlp.b_in": (m,),
        "blocks.0.mlp.b_out": (d,), **{f"blocks.0.attn.W_{letter}": (h, k, d) for letter in "QKV"},
    }  # fmt: skip
    generator = torch.Generator().manual_seed(v + d)
    state = {name: torch.randn(shape, generator=generator) / 3 for name, shape in shapes.items()}
    return state | {"blocks.0.attn.mask": torch.ones(12, 12).tril()}


SIZES = {
    "sizes that differ": (D_VOCAB, D_VOCAB, 16, 2, 6, 24),
    "fewer outputs than tokens": (12, 10, 16, 2, 6, 24),
    "tokens as wide as the model": (16, 16, 16, 2, 6, 24),
    "heads as wide as tokens are many": (12, 12, 16, 2, 12, 24),
    "one square head": (12, 12, 12, 1, 12, 24),
    "squares alone": (12, 12, 12, 1, 12, 12),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@torch.no_grad()
def test_the_grokking_models_layout_is_known_by_its_shapes(sizes: Any, tmp_path: Path):
    state = grokking_state(*sizes)
    torch.save({"model": state, "epoch": 3}, tmp_path / "grokked.pth")
    model = models.load(tmp_path / "grokked.pth", task=TASK, config={"act_fn": "relu"})
    tokens = TASK.encode(["57+48", "999+1"])
    assert_logits(model(tokens), grokking_logits(state, tokens), 1e-5)
    assert models.score(model, ["57+48", "999+1"]).n == 2
    models.evaluation.predict(model, ["57+48"], method="greedy")


@torch.no_grad()
def test_a_whole_run_of_a_grokking_model_gives_its_last_weights_and_its_config(tmp_path: Path):
    state = grokking_state(*SIZES["sizes that differ"])
    first = {name: torch.zeros_like(value) for name, value in state.items()}
    config = {"act_type": "ReLU", "num_heads": 2, "p": 113, "lr": 1e-3, "use_ln": False}
    torch.save({"state_dicts": [first, state], "config": config, "epochs": [0, 1]}, tmp_path / "run.pth")
    model = models.load(tmp_path / "run.pth", task=TASK)
    tokens = TASK.encode(["57+48", "999+1"])
    assert model.config.act_fn == "relu" and model.config.normalization_type is None
    assert_logits(model(tokens), grokking_logits(state, tokens), 1e-5)
    torch.save({"model": state, "config": config | {"attn_coeff": 0.0}}, tmp_path / "pizza.pth")
    with pytest.raises(UserError, match="attn_coeff"):
        models.load(tmp_path / "pizza.pth", task=TASK)


EASY = {"W_E": (1, 0), "W_pos": (1, 0), "W_U": (1, 0), "W_Q": (0, 2, 1), "W_K": (0, 2, 1), "W_V": (0, 2, 1),
        "W_O": (0, 2, 1), "W_in": (1, 0), "W_gate": (1, 0), "W_out": (1, 0)}  # fmt: skip


@pytest.mark.parametrize("name", ["LN, 1 layer", "gated, no biases", "attention only"])
@torch.no_grad()
def test_easy_transformers_layout_is_known_by_its_shapes(name: str, tmp_path: Path):
    original = next(row for row in ROWS if row.name == name).build(0)
    state = {}
    for key, value in original.all_weights().items():
        order = EASY.get(key.rsplit(".", 1)[1])
        state[key] = value if order is None else value.permute(order).contiguous()
    cfg = original.config
    config = {"act_fn": cfg.act_fn, "eps": cfg.eps, "attn_scale": cfg.score_scale}
    config |= {"normalization_type": cfg.normalization_type}
    torch.save({"state_dict": state, "config": config}, tmp_path / "easy.pt")
    tokens = original.task.encode(original.task.sample(3, torch.Generator().manual_seed(1)))
    assert_logits(models.load(tmp_path / "easy.pt", task=original.task)(tokens), original(tokens), 1e-6)
    state.pop("blocks.0.attn.W_V")
    torch.save({"state_dict": state, "config": config}, tmp_path / "easy.pt")
    with pytest.raises(UserError, match="EasyTransformer"):
        models.load(tmp_path / "easy.pt", task=original.task)


def test_answers_of_tokens_that_a_model_does_not_predict_are_refused(tmp_path: Path):
    torch.save(grokking_state(14, 10, 16, 2, 6, 24), tmp_path / "ten.pth")
    signed = formatted("{a:2}-{b:2}={s:+2}", "a - b")
    with pytest.raises(UserError, match="predicts 10"):
        models.load(tmp_path / "ten.pth", task=signed, config={"act_fn": "relu"})


@pytest.mark.parametrize("true", sampled(["relu", "gelu", "silu"], "gelu"))
def test_a_file_without_its_activation_is_told_what_each_costs(true: str, tmp_path: Path):
    """What it was fitted with costs least; no value is suggested."""
    state = grokking_state(12, 12, 16, 2, 6, 64)
    torch.save(state, tmp_path / "some.pth")
    model = models.load(tmp_path / "some.pth", task=TASK, config={"act_fn": true})
    pairs = TASK.sample(1_000, torch.Generator().manual_seed(0))
    tokens, targets = TASK.encode(pairs), TASK.targets(pairs)
    queries = list(TASK.query_positions)
    fitted = list(model.parameters())
    optimizer = torch.optim.Adam(fitted, lr=0.01)
    for _ in range(30):
        loss = F.cross_entropy(model(tokens)[:, queries].flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(dict(model.all_weights()), tmp_path / "fitted.pth")
    with pytest.raises(UserError, match="act_fn") as refused:
        models.load(tmp_path / "fitted.pth", task=TASK)
    costs = {name: float(cost) for cost, name in re.findall(r"([\d.]+) with (\w+)", str(refused.value))}
    assert costs.keys() == {"gelu", "gelu_new", "relu", "silu"} and min(costs, key=costs.__getitem__).startswith(true)
    with torch.no_grad():
        now = F.cross_entropy(model(tokens)[:, queries].flatten(0, 1), targets.flatten())
    assert costs[true] == pytest.approx(float(now), rel=0.01)
