"""What a reader must know before a chapter, in words that depend on the model's task."""

from __future__ import annotations

from interp.core.probe import columns
from interp.site.story import Story


def _in_tens(story: Story) -> bool:
    """Whether the task adds decimal digits column by column."""
    return story.signal == "carry" and not columns(2, adds=True)(story.model, story.model.task) and _base(story) == 10


def _base(story: Story) -> int:
    return int(getattr(story.model.task, "base", 10))


def about_columns(story: Story) -> str:
    """What a digit of a sum depends on; of other tasks nothing."""
    if not _in_tens(story):
        return ""
    return (
        "A digit depends on the two digits of its own column and on the carry from the previous one. If the attention "
        "scores of the two columns lie ln 10 apart, one unit of the own column weighs as much as ten of the previous."
    )


def about_switches(story: Story) -> str:
    """Why a neuron has to switch."""
    if story.signal == "carry" and "generate" in story.variables and _base(story) == 10:
        return "A column that adds up to ten or more writes its total less ten. Something has to switch there."
    return "A column whose difference is negative borrows. Something has to switch there." * (story.signal == "borrow")


def about_carry(story: Story) -> str:
    """What the two problems of a pair differ in."""
    if story.signal and "generate" not in story.variables:
        return f"Two problems differ in one {story.signal}. Parts of one run are put into the other."
    if not story.signal:
        and_so = ", and so in which number is larger" if "order" in story.variables else " or token, and in the answer"
        return f"Two problems differ in one digit{and_so}. Parts of one run are put into the other."
    ten = _base(story) == 10
    makes = f"its digits add up to {'ten' if ten else _base(story)} or more"
    passes = f"they add up to {'nine' if ten else _base(story) - 1}"
    if story.signal == "borrow":
        makes, passes = "its difference is negative", "its digits are equal"
    circuit = " A circuit is a set of edges that is enough for the digit with it." * (story.model.cfg.n_layers == 1)
    return (
        f"Two problems differ in one {story.signal}. The previous column makes it ({makes}) or passes it on "
        f"({passes}). Parts of one run are put into the other.{circuit}"
    )


def about_others(story: Story) -> str:
    """Which models are asked, too."""
    twin = "a twin whose numbers were set by hand, and to " * (story.twin is not None)
    return f"The same questions to {twin}the adder of another paper."
