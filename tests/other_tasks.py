"""Tasks whose digits are not decimal, and models of them whose weights are set so that they add without an error."""

from __future__ import annotations

import torch

from models.config import TransformerConfig
from models.tasks import FormattedTask, Task, formatted
from models.transformer import ArithmeticTransformer
from models.weight_maps.dense import DenseWeights


def modular_addition(p: int) -> FormattedTask:
    """``a b = c``, every number one token; p is "="."""
    answer = f"(a + b) % {p}"
    return formatted("{a}{b}=", answer, base=p, variables="addition", held_out=0.5, name="modular-addition")


def column_addition(base: int, digits: int = 2, answer_down: bool = False, operands_down: bool = True) -> FormattedTask:
    """``a b s`` with operands of ``digits`` digits, highest first unless ``operands_down`` is false, and the sum's
    ``digits`` + 1 digits, units first unless ``answer_down``."""
    up, answer_up = "" if operands_down else "r", "" if answer_down else "r"
    format = f"{{a:{digits}{up}}}{{b:{digits}{up}}}{{s:{digits + 1}{answer_up}}}"
    return formatted(format, "a + b", base=base, variables="addition", name=f"base-{base}-addition")


def exact_adder(task: Task) -> ArithmeticTransformer:
    """One layer that is right on every problem: attention weighs operand digits by what they count, so that the head
    writes the sum, and units that switch on one after the other along it read off each answer token; margin 1.

    Dimensions: an answer token's each, the number that a token stands for, the sum, and one for each position."""
    base, n_targets = task.domain.base, len(task.query_positions)
    tokens, ctx = task.d_vocab, task.input_length
    number, total, place = tokens, tokens + 1, tokens + 2
    worth = torch.tensor([float(base ** (role.column or 0)) for role in task.roles[:ctx]])
    is_operand = torch.tensor([role.kind == "operand" for role in task.roles[:ctx]])
    largest = int(2 * worth[is_operand].max() * base)
    steps = torch.arange(-1, largest + 1)
    cfg = TransformerConfig(
        n_layers=1, d_model=tokens + 2 + ctx, n_heads=1, d_head=1, d_mlp=len(steps) * n_targets, d_vocab=tokens,
        n_ctx=ctx, act_fn="relu", normalization_type=None, attn_scale=1.0,
    )  # fmt: skip
    maps = DenseWeights(cfg, biases=True)
    w = {name.replace("/", "."): parameter for name, parameter in maps.named_parameters()}
    with torch.no_grad():
        w["embed.W_E"][:base, number] = torch.arange(base).float()
        w["pos_embed.W_pos"][:, place:] = torch.eye(ctx)
        w["blocks.0.attn.b_Q"].fill_(1.0)
        w["blocks.0.attn.W_K"][0, place:, 0] = torch.where(is_operand, worth.log(), -100.0)
        w["blocks.0.attn.W_V"][0, number, 0] = 1.0
        w["blocks.0.attn.W_O"][0, 0, total] = float(worth[is_operand].sum())
        w_in, b_in = w["blocks.0.mlp.W_in"], w["blocks.0.mlp.b_in"]
        w_out, off = w["blocks.0.mlp.W_out"], largest + 2.0
        for target, query in enumerate(task.query_positions):
            units = slice(target * len(steps), (target + 1) * len(steps))
            w_in[total, units] = 1.0
            w_in[place + query, units] = off
            b_in[units] = -off - steps.float()
            sums = torch.arange(largest + 1)
            column = task.target_roles[target].column or 0
            right = sums // base**column % base
            bumps = torch.zeros(len(sums) + 2, tokens)  # of the sums from -1 to largest + 1
            bumps[torch.arange(1, len(sums) + 1), right] = 1.0
            hats = torch.zeros(len(steps), tokens)
            for change, factor in ((0, 1.0), (1, -2.0), (2, 1.0)):
                at = torch.arange(len(steps)) - change + 1
                inside = (at >= 0) & (at < len(bumps))
                hats[inside] += factor * bumps[at[inside]]
            w_out[units, :tokens] = hats
        w["unembed.W_U"][:tokens] = torch.eye(tokens)
    return ArithmeticTransformer(maps, task, name=f"exact {task.name}")
