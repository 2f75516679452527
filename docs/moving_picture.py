"""The README's moving picture: one short story in the explorer, driven and photographed in Chromium.

    python docs/moving_picture.py      needs the extra "docs" (Pillow), Playwright and a Chromium

The story types a problem with the longest carry chain and steps through the answer. The pointer rests on a digit and
on the head. Then the head is removed, and the answer becomes wrong. The script draws only the pointer: the page itself
runs the model.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import models
from interp.site.explorer import write_explorer

OUT = Path(__file__).parent / "explorer.webp"
PROBLEM = "9999999999+1"
SIZE = {"width": 1000, "height": 1050}
POINTER = """() => {
  const pointer = document.createElement("div");
  const arrow = '<path d="M2 2v22l6-6 4 9 4-2-4-8h8z" fill="#111" stroke="#fff"/>';
  pointer.innerHTML = `<svg width="22" height="30">${arrow}</svg>`;
  pointer.style = "position:fixed;z-index:9;pointer-events:none;left:-50px";
  document.body.append(pointer);
  addEventListener("mousemove", (e) => { pointer.style.left = `${e.x - 2}px`; pointer.style.top = `${e.y - 2}px`; });
}"""


class Film:
    """The frames of a page, each with the milliseconds that it stays."""

    def __init__(self, page: Page):
        self.page, self.frames, self.times = page, [], []

    def shoot(self, milliseconds: int) -> None:
        """Add what the page shows now."""
        self.page.wait_for_timeout(120)
        self.frames.append(Image.open(io.BytesIO(self.page.screenshot())).convert("RGB"))
        self.times.append(milliseconds)

    def point(self, selector: str, milliseconds: int, click: bool = False) -> None:
        """Move the pointer to the middle of an element, click it if asked to, and add a frame."""
        box = self.page.locator(selector).first.bounding_box()
        assert box is not None, selector
        x, y = box["x"] + min(box["width"] / 2, 60), box["y"] + box["height"] / 2
        self.page.mouse.move(x, y)
        self.shoot(milliseconds)
        if click:
            self.page.mouse.click(x, y)
            self.shoot(milliseconds)


def story(page: Page) -> Film:
    """Play the story. The removed head must change the answer, or there would be nothing to show."""
    film = Film(page)
    problem = page.locator("[data-problem]")
    problem.fill("")
    film.point("[data-problem]", 900, click=True)
    for typed in range(2, len(PROBLEM) + 1, 2):
        problem.fill(PROBLEM[:typed])
        film.shoot(130)
    page.keyboard.press("Enter")
    film.shoot(1200)
    for step in range(10):
        film.point("[data-walk='1']", 350)
        page.locator("[data-walk='1']").click()
        film.shoot(1400 if step == 4 else 450)
        if step == 4:
            film.point("svg[data-arcs] [data-at] >> nth=5", 1500)
    whole = page.locator(".cx-verdict").inner_text()
    assert "right" in whole
    film.point("[data-edit='L0H0']", 1600, click=True)
    changed = page.locator(".cx-verdict").inner_text()
    assert "wrong" in changed and "without L0H0" in changed
    film.shoot(3500)
    return film


def main() -> None:
    """Write the page, play, and write the picture."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "explore.html"
        write_explorer(path, [models.load("microadder-57")], ["57+48"])
        chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(viewport=SIZE, reduced_motion="reduce").new_page()
        page.goto(path.as_uri())
        page.wait_for_selector(".cx-verdict")
        page.evaluate(POINTER)
        film = story(page)
        browser.close()
    first, *others = film.frames
    first.save(OUT, save_all=True, append_images=others, duration=film.times, loop=0, quality=70, method=6)
    seconds = sum(film.times) / 1000
    print(f"wrote {OUT.name}: {len(film.frames)} frames, {seconds:.0f} s, {OUT.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
