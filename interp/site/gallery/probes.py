"""The probes of a model's page, by the task that it is for; sized so that each takes seconds."""

from __future__ import annotations

from typing import Any

import pandas as pd
from markupsafe import Markup

import models
from interp.core.controls import untrained_models
from interp.core.parameters import parameter_table
from interp.core.problems import DIGIT_TOKENS
from interp.papers.position_coupling.attention import needed_attention
from interp.papers.position_coupling.comparison import coupled_comparison
from interp.probes.accuracy import accuracy_by_chain
from interp.probes.attention import attention_by_role
from interp.probes.carry import carry_units
from interp.probes.embeddings import circle_fit, fourier_spectrum
from interp.probes.helices import helix_fit
from interp.site.gallery.render import Part, control, folded, paragraph, table
from interp.site.pages import figure_data
from models.evaluation import Score, score
from models.tasks.addition import DIGITS, FixedWidthAddition
from models.tasks.multi_addition import MultiOperandAddition
from models.tasks.two_digit import TwoDigitAddition, all_problems

SMALL = 1_000  # parameters of a model all of whose numbers and units are shown
N, FEW = 1024, 64  # problems of a probe; of one that looks at every token of long sequences
PER_CHAIN = {True: 1_000, False: 100}  # stratified problems of each carry-chain length, of small models and others


def chain_part(model: Any, known: Score | None) -> Part:
    """Accuracy by the length of the longest carry chain, of ten-digit and of two-digit adders."""
    if isinstance(model.task, TwoDigitAddition):
        return _all_pairs(model)
    found = accuracy_by_chain(model, n_per_length=PER_CHAIN[_is_small(model)], test=known)
    return Part("accuracy", "Is it right?", [figure_data(found.figure()), table(_shares(found.to_dataframe()))])


def _all_pairs(model: Any) -> Part:
    found = score(model, all_problems())
    rows = found.to_dataframe().drop(columns=["low", "high"]).rename(columns={"chain_length": "longest carry chain"})
    text = f"{found.correct:,} of all {found.n:,} pairs are answered right (exhaustive), by the longest carry chain:"
    items = [paragraph(text), table(rows)]
    if found.failures:
        wrong = pd.DataFrame(
            [
                {"sum": " + ".join(map(str, one.problem)), "answer": _shown(one.predicted), "right": one.expected}
                for one in found.failures
            ]
        )
        items.append(folded(f"The first {len(wrong)} wrong answers", table(wrong)))
    return Part("accuracy", "Is it right?", items)


def _shown(answer: int | None) -> str:
    return "no number" if answer is None else str(answer)


def _shares(frame: pd.DataFrame) -> pd.DataFrame:
    """The table of chain lengths as a reader wants it."""
    ends = [f"{low:.4f} to {high:.4f}" for low, high in zip(frame.low, frame.high, strict=True)]
    shown = frame[["problems", "chain_length", "n", "correct"]].assign(interval=ends)
    return shown.rename(columns={"chain_length": "longest carry chain", "interval": "95% interval of the accuracy"})


def adder_parts(model: Any, learned: bool) -> list[Part]:
    """Attention by role, carry units, embeddings and every number of a small ten-digit adder, with their controls."""
    fresh = untrained_models(model, None, 1, 0)[0] if learned else None
    attention, units = attention_by_role(model, n=N), carry_units(model, n=N)
    looks = [paragraph(attention.sentence())]
    detects = [paragraph(units.sentence())]
    if fresh is not None:
        looks.append(control(attention_by_role(fresh, n=N).sentence()))
        detects.append(control(carry_units(fresh, n=N).sentence()))
    looks += [figure_data(attention.figure()), figure_data(attention.figure("pattern"))]
    detects += [figure_data(units.figure()), figure_data(units.figure("ablation"))]
    digits, columns = model.W_E[:DIGIT_TOKENS], model.W_pos[:DIGITS]
    shapes: list[Markup] = []
    fits = (("Digits", circle_fit, digits), ("As waves over the digits", fourier_spectrum, digits))
    for words, fit, rows in (*fits, ("Columns", helix_fit, columns)):
        found = fit(rows)
        shapes += [paragraph(f"{words}: {found.sentence()}"), figure_data(found.figure())]
    return [
        Part("attention", "Where does each answer digit look?", looks),
        Part("carry", "Which units detect the carry?", detects),
        Part("embeddings", "What shape are the embeddings?", shapes),
    ]


def coupled_parts(model: Any) -> list[Part]:
    """Which tokens each head needs, and the heads beside the constructed ones, on three operands of three digits."""
    task = model.task.at(3, 3)
    found = needed_attention(model, task, n=FEW)
    layer, head = found.strongest(1)[0]
    items = [
        figure_data(found.figure(layer=layer, head=head)),
        figure_data(found.figure("shares")),
    ]
    parts = [Part("attention", "Where does each token look?", items)]
    if any(True for _ in model.parameters()):
        beside = coupled_comparison(model, task, n=FEW, untrained=untrained_models(model, None, 5, 0))
        text = "Against five untrained copies; interp.coupled_comparison takes 39."
        parts.append(Part("beside", "Beside the hand-built model", [paragraph(text), figure_data(beside.figure())]))
    return parts


def two_digit_parts(model: Any) -> list[Part]:
    """Attention by role of every head."""
    found = attention_by_role(model, n=N)
    items = [paragraph(found.sentence()), figure_data(found.figure()), figure_data(found.figure("pattern"))]
    return [Part("attention", "Where does each answer digit look?", items)]


def parameter_part(model: Any) -> Part:
    """Every free number."""
    frame = parameter_table(model)
    groups = [
        Markup("<table><caption>{} ({})</caption><tbody>{}</tbody></table>").format(
            name, len(group), Markup("").join(_number(row) for row in group.to_dict("records"))
        )
        for name, group in frame.groupby("parameter", sort=False)
    ]
    body = Markup("<div class='parameters'>{}</div>").format(Markup("").join(groups))
    return Part("parameters", f"Every free number: {len(frame)}", [body])


def _number(row: dict[str, Any]) -> Markup:
    return Markup("<tr><td>{}</td><td class='number'>{:.6g}</td></tr>").format(row["index"], row["value"])


def probe_parts(model: Any, learned: bool) -> list[Part]:
    """What can be asked of this model in seconds."""
    if isinstance(model.task, FixedWidthAddition) and _is_small(model):
        return adder_parts(model, learned)
    if isinstance(model.task, (TwoDigitAddition, FixedWidthAddition)):
        return two_digit_parts(model)
    if isinstance(model.task, MultiOperandAddition) and model.task.format.scratchpad:
        return coupled_parts(model)
    return []


def _is_small(model: models.ArithmeticTransformer) -> bool:
    return sum(p.numel() for p in model.parameters()) <= SMALL
