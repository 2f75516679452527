"""ToyGPT's tables and figures: ``interp reproduce toygpt:table-positions`` and its neighbours.

The tables and Figures 1 and 2 share runs: one folder per seed, trained with a constant learning rate, so that the run
to 5,000 iterations passes through the paper's 1,000. All seeds go to 1,000, the first :data:`LONG_SEEDS` on to 5,000.
If time runs out, a page shows what there is, and says for how many seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import pandas as pd

from interp.core.model import HookedModel
from interp.core.results import Result
from interp.core.sections import Section, records
from interp.papers.headlines.read import stated
from interp.papers.studies import Made, Settings, shows, study
from interp.papers.studies.runs import SeedRun, train_in_time, zoo_model
from interp.papers.toygpt.attention import AttentionMaps, attention_maps
from interp.papers.toygpt.carry import carry_path
from interp.papers.toygpt.errors import carry_errors
from interp.papers.toygpt.problems import LABELS
from interp.papers.toygpt.seeds import BUDGET, budget_table, last_step, orderings, orderings_text, seed_curves
from interp.probes.curves import Curves
from interp.probes.lens import LinearProbes, linear_probes
from interp.probes.lens.reading import stream_points
from interp.probes.scored import Scores
from models.checkpoint import read_json, write_json_atomic
from models.evaluation import score
from models.tasks.two_digit import all_problems
from models.training.named_recipes import get_recipe

SEEDS, LONG_SEEDS = 5, 2
EARLY, LATE = (250, 500, 750, BUDGET), (1_500, 2_000, 3_000, 4_000, 5_000)
BEST = "toygpt-learned-pre"
#: Sorted as in the paper, the best first.
POSITIONS = {"toygpt-learned-pre": "learned", "toygpt-rotary-pre": "rotary", "toygpt-none-pre": "no positions"}
PLACEMENTS = {"toygpt-learned-pre": "pre-LN", "toygpt-learned-post": "post-LN", "toygpt-learned-none": "no LN"}
#: Their names in the headlines.
IN_THE_PAPER = {
    "toygpt-learned-pre": "Learned positions",
    "toygpt-rotary-pre": "Rotary positions",
    "toygpt-none-pre": "No positions",
    "toygpt-learned-post": "Post-LN",
    "toygpt-learned-none": "No LayerNorm",
}
WHAT = {"positions": ("Positions, pre-LN", POSITIONS), "layernorm": ("LayerNorm, learned positions", PLACEMENTS)}


READ_AT = ("b0", "s0")  # shown with a figure; the table has all positions
READ = """Ridge regression on the label "carry out of the units", on all 10,000 sums; what is scored are pairs of units
digits that the probe never saw. "Can be read" is not "is used": a carry is a threshold on a0 + b0, so wherever both
digits lie linearly, a probe finds it."""


@cache
def claims() -> dict[str, float]:
    """The paper's final accuracies on test pairs, by model."""
    return {model: stated("toygpt", f"{label}: test accuracy.")[0] for model, label in IN_THE_PAPER.items()}


def runs_of(settings: Settings, names: Sequence[str]) -> list[SeedRun]:
    """The runs of these models, seed by seed, in the order of training."""
    recipe = get_recipe("toygpt").replace(steps=LATE[-1], snapshots=2)
    seeds = range(SEEDS if settings.seeds is None else settings.seeds)
    root = settings.out / "toygpt" / "runs"
    return [SeedRun(name, seed, recipe, root / name / f"seed-{seed}") for seed in seeds for name in names]


def train_what_is_missing(settings: Settings, runs: Sequence[SeedRun]) -> bool:
    """Train what is missing; False if time ran out before all was done."""
    device = "cpu" if settings.device == "auto" else settings.device  # launches would cost a GPU more than it saves
    plan = [(run, EARLY) for run in runs] + [(run, LATE) for run in runs if run.seed < LONG_SEEDS]
    return train_in_time(plan, settings, device)


def measured(run: SeedRun) -> list[dict[str, Any]]:
    """One row for every stop that the run has passed; kept in its folder, as each costs some forward passes."""
    path = run.folder / "measured.json"
    rows: dict[str, dict[str, Any]] = read_json(path) if path.exists() else {}
    for step in (*EARLY, *LATE):
        if str(step) in rows or not run.has(step):
            continue
        model = run.model_at(step)
        row: dict[str, Any] = {"model": run.name, "seed": run.seed, "step": step}
        if step in (BUDGET, LATE[-1]):
            errors = carry_errors(model)
            row |= _right(errors) | {"errors": _counts(errors)}
        else:
            row |= {"test": score(model).correct, "train": None}
        rows[str(step)] = row
        write_json_atomic(path, rows)
    return [rows[step] for step in sorted(rows, key=int)]


def _counts(errors: Scores) -> dict[str, Any]:
    return {key: errors.about[key] for key in ("digits", "first_wrong", "kinds")}


def _right(errors: Scores) -> dict[str, int]:
    return {key: errors.about[key].correct for key in ("test", "train")}


def comparison(question: str, settings: Settings) -> dict[str, Any]:
    """Train what is missing for "positions" or "layernorm". Returns the data of the comparison's page, from which it
    can be made again without training.

    Raises:
        UserError: time ran out before one seed of every variant was trained.
    """
    what, variants = WHAT[question]
    runs = runs_of(settings, list(variants))
    train_what_is_missing(settings, runs)
    rows: list[dict[str, Any]] = []
    losses: dict[str, dict[str, Any]] = {}
    for run in runs:
        if run.folder.exists():
            rows += measured(run)
            steps, values = zip(*run.losses(), strict=True)
            curve = {"step": list(steps), "loss": [round(x, 4) for x in values]}
            losses.setdefault(run.name, {})[str(run.seed)] = curve
    data = {"what": what, "variants": dict(variants), "rows": rows, "losses": losses}
    comparison_of(data)
    return data


def comparison_of(data: dict[str, Any]) -> Curves:
    """The curves of all variants that :func:`comparison` stored."""
    losses = [
        {"model": model, "seed": int(seed), "step": step, "loss": loss}
        for model, seeds in data["losses"].items()
        for seed, curve in seeds.items()
        for step, loss in zip(curve["step"], curve["loss"], strict=True)
    ]
    return seed_curves(data["variants"], data["rows"], losses)


def _orderings(result: Curves) -> pd.DataFrame:
    table = orderings(result)
    shown = table[table.iterations.isin([BUDGET, 2_000, 3_000, LATE[-1]])].copy()
    infinite = shown.low.abs() == float("inf")
    for column in ("mean difference", "low", "high"):
        shown[column] = [f"{100 * value:+.1f}" for value in shown[column]]
    shown.loc[infinite, ["low", "high"]] = "–"
    return shown.rename(columns={"mean difference": "mean difference, points", "low": "95% low", "high": "95% high"})


def _kinds(rows: Sequence[dict[str, Any]], variants: dict[str, str]) -> pd.DataFrame:
    """What is wrong in every seed after the paper's budget: digits and kinds of tens errors, among all 10,000 sums."""
    found = []
    for row in rows:
        if row["step"] == BUDGET and row["model"] in variants:
            counts = row["errors"]
            wrong = {f"{digit} wrong first": n for digit, n in counts["first_wrong"].items()}
            kinds = {f"tens: {kind}": n for kind, n in counts["kinds"].items()}
            total = 10_000 - row["test"] - row["train"]
            found.append({"variant": variants[row["model"]], "seed": row["seed"], "sums wrong": total} | wrong | kinds)
    return pd.DataFrame(found)


def _orderings_section(result: Curves, what: str) -> Section:
    text = (
        f"{orderings_text(result, what)}\n\nThe same seed draws the same problems for every variant, so "
        f"differences are taken within seeds. The first {LONG_SEEDS} seeds went on beyond {BUDGET:,} iterations as far "
        "as shown."
    )
    return Section("The paper's orderings at more iterations", text, (_orderings(result),), (result.figure(),))


def _loss_section(result: Curves) -> Section:
    return Section(
        "Training loss", "Over more iterations and seeds than the paper's.", (), (result.figure(what="loss"),)
    )


@shows("toygpt:table-positions", "toygpt:table-layernorm")
def show_table(data: Any) -> list[Section]:
    result = comparison_of(data)
    sections = [
        Section(
            f"{data['what']}, after {BUDGET:,} iterations",
            "Whole sums right under greedy decoding, in percent: 500 held-out pairs and the 9,500 training pairs, all "
            "of them. Mean over seeds with Student's t interval, extremes, and every seed. The paper has one run each.",
            (budget_table(result, claims()),),
            (result.figure("seeds", step=BUDGET, printed=claims()),),
        ),
        _orderings_section(result, data["what"]),
        _loss_section(result),
        Section(
            "Which digit goes wrong",
            "Of all 10,000 sums, by seed: the first wrong digit, and of what kind wrong tens digits are (missed carry, "
            "spurious carry, other), each given the right units digit.",
            (_kinds(data["rows"], data["variants"]),),
        ),
    ]
    if (last := last_step(result)) > BUDGET:
        sections.insert(1, Section(f"After {last:,} iterations", "", (budget_table(result, claims(), last),)))
    return sections


@shows("toygpt:fig1", "toygpt:fig2")
def show_curves(data: Any) -> list[Section]:
    result = comparison_of(data)
    return [_loss_section(result), _orderings_section(result, data["what"])]


def _comparison(question: str, title: str, settings: Settings) -> Made:
    data = comparison(question, settings)
    return Made(data, f"ToyGPT: {title}{data['what']}")


for _target, _title, _question, _what in (
    ("table-positions", "Learned, rotary and no positions: accuracies over seeds and budgets", "positions", ""),
    ("table-layernorm", "Pre-, post- and no LayerNorm: accuracies over seeds and budgets", "layernorm", ""),
    ("fig1", "Training curves for three kinds of positions", "positions", "training curves. "),
    ("fig2", "Training curves for three placements of LayerNorm", "layernorm", "training curves. "),
):
    _stored = "" if _target.startswith("table") else f"experiments/toygpt-table-{_question}.json"
    study(f"toygpt:{_target}", _title, stored=_stored)(partial(_comparison, _question, _what))


@study("toygpt:fig3", "Attention maps of every head and layer")
def figure_3(settings: Settings) -> Made:
    result = attention_maps(zoo_model(BEST))
    data = {
        "model": result.name,
        "sentence": result.sentence(),
        "keys": result.keys.values.tolist(),
        "overlaps": result.overlaps(),
        "overlap": result.overlap.values.round(6).tolist(),
        "mean": result.pattern.sel(view="mean of all").fillna(0).values.round(4).tolist(),
    }
    return Made(data, "ToyGPT: attention maps", [result])


@shows("toygpt:fig3")
def show_attention_maps(data: Any, results: Sequence[AttentionMaps] = ()) -> list[Section]:
    """Keys and overlaps, and the maps themselves if the result is available."""
    keys = pd.DataFrame({"layer": range(len(data["keys"])), "keys attended to": data["keys"]})
    overlaps = pd.DataFrame({"heads of": list(data["overlaps"]), "mean overlap": list(data["overlaps"].values())})
    text = (
        f"{data['sentence']}\n\nThe paper shows the maps of one sum and reads off that they get less sparse from layer "
        "to layer, most from the first to the second, and that heads of one layer are alike. Keys attended to "
        "(exp(entropy), averaged over heads, queries and all 10,000 sums) measure the first; the mean overlap of two "
        "heads (1 minus the total variation distance of their patterns) measures the second. The maps, of means and "
        "of single sums, are on the page that the command writes."
    )
    figures = [result.figure() for result in results]
    return [Section("Attention of every head", text, (keys, overlaps), figures)]


def carry_probes(model: HookedModel) -> dict[str, LinearProbes]:
    """Where the carry out of the units can be read, by position, on pairs of units digits that the probes never saw."""
    blocks = range(model.cfg.n_layers)
    sites = [*stream_points(model), *(f"blocks.{i}.hook_{part}_out" for i in blocks for part in ("attn", "mlp"))]
    asked: dict[str, Any] = {"problems": all_problems(), "signals": "carry_out", "columns": "s0"}
    return {position: linear_probes(model, at=position, sites=sites, **asked) for position in LABELS}


@study("toygpt:carry", "Carry errors, and the carry's path through the layers")
def carry(settings: Settings) -> Made:
    model = zoo_model(BEST)
    errors, probes, path = carry_errors(model), carry_probes(model), carry_path(model)
    table = pd.concat([found.overall("carry_out").assign(position=at) for at, found in probes.items()])
    results = (errors, *(probes[position] for position in READ_AT), path)
    data = {
        "model": errors.model,
        "errors": _counts(errors) | _right(errors),
        "failures": [list(failure) for failure in errors.about["failures"]],
        "by_units_sum": records(errors.to_dataframe(), 5),
        "probes": records(table.drop(columns=["signal", "column", "counted"]), 5),
        "path": records(path.table, 5),
        "points": list(path.points),
        "emitted": path.emitted,
        "sentences": [result.sentence() for result in results],
    }
    return Made(data, "ToyGPT: the carry", results)


@shows("toygpt:carry")
def show_carry(data: Any, results: Sequence[Result] = ()) -> list[Section]:
    """Errors, where the carry can be read and where it is used; with a figure per sentence if there are ``results``."""
    said, figures = data["sentences"], [result.figure() for result in results]
    failures = [{"sum": f"{a} + {b}", "claimed": claimed, "right": a + b} for a, b, claimed in data["failures"]]
    errors = (pd.DataFrame(failures), pd.DataFrame(data["by_units_sum"]))
    probes, replaced = pd.DataFrame(data["probes"]), _rounded(pd.DataFrame(data["path"]))
    probes = probes[["position", "site", *(name for name in probes if name not in ("position", "site"))]]
    return [
        Section("Errors", said[0], errors, figures[:1]),
        Section("Where the carry can be read", f"{READ}\n\n" + "\n\n".join(said[1:-1]), (probes,), figures[1:-1]),
        Section("Where it is used", said[-1], (), figures[-1:]),
        Section("Every replaced activation", "Counts of tens digits, with 95% intervals.", (replaced,)),
    ]


def _rounded(table: pd.DataFrame) -> pd.DataFrame:
    shown = table[["site", "position", "n", "follows", "stays", "other"]].copy()
    shown["share that follows [95%]"] = [
        f"{row.share:.3f} [{row.low:.3f}, {row.high:.3f}]" for row in table.itertuples()
    ]
    shown["control changes [95%]"] = [
        "–" if row.kind == "head" else f"{row.control_share:.3f} [{row.control_low:.3f}, {row.control_high:.3f}]"
        for row in table.itertuples()
    ]
    return shown
