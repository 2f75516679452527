"""Three questions of the causal page: which circuit is enough, what each stream knows, how training went."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

import models
from interp.causal.circuits import Circuit, smallest_circuit
from interp.causal.edges import EdgeAttribution, edge_attribution
from interp.core.results import Result
from interp.core.sections import Section
from interp.papers.studies.causal_answers import PAIRS, Answer, Found, Subject, fact, interval, told
from interp.probes.dynamics import training_dynamics
from interp.probes.lens import linear_probes, logit_attribution, logit_lens
from models.errors import UserError

STREAMS = 2048  # default number of problems for the linear probes

# ---- which circuit?

ENOUGH = "Which circuit is enough?"
CIRCUIT = """Every part of the model reads the sum of what all earlier parts wrote. An edge is one writer's share in one
reader's sum; cut, it carries what it would in the pair's other problem. A circuit keeps some edges. It is searched for
on one half of the pairs, must bring back 90% of the logit difference and of the right answers there, and is judged on
the other half, which shares no problem with it. A head reads queries (q), keys (k) and values (v) apart. Controls:
random circuits of the same size, and the complement."""
BY_ROLE = ", by role"
ROLES = """The same with every edge split by what its positions are to the predicted digit."""
EDGES = """Every edge cut by itself, exactly, against two estimates from gradients: EAP, the first-order term, and
EAP-IG, its mean over runs between the two problems' embeddings. The rank correlation is with the exact effects, the
error in logits."""
HELD_OUT_LARGE = 128  # pairs for a large model, half of them for the search; every circuit costs a run of them


def circuits(subject: Subject, problems: int | None, seed: int) -> Answer:
    """The smallest faithful circuit (in one layer also by role), and every edge's effect next to its estimates."""
    model = models.load(subject.model)
    n = problems or (HELD_OUT_LARGE if subject.large else PAIRS)
    method, draws = ("acdc", 20) if subject.large else ("auto", 100)
    tables, facts, agreements = {}, [], []
    results: dict[str, Result] = {}
    for way, pairs in subject.pairs(n, seed).items():
        for groups in (None, "roles") if model.cfg.n_layers == 1 else (None,):
            found = smallest_circuit(model, pairs, method=method, groups=groups, n_random=draws, seed=seed)
            heading = f"carry {way}{BY_ROLE if groups else ''}"
            results[f"circuit: {heading}"], tables[f"circuit: {heading}"] = found, _drops(found)
            facts += _facts(ENOUGH, heading, found)
        for name in ("eap", "eap-ig"):
            estimate = edge_attribution(model, pairs, method=name, direction="noise", seed=seed)
            results[f"edges, carry {way}: {name}"] = estimate
            agreements.append(_edges(estimate).assign(carry=way))
        row = agreements[-1].iloc[0]
        facts.append(
            fact(
                ENOUGH,
                f"carry {way}: rank correlation of EAP-IG with exact effects, {row.cells} edges",
                row.spearman,
                row.n,
                f"EAP: {agreements[-2].iloc[0].spearman:.3f}",
            )
        )
    tables["estimates against exact effects"] = pd.concat(agreements, ignore_index=True)
    return Answer(told(results), tables, facts, results)


def show_circuits(found: Found) -> list[Section]:
    """Circuits with their sizes, every edge's estimate, and how good the estimates are."""
    sections = [Section(ENOUGH, CIRCUIT)]
    for name in found.named("circuit: "):
        heading = name.partition(": ")[2].capitalize()
        text = ROLES if name.endswith(BY_ROLE) else ""
        sections.append(found.section(heading, name, found.table(name), text))
        if f"{name}{BY_ROLE}" not in found.data["sentences"] and not text and name in found.results:
            sections.append(Section("Faithfulness by size", "", (), (found.results[name].figure("curve"),), level=3))
    for name in found.named("edges, "):
        way, _, method = name.removeprefix("edges, ").partition(": ")
        sections.append(found.section(f"Every edge by {method.upper()}, {way}", name))
    estimates = _short(found.table("estimates against exact effects"))
    return [*sections, Section("Estimates against exact effects", EDGES, (estimates,), level=3)]


def _drops(found: Circuit) -> pd.DataFrame:
    """One row per edge of the circuit: faithfulness lost without it, in every metric."""
    rows = []
    for edge in found.drops.edge.values.tolist():
        row = {"edge": edge}
        for metric in found.metrics:
            value, low, high = found.drops.sel(metric=metric, edge=edge).values
            row[f"{metric.replace('_', ' ')} lost without it"] = interval(value, low, high)
        rows.append(row)
    return pd.DataFrame(rows)


def _facts(question: str, heading: str, found: Circuit) -> list[dict[str, object]]:
    n, can = found.provenance.n, int(found.space.everything().sum())
    kept = {
        name: tuple(map(float, array.sel(replacement=found.replacement, part="circuit").values))
        for name, array in (("logit difference", found.faithfulness), ("right answers", found.exact_match))
    }
    control = f"{found.random.mean():.3f} random circuits of that size"
    proven = "no smaller one is faithful" if found.found.proven else "a smaller one is not ruled out"
    return [
        fact(question, f"{heading}: edges of {can} in the circuit", found.found.size, found.searched_on, proven),
        fact(question, f"{heading}: share of the logit difference", kept["logit difference"], n, control),
        fact(question, f"{heading}: answers right", kept["right answers"], n),
    ]


def _edges(estimate: EdgeAttribution) -> pd.DataFrame:
    table = estimate.agreement_table()
    return table[
        ["metric", "level", "method", "steps", "cells", "n", "spearman", "p", "worst_error", "worst", "largest"]
    ]


def _short(table: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "carry": table.carry,
            "method": table.method,
            "of": table.level,
            "how many": table.cells,
            "pairs": table.n,
            "rank correlation": [f"{value:.2f}" for value in table.spearman],
            "permutation p": [f"{value:.3f}" for value in table.p],
            "worst error": [f"{value:.2f}" for value in table.worst_error],
            "at": table.worst,
            "largest exact effect": [f"{value:.2f}" for value in table.largest],
        }
    )


# ---- what does each stream know?

KNOWN = "What does each stream know?"
STREAM = """Three readings of the residual stream at the queries: by the model's own unembedding (logit lens), part by
part into the right digit's lead (direct attribution), and by linear probes on pairs of digits that they never saw.
What can be read need not be used."""


def streams(subject: Subject, problems: int | None, seed: int) -> Answer:
    """Logit lens, direct logit attribution, and linear probes next to those of an untrained model."""
    model = models.load(subject.model)
    n = problems or STREAMS
    lens = logit_lens(model, n=max(n // 4, 2), seed=seed)
    direct = logit_attribution(model, n=max(n // 8, 2), seed=seed)
    blank = models.build(models.zoo.read_entry(subject.model)["model"])
    probes = linear_probes(model, n=n, seed=seed, untrained=blank)
    untrained = replace(linear_probes(blank, n=n, seed=seed, untrained=None), name=f"{subject.model}, untrained")
    both = pd.concat(
        [
            found.table[found.table.column == "all"].assign(model=name)
            for name, found in ((subject.model, probes), ("untrained", untrained))
        ],
        ignore_index=True,
    )
    keep = ["model", "site", "signal", "n", "accuracy", "pair_low", "pair_high", "control", "score", "control_score"]
    before, after, low, _ = lens.largest_rise
    there = lens.table.sel(point=after)
    lead = tuple(float(there[name]) for name in ("overall", "overall_low", "overall_high"))
    facts = [
        fact(
            KNOWN,
            f"right token leads at {after} (at {before}: {low:.3f})",
            lead,
            lens.provenance.n,
            f"{float(lens.table.overall_control.max()):.3f} answers of other problems, at most",
        ),
    ]
    for signal in ("carry_in", "carry_out", "nine"):
        if signal not in set(both.signal):
            continue
        rows = probes.overall(signal)
        best = rows.loc[rows.score.idxmax()]
        twin = float(untrained.overall(signal).score.max())
        facts.append(
            fact(
                KNOWN,
                f"linear probe for {signal}, best at {best.site}: AUROC",
                float(best.score),
                probes.provenance.n,
                f"{best.control_score:.3f} labels dealt, {twin:.3f} untrained",
            )
        )
    results = {"logit lens": lens, "direct attribution": direct, "probes": probes, "probes, untrained": untrained}
    by_kind = direct.by_kind().rename("logits").rename_axis("kind").reset_index()
    return Answer(told(results), {"probes": both[keep], "direct attribution": by_kind}, facts, results)


def show_streams(found: Found) -> list[Section]:
    """The three readings; the probes also for an untrained model."""
    return [
        Section(KNOWN, STREAM),
        found.section("Logit lens", "logit lens"),
        found.section("Direct logit attribution", "direct attribution", found.table("direct attribution")),
        found.section("Linear probes", "probes", found.table("probes")),
        found.section("The same probes on an untrained model", "probes, untrained"),
    ]


# ---- how did training bring it about?

BROUGHT = "How did training bring it about?"
DYNAMICS = """Every measure over the snapshots of the seed that the entry was taken from. A change is dated by the first
snapshot from which on half of it is made; snapshots are log-spaced, so that late ones lie far apart. One seed: the
order need not be that of another."""


def dynamics(subject: Subject, problems: int | None, seed: int) -> Answer:
    """Training dynamics of the entry, if it keeps snapshots; ``seed`` draws the problems."""
    try:
        found = training_dynamics(subject.model, n=problems or 512, seed=seed)
    except UserError as error:
        return Answer({"dynamics": str(error)})
    table = found.half_way()
    moved = table.dropna(subset=["by"])
    facts = [
        fact(
            BROUGHT,
            f"half of the change of {row.reading.replace('_', ' ')}: by step",
            int(row.by),
            found.provenance.n,
            f"after step {row.after:,.0f}",
        )
        for row in moved[moved.measure != "chain"].sort_values("by", kind="stable").itertuples()
    ]
    return Answer({"dynamics": str(found)}, {"dynamics": moved}, facts, {"dynamics": found})


def show_dynamics(found: Found) -> list[Section]:
    """When each measure changed, or why this is not known if the entry keeps no snapshots."""
    moved = found.table("dynamics")
    if moved.empty:
        return [Section(BROUGHT, found.data["sentences"]["dynamics"])]
    return [Section(BROUGHT, DYNAMICS), found.section("All measures over the steps", "dynamics", _steps(moved))]


def _steps(moved: pd.DataFrame) -> pd.DataFrame:
    whole = {"after step": moved.after.astype(int), "by step": moved.by.astype(int)}
    return moved[["reading", "first", "last"]].assign(**whole)
