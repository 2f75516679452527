"""Two questions of the causal page: where the carry's information is, and what breaks."""

from __future__ import annotations

import numpy as np
import pandas as pd

import models
from interp.causal.ablation import component_ablation, parameter_ablation, role_edges
from interp.causal.ablation.sweep import ALL
from interp.causal.patching import PatchingSweep, activation_patching
from interp.core.results import Result
from interp.core.sections import Section
from interp.core.thresholds import RECOVERED
from interp.papers.studies.causal_answers import PAIRS, Answer, Found, Subject, fact, told
from interp.probes.carry import carry_units

COLUMNS = 1024  # default number of problems for an ablation
MOST_PARAMETERS = 100  # a model with more is not ablated parameter by parameter


# ---- where is the carry's information?

WHERE = "Where is the carry's information?"
INFORMATION = """Two problems of a pair agree in a column and in all above it and differ in the carry into it, so that
the digit there differs by one. One activation of one run is put into the other. Denoise: what restores the clean
digit in the corrupted run; noise: what breaks it in the clean run. Recovered is the share of the difference between
the two runs' logit differences; 1 is what exchanging the whole problem does. The query of a digit stands on the digit
written before, so that "previous output" as a role of the residual stream or of a head's output is the query itself.
Part of the cells were run through the model's own hooks as well, and agreed."""
ARISES = {
    "made": """The previous column has a digit sum of s in one problem and s + 10 in the other. It writes the same digit
in both, so that the carry is in the operands of that column and nowhere else in the input.""",
    "passed": """The previous column adds up to 9 with the same digits in both problems and passes on a carry that
arrives in one of them. It writes 9 or 0, which the query's own token shows; the operands below it differ too.""",
}
ARISEN = {"made": "made in the previous column", "passed": "passed on by the previous column"}
PATCHED = (
    ("Residual stream by position", "resid_pre", "position"),
    ("Values by role", "v", "role"),
    ("Heads' outputs by role", "head_out", "role"),
)


def information(subject: Subject, problems: int | None, seed: int) -> Answer:
    """Activation patching of the residual stream by position, and of values and heads by role, in both directions."""
    model = models.load(subject.model)
    tables, facts = {}, []
    results: dict[str, Result] = {}
    for way, pairs in subject.pairs(problems or PAIRS, seed).items():
        for what, site, by in PATCHED:
            sweep = activation_patching(
                model,
                pairs,
                site=site,
                by=by,
                metrics=("logit_diff", "exact_match"),
                direction="both",
                check=True,
                seed=seed,
            )
            name = f"{way}: {what.lower()}"
            results[name], tables[name] = sweep, recovered(sweep)
            where, most = sweep.strongest("denoise")
            at = f" ({_plain(where)})" if most >= RECOVERED else ""
            facts.append(fact(WHERE, f"carry {way}: most that one cell of {sweep.site} restores{at}", most, len(pairs)))
    return Answer(told(results), tables, facts, results)


def show_information(found: Found) -> list[Section]:
    """The sweeps, by how the carry arises."""
    sections = [Section(WHERE, INFORMATION)]
    for way in (way for way in ARISES if found.named(f"{way}: ")):
        sections.append(Section(f"A carry that is {ARISEN[way]}", ARISES[way], level=3))
        for what, *_ in PATCHED:
            name = f"{way}: {what.lower()}"
            sections.append(found.section(f"{what}, carry {ARISEN[way]}", name, found.table(name)))
    return sections


def _plain(where: str) -> str:
    """ "layer 0, head 0, role previous operands" as "layer 0, head 0, previous operands"."""
    return where.replace("role ", "").replace("pos ", "position ")


def recovered(sweep: PatchingSweep) -> pd.DataFrame:
    """One row per cell that recovers at least 5% in either direction by the first metric; the largest first."""
    frame = sweep.to_dataframe()
    frame = frame[(frame.metric == frame.metric.iloc[0]) & (frame.recovered.abs() >= RECOVERED)]
    order = frame.recovered.abs().sort_values(ascending=False, kind="stable").index
    return frame.loc[order].drop(columns="metric").assign(n=sweep.provenance.n).reset_index(drop=True)


# ---- what breaks?

BREAKS = "What breaks?"
LESIONS = """Parts are set to zero one by one, teacher forced. The control for a neuron is every rival signal held
fixed, and for other lesions a change of the same length in a random direction. A lesion shows what the rest
needs to be about as it was, not what the part stands for; two parts of which each breaks what the other spares show
more."""


def lesions(subject: Subject, problems: int | None, seed: int) -> Answer:
    """Double dissociation of the neurons, attention by role, and every parameter of a model that has few."""
    model = models.load(subject.model)
    n = problems or COLUMNS
    apart = carry_units(model, n=n, seed=seed)
    found = apart.double_dissociation()
    roles = role_edges(model, model.task, per_head=not subject.large)
    edges = component_ablation(model, components=roles, replacement="zero", n=n // 4 if subject.large else n, seed=seed)
    results: dict[str, Result] = {"double dissociation": apart, "attention by role": edges}
    sentences = told(results)
    worst = edges.worst()
    value = tuple(float(worst[key]) for key in ("value", "low", "high"))
    facts = [
        fact(
            BREAKS,
            f"digits right without {worst.component.item()}",
            value,
            int(worst.n),
            f"{float(worst.control):.3f} random change of that length",
        ),
    ]
    if not found.empty:
        row = found.iloc[0]
        facts.insert(
            0,
            fact(
                BREAKS,
                f"double dissociation of {row.unit} and {row.other} on carry out: contrast",
                (row.contrast, row.low, row.high),
                n,
            ),
        )
    by_edge = edges.to_dataframe()
    keep = ["component", "stratum", "value", "low", "high", "control"]
    tables = {"double dissociations": found.head(8), "attention by role": by_edge[by_edge.stratum == ALL][keep]}
    if sum(p.numel() for p in model.parameters()) <= MOST_PARAMETERS:
        each = parameter_ablation(model, n=problems or PAIRS, seed=seed)
        ranked = each.ranked()
        results["parameters"] = each
        sentences["parameters"] = f"{each.sentence().rpartition('. ')[0]} ({each.provenance})"  # without the seconds
        above = int(np.sum(ranked["drop"] > ranked.control_worst))
        facts.append(
            fact(
                BREAKS,
                f"of {len(ranked)} parameters, zeroed one by one, cost at most 0.01 of the digits",
                len(each.harmless()),
                each.provenance.n,
            )
        )
        facts.append(
            fact(
                BREAKS,
                f"of {len(ranked)} parameters, cost more than every random step as long",
                above,
                each.provenance.n,
            )
        )
        tables["parameters"] = ranked[["parameter", "accuracy", "accuracy_low", "accuracy_high", "control"]]
    return Answer(sentences, tables, facts, results)


def show_lesions(found: Found) -> list[Section]:
    """Neurons, attention, and parameters if there are few."""
    named = {
        "double dissociation": ("Which part is needed for which signal", "double dissociations"),
        "attention by role": ("What is read from where: attention by role, set to zero", "attention by role"),
        "parameters": ("Every parameter and every pair of them, set to zero", "parameters"),
    }
    parts = [
        found.section(heading, name, found.table(table))
        for name, (heading, table) in named.items()
        if found.named(name)
    ]
    return [Section(BREAKS, LESIONS), *parts]
