"""Write docs/circuit_benchmark.md, its picture and the README's section: ``python -m benchmarks.circuits.page``.

All of it comes from the stored truths and rows. Before there are rows, the page has what was stated in advance alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

import pandas as pd

from benchmarks.circuits.bench_runs import RESULTS, read_rows, rows_of_list
from benchmarks.circuits.circuit_methods import CONTROL, ESTIMATE, METHODS
from benchmarks.circuits.result_tables import (
    TITLES,
    agreement_of_truths,
    difference,
    interval,
    markdown,
    number,
    of_subjects,
    picture,
    ranking,
)
from benchmarks.circuits.statistics import (
    BLIND,
    CLAIMS,
    PLANNED,
    between_families,
    compared,
    family_mean,
    halves,
    planned,
    rank_correlation,
    scored,
    wide,
)
from benchmarks.circuits.subjects import FAMILIES, N_METHOD, N_TRUTH, TRUTH, stored_truths
from benchmarks.circuits.truth import CORRUPTED, MEAN, THRESHOLD, ZERO

DOCS = Path(__file__).parents[2] / "docs"
PAGE, PICTURE = DOCS / "circuit_benchmark.md", DOCS / "circuit-benchmark.svg"
README, SECTION = DOCS.parent / "README.md", "## Which method finds the circuit?"
FRESH = TRUTH.with_name("fresh.json")

ABOUT = f"""# Which method finds the circuit?

A method gets a model and {N_METHOD} pairs of problems, and gives every edge of the residual stream a score. It is
judged on other pairs of models whose circuits are all known. `python -m benchmarks.circuits` runs a quarter of the
subjects, [add a method](add_a_method.md) says how yours gets in, and `python -m benchmarks.circuits.page` writes this
page.

Three kinds of truth are never mixed in one column:

* **minimal**: every different circuit is run on {N_TRUTH} pairs. One is faithful if it keeps {THRESHOLD:.0%} of the
  logit difference and of the right answers, and minimal if no faithful one is a part of it. Cut edges carry the other
  problem (corrupted), the sender's mean, zero, or constants that are fitted to the circuit (optimal), a column each.
  An edge is inside if it is in every minimal circuit and outside if it is in none; others are not judged.
* **certified**: the same for circuits that are right on *every* input, proved or run on all, with what one fixed
  problem writes on cut edges. It does not depend on pairs.
* **planted**: models that were built around a circuit: two redundant heads, a backup head, two that cancel, one that
  suppresses another, one that carries what differs and is read by nobody, and five more
  (`benchmarks/circuits/planted.py`).

Only edges that can matter are counted: those that carry different values in the two runs at a place that is read. A
score is the mean over families of the mean over a family's subjects. Intervals (95%) draw families, and then subjects
within each.
"""

COUNTED = """How many subjects have exactly one minimal circuit, of those whose circuits were all looked at, under each
ablation and of circuits that are right on every input."""

CARD = {
    "Edges that cannot matter were counted, as free negatives": (
        "Edges are live by position and by value; others are in no score."
    ),
    "A rule that never sees the model beat half of the methods": (
        "The rule is a row, with one family left out, and every method is compared with it. So is a rule that sees "
        "only weights."
    ),
    "20 of 31 models were one family, resampled as if independent": (
        "Eight families, none with more than a fifth of the subjects; intervals draw families first."
    ),
    "No circuit had a query or key edge; all models had one layer": (
        "Modular arithmetic, induction, order and comparison have them; some models of four families have two layers."
    ),
    "Methods that maximise the score that defines the truth stood among the others": (
        "They stand apart, with their passes."
    ),
    "The only minimal circuit is a fact about one ablation": (
        "Four ablations have a column each; certified and planted circuits are truths of their own."
    ),
    "What the subjects are": (
        "Trained models that are proved or right on every problem of their task, all of which were run, and planted "
        "ones. Each has a hash of its weights and of its pairs in `truth.json`."
    ),
    "What is sampled": (
        f"The pairs: {N_TRUTH} that judge, and {N_METHOD} others for a method. Tasks with few problems share some "
        "between the two."
    ),
    "What is not in it": (
        "Models of language, circuits of neurons, edges by position; public two-layer adders, whose weights are not in "
        "this repository; greedy pruning by optimal ablation, which the earlier version had. Graphs with more than "
        "twenty live edges have a bound on the smallest circuit and no AUROC of it. Circuits "
        "that are right on every input are known of tasks with few problems and of one ten-digit adder: elsewhere each "
        "needs a proof. The planted models were built by "
        "those who wrote the methods' code."
    ),
    "Licence": "MIT",
}


FIRST_RUN = """They have been seen once: the first run had 75 subjects in eight families, of which 56 tell edges apart.
It decided no comparison, as with eight families the least p of any difference is 2 / 2^8. (In it one thing was changed
after a first look: of five two-layer models only twelve minimal circuits each had been kept, and then all were listed.)
Rank correlation of claim 3: 0.85 [0.63, 0.94]. None of the claims was refuted.

| one | other | difference in the first run | p | p, corrected |
| --- | --- | --- | --- | --- |
| eap | blind prior | +0.08 [-0.01, +0.18] | 0.156 | 0.312 |
| eap-ig-5 | blind prior | +0.13 [+0.04, +0.24] | 0.039 | 0.156 |
| gim | blind prior | +0.13 [+0.03, +0.24] | 0.047 | 0.156 |
| atp-qk | eap | +0.07 [+0.02, +0.14] | 0.031 | 0.156 |
| eap-ig | eap-ig-5 | +0.00 [+0.00, +0.01] | 0.25 | 0.312 |"""

RULES = """So thirteen families were added. These rules were committed before a model of them was trained:

* The new families are lookup, matching, products, division, digitwise, counting, gates, one number, where, tables,
  groups, number line and formulas, with three kinds of models each (`benchmarks/circuits/recipes.py`): 39 subjects
  besides the 75, so that no family has more than a fifth. A kind is left out only if none of four seeds answers every
  problem of its task, and is named here. No subject is left out once a method has run.
* The test: the same three claims and five comparisons, by the same scores, **on the new families alone**. A comparison
  is decided if its p, corrected for five, is below 0.05. In claim 3, "trained" are the models of the new families.
* What all families give together is shown beside it. That is no test, as eight of them had been seen.
* The blind prior of a subject comes from all other families, old and new, also in the old ones."""


def stated() -> str:
    """What was said before the run."""
    claims = [f"{i}. {each.claim} It is refuted if {each.refuted}." for i, each in enumerate(CLAIMS, 1)]
    asked = [f"* {one} and {other}: {question}" for one, other, question in PLANNED]
    return "\n".join(
        [
            "## Stated before the run",
            "",
            "The claims and comparisons were committed before the first run, and are:",
            "",
            *claims,
            "",
            "The comparisons, in AUROC of minimal circuits under corrupted ablation, corrected for their",
            "number (Holm):",
            "",
            *asked,
            "",
            FIRST_RUN,
            "",
            RULES,
            "",
        ]
    )


def verdicts(rows: pd.DataFrame, truths: Mapping[str, Any]) -> list[str]:
    """What came of the three claims."""
    table = wide(rows, truths, "auroc")
    against, fixed = compared(table, "eap", BLIND), compared(table, "atp-qk", "eap")
    ranks = rank_correlation(*halves(rows, truths))
    held = [against["low"] <= 0, fixed["low"] > 0, ranks["value"] >= 0.5 and ranks["low"] > 0]
    numbers = [
        f"EAP minus the blind prior {difference(against)}",
        f"atp-qk minus EAP {difference(fixed)}",
        f"rank correlation {interval(pd.Series(ranks))} over {ranks['methods']} methods",
    ]
    return [
        f"{i}. {claim.claim} **{'Not refuted' if stands else 'Refuted'}**: {number}."
        for i, (claim, stands, number) in enumerate(zip(CLAIMS, held, numbers, strict=True), 1)
    ]


def results() -> str:
    """All that is known after the run."""
    rows, truths = read_rows(RESULTS), stored_truths()
    table = wide(rows, truths, "auroc")
    tests = planned(table)
    tests = pd.DataFrame(
        {
            "one": tests["one"],
            "other": tests["other"],
            "difference": [f"{row.difference:+.2f} [{row.low:+.2f}, {row.high:+.2f}]" for row in tests.itertuples()],
            "p": tests["p"].round(3),
            "p, corrected": tests["p_corrected"].round(3),
            "subjects": tests["subjects"],
            "families": tests["families"],
        }
    )
    prior = {
        row.method: compared(table, row.method, BLIND)["low"] > 0
        for row in scored(table).itertuples()
        if row.method != BLIND
    }
    beaten = [name for name, above in prior.items() if above]
    not_beaten = [name for name, above in prior.items() if not above]
    parts = ["## What came of it", "", *verdicts(rows, truths), "", markdown(tests), ""]
    parts += [
        f"Above the blind prior, by the interval of the difference: {', '.join(beaten) or 'none'}. Not above it: "
        f"{', '.join(not_beaten) or 'none'}.",
        "",
        f"After the correction, {int((tests['p, corrected'] < 0.05).sum())} of the {len(tests)} stated comparisons have"
        " p < 0.05: with eight families the least p of any difference is 2 / 2^8.",
        "",
        f"![AUROC of each method against its passes, with the blind prior as a line]({PICTURE.name})",
        "",
        "## The ranking",
        "",
        "The first six columns are AUROCs, by kind of truth; the others are under corrupted ablation. Precision is at",
        "the circuit's size, heads is the share of the circuit's heads among as many that score highest, regret is in",
        "edges, and passes are forward and backward ones over all pairs. A method that was not run on all of a",
        "column's subjects says on how many. Zero ablation makes edges from the positions matter, so that only in "
        f"{_families(rows, truths, ZERO)}",
        "all circuits are known; the blind prior has no other family to learn from there.",
        "",
    ]
    for kind, title in TITLES.items():
        parts += [f"### {title}", "", markdown(ranking(rows, truths, kind)), ""]
    left = [f"{name} ({_left(each)})" for name, each in METHODS.items() if _left(each)]
    parts += [f"Left out where it says so: {'; '.join(left)}. A dash: no value there.", ""]
    parts += [*_exploratory(rows, truths), *_predicts(rows, truths)]
    parts += [
        "## The subjects",
        "",
        COUNTED,
        "",
        markdown(of_subjects(truths)),
        "",
        *_stable(truths),
        "",
        markdown(agreement_of_truths(truths)),
        "",
    ]
    return "\n".join(parts)


def _exploratory(rows: pd.DataFrame, truths: Mapping[str, Any]) -> list[str]:
    """What was not asked for in advance."""
    table = wide(rows, truths, "auroc")
    weights, families = compared(table, "eap", "weights"), table["eap"].groupby(level="family").mean().sort_values()
    known = [entry["ablations"][CORRUPTED] for entry in truths.values() if entry["ablations"][CORRUPTED]["complete"]]
    one = sum(each["n_minimal"] == 1 for each in known)
    few = [each["n_minimal"] == 1 for each in known if len(each["live_edges"]) <= 9]
    small = f"{sum(few)} of {len(few)}"
    most = max(known, key=lambda each: each["n_minimal"])
    heads = family_mean(wide(rows, truths, "heads"))
    sure = [name for name, each in METHODS.items() if each.kind == ESTIMATE and heads[name] > 0.985]
    return [
        "## Exploratory",
        "",
        f"* The weights alone do as well as EAP: EAP minus weights {difference(weights)}.",
        f"* EAP is worst in {families.index[0]} ({families.iloc[0]:.2f}); in the other families it has "
        f"{families.iloc[1]:.2f} to {families.iloc[-1]:.2f}.",
        f"* One minimal circuit is no rule: {one} of {len(known)} subjects have one ({small} with at most nine "
        f"edges that can matter), and one has {most['n_minimal']}.",
        f"* Which head belongs to the circuit is too easy a question here: {', '.join(sure)} are at 0.99 or 1.00.",
        "",
    ]


def _families(rows: pd.DataFrame, truths: Mapping[str, Any], ablation: str) -> str:
    table = wide(rows, truths, "auroc", ablation)
    return " and ".join(dict.fromkeys(table.index.get_level_values("family")))


def _left(each: Any) -> str:
    said = [f"at most {each.most_edges} live edges"] if each.most_edges else []
    return " and ".join(said + ([f"{', '.join(each.ablations)} ablation alone"] if len(each.ablations) < 3 else []))


def _stable(truths: Mapping[str, Any]) -> list[str]:
    said = []
    for ablation in (CORRUPTED, MEAN):
        again = [
            known["same_on_other_pairs"]
            for entry in truths.values()
            if "same_on_other_pairs" in (known := entry["ablations"].get(ablation, {}))
        ]
        said.append(f"{sum(again)} of {len(again)} under {ablation} ablation")
    return [f"Another draw of pairs has the same minimal circuits in {' and '.join(said)}."]


def _predicts(rows: pd.DataFrame, truths: Mapping[str, Any]) -> list[str]:
    """Rank correlations between halves and families, and the fresh subjects."""
    found = {"trained and planted": rank_correlation(*halves(rows, truths))}
    parts = ["## Does a ranking predict another?", ""]
    if FRESH.is_file():
        fresh = json.loads(FRESH.read_text(encoding="utf-8"))
        own, judged = rows_of_list(fresh["rows"]), fresh["truths"]
        one, other = (wide(each, known, "auroc") for each, known in ((rows, truths), (own, judged)))
        found["stored and fresh"] = rank_correlation(one, other)
        both = pd.DataFrame(
            {
                "stored": family_mean(one),
                "fresh": family_mean(other),
                "planted": family_mean(wide(rows, truths, "planted", "")),
                "fresh planted": family_mean(wide(own, judged, "planted", "")),
            }
        )
        both = both.sort_values("stored", ascending=False)
        parts += [
            f"The second half is made on demand: {len(judged)} subjects of seed {fresh['seed']}, planted and trained,",
            "and judged on the fly. `python -m benchmarks.circuits --fresh SEED` makes others.",
            "",
            markdown(both.map(number).rename_axis("method").reset_index()),
            "",
        ]
    between = between_families(wide(rows, truths, "auroc"))
    parts += ["Rank correlation (Spearman) of the methods' mean AUROC, controls left out:", ""]
    parts += [f"* {name}: {each['value']:.2f} [{each['low']:.2f}, {each['high']:.2f}]" for name, each in found.items()]
    low, middle, high = between.quantile([0, 0.5, 1])
    parts += [
        f"* between two families: {middle:.2f} in the median of {len(between)} pairs, from {low:.2f} to {high:.2f}",
        "",
    ]
    return parts


def readme_section() -> str:
    """The README's section: the claims that were stated before the run, what came of them, and a picture."""
    rows, truths = read_rows(RESULTS), stored_truths()
    found = scored(wide(rows, truths, "auroc"))
    n = int(found["subjects"].max())
    best = found[[METHODS[name].kind == ESTIMATE for name in found["method"]]].sort_values("value").iloc[-1]
    control = {row.method: interval(row) for row in found.itertuples() if METHODS[row.method].kind == CONTROL}
    run = sum(entry["ablations"][CORRUPTED]["complete"] for entry in truths.values())
    said = (
        f"A benchmark on {len(truths)} models of {len(FAMILIES)} families, trained and proved (or run on every "
        f"input) or built around a circuit, {run} of them so small that all their circuits were run. "
        f"On the {n} whose minimal circuits tell edges apart, a rule that never sees the model has an AUROC of "
        f"{control[BLIND]} among edges that can matter, the weights alone have {control['weights']}, and the best "
        f"estimate, {best.method}, has {interval(best)}. Stated before the run:"
    )
    tests = planned(wide(rows, truths, "auroc"))
    more = (
        f"Of {len(tests)} comparisons that were stated, {int((tests['p_corrected'] < 0.05).sum())} have p < 0.05 over "
        "families after correction. `python -m benchmarks.circuits --from my_method.py` scores yours in two minutes; "
        "[the page](docs/circuit_benchmark.md) has every method, four ablations, certified and planted circuits, fresh "
        "subjects, and the criticism."
    )
    shown = f"![AUROC of each method against its passes, with the blind prior as a line](docs/{PICTURE.name})"
    claims = [_filled(line, "   ") for line in verdicts(rows, truths)]
    return "\n".join([SECTION, "", _filled(said), "", *claims, "", shown, "", _filled(more), ""])


def _filled(text: str, indent: str = "") -> str:
    return fill(text, 120, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def page() -> str:
    card = [
        "## Data card",
        "",
        markdown(pd.DataFrame(list(CARD.items()), columns=["what was wrong, or is asked", "what is so now"])),
        "",
    ]
    known = [results()] if RESULTS.is_file() else []
    return "\n".join([ABOUT, stated(), *known, *card])


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    if RESULTS.is_file():
        picture().write_image(PICTURE)
        before, _, after = README.read_text(encoding="utf-8").partition(SECTION)
        rest = after[after.index("\n## ") + 1 :]
        README.write_text(before + readme_section() + "\n" + rest, encoding="utf-8")


if __name__ == "__main__":
    main()
