"""What one interaction with the explorer costs: a new problem, a click on a unit, a step to the next digit.

Python's share is CPU time of :meth:`interp.site.explorer.Session.reply` and of writing its JSON, nothing of it known
before; beside it the floor: the forward passes that the reply cannot do without, with the same hooks on nothing (a new
problem that is answered right takes one; a click takes as many as the ablated answer needs, the unablated one being
known). The browser's share is the time from the event to the finished layout, measured in Chromium where there is one;
a step to another digit is nothing but that. The target for all of it together is 100 ms.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

import models
from interp.site.explorer import Session, Subject, write_explorer
from models.transformer import ArithmeticTransformer

CASES = {"microadder-57": "L0U1", "adder-456": "L0U7", "toygpt-learned-pre": "L0H1"}
PROBLEMS = [
    f"{a}+{b}" for a, b in ((57, 48), (12, 34), (99, 1), (58, 42), (75, 25), (38, 61), (90, 10), (46, 54), (9, 8))
]
ROUNDS = 3
TARGET = 100.0  # milliseconds
#: In the page: one event, and the layout that follows it, in milliseconds.
TIMED = """([selector, n]) => {
  const times = [];
  for (let i = 0; i < n; i++) {
    const start = performance.now();
    const found = [...document.querySelectorAll(selector)];
    found[i % found.length].click();
    document.body.getBoundingClientRect();
    times.push(performance.now() - start);
  }
  return times;
}"""


def milliseconds(call: Any) -> tuple[float, Any]:
    """Of CPU time, and what came of it."""
    start = time.process_time()
    found = call()
    return 1e3 * (time.process_time() - start), found


def replies(session: Session, ablated: list[str]) -> tuple[list[float], int]:
    """(milliseconds of a question about each problem, bytes of the largest reply)."""
    times, size = [], 0
    for _ in range(ROUNDS):
        for problem in PROBLEMS:
            if ablated:  # a click: the whole model's frame is there already
                session.reply({"problem": problem, "ablated": [[]]})
            question = {"problem": problem, "ablated": [ablated], "method": "zero"}
            spent, text = milliseconds(lambda q=question: json.dumps(session.reply(q)))
            times.append(spent)
            size = max(size, len(text))
    return times, size


@torch.no_grad()
def floor(subject: Subject, ablated: list[str]) -> list[float]:
    """Milliseconds of the bare forward passes behind each of those questions."""
    model = subject.model
    assert isinstance(model, ArithmeticTransformer)
    times = []
    for _ in range(ROUNDS):
        for problem in PROBLEMS:
            whole = subject.run(problem)
            run = subject.run(problem, ablated, "zero", whole.answer) if ablated else whole
            tokens = run.tokens[None]
            spent, _ = milliseconds(lambda r=run, t=tokens: [model(t, weights=subject.weights) for _ in range(r.runs)])
            times.append(spent)
    return times


def drawn(name: str, ablated: str) -> tuple[list[float], list[float]] | None:
    """(milliseconds of a step, of a click on a unit) in Chromium; None without one."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        return None
    if executable is None:
        return None
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "explore.html"
        write_explorer(path, [models.load(name)], PROBLEMS[:1], ["zero"])
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto(path.as_uri())
        steps = page.evaluate(TIMED, ["[data-step]", 30])
        clicks = page.evaluate(TIMED, [f"[data-ablate='{ablated}']", 30])
        browser.close()
    return steps, clicks


def shown(times: list[float]) -> str:
    return f"{median(times):7.1f} ({min(times):.1f} to {max(times):.1f})"


def main() -> None:
    print("The explorer, one CPU thread: milliseconds of an interaction, median (least to most)")
    print(f"{'':37}{'Python':>24}{'its forward passes':>24}{'ratio':>7}{'reply':>9}{'browser':>22}{'together':>10}")
    for name, ablated in CASES.items():
        subject = Subject(models.load(name))
        session = Session([subject], PROBLEMS[-1])
        browser = drawn(name, ablated)
        for what, without in (("a new problem", []), (f"a click on {ablated}", [ablated])):
            spent, size = replies(session, without)
            least = floor(subject, without)
            view = "" if browser is None else shown(browser[1])
            total = median(spent) + (median(browser[1]) if browser else 0)
            print(
                f"{name:19}{what:18}{shown(spent):>24}{shown(least):>24}{median(spent) / median(least):7.1f}"
                f"{size / 1e3:6.0f} kB{view:>22}{total:7.0f} ms{'' if total < TARGET else '  over the target'}"
            )
        if browser is not None:
            total = median(browser[0])
            print(f"{name:19}{'a step':18}{'':64}{shown(browser[0]):>22}{total:7.0f} ms")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
