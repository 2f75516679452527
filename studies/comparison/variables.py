"""Where methods say that the addition algorithm's variables live: ``python -m studies reproduce comparison:variables``.

Minutes a model on two cores. What is done is kept under OUT/comparison/variables/, one file per model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from benchmarks.circuits.dictionary import ACTIVE
from benchmarks.circuits.variable_methods import (
    N_CHOSEN,
    N_JUDGED,
    N_TRAIN,
    STEPS_OF_SAE,
    VARIABLE_METHODS,
    run_variables,
)
from interp.core.results import Provenance
from interp.core.sections import Section, records
from interp.core.stats import bootstrap_interval
from interp.core.table_result import Measure, TableResult
from studies.runs.study import Made, Settings, shows, study

#: Proved adders of ten digits: trained ones of 10 to 491 numbers, and two that were built by hand.
MODELS = (
    "microadder-10", "microadder-18", "microadder-22", "microadder-36", "microadder-53", "microadder-57",
    "microadder-67", "microadder-74", "microadder-78", "adder-456", "adder-491",
    "microadder-133", "adder-3-by-hand", "adder-4-by-hand",
)  # fmt: skip
#: Proved adders whose stream is 128 wide, on which sparse autoencoders are trained as well.
WIDE = ("toygpt-long", "position-coupling-1l4h-ids40-window-2x2-steps10000-small")
TARGET, TITLE = "comparison:variables", "Which method finds where a variable lives?"
DECIMALS = 4
CARD = {
    "models": f"Proved adders of ten digits with 10 to 491 numbers. {len(WIDE)} others have a residual stream of 128 "
    "numbers, are right on all of their problems, and are listed by themselves, without intervals.",
    "sampled": f"A method sees {N_TRAIN} problems, or as many pairs, and chooses a place on {N_CHOSEN} other pairs. "
    f"{N_JUDGED} pairs that are drawn by themselves judge it; of the 10,000 problems of two digits some are in both.",
    "sparse autoencoders": f"By eai-sparsify 1.3.3, four latents a number, {ACTIVE} on at a time, trained for "
    f"{STEPS_OF_SAE} steps on the problems that a method sees, at the position of the variable. Which latents are "
    "taken is decided there, by their correlation with the variable.",
    "SAELens": "Not used: version 6.54.12 needs a TransformerLens below 4, and 6.51.1, which pip installs beside "
    "TransformerLens 4.3, cannot be imported there (it asks for transformer_lens.HookedTransformer).",
    "control": "A random direction; for sparse autoencoders also one that is not trained.",
}


@study(TARGET, TITLE)
def variables(settings: Settings) -> Made | None:
    """Resumable; ``--minutes`` stops it between models."""
    folder = settings.out / "comparison" / "variables"
    for name in (*MODELS, *WIDE):
        left = settings.minutes_left()
        if left is not None and not left:
            settings.say("Out of time; what is done is stored, and the same command goes on.")
            return None
        run_variables(folder, [name], say=settings.say)
    return Made(variables_data(*(run_variables(folder, list(names)) for names in (MODELS, WIDE))))


def variables_data(rows: pd.DataFrame, wide_rows: pd.DataFrame) -> dict[str, Any]:
    """Tables by variable and method, every row, and a finding; the rows of wide models by themselves."""
    summary = []
    for (variable, method), these in rows.groupby(["variable", "method"], sort=False):
        row: dict[str, Any] = {"variable": variable, "method": method, "models": len(these)}
        for score in ("accuracy", "regret"):
            low, high = bootstrap_interval(these[score].to_numpy(), 0, bounds=(0.0, 1.0))
            row |= {score: these[score].mean(), f"{score} low": float(low), f"{score} high": float(high)}
        summary.append(row)
    wide = rows.pivot_table("accuracy", ["model", "variable"], "method")
    change = (wide["means"] - wide["linear probe"]).groupby("model").mean().to_numpy()
    low, high = bootstrap_interval(change, 0, bounds=(-1.0, 1.0))
    total = rows[(rows["variable"] == "total") & (rows["method"] == "das")]["accuracy"]
    return {
        "settings": {"n_train": N_TRAIN, "n_judged": N_JUDGED},
        "models": int(rows["model"].nunique()),
        "summary": records(pd.DataFrame(summary), DECIMALS),
        "rows": records(rows, DECIMALS),
        "wide": records(wide_rows, DECIMALS),
        "finding": {
            "claim": "The direction that a linear probe reads a variable from changes fewer answers than the "
            "difference of the variable's means."
            if low > 0
            else "Whether the direction that a linear probe reads a variable from changes fewer answers than the "
            "difference of the variable's means is open.",
            "number": f"Interchange accuracy, means minus the linear probe's direction, each at the place where it "
            f"works best: {change.mean():+.2f} [{float(low):+.2f}, {float(high):+.2f}] over {len(change)} models and "
            f"three variables. One direction found by alignment carries the column's total (digits and carry) in at "
            f"least 90% of pairs in {int((total >= 0.9).sum())} of {len(total)} models.",
            "refuted": "That it moves it less is claimed only if the interval of the difference lies above zero. This "
            "was set after the first four models were seen; the first seven left it open, and then the others were "
            "run. Later the places of all methods came to be chosen by one criterion. So it is exploratory.",
        },
    }


@shows(TARGET)
def show_variables(data: Mapping[str, Any]) -> list[Section]:
    """The finding, the ranking by variable, and every row."""
    finding, summary = data["finding"], pd.DataFrame(data["summary"])
    what = pd.DataFrame(
        [(name, each.what) for name, each in VARIABLE_METHODS.items()], columns=["method", "what it does"]
    )
    sections = [Section(finding["claim"], f"{finding['number']} {finding['refuted']}"), Section("Methods", "", (what,))]
    for variable, own in summary.groupby("variable", sort=False):
        shown = own[["method", "accuracy", "accuracy low", "accuracy high"]].sort_values("accuracy", ascending=False)
        figure = TableResult(
            f"Interchange accuracy of {str(variable).replace('_', ' ')} at the place named",
            shown.set_axis(["method", "accuracy", "accuracy_low", "accuracy_high"], axis=1),
            Provenance(int(own["models"].max()), None, "proved adders"),
            ("method",),
            (Measure("accuracy", "share"),),
        ).figure()
        text = "Interchange accuracy where the method says it lives, with intervals that resample models, and regret."
        sections.append(Section(str(variable).replace("_", " "), text, (own.drop(columns="variable"),), [figure]))
    wide = pd.DataFrame(data["wide"])
    table = wide.pivot_table("accuracy", ["model", "method"], "variable", sort=False).round(2).reset_index()
    about = "Interchange accuracy where the method says it lives. Of the methods, whole takes everything that a place "
    about += "holds, sae-8 eight directions, and all others one."
    sections.append(Section("Models that are wide enough for a sparse autoencoder", about, (table,)))
    card = pd.DataFrame(list(CARD.items()), columns=["of", "what is known"])
    rows = (pd.DataFrame(data["rows"]), wide)
    return [*sections, Section("Every model", "", rows), Section("Data card", "", (card,))]
