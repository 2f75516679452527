"""From training runs to a zoo entry: which seed, how good, and how many seeds it took.

The seed is chosen without looking at the test set: of the seeds whose selected checkpoint answers every validation
problem and every problem of a second, larger validation set, the one that was perfect first. Half of these problems
are harder than the task's natural distribution, and a small model may grok without ever answering all of them; where no
seed does, the one is taken that is right most often on the second set, among those that once answered every problem of
the natural distribution; and where there is none of these either, the one that is best on validation. The test set is
then scored for every seed that passed validation in either sense and for the one chosen, and the entry's score is what
came out, whatever it is.

Seeds that a run's judge accepted (:mod:`models.training.judging`) come before all others, the one accepted first before
the rest; the entry keeps the judge's evidence, and its card the judge's line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.checkpoint import format_weights
from models.errors import UserError
from models.evaluation import Rate, Score, score
from models.registry import build
from models.tasks.base import Task
from models.tasks.characters import CharacterLanguage
from models.tasks.sequences import SequenceTask
from models.tasks.two_digit import TwoDigitAddition
from models.text_scores import TextLoss
from models.training.load_run import best_row
from models.training.objective import ParameterLayout
from models.training.provenance import begun, check_once, finished, how_made, made_by
from models.training.publish_sequences import publish_sequences
from models.training.publish_text import publish_text
from models.training.publish_two_digit import publish_two_digit
from models.training.run_folder import RunFolder, differences
from models.transformer import ArithmeticTransformer
from models.zoo import ZOO, save_entry, with_bullet

#: Tasks whose entries are made in another way than by the seeds' scores on a test set.
_SPECIAL: dict[type[Task], Callable[..., tuple[Path, Rate | TextLoss]]] = {
    SequenceTask: publish_sequences,
    CharacterLanguage: publish_text,
    TwoDigitAddition: publish_two_digit,
}
SECOND_VALIDATION = 20_000
SNAPSHOT_BYTES = 2_000_000


@dataclass(frozen=True)
class SeedRow:
    """One seed of one run, as the entry records it."""

    run: Path
    row: int
    state: dict[str, Any]
    theta: Tensor
    exact_on_test: int | None  # None: did not pass validation, so not scored

    @property
    def seed(self) -> int:
        return self.state["seed"]


def publish(
    folders: list[Path], out: Path | None = None, overwrite: bool = False, repeats: Sequence[Path] = ()
) -> tuple[Path, Score | Rate | TextLoss]:
    """Write the zoo entry of the model that ``folders`` (runs of one model and one recipe) trained.

    ``repeats`` are runs of seeds that are counted already, on a build that rounds differently: they provide no
    weights, and the card states apart how many of their seeds grokked.

    Returns:
        the entry's folder and the chosen seed's score on the task's test set.

    Raises:
        UserError: unfinished runs, runs of different models or recipes, seeds tried twice, a task without a test set.
    """
    if not folders:
        raise UserError("Name the run folders to publish, for example runs/microadder-57.")
    runs = [RunFolder(Path(folder)) for folder in folders]
    configs = [run.config() for run in runs]
    again = [RunFolder(Path(folder)) for folder in repeats]
    everything = zip((*folders, *repeats), (*configs, *(run.config() for run in again)), strict=True)
    for folder, config in everything:
        if {path for path, *_ in differences(configs[0], config)} - {"seeds", "first_seed"}:
            raise UserError(
                f"{folder} trains another model or recipe than {folders[0]}, or from another start; publish them apart."
            )
    name = configs[0]["model"]
    model = build(name)
    for kind, special in _SPECIAL.items():
        if isinstance(model.task, kind):
            if repeats:
                raise UserError(f"--repeats counts seeds of ten-digit adders that grok; {name} is no such model.")
            return special(list(folders), configs, out, overwrite)
    layout = ParameterLayout(model)
    rows, seconds = [], 0.0
    for run in runs:
        found, spent = _rows(run, layout, model)
        rows += found
        seconds += spent
    check_once(row.seed for row in rows)
    passing = sorted(
        (row for row in rows if row.state["best_exact"] == 1.0), key=lambda row: row.state["first_perfect_step"]
    )
    grokked_rows = [row for row in rows if _once_perfect(row.state)]
    second = second_validation(model.task)
    accepted = [row for row in rows if row.state.get("accepted") is not None]
    chosen = min(accepted, key=lambda row: (row.state["best_step"], row.seed), default=None)
    if chosen is None:
        chosen = next((row for row in passing if _exact(model, layout, row.theta, second) == len(second)), None)
    if chosen is None:
        chosen = max(grokked_rows, key=lambda row: _exact(model, layout, row.theta, second), default=None)
    if chosen is None:
        at = best_row([row.state for row in rows])
        if rows[at].state["best_step"] < 0:
            raise UserError(f"None of the {len(rows)} seeds was measured before it failed, so none can be published.")
        chosen = rows[at] = replace(rows[at], exact_on_test=_exact(model, layout, rows[at].theta, None))
    layout.load_into(model, chosen.theta)
    result = score(model)
    grokked = _grok_rate(rows, result.n)
    once = Rate(len(rows), len(grokked_rows))
    repeated = [_grok_rate(_rows(run, layout, model)[0], result.n) for run in again]
    layout.load_into(model, chosen.theta)
    training = {
        "seed": chosen.seed,
        "step": chosen.state["best_step"],
        "first_perfect_step": chosen.state["first_perfect_step"],
        "once_perfect": _once_perfect(chosen.state),
        "validation_exact": chosen.state["best_exact"],
        "seeds_tried": grokked.n,
        "seeds_grokked": grokked.correct,
        "seeds_once_perfect": once.correct,
        "grok_interval_95": list(grokked.interval),
        "repeats": [{"seeds_tried": rate.n, "seeds_grokked": rate.correct} for rate in repeated],
    } | how_made(configs, seconds)
    card = _card(name, model, training, result, grokked, once, repeated)
    evidence = {}
    if chosen in accepted:
        card = with_bullet(card, chosen.state["accepted"])
        evidence = RunFolder(chosen.run).evidence(chosen.seed)
    files = evidence | {
        "seeds.json": json.dumps([_public(row) for row in rows], indent=1).encode(),
        "curves.safetensors": _curves(runs, rows),
        "metrics.jsonl": _metrics(chosen),
        "snapshots.safetensors": _snapshots(chosen),
        "card.md": card.encode(),
    }
    return save_entry(out or ZOO / name, model, training, result.to_dict(), files, overwrite), result


def second_validation(task: Task) -> Tensor:
    """Validation problems of another seed than training's: :data:`SECOND_VALIDATION`, or half as many as often as it
    takes until the task has them.

    Raises:
        UserError: a task without validation problems.
    """
    n = SECOND_VALIDATION
    while True:
        try:
            return task.validation_problems(n, seed=1)
        except UserError:
            if n == 1:
                raise
            n //= 2


def load_snapshots(entry: str | Path) -> list[tuple[int, ArithmeticTransformer]]:
    """(step, model) for every log-spaced snapshot of an entry's seed, in order of steps."""
    from models.checkpoint import parse_weights
    from models.zoo import entry_file, read_entry

    name = read_entry(entry)["model"]
    tensors, _ = parse_weights(entry_file(entry, "snapshots.safetensors"), f"snapshots of {entry}")
    steps = tensors.pop("step").tolist()
    found = []
    for i, step in enumerate(steps):
        model = build(name)
        with torch.no_grad():
            for key, parameter in model.weight_map.named_parameters():
                parameter.copy_(tensors[key][i])
        found.append((step, model))
    return found


def _rows(run: RunFolder, layout: ParameterLayout, model: ArithmeticTransformer) -> tuple[list[SeedRow], float]:
    tensors, state = finished(run.path)
    rows = []
    for i, entry in enumerate(state["seeds"]):
        theta = tensors["best_theta"][i]
        exact = _exact(model, layout, theta, None) if entry["best_exact"] == 1.0 or _once_perfect(entry) else None
        rows.append(SeedRow(run.path, i, entry, theta, exact))
    return rows, state["seconds"]


def _once_perfect(state: dict[str, Any]) -> bool:
    """Whether a seed once answered every validation problem of the natural distribution: what papers call grokked."""
    return state.get("first_uniform_step") is not None


def _exact(model: ArithmeticTransformer, layout: ParameterLayout, theta: Tensor, problems: Tensor | None) -> int:
    layout.load_into(model, theta)
    return score(model, problems).correct


def _grok_rate(rows: list[SeedRow], n_test: int) -> Rate:
    """How many seeds answer the whole test set."""
    return Rate(len(rows), sum(row.exact_on_test == n_test for row in rows))


def _public(row: SeedRow) -> dict[str, Any]:
    keys = ("seed", "status", "best_exact", "best_step", "first_perfect_step", "first_uniform_step", "stopped_at")
    judged = {"turned_down": row.state["turned_down"]} if row.state.get("turned_down") else {}
    return {key: row.state.get(key) for key in keys} | judged | {"exact_on_test": row.exact_on_test}


def _curves(runs: list[RunFolder], rows: list[SeedRow]) -> bytes:
    """Exact match, token accuracy and loss of every seed over training, [seed, evaluation]; NaN after a seed ended."""
    tables: dict[str, list[Tensor]] = {"exact": [], "token": [], "uniform": [], "loss": []}
    steps: list[int] = []
    lines_of = [run.metrics() for run in runs]
    for lines in lines_of:
        steps = max(steps, [line["step"] for line in lines], key=len)
    for lines in lines_of:
        # A seed's last evaluation is the one that ended it, so what counts is its status before.
        before = [["training"] * len(lines[0]["status"]), *(line["status"] for line in lines[:-1])]
        training = torch.tensor([[s == "training" for s in status] for status in before])
        for key, table in tables.items():
            nothing = [None] * len(lines[0]["status"])  # runs made before the uniform half was recorded apart
            values = torch.tensor(
                [[float("nan") if x is None else x for x in line.get(key, nothing)] for line in lines]
            )
            values = torch.where(training, values, torch.nan)
            padding = torch.full((len(steps) - len(lines), values.shape[1]), float("nan"))
            table.append(torch.cat((values, padding)).T)
    stacked = {key: torch.cat(table).half() if key == "loss" else torch.cat(table) for key, table in tables.items()}
    return format_weights(stacked | {"step": torch.tensor(steps), "seed": torch.tensor([row.seed for row in rows])})


def _metrics(row: SeedRow) -> bytes:
    lines = []
    for line in RunFolder(row.run).metrics():
        keys = [key for key in ("exact", "token", "uniform", "loss", "status") if key in line]
        entry = {key: line[key][row.row] for key in keys}
        lines.append(json.dumps({"step": line["step"], "lr": line["lr"]} | entry))
        if entry["status"] != "training":
            break
    return "".join(line + "\n" for line in lines).encode()


def _snapshots(row: SeedRow) -> bytes:
    """The chosen seed's log-spaced snapshots up to its end, stacked: name -> [snapshot, ...], and their steps.

    Of a larger model every second, third, ... one, counted from the last, so that they take at most two megabytes.
    """
    end = row.state["stopped_at"]
    kept = {step: tensors for step, tensors in RunFolder(row.run).snapshots().items() if step <= end}
    most = max(1, SNAPSHOT_BYTES // (4 * row.theta.numel()))
    steps = sorted(kept)
    steps = sorted(steps[:: -max(1, -(-len(steps) // most))])
    stacked = {key: torch.stack([kept[step][key][row.row] for step in steps]) for key in kept[steps[0]]}
    return format_weights(stacked | {"step": torch.tensor(steps)})


def _card(
    name: str,
    model: ArithmeticTransformer,
    training: dict[str, Any],
    result: Score,
    grokked: Rate,
    once: Rate,
    repeated: list[Rate],
) -> str:
    n_parameters = sum(p.numel() for p in model.parameters())
    low, high = grokked.interval
    rows = "\n".join(
        f"| {row.chain_length} | {row.n:,} | {row.correct:,} | {row.low:.4f}-{row.high:.4f} |"
        for row in result.to_dataframe().itertuples()
    )
    again = "".join(
        f"\n* **The same seeds again**, on a build that rounds differently: {rate.correct} of {rate.n} answer the whole"
        f"\n  test set (95% interval {100 * rate.interval[0]:.1f}-{100 * rate.interval[1]:.1f}%)."
        for rate in repeated
    )
    reached = f"first perfect on validation at step {training['first_perfect_step'] or 0:,}."
    if training["first_perfect_step"] is None and not training["once_perfect"]:
        reached = f"at best {100 * training['validation_exact']:.1f}% of the validation problems right."
    elif training["first_perfect_step"] is None:
        reached = "never perfect on the carry-rich half of validation, but once on the uniform half."
    there = " from that start, no independent ones," if training.get("start") else ""
    once_low, once_high = once.interval
    grokked_once = ""
    if once.correct:
        grokked_once = (
            f" {once.correct} of {once.n}\n  ({100 * once.accuracy:.1f}%, {100 * once_low:.1f}-{100 * once_high:.1f}%)"
            f" once answered every uniform validation problem."
        )
    return f"""# {name}

{n_parameters} free parameters, {begun(training)}; trained by this project on {model.task.name}.

* **Score:** {result.correct:,} of {result.n:,} ({result.problems}), {result.method.replace("_", " ")}, rung:
  {result.rung}. The error rate is below {result.error_bound:.1e} with 95% confidence on problems of that
  distribution; this is no statement about all inputs.
* **Seed** {training["seed"]}, parameters after {training["step"]:,} steps; {reached}
  Chosen on validation problems that are disjoint from the test set.
* **Seeds:** {grokked.correct} of {grokked.n} seeds{there} answer the whole test set
  ({100 * grokked.accuracy:.1f}%, 95% interval {100 * low:.1f}-{100 * high:.1f}%).{grokked_once}{again}
* **Time:** {training["seconds"] / 60:.0f} minutes for all {grokked.n} seeds, float32, torch {training["torch"]}.

| longest carry chain | problems | right | 95% interval |
|---|---|---|---|
{rows}

{made_by(name, training)}

Another machine or version rounds differently, and training is chaotic: there another seed, or none, may succeed.

Files: `model.safetensors` (free parameters), `snapshots.safetensors` (log-spaced over training), `metrics.jsonl`
(this seed), `curves.safetensors` and `seeds.json` (all seeds), `config.json` (recipe, hashes, score).
"""
