"""The picture of the documentation's first page: microadder-57 next to its hand-set twin.

It is the upper part of :func:`interp.compare`'s figure.

python docs/picture.py             needs Playwright and a Chromium

"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import interp
import models

OUT = Path(__file__).parent / "trained-next-to-hand-built.png"
HEIGHT = 1150  # pixels of the figure: heads, distances and embeddings; neurons and parameters come below


def main() -> None:
    """Draw, photograph and write the picture."""
    figure = interp.compare(models.load("microadder-57"), models.build("microadder-57-by-hand")).figure()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "figure.html"
        figure.write_html(page_file, config={"displayModeBar": False})
        chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": int(figure.layout.width) + 20, "height": HEIGHT})
        page.goto(page_file.as_uri())
        page.wait_for_selector(".main-svg")
        page.screenshot(path=OUT, clip={"x": 0, "y": 0, "width": int(figure.layout.width) + 20, "height": HEIGHT})
        browser.close()
    print(f"wrote {OUT.name}")


if __name__ == "__main__":
    main()
