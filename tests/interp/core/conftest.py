"""A registry of probes of a test's own."""

from __future__ import annotations

import pytest

from interp.core import probe as registry
from interp.core.probe import registered


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    registered()
    monkeypatch.setattr(registry, "_PROBES", dict(registry._PROBES))
