"""``interp mcp``: typed tools, each answer with what it rests on; limits on time and size; nothing is written."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from interp.cli import main, tools
from interp.cli.tool_process import ToolProcess, answered
from models.errors import UserError

mcp = pytest.importorskip("mcp")

ROOT = Path(__file__).parents[3]
BY_NAME = {tool.__name__: tool for tool in tools.TOOLS}


class Here:
    """The tools in this process, in the place of one of their own."""

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        said, value = json.loads(answered(BY_NAME[tool], arguments))
        if said == "refused":
            raise UserError(value)
        return value


def called(*calls: tuple[str, dict[str, Any]], to: Any = None) -> list[Any]:
    """The results of calls to a server, in this process unless another is given."""
    from interp.cli.mcp import server

    async def run() -> list[Any]:
        async with mcp.Client(server(Here()) if to is None else to) as client:
            return [await client.call_tool(name, given) for name, given in calls]

    return asyncio.run(run())


def reply(name: str, **given: Any) -> dict[str, Any]:
    (found,) = called((name, given))
    assert not found.is_error, found.content[0].text
    return found.structured_content


def refusal(name: str, **given: Any) -> str:
    (found,) = called((name, given))
    assert found.is_error
    return found.content[0].text


def test_every_tool_says_what_it_takes_and_gives():
    from interp.cli.mcp import server

    async def listed() -> Any:
        async with mcp.Client(server(Here())) as client:
            return (await client.list_tools()).tools

    found = {tool.name: tool for tool in asyncio.run(listed())}
    assert set(found) == {"list_models", "load", "probes", "ask", "patch", "certify", "solve", "figure"}
    for name, tool in found.items():
        assert tool.description and tool.annotations.read_only_hint
        if name != "figure":
            assert {"result", "provenance", "strength_of_evidence"} <= set(tool.output_schema["properties"])
    assert found["certify"].input_schema["properties"]["minutes"]["type"] == "number"
    assert found["patch"].input_schema["required"] == ["model", "pairs"]


def test_models_are_listed_and_one_of_them_is_described():
    listed = reply("list_models", paper="MicroAdder", contains="57")
    assert "microadder-57" in {row["model"] for row in listed["result"]["rows"]} and listed["provenance"] is None
    data = reply("load", model="microadder-57")["result"]["data"]
    assert (data["parameters"], data["n_layers"], data["problems_in_all"]) == (57, 1, 10**20)


def test_what_is_asked_is_what_python_answers():
    import interp
    import models

    model = models.load("microadder-57")
    asked = reply("ask", model="microadder-57", probe="attention_by_role", n=64, seed=3)
    python = interp.attention_by_role(model, n=64, seed=3)
    assert asked["result"]["sentence"] == python.sentence() and asked["strength_of_evidence"] == "sampled"
    assert (asked["provenance"]["n"], asked["provenance"]["seed"]) == (64, 3)
    listed = {row["probe"]: row for row in reply("probes", model="microadder-57")["result"]["rows"]}
    assert listed["activation_patching"]["takes"] == ["model", "pairs"] and "runs" in listed["attack"]["options"]


def test_pairs_are_patched_and_two_models_compared():
    patched = reply("patch", model="microadder-57", pairs="made carry", column=4, n=32, site="z")
    assert patched["result"]["kind"] == "PatchingSweep" and patched["provenance"]["n"] == 32
    compared = reply("ask", model="microadder-57", probe="compare", other="microadder-67", n=32)
    assert "microadder-67" in compared["result"]["sentence"] and compared["provenance"]["n"] == 32


def test_a_verdict_has_its_status_and_a_wrong_problem():
    found = reply("certify", model="parity-coupling-1l4h-small", shape=[4], arithmetic="float")
    assert found["result"]["data"]["status"] == "certified" and found["strength_of_evidence"] == "exhaustive"


def test_answers_stand_next_to_the_right_ones_and_a_figure_is_a_picture():
    rows = reply("solve", model="microadder-57", problems=["57+48"])["result"]["rows"]
    assert rows == [{"problem": "57+48", "answer": 105, "expected": 105, "right": True}]
    (found,) = called(("figure", {"model": "microadder-57", "probe": "attention_by_role", "n": 32, "width": 400}))
    picture, said = found.content
    assert base64.b64decode(picture.data).startswith(b"\x89PNG") and json.loads(said.text)["provenance"]["n"] == 32


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("load", {"model": "microader-57"}, "Did you mean 'microadder-57'?"),
        ("ask", {"model": "microadder-57", "probe": "carry_unit"}, "Did you mean 'carry_units'?"),
        ("ask", {"model": "microadder-57", "probe": "carry_units", "n": 10**6}, "at most 10,000"),
        ("ask", {"model": "microadder-57", "probe": "carry_units", "options": {"store": "x"}}, "no option 'store'"),
        ("ask", {"model": "microadder-57", "probe": "path_patching"}, "needs pairs"),
        ("ask", {"model": "parity-hand-built", "probe": "stress_suites"}, "does not apply"),
        ("certify", {"model": "microadder-57", "minutes": 1e9}, "at most 10"),
        ("solve", {"model": "microadder-57", "problems": ["1+1"] * 201}, "1 to 200 problems"),
        ("solve", {"model": "microadder-57", "problems": ["1+x"]}, "not an addition"),
        ("figure", {"model": "microadder-57", "probe": "circle_fit", "width": 10**5}, "pixels"),
        ("patch", {"model": "microadder-57", "pairs": "made carry", "direction": "sideways"}, "direction"),
        ("load", {"model": "submission.py"}, "submission.py"),
    ],
)
def test_what_is_refused_is_said_in_a_sentence(name: str, given: dict[str, Any], why: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("submission.py").write_text("raise SystemExit")
    assert why in refusal(name, **given)


def test_a_reply_is_short():
    found = reply("ask", model="microadder-57", probe="component_ablation", n=64)
    assert len(found["result"]["rows"]) <= tools.MOST_ROWS < found["result"]["rows_in_all"]
    assert all(len(json.dumps(value)) <= tools.LARGEST_FIELD for value in found["result"]["data"].values())


@pytest.mark.slow
def test_a_call_that_takes_too_long_is_stopped_and_the_next_one_is_answered():
    process = ToolProcess(seconds=0.0)
    with pytest.raises(UserError, match="took more than 0 seconds"):
        process.call("certify", {"model": "microadder-57"})
    process.seconds = 60.0
    assert process.call("solve", {"model": "microadder-57", "problems": ["1+2"]})["result"]["rows"][0]["answer"] == 3
    process.close()


def test_without_the_package_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr("interp.cli.mcp.find_spec", lambda name: None)
    assert main(["mcp"]) == 2 and "carrylens[mcp]" in capsys.readouterr().err
    assert main(["mcp", "--seconds", "0"]) == 2


@pytest.mark.slow
def test_over_its_streams_it_answers_and_leaves_no_file_anywhere(tmp_path: Path):
    work, home = tmp_path / "work", tmp_path / "home"
    work.mkdir(), home.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(home), "TMPDIR": str(home)}
    command = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "interp.cli", "mcp"], env=environment, cwd=str(work)
    )
    solved, drawn = called(
        ("solve", {"model": "microadder-57", "problems": ["57+48"]}),
        ("figure", {"model": "microadder-57", "probe": "attention_by_role", "n": 32}),
        to=command,
    )
    assert solved.structured_content["result"]["rows"][0]["answer"] == 105 and drawn.content[0].mime_type == "image/png"
    assert not list(work.iterdir()) and not list(home.iterdir())
