"""Set-up for the whole suite: shape checks on, one torch thread, where the shared data lies."""

from __future__ import annotations

import gc
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests import shape_checks

# What collecting makes (modules, ten thousand tests) stays until the end: the collector need not look at it, again and
# again, now or while tests run.
gc.disable()

# Every annotated shape in the two packages is checked while the tests run. The hook only sees imports after it.
assert "models" not in sys.modules and "interp" not in sys.modules, "import models and interp after the type checks"
shape_checks.install()

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)
# A busy machine is no reason to fail: examples have no deadline.
hypothesis.settings.register_profile("quick", deadline=None, max_examples=10)
hypothesis.settings.register_profile("all", deadline=None)

SHARED = Path(__file__).resolve().parents[2] / "shared"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--one-of-each", type=int, metavar="SEED", help="one slow test of each function, drawn at random")


def pytest_configure(config: pytest.Config) -> None:
    """`make test` tries a tenth of the examples of `make test-all`, and looks at fewer of the calls of one test."""
    is_quick = "not slow" in config.getoption("markexpr")
    hypothesis.settings.load_profile("quick" if is_quick else "all")
    shape_checks.Share.every = 8 if is_quick else 1


def pytest_runtest_setup() -> None:
    shape_checks.Share.test += 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is known of the published numbers alone is an extra: it needs files that are not in the repository."""
    for item in items:
        if "shared_dir" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    if (seed := config.getoption("one_of_each")) is not None:
        by_function: dict[str, list[pytest.Item]] = {}
        for item in items:
            if item.get_closest_marker("slow"):
                by_function.setdefault(item.nodeid.partition("[")[0], []).append(item)
        draw = random.Random(seed)
        chosen = {draw.choice(cases) for cases in by_function.values()}
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)  # a twelfth of the time went into collecting what was not garbage
    gc.enable()


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of papers and published checkpoints next to the checkout."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the shared data next to the checkout, at {SHARED.name}/")
    return SHARED


@pytest.fixture(scope="session")
def published_checkpoint(shared_dir: Path) -> Callable[[str], Path]:
    """Path of a published checkpoint by file name; for what is known of the published numbers alone."""

    def find(name: str) -> Path:
        path = shared_dir / "checkpoints" / name
        if not path.is_file():
            pytest.skip(f"needs the published checkpoint {name}")
        return path

    return find


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Path of a checkpoint by the name of the published file: its layout, with the numbers of the zoo's model."""
    import models
    from tests.published import FILES, write_published

    folder = tmp_path_factory.mktemp("published")

    def find(name: str) -> Path:
        path = folder / name
        return path if path.is_file() else write_published(path, models.load(FILES[name]))

    return find


@pytest.fixture
def without_shape_checks() -> Iterator[None]:
    """For one test: :func:`tests.shape_checks.unchecked_shapes`."""
    with shape_checks.unchecked_shapes():
        yield


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium (Playwright's Browser), closed with its module: its event loop would disturb other tests."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("needs Chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=executable, args=arguments, timeout=120_000)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Opens files from disk without a network; after the test, no page may have said or asked for anything else."""
    complaints: list[str] = []
    contexts = []

    def opened(path: Path, width: int = 1400, height: int = 900) -> Any:
        context = chromium.new_context(viewport={"width": width, "height": height}, offline=True)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(180_000)  # on a busy machine
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("requestfailed", lambda request: complaints.append(f"not loaded: {request.url[:200]}"))
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not complaints, complaints
