"""What the explorer costs: making a page, and one interaction in it.

A page's time is Python's (packing the weights); an interaction's is the browser's, which runs the model itself: from
the event to the finished layout, in Chromium where there is one. The target for an interaction is 100 ms.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

import models
from interp.site.explorer import write_explorer

CASES = {"microadder-57": "L0N1", "adder-456": "L0N7", "toygpt-learned-pre": "L0H1"}
PROBLEMS = ("57+48", "12+34", "99+1")
ROUNDS = 30
TARGET = 100.0  # milliseconds
#: In the page: one event, and the layout that follows it, in milliseconds.
TIMED = """([what, values, n]) => {
  const view = document.querySelector("[data-explorer]").explorer, times = [];
  for (let i = 0; i < n; i++) {
    const value = values[i % values.length], start = performance.now();
    if (what === "problem") view.change({ problem: value });
    else document.querySelector(value).click();
    document.body.getBoundingClientRect();
    times.push(performance.now() - start);
  }
  return times;
}"""


def drawn(browser: Any, path: Path, part: str) -> dict[str, list[float]]:
    """Milliseconds of each kind of interaction with a page."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.goto(path.as_uri())
    asked = {
        "a new problem": ["problem", list(PROBLEMS)],
        f"a click on {part}": ["click", [f"[data-edit='{part}']"]],
        "a step": ["click", ["[data-step='1']", "[data-step='0']"]],
    }
    found = {name: page.evaluate(TIMED, [*what, ROUNDS]) for name, what in asked.items()}
    page.close()
    return found


def main() -> None:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    print("The explorer, one CPU thread: milliseconds, median (least to most)")
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for name in CASES:
            paths[name] = Path(folder) / f"{name}.html"
            model, start = models.load(name), time.process_time()
            write_explorer(paths[name], [model])
            spent = 1e3 * (time.process_time() - start)
            print(f"{name:19}{'a page':18}{spent:7.0f}{paths[name].stat().st_size / 1e6:11.2f} MB")
        if executable is None:
            print("There is no Chromium to measure interactions in.")
            return
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
            for name, part in CASES.items():
                for what, times in drawn(browser, paths[name], part).items():
                    over = "" if median(times) < TARGET else "  over the target"
                    print(f"{name:19}{what:18}{median(times):7.1f} ({min(times):.1f} to {max(times):.1f}){over}")
            browser.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
