"""The paper's worked example, Tables 4 to 26 of appendix D, computed by the construction and compared with the print.

    check_table(22)        entries that differ, {("EOS", 0): "0", ("EOS", 8): "-1"}, and how many were compared
    computed(22)           the table's rows as the model computes them

Everything is in float64; an entry is a number or a code vector, and must agree to :data:`TOLERANCE`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

import models
from models.families.hand_built.construction import codes
from models.families.hand_built.position_coupling_addition import NAME
from tests.parity.printed_tables import FROM_EQUALS, OFFSETS, TABLES, TOKENS

ETA = 16.0
TOLERANCE = 1e-9


@dataclass(frozen=True)
class TableCheck:
    """``entries``: how many were compared; ``differing``: (row, column of the print) -> what is printed there."""

    entries: int
    differing: dict[tuple[str, int], str]


@cache
def example_model() -> Any:
    """The construction with three bits per level, which leaves room for the example's offsets."""
    return models.build(NAME, max_operands=7, max_digits=2, eta=ETA, dtype="float64")


def example_ids() -> Int[Tensor, "1 pos level"]:
    """The position ids of equations 1 and 2 with the example's offsets."""
    ids = example_model().task.position_ids(example_model().task.tokenise(TOKENS))
    return torch.where(ids > 0, ids + torch.tensor(OFFSETS) - 1, 0)


@cache
def activations() -> dict[str, Tensor]:
    """The activations of the example by hook name, and "logits"."""
    model = example_model()
    model.set_use_attn_result(True)
    logits, stored = model.run_with_cache(model.task.tokenise(TOKENS), position_ids=example_ids())
    model.set_use_attn_result(False)
    return {name: value.detach()[0] for name, value in stored.items()} | {"logits": logits.detach()[0]}


def _stream_rows(stream: Float[Tensor, "pos d_model"]) -> dict[str, Tensor]:
    """One tensor [pos, width] per named dimension."""
    return {name: stream[:, where] for name, where in example_model().weight_map.dims.items()}


def _code_rows(columns: Float[Tensor, "pos d_head"], head: int) -> dict[str, Tensor]:
    """A head's queries or keys as the printed rows, after a check that padding is zero."""
    P1, P2 = example_model().weight_map.options.position_bits
    first, second = {"1-P1": columns[:, :P1]}, columns[:, P1 : P1 + P2]
    if head == 3:
        rows, padding = first | {"P1+1": columns[:, P1 : P1 + 1]}, columns[:, P1 + 1 :]
    else:
        rows, padding = first | {"P1+1-P": second, "P+1": columns[:, P1 + P2 :]}, columns[:, columns.shape[1] :]
    assert not padding.any(), f"Head {head} has numbers where the paper has none."
    return rows


def computed(table: int) -> dict[str, Float[Tensor, "column width"]]:
    """The rows of Tables 4 to 25 as the model computes them."""
    model, seen = example_model(), activations()
    head, kind = divmod(table - 5, 4)
    if table == 4:
        return _stream_rows(seen["blocks.0.hook_resid_pre"])
    if table <= 20:
        if kind < 2:
            name = ("blocks.0.attn.hook_q", "blocks.0.attn.hook_k")[kind]
            return _code_rows(seen[name][:, head] / ETA**0.5, head + 1)
        if kind == 2:
            values = seen["blocks.0.hook_resid_pre"] @ model.W_V[0, head] @ model.W_O[0, head]
            return _stream_rows(values.detach())
        return _stream_rows(seen["blocks.0.attn.hook_result"][:, head])
    if table == 24:
        rows = _stream_rows(model.W_U.detach().T)
        sums = rows.pop("SUM")
        return rows | {f"SUM{k + 1}": sums[:, k : k + 1] for k in range(10)}
    if table == 25:
        return {model.task.token_text(token): seen["logits"][:, token, None] for token in range(14)}
    hook = {21: "hook_resid_mid", 22: "hook_mlp_out", 23: "hook_resid_post"}[table]
    return _stream_rows(seen[f"blocks.0.{hook}"])


def entry(text: str, row: str, width: int) -> Float[Tensor, " width"]:
    """A printed entry as a vector of the row's width."""
    bits = example_model().weight_map.options.position_bits
    if text.startswith("v"):
        level = 1 if row in ("POS_2", "POS_2_NEXT", "P1+1-P") else 0
        return codes(bits[level])[int(text[1:]) - 1]
    if text.startswith("e"):
        return torch.eye(10, dtype=torch.float64)[int(text[1:]) - 1]
    value = {"rP": sum(bits) ** 0.5, "rP1": bits[0] ** 0.5}.get(text)
    value = float(Fraction(text)) if value is None else value
    return torch.full((width,), value, dtype=torch.float64)


def check_table(number: int) -> TableCheck:
    """Compare every printed entry of a table with the computed one; for Table 26, compare the predicted tokens."""
    table = TABLES[number]
    if number == 26:
        printed = table.rows["O"].split()
        tokens = [example_model().task.token_text(int(k)) for k in activations()["logits"][FROM_EQUALS:].argmax(-1)]
        wrong = {("O", k): text for k, (text, own) in enumerate(zip(printed, tokens, strict=True)) if text != own}
        return TableCheck(len(printed), wrong)
    rows = computed(number)
    assert set(rows) == set(table.rows), f"Table {number} has other rows than the model."
    entries, differing = 0, {}
    for name, ours in rows.items():
        ours = ours[FROM_EQUALS:] if table.response_only else ours
        texts = ["0"] * len(ours) if table.rows[name] == "0*" else table.rows[name].split()
        assert len(texts) == len(ours), f"Row {name} of Table {number} has {len(texts)} entries, not {len(ours)}."
        entries += len(texts)
        for column, text in enumerate(texts):
            if (ours[column] - entry(text, name, ours.shape[1])).abs().max() > TOLERANCE:
                differing[name, column] = text
    return TableCheck(entries, differing)
