"""The benchmark of methods that find circuits, in full: ``python -m studies reproduce comparison:circuits``.

It takes hours on two cores. What is done is kept under OUT/comparison/circuits/, and the same command goes on. The
models that are held out are run by the same code, after all others, and ranked by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from benchmarks.circuits import METHODS, Benchmark, run_benchmark
from benchmarks.circuits.bench_runs import N_STABLE
from benchmarks.circuits.cases import KINDS, MOST_LISTED, N_METHOD, N_TRUTH, TRUTH_SEED, held_out
from benchmarks.circuits.scores import SCORES
from interp.core.results import Findings, Provenance
from interp.core.sections import Section, records
from interp.core.stats import bootstrap_interval, proportion
from interp.proofs.carry_unit_ranges import carry_unit_ranges
from interp.proofs.one_layer import one_layer_adder
from models import load
from studies.runs.study import Made, Settings, shows, study

TARGET, TITLE = "comparison:circuits", "Which method finds the circuit?"
DECIMALS = 4


@study(TARGET, TITLE)
def circuits(settings: Settings) -> Made | None:
    """Resumable; ``--minutes`` stops it."""
    folder = settings.out / "comparison" / "circuits"
    zoo = run_benchmark(folder, minutes=settings.minutes_left(), say=settings.say)
    left, names = settings.minutes_left(), list(METHODS)
    others = run_benchmark(folder, only=held_out(), methods=names, minutes=left, say=settings.say)
    if zoo is None or others is None:
        settings.say("Out of time; what is done is stored, and the same command goes on.")
        return None
    return Made(circuits_data(zoo, others), results=zoo)


def circuits_data(zoo: Benchmark, others: Benchmark) -> dict[str, Any]:
    """The data that are stored: tables by score, what is known of each subject, and three findings."""
    scores = [score for score in SCORES if zoo.rows[score].notna().any()]
    compared = zoo.compared
    truths = zoo.truths.drop(columns=["mib", "attribution_graph"], errors="ignore")
    return {
        "settings": {"n_truth": N_TRUTH, "n_method": N_METHOD, "truth_seed": TRUTH_SEED, "listed": MOST_LISTED},
        "models": int(zoo.truths["model"].nunique()),
        "subjects": len(truths),
        "scores": {score: records(zoo.table(score), DECIMALS) for score in scores},
        "cost": records(zoo.rows.groupby("method")[["forwards", "backwards"]].mean().reset_index(), DECIMALS),
        "compared": records(compared[compared["p_corrected"] < 0.05], DECIMALS),
        "comparisons": len(compared),
        "truths": records(truths.assign(minimal=truths["minimal"].map(_named)), DECIMALS),
        "neurons": records(carry_neurons(truths["model"].unique()), DECIMALS),
        "others": records(zoo.others.assign(minimal=zoo.others["minimal"].map(_named)), DECIMALS),
        "held_out": {
            "models": others.truths["model"].unique().tolist(),
            "scores": {score: records(others.table(score), DECIMALS) for score in scores},
            "agreement": {score: _agreement(zoo, others, score) for score in scores},
            "truths": records(
                others.truths[["model", "kind", "unique", "smallest"]].assign(
                    minimal=others.truths["minimal"].map(_named)
                ),
                DECIMALS,
            ),
        },
        "findings": findings_of(zoo),
    }


def carry_neurons(names: Iterable[str]) -> pd.DataFrame:
    """The neurons that are proved to be switches on a carry or a borrow, of those models whose neurons have ranges."""
    found = []
    for name in names:
        model = load(name)
        if not one_layer_adder(model, model.task):
            found.append(carry_unit_ranges(model).switches.assign(model=name))
    frame = pd.concat(found)
    return frame[["model", *frame.columns.drop("model")]]


def _named(minimal: Sequence[Sequence[str]]) -> str:
    return "; ".join(", ".join(names) for names in minimal)


def stability(data: Mapping[str, Any]) -> pd.DataFrame:
    """How often other draws, columns, seeds and ablations have the same minimal circuits, over subjects whose circuits
    are all listed: one row each. ``overlap``: the mean Jaccard index where both have one circuit."""
    truths = pd.DataFrame(data["truths"]).query("complete")[["model", "kind", "minimal"]]
    others = pd.DataFrame(data["others"]).query("complete")
    seeds = pd.DataFrame(data["held_out"]["truths"]).assign(over="seed", replacement="corrupted")
    seeds["model"] = seeds["model"].str.partition("-seed-")[0]
    both = pd.concat([others, seeds]).merge(truths, on=["model", "kind"], suffixes=("", "_known"))
    pairs = [[set(text.split(", ")) for text in row] for row in both[["minimal", "minimal_known"]].to_numpy()]
    one = [not any(";" in text for text in row) for row in both[["minimal", "minimal_known"]].to_numpy()]
    overlap = [len(a & b) / len(a | b) if single else np.nan for (a, b), single in zip(pairs, one, strict=True)]
    both = both.assign(same=both["minimal"] == both["minimal_known"], overlap=overlap)
    counted = both.groupby(["over", "replacement"], sort=False)
    return counted.agg(cases=("same", "size"), same=("same", "sum"), overlap=("overlap", "mean")).reset_index()


def _agreement(one: Benchmark, other: Benchmark, score: str) -> float:
    """Rank correlation of the methods' means on two sets of models."""
    means = pd.concat([each.by_model(score).mean() for each in (one, other)], axis=1).dropna()
    return float(spearmanr(means.iloc[:, 0], means.iloc[:, 1]).statistic)


# ---- the findings


def findings_of(found: Benchmark) -> list[dict[str, str]]:
    """Three findings, each with the number that would refute it."""
    return [_one_circuit(found), _softmax(found), _other_scores(found)]


def _one_circuit(found: Benchmark) -> dict[str, str]:
    listed = found.truths[found.truths["complete"]]
    one = proportion(listed["unique"].to_numpy(dtype=bool))
    others = found.others
    draws = others[(others["over"] == "draw") & others["complete"]].merge(
        listed[["model", "kind", "minimal"]], on=["model", "kind"], suffixes=("", "_truth")
    )
    same = proportion((draws["minimal"].map(_named) == draws["minimal_truth"].map(_named)).to_numpy())
    ablated = others[(others["over"] == "ablation") & others["complete"] & others["size"].notna()]
    shares = ", ".join(
        f"{int(rows['unique'].sum())} of {len(rows)} under {kind} ablation"
        for kind, rows in ablated.groupby("replacement", sort=False)
    )
    return {
        "claim": "With the other run's values on cut edges there is one minimal circuit, also on other draws of pairs; "
        "with constants on them there are sometimes several.",
        "number": f"{int(listed['unique'].sum())} of {len(listed)} subjects whose circuits are all listed have exactly "
        f"one minimal circuit ({one.value:.1%} [{one.low:.1%}, {one.high:.1%}]); {shares}. Other draws of "
        f"{N_STABLE // 2} pairs have the same one in {same.value:.1%} [{same.low:.1%}, {same.high:.1%}] of cases.",
        "refuted": "It would be refuted by two minimal circuits in more than one subject in ten, or by the same "
        "circuit in fewer than nine of ten other draws. These bounds were set after the first numbers were seen; "
        "before that, the second number was expected below 95%. So this finding is exploratory.",
    }


def _paired(found: Benchmark, score: str, one: str, other: str) -> tuple[str, np.ndarray]:
    wide = found.by_model(score)
    change = (wide[one] - wide[other]).dropna().to_numpy()
    low, high = bootstrap_interval(change, 0, bounds=(-1.0, 1.0))
    return f"{change.mean():+.2f} [{float(low):+.2f}, {float(high):+.2f}]", change


def _softmax(found: Benchmark) -> dict[str, str]:
    fixed, change = _paired(found, "auroc", "atp-qk", "eap")
    complete, _ = _paired(found, "auroc", "eap-ig", "eap-ig-5")
    single, _ = _paired(found, "auroc", "exact", "atp-qk")
    return {
        "claim": "In adders EAP gives large scores to the keys, which do not matter. Taking queries and keys through "
        "the softmax exactly mends that; more steps of integration do not.",
        "number": f"AUROC, AtP*'s QK fix minus EAP {fixed} over {len(change)} models; complete EAP-IG minus five steps "
        f"{complete}; exact effects of single edges minus the fix {single}.",
        "refuted": "It would be refuted by an interval of the first difference that holds zero, or by a gain of "
        "complete EAP-IG that is as large.",
    }


def _other_scores(found: Benchmark) -> dict[str, str]:
    means = {score: found.by_model(score).mean() for score in ("auroc", "cmd", "cpr", "regret")}
    table = pd.DataFrame(means).dropna()
    ranks = {score: float(spearmanr(table["auroc"], table[score]).statistic) for score in ("cmd", "cpr", "regret")}
    exact = found.rows[(found.rows["method"] == "exact") & found.rows["regret"].notna()]
    hit = proportion((exact["regret"] <= 0).to_numpy())
    return {
        "claim": "Of two scores of the MIB benchmark, CPR orders the methods otherwise than the circuit does, and CMD "
        "nearly as it does. A sweep over single edges is nearly as good as a search.",
        "number": f"Over {len(table)} methods, the rank correlation of the mean AUROC is {-ranks['cmd']:.2f} with CMD "
        f"(sign turned), {ranks['cpr']:.2f} with CPR and {-ranks['regret']:.2f} with the regret (sign turned). Exact "
        f"effects of single edges lead to the smallest circuit in {hit.value:.1%} [{hit.low:.1%}, {hit.high:.1%}] of "
        "cases.",
        "refuted": "It would be refuted by a correlation above 0.7 with CPR or below 0.5 with CMD, and by exact "
        "effects that lead to the smallest circuit in fewer than 80% of cases. These bounds were set after the first "
        "numbers were seen; before that, CPR was expected above 0.5. So this finding is exploratory.",
    }


# ---- the page

CARD = {
    "models": "All of the zoo that are right on every input, proved (certified in interval arithmetic, with rounding "
    "where the zoo says so) or counted one by one (exhaustive), and have a residual stream that adds up and pairs of "
    f"one of the kinds {', '.join(KINDS)}.",
    "held out": "Trained from other seeds and proved, and first run after methods and scores were fixed, except that "
    "greedy pruning by optimal ablation was cut to made carries shortly before, to save time.",
    "proved": "The answers; and, of one-layer adders and subtractors, which neurons are switches on a carry or borrow, "
    "over all inputs with the right digits written before the query (interp.carry_unit_ranges).",
    "exact on the pairs drawn": "Which circuits are faithful, and so the minimal ones, where all are listed "
    '("complete"); elsewhere only circuits up to a size are.',
    "sampled": f"The pairs, {N_TRUTH} for the truth, half of them listed on and half for stability, and {N_METHOD} "
    "others for a method. Seeds of one recipe and rungs of one ladder are related, and intervals that resample models "
    "do not know that.",
    "not in it": "Models of language, circuits of neurons, tasks of several steps.",
    "licence": "MIT",
}


@shows(TARGET)
def show_circuits(data: Mapping[str, Any], results: Benchmark | None = None) -> list[Section]:
    """The findings, the ranking, what is known of the subjects, the held-out models, and the data card."""
    findings = [Section(row["claim"], f"{row['number']} {row['refuted']}", level=3) for row in data["findings"]]
    what = pd.DataFrame([(name, each.what) for name, each in METHODS.items()], columns=["method", "what it does"])
    auroc = pd.DataFrame(data["scores"]["auroc"])
    n = int(auroc["models"].max())
    first = Findings(
        f"AUROC of the only minimal circuit's edges, {n} models that have one",
        auroc[["method", "value", "low", "high"]],
        Provenance(n, TRUTH_SEED, "proved models with one minimal circuit"),
    )
    held = data["held_out"]
    agreement = ", ".join(f"{score} {value:.2f}" for score, value in held["agreement"].items())
    truths = pd.DataFrame(data["truths"])
    columns = ["model", "kind", "live_edges", "complete", "n_minimal", "smallest", "stable_resampled", "minimal"]
    others = pd.DataFrame(data["others"])
    by_kind = others.groupby(["over", "replacement", "which"], sort=False).agg(
        subjects=("model", "size"), complete=("complete", "sum"), unique=("unique", "sum"), edges=("size", "mean")
    )
    kinds = ", ".join(f"{count} {kind}" for kind, count in truths["kind"].value_counts(sort=False).items())
    about = f"{data['models']} models, {data['subjects']} subjects ({kinds}). {data['comparisons']} comparisons "
    about += f"were made, and {len(data['compared'])} differ after Holm's correction."
    agree = f"{', '.join(held['models'])}. Rank correlation of the methods' means with those on the zoo: {agreement}."
    return [
        Section("What was found", "", figures=[first.figure()]),
        *findings,
        Section("The ranking", f"{about} Intervals resample models.", (ranking(data["scores"]), what)),
        Section("Models that were held out", agree, (ranking(held["scores"]),)),
        Section("The circuits", "One row per subject.", (truths[columns],)),
        Section(
            "Neurons that are switches on a carry",
            "Proved over all inputs: what a neuron reads lies in one range without the carry and in another with it.",
            (pd.DataFrame(data["neurons"]),),
        ),
        Section(
            "Other draws, columns, seeds and ablations",
            "How often the minimal circuits are the same, with their overlap (Jaccard), and how large they are.",
            (stability(data).round(2), by_kind.round(2).reset_index()),
        ),
        Section("Data card", "", (pd.DataFrame(list(CARD.items()), columns=["of", "what is known"]),)),
    ]


def ranking(scores: Mapping[str, Sequence[Mapping[str, Any]]]) -> pd.DataFrame:
    """One row per method, in the order of the first score: value, interval and place for each score."""
    columns: dict[str, dict[str, str]] = {}
    for score, rows in scores.items():
        columns[score] = {
            row["method"]: f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}] ({row['place']})" for row in rows
        }
    order = [row["method"] for row in next(iter(scores.values()))]
    more = [name for cells in columns.values() for name in cells if name not in order]
    table = pd.DataFrame(columns).reindex([*order, *dict.fromkeys(more)])
    return table.fillna("").rename_axis("method").reset_index()
