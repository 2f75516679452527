"""How far sums generalise if heads see only near position ids: ``position-coupling:near-ids``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from interp.core.sections import Section
from interp.figures import theme
from interp.papers.position_coupling.squares import SQUARES, N, right_at, squares_sections
from interp.papers.position_coupling.studies import sources_of
from interp.papers.studies import Made, Settings, shows, study
from interp.papers.studies.runs import OutOfTime

TARGET = "position-coupling:near-ids"
SEEDS = 4
TEXT = """In larger problems pairs of position ids meet that never met in training (position-coupling:repairs). The
paper's construction needs no key whose ids are more than one away from the query's. So one arm hides all other keys,
in training and after it (attn_window=1). Another keeps the four offsets of ids that the construction uses: this column
and the one before it, of this running sum and of the one before it. The first arm sees all ids. Model, recipe, steps
and problems are the same: one layer of four heads, trained on sums of two to four numbers of one to four digits.

Each seed answers {n} problems of T_A for each square, with ids from 1 on; teacher-forced. In the first place of a sum
of four numbers there is a 3 at most, and of a running sum of three numbers a 2. More numbers bring larger digits
there, and a digit that was never followed by ">" is then followed by it. Such problems are counted apart. Nothing was
chosen by these numbers: the window is the construction's, and all seeds are shown."""
_COLOURS = (theme.GREY, theme.BLUE, theme.VERMILION)


@study(TARGET, "Sums far beyond the training range, by heads that see near ids alone")
def near_ids(settings: Settings) -> Made | None:
    """Train four seeds of each arm, in the folders of ``position-coupling:window``.

    Cost: 5 minutes per seed on an idle core.
    """
    n, seeds, rows = settings.problems or N, settings.seeds or SEEDS, []
    arms = sources_of("window", replace(settings, seeds=seeds))
    for label, several in arms.items():
        for source in several:
            settings.say(f"{label}: {source}")
            try:
                model = source.model()
            except OutOfTime:
                settings.say("Not finished; the same command goes on.")
                return None
            rows += [{"arm": label, "seed": source.seed} | right_at(model, model.task, size, n) for size in SQUARES]
    return Made({"rows": rows, "n": n, "trained": arms[label][0].variant.most})


@shows(TARGET)
def show_near_ids(data: Any) -> list[Section]:
    note = "Thick lines are medians over seeds, thin ones are seeds; from 5 to 9, sums have first digits that are new"
    return squares_sections(data, TEXT.format(n=data["n"]), note, _COLOURS)
