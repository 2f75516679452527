"""The tools of ``interp mcp``: typed functions that answer with a :class:`interp.core.replies.Reply`.

They read models and write nothing. What an argument may ask for and how much a reply holds is limited here, and time
and memory by the process in which they run (:mod:`interp.cli.mcp_process`). A reply is a sentence, a few rows of the
columns that say most, and small fields; ``rows`` and ``detail`` ask for more.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from interp.cli import asked_probes
from interp.cli.own_flags import fields_of
from interp.cli.shared_options import shaped
from interp.cli.written_files import warned
from interp.core.probe import registered
from interp.core.replies import Reply, reply, reply_of
from interp.core.results import Result
from models.calls import shown
from models.errors import Caution, UserError
from models.files import is_left_out, is_path
from models.number_format import counted
from models.transformer import model_name

if TYPE_CHECKING:
    from models.transformer import ArithmeticTransformer

ROWS, MOST_ROWS = 10, 1_000  # of a reply's table, unless more are asked for, and at most
KEY_COLUMNS = 8
SMALL_FIELD = 300  # characters of a field of a reply's data without detail
_BESIDE = ("low", "high", "spread")  # columns that stand beside the one they belong to
MOST_PROBLEMS, MOST_SOLVED = 10_000, 200
MOST_MINUTES = 10.0
SHARE_OF_TIME = 0.75  # of a call, for a question that takes a time of its own
_limit = 60 * MOST_MINUTES / SHARE_OF_TIME  # seconds of a call; the process of the tools sets it
LARGEST_FIELD, LARGEST_TEXT = 2_000, 4_000  # characters of a field of a reply's data, and of its sentence
SIDES = (200, 1_600)  # pixels of a figure's width and height


def list_models(paper: str = "", contains: str = "", rows: int = ROWS, detail: bool = False) -> Reply:
    """The models that come with the package: parameters, score, and what is proved on all inputs. `result.data.models`
    has all names.

    Args:
        paper: only models of this paper, such as "MicroAdder". contains: only names with this text.
        rows: how many rows. detail: whether they have all columns.
    """
    from interp.cli.list_models import rows_now

    found = [row for row in rows_now() if not row.pop("figures only")]
    found = [row for row in found if paper in ("", row["paper"]) and contains in row["model"]]
    found = [row | {"installed": not is_left_out(row["model"])} for row in found]
    if not found:
        raise UserError(f"No model of paper {shown(paper)} has {shown(contains)} in its name.")
    names = [row["model"] for row in found]
    whole = _short(reply("models", f"{counted(len(found), 'model')}.", found, most=_rows(rows)), detail)
    return replace(whole, result=replace(whole.result, data=whole.result.data | {"models": names}))


def load(model: str, task: str = "", config: str = "") -> Reply:
    """Load a model and say what it is: sizes, task, examples.

    Args:
        model: a name of `list_models`, or a path: a run's folder, a weight file, a Hugging Face folder.
        task: what a file that does not say so is for, such as "{a:2}+{b:2}={s:3}; a + b; variables=addition".
        config: what else it does not say, such as "act_fn=gelu,n_heads=4".
    """
    from models.tasks import NoDomain

    found = _model(model, task, config)
    asked, cfg = found.task, found.cfg
    sizes = ("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "d_vocab", "n_ctx", "act_fn", "normalization_type")
    try:
        size: int | None = asked.domain.size
    except NoDomain:
        size = None
    parameters = sum(p.numel() for p in found.parameters())
    data = {name: getattr(cfg, name, None) for name in sizes} | {
        "task": asked.name,
        "problems_in_all": size,
        "parameters": parameters,
        "roles": [role.label for role in asked.roles],
    }
    problems = "an unknown number of problems" if size is None else counted(size, "problem")
    layers = counted(cfg.n_layers, "layer")
    said = f"{model_name(found)}: {counted(parameters, 'parameter')}, {layers}, task {asked.name}, {problems}."
    return _short(reply("model", said, (), data), detail=True)


def guess(model: str, config: str = "", seconds: float = 12.0, rows: int = ROWS) -> Reply:
    """Guess what a file that does not say its task is for, by trying formats on it. The other tools take the `task`
    of a row, and its `config` as NAME=VALUE. It stays a guess.

    Args:
        model: a path. config: what the file does not say, as for `load`.
        seconds: after this time no further formats are tried. rows: how many proposals.
    """
    import models

    if not 0 < seconds <= 60 * MOST_MINUTES:
        raise UserError(f"seconds must be above 0 and at most {60 * MOST_MINUTES:g}, not {seconds:g}.")
    most = _rows(rows)
    found = models.guess(Path(model), fields_of(config) if config else None, seconds=min(seconds, _time()))
    whole = asked_probes.guessed(found)
    return _short(replace(whole, result=replace(whole.result, rows=whole.result.rows[:most])), detail=True)


def probes(model: str, task: str = "", config: str = "", contains: str = "", detail: bool = False) -> Reply:
    """The questions that apply to a model, for `ask`, `patch` and `figure`, with what each takes.

    Args:
        contains: only names with this text, such as "attention". detail: with the options of each.
    """
    found = _model(model, task, config)
    rows = [
        {"probe": each.name, "question": each.question, "takes": list(each.subjects)}
        | ({"options": asked_probes.options_of(each)} if detail else {})
        for each in registered().values()
        if contains in each.name and not each.why_not(found, found.task)
    ]
    said = f"{counted(len(rows), 'question')} {'applies' if len(rows) == 1 else 'apply'} to {model_name(found)}."
    return _short(reply("probes", said, rows, most=len(rows)), detail=True)


def ask(
    model: str,
    probe: str,
    task: str = "",
    config: str = "",
    shape: tuple[int, ...] = (),
    other: str = "",
    pairs: str = "",
    column: int | None = None,
    n: int | None = None,
    seed: int = 0,
    options: dict[str, Any] | str | None = None,
    rows: int = ROWS,
    detail: bool = False,
) -> Reply:
    """Ask a model a question of `probes`.

    Args:
        shape: the task's shape, for tasks of many (operands and digits).
        other: the second model, for questions about two.
        pairs: kind of pairs of problems, for questions that take them: "made carry", "passed carry", "digit" and so on;
            column: of the pairs; n: how many problems, or pairs.
        seed: of the problems that are drawn.
        options: further arguments of the question by name, such as {"runs": 2000} of attack, or "runs=2000".
        rows: how many rows of the result's table; detail: whether they have all columns, with intervals, and the data
            its longer fields.
    """
    most = _rows(rows)
    found, said = _asked(model, probe, task, config, shape, other, pairs, column, n, seed, options)
    whole = reply_of(found, most)
    return _short(replace(whole, result=replace(whole.result, sentence=whole.result.sentence + said)), detail)


def patch(
    model: str,
    pairs: str = "",
    column: int | None = None,
    task: str = "",
    config: str = "",
    clean: str = "",
    corrupted: str = "",
    site: str = "resid_pre",
    direction: Literal["denoise", "noise", "both"] = "denoise",
    n: int = 128,
    seed: int = 0,
    rows: int = ROWS,
    detail: bool = False,
) -> Reply:
    """Patch activations between pairs of problems that differ in one thing, and measure what each place restores.

    Args:
        pairs: their kind, such as "made carry"; column: where they differ; n: how many.
        clean, corrupted: in place of their kind, two problems, such as "15+27" and "15+22".
        site: the activation, such as "resid_pre", "z", "v" or "mlp_out".
        direction: "denoise" patches the clean run's activations into the corrupted run; "noise" does the reverse.
        rows, detail: as for `ask`.
    """
    options = {"site": site, "direction": direction}
    if bool(clean) != bool(corrupted) or bool(clean) == bool(pairs):
        raise UserError("Give the kind of pairs, or two problems as clean and corrupted.")
    most, given = _rows(rows), (clean, corrupted) if clean else pairs
    found, _ = _asked(
        model, "activation_patching", task, config, (), "", given, column, None if clean else n, seed, options
    )
    return _short(reply_of(found, most), detail)


def certify(
    model: str,
    task: str = "",
    config: str = "",
    shape: tuple[int, ...] = (),
    arithmetic: Literal["float", "interval", "float32"] | None = None,
    minutes: float = 1.0,
    rows: int = ROWS,
    detail: bool = False,
) -> Reply:
    """Judge a model on all inputs: certified, refuted with a wrong problem, undecided, or only sampled.

    The verdict is `result.data.status`; `result.data.counterexample` is a problem that the model, run, answers wrong.

    Args:
        arithmetic: "float32" encloses rounding, "interval" is about the reals, "float" samples and proves nothing.
        minutes: how long to try; what is undecided then, or shortly before the server's --seconds, stays so.
        rows, detail: as for `ask`.
    """
    if not 0 < minutes <= MOST_MINUTES:
        raise UserError(f"minutes must be above 0 and at most {MOST_MINUTES:g}, not {minutes:g}.")
    options = {"arithmetic": arithmetic, "minutes": minutes}
    return ask(model, "certify", task, config, shape, options=options, rows=rows, detail=detail)


def solve(model: str, problems: list[str], task: str = "", config: str = "") -> Reply:
    """Let a model answer problems such as "57+48", decoded greedily, next to the right answers."""
    if not 1 <= len(problems) <= MOST_SOLVED:
        raise UserError(f"Give 1 to {MOST_SOLVED} problems, not {len(problems)}.")
    return _short(asked_probes.answers(_model(model, task, config), problems), detail=True)


def figure(
    model: str,
    probe: str,
    kind: str = "",
    width: int = 900,
    height: int = 500,
    task: str = "",
    config: str = "",
    shape: tuple[int, ...] = (),
    other: str = "",
    pairs: str = "",
    column: int | None = None,
    n: int | None = None,
    seed: int = 0,
    options: dict[str, Any] | str | None = None,
) -> dict[str, Any]:
    """Draw the answer to a question as a PNG; the arguments are those of `ask`.

    Args:
        kind: which of the result's figures; its default unless given. width, height: in pixels.
    """
    if not all(SIDES[0] <= side <= SIDES[1] for side in (width, height)):
        raise UserError(f"A figure is {SIDES[0]} to {SIDES[1]} pixels wide and high, not {width} by {height}.")
    found, _ = _asked(model, probe, task, config, shape, other, pairs, column, n, seed, options)
    drawn = found.figure(kind).update_layout(width=width, height=height)
    return {"figure": drawn.to_json(), "reply": _short(reply_of(found, 0, whole=False), detail=False).to_dict()}


TOOLS = (list_models, load, guess, probes, ask, patch, certify, solve, figure)


def limit_time(seconds: float) -> None:
    """Let questions that take a time of their own end before a call that may take so many seconds is stopped."""
    global _limit
    _limit = seconds


def _time() -> float:
    """Seconds that a question may try; the rest of a call is for what is read, and for its last step."""
    return max(1.0, min(SHARE_OF_TIME * _limit, _limit - 10.0))


def _model(name: str, task: str, config: str) -> ArithmeticTransformer:
    changed = Path(name).stat().st_mtime_ns if is_path(name) and Path(name).exists() else 0
    found, said = _loaded(name, task, config, changed)
    for text in said:
        warnings.warn(text, category=Caution, stacklevel=2)
    return found


@lru_cache(maxsize=8)
def _loaded(name: str, task: str, config: str, changed: int) -> tuple[ArithmeticTransformer, list[str]]:
    """A model, and the warnings of its loading, which every call that is about it repeats."""
    import models

    with warned() as said:
        return models.load(name, task=task or None, config=fields_of(config) if config else None), said


def _asked(
    model: str,
    probe: str,
    task: str,
    config: str,
    shape: tuple[int, ...],
    other: str,
    pairs: str | tuple[str, str],
    column: int | None,
    n: int | None,
    seed: int,
    options: dict[str, Any] | str | None,
) -> tuple[Result, str]:
    """A probe's result within the limits of tools, and what is to be said of its time; ``pairs`` are their kind, or two
    problems."""
    found = _model(model, task, config)
    asked_about = shaped(found.task, tuple(shape))
    given = fields_of(options, "Options are") if isinstance(options, str) else dict(options or {})
    for how_many in (n, given.get("n")):
        if how_many is not None and (type(how_many) is not int or not 1 <= how_many <= MOST_PROBLEMS):
            raise UserError(f"n must be at least 1 and at most {MOST_PROBLEMS:,}, not {shown(how_many)}.")
    for name, value in given.items():
        if _size(value) > MOST_PROBLEMS:
            raise UserError(f"The option {name} asks for more than {MOST_PROBLEMS:,}, which is the most.")
    second = _model(other, task, config) if other else None
    given, said = asked_probes.within(asked_probes.applicable(probe, found, model, asked_about), given, _time())
    result = asked_probes.asked(
        probe, found, model, asked_about, other=second, pairs=pairs, column=column, n=n, seed=seed or None,
        options=given,
    )  # fmt: skip
    return result, said


def _size(value: Any) -> float:
    """How much an option asks for: a number, or how many things are listed."""
    if isinstance(value, list | dict):
        return len(value)
    return abs(value) if isinstance(value, int | float) else 0


def _rows(rows: int) -> int:
    if not 0 <= rows <= MOST_ROWS:
        raise UserError(f"A reply has 0 to {MOST_ROWS:,} rows, not {shown(rows)}.")
    return rows


def _short(whole: Reply, detail: bool) -> Reply:
    """A reply of a size to be read: its sentence, its table and its fields of data; what is longer is left out, and of
    columns the data say which."""
    found, largest = whole.result, LARGEST_FIELD if detail else SMALL_FIELD
    data = {name: value for name, value in found.data.items() if len(json.dumps(value)) <= largest}
    cut = found.sentence if len(found.sentence) <= LARGEST_TEXT else found.sentence[:LARGEST_TEXT] + " ..."
    rows = [{name: _rounded(value) for name, value in row.items()} for row in found.rows]
    if rows and not detail:
        names = [name for name in rows[0] if name.rpartition("_")[2] not in _BESIDE][:KEY_COLUMNS]
        if left := [name for name in rows[0] if name not in names]:
            data["columns_with_detail"] = left
        rows = [{name: row[name] for name in names} for row in rows]
    return replace(whole, result=replace(found, sentence=cut, rows=rows, data=data))


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
