"""Folders that Hugging Face's ``save_pretrained`` writes: a ``config.json`` and weights, of one or several files.

Only these are read: no code of a folder is run, and no tokenizer is needed. A family is a function from the config to
this project's config, and a map of names. Query heads that share keys and values get copies of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.calls.argument_kinds import shown
from models.errors import UserError, unknown_name
from models.importers.named_tensors import (
    ACTIVATIONS,
    BUFFERS,
    NamedTensors,
    head_biases,
    heads_of,
    inside,
    output_matrix,
    output_of,
    read_tensors,
    without_missing,
)
from models.transformer.config import Activation, TransformerConfig
from models.transformer.part_names import in_block
from models.transformer.parts.weights import Weights

MOST_POSITIONS = 4096  # kept of a model without a table of positions, unless the task is longer
_WEIGHT_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


class HuggingFaceConfig:
    """The contents of a ``config.json``, with what its keys were called in earlier versions."""

    def __init__(self, content: Mapping[str, Any], path: Path, longest: int):
        self.content, self.path, self.longest = content, path, longest

    def get(self, *names: str, default: Any = None) -> Any:
        """The value of the first of these keys that the config has and sets."""
        return next((self.content[name] for name in names if self.content.get(name) is not None), default)

    def whole(self, *names: str, default: int | None = None) -> int:
        """As :meth:`get`, for a positive whole number. Raises UserError for anything else."""
        value = self.get(*names, default=default)
        if type(value) is not int or not 1 <= value < 2**31:
            raise UserError(f"{self.path} needs a positive whole number {names[0]!r}, not {shown(value)}.")
        return value

    def number(self, *names: str, default: float | None = None) -> float:
        """As :meth:`get`, for a finite number. Raises UserError for anything else."""
        value = self.get(*names, default=default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            raise UserError(f"{self.path} needs a number {names[0]!r}, not {shown(value)}.")
        return float(value)

    def heads(self, *names: str, of: int) -> int:
        """As :meth:`whole`, for a number of heads that share ``of`` dimensions."""
        heads = self.whole(*names)
        if of % heads:
            raise UserError(f"{self.path} has {names[0]}={heads}, which does not divide {of} dimensions.")
        return heads

    @property
    def tied(self) -> bool:
        """Whether the unembedding is the embedding's transpose; of the families, only GPT-2 does not say it if so."""
        return bool(self.get("tie_word_embeddings", default=self.get("model_type") == "gpt2"))

    def activation(self, *names: str) -> Activation:
        """Our name of the activation function. Raises UserError for one that we do not have."""
        value = self.get(*names)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise unknown_name(f"activation function of {self.path} that can be read", value, ACTIVATIONS)
        return ACTIVATIONS[value]

    def refuse(self, name: str, *, unless: Any = None) -> None:
        """Raise UserError if a key is set, and not to ``unless``."""
        value = self.content.get(name)
        if value not in (None, False, unless):
            raise UserError(f"{self.path} has {name}={value!r}, which this project's transformer cannot express.")

    def positions(self, *names: str) -> int:
        """How many positions a model without a table of them keeps: its own, at most 4,096 or as many as the task has;
        of attention that slides over a window, no more than the window."""
        most = self.whole(*names, default=MOST_POSITIONS)
        kept = min(most, max(MOST_POSITIONS, self.longest))
        slides = self.get("use_sliding_window", default=True) and self.get("sliding_window") is not None
        if slides and set(self.get("layer_types", default=["sliding_attention"])) != {"full_attention"}:
            kept = min(kept, self.whole("sliding_window"))
        return kept

    def rotary(self, d_head: int, adjacent: bool = False) -> dict[str, Any]:
        """The fields of our config for rotary positions, scaled linearly, as Llama 3 scales them, or not.

        Raises:
            UserError: another scaling.
        """
        rope = self.get("rope_parameters", "rope_scaling", default={})
        if not isinstance(rope, dict):
            raise UserError(f"{self.path} has {shown(rope)} as the scaling of its rotary positions.")
        kind = rope.get("rope_type", rope.get("type", "default"))
        own = HuggingFaceConfig({**self.content, **rope}, self.path, self.longest)
        base = own.number("rope_theta", "rotary_emb_base", default=10000.0)
        share = own.number("partial_rotary_factor", "rotary_pct", default=1.0)
        dims = own.whole("rotary_dim", default=int(d_head * share))
        found = {"positional_embedding_type": "rotary", "rotary_base": base, "rotary_adjacent_pairs": adjacent}
        found |= {"rotary_dim": None if dims == d_head else dims}
        if kind == "linear":
            return found | {"rotary_scaling_factor": own.number("factor")}
        if kind == "llama3":
            return found | {"rotary_frequencies": _llama3(own, [base ** (-2 * i / dims) for i in range(dims // 2)])}
        if kind not in ("default", None):
            raise UserError(f"{self.path} scales rotary positions as {kind!r}; default, linear and llama3 can be read.")
        return found


def _llama3(rope: HuggingFaceConfig, frequencies: list[float]) -> tuple[float, ...]:
    """Llama 3's scaling: long waves are slowed down by ``factor``, short ones stay, and those between are mixed."""
    factor, low, high = (rope.number(name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    trained = rope.number("original_max_position_embeddings")
    found = []
    for frequency in frequencies:
        length = 2 * math.pi / frequency
        smooth = (trained / length - low) / (high - low)
        if length > trained / low:
            found.append(frequency / factor)
        elif length < trained / high:
            found.append(frequency)
        else:
            found.append((1 - smooth) * frequency / factor + smooth * frequency)
    return tuple(found)


# ---- the families: a config, and a map of names


def _gpt2_config(c: HuggingFaceConfig) -> TransformerConfig:
    d = c.whole("n_embd")
    heads = c.heads("n_head", of=d)
    c.refuse("scale_attn_by_inverse_layer_idx")
    c.refuse("add_cross_attention")
    return TransformerConfig(
        n_layers=c.whole("n_layer"), d_model=d, n_heads=heads, d_head=d // heads,
        d_mlp=c.whole("n_inner", default=4 * d), d_vocab=c.whole("vocab_size"), n_ctx=c.whole("n_positions"),
        act_fn=c.activation("activation_function"), normalization_type="LN",
        eps=c.number("layer_norm_epsilon", default=1e-5),
        attn_scale=None if c.get("scale_attn_weights", default=True) else 1.0,
    )  # fmt: skip


def gpt2_weights(t: NamedTensors, cfg: TransformerConfig, tied: bool = False, linear: bool = False) -> Weights:
    """GPT-2's names; ``linear`` says that its matrices are [out, in], as nanoGPT's and minGPT's are."""
    at = "transformer." if "transformer.wte.weight" in t else ""
    d, m = cfg.d_model, cfg.d_mlp

    def matrix(name: str, rows: int, columns: int) -> Any:
        """A matrix [out, in]; GPT-2 stores its transpose."""
        return t.take(name, rows, columns) if linear else t.take(name, columns, rows).T

    found: dict[str, Any] = {
        "embed.W_E": t.take(f"{at}wte.weight", cfg.d_vocab, d),
        "pos_embed.W_pos": t.take(f"{at}wpe.weight", cfg.n_ctx, d),
        "ln_final.w": t.take(f"{at}ln_f.weight", d),
        "ln_final.b": t.maybe(f"{at}ln_f.bias", d),
    }
    for layer in range(cfg.n_layers):
        ours, theirs = in_block(layer), f"{at}h.{layer}"
        for norm in (1, 2):
            found[f"{ours}.ln{norm}.w"] = t.take(f"{theirs}.ln_{norm}.weight", d)
            found[f"{ours}.ln{norm}.b"] = t.maybe(f"{theirs}.ln_{norm}.bias", d)
        joint, bias = matrix(f"{theirs}.attn.c_attn.weight", 3 * d, d), t.maybe(f"{theirs}.attn.c_attn.bias", 3 * d)
        for letter, part in zip("QKV", joint.split(d), strict=True):
            found[f"{ours}.attn.W_{letter}"] = heads_of(part, cfg.n_heads)
        for letter, part in zip("QKV", () if bias is None else bias.split(d), strict=bias is not None):
            found[f"{ours}.attn.b_{letter}"] = head_biases(part, cfg.n_heads)
        found[f"{ours}.attn.W_O"] = output_of(matrix(f"{theirs}.attn.c_proj.weight", d, d), cfg.n_heads)
        found[f"{ours}.attn.b_O"] = t.maybe(f"{theirs}.attn.c_proj.bias", d)
        found[f"{ours}.mlp.W_in"] = matrix(f"{theirs}.mlp.c_fc.weight", m, d).T
        found[f"{ours}.mlp.b_in"] = t.maybe(f"{theirs}.mlp.c_fc.bias", m)
        found[f"{ours}.mlp.W_out"] = matrix(f"{theirs}.mlp.c_proj.weight", d, m).T
        found[f"{ours}.mlp.b_out"] = t.maybe(f"{theirs}.mlp.c_proj.bias", d)
    found["unembed.W_U"] = output_matrix(t, found["embed.W_E"], ("lm_head.weight",), tied)
    return without_missing(found)


def _neox_config(c: HuggingFaceConfig) -> TransformerConfig:
    d = c.whole("hidden_size")
    heads = c.heads("num_attention_heads", of=d)
    rotary = c.rotary(d // heads)
    if not c.get("rope_parameters", "rotary_pct"):
        rotary["rotary_dim"] = d // heads // 4
    return TransformerConfig(
        n_layers=c.whole("num_hidden_layers"), d_model=d, n_heads=heads, d_head=d // heads,
        d_mlp=c.whole("intermediate_size"), d_vocab=c.whole("vocab_size"), n_ctx=c.positions("max_position_embeddings"),
        act_fn=c.activation("hidden_act"), normalization_type="LN", eps=c.number("layer_norm_eps", default=1e-5),
        parallel_attn_mlp=bool(c.get("use_parallel_residual", default=True)),
        **rotary,
    )  # fmt: skip


def _neox_weights(t: NamedTensors, cfg: TransformerConfig, tied: bool) -> Weights:
    d, m, heads = cfg.d_model, cfg.d_mlp, cfg.n_heads
    found: dict[str, Any] = {
        "embed.W_E": t.take("gpt_neox.embed_in.weight", cfg.d_vocab, d),
        "ln_final.w": t.take("gpt_neox.final_layer_norm.weight", d),
        "ln_final.b": t.take("gpt_neox.final_layer_norm.bias", d),
    }
    for layer in range(cfg.n_layers):
        ours, theirs = in_block(layer), f"gpt_neox.layers.{layer}"
        for norm, name in (("ln1", "input_layernorm"), ("ln2", "post_attention_layernorm")):
            found[f"{ours}.{norm}.w"] = t.take(f"{theirs}.{name}.weight", d)
            found[f"{ours}.{norm}.b"] = t.take(f"{theirs}.{name}.bias", d)
        # one matrix holds the query, the key and the value of head 0, then those of head 1, ...
        joint = t.take(f"{theirs}.attention.query_key_value.weight", 3 * d, d).view(heads, 3, cfg.d_head, d)
        bias = t.maybe(f"{theirs}.attention.query_key_value.bias", 3 * d)
        for i, letter in enumerate("QKV"):
            found[f"{ours}.attn.W_{letter}"] = joint[:, i].transpose(1, 2)
            found[f"{ours}.attn.b_{letter}"] = None if bias is None else bias.view(heads, 3, cfg.d_head)[:, i]
        found[f"{ours}.attn.W_O"] = output_of(t.take(f"{theirs}.attention.dense.weight", d, d), heads)
        found[f"{ours}.attn.b_O"] = t.maybe(f"{theirs}.attention.dense.bias", d)
        found[f"{ours}.mlp.W_in"] = t.take(f"{theirs}.mlp.dense_h_to_4h.weight", m, d).T
        found[f"{ours}.mlp.b_in"] = t.take(f"{theirs}.mlp.dense_h_to_4h.bias", m)
        found[f"{ours}.mlp.W_out"] = t.take(f"{theirs}.mlp.dense_4h_to_h.weight", d, m).T
        found[f"{ours}.mlp.b_out"] = t.take(f"{theirs}.mlp.dense_4h_to_h.bias", d)
    found["unembed.W_U"] = output_matrix(t, found["embed.W_E"], ("embed_out.weight", "lm_head.weight"), tied)
    return without_missing(found)


def _llama_config(c: HuggingFaceConfig) -> TransformerConfig:
    d, heads = c.whole("hidden_size"), c.whole("num_attention_heads")
    d_head = c.whole("head_dim") if c.get("head_dim") is not None else d // c.heads("num_attention_heads", of=d)
    if heads % c.whole("num_key_value_heads", default=heads):
        raise UserError(f"{c.path} shares keys among heads that its number of key heads does not divide.")
    return TransformerConfig(
        n_layers=c.whole("num_hidden_layers"), d_model=d, n_heads=heads, d_head=d_head,
        d_mlp=c.whole("intermediate_size"), d_vocab=c.whole("vocab_size"), n_ctx=c.positions("max_position_embeddings"),
        act_fn=c.activation("hidden_act"), gated_mlp=True, normalization_type="RMS",
        eps=c.number("rms_norm_eps", default=1e-6), use_qk_norm=c.get("model_type") == "qwen3",
        **c.rotary(d_head),
    )  # fmt: skip


def _llama_weights(t: NamedTensors, cfg: TransformerConfig, tied: bool) -> Weights:
    d, m, heads, width = cfg.d_model, cfg.d_mlp, cfg.n_heads, cfg.d_head
    shared = t.shape("model.layers.0.self_attn.k_proj.weight")[0] // width
    found: dict[str, Any] = {
        "embed.W_E": t.take("model.embed_tokens.weight", cfg.d_vocab, d),
        "ln_final.w": t.take("model.norm.weight", d),
    }
    for layer in range(cfg.n_layers):
        ours, theirs = in_block(layer), f"model.layers.{layer}"
        found[f"{ours}.ln1.w"] = t.take(f"{theirs}.input_layernorm.weight", d)
        found[f"{ours}.ln2.w"] = t.take(f"{theirs}.post_attention_layernorm.weight", d)
        for letter, n in (("Q", heads), ("K", shared), ("V", shared)):
            name = f"{theirs}.self_attn.{letter.lower()}_proj"
            found[f"{ours}.attn.W_{letter}"] = heads_of(t.take(f"{name}.weight", n * width, d), n, heads // n)
            bias = t.maybe(f"{name}.bias", n * width)
            found[f"{ours}.attn.b_{letter}"] = None if bias is None else head_biases(bias, n, heads // n)
        if cfg.use_qk_norm:
            for letter in "qk":
                found[f"{ours}.attn.{letter}_norm.w"] = t.take(f"{theirs}.self_attn.{letter}_norm.weight", width)
        found[f"{ours}.attn.W_O"] = output_of(t.take(f"{theirs}.self_attn.o_proj.weight", d, heads * width), heads)
        found[f"{ours}.attn.b_O"] = t.maybe(f"{theirs}.self_attn.o_proj.bias", d)
        for name, key, rows in (("gate_proj", "gate", m), ("up_proj", "in", m), ("down_proj", "out", d)):
            found[f"{ours}.mlp.W_{key}"] = t.take(f"{theirs}.mlp.{name}.weight", rows, m + d - rows).T
        found[f"{ours}.mlp.b_out"] = t.maybe(f"{theirs}.mlp.down_proj.bias", d)
    found["unembed.W_U"] = output_matrix(t, found["embed.W_E"], ("lm_head.weight",), tied)
    return without_missing(found)


@dataclass(frozen=True)
class HuggingFaceFamily:
    config: Callable[[HuggingFaceConfig], TransformerConfig]
    weights: Callable[[NamedTensors, TransformerConfig, bool], Weights]  # the flag: whether the unembedding is tied


#: By the config's ``model_type``.
FAMILIES: Mapping[str, HuggingFaceFamily] = {
    "gpt2": HuggingFaceFamily(_gpt2_config, gpt2_weights),
    "gpt_neox": HuggingFaceFamily(_neox_config, _neox_weights),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), HuggingFaceFamily(_llama_config, _llama_weights)),
}


def read_hugging_face(
    folder: Path, longest: int, content: Mapping[str, Any], notes: list[str] | None = None
) -> tuple[TransformerConfig, Weights]:
    """The config and the effective weights of a folder.

    Args:
        longest: how many positions the task needs.
        content: what its ``config.json`` says.
        notes: what was left out is added to it.

    Raises:
        UserError: a family, a switch or an activation function that cannot be expressed; the first tensor that is
            missing, left over or of another shape.
    """
    path = inside(folder / "config.json")
    kind = str(content.get("model_type"))
    if kind not in FAMILIES:
        raise unknown_name("model_type that can be read", kind, FAMILIES)
    c = HuggingFaceConfig(content, path, longest)
    file = next((folder / name for name in _WEIGHT_FILES if (folder / name).is_file()), None)
    if file is None:
        raise UserError(f"{folder} has no weights; one of {', '.join(_WEIGHT_FILES)} must be there.")
    tensors = NamedTensors(read_tensors(inside(file)), file)
    tensors.skip(BUFFERS)
    for name in ("quantization_config", "mlp_bias"):
        c.refuse(name)
    cfg = FAMILIES[kind].config(c).replace(dtype=str(tensors.dtype).removeprefix("torch."))
    weights = FAMILIES[kind].weights(tensors, cfg, c.tied)
    tensors.finish(notes)
    return cfg, weights
