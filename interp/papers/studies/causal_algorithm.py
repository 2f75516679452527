"""A question of the causal page: which algorithm the answers follow, and where its variables live."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

import models
from interp.causal.interchange import (
    InterchangeAccuracy,
    Site,
    WhichAlgorithm,
    causal_scrubbing,
    chained_claims,
    interchange,
    interchange_sweep,
    which_algorithm,
)
from interp.causal.interchange.accuracy import CONTROLS, HYPOTHESIS, WHOLE, proportion
from interp.causal.interchange.which import CORRUPTIONS
from interp.core.model import HookedModel
from interp.core.results import Result
from interp.core.sections import Section
from interp.papers.studies.causal_answers import PAIRS, Answer, Found, Subject, fact, interval, share, told, unbroken

EXAMPLES, FEW = 1000, 400  # per corruption; two-digit sums whose tens add up to 9 are too few for more

QUESTION = "Which algorithm?"
ALGORITHM = """Addition algorithms agree on every sum. They part where the digit written before the query is replaced:
ripple carry and carry look-ahead do not read it, and the chained algorithm takes the carry to be the whole number
nearest to (sum of the previous column - digit written there) / 10. A plausible wrong digit is the 9 or 0 that a column
of sum 9 would show with the other carry (so that with two digits it stands before the hundreds alone); any wrong digit
mostly gives differences that no sum has, where rounding decides. The untrained model of the same shape is the
control."""
BY_COLUMN = """How often the answer is the chained algorithm's where it is not that of ripple and look-ahead, by the
column that is predicted (0 would be the units)."""
HYPOTHESES = """Each row is a hypothesis "this variable of the algorithm lives at this site": the site (or a direction
of it, found on other problems by gradient descent, DAS) is taken from another problem, and the answer must become what
the algorithm gives with the variable set. Only pairs whose answer that changes count. Controls: the variable's values
dealt at random, an untrained model, a random subspace in which the activation moves as far. The chained algorithm's own
variables: previous (the digit written before), previous_sum (of the previous column), digit_sum, total (digit sum and
carry) and carry_in. Random pairs often make differences of previous_sum and previous that no sum has; there the
algorithm rounds, and a model may do something else."""
SCRUBBING = """All activations that the chained algorithm allows to be are resampled in one run: values of the column's
digits from problems with the same digit sum, those of the previous column with the same sum there, the query's own
token from problems that show the same digit, all other values from any."""


def algorithm(subject: Subject, problems: int | None, seed: int) -> Answer:
    """Which algorithm the answers follow, where its variables live, and how much of the loss that explains."""
    model = models.load(subject.model)
    names = (subject.model, *subject.others)
    ranked = {
        name: which_algorithm(models.load(name), n=problems or (FEW if subject.large else EXAMPLES), seed=seed)
        for name in names
    }
    table = pd.concat([found.to_dataframe().assign(model=name) for name, found in ranked.items()], ignore_index=True)
    results: dict[str, Result] = {f"algorithm: {name}": found for name, found in ranked.items()}
    facts = []
    for name, found in ranked.items():
        for corruption, what in (("plausible", "a plausible wrong digit"), ("any", "any wrong digit")):
            given = found.accuracy("chained", corruption)
            twin = found.accuracy("chained", corruption, of="untrained")
            facts.append(
                fact(
                    QUESTION,
                    f"{name}: answers of the chained algorithm after {what}",
                    given,
                    given.n,
                    f"{share(twin)} untrained",
                )
            )
            followed = found.followed("chained", corruption)
            facts.append(
                fact(
                    QUESTION,
                    f"{name}: changed predictions that are the chained algorithm's, {what}",
                    followed,
                    followed.n,
                )
            )
    n = problems or PAIRS
    sweep = interchange_sweep(model, "carry_in", subject.column, n=n, seed=seed)
    tested = [*_hypotheses(subject, model, n, seed)]
    best = interchange(model, "carry_in", sweep.best(), subject.column, n=n, seed=seed + 1)
    tested.append(best)
    frame = pd.concat([_labelled(one) for one in tested], ignore_index=True)
    for one in tested:
        accuracy = one.accuracy()
        facts.append(
            fact(
                QUESTION,
                f"{one.variable} in {one.site}, {one.subspace}: interchange accuracy",
                accuracy,
                accuracy.n,
                f"{share(one.accuracy(CONTROLS[0]))} random labels",
            )
        )
    scrubbed = causal_scrubbing(model, chained_claims(), n=n, seed=seed)
    facts.append(
        fact(
            QUESTION,
            "share of the loss that the chained algorithm's claims recover",
            scrubbed.recovered(),
            n,
            f"{interval(*scrubbed.recovered('all irrelevant'))} all irrelevant",
        )
    )
    results |= {f"hypothesis {i}: {one.variable}": one for i, one in enumerate(tested, 1)}
    results |= {"carry in the residual stream": sweep, "scrubbing": scrubbed}
    scrubbing = scrubbed.to_dataframe()
    tables = {
        "algorithms": table,
        "algorithms by column": column_table(ranked[subject.model]),
        "hypotheses": frame,
        "scrubbing": scrubbing[scrubbing.column == "all"],
    }
    return Answer(told(results), tables, facts, results)


def show_algorithm(found: Found) -> list[Section]:
    """Rankings, where they differ by column, hypotheses about where variables live, and the loss that they explain."""
    sections = [Section(QUESTION, ALGORITHM, (which_table(found.table("algorithms")),))]
    sections += [found.section(name.partition(": ")[2], name) for name in found.named("algorithm: ")]
    sections.append(Section("By column", BY_COLUMN, (_by_column(found.table("algorithms by column")),), level=3))
    names, tested = found.named("hypothesis "), found.table("hypotheses")
    wholes = tested[tested.run == HYPOTHESIS].subspace == WHOLE
    first_part = names[wholes.tolist().index(False)]
    return [
        *sections,
        Section("Where its variables live", HYPOTHESES, (hypothesis_table(tested),), level=3),
        found.section("The total in one direction, and its controls", first_part),
        found.section("The carry in the residual stream, whole sites", "carry in the residual stream"),
        replace(found.section("The best of these sites on new pairs", names[-1]), figures=()),
        found.section("How much of the loss that explains", "scrubbing", found.table("scrubbing"), SCRUBBING),
    ]


def _hypotheses(subject: Subject, model: HookedModel, n: int, seed: int) -> Sequence[InterchangeAccuracy]:
    """Whole sites for what the input holds, and one direction for what is computed, where the residual stream enters
    the last MLP of a one-layer model or the last layer of a deeper one."""
    n_layers = model.cfg.n_layers
    computed = "blocks.0.hook_resid_mid" if n_layers == 1 else f"blocks.{n_layers - 1}.hook_resid_pre"
    asked: list[tuple[str, Site, int | None]] = [
        ("previous", Site("blocks.0.hook_resid_pre"), None),
        ("previous_sum", Site("blocks.0.attn.hook_v", "digits below"), None),
        ("digit_sum", Site("blocks.0.attn.hook_v", "own digits"), None),
        ("total", Site(computed), None),
        ("total", Site(computed), 1),
        ("carry_in", Site(computed), 1),
    ]
    return [
        interchange(
            model,
            variable,
            site,
            subject.column,
            subspace=k,
            n=n,
            n_train=n if subject.large else 2 * n,
            das_steps=60 if subject.large else 100,
            seed=seed,
        )
        for variable, site, k in asked
    ]


def _labelled(one: InterchangeAccuracy) -> pd.DataFrame:
    what = {"variable": one.variable, "site": one.site, "subspace": one.subspace}
    frame = one.to_dataframe()[["run", "n_changed", "accuracy", "low", "high", "stayed", "n", "accuracy_all"]]
    return pd.concat((pd.DataFrame([what] * len(frame)), frame), axis=1)


def hypothesis_table(tested: pd.DataFrame) -> pd.DataFrame:
    """One row per hypothesis with its controls; ``tested`` has one row per hypothesis and run."""
    rows: list[dict[str, Any]] = []
    for one in tested.to_dict("records"):
        if one["run"] == HYPOTHESIS:
            part = "all" if one["subspace"] == WHOLE else one["subspace"].replace(" ", "\u00a0")
            rows.append({"variable": one["variable"], "site": one["site"], "of it": part})
            rows[-1]["pairs that count"] = one["n_changed"]
        name, decimals = ("interchange accuracy", 3) if one["run"] == HYPOTHESIS else (one["run"], 2)
        rows[-1][name] = interval(one["accuracy"], one["low"], one["high"], decimals)
    return pd.DataFrame(rows)


def column_table(found: WhichAlgorithm) -> pd.DataFrame:
    """Per wrong digit and column, how often answers are the chained or the ripple algorithm's where those differ."""
    rows = []
    for corruption in CORRUPTIONS:
        kind = found.examples.sel(corruption=corruption)
        after, differ = kind.after.values, found.disagree(corruption)
        for column in np.unique(kind.column.values[differ]).tolist():
            here = differ & (kind.column.values == column)
            row: dict[str, Any] = {"corruption": corruption, "column": column, "n": int(here.sum())}
            for name in ("chained", "ripple"):
                rate = proportion((after == kind.answer.sel(algorithm=name).values)[here])
                row |= {name: rate.value, f"{name}_low": rate.low, f"{name}_high": rate.high}
            rows.append(row)
    return pd.DataFrame(rows)


def _by_column(table: pd.DataFrame) -> pd.DataFrame:
    cell = lambda row, name: interval(row[name], row[f"{name}_low"], row[f"{name}_high"])  # noqa: E731
    rows = [row for _, row in table.iterrows()]
    return pd.DataFrame(
        {"wrong digit": table.corruption, "column": table.column, "n": table.n}
        | {
            "chained": [cell(row, "chained") for row in rows],
            "ripple, look\u2011ahead": [cell(row, "ripple") for row in rows],
        }
    )


def which_table(table: pd.DataFrame) -> pd.DataFrame:
    """The page's version of the rankings; algorithms that never differ (ripple and look-ahead) share a row."""
    rows = []
    for _, same in table.groupby(["model", "corruption", "accuracy", "followed"], sort=False):
        row = same.iloc[0]
        rows.append(
            {"model": row.model, "wrong digit": row.corruption, "algorithm": ", ".join(same.algorithm)}
            | {"n where they disagree": row.n_disagree, "its answer": interval(row.accuracy, row.low, row.high)}
            | {"by an untrained model": f"{row.untrained:.3f}", "n changed": row.n_changed}
            | {"changed to its answer": interval(row.followed, row.followed_low, row.followed_high)}
        )
    shown = pd.DataFrame(rows)
    return shown.assign(model=unbroken(shown.model), algorithm=unbroken(shown.algorithm))
