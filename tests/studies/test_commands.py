"""`python -m studies` fits a terminal of 80 columns, refuses in one sentence, and reads its table without torch."""

import contextlib
import json
import subprocess
import sys

import pytest

from interp.cli.commands import main, parse
from studies.__main__ import PROGRAM


def test_commands_of_headlines_stand_in_one_piece(capsys) -> None:
    assert main(["headlines", "--paper", "toygpt"], PROGRAM) == 0
    lines = capsys.readouterr().out.splitlines()
    commands = [line for line in lines if line.startswith("  $ ")]
    assert commands and max(len(line) for line in lines if line not in commands) <= 80


@pytest.mark.parametrize("command", ["", *PROGRAM.commands])
def test_help_stands_in_eighty_columns(command: str, capsys) -> None:
    with contextlib.suppress(SystemExit):
        assert main([*command.split(), "--help"], PROGRAM) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.partition("\n")[2].splitlines())) <= 80
    for example in () if command else PROGRAM.examples:
        assert parse(example.split()[3:], places=False, program=PROGRAM) and f"  {example}\n" in said


@pytest.mark.parametrize(
    "line", ["headlines --paper toygp", "reproduce toygpt:fig9", "reproduce", "headline", "headlines --trust"]
)
def test_bad_input_is_one_sentence_and_status_2(line: str, capsys) -> None:
    assert main(line.split(), PROGRAM) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_the_reply_as_json_has_every_row_of_the_paper(capsys) -> None:
    assert main(["headlines", "--paper", "toygpt", "--json", "-"], PROGRAM) == 0
    reply = json.loads(capsys.readouterr().out)
    assert reply["command"] == "python -m studies headlines --paper toygpt --json -"
    assert len(reply["result"]["rows"]) >= 15 and {row["paper"] for row in reply["result"]["rows"]} == {"toygpt"}


def test_headlines_import_no_torch() -> None:
    code = "import sys; from interp.cli.commands import main; from studies.__main__ import PROGRAM"
    code += "; assert main(['headlines'], PROGRAM) == 0; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
