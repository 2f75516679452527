"""Models whose truth is known because it was planted: the subjects of the tasks.

Each is written as a file that says nothing of how it was made: a TransformerLens state dict, for a task given as text,
or, for near copies of a trained adder (:mod:`benchmarks.false_certificates`), an entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import models
from benchmarks.false_certificates import perturb
from models.tasks import Task
from models.tasks.task_definitions import task_of_text
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights


def exact_adder(task: Task, wrong_sum: int | None = None) -> ArithmeticTransformer:
    """One layer that is right on every problem but those with ``wrong_sum``, where the last digit of the answer is one
    too large: attention weighs operand digits by what they count, so that the head writes the sum, and units that
    switch on one after the other along it read off each answer token; margin 1.

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
            if wrong_sum is not None and column == 0:
                right[wrong_sum] = (right[wrong_sum] + 1) % base
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


def carry_model(task: Task, neuron: int, head: int, neurons: int = 8, heads: int = 3) -> ArithmeticTransformer:
    """One layer that says whether a + b carries, through one neuron and one head.

    Every other neuron follows the carry, or the sum, and writes where nothing reads. Of the other heads, one looks
    where the needed head looks and one at the delimiter; both write, larger, where nothing reads.
    """
    base, tokens, ctx = task.domain.base, task.d_vocab, task.input_length
    number, total, unread, place = tokens, tokens + 1, tokens + 2, tokens + 3
    cfg = TransformerConfig(
        n_layers=1, d_model=tokens + 3 + ctx, n_heads=heads, d_head=1, d_mlp=neurons, d_vocab=tokens, n_ctx=ctx,
        act_fn="relu", normalization_type=None, attn_scale=1.0,
    )  # fmt: skip
    maps = DenseWeights(cfg, biases=True)
    w = {name.replace("/", "."): parameter for name, parameter in maps.named_parameters()}
    is_operand = torch.tensor([role.kind == "operand" for role in task.roles[:ctx]])
    with torch.no_grad():
        w["embed.W_E"][:base, number] = torch.arange(base).float()
        w["pos_embed.W_pos"][:, place:] = torch.eye(ctx)
        w["pos_embed.W_pos"][task.query_positions[0], 0] = 1.0  # without a carry, the answer is 0
        w["blocks.0.attn.b_Q"].fill_(1.0)
        for each in range(heads):
            looks = is_operand if each in (head, (head + 1) % heads) else ~is_operand
            w["blocks.0.attn.W_K"][each, place:, 0] = torch.where(looks, 0.0, -100.0)
            w["blocks.0.attn.W_V"][each, number, 0] = 1.0
            w["blocks.0.attn.W_O"][each, 0, total if each == head else unread] = 2.0 if each == head else 20.0
        for each in range(neurons):
            follows_carry = each == neuron or each % 2
            w["blocks.0.mlp.W_in"][total, each] = 1.0 if each == neuron else 3.0
            w["blocks.0.mlp.b_in"][each] = (1.0 if each == neuron else 3.0) * ((1.0 - base) if follows_carry else 0.0)
            w["blocks.0.mlp.W_out"][each, 1 if each == neuron else unread] = 2.0
        w["unembed.W_U"][:tokens] = torch.eye(tokens)
    return ArithmeticTransformer(maps, task, name="carry")


def made(task: Mapping[str, Any]) -> ArithmeticTransformer:
    """The model of a task."""
    make = dict(task["make"])
    match make.pop("model"):
        case "exact adder":
            return exact_adder(task_of_text(task["task"]), **make)
        case "carry":
            return carry_model(task_of_text(task["task"]), **make)
        case "near copy":
            found = models.load(make.pop("of"))
            perturb(found, **make)
            return found
        case program:
            return models.build(f"modular-{program}-hand-built", **make)


def write(task: Mapping[str, Any], folder: Path) -> str:
    """Write a task's model and return the name of its file or folder."""
    model = made(task)
    if task["make"]["model"] == "near copy":
        models.save_entry(folder / task["id"], model, {}, {})
        return task["id"]
    config = {"act_fn": "relu", "normalization_type": None, "attn_scale": 1.0}
    state = {name: x.detach().clone() for name, x in model.all_weights().items()}
    torch.save({"state_dict": state, "config": config}, folder / f"{task['id']}.pt")
    return f"{task['id']}.pt"
