"""Write docs/circuit_benchmark.md, its picture and the README's section: ``python -m benchmarks.circuits.page``.

The text stands in ``page_template.md`` and ``readme_template.md``; all numbers come from the stored truths and rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import pandas as pd

from benchmarks.circuits.bench_runs import RESULTS, read_rows, rows_of_list
from benchmarks.circuits.circuit_methods import ESTIMATE, METHODS
from benchmarks.circuits.latent_scores import LATENTS, SAE, UNTRAINED
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
    BOTH,
    CLAIMS,
    PLANNED,
    POWER,
    RELEVANT,
    SIDES,
    UNDECIDED,
    Claim,
    against,
    among,
    between_families,
    compared,
    edges_outside,
    family_mean,
    halves,
    planned,
    rank_correlation,
    scored,
    side,
    wide,
    with_edges_outside,
)
from benchmarks.circuits.subjects import FAMILIES, N_METHOD, N_TRUTH, NEW, SEEN, TRUTH, stored_truths
from benchmarks.circuits.truth import CORRUPTED, MEAN, THRESHOLD, ZERO
from benchmarks.circuits.unit_methods import KINDS, UNITS

DOCS = Path(__file__).parents[2] / "docs"
PAGE, PICTURE = DOCS / "circuit_benchmark.md", DOCS / "circuit-benchmark.svg"
README, SECTION = DOCS.parent / "README.md", "## Which method finds the circuit?"
FRESH = TRUTH.with_name("fresh.json")
TEMPLATE, README_TEMPLATE = (Path(__file__).with_name(f"{name}_template.md") for name in ("page", "readme"))


def _found(rows: pd.DataFrame, truths: Mapping[str, Any], families: Sequence[str]) -> list[dict[str, Any]]:
    """The numbers of the three claims in these families."""
    table = among(wide(rows, truths, "auroc"), families)
    return [
        compared(table, "eap", BLIND),
        compared(table, "atp-qk", "eap"),
        rank_correlation(*halves(rows, truths, families)),
    ]


def verdicts(
    rows: pd.DataFrame, truths: Mapping[str, Any], families: Sequence[str] = NEW, short: bool = False
) -> list[str]:
    """What came of the three claims in these families: the new ones, on which they are tested. If ``short``, without
    the interval of these methods alone."""
    found = _found(rows, truths, families)
    eap, fixed, ranks = found
    alone = "" if short else f" ({_ends(*ranks['fixed'])} of these methods alone)"
    numbers = [
        f"EAP minus the blind prior {difference(eap)}",
        f"atp-qk minus EAP {difference(fixed)}",
        f"rank correlation {interval(pd.Series(ranks))} over {ranks['methods']} methods{alone}, and "
        f"{ranks['without']:.2f} without {' and '.join(ranks['worst'])}, which rank lowest",
    ]
    said = []
    for i, (claim, one, numbered) in enumerate(zip(CLAIMS, found, numbers, strict=True), 1):
        verdict = claim.verdict(one)
        power = f"; {_power(claim, one)}" if verdict == UNDECIDED else ""
        said.append(f"{i}. {claim.claim} **{verdict.capitalize()}**: {numbered}{power}.")
    return said


def _ends(low: float, high: float) -> str:
    return f"[{low:.2f}, {high:.2f}]"


def _power(claim: Claim, found: Mapping[str, float]) -> str:
    """What the runs could have seen."""
    least = claim.line + found["seen"]
    if not claim.line:
        return f"{least:+.2f} would have been seen in {POWER:.0%} of such runs"
    if least > 1:
        return f"no correlation, up to 1, would have been told from {claim.line} in {POWER:.0%} of such runs"
    return f"{least:.2f} would have been told from {claim.line} in {POWER:.0%} of such runs"


def stated_verdicts(rows: pd.DataFrame, truths: Mapping[str, Any], families: Sequence[str] = NEW) -> str:
    """What the words that were stated in advance make of the three claims."""
    eap, fixed, ranks = _found(rows, truths, families)
    refuted = [eap["low"] > 0, fixed["low"] <= 0, ranks["value"] < 0.5 or ranks["fixed"][0] <= 0]
    said = [f"claim {i} is {'refuted' if each else 'not refuted'}" for i, each in enumerate(refuted, 1)]
    return ", ".join(said[:-1]) + f" and {said[-1]}"


def tested(table: pd.DataFrame) -> str:
    """The stated comparisons."""
    return _compared(planned(table))


def _compared(tests: pd.DataFrame) -> str:
    """Comparisons as a table; the method that all are compared with has no column."""
    rows = tests.to_dict("records")
    columns = ["one", "other"] if tests["other"].nunique() > 1 else ["one"]
    shown = tests[columns].assign(difference=[difference(row) for row in rows])
    ps = {title: tests[name].map(_p) for title, name in (("p", "p"), ("p, corrected", "p_corrected"))}
    shown = shown.assign(**ps, subjects=tests["subjects"], families=tests["families"])
    return markdown(shown.assign(**{"by its interval": [side(row) for row in rows]}))


def _p(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def decided(table: pd.DataFrame) -> str:
    """Which of the stated comparisons have a p below 0.05."""
    tests = planned(table)
    sure = tests[tests["p_corrected"] < 0.05]
    names = [f"{row.one} is {'above' if row.difference > 0 else 'below'} {row.other}" for row in sure.itertuples()]
    return (
        f"Of the {len(tests)} stated comparisons {len(sure)} are decided (p < 0.05 over families, after correction)"
        f"{': ' * bool(names)}{', '.join(names)}."
    )


def _controls(rows: pd.DataFrame, truths: Mapping[str, Any]) -> dict[str, Any]:
    """Every method against the controls that run nothing."""
    table = wide(rows, truths, "auroc")
    new = among(table, NEW)
    every, own = against(table, BOTH), against(new, BOTH)
    best = every.set_index("one").loc[_best_estimate(table)]
    best_new = own.set_index("one").loc[best.name]
    groups = {
        where: [row["one"] for row in against(table, BLIND).to_dict("records") if side(row) == where] for where in SIDES
    }
    return {
        "both_tests": _compared(every), "both_new_tests": _compared(own), "both_count": len(every),
        "both_sure": ", ".join(every["one"][(every["p_corrected"] < 0.05) & (every["difference"] > 0)]) or "none",
        "both_gain": difference(best), "both_p": f"{best['p']:.3f}",
        "both_new_gain": difference(best_new), "both_new_p": f"{best_new['p']:.2f}",
        "both_seen": f"{best_new['seen']:+.2f}",
        **{f"blind_{where.replace(' ', '_')}": ", ".join(names) or "none" for where, names in groups.items()},
    }  # fmt: skip


def _few_outside(rows: pd.DataFrame, truths: Mapping[str, Any]) -> dict[str, Any]:
    """What is left without subjects of which one or two edges are outside."""
    table = wide(rows, truths, "auroc")
    counts = [edges_outside(truths[name]) for name in table.index.get_level_values("subject")]
    pairs = [(one, other) for one, other, _ in PLANNED] + [(_best_estimate(table), BOTH), ("eap", BOTH)]
    shown: dict[str, list[str]] = {"one": [one for one, _ in pairs], "other": [other for _, other in pairs]}
    kept = with_edges_outside(table, truths)
    for title, part in (
        ("all families", table),
        ("all, three or more outside", kept),
        ("new families", among(table, NEW)),
        ("new, three or more outside", among(kept, NEW)),
    ):
        sizes = f"{len(part)} subjects, {part.index.unique('family').size} families"
        shown[f"{title} ({sizes})"] = [
            f"{difference(found)}, p = {found['p']:.3f}" for found in (compared(part, *pair) for pair in pairs)
        ]
    return {
        "one_outside": counts.count(1), "two_outside": counts.count(2), "few_outside": len(table) - len(kept),
        "outside_table": markdown(pd.DataFrame(shown)),
    }  # fmt: skip


def _best_estimate(table: pd.DataFrame) -> str:
    means = family_mean(table)
    return str(means[[METHODS[name].kind == ESTIMATE for name in means.index]].idxmax())


def _exploratory(rows: pd.DataFrame, truths: Mapping[str, Any]) -> dict[str, Any]:
    """What was not asked for in advance."""
    table = wide(rows, truths, "auroc")
    families = table["eap"].groupby(level="family").mean().sort_values()
    known = [entry["ablations"][CORRUPTED] for entry in truths.values() if entry["ablations"][CORRUPTED]["complete"]]
    few = [each["n_minimal"] == 1 for each in known if len(each["live_edges"]) <= 9]
    heads = family_mean(wide(rows, truths, "heads"))
    sure = [name for name, each in METHODS.items() if each.kind == ESTIMATE and heads[name] > 0.985]
    return {
        "eap_weights": difference(compared(table, "eap", "weights")),
        "worst_family": f"{families.index[0]} ({families.iloc[0]:.2f})",
        "other_families": f"{families.iloc[1]:.2f} to {families.iloc[-1]:.2f}",
        "one_circuit": f"{sum(each['n_minimal'] == 1 for each in known)} of {len(known)}",
        "small_circuit": f"{sum(few)} of {len(few)}",
        "most_circuits": max(each["n_minimal"] for each in known),
        "sure_heads": ", ".join(sure) or "no estimates",
    }


def _left(each: Any) -> str:
    said = [f"at most {each.most_edges} live edges"] if each.most_edges else []
    return " and ".join(said + ([f"{', '.join(each.ablations)} ablation alone"] if len(each.ablations) < 3 else []))


def _stable(truths: Mapping[str, Any]) -> str:
    said = []
    for ablation in (CORRUPTED, MEAN):
        again = [
            known["same_on_other_pairs"]
            for entry in truths.values()
            if "same_on_other_pairs" in (known := entry["ablations"].get(ablation, {}))
        ]
        said.append(f"{sum(again)} of {len(again)} under {ablation} ablation")
    return f"Another draw of pairs has the same minimal circuits in {' and '.join(said)}."


def _certified(truths: Mapping[str, Any]) -> str:
    """Of which subjects a circuit is known that is right on every input, and why not of the others."""
    known = {name: entry.get("certified") or {"n_minimal": 0} for name, entry in truths.items()}
    some = [each for each in known.values() if each["n_minimal"]]
    ran = sum(each["how"] == "exhaustive" for each in some)
    many = [name for name, each in known.items() if each["n_minimal"] and each["circuits"] is None]
    open_ = [name for name, each in known.items() if each["n_minimal"] and each["circuits"] and not each["complete"]]
    none = [name for name, each in known.items() if not each["n_minimal"] and truths[name].get("certified")]
    ahead = [name for name in known if not truths[name].get("certified")]
    return (
        f"A circuit that is right on every input is known of {len(some)} of {len(known)} subjects: in {ran} all "
        f"problems were run, in {len(some) - ran} it is proved. Of {len(some) - len(many) - len(open_)} all minimal "
        f"ones are known. There are too many circuits to know that in {', '.join(many) or 'none'}; a minute of proofs "
        f"did not decide all in {', '.join(open_) or 'none'}, and proved none in {', '.join(none) or 'none'}. "
        f"Not looked at: {', '.join(ahead) or 'none'}."
    )


def _units_and_latents(truths: Mapping[str, Any]) -> dict[str, Any]:
    """Methods that name neurons, and dictionaries."""

    def by_name(rows: pd.DataFrame, by: str, score: str) -> pd.DataFrame:
        return wide(rows.assign(ablation="", method=rows[by]), truths, score, "")

    def shown(rows: pd.DataFrame, by: str, scores: Sequence[str]) -> str:
        columns = {}
        for score in scores:
            table = by_name(rows, by, score)
            title = f"{score} ({len(table)} subjects, {table.index.unique('family').size} families)"
            columns[title] = {row.method: interval(row) for row in scored(table).itertuples() if row.subjects}
        return markdown(pd.DataFrame(columns).reindex(rows[by].unique()).fillna("-").rename_axis(by).reset_index())

    units, latents = read_rows(UNITS), read_rows(LATENTS)
    each = units.drop_duplicates("subject")
    on_carry = [name for name in each["subject"] if truths[name]["switches"]]
    return {
        "units": (
            f"Of {len(each)} subjects {(each['switches'] > 0).sum()} have switches (of {', '.join(on_carry)} it is "
            f"proved that they switch on a carry), and {(each['needed ones'] > 0).sum()} a neuron that is needed."
        ),
        "unit_table": shown(units, "method", ("switch", "needed")),
        "unit_gain": ", ".join(
            f"{kind} {difference(compared(by_name(units, 'method', kind), 'ablation', 'weights'))}" for kind in KINDS
        ),
        "latent_gain": ", ".join(
            f"{score} {difference(compared(by_name(latents, 'dictionary', score), SAE, SAE + UNTRAINED))}"
            for score in ("told", "is one", "moved")
        ),
        "latent_table": shown(latents, "dictionary", ("told", "is one", "moved", "explained")),
    }


def _predicts(rows: pd.DataFrame, truths: Mapping[str, Any]) -> dict[str, Any]:
    """Rank correlations between halves and families, and the fresh subjects."""
    fresh = json.loads(FRESH.read_text(encoding="utf-8"))
    own, judged = rows_of_list(fresh["rows"]), fresh["truths"]
    one, other = (wide(each, known, "auroc") for each, known in ((rows, truths), (own, judged)))
    found = {
        "trained and planted": rank_correlation(*halves(rows, truths)),
        "stored and fresh": rank_correlation(one, other),
    }
    both = {"stored": family_mean(one), "fresh": family_mean(other)}
    both["planted"], both["fresh planted"] = (
        family_mean(wide(each, known, "planted", "")) for each, known in ((rows, truths), (own, judged))
    )
    table = pd.DataFrame(both).sort_values("stored", ascending=False)
    between = between_families(one)
    low, middle, high = between.quantile([0, 0.5, 1])
    said = [
        f"* {name}: {interval(pd.Series(each))} ({_ends(*each['fixed'])} of these methods alone), and "
        f"{each['without']:.2f} without {' and '.join(each['worst'])}"
        for name, each in found.items()
    ]
    said.append(
        f"* between two families: {middle:.2f} in the median of {len(between)} pairs, from {low:.2f} to {high:.2f}"
    )
    return {
        "fresh_subjects": len(judged),
        "fresh_seed": fresh["seed"],
        "fresh_table": markdown(table.map(number).rename_axis("method").reset_index()),
        "correlations": "\n".join(said),
    }


def values() -> dict[str, Any]:
    """What the templates name."""
    rows, truths = read_rows(RESULTS), stored_truths()
    table = wide(rows, truths, "auroc")
    new, zero = among(table, NEW), wide(rows, truths, "auroc", ZERO)
    found = scored(table).set_index("method")
    best = found.loc[_best_estimate(table)]
    left = [f"{name} ({_left(each)})" for name, each in METHODS.items() if _left(each)]
    return {
        "n_method": N_METHOD, "n_truth": N_TRUTH, "threshold": THRESHOLD,
        "claims": "\n".join(f"{i}. {each.claim} It is refuted if {each.refuted}." for i, each in enumerate(CLAIMS, 1)),
        "asked": "\n".join(f"* {one} and {other}: {question}" for one, other, question in PLANNED),
        "new_judged": len(new), "new_subjects": sum(entry["family"] in NEW for entry in truths.values()),
        "new_verdicts": "\n".join(verdicts(rows, truths)),
        "short_verdicts": "\n".join(verdicts(rows, truths, short=True)),
        "new_tests": tested(new), "new_decided": decided(new),
        "new_families": new.index.unique("family").size, "new_count": len(NEW),
        "silent": ", ".join(family for family in NEW if family not in new.index.unique("family")),
        "new_stated": stated_verdicts(rows, truths), "all_stated": stated_verdicts(rows, truths, FAMILIES),
        "families": len(FAMILIES), "seen": len(SEEN), "all_tests": tested(table),
        "all_verdicts": "\n".join(verdicts(rows, truths, FAMILIES)).replace("**", ""),
        "relevant": RELEVANT, **_controls(rows, truths), **_few_outside(rows, truths),
        "zero_families": " and ".join(zero.index.unique("family")),
        **{kind: markdown(ranking(rows, truths, kind)) for kind in TITLES}, "restricted": "; ".join(left),
        **_exploratory(rows, truths), **_units_and_latents(truths), **_predicts(rows, truths),
        "subjects": markdown(of_subjects(truths)), "stable": _stable(truths), "certified": _certified(truths),
        "agreement": markdown(agreement_of_truths(truths)),
        "all_subjects": len(truths), "listed": sum(e["ablations"][CORRUPTED]["complete"] for e in truths.values()),
        "judged": int(found["subjects"].max()), "blind": interval(found.loc[BLIND]),
        "weights": interval(found.loc["weights"]), "both": interval(found.loc[BOTH]),
        "best": best.name, "best_value": interval(best),
    }  # fmt: skip


def filled(text: str) -> str:
    """Lines of prose at most 120 characters long."""
    lines = [
        line if line[:1] in "|!#" else fill(
            line, 120, subsequent_indent=" " * (3 if line[0].isdigit() else 2 * line.startswith("* ")),
            break_on_hyphens=False, break_long_words=False,
        )
        for line in text.split("\n")
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> None:
    known = values()
    PAGE.write_text(filled(TEMPLATE.read_text(encoding="utf-8").format_map(known)), encoding="utf-8")
    picture().write_image(PICTURE)
    before, _, after = README.read_text(encoding="utf-8").partition(SECTION)
    section = filled(README_TEMPLATE.read_text(encoding="utf-8").format_map(known))
    README.write_text(before + section + after[after.index("\n## ") :], encoding="utf-8")


if __name__ == "__main__":
    main()
