"""The commands that ask models: ask, patch, score and solve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from interp.cli.own_flags import fields_of, load_model, said
from interp.cli.page_commands import page_of
from interp.cli.shared_options import (
    HowMany,
    Json,
    Model,
    OptionalPage,
    Other,
    ProbeName,
    Problems,
    Shape,
    shaped,
)
from interp.cli.written_files import command_line, write_reply
from models.errors import UserError

_CALL = " " * 23  # before a call, so that the longest fits in 80 columns
#: What is added to a command so that a probe has what it needs besides the model.
_ADDED = {("model",): "", ("model", "pairs"): "--pairs KIND", ("a", "b"): "--other MODEL", ("models",): "--other MODEL"}


def ask(
    model: Model,
    probe: ProbeName = None,
    other: Other = None,
    pairs: Annotated[str | None, tyro.conf.arg(metavar="KIND")] = None,
    column: int | None = None,
    shape: Shape = (),
    problems: HowMany = None,
    seed: int = 0,
    options: Annotated[str | None, tyro.conf.arg(metavar="NAME=VALUE,...")] = None,
    out: OptionalPage = None,
    json: Json = None,
) -> None:
    """Ask a model what a probe asks; without a probe, list those that apply.

    Args:
        probe: A probe's name, from that list.
        other: The second model, for probes of two.
        pairs: The kind of the pairs of problems, for probes that take them, such as "made carry".
        column: Where the pairs differ; 0 is the units.
        problems: How many problems, or pairs; the probe's own number by default.
        seed: Seed of the problems and controls that are drawn.
        options: Further arguments of the probe, or a JSON object of them.
        out: Also write a page with the figure and the table here (HTML).
    """
    from interp.cli import asked_probes
    from interp.core.probe import find_probe
    from interp.site.pages import write_page

    loaded = load_model(model)
    task = shaped(loaded.task, shape)
    if probe is None:
        _list_probes(model, loaded, task, json)
        return
    found = asked_probes.asked(
        probe, loaded, model, task, other=None if other is None else load_model(other), pairs=pairs or "",
        column=column, n=problems, seed=seed, options=fields_of(options, "--options are") if options else {},
    )  # fmt: skip
    print(found)
    if out is not None:
        write_page(out, page_of(find_probe(probe), model, found), command_line())
    write_reply(json, found)


def _list_probes(model: str, loaded: Any, task: Any, json: Path | None) -> None:
    """Print the probes that apply, and what those need that need more than the model."""
    from interp.cli.parsing import filled
    from interp.core.probe import probes, registered
    from interp.core.replies import reply
    from models.number_format import counted
    from models.transformer import model_name

    rows = probes(loaded, task)
    width = max(map(len, rows.index), default=0)
    indent = " " * (width + 1)
    added = [_ADDED.get(registered()[name].subjects, rows.call[name]) for name in rows.index]
    rows = rows.assign(asked_here=[each in _ADDED.values() for each in added], added=added)
    sentence = f"{counted(len(rows), 'probe')} {'applies' if len(rows) == 1 else 'apply'} to {model_name(loaded)}."
    write_reply(json, reply("probes", sentence, rows.drop(columns="added").reset_index()))
    for name, row in rows.sort_values("added", key=lambda each: each != "", kind="stable").iterrows():
        print(filled(f"{name:<{width}} {row.question}", after=indent) + (f"\n{_CALL}{row.added}" if row.added else ""))
    if len(alone := rows.index[rows.added == ""]):
        print(f"\nAsk with a name:\n\n  $ interp ask {model} {alone[0]}{said()}")


def solve(model: Model, problems: Problems, json: Json = None) -> None:
    """Let a model answer problems, digit by digit, and say where it is wrong.

    Args:
        problems: Problems such as 57+48.
    """
    if not problems:
        raise UserError("There is no problem to solve: the list is empty.")
    from interp.cli.asked_probes import answers
    from models.solving import Solved

    found = answers(load_model(model), problems)
    print(*(Solved(**row) for row in found.result.rows), sep="\n")
    write_reply(json, found)


def patch(
    model: Model,
    clean: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CLEAN")],
    corrupted: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CORRUPTED")],
    site: str = "resid_pre",
    by: Literal["position", "role", "all", "component"] = "position",
    direction: Literal["denoise", "noise", "both"] = "denoise",
    target: str | None = None,
    out: OptionalPage = None,
    json: Json = None,
) -> None:
    """Patch activations between two problems that you type, and say which place restores the clean answer.

    Args:
        clean: A problem, such as 15+27.
        corrupted: Another of the same length, such as 15+22.
        site: The activation, such as resid_pre, z, v or mlp_out.
        by: A patch covers a position, all positions of a role, or all; component is a table of nodes, at all positions.
        direction: denoise patches the clean run into the corrupted one; noise does the reverse.
        target: The answer digit that is asked about, such as s1; by default the first that differs.
        out: Also write a page with the figure and the table here (HTML).
    """
    from interp.core.probe import find_probe
    from interp.site.pages import write_page
    from models.tasks import pairs

    loaded, question = load_model(model), find_probe("activation_patching")
    asked = pairs(loaded.task, [clean], [corrupted], target)
    found = question.ask(loaded, asked, site=site, by=by, direction=direction)
    print(found)
    if out is not None:
        write_page(out, page_of(question, model, found), command_line())
    write_reply(json, found)


def score(model: Model, method: Literal["teacher_forced", "greedy"] = "teacher_forced", json: Json = None) -> None:
    """Score a model on its task's test set (for example AdderBoard's 10,010 problems), by carry-chain length.

    Args:
        method: Both give the same verdict on a whole answer; greedy decodes token by token.
    """
    import models
    from interp.core.replies import reply
    from interp.core.results import Provenance

    loaded = load_model(model)
    if loaded.task.selected_by == "loss":
        loss = models.text_loss(loaded)
        print(f"{model}: {loss}")
        rests = Provenance(loss.n, None, f"characters in {loss.windows} windows of the text")
        write_reply(json, reply("TextLoss", str(loss), (), loss.to_dict(), rests))
        return
    found = models.score(loaded, method=method)
    table = found.to_dataframe()
    print(found, table.to_string(index=False, float_format="{:.4f}".format), sep="\n")
    rests = Provenance(found.n, None, found.problems, found.strength)
    write_reply(json, reply("Score", str(found), table, found.to_dict(), rests))
