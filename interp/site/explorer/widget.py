"""The explorer in Jupyter: an anywidget that hands the models to the view and is not asked again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from interp.site.explorer.static import bundle

HERE = Path(__file__).parent


class Explorer(anywidget.AnyWidget):
    """The view of :func:`interp.site.explorer.pack.view_data`."""

    _esm = bundle() + "\nexport default { render };\n"
    _css = HERE / "view.css"
    start = traitlets.Dict().tag(sync=True)

    def __init__(self, start: dict[str, Any], **options: Any):
        super().__init__(start=start, **options)
