"""The tools of ``interp mcp``: typed functions that answer with a :class:`interp.core.replies.Reply`.

They read models and write nothing. What an argument may ask for and how much a reply holds is limited here, and time by
the process in which they run (:mod:`interp.cli.tool_process`).
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from interp.cli.arguments import shaped
from interp.core.probe import Probe, find_probe, registered
from interp.core.replies import Reply, reply, reply_of
from interp.core.results import Provenance, Result
from models.errors import UserError
from models.stored_names import is_path

if TYPE_CHECKING:
    from models.transformer import ArithmeticTransformer

MOST_ROWS = 50
MOST_PROBLEMS, MOST_SOLVED = 10_000, 200
MOST_MINUTES = 10.0
LARGEST_FIELD, LARGEST_TEXT = 2_000, 4_000  # characters of a field of a reply's data, and of its sentence
SIDES = (200, 1_600)  # pixels of a figure's width and height
_NOT_FOR_TOOLS = ("model", "models", "a", "b", "pairs", "task", "tasks", "progress", "store", "cluster")


def list_models(paper: str = "", contains: str = "") -> Reply:
    """The models that come with the package: parameters, score, and what is proved on all inputs.

    Args:
        paper: only models of this paper, such as "MicroAdder". contains: only names with this text.
    """
    from interp.cli.listing import FILE, sources, table
    from interp.core.stored_data import kept

    rows = [row for row in kept(FILE, sources(), table)["rows"] if not row.pop("figures only")]
    rows = [row for row in rows if paper in ("", row["paper"]) and contains in row["model"]]
    if not rows:
        raise UserError(f"No model of paper {paper!r} has {contains!r} in its name.")
    return _short(reply("models", f"{len(rows)} models.", rows, most=MOST_ROWS))


def load(model: str, task: str = "") -> Reply:
    """Load a model and say what it is: sizes, task, examples.

    Args:
        model: a name of `list_models`, or a path: a run's folder, a weight file, a Hugging Face folder.
        task: what a file that does not say so is for, such as "{a:2}+{b:2}={s:3}; a + b; variables=addition".
    """
    from models.tasks.domain import NoDomain

    found = _model(model, task)
    asked, config = found.task, found.cfg
    sizes = ("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "d_vocab", "n_ctx", "act_fn", "normalization_type")
    try:
        size: int | None = asked.domain.size
    except NoDomain:
        size = None
    parameters = sum(p.numel() for p in found.parameters())
    data = {name: getattr(config, name, None) for name in sizes} | {
        "task": asked.name,
        "problems_in_all": size,
        "parameters": parameters,
        "roles": [role.label for role in asked.roles],
    }
    said = f"{model}: {parameters:,} parameters, {config.n_layers} layers, task {asked.name}"
    return _short(
        reply("model", f"{said}, {'an unknown number of' if size is None else f'{size:,}'} problems.", (), data)
    )


def probes(model: str, task: str = "") -> Reply:
    """The questions that apply to a model, for `ask`, `patch` and `figure`, with what each takes and its options."""
    found = _model(model, task)
    rows = [
        {"probe": each.name, "question": each.question, "takes": list(each.subjects), "options": _options(each)}
        for each in registered().values()
        if not each.why_not(found, found.task)
    ]
    return _short(reply("probes", f"{len(rows)} questions apply to {model}.", rows, most=len(rows)))


def ask(
    model: str,
    probe: str,
    task: str = "",
    shape: tuple[int, ...] = (),
    other: str = "",
    pairs: str = "",
    column: int | None = None,
    n: int | None = None,
    seed: int = 0,
    options: dict[str, Any] | None = None,
) -> Reply:
    """Ask a model a question of `probes`.

    Args:
        shape: the task's shape, for tasks of many (operands and digits).
        other: the second model, for questions about two.
        pairs: kind of pairs of problems, for questions that take them: "made carry", "passed carry", "digit" and so on;
            column: of the pairs; n: how many problems, or pairs.
        seed: of the problems that are drawn.
        options: further arguments of the question by name, such as {"runs": 2000} of attack.
    """
    return _short(reply_of(_asked(model, probe, task, shape, other, pairs, column, n, seed, options), MOST_ROWS))


def patch(
    model: str,
    pairs: str,
    column: int | None = None,
    task: str = "",
    site: str = "resid_pre",
    direction: Literal["denoise", "noise", "both"] = "denoise",
    n: int = 128,
    seed: int = 0,
) -> Reply:
    """Patch activations between pairs of problems that differ in one thing, and measure what each place restores.

    Args:
        pairs: their kind, such as "made carry"; column: where they differ; n: how many.
        site: the activation, such as "resid_pre", "z", "v" or "mlp_out".
        direction: "denoise" patches the clean run's activations into the corrupted run; "noise" does the reverse.
    """
    options = {"site": site, "direction": direction}
    return _short(
        reply_of(_asked(model, "activation_patching", task, (), "", pairs, column, n, seed, options), MOST_ROWS)
    )


def certify(
    model: str,
    task: str = "",
    shape: tuple[int, ...] = (),
    arithmetic: Literal["float", "interval", "float32"] | None = None,
    minutes: float = 1.0,
) -> Reply:
    """Judge a model on all inputs: certified, refuted with a wrong problem, undecided, or only sampled.

    The verdict is `result.data.status`; `result.data.counterexample` is a problem that the model, run, answers wrong.

    Args:
        arithmetic: "float32" encloses rounding, "interval" is about the reals, "float" samples and proves nothing.
        minutes: how long to try.
    """
    if not 0 < minutes <= MOST_MINUTES:
        raise UserError(f"minutes must be above 0 and at most {MOST_MINUTES:g}, not {minutes:g}.")
    options = {"arithmetic": arithmetic, "minutes": minutes}
    return _short(reply_of(_asked(model, "certify", task, shape, "", "", None, None, 0, options), MOST_ROWS))


def solve(model: str, problems: list[str], task: str = "") -> Reply:
    """Let a model answer problems such as "57+48", decoded greedily, next to the right answers."""
    if not 1 <= len(problems) <= MOST_SOLVED:
        raise UserError(f"Give 1 to {MOST_SOLVED} problems, not {len(problems)}.")
    return _short(answers(_model(model, task), problems))


def figure(
    model: str,
    probe: str,
    kind: str = "",
    width: int = 900,
    height: int = 500,
    task: str = "",
    shape: tuple[int, ...] = (),
    other: str = "",
    pairs: str = "",
    column: int | None = None,
    n: int | None = None,
    seed: int = 0,
    options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Draw the answer to a question as a PNG; the arguments are those of `ask`.

    Args:
        kind: which of the result's figures; its default unless given. width, height: in pixels.
    """
    if not all(SIDES[0] <= side <= SIDES[1] for side in (width, height)):
        raise UserError(f"A figure is {SIDES[0]} to {SIDES[1]} pixels wide and high, not {width} by {height}.")
    found = _asked(model, probe, task, shape, other, pairs, column, n, seed, options)
    drawn = found.figure(kind).update_layout(width=width, height=height)
    return {"figure": drawn.to_json(), "reply": _short(reply_of(found, 0, whole=False)).to_dict()}


TOOLS = (list_models, load, probes, ask, patch, certify, solve, figure)


def answers(model: ArithmeticTransformer, problems: tuple[str, ...] | list[str]) -> Reply:
    """A model's answers, decoded greedily, one row each: problem, answer (None if it spells no number), expected,
    right."""
    from models.evaluation import predict

    rows = []
    for text in problems:
        task = model.task.for_problems([text])
        problem = task.as_problems([text])
        (answer,) = task.decode(predict(model, problem, method="greedy", task=task))
        (right,) = task.decode(task.targets(problem))
        shown = None if answer == task.no_number else answer
        rows.append({"problem": text, "answer": shown, "expected": right, "right": answer == right})
    said = f"{sum(row['right'] for row in rows)} of {len(rows)} right, decoded greedily"
    return reply("answers", said, rows, provenance=Provenance(len(rows), None, "problems that were given"))


def _model(name: str, task: str) -> ArithmeticTransformer:
    changed = Path(name).stat().st_mtime_ns if is_path(name) and Path(name).exists() else 0
    return _loaded(name, task, changed)


@lru_cache(maxsize=8)
def _loaded(name: str, task: str, changed: int) -> ArithmeticTransformer:
    import models

    return models.load(name, task=task or None)


def _asked(
    model: str,
    probe: str,
    task: str,
    shape: tuple[int, ...],
    other: str,
    pairs: str,
    column: int | None,
    n: int | None,
    seed: int,
    options: dict[str, Any] | None,
) -> Result:
    """The result of a probe with the subjects that it needs."""
    from models.tasks.pair_kinds import problem_pairs

    found, question = _model(model, task), find_probe(probe)
    asked_about = shaped(found.task, tuple(shape))
    if why := question.why_not(found, asked_about):
        raise UserError(f"{probe} does not apply to {model}: {why}.")
    if n is not None and not 1 <= n <= MOST_PROBLEMS:
        raise UserError(f"n must be at least 1 and at most {MOST_PROBLEMS:,}, not {n}.")
    allowed = _options(question)
    given = dict(options or {})
    for name in given:
        if name not in allowed:
            raise UserError(f"{probe} takes no option {name!r}; it takes {', '.join(allowed) or 'none'}.")
    subjects: dict[str, Any] = {"model": found, "a": found}
    if other:
        subjects["b"] = _model(other, task)
        subjects["models"] = [found, subjects["b"]]
    if pairs:
        where = {} if column is None else {"column": column}
        drawn = {"seed": seed} | ({} if n is None else {"n": n})
        subjects["pairs"] = problem_pairs(asked_about, pairs, **where, **drawn)
    subjects |= {name: given.pop(name) for name in question.subjects if name in given}
    if missing := [name for name in question.subjects if name not in subjects]:
        raise UserError(f"{probe} needs {' and '.join(missing)}; see the arguments of ask.")
    own = {"task": asked_about, "seed": seed} | ({} if n is None or pairs else {"n": n})
    passed = {name: value for name, value in (own | given).items() if question.takes(name)}
    if n is not None and not pairs and not question.takes("n"):
        raise UserError(f"{probe} takes no number of problems.")
    return question.ask(*(subjects[name] for name in question.subjects), **passed)


def _options(question: Probe) -> list[str]:
    """Names of the arguments that can be given as JSON."""
    import inspect

    return [name for name in inspect.signature(question.ask).parameters if name not in _NOT_FOR_TOOLS]


def _short(whole: Reply) -> Reply:
    """A reply whose sentence and fields of data are of a size to be read; what is longer is left out of the data."""
    found = whole.result
    data = {name: value for name, value in found.data.items() if len(json.dumps(value)) <= LARGEST_FIELD}
    cut = found.sentence if len(found.sentence) <= LARGEST_TEXT else found.sentence[:LARGEST_TEXT] + " ..."
    return replace(whole, result=replace(found, sentence=cut, data=data))
