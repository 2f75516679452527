"""The commands that ask about models: ask, attack, certify, compare, explore, patch, report, score and solve."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from interp.cli.own_flags import fields_of, load_model, said
from interp.cli.shared_options import (
    STORED,
    Bare,
    HowMany,
    Json,
    Model,
    Models,
    OptionalFile,
    OptionalOutput,
    OptionalPage,
    Other,
    Page,
    ProbeName,
    Problems,
    Shape,
    shaped,
)
from interp.cli.written_files import STDOUT, command_line, write_reply
from models.errors import UserError

if TYPE_CHECKING:
    from interp.core import sections
    from interp.core.probe import Probe
    from interp.core.results import Result

_COMPARED = Path("compare.html")


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


#: What is added to a command so that a probe has what it needs besides the model.
_CALL = " " * 23  # before a call, so that the longest fits in 80 columns
_ADDED = {("model",): "", ("model", "pairs"): "--pairs KIND", ("a", "b"): "--other MODEL", ("models",): "--other MODEL"}


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


def page_of(asked: Probe, name: str, found: Result) -> sections.Page:
    """The page of one answer: its sentence, its figure and its table."""
    from interp.core.sections import Page, Section, records

    table = found.to_dataframe()
    parts = [
        Section(asked.question, f"{found.sentence()}\n\n{found.provenance}.", figures=[found.figure()]),
        Section("In numbers", "", [table]),
    ]
    return Page(f"{asked.name} of {name}", parts, {"rows": records(table)})


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
    if loaded.task.compared_by == "loss":
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


def certify(
    model: Model,
    arithmetic: Literal["float", "interval", "float32"] | None = None,
    shape: Shape = (),
    json: Json = None,
    tolerance: float = 1e-6,
    digits_only: bool = False,
    exact_share: bool = False,
    minutes: float | None = 15.0,
    check: Annotated[OptionalFile, Bare(STORED)] = None,
    card: bool = False,
    standalone: OptionalOutput = None,
) -> int:
    """Prove that a model is right on every input, or find an input on which it is wrong. There are proofs for ten-digit
    adders of one or two layers, for hand-built models and for causal models on small domains. For other models with at
    most 2^20 problems, all of them are run through the model.

    Exit status: 0 certified, 1 refuted, 3 undecided, 4 only sampled (--arithmetic float, which proves nothing), 5
    proved for a rule such as a + b that was only tried to be the task's answer; with --check, that of the certificate
    if it holds.

    Args:
        arithmetic: For proofs: "float" samples (or runs all of a small domain) and proves nothing; "interval" is about
            the reals; and "float32" covers rounding.
        tolerance: How far apart the bounds on the share of wrong pairs may be, where the model is not certified.
        digits_only: For ten-digit adders: judge the eleven digits, as AdderBoard does, and not the EOS after them.
        exact_share: Judge a model that gets a quarter of 64 random problems wrong as any other, for the share of all.
        minutes: How many minutes to try (None: as many as it takes); what is not proved by then stays undecided.
        check: Verify this certificate against the model instead of making one; alone, the one that is stored with the
            model.
        card: Keep the certificate in the model's zoo entry, with a line on its card, if it is certified or refuted.
        standalone: Also write a file for certificates/check.py, which proves the claim without this package.
    """
    from interp import proofs
    from interp.proofs.columns.checker_export import require_checkable, write_standalone

    loaded = _with_card(model) if card else load_model(model)
    task = shaped(loaded.task, shape) if shape else None
    targets = "digits" if digits_only else "all"
    if standalone is not None:
        require_checkable(loaded, arithmetic, targets)
    if check is not None:
        found = proofs.check_certificate(_certificate(model, check), loaded, task)
    else:
        found = proofs.certify(
            loaded,
            arithmetic=arithmetic,
            task=task,
            tolerance=tolerance,
            targets=targets,
            minutes=minutes,
            exact_share=exact_share,
        )
    print("holds: " * (check is not None) + found.sentence())
    write_reply(json, found)
    if standalone is not None:
        write_standalone(found, loaded, standalone)
    if card:
        _keep_on_card(model, found)
    return found.exit_status


def _certificate(model: str, path: Path) -> Any:
    from interp.proofs import load_certificate
    from interp.proofs.stored_verdicts import stored_verdict

    if str(path) != STORED:
        return load_certificate(path)
    found = stored_verdict(model)
    if found is None:
        raise UserError(f"No certificate is stored with {model}; --check FILE takes one of your own.")
    return found


def _with_card(model: str) -> Any:
    """The model. Raises UserError for one without an entry, and so without a card, before the work."""
    from models.zoo import read_entry

    read_entry(model)
    return load_model(model)


def _keep_on_card(model: str, found: Any) -> None:
    from interp.proofs.stored_verdicts import store

    print(f"written to {store(model, found)}")


def attack(
    model: Model,
    shape: Shape = (),
    runs: int = 20_000,
    seed: int = 0,
    seconds: float | None = None,
    card: bool = False,
    json: Json = None,
) -> int:
    """Search along gradients for a problem that a model answers wrong; for models that no proof reaches.

    Exit status: 0 no failure found (which proves nothing), 1 a failure found and replayed, 2 bad input.

    Args:
        runs: Sequences through the model; a gradient counts as three. A random search gets as many.
        seed: Seed of both searches.
        seconds: Stop the attack after this many seconds; the result then depends on the machine.
        card: Keep the first wrong answer in the model's zoo entry, with a line on its card.
    """
    from interp.proofs import attacks

    loaded = _with_card(model) if card else load_model(model)
    task, progress = shaped(loaded.task, shape), sys.stderr.isatty()
    found = attacks.attack(loaded, task=task, runs=runs, seed=seed, seconds=seconds, progress=progress)
    print(found.sentence(), found.to_dataframe().to_string(index=False, float_format="{:.3f}".format), sep="\n")
    for wrong in found.wrong:
        answer = "no number" if wrong.predicted is None else wrong.predicted
        where = f"{wrong.first_wrong_target}, margin {wrong.margin:.3f}"
        print(f"{found.text(wrong.problem)} = {answer}   wrong: it is {wrong.expected} ({where})")
    write_reply(json, found)
    if card:
        _keep_on_card(model, found)
    return 1 if found.wrong else 0


def compare(
    models: Annotated[Models, tyro.conf.arg(metavar="MODEL MODEL [MODEL ...]", help_behavior_hint="(required)")],
    out: Page = _COMPARED,
    json: Json = None,
    problems: HowMany = None,
    seed: int = 0,
) -> None:
    """Compare models on one page.

    Two models of one format are matched head by head and neuron by neuron, with their distances. More than two, or
    models of different formats, are asked the same questions, one row per model.

    Args:
        models: Zoo names, constructed models, or models' folders or files (with --task if they do not say their own).
        out: The page to write (none with --json - alone).
        problems: How many problems to use; more take more time.
        seed: Seed of the problems and controls that are drawn.
    """
    if len(models) < 2:
        raise UserError("Comparing takes at least two models.")
    from interp.compare import comparison_sections as of
    from interp.compare.compare import compare, same_format
    from interp.compare.compare_models import compare_models
    from interp.core.sections import Page
    from interp.site.pages import write_page

    loaded = [load_model(name) for name in models]
    n: dict[str, Any] = {} if problems is None else {"n": problems}
    if len(loaded) == 2 and same_format(*(model.task for model in loaded)):
        found = compare(*loaded, **n, seed=seed)
        page = Page(f"{found.names[0]} next to {found.names[1]}", of.matched_sections(found), of.matched_data(found))
    else:
        found = compare_models(loaded, **n, seed=seed, progress=sys.stderr.isatty())
        page = Page(f"{len(loaded)} models, the same questions", of.table_sections(found), found.to_dict())
    if json != STDOUT or out != _COMPARED:  # the JSON alone, unless a page is asked for as well
        write_page(out, page, command_line())
    write_reply(json, found)
    print(page.sections[0].text)


def report(models: Models = (), out: Page = Path("report.html")) -> None:
    """Write one self-contained HTML page on how each model adds, chapter by chapter.

    Args:
        models: Zoo names or paths; the zoo's ten-digit adders of up to 1,000 parameters by default.
        out: The page to write.
    """
    from interp.site.report import write_report

    write_report(models, out, load=load_model, flags=said())


def explore(
    models: Annotated[Models, tyro.conf.arg(metavar="MODEL [MODEL]")] = (),
    problems: tuple[str, ...] = (),
    out: Page = Path("explore.html"),
) -> None:
    """Write a page that runs one or two models in the browser, on any problem. It shows attention, units, streams and
    logits at each digit, for the whole model or with components removed, scaled or patched from a second problem. It
    needs no kernel and no network; `interp.explore` shows the same in Jupyter.

    Args:
        models: One or two: zoo names, constructed models, or models' folders or files.
        problems: Problems to offer, such as --problems 57+48 99+1; examples for the models' task by default. Any can be
            typed.
        out: The page to write.
    """
    if not 1 <= len(models) <= 2:
        raise UserError(f"Name one model or two to explore, not {len(models)}.")
    from interp.site.explorer import write_explorer

    write_explorer(out, [load_model(name) for name in models], problems or None)
