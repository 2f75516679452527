"""The explorer in Jupyter: an anywidget that passes messages between :class:`Session` and ``view.js``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from interp.site.explorer.session import Session

HERE = Path(__file__).parent


class Explorer(anywidget.AnyWidget):
    """The view of a session. ``start`` is what it draws first; questions and answers then go as messages."""

    _esm = HERE / "view.js"
    _css = HERE / "view.css"
    start = traitlets.Dict().tag(sync=True)

    def __init__(self, session: Session, **options: Any):
        super().__init__(start=session.start, **options)
        self.session = session
        self.on_msg(self.answer)

    def answer(self, widget: Any, content: Any, buffers: Any = None) -> None:
        """Send the session's reply to a view's message."""
        self.send(self.session.reply(content))
