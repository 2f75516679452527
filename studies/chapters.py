"""What the studies add to the report on a model."""

from __future__ import annotations

import pandas as pd
from markupsafe import Markup

from interp.site.pages.items import commands, paragraph, table
from interp.site.story import HAND_BUILT, Chapter, Story, add_chapter
from studies.claims import table as headlines
from studies.papers import PAPERS


def _paper(story: Story) -> list[Markup]:
    """Where the model's paper says otherwise than was measured."""
    own = None if story.spec is None else story.spec.paper
    paper = next((paper.key for paper in PAPERS.values() if paper.name == own), None)
    rows = [
        {"where": line.where, "the paper": line.claim, "printed": line.printed, "measured": row.shown}
        for row in (headlines(paper).of_kind("behaviour").rows if paper else ())
        if row.label.startswith("differs") and (line := row.headline)
    ]
    if not rows:
        return []
    text = f"{len(rows)} of the paper's statements on what models do differ from what was measured:"
    return [paragraph(text), table(pd.DataFrame(rows)), commands([f"python -m studies headlines --paper {paper}"])]


def _beyond(story: Story) -> list[Markup]:
    """How the constructed transformer of any length answers problems far beyond the sizes that are proved."""
    if story.name != HAND_BUILT:
        return []
    from studies.position_coupling.hand_built import TARGET, load_grid

    again = f"python -m studies reproduce {TARGET} --size paper"
    return [paragraph(load_grid().sentence()), commands([again])]


add_chapter(Chapter("paper", "Where does its paper say otherwise?", _paper), after="account")
add_chapter(Chapter("tried", "How often is it right where it was tried?", _beyond), "right")
