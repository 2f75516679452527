"""The command ``interp ask``: any registered probe of one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from interp.cli.arguments import Force, HowMany, Json, ModelName, Named, OptionalPage, Shape, one_thread, shaped
from interp.cli.help import filled
from interp.cli.outputs import write_reply
from models.errors import UserError

if TYPE_CHECKING:
    from interp.core.probe import Probe
    from interp.core.results import Result
    from interp.core.sections import Page
    from models.transformer.hooked import HookedModel


def _check_probe(name: str) -> None:
    from interp.core.probe import find_probe

    find_probe(name)


@dataclass(frozen=True)
class Ask:
    """Ask a model what a probe asks; without a probe, list those that apply.

    Probes that take only a model are asked here; others (pairs of problems, two models) are called from Python.
    """

    model: ModelName
    """A zoo name, a constructed model, or a model's folder or file (with --task if it does not say its own)."""
    probe: Annotated[str | None, Named(_check_probe), tyro.conf.Positional, tyro.conf.arg(metavar="[PROBE]")] = None
    """A probe's name, from that list."""
    shape: Shape = ()
    """The task's shape, for tasks of many (operands and digits of an addition, say)."""
    problems: HowMany = None
    """How many problems; the probe's own number by default."""
    seed: int = 0
    """Seed of the problems and controls that are drawn."""
    out: OptionalPage = None
    """Also write a page with the figure and the table here (HTML)."""
    json: Json = None
    force: Force = False

    def run(self) -> None:
        from interp.cli.own_files import load_model
        from interp.core.probe import find_probe
        from interp.core.replies import reply_of
        from interp.site.pages import write_page

        one_thread()
        model = load_model(self.model)
        task = shaped(model.task, self.shape)
        if self.probe is None:
            self._list(model, task)
            return
        asked = find_probe(self.probe)
        if asked.subjects != ("model",):
            raise UserError(f"{asked.name} takes {', '.join(asked.subjects)}: call {asked.call} from Python.")
        if why := asked.why_not(model, task):
            raise UserError(f"{asked.name} does not apply to {self.model}: {why}.")
        if self.problems is not None and not asked.takes("n"):
            raise UserError(f"{asked.name} takes no number of problems.")
        number = {} if self.problems is None else {"n": self.problems}
        found = asked.answer(model, task=task, seed=self.seed, **number)
        print(found)
        if self.out is not None:
            write_page(self.out, page_of(asked, self.model, found), f"interp ask {self.model} {asked.name}")
        if self.json is not None:
            write_reply(self.json, reply_of(found))

    def _list(self, model: HookedModel, task: Any) -> None:
        """Print the probes that can be asked here, and those that need Python."""
        from interp.cli.own_files import said
        from interp.core.probe import applying, probes
        from interp.core.replies import reply

        indent = " " * 23
        rows, here = probes(model, task), [each.name for each in applying(model, task)]
        table = rows.assign(asked_here=rows.index.isin(here)).reset_index()
        write_reply(self.json, reply("probes", f"{len(rows)} probes apply to {self.model}.", table))
        told = lambda name: filled(f"{name:<22} {rows.question[name]}", after=indent)  # noqa: E731
        for name in here:
            print(told(name))
        print("\nFrom Python:\n")
        for name in rows.index.difference(here, sort=False):
            print(f"{told(name)}\n{indent}{rows.call[name]}")
        if here:
            print(f"\nAsk with a name:\n\n  $ interp ask {self.model} {here[0]}{said()}")


def page_of(asked: Probe, name: str, found: Result) -> Page:
    """The page of one answer: its sentence, its figure and its table."""
    from interp.core.sections import Page, Section, records

    table = found.to_dataframe()
    sections = [
        Section(asked.question, f"{found.sentence()}\n\n{found.provenance}.", figures=[found.figure()]),
        Section("In numbers", "", [table]),
    ]
    return Page(f"{asked.name} of {name}", sections, {"rows": records(table)})
