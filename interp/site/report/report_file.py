"""The report's page, made from its chapters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from plotly.offline import get_plotlyjs
from tqdm import tqdm

from interp.site.explorer import assets
from interp.site.gallery.render import script, stylesheet, template
from interp.site.pages import as_read, secured, theme_script
from interp.site.report.chapters import CHAPTERS, Shown, gather, head
from models.checkpoint import write_bytes_atomic
from models.errors import UserError
from models.zoo import zoo_names

#: The models of the page if none are named: the smallest trained adder, and one of another paper.
DEFAULT = ("microadder-57", "adder-456")


def write_report(names: Sequence[str] = (), out: Path = Path("report.html"), n: int = 2048, seed: int = 0) -> None:
    """Write a page that tells how models add, chapter by chapter; a selector changes the model.

    Args:
        names: names or paths of models; the first is shown first. :data:`DEFAULT` by default.
        n, seed: how many problems a probe uses, and the seed that draws them.

    Cost: about half a minute per model.

    Raises:
        UserError: an unknown model, an empty zoo, or a page that cannot be written.
    """
    names = list(names) or [name for name in DEFAULT if name in zoo_names()]
    if not names:
        raise UserError("The zoo holds no model to report on; train one with `interp train` and `interp publish`.")
    if Path(out).is_dir():
        raise UserError(f"{out} is a folder; give --out the name of a file.")
    shown = [gather(name, n, seed) for name in names]  # a wrong name fails before any work
    chapters = []
    with tqdm(total=len(CHAPTERS) * len(shown), desc="asking", unit="chapter") as bar:
        for chapter in CHAPTERS:
            items = []
            for model in shown:
                bar.set_postfix_str(f"{chapter.anchor} of {model.name}")
                if found := chapter.items(model):
                    items.append((model.name, found))
                bar.update()
            if items:
                chapters.append((chapter, items))
    write_bytes_atomic(Path(out), secured(_render(shown, chapters)).encode())


def _render(shown: Sequence[Shown], chapters: Sequence[tuple]) -> str:
    return template("report.html.j2", "interp.site.report").render(
        names=[model.name for model in shown],
        heads={model.name: as_read(head(model)) for model in shown},
        chapters=chapters,
        style=Markup(stylesheet()),
        script=Markup(script()),
        theme=Markup(theme_script()),
        plotlyjs=Markup(get_plotlyjs()),
        explorer=assets(),
    )
