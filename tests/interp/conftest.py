"""Models that the probe tests share: the published ones, untrained ones, and a stock TransformerLens copy."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import models
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from studies.checkpoints import load_published


@pytest.fixture(scope="session", params=[57, 67], ids=lambda size: f"published-{size}")
def published(request: pytest.FixtureRequest, published_checkpoint: Any) -> ArithmeticTransformer:
    return load_published(published_checkpoint(f"microadder_{request.param}p.pt"))


@pytest.fixture(scope="session")
def published_57(published_checkpoint: Any) -> ArithmeticTransformer:
    return load_published(published_checkpoint("microadder_57p.pt"))


@pytest.fixture(scope="session", params=range(3), ids=lambda seed: f"untrained-{seed}")
def untrained(request: pytest.FixtureRequest) -> ArithmeticTransformer:
    return models.build("microadder-57", seed=request.param)


def stock_copy(model: ArithmeticTransformer) -> Any:
    """The same weights in a class of TransformerLens itself: what this environment's version has."""
    if find_spec("transformer_lens.HookedTransformer"):
        return model.to_hooked_transformer()
    bridge = model.to_transformer_bridge()
    bridge.enable_compatibility_mode(no_processing=True)
    return bridge


@pytest.fixture(scope="session")
def package_dir() -> Path:
    import interp

    return Path(interp.__file__).parent
