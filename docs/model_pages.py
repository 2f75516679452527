"""Pages of every stored and constructed model, as a hook of MkDocs; stories of two, and the explorer."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from mkdocs.structure.files import File

import models
from interp.cli.list_models import FILE, NOT_TRAINED, sources, table
from interp.core.stored_data import kept
from interp.probes.learning_curves import learning_curves
from interp.site.chapters import certificate, chapters, shapes
from interp.site.explorer import write_explorer
from interp.site.facts import architecture
from interp.site.pages.items import figure
from interp.site.probe_answers import parameter_values
from interp.site.report.report_file import DEFAULT, opening
from interp.site.story import Story
from models.registry import get_spec

#: Pages of the explorer: one model, or two next to each other.
EXPLORED = (
    ("microadder-57", "microadder-57-by-hand"),
    ("microadder-11", "adder-3-by-hand"),
    ("adder-456",),
    ("toygpt-learned-pre",),
)
#: Chapters of the report that a page of its own, or the site itself, stands for here.
ELSEWHERE = ("steps", "more")
N = 1024  # problems of a story's probes


def on_files(files: Any, config: Any) -> Any:
    """Add the pages."""

    def add(path: str, text: str | bytes) -> None:
        files.append(File.generated(config, path, content=text))

    for row in rows():
        add(f"models/{row['model']}.md", model_page(row))
    for name in DEFAULT:
        add(f"stories/{name}.md", story_page(Story.of(name, N)))
    with tempfile.TemporaryDirectory() as folder:
        for names in EXPLORED:
            write_explorer(Path(folder) / "page.html", [models.load(name) for name in names])
            add(_explored(names), (Path(folder) / "page.html").read_bytes())
    add("explore.md", explore_page())
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Link the names of the zoo's table to their pages."""
    if page.file.src_uri != "zoo.md":
        return markdown
    here = {row["model"] for row in rows()}

    def linked(row: re.Match[str]) -> str:
        return f"| [{row[1]}](models/{row[1]}.md) " if row[1] in here else row[0]

    return re.sub(r"^\| ([\w.-]+) (?=\|)", linked, markdown, flags=re.MULTILINE)


def rows() -> list[dict[str, Any]]:
    """What ``interp list`` says of every model that can be loaded."""
    return [row for row in kept(FILE, sources(), table)["rows"] if row["right (sampled)"] != NOT_TRAINED]


def model_page(row: dict[str, Any]) -> str:
    """Facts, what is proved, how far it generalises, how it was trained, and its card."""
    name = row["model"]
    story = Story.of(name, N)
    facts = {
        "parameters": f"{row['parameters']:,}" if row["parameters"] else "none: every weight is constructed",
        "task": story.model.task.name,
        "architecture": architecture(story.model.cfg),
        "source": get_spec(name).source,
        "right (sampled)": f"{row['right (sampled)']} {row['of'] and '(' + row['of'] + ')'}",
        "all inputs": row["all inputs"],
        "step by step": ", ".join(f"[{' and '.join(m)}](../{_explored(m)})" for m in EXPLORED if name in m),
        "as a story": f"[how it works](../stories/{name}.md)" if name in DEFAULT else "",
        "in Python": f'`models.{"load" if story.entry else "build"}("{name}")`',
        "more questions": f"`interp ask {name}`",
    }
    parts = [f"# {name}", "\n".join(["| | |", "| --- | --- |", *(f"| {k} | {v} |" for k, v in facts.items() if v)])]
    parts += _part("Is it right, on every input?", certificate(story))
    parts += _part("How far does it generalise?", shapes(story))
    files = () if story.entry is None else story.entry["sha256"]
    if {"curves.safetensors", "metrics.jsonl"} & set(files):
        parts += _part("How was it trained?", [figure(learning_curves(name).figure())])
    parts += _part("Every free number", parameter_values(story))
    if "card.md" in files:
        card = models.zoo.entry_file(name, "card.md").decode()
        parts += ["## Card", card.partition("\n")[2]]
    return "\n\n".join(parts) + "\n"


def story_page(story: Story) -> str:
    """The report's chapters on one model."""
    parts = [f"# How {story.name} works", opening(story)]
    chosen = [chapter for chapter in chapters() if chapter.anchor not in ELSEWHERE]
    for chapter in chosen:
        if items := chapter.items(story):
            parts += _part(chapter.heading_of(story), items)
    return "\n\n".join(parts) + "\n"


def explore_page() -> str:
    """The list of the explorer's pages."""
    lines = [f"* [{' and '.join(names)}]({_explored(names)})" for names in EXPLORED]
    about = (
        "Each page runs its models in the browser. Type a problem, step through the answer digit by digit, and click a "
        "head or a neuron to take it out; the options scale, patch and measure. `interp explore` makes such a page of "
        "any other model."
    )
    return "\n".join(["# Step through an answer", "", about, "", *lines, ""])


def _part(heading: str, items: Sequence[Markup]) -> list[str]:
    """A heading and HTML under it; nothing where there is none."""
    return [f"## {heading}", *items] if items else []


def _explored(names: Sequence[str]) -> str:
    return f"explore/{names[0]}.html"
