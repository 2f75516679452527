"""What the experiments found, made again from the numbers that are kept: tables and figures, no model and no training.

    stored_experiments()                     {"microadder:ladder": path of its JSON, ...}
    stored_sections("microadder:ladder")     its tables and figures

The JSON of an experiment's page is enough for its tables; where a result can be read back, its figures come too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from interp.core.stored_data import DATA
from interp.site.pages import Section
from models.checkpoint import read_json
from models.errors import unknown_name

FOLDER = DATA
Sections = list[Section]

#: Numbers of experiments that are kept under other names.
_ELSEWHERE = {"position-coupling:hand-built": "hand_built_grid.json"}
_PAPERS = ("microadder", "adder-456", "position-coupling", "toygpt", "addlm", "comparison")


def stored_experiments() -> dict[str, Path]:
    """The files of kept numbers by target ("paper:what"), paper by paper."""
    found = {target: FOLDER / name for target, name in _ELSEWHERE.items()}
    for folder in ("experiments", "reproduced"):
        for path in sorted((FOLDER / folder).glob("*.json")):
            paper = next((paper for paper in _PAPERS if path.stem.startswith(f"{paper}-")), None)
            if paper is not None:
                found[f"{paper}:{path.stem.removeprefix(f'{paper}-')}"] = path
    return dict(sorted(found.items(), key=lambda item: _PAPERS.index(item[0].partition(":")[0])))


def command_of(target: str) -> str:
    """What makes the numbers of a target anew."""
    paper, _, what = target.partition(":")
    if target == "position-coupling:hand-built":
        return "python -m interp.papers.position_coupling.hand_built_grid"
    if target == "addlm:runs":
        return "interp reproduce addlm:ablation --seeds 2"
    if paper == "position-coupling":
        return f"interp reproduce {paper}:{what.removesuffix('-small')} --size small"
    return f"interp reproduce {target}"


def stored_sections(target: str) -> Sections:
    """The sections of a target, all of level 3.

    Raises:
        UserError: nothing is kept under this name, with the closest match.
    """
    known = stored_experiments()
    if target not in known:
        raise unknown_name("stored experiment", target, known)
    data = read_json(known[target])
    return _READERS.get(target, _reader_by_form(data))(data)


def _reader_by_form(data: Mapping[str, Any]) -> Callable[[Any], Sections]:
    if data.get("kind") == "exact-match-panels":
        return _panels
    if "sweeps" in data:
        return _sweeps
    if {"facts", "sentences"} <= set(data):
        return _causal
    return _tables


# ---- by experiment


def _panels(data: Any) -> Sections:
    from interp.probes.heatmaps.panels import GridPanels

    result = GridPanels.from_dict(data)
    rows = [
        (panel.label, panel.grids[0].model, panel.seeds_text, sum(grid.provenance.n for grid in panel.grids), *means)
        for panel, means in zip(result.panels, result.means(), strict=True)
    ]
    columns = ["panel", "model", "seeds", "problems", "in the training range", "outside"]
    table = pd.DataFrame(rows, columns=columns)
    return [Section(result.title, "", (table,), (result.figure(),), level=3)]


def _sweeps(data: Any) -> Sections:
    from interp.figures.seed_sweeps import seeds_by_variant
    from interp.probes.seed_sweeps import SeedSweep, SweepComparison, table

    sweeps = [SeedSweep.from_dict(one) for one in data["sweeps"]]
    grokked = [sweep for sweep in sweeps if sweep.grokked]
    title = f"{len(grokked)} of {len(sweeps)} variants have a seed that answers the whole test set"
    sections = [Section("Every variant", "", (table(sweeps),), (seeds_by_variant(sweeps, title),), level=3)]
    if data.get("comparisons"):
        note = "Two-sided tests over the seeds of finished runs; no correction for the number of comparisons."
        rows = [SweepComparison(**one).row() for one in data["comparisons"]]
        sections.append(Section("Comparisons", note, (pd.DataFrame(rows),), level=3))
    rest = {key: data[key] for key in ("steps", "scores", "stress") if key in data}
    return sections + _tables(rest)


def _causal(data: Any) -> Sections:
    facts = pd.DataFrame(data["facts"])
    facts["value"] = [_fact(row) for row in facts.to_dict("records")]
    if facts.seed.nunique() == 1:
        facts = facts.drop(columns="seed")
    shown = facts.drop(columns=["low", "high", "count"])
    text = "\n\n".join(data["sentences"].values())
    head = f"Asked of {data['model']}. All are sampled; intervals are at 95%, over problems."
    return [
        Section("In numbers", head, (shown,), level=3),
        Section("In sentences", text, level=3),
        *_tables(data["tables"]),
    ]


def _fact(row: Mapping[str, Any]) -> str:
    value, low, high = row["value"], row["low"], row["high"]
    if low is None or low != low:
        return f"{value:,.0f}" if row["count"] else f"{value:.3f}"
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def _two_digit_table(data: Any) -> Sections:
    from interp.papers.toygpt.studies import comparison_of

    result = comparison_of(data)
    figures = (result.seeds_figure(), result.figure(), result.loss_figure())
    tables = [result.table()] + ([result.table(result.last_step)] if result.last_step > 1_000 else [])
    text = (
        f"{result.sentence()}\n\nWhole sums right under greedy decoding, in percent: 500 held-out pairs and the 9,500 "
        "training pairs, all of them. Mean over seeds with Student's t interval."
    )
    return [Section(result.what, text, tuple(tables), figures, level=3)]


def _attention_maps(data: Any) -> Sections:
    keys = pd.DataFrame({"layer": range(len(data["keys"])), "keys attended to": data["keys"]})
    overlaps = pd.DataFrame({"heads of": list(data["overlaps"]), "mean overlap": list(data["overlaps"].values())})
    text = (
        "Keys attended to: exp(entropy), over heads, queries and all 10,000 sums. Overlap of two heads: 1 minus the "
        "total variation distance of their patterns. The maps are on the page that the command writes."
    )
    return [Section(f"Attention of {data['model']}", text, (keys, overlaps), level=3)]


def _carry(data: Any) -> Sections:
    text = "\n\n".join(data["sentences"])
    tables = {key: data[key] for key in ("by_units_sum", "path", "probes")}
    return [Section(f"The carry in {data['model']}", text, level=3), *_tables(tables)]


def _text_runs(data: Any) -> Sections:
    from interp.core.results import Provenance
    from interp.papers.addlm.figures.loss import loss_curves
    from interp.papers.addlm.runs import LossRow, run_table, summary

    rows = [LossRow(**row | {"steps": tuple(row["steps"]), "losses": tuple(row["losses"])}) for row in data["rows"]]
    reference = "addlm-0.8m-float"
    whole = [row for row in rows if row.trained == row.budget]
    best = {model: min(row.best for row in whole if row.model == model) for model in (reference, "addlm-0.8m")}
    title = f"Ternary weights and L1 scores cost {best['addlm-0.8m'] - best[reference]:.3f} nats a character"
    provenance = Provenance(111_488, None, "characters of the validation part, lowest loss of any seed and step")
    return [
        Section("Every finished run", "", (summary(whole, reference),), (loss_curves(whole, title, provenance),), 3),
        Section("Run by run", "", (run_table(rows),), level=3),
    ]


def _addlm_adder(data: Any) -> Sections:
    from interp.papers.addlm.adder import COUNTED, accuracy_table, multiplication_table

    return [
        Section("Exact match", "", (accuracy_table(data["rows"]),), level=3),
        Section("Multiplications", COUNTED, (multiplication_table(),), level=3),
    ]


def _addlm_inside(data: Any) -> Sections:
    tables = {key: data[key] for key in ("packing", "circuits", "scores", "patching", "composition", "training")}
    heads = {f"heads of {name}": table for name, table in data["heads"].items()}
    text = "\n\n".join(data["sentences"])
    return [Section("In sentences", text, level=3), *_tables(tables | heads)]


def _hand_built(data: Any) -> Sections:
    from interp.figures.hand_built import certified_margins
    from interp.papers.position_coupling.hand_built_grid import load_grid
    from interp.papers.position_coupling.hand_built_large import load_large
    from interp.proofs.coupled_grid import load_certified_grids

    grids = load_certified_grids()
    large = pd.DataFrame([vars(size) for size in load_large()])
    sentences = [grid.sentence() for grid in grids.values()] + [load_grid().sentence()]
    return [
        Section("The proof, shape by shape", "\n\n".join(sentences), (), (certified_margins(grids["rounded"]),), 3),
        Section("Far larger problems", "Run, not proved: three problems a size.", (large,), level=3),
    ]


def _matrix(data: Any) -> Sections:
    from interp.compare.sections import table_sections
    from interp.compare.table import ModelTable

    return [replace(section, level=3) for section in table_sections(ModelTable.from_dict(data))]


def _seeds(data: Any) -> Sections:
    from interp.papers.studies.comparison_seeds import Measured, sections_of

    results = [Measured.from_dict(name, family) for name, family in data["families"].items()]
    return [replace(section, level=3) for section in sections_of(results)]


def _swaps(data: Any) -> Sections:
    text = (
        "Share of problems with every answer token right, when a part of the model is replaced by another model's on "
        "the same problem, mapped by a linear fit on other problems; to the loss: with a map fitted to the model's own "
        "loss there."
    )
    pairs = [
        Section(
            f"{pair['a']} with parts of {pair['b']}", pair["sentence"], (pd.DataFrame(pair["components"]),), level=3
        )
        for pair in data["pairs"]
    ]
    return [Section("All pairs", text, (pd.DataFrame(data["overview"]),), level=3), *pairs]


_READERS: dict[str, Callable[[Any], Sections]] = {
    "toygpt:table-positions": _two_digit_table,
    "toygpt:table-layernorm": _two_digit_table,
    "toygpt:fig3": _attention_maps,
    "toygpt:carry": _carry,
    "addlm:runs": _text_runs,
    "addlm:adder": _addlm_adder,
    "addlm:inside": _addlm_inside,
    "position-coupling:hand-built": _hand_built,
    "comparison:models": _matrix,
    "comparison:seeds": _seeds,
    "comparison:swaps": _swaps,
}


# ---- whatever else has the form of tables


def _tables(data: Mapping[str, Any]) -> Sections:
    """A section for every part of ``data`` that is a table: rows as mappings, or columns and rows."""
    sections = []
    for name, value in data.items():
        table = _as_table(value)
        if table is not None and len(table):
            sections.append(Section(name[:1].upper() + name[1:].replace("_", " "), "", (table,), level=3))
    return sections


def _as_table(value: Any) -> pd.DataFrame | None:
    if isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
        return pd.DataFrame(value)
    if isinstance(value, Mapping) and {"columns", "rows"} <= set(value):
        return pd.DataFrame(value["rows"], columns=value["columns"])
    return None
