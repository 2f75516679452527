"""The command ``interp compare``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from interp.cli.arguments import Force, HowMany, Json, ModelNames, Page, one_thread
from interp.cli.outputs import STDOUT, write_reply
from models.errors import UserError

if TYPE_CHECKING:
    from interp.core.results import Result

_PAGE = Path("compare.html")


@dataclass(frozen=True)
class Compare:
    """Compare models on one page.

    Two models of one format are matched head by head and neuron by neuron, with their distances. More than two, or
    models of different formats, are asked the same questions, one row per model.
    """

    models: Annotated[ModelNames, tyro.conf.arg(metavar="MODEL MODEL [MODEL ...]", help_behavior_hint="(required)")]
    """Zoo names, constructed models, or models' folders or files (with --task if they do not say their own)."""
    out: Page = _PAGE
    """The page to write (none with --json - alone)."""
    json: Json = None
    problems: HowMany = None
    """How many problems to use; more take more time."""
    seed: int = 0
    """Seed of the problems and controls that are drawn."""
    force: Force = False

    def run(self) -> None:
        if len(self.models) < 2:
            raise UserError("Comparing takes at least two models.")
        from interp.cli.own_files import load_model
        from interp.compare.compare import same_format
        from interp.core.replies import reply_of
        from interp.core.sections import Page
        from interp.site.pages import page_html
        from models.files.checkpoint import write_bytes_atomic

        one_thread()
        loaded = [load_model(name) for name in self.models]
        if len(loaded) == 2 and same_format(*(model.task for model in loaded)):
            found, title, sections, data = self._matched(*loaded)
        else:
            found, title, sections, data = self._asked(loaded)
        command = f"interp compare {' '.join(self.models)}"
        if self.json != STDOUT or self.out != _PAGE:  # the JSON alone, unless a page is asked for as well
            write_bytes_atomic(self.out, page_html(Page(title, sections, data), command).encode())
        write_reply(self.json, reply_of(found))
        print(sections[0].text)

    def _matched(self, a: Any, b: Any) -> tuple[Result, str, Sequence[Any], dict[str, Any]]:
        from interp.compare.compare import compare
        from interp.compare.comparison_sections import matched_data, matched_sections

        found = compare(a, b, n=128 if self.problems is None else self.problems, seed=self.seed)
        return found, f"{found.names[0]} next to {found.names[1]}", matched_sections(found), matched_data(found)

    def _asked(self, loaded: Sequence[Any]) -> tuple[Result, str, Sequence[Any], dict[str, Any]]:
        from interp.compare.comparison_sections import table_sections
        from interp.compare.many import PROBLEMS, compare_models

        n = PROBLEMS if self.problems is None else self.problems
        table = compare_models(loaded, n=n, seed=self.seed, progress=sys.stderr.isatty())
        return table, f"{len(loaded)} models, the same questions", table_sections(table), table.to_dict()
