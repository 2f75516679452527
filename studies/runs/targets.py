"""How a study is named: ``PAPER:WHAT``."""

from __future__ import annotations

from collections.abc import Collection

from models.errors import UserError, unknown_name


def check_target(target: str, known: Collection[str]) -> None:
    """Raises UserError, with the closest match, for a target that is not one of the ``known`` ones."""
    paper, colon, what = target.partition(":")
    if not colon:
        raise UserError(f"Name a figure or table as PAPER:WHAT, for example position-coupling:fig1, not {target!r}.")
    keys = {name.partition(":")[0] for name in known}
    if paper not in keys:
        raise unknown_name("paper", paper, keys)
    if target not in known:
        here = [name.partition(":")[2] for name in known if name.startswith(f"{paper}:")]
        raise unknown_name(f"study of {paper}", what, here)
