"""Set-up for the whole suite: shape checks on, one torch thread, where the shared data lies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import jaxtyping
from jaxtyping import install_import_hook

# Every annotated shape in the two packages is checked while the tests run. The hook only sees imports after it.
assert "models" not in sys.modules and "interp" not in sys.modules, "import models and interp after the type checks"
install_import_hook(["models", "interp"], "beartype.beartype")

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)
# A busy machine is no reason to fail: examples have no deadline.
hypothesis.settings.register_profile("carrylens", deadline=None)
hypothesis.settings.load_profile("carrylens")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder of papers and published checkpoints beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the shared data beside the checkout, at {SHARED.name}/")
    return SHARED


@pytest.fixture(scope="session")
def checkpoint(shared_dir: Path):
    """Path of a published checkpoint by file name."""

    def find(name: str) -> Path:
        path = shared_dir / "checkpoints" / name
        if not path.is_file():
            pytest.skip(f"needs the published checkpoint {name}")
        return path

    return find


@pytest.fixture
def without_shape_checks() -> Iterator[None]:
    """For tests that run a model often, after others have checked its shapes: the checks double the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
