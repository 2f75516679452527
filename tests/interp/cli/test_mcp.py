"""``interp mcp``: typed tools, each answer with what it rests on; limits on time and size; nothing is written."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from interp.cli import asked_probes, main, mcp_tools
from interp.cli.mcp_process import ToolProcess, answered
from interp.core.probe import find_probe, registered
from models.errors import UserError

mcp = pytest.importorskip("mcp")

ROOT = Path(__file__).parents[3]
BY_NAME = {tool.__name__: tool for tool in mcp_tools.TOOLS}


class Here:
    """The tools in this process, in the place of one of their own."""

    def call(self, tool: str, arguments: dict[str, Any], cancelled: Any = None) -> dict[str, Any]:
        said, value = json.loads(answered(BY_NAME[tool], arguments))
        if said == "refused":
            raise UserError(value)
        return value


def called(*calls: tuple[str, dict[str, Any]], to: Any = None) -> list[Any]:
    """The results of calls to a server, in this process unless another is given."""
    from interp.cli.mcp_server import server

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
    from interp.cli.mcp_server import server

    async def listed() -> Any:
        async with mcp.Client(server(Here())) as client:
            return (await client.list_tools()).tools

    found = {tool.name: tool for tool in asyncio.run(listed())}
    assert set(found) == {"list_models", "load", "guess", "probes", "ask", "patch", "certify", "solve", "figure"}
    for name, tool in found.items():
        assert tool.description and tool.annotations.read_only_hint
        if name != "figure":
            assert {"result", "provenance", "strength_of_evidence"} <= set(tool.output_schema["properties"])
    assert found["certify"].input_schema["properties"]["minutes"]["type"] == "number"
    assert found["patch"].input_schema["required"] == ["model"]


def test_models_are_listed_and_one_of_them_is_described():
    listed = reply("list_models", paper="MicroAdder", contains="57")
    assert "microadder-57" in {row["model"] for row in listed["result"]["rows"]} and listed["provenance"] is None
    data = reply("load", model="microadder-57")["result"]["data"]
    assert (data["parameters"], data["n_layers"], data["problems_in_all"]) == (57, 1, 10**20)


def test_a_file_that_does_not_say_its_activation_is_loaded_once_it_is_told(tmp_path: Path):
    import models
    from models.transformer.arithmetic_transformer import ArithmeticTransformer
    from models.weight_maps.dense import DenseWeights

    task = models.tasks.formatted("{a:2r}+{b:2r}={s:3r}", "a + b")
    shape = {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_head": 8, "d_mlp": 32, "act_fn": "gelu"}
    config = models.TransformerConfig(**shape, d_vocab=task.d_vocab, n_ctx=task.input_length)  # pyright: ignore
    model = ArithmeticTransformer(DenseWeights(config), task)
    path = tmp_path / "bare.safetensors"
    save_file({name: value.detach().contiguous() for name, value in model.effective_weights().items()}, path)
    asked = {"model": str(path), "task": "{a:2r}+{b:2r}={s:3r}; a + b"}
    with pytest.raises(UserError):
        mcp_tools.load(**asked)
    data = mcp_tools.load(**asked, config="act_fn=gelu").to_dict()["result"]["data"]
    assert data["act_fn"] == "gelu" and data["n_heads"] == 2
    told = mcp_tools.solve(problems=["12+34"], config='{"act_fn": "gelu"}', **asked).to_dict()["result"]["rows"]
    assert len(told) == 1


def test_a_format_is_guessed_and_what_is_guessed_is_what_the_other_tools_take(tmp_path: Path):
    import models

    model = models.load("toygpt-learned-pre")
    torch.save({"state_dict": dict(model.all_weights()), "config": model.config.to_dict()}, tmp_path / "own.pt")
    found = reply("guess", model=str(tmp_path / "own.pt"), seconds=60)
    first = found["result"]["rows"][0]
    assert first["correct"] == first["n"] == found["provenance"]["n"]
    asked = {"model": str(tmp_path / "own.pt"), "task": first["task"]}
    (row,) = reply("solve", problems=["3 4"], **asked)["result"]["rows"]
    assert row["right"] and row["answer"] == 7
    for wrong in ({"model": "microadder-57"}, {"model": str(tmp_path / "none.pt")}, {"model": "own.pt", "seconds": 0}):
        refusal("guess", **wrong)


@pytest.mark.parametrize("given", [{}, {"minutes": 10}, {"minutes": None}, {"minutes": 0.01}])
@pytest.mark.parametrize("seconds", [4.0, 400.0])
def test_a_question_that_takes_a_time_gets_no_more_than_a_call_may_take(seconds: float, given: dict[str, Any]):
    """Also where its own default is more, or it would take what it needs."""
    timed = [each for each in registered().values() if "minutes" in inspect.signature(each.ask).parameters]
    assert "certify" in {each.name for each in timed}
    for question in timed:
        taken, said = asked_probes.within(question, given, seconds)
        wanted = given.get("minutes", inspect.signature(question.ask).parameters["minutes"].default)
        expected = seconds / 60 if wanted is None else min(wanted, seconds / 60)
        assert taken.get("minutes", wanted) == pytest.approx(expected) and bool(said) == (expected != wanted)
    assert asked_probes.within(find_probe("carry_units"), {"n": 3}, seconds) == ({"n": 3}, "")


@pytest.mark.slow
def test_a_proof_that_would_take_longer_than_a_call_is_undecided_and_not_killed():
    process = ToolProcess(seconds=20.0)
    try:
        process.call("solve", {"model": "microadder-57", "problems": ["1+2"]})
        for tool, options in (("certify", {"minutes": 10}), ("ask", {"probe": "certify", "options": "minutes=9"})):
            found = process.call(tool, {"model": "adder-763", **options})
            assert found["result"]["data"]["status"] == "undecided"
    finally:
        process.close()


def test_options_are_written_as_on_the_command_line_too():
    given = {"model": "microadder-57", "probe": "carry_units"}
    named = reply("ask", **given, options={"max_ablated": 2, "n": 64})
    assert reply("ask", **given, options="max_ablated=2,n=64")["result"] == named["result"]
    refusal("ask", **given, options="max_ablatd=2")
    refusal("ask", **given, options="max_ablated")


def test_what_is_asked_is_what_python_answers():
    import interp
    import models

    model = models.load("microadder-57")
    asked = reply("ask", model="microadder-57", probe="attention_by_role", n=64, seed=3)
    python = interp.attention_by_role(model, n=64, seed=3)
    assert asked["result"]["sentence"] == python.sentence() and asked["strength_of_evidence"] == "sampled"
    assert (asked["provenance"]["n"], asked["provenance"]["seed"]) == (64, 3)
    listed = {row["probe"]: row for row in reply("probes", model="microadder-57", detail=True)["result"]["rows"]}
    assert listed["activation_patching"]["takes"] == ["model", "pairs"] and "runs" in listed["attack"]["options"]


def test_pairs_are_patched_and_two_models_compared():
    patched = reply("patch", model="microadder-57", pairs="made carry", column=4, n=32, site="z")
    assert patched["result"]["kind"] == "PatchingSweep" and patched["provenance"]["n"] == 32
    compared = reply("ask", model="microadder-57", probe="compare", other="microadder-67", n=32)
    assert "microadder-67" in compared["result"]["sentence"] and compared["provenance"]["n"] == 32


def test_a_verdict_has_its_status_and_a_wrong_problem():
    found = reply("certify", model="parity-coupling-1l4h-small", shape=[4], arithmetic="float")
    assert found["result"]["data"]["status"] == "certified" and found["strength_of_evidence"] == "exhaustive"


@pytest.mark.slow
def test_answers_stand_next_to_the_right_ones_and_a_figure_is_a_picture():
    rows = reply("solve", model="microadder-57", problems=["57+48"])["result"]["rows"]
    assert rows == [
        {"problem": "57+48", "answer": 105, "expected": 105, "right": True, "answer_text": "105"}
        | {"expected_text": "105"}
    ]
    (found,) = called(("figure", {"model": "microadder-57", "probe": "attention_by_role", "n": 32, "width": 400}))
    picture, said = found.content
    assert base64.b64decode(picture.data).startswith(b"\x89PNG") and json.loads(said.text)["provenance"]["n"] == 32


@pytest.mark.parametrize(
    ("name", "given", "why"),
    [
        ("load", {"model": "microader-57"}, "Did you mean 'microadder-57'?"),
        ("ask", {"model": "microadder-57", "probe": "carry_unit"}, "Did you mean 'carry_units'?"),
        ("ask", {"model": "microadder-57", "probe": "carry_units", "n": 10**6}, "at most 10,000"),
        ("ask", {"model": "microadder-57", "probe": "carry_units", "n": 8, "options": {"n": 9}}, "given twice"),
        ("ask", {"model": "microadder-57", "probe": "attack", "options": {"runs": 10**9}}, "runs"),
        ("ask", {"model": "microadder-57", "probe": "carry_units", "options": {"store": "x"}}, "no option"),
        ("ask", {"model": "microadder-57", "probe": "carry_units", "arguments": {"n": 64}}, "no argument of ask"),
        ("ask", {"model": "microadder-57", "probe": "carry_units", "sed": 3}, "Did you mean 'seed'?"),
        ("ask", {"model": "microadder-57", "probe": "carry_units", "n": "many"}, "n does not take 'many'"),
        ("ask", {"model": "microadder-57", "probe": "carry_units", "rows": 10**6}, "0 to 1,000 rows"),
        ("ask", {"model": ["microadder-57"], "probe": "carry_units"}, "model does not take"),
        ("ask", {"model": "microadder-57"}, "ask needs probe"),
        ("patch", {}, "patch needs model"),
        ("load", {"model": "x" * 10**6}, "x"),
        ("ask", {"model": "microadder-57", "probe": "carry_units", "task": "x" * 10**6}, "characters"),
        ("ask", {"model": "microadder-57", "probe": "path_patching"}, "needs pairs"),
        ("ask", {"model": "parity-hand-built", "probe": "accuracy_by_chain"}, "does not apply"),
        ("certify", {"model": "microadder-57", "minutes": 1e9}, "at most 10"),
        ("solve", {"model": "microadder-57", "problems": ["1+1"] * 201}, "1 to 200 problems"),
        ("solve", {"model": "microadder-57", "problems": ["1+x"]}, "not a problem"),
        ("figure", {"model": "microadder-57", "probe": "circle_fit", "width": 10**5}, "pixels"),
        ("patch", {"model": "microadder-57", "pairs": "made carry", "direction": "sideways"}, "direction"),
        ("load", {"model": "submission.py"}, "submission.py"),
    ],
)
def test_what_is_refused_is_said_in_a_sentence(name: str, given: dict[str, Any], why: str, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("submission.py").write_text("raise SystemExit")
    said = refusal(name, **given)
    assert why in said and "\n" not in said and len(said) < 1_000


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("list_models", {}),
        ("probes", {"model": "microadder-57"}),
        ("ask", {"model": "microadder-57", "probe": "carry_units", "n": 64}),
        ("ask", {"model": "microadder-57", "probe": "component_ablation", "n": 64}),
        ("patch", {"model": "microadder-57", "pairs": "made carry", "column": 4, "n": 32}),
    ],
)
def test_a_reply_is_short_and_the_rest_comes_on_request(name: str, given: dict[str, Any]):
    (found,) = called((name, given))
    text, value = found.content[0].text, found.structured_content
    assert json.loads(text) == value and len(text) < 6_000
    if name == "probes":
        return
    short, (first, *_) = value["result"], value["result"]["rows"]
    assert len(short["rows"]) == mcp_tools.ROWS < short["rows_in_all"]
    whole = reply(name, **given, rows=60, detail=True)["result"]
    assert len(whole["rows"]) == min(60, whole["rows_in_all"]) and whole["sentence"] == short["sentence"]
    assert set(whole["rows"][0]) == {*first, *short["data"]["columns_with_detail"]} > set(first)


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


def test_a_call_that_needs_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch):
    def solve() -> None:
        raise MemoryError

    assert json.loads(answered(solve, {})) == ["refused", "solve needs more memory than a call may take; ask for less."]


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


class Served:
    """A server as a client starts it, spoken to line by line."""

    def __init__(self, folder: Path, *options: str):
        self.folder = folder
        environment = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(folder), "TMPDIR": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "interp.cli", "mcp", *options], env=environment, cwd=folder, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}}
        self.say({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
        assert self.hear()["id"] == 0
        self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def say(self, message: Any) -> None:
        self.process.stdin.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        return json.loads(self.process.stdout.readline())

    def call(self, number: int, name: str, **given: Any) -> None:
        self.say({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": given}})

    def busy(self) -> int:
        """Start a call that takes long, and return the process that works on it when it is at work."""
        self.call(1, "ask", model="toygpt-learned-pre", probe="component_ablation", n=10_000)
        for _ in range(600):
            found = children(self.process.pid)
            working = [child for child in found if cpu_seconds(child) > 8]
            if working:
                return working[0]
            time.sleep(0.1)
        raise AssertionError("no process works")


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    every = [int(child) for child in text.split()]
    threads = Path(f"/proc/{pid}/task").iterdir()
    return every + [int(c) for t in threads for c in (t / "children").read_text().split() if int(c) not in every]


def cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def gone(pid: int, seconds: float = 10.0) -> bool:
    """Whether a process ends in time."""
    for _ in range(int(10 * seconds)):
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL, None], ids=str)
def test_the_server_ends_at_once_with_its_process_and_leaves_nothing(how: signal.Signals | None, tmp_path: Path):
    """At a signal, and when its input is closed (None), in the middle of a call."""
    served = Served(tmp_path)
    working = served.busy()
    if how is None:
        served.process.stdin.close()
    else:
        served.process.send_signal(how)
    assert gone(served.process.pid) and gone(working)
    served.process.wait()
    if how != signal.SIGKILL:
        assert not list(tmp_path.iterdir())
    if how in (signal.SIGTERM, signal.SIGINT):
        assert served.process.returncode == 130 and "interrupted" in served.process.stderr.read()


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at processes in /proc")
def test_a_cancelled_call_ends_and_what_is_no_message_is_answered(tmp_path: Path):
    served = Served(tmp_path)
    for nonsense in ("{", "[" * 100_000, "7", "\x00", '{"jsonrpc": "2.0", "method": 3}'):
        served.say(nonsense)
        assert served.hear()["error"]["code"] == -32700
    working = served.busy()
    served.say({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
    assert gone(working)
    served.call(2, "solve", model="microadder-57", problems=["57+48"])
    while (heard := served.hear()).get("id") != 2:
        pass
    assert heard["result"]["structuredContent"]["result"]["rows"][0]["answer"] == 105
    served.process.stdin.close()
    assert gone(served.process.pid)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is limited on Linux")
def test_a_call_cannot_take_more_memory_than_is_allowed(tmp_path: Path):
    served = Served(tmp_path, "--memory", "0.02")
    served.call(1, "ask", model="adder-763", probe="carry_units", n=10_000)
    heard = served.hear()["result"]
    assert heard["isError"] and "memory" in heard["content"][0]["text"]
    served.process.stdin.close()
    assert gone(served.process.pid)


def test_one_of_a_kind_is_counted_in_the_singular():
    said = [reply("list_models", contains="microadder-57-by-hand")]
    said += [reply("probes", model="microadder-57", contains="circle_fit"), reply("load", model="microadder-57")]
    for each in said:
        words = each["result"]["sentence"].split()
        assert not any(one == "1" and other.strip(".,;").endswith("s") for one, other in pairwise(words)), words
    assert said[0]["result"]["rows_in_all"] == said[1]["result"]["rows_in_all"] == 1


@pytest.fixture
def reversed_task(tmp_path: Path) -> dict[str, str]:
    """A file, and a task for it whose sum has its digits the wrong way round."""
    import models

    model = models.load("toygpt-learned-pre")
    path = tmp_path / "own.pt"
    torch.save({"state_dict": dict(model.all_weights()), "config": model.config.to_dict()}, path)
    return {"model": str(path), "task": "{a:2}{b:2}{s:3}; a + b"}


def test_what_is_said_against_a_files_task_is_in_every_reply_about_it(reversed_task: dict[str, str], capsys):
    """Also where the model is kept from an earlier call, in every tool and in the JSON of a command."""
    told = [reply("load", **reversed_task), reply("probes", **reversed_task)]
    told += [reply("solve", problems=["1 1"], **reversed_task), reply("load", **reversed_task)]
    told += [reply("ask", probe="attention_by_role", n=16, **reversed_task)]
    (figure,) = called(("figure", {"probe": "attention_by_role", "n": 16, **reversed_task}))
    told.append(json.loads(figure.content[1].text))
    capsys.readouterr()
    path, task = reversed_task["model"], reversed_task["task"]
    for line in (["load", path], ["ask", path, "attention_by_role", "--problems", "16"], ["solve", path, "1 1"]):
        assert main([*line, "--task", task, "--json", "-"]) == 0
        told.append(json.loads(capsys.readouterr().out))
    folder = str(Path(path).parent)
    assert not any(folder in each["result"]["sentence"] + each["warnings"][0] for each in told)
    assert {len(each["warnings"]) for each in told} == {1} and len({each["warnings"][0] for each in told}) == 1
    assert reply("load", model="toygpt-learned-pre")["warnings"] == []
    assert main(["load", "toygpt-learned-pre", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["warnings"] == []
