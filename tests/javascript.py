"""Runs the explorer's scripts outside a page, in node: a Chromium to ask takes several times as long."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright._impl._driver import compute_driver_executable  # the node that Playwright brings along

from interp.site.explorer import bundle

Asked = Callable[[str, Any], Any]
ANSWER = """
import { createInterface } from "node:readline";
for await (const line of createInterface({ input: process.stdin })) {
  const [body, data] = JSON.parse(line), said = {};
  try { said.found = eval(`(data) => { ${body} }`)(data); } catch (error) { said.error = String(error.stack); }
  process.stdout.write(`${JSON.stringify(said)}\\n`);
}
"""


@contextmanager
def started_node() -> Iterator[Asked]:
    """``ask(body, data)`` in one process: what the body of a function of ``data`` returns, behind the scripts."""
    command = [shutil.which("node") or compute_driver_executable()[0], "--input-type=module", "--eval"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, bundle() + ANSWER], stdin=pipe, stdout=pipe, text=True) as node:
        assert node.stdin is not None and node.stdout is not None
        questions, answers = node.stdin, node.stdout

        def ask(body: str, data: Any) -> Any:
            questions.write(json.dumps([body, data]) + "\n")
            questions.flush()
            said = json.loads(answers.readline())
            assert "error" not in said, said["error"]
            return said.get("found")

        yield ask
