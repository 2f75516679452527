"""Runs the explorer's scripts outside a page: in Chromium where there is one, else in node."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from interp.site.explorer import bundle

Asked = Callable[[str, Any], Any]


def ask_node(body: str, data: Any) -> Any:
    """What the body of a function of ``data`` returns, run behind the explorer's scripts. Skips without node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    code = f"""{bundle()}
import {{ readFileSync }} from "node:fs";
const found = ((data) => {{ {body} }})(JSON.parse(readFileSync(0, "utf8")));
process.stdout.write(JSON.stringify(found));
"""
    made = subprocess.run(
        [node, "--input-type=module", "--eval", code], input=json.dumps(data), capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr[-2000:]
    return json.loads(made.stdout)


def ask_browser(browser: Any) -> Asked:
    """The same in a browser, all questions in one page: a page for each would cost more than its answer."""
    page = browser.new_page()
    page.set_content("<!doctype html><title>scripts</title>")
    seen_by_questions = "window.ask = (body, data) => JSON.stringify(eval(`(() => { ${body} })()`));"
    page.add_script_tag(content=f"{bundle()}\n{seen_by_questions}", type="module")
    page.wait_for_function("typeof window.ask === 'function'")

    def ask(body: str, data: Any) -> Any:
        return json.loads(
            page.evaluate("([body, text]) => window.ask(body, JSON.parse(text))", [body, json.dumps(data)])
        )

    return ask
