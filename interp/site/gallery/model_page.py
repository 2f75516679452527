"""The page of one model: facts, and the chapters of its story that the gallery shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from markupsafe import Markup

from interp.proofs.stored_certificates import on_all_inputs
from interp.site.chapters import chapters
from interp.site.gallery import facts as say
from interp.site.gallery.papers import paper_of
from interp.site.gallery.pictures import attention_pattern, attention_svg
from interp.site.gallery.render import Link, Part, code, page
from interp.site.story import HAND_BUILT, Story
from models.registry import get_spec
from models.tasks.sequences import SequenceTask

N = 1024  # problems for a probe that does not say how many
NOT_KNOWN = "not known: no certificate"


@dataclass(frozen=True)
class Made:
    """A page, and its row in the index."""

    html: bytes
    row: dict[str, Any] | None = None


def path_of(name: str) -> str:
    return f"model/{name}.html"


def model_page(name: str, links: Sequence[Link], views: Sequence[Link] = ()) -> Made:
    """The page of a zoo entry or of a constructed model, and its row. ``views``: the site's views that show it.

    Raises:
        UserError: an unknown model, or a file of its entry that was changed.
    """
    story = Story.of(name, N)
    pattern, pictured = attention_pattern(story.model)
    svg = str(attention_svg(pattern))
    facts = [
        ("Parameters", f"{story.parameters:,}" if story.parameters else "none: every weight is constructed"),
        ("Task", story.model.task.name),
        ("Architecture", say.architecture(story.model.cfg)),
        ("Source", get_spec(name).source),
        *_known(story),
        *([("Step by step", _linked(views))] if views else []),
        ("In Python", code(f'models.{"load" if story.entry else "build"}("{name}")')),
    ]
    parts = [
        Part(chapter.anchor, chapter.heading, items)
        for chapter in chapters("gallery")
        if (items := chapter.items(story))
    ]
    html = page(
        "model.html.j2", path_of(name), name, links, name=name, sentence=_sentence(story), svg=svg, parts=parts,
        pictured=f"Attention on {pictured}", facts=facts,
    )  # fmt: skip
    return Made(html, asdict(_row(story, svg)))


def _linked(views: Sequence[Link]) -> Markup:
    """Links to views, relative to a model's page."""
    return Markup(", ").join(Markup("<a href='../{}'>{}</a>").format(link.path, link.label) for link in views)


def _row(story: Story, svg: str) -> say.Row:
    fields = {} if story.score is None else say.score_fields(story.score)
    if story.entry is not None:
        fields |= say.seed_fields(story.entry["training"])
    if story.name == HAND_BUILT:
        fields["rung"] = "certified with rounding"
    elif story.certificate is not None and story.certificate.status == "certified":
        fields["rung"] = story.certificate.provenance.rung
    elif on_all_inputs(story.name).startswith("refuted"):
        fields["rung"] = "refuted"
    how = get_spec(story.name).made if story.entry else "constructed"
    name, task = story.name, story.model.task.name
    return say.Row(name, path_of(name), paper_of(name), how, task, story.parameters, svg, **fields)


def _sentence(story: Story) -> str:
    """The first paragraph: how the model was made, and how far it is known to be right."""
    task, certificate = story.model.task, story.certificate
    if story.entry is None and isinstance(task, SequenceTask):
        made = "follows from the construction" if story.name == HAND_BUILT else "is constructed, in the manner"
        return f"No parameters: every weight {made} of Theorem 4.1. {story.proved}"
    words = "" if story.score is None else say.score_words(story.score)
    if story.entry is None:
        return f"{story.parameters:,} numbers, all set by hand; nothing was trained. {words}."
    proved = "" if certificate is None else say.proved_words(certificate)
    if (published := story.entry["training"].get("published")) is not None:
        if published["on_test"]:  # the score bounds no error rate
            score = story.entry["score"]
            words = f"{score['correct']:,} of the {score['n']:,} problems that also selected them are answered right"
        return f"{story.parameters:,} free parameters, as others trained and published them: {words}. {proved}".rstrip()
    start = story.entry["training"].get("start")
    begun = "from a random start" if start is None else f"from a start near {start['origin'].partition(',')[0]}"
    return f"{story.parameters:,} free parameters, trained {begun} on {task.name}: {words}. {proved}".rstrip()


def _known(story: Story) -> list[tuple[str, Any]]:
    """What the list at the top says on how far the model is right, and on its training."""
    facts: list[tuple[str, Any]] = [("On all inputs", story.proved or on_all_inputs(story.name) or NOT_KNOWN)]
    if story.score is not None and story.name != HAND_BUILT:
        words = say.score_words(story.score)
        facts = [("Score", words)] if "loss" in story.score else [("Right of those tried", words), *facts]
    if story.entry is None:
        return facts
    return [*facts, *say.training_facts(story.entry["training"]), ("Files", say.files(story.entry, story.name))]
