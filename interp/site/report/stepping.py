"""The page's explorers: which models are stepped through."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from interp.site.explorer import assets, static_view
from models.zoo import load

#: What the page steps through where it has them: the first model beside its twin with parameters set by hand.
CHOSEN = (("microadder-57", "microadder-57-by-hand"), ("adder-456",))
MOST = 2  # models of their own, on a page without any of those


def step_views(names: Sequence[str]) -> list[tuple[str, Markup]]:
    """(title, view) of each explorer, the script and style with the first. A second each, and 6 bytes a weight.

    Raises:
        UserError: a model that cannot be loaded.
    """
    chosen = [pair for pair in CHOSEN if pair[0] in names] or [(name,) for name in names[:MOST]]
    views = []
    for models in chosen:
        view = static_view([load(name) for name in models], with_assets=False)
        views.append((" beside ".join(models), view if views else assets() + view))
    return views
