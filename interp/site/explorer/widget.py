"""The explorer in Jupyter: an anywidget that passes the models to the view, which runs them in the browser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from interp.site.explorer.pack import ExploredModel, task_data
from interp.site.explorer.static import bundle, write_page
from models.errors import UserError

HERE = Path(__file__).parent


class Explorer(anywidget.AnyWidget):
    """The view of :func:`interp.site.explorer.pack.view_data`. It asks the kernel only for the tokens of typed problems
    of tasks that it does not know."""

    _esm = bundle() + "\nexport default { render };\n"
    _css = HERE / "view.css"
    start = traitlets.Dict().tag(sync=True)

    def __init__(self, subjects: Sequence[ExploredModel], start: dict[str, Any], **options: Any):
        super().__init__(start=start, **options)
        self.subjects = tuple(subjects)
        self.on_msg(self.encode)

    def save(self, path: str | Path) -> None:
        """Write the view as a page of its own, as it was when it was made; it opens from disk, without a kernel.

        Raises:
            UserError: a path that is a folder.
        """
        write_page(Path(path), self.start)

    def encode(self, widget: Any, content: Any, buffers: Any = None) -> None:
        """Answer {"id", "problem"} with {"id", "rows": one per model, or null} or {"id", "error"}."""
        try:
            rows = [
                subject.row(content["problem"]) if task_data(subject.task)["kind"] == "table" else None
                for subject in self.subjects
            ]
            self.send({"id": content["id"], "rows": rows})
        except UserError as error:
            self.send({"id": content["id"], "error": str(error)})
