"""Tables and a picture of the benchmark's rows and truths, for the page, the README and the notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from benchmarks.circuits.bench_runs import RESULTS, read_rows
from benchmarks.circuits.circuit_methods import CONTROL, ESTIMATE, METHODS, SEARCH
from benchmarks.circuits.statistics import BLIND, BOTH, family_mean, scored, wide
from benchmarks.circuits.subjects import FAMILIES, stored_truths
from benchmarks.circuits.truth import ABLATIONS, CORRUPTED, MEAN, ZERO

TITLES = {CONTROL: "Controls: no run of the model", ESTIMATE: "Estimates", SEARCH: "Methods that measure the score"}


def number(value: float) -> str:
    return "" if value is None or np.isnan(value) else f"{value:.2f}"


def interval(row: Any) -> str:
    """A value with its interval. Where all subjects have one value, drawing them again says nothing of others."""
    if row.low == row.high:
        return f"{row.value:.2f} in all"
    return f"{row.value:.2f} [{row.low:.2f}, {row.high:.2f}]"


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table."""
    rows = [list(frame.columns), ["---"] * len(frame.columns), *frame.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def ranking(rows: pd.DataFrame, truths: Mapping[str, Any], kind: str) -> pd.DataFrame:
    """One row per method of a kind: AUROC by kind of truth, other scores under corrupted ablation, and the passes."""
    columns: dict[str, dict[str, str]] = {}
    asked = [
        ("corrupted", "auroc", CORRUPTED),
        ("mean", "auroc", MEAN),
        ("zero", "auroc", ZERO),
        ("optimal", "optimal", MEAN),
    ]
    for title, score, ablation in (*asked, ("certified", "certified", CORRUPTED), ("planted", "planted", "")):
        table = wide(rows, truths, score, ablation)
        columns[title] = {
            row.method: interval(row) + (f", {row.subjects} of {len(table)}" if row.subjects < len(table) else "")
            for row in (scored(table).itertuples() if len(table) else ())
            if row.subjects
        }
    for score in ("precision", "heads", "regret", "cpr", "cmd"):
        columns[score] = {name: number(value) for name, value in family_mean(wide(rows, truths, score)).items()}
    columns["passes"] = {name: f"{value:.0f}" for name, value in passes(rows).items()}
    order = family_mean(wide(rows, truths, "auroc")).sort_values(ascending=False).index
    names = [name for name in order if METHODS[name].kind == kind]
    return pd.DataFrame(columns).reindex(names).fillna("-").rename_axis("method").reset_index()


def passes(rows: pd.DataFrame) -> pd.Series:
    """Forward and backward passes over all pairs, a method's mean under corrupted ablation."""
    return rows[rows["ablation"] == CORRUPTED].groupby("method")[["forwards", "backwards"]].mean().sum(axis=1)


def of_subjects(truths: Mapping[str, Any]) -> pd.DataFrame:
    """One row per family."""
    rows = []
    for family in FAMILIES:
        own = [entry for entry in truths.values() if entry["family"] == family]
        live = [len(entry["ablations"][CORRUPTED]["live_edges"]) for entry in own]
        kinds = [[entry["ablations"].get(ablation) for entry in own] for ablation in ABLATIONS]
        kinds.append([entry.get("certified") for entry in own])
        counts = [[bool(known and known.get("complete")) for known in kind] for kind in kinds]
        ones = [sum(map(alone, kind)) for kind in kinds]
        layers = ", ".join(map(str, sorted({entry["layers"] for entry in own})))
        said = [f"{one} of {sum(of)}" for one, of in zip(ones, counts, strict=True)]
        rows.append((family, len(own), layers, f"{min(live)} to {max(live)}", *said))
    return pd.DataFrame(rows, columns=["family", "subjects", "layers", "live edges", *ABLATIONS, "certified"])


def alone(known: Mapping[str, Any] | None) -> bool:
    return bool(known and known.get("complete") and known["n_minimal"] == 1)


def agreement_of_truths(truths: Mapping[str, Any]) -> pd.DataFrame:
    """How often two kinds of truth have the same edges, where both have one circuit, and their overlap (Jaccard)."""
    kinds = [*ABLATIONS, "certified"]

    def circuit(entry: Mapping[str, Any], kind: str) -> set[str] | None:
        known = entry.get("certified") if kind == "certified" else entry["ablations"].get(kind)
        return set(known["minimal"][0]) if known and alone(known) else None

    rows = []
    for i, one in enumerate(kinds):
        for other in kinds[i + 1 :]:
            both = [(circuit(entry, one), circuit(entry, other)) for entry in truths.values()]
            pairs = [(a, b) for a, b in both if a is not None and b is not None]
            if pairs:
                overlap = np.mean([len(a & b) / len(a | b) for a, b in pairs])
                rows.append((f"{one} and {other}", len(pairs), sum(a == b for a, b in pairs), f"{overlap:.2f}"))
    return pd.DataFrame(rows, columns=["truths", "subjects with one circuit of both", "the same", "overlap"])


def difference(found: Mapping[str, float]) -> str:
    return f"{found['difference']:+.2f} [{found['low']:+.2f}, {found['high']:+.2f}]"


def label_sides(costs: list[float], alone: str, turns: int) -> list[str]:
    """Where names stand at points in rows of equal cost, the highest first, so that they do not meet. A point that is
    ``alone`` at its cost has its name at that side, in turn to the right and to the left, from turn ``turns`` on."""
    sides = []
    for i, cost in enumerate(costs):
        first, last = costs.index(cost), len(costs) - 1 - costs[::-1].index(cost)
        if first == last:
            sides.append(f"{alone} {('right', 'left')[turns % 2]}")
            turns += 1
        else:
            sides.append("top right" if i == first else "bottom right" if i == last else "middle right")
    return sides


def picture() -> go.Figure:
    """AUROC against passes, with the controls as lines."""
    rows, truths = read_rows(RESULTS), stored_truths()
    found = scored(wide(rows, truths, "auroc")).set_index("method")
    cost, figure = passes(rows), go.Figure()
    for kind, colour in ((ESTIMATE, "#1f77b4"), (SEARCH, "#d62728")):
        own = found[[METHODS[name].kind == kind for name in found.index]]
        own = own.assign(cost=cost[own.index].round()).sort_values(["cost", "value"], ascending=[True, False])
        sides = label_sides(own["cost"].tolist(), *(("top", 1) if kind == SEARCH else ("bottom", 0)))
        errors = {"array": own["high"] - own["value"], "arrayminus": own["value"] - own["low"], "thickness": 1}
        figure.add_scatter(
            x=cost[own.index], y=own["value"], error_y=errors, mode="markers+text", text=list(own.index),
            name=TITLES[kind], textposition=sides, marker={"color": colour, "size": 9},
        )  # fmt: skip
    for name, dash in ((BOTH, "longdash"), (BLIND, "dash"), ("weights", "dot"), ("random", "dashdot")):
        figure.add_hline(
            found.loc[name, "value"],
            line={"dash": dash, "color": "grey", "width": 1.5},
            opacity=1,
            annotation_text=name,
            annotation_position="bottom right" if name in (BOTH, "weights") else "bottom left",
        )
    figure.update_xaxes(type="log", title="passes over the pairs, forward and backward", range=[0, 3.7])
    figure.update_yaxes(title="AUROC of the circuit's edges, among edges that can matter", range=[0.3, 1.03])
    return figure.update_layout(
        template="simple_white", width=1000, height=520, legend={"x": 0.55, "y": 0.05}, margin={"t": 20, "r": 10}
    )
