"""The report's page, made from its chapters."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from tqdm import tqdm

import models
from interp.site.chapters import chapters
from interp.site.explorer import assets
from interp.site.facts import certificate_words, proved_words, score_words
from interp.site.pages import as_read, figure_script, secured, style, theme_script
from interp.site.story import Story
from models.errors import UserError
from models.files import write_bytes_atomic
from models.registry import BY_HAND, TRAINED
from models.tasks.named.addition import adds_pairs_below
from models.transformer import HookedModel
from models.zoo import zoo_names

#: The models of the page if none are named: 57 parameters trained from a random start, and one of another paper.
DEFAULT = ("microadder-57", "adder-456")
_HERE = Path(__file__).parent
_MADE = {TRAINED: "learnt ", BY_HAND: "set by hand "}


def write_report(
    names: Sequence[str] = (),
    out: Path = Path("report.html"),
    n: int = 2048,
    seed: int = 0,
    only: Collection[str] = (),
    load: Callable[[str], HookedModel] = models.load,
    flags: str = "",
) -> None:
    """Write a page that tells how models add, chapter by chapter; a selector changes the model.

    Args:
        names: names or paths of models; the first is shown first. :data:`DEFAULT` by default.
        n, seed: how many problems a probe uses, and the seed that draws them.
        only: anchors of the chapters to write, such as "right"; all of them by default.
        load: what makes a model of a name or path.
        flags: what a command about these models needs, as " --task ...".

    Cost: about half a minute per model; of one's own, a minute more for a proof.

    Raises:
        UserError: an unknown model, an empty zoo, or a page that cannot be written.
    """
    names = list(names) or [name for name in DEFAULT if name in zoo_names()]
    if not names:
        raise UserError("The zoo holds no model to report on; train one with `interp train` and `interp publish`.")
    if Path(out).is_dir():
        raise UserError(f"{out} is a folder; give --out the name of a file.")
    stories = [Story.of(name, n, seed, load, flags) for name in names]  # a wrong name fails before any work
    titles = _titles(stories)
    chosen = [chapter for chapter in chapters() if not only or chapter.anchor in only]
    told = []
    with tqdm(total=len(chosen) * len(stories), desc="asking", unit="chapter") as bar:
        for chapter in chosen:
            items = []
            for story in stories:
                bar.set_postfix_str(f"{chapter.anchor} of {story.title}")
                if found := chapter.items(story):
                    items.append((story.name, found))
                bar.update()
            if items:
                first = next(story for story in stories if story.name == items[0][0])
                told.append((chapter.anchor, chapter.heading_of(first), items))
    page = _template().render(
        titles=titles,
        command=f"interp report {' '.join(map(shlex.quote, names))}{flags}",
        again=stories[0].command("interp ask"),
        heads={story.name: as_read(opening(story)) for story in stories},
        chapters=told,
        style=Markup(style() + (_HERE / "report.css").read_text()),
        script=Markup(figure_script()),
        theme=Markup(theme_script()),
        plotlyjs=Markup(get_plotlyjs()),
        explorer=assets(),
    )
    write_bytes_atomic(Path(out), secured(page).encode())


def _template() -> jinja2.Template:
    """The page's template, which escapes text."""
    loader = jinja2.FileSystemLoader(_HERE / "templates")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html.j2")


def _titles(stories: Sequence[Story]) -> dict[str, str]:
    """What each model is called, by its name or path: that itself where two are called the same."""
    titles = [story.title for story in stories]
    for story in stories:
        model: Any = story.model
        if titles.count(story.title) == 1 and hasattr(model, "run"):
            model.run = ""  # sentences need not say where it is
    return {story.name: story.title if titles.count(story.title) == 1 else story.name for story in stories}


def opening(story: Story) -> str:
    """The first paragraph: what the model is, what it answers, and how far that is known to be right."""
    made = "" if story.spec is None else _MADE.get(story.spec.made, "learnt elsewhere ")
    task = story.model.task
    text = f"{story.title} is a transformer with {story.parameters:,} free parameters, {made}for "
    text += f"{task!r}" if story.own else task.name
    if adds_pairs_below(task) is not None:
        text += ": it reads two numbers and writes the digits of their sum, units first"
    text += "."
    if story.certificate is not None and (story.own or proved_words(story.certificate)):
        return f"{text} {proved_words(story.certificate) or certificate_words(story.certificate)}"
    return text if story.entry is None else f"{text} {score_words(story.entry['score'])}."
