"""The hand-built transformer against the paper's worked example: Tables 4 to 26, entry by entry."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import Tensor

import models
from models.hand_built.construction import codes
from tests.parity.hand_built_tables import FIGURE_4, FROM_EQUALS, MISPRINTS, OFFSETS, TABLES, TOKENS

ETA = 16.0
TOLERANCE = 1e-9


@pytest.fixture(scope="module")
def model():
    """Three bits a level: room for the example's offsets."""
    return models.build("position-coupling-hand-built", max_operands=7, max_digits=2, eta=ETA, dtype="float64")


def example_ids(model) -> Tensor:
    """Equations 1 and 2 with the example's offsets."""
    ids = model.task.position_ids(model.task.tokenise(TOKENS))
    return torch.where(ids > 0, ids + torch.tensor(OFFSETS) - 1, 0)


@pytest.fixture(scope="module")
def cache(model):
    model.set_use_attn_result(True)
    logits, cache = model.run_with_cache(model.task.tokenise(TOKENS), position_ids=example_ids(model))
    model.set_use_attn_result(False)
    return {name: value.detach()[0] for name, value in cache.items()} | {"logits": logits.detach()[0]}


def stream_rows(model, stream: Tensor) -> dict[str, Tensor]:
    """[pos, d_model] as one [pos, width] a named dimension."""
    return {name: stream[:, where] for name, where in model.weight_map.dims.items()}


def code_rows(model, columns: Tensor, head: int) -> dict[str, Tensor]:
    """A head's queries or keys as the printed rows; what is padding must be zero."""
    P1, P2 = model.weight_map.options.position_bits
    if head == 3:
        assert (columns[:, P1 + 1 :] == 0).all()
        return {"1-P1": columns[:, :P1], "P1+1": columns[:, P1 : P1 + 1]}
    return {"1-P1": columns[:, :P1], "P1+1-P": columns[:, P1 : P1 + P2], "P+1": columns[:, P1 + P2 :]}


def computed(model, cache, table: int) -> dict[str, Tensor]:
    """The table's rows as the model computes them: [column, width] each."""
    head, kind = divmod(table - 5, 4)
    if table == 4:
        return stream_rows(model, cache["blocks.0.hook_resid_pre"])
    if table <= 20:
        if kind < 2:
            name = ("blocks.0.attn.hook_q", "blocks.0.attn.hook_k")[kind]
            return code_rows(model, cache[name][:, head] / ETA**0.5, head + 1)
        if kind == 2:
            values = cache["blocks.0.hook_resid_pre"] @ model.W_V[0, head] @ model.W_O[0, head]
            return stream_rows(model, values.detach())
        return stream_rows(model, cache["blocks.0.attn.hook_result"][:, head])
    if table == 24:
        rows = stream_rows(model, model.W_U.detach().T)
        sums = rows.pop("SUM")
        return rows | {f"SUM{k + 1}": sums[:, k : k + 1] for k in range(10)}
    if table == 25:
        return {model.task.token_text(token): cache["logits"][:, token, None] for token in range(14)}
    hook = {21: "hook_resid_mid", 22: "hook_mlp_out", 23: "hook_resid_post"}[table]
    return stream_rows(model, cache[f"blocks.0.{hook}"])


def entry(text: str, row: str, width: int, bits: tuple[int, int]) -> Tensor:
    """A printed entry as a vector of the row's width."""
    if text.startswith("v"):
        level = 1 if row in ("POS_2", "POS_2_NEXT", "P1+1-P") else 0
        return codes(bits[level])[int(text[1:]) - 1]
    if text.startswith("e"):
        return torch.eye(10, dtype=torch.float64)[int(text[1:]) - 1]
    value = {"rP": sum(bits) ** 0.5, "rP1": bits[0] ** 0.5}.get(text)
    value = float(Fraction(text)) if value is None else value
    return torch.full((width,), value, dtype=torch.float64)


@pytest.mark.parametrize("number", [number for number in TABLES if number != 26])
def test_a_printed_table_is_what_the_model_computes_but_for_the_misprints(model, cache, number: int):
    table, bits = TABLES[number], model.weight_map.options.position_bits
    rows = computed(model, cache, number)
    assert set(rows) == set(table.rows), table.caption
    differing = {}
    for name, ours in rows.items():
        if table.response_only:
            ours = ours[FROM_EQUALS:]
        texts = ["0"] * len(ours) if table.rows[name] == "0*" else table.rows[name].split()
        assert len(texts) == len(ours), f"Table {number}, row {name}"
        for column, text in enumerate(texts):
            if (ours[column] - entry(text, name, ours.shape[1], bits)).abs().max() > TOLERANCE:
                differing[name, column] = text
    expected = MISPRINTS.get(number, {})
    assert differing == {place: printed for place, (printed, _) in expected.items()}, table.caption
    for (name, column), (_, right) in expected.items():
        found = rows[name][FROM_EQUALS + column]
        assert (found - entry(right, name, len(found), bits)).abs().max() <= TOLERANCE


def test_the_predicted_tokens_are_table_26(model, cache):
    predicted = cache["logits"][FROM_EQUALS:].argmax(-1)
    assert model.task.token_text(predicted) == TABLES[26].rows["O"].replace(" ", "")


def test_the_misprints_change_no_predicted_token(model, cache):
    """The printed Table 25 has the same largest entry in every column."""
    printed = [TABLES[25].rows[model.task.token_text(token)] for token in range(14)]
    columns = [[0.0] * 16 if row == "0*" else [float(entry) for entry in row.split()] for row in printed]
    assert torch.equal(torch.tensor(columns).argmax(0), cache["logits"][FROM_EQUALS:].argmax(-1))


def test_figure_4_prints_the_ids_of_equations_1_and_2(model):
    ids = model.task.position_ids(model.task.tokenise("$" + FIGURE_4["Token"]))[0, 1:]
    assert "".join(map(str, ids[:, 0].tolist())) == FIGURE_4["PosID1"]
    assert "".join(map(str, ids[:, 1].tolist())) == FIGURE_4["PosID2"]


def test_ids_are_equations_1_and_2_at_every_position(model):
    m, length = 3, 3
    s1, s2 = OFFSETS
    w = length + 1
    expected = [(0, 0)]
    for k in range(2, (2 * m + 1) * w + 1):  # the paper counts tokens from 1
        if k <= m * w + 1:
            i = (k - 2) // w + 1  # k = (i - 1) w + 2 ... i w + 1
            p1 = s1 + i * w + 1 - k
        if k >= m * w + 1:  # both cases hold for "=", with the same value
            i = (k - 1) // w - m + 1  # k = (m + i - 1) w + 1 ... (m + i) w
            p1 = s1 - ((m + i - 1) * w + 1) + k
        p2 = s2 + ((k - 2) // w if k <= m * w else (k - m * w - 1) // w)
        expected.append((p1, p2))
    assert [tuple(ids) for ids in example_ids(model)[0].tolist()] == expected
