"""Sections of a page about a comparison, for ``interp compare``, the experiment and the report."""

from __future__ import annotations

from typing import Any

from interp.compare.comparison_result import Comparison
from interp.compare.model_table import ModelTable
from interp.core.sections import Section, records

ABOUT = """One row per model, one column per question: a probe that gives a number. Models of sums of many operands are
asked about sums of two numbers. A number stands with its 95% interval or its strength of evidence, and the control: the
same measure where there is nothing to find. A dash says that the question makes no sense for the model."""
DISTANCES = """Distances lie between 0 (the same) and 1. Untrained: the mean of copies with fresh parameters in place of
one of the two; shuffled: of shuffled labels; p is the share of them that are as close. A circuit that only one model
has is named in the column "nothing in"."""

_MOST_NUMBERS = 120  # with more parameters than this, they are left out


def table_sections(table: ModelTable, about: str = ABOUT) -> list[Section]:
    """The sections about models of any formats."""
    texts = table.texts()
    texts = texts.assign(model=texts["model"].str.replace("-", "\u2011"))
    reasons = table.to_dataframe()
    reasons = reasons[reasons.why != ""][["model", "question", "why"]]
    sections = [
        Section("The models next to each other", f"{table.sentence()}\n\n{about}", figures=[table.figure()]),
        Section("In numbers", f"{table.provenance}, where a cell does not say otherwise.", [texts]),
        Section("The questions", "\n\n".join(f"{each.heading}: {each.words}" for each in table.questions)),
    ]
    return sections + ([Section("Questions that do not apply", tables=[reasons])] if len(reasons) else [])


def matched_sections(found: Comparison) -> list[Section]:
    """The sections about two models of one format."""
    distances = found.table.rename(columns={"nothing": "nothing in"})
    sections = [
        Section("The two next to each other", f"{found.sentence()}\n\n{found.provenance}.", figures=[found.figure()]),
        Section("Distances", DISTANCES, [distances]),
    ]
    if len(found.unit_pairs):
        about = "Correlation of activations over problems and answer tokens."
        sections.append(Section("Matched neurons", about, [found.unit_pairs]))
    if found.parameters is not None and 0 < len(found.parameters) <= _MOST_NUMBERS:
        sections.append(Section("Parameters", "Both models' numbers next to each other.", [found.parameters]))
    return sections


def matched_data(found: Comparison) -> dict[str, Any]:
    """The comparison of two models of one format, as JSON."""
    data: dict[str, Any] = {"models": list(found.names), "distances": records(found.table)}
    data |= {"units": records(found.unit_pairs), "provenance": str(found.provenance)}
    return data if found.parameters is None else data | {"parameters": records(found.parameters)}
