"""Checkpoints as the public repositories of the papers write them, with the numbers of any of our models.

Written from what the files of github.com/evindor/MicroAdder and of the 456-parameter adder hold, and not with the
importers' own tables: reading one of these files back is a test of the importer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from models.families.low_rank_adder import OPTIONS
from models.transformer.arithmetic_transformer import ArithmeticTransformer

SWITCHES = ("pos_rank", "qkv_rank", "attn_out_rank", "ffn_rank")
#: Of each file that was published, the model whose layout it has.
FILES = {f"microadder_{n}p.pt": f"microadder-{n}" for n in (57, 67, 100, 133)}
FILES |= {"adder456_s43.pt": "adder-456", "adder512_s42.pt": "adder-512"}


def write_published(path: Path, model: ArithmeticTransformer) -> Path:
    """The model's numbers at ``path``, in the layout of the public code that makes models of that name."""
    content = low_rank_adder(model) if model.name_or_path in OPTIONS else microadder(model)
    for key, part in content.items():
        if key.startswith("model_state"):
            content[key] = {name: tensor.detach().clone().contiguous() for name, tensor in part.items()}
    torch.save(content, path)
    return path


def microadder(model: ArithmeticTransformer) -> dict[str, Any]:
    """A MicroAdder of 57 numbers (flat names), of 67 (names by block), or of an upper rung."""
    if model.name_or_path in STRENGTHS:
        return {"step": 1, "config": STRENGTHS[model.name_or_path], "model_state_dict": upper_rung(model)}
    small = {"microadder-57": (FLAT, _flat), "microadder-67": (BY_BLOCK, _by_block)}
    config, state = small[model.name_or_path]
    w = model.weight_map
    common = {
        "tok_arc_A": w.arc_A,
        "tok_arc_start": w.arc_start,
        "tok_arc_stride": w.arc_stride,
        "special_pos_equals": w.pos_equals[None],
        "z_hi_pos": w.pos_z_hi[None],
        "_plus_pos": torch.zeros(1, 3),
        "_eos_pos": torch.zeros(1, 3),
        "head_proj.weight": w.W_head,
    }
    common |= {f"spiral_{name}": getattr(w, f"spiral_{name}") for name in ("amp", "phase", "slope", "offset")}
    return {"step": 1, "config": config, "model_state_dict": common | state(w)}


def _flat(w: Any) -> dict[str, torch.Tensor]:
    return {
        "q_phase_angle": w.q_angle[None],
        "causal_mask": torch.ones(34, 34).tril()[None, None],
        "q_proj.weight": w.W_qk,
        "out_proj.A": w.out_A[:, None],
        "out_proj.B": w.out_B[None],
        "fc1.weight": w.W_fc1,
        **{f"{norm}.weight": w.norm_w for norm in ("norm1", "norm2", "norm_f")},
    }


def _by_block(w: Any) -> dict[str, torch.Tensor]:
    attn, ffn = "blocks.0.attn.", "blocks.0.ffn."
    return {
        "tok_arc_B": w.arc_A,
        f"{attn}q_phase_angle": w.q_angle[None],
        f"{attn}causal_mask": torch.ones(34, 34).tril()[None, None],
        f"{attn}q_proj.weight": w.W_qk,
        f"{attn}out_proj.A": w.out_A[:, None],
        f"{attn}out_proj.B": w.out_B[None],
        f"{ffn}fc1.weight": w.W_fc1,
        f"{ffn}fc2.weight": w.W_fc2.T,
        **{f"{norm}.weight": w.norm_w for norm in ("blocks.0.ln1", "blocks.0.ln2", "ln_f")},
    }


_SPIRAL = {"freeze_spiral": "amp,phase,slope,offset"}
_SPIRAL |= {f"spiral_init_{k}": v for k, v in (("amp", 3.5), ("phase", 0.0), ("slope", 0.15), ("offset", 0.0))}
_SMALL: dict[str, Any] = {"d_model": 5, "tok_dim": 2, "pos_dim": 3, "n_heads": 1, "head_dim": 5, "ffn_dim": 2}
_SMALL |= {"vocab_size": 10, "max_seq_len": 34, "qk_dim": 4, "freeze_tok_arc": ""} | _SPIRAL
FLAT = _SMALL | {"norm_mode": "weighted", "qk_input": "pos", "tie_fc2_head": True, "equals_spiral_idx": -1.0}
FLAT |= {"tok_arc_init_A": 2.5, "tok_arc_init_start": -1.2, "tok_arc_init_stride": 0.29}
BY_BLOCK = _SMALL | {
    "n_layers": 1,
    "ffn_bias": False,
    "pos_mode": "spiral_correct",
    "pos_correction_mode": "none",
    "freeze_special": "plus_eos",
    "alibi": False,
    "qk_source": "pos",
    "tie_qk": True,
    "attn_out_rank": 1,
    "num_kv_heads": 0,
    "q_phase": True,
    "share_layers": False,
    "norm_mode": "shared",
    "tie_vo": True,
    "freeze_pad": False,
    "freeze_z_hi": False,
    "tie_tok_arc_ab": True,
    "q_proj_rank": 0,
    "q_proj_mode": "full",
    "softmax1": False,
    "attn_mode": "split",
    "token_init": "spiral",
    "tok_emb_mode": "parametric",
}


def upper_rung(model: ArithmeticTransformer) -> dict[str, torch.Tensor]:
    """A model of the upper rungs (190 to 100) as the public code stores it, tensor by tensor."""
    w, attn, ffn = model.weight_map, "blocks.0.attn.", "blocks.0.ffn."
    state = {
        "z_hi_pos": w.pos_z_hi[None],
        "special_pos_learned": torch.stack((w.pos_plus, w.pos_equals)),
        "_eos_pos": torch.zeros(1, len(w.pos_z_hi)),
        "pos_corr_slope": w.pos_correction_slope,
        "pos_corr_intercept": w.pos_correction_intercept,
        "blocks.0.ln1.weight": w.norm1_w,
        "blocks.0.ln2.weight": w.norm2_w,
        "ln_f.weight": w.norm_f_w,
        f"{attn}q_proj.weight": w.W_qk,
        f"{attn}q_phase_angle": w.q_angle.reshape(-1),
        f"{attn}v_proj.weight": w.W_v,
        f"{attn}out_proj.A": w.out_A.reshape(len(w.out_A), -1),
        f"{attn}out_proj.B": w.out_B.reshape(-1, model.config.d_model),
        f"{attn}causal_mask": torch.ones(34, 34).tril()[None, None],
        f"{ffn}fc1.weight": w.W_fc1,
        f"{ffn}fc2.weight": w.W_fc2.T,
        "head_proj.weight": w.W_head,
    }
    state |= {f"spiral_{name}": getattr(w, f"spiral_{name}") for name in ("amp", "phase", "slope", "offset")}
    if w.options.mlp_bias:
        state |= {f"{ffn}fc1.bias": w.b_fc1, f"{ffn}fc2.bias": w.b_fc2}
    if w.options.tokens == "table":
        return state | {"tok_emb.weight": w.tok_table}
    return state | {f"tok_arc_{name}": getattr(w, f"arc_{name}") for name in ("A", "B", "start", "stride")}


UPPER: dict[str, Any] = {"pos_mode": "spiral_correct", "pos_correction_mode": "linear", "freeze_special": "eos"}
UPPER |= {"tie_qk": True, "q_phase": True, "attn_out_rank": 2, "ffn_dim": 2}
STRENGTHS = {
    "microadder-187": UPPER | {"d_model": 6, "tok_dim": 3, "pos_dim": 3, "head_dim": 3},
    "microadder-170": UPPER | {"d_model": 6, "tok_dim": 2, "pos_dim": 4, "head_dim": 3},
    "microadder-133": UPPER | {"tok_dim": 2, "pos_dim": 3, "n_heads": 1, "head_dim": 5, "vocab_size": 10},
    "microadder-100": UPPER
    | {"tok_dim": 2, "pos_dim": 3, "n_heads": 1, "head_dim": 5, "vocab_size": 10, "attn_out_rank": 1}
    | {"ffn_bias": False, "tok_emb_mode": "parametric"},
}


def low_rank_adder(model: ArithmeticTransformer) -> dict[str, Any]:
    """A model of the 456-parameter family in the public code's layout: torch's linear layers are transposed."""
    options = OPTIONS[model.name_or_path]
    own = {key: value.detach().clone() for key, value in model.weight_map.named_parameters()}
    state = {"token_emb.weight": own["W_E"], "lm_head.weight": own["W_E"]}
    for ours, theirs in (("ln1", "blocks.0.ln1"), ("ln2", "blocks.0.ln2"), ("ln_final", "ln_f")):
        state |= {
            f"{theirs}.{t}": own[f"{ours}_{o}"] for o, t in (("w", "weight"), ("b", "bias")) if f"{ours}_{o}" in own
        }
    places = {"pos": "pos_emb", "qkv": "blocks.0.attn.qkv", "out": "blocks.0.attn.proj"}
    places |= {"mlp_in": "blocks.0.mlp.fc1", "mlp_out": "blocks.0.mlp.fc2"}
    for ours, theirs in places.items():
        if f"{ours}.W" in own:
            full = own[f"{ours}.W"]
            state[f"{theirs}.weight"] = full if ours == "pos" else full.T.contiguous()
        elif ours == "qkv" and options.tie_kv:
            halves = own["qkv.B"].split(7, 1)
            state |= {f"{theirs}_A": own["qkv.A"], f"{theirs}_Bq": halves[0], f"{theirs}_Bkv": halves[1]}
        else:
            state |= {f"{theirs}.{x}": own[f"{ours}.{x}"] for x in "AB"}
    ranks = (options.position_rank, options.qkv_rank, options.out_rank, options.mlp_rank)
    config = {"n_layer": 1, "d_model": 7, "n_head": 1, "d_ff": 14, "dropout": 0.0, "max_seq_len": 33, "vocab_size": 14}
    config |= {switch: rank or 0 for switch, rank in zip(SWITCHES, ranks, strict=True)}
    if options.normalization_type == "RMS":
        config |= {"use_rmsnorm": True}
    if options.tie_kv:
        config |= {"tie_qkv": "shareA_tieKV"}
    return {"model_state": state, "model_config": config, "step": 1}
