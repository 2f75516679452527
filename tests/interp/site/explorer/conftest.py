"""The explorer's scripts, asked."""

from __future__ import annotations

import shutil

import pytest

from tests.javascript import Asked, ask_browser, ask_node


@pytest.fixture(scope="module")
def javascript(request: pytest.FixtureRequest) -> Asked:
    """``javascript(body, data)``: in Chromium, or node without one; skips without either."""
    if any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")):
        return ask_browser(request.getfixturevalue("chromium"))
    if shutil.which("node"):
        return ask_node
    pytest.skip("needs Chromium or node")
