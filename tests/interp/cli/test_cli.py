"""The command line: what it prints, and one sentence and status 2 for bad input."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from interp.cli import main

REPOSITORY = Path(__file__).parents[3]


def status(*arguments: str) -> int:
    """The exit status, whether returned or raised by the parser."""
    try:
        return main(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["scroe", "microadder-57"], "There is no command 'scroe'"),
        (["train", "microader-57"], "Did you mean 'microadder-57'?"),
        (["train", "microadder-57", "--seeds", "0"], "--seeds must be at least 1"),
        (["train", "microadder-57", "--recipe", "microadder-placed-sart"], "Did you mean 'microadder-placed-start'?"),
        (["train", "microadder-57", "--device", "gpu"], "There is no device 'gpu'"),
        (["train", "microadder-57", "--steps", "0"], "steps must be at least 1"),
        (["score", "nothing-57"], "There is no stored model 'nothing-57'"),
        (["score", "nowhere/model.pt"], "nowhere/model.pt"),
        (["report", "nothing-57"], "There is no stored model 'nothing-57'"),
        (["publish", "nowhere"], "There is no folder nowhere"),
        (["publish"], "Name the run folders"),
        (["solve", "microadder-57", "57+x"], "'57+x' is not a problem of this format"),
        (["solve", "microadder-57", "10000000000+1"], "a must lie in 0..9999999999"),
        (["solve", "microadder-57", "9" * 10**6 + "+1"], "write it like '1 + 1'"),
        (["solve", "microadder-57"], "list is empty"),
        (["train"], "MODEL"),
        (["train", "--seeds", "4", "microader-57"], "Did you mean 'microadder-57'?"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(arguments, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert status(*arguments) == 2
    error = capsys.readouterr().err
    assert sentence in error and "Traceback" not in error
    assert len(error.strip().splitlines()) == 1 and len(error) < 2_100
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments", [["train", "microadder-57", "--sedes", "3"], ["train"], ["score"], ["score", "x", "--method", "beam"]]
)
def test_what_the_parser_refuses_is_status_2_too(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert status(*arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_help_lists_the_commands_and_the_recipe_of_the_model(capsys):
    assert status("--help") == 0
    assert "interp train microadder-57" in capsys.readouterr().out
    assert status("train", "microadder-74", "--help") == 0
    shown = capsys.readouterr().out
    assert "--problems.carry-mix.fade-end" in shown and "120000" in shown
    assert status("train", "microadder-57", "--recipe", "microadder-74", "--help") == 0
    assert "120000" in capsys.readouterr().out


def test_a_run_is_trained_resumed_and_defended_from_the_command_line(tmp_path: Path, capsys):
    tiny = ["--batch-size", "32", "--eval-every", "10", "--validation-size", "64", "--device", "cpu"]
    command = ["train", "microadder-57", "--seeds", "2", "--steps", "20", "--out", str(tmp_path / "run"), *tiny]
    assert status(*command) == 0
    assert "0 of 2 seeds answer every validation problem (20 steps" in capsys.readouterr().out
    before = {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir() if p.is_file()}
    assert status(*command, "--lr", "0.5") == 2
    assert "recipe.lr is 0.02 there and 0.5 now" in capsys.readouterr().err
    assert {p.name: p.read_bytes() for p in (tmp_path / "run").iterdir() if p.is_file()} == before


def test_a_model_answers_problems(capsys):
    assert status("solve", "microadder-57", "57+48", "9999999999+1") == 0
    assert capsys.readouterr().out.splitlines() == ["57+48 = 105", "9999999999+1 = 10000000000"]


def test_a_score_is_printed_by_chain_length_and_written_as_json(checkpoint, tmp_path: Path, capsys):
    assert status("score", str(checkpoint("microadder_57p.pt")), "--json", str(tmp_path / "score.json")) == 0
    printed = capsys.readouterr().out
    assert "10,010 of 10,010" in printed and "sampled" in printed and "chain_length" in printed
    stored = json.loads((tmp_path / "score.json").read_text())["result"]["data"]
    assert stored["correct"] == 10_010 and stored["strength"] == "sampled"


def test_a_tampered_file_is_one_sentence_without_traceback(tmp_path: Path, capsys):
    import models

    folder = models.save_entry(tmp_path / "entry", models.build("microadder-57"), {}, {})
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert status("score", str(folder)) == 2
    assert "SHA-256" in capsys.readouterr().err


def test_the_module_runs_as_a_program():
    done = subprocess.run(
        [sys.executable, "-m", "interp.cli", "scroe"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stderr.startswith("interp: There is no command 'scroe'")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=str)
def test_a_command_that_is_ended_says_so_and_leaves_signals_as_they_were(number, capsys, monkeypatch):
    before = signal.getsignal(number)
    monkeypatch.setattr("interp.cli.list_models.rows_now", lambda: signal.raise_signal(number))
    assert status("list") == 130 and capsys.readouterr().err.strip() == "interp: interrupted"
    assert signal.getsignal(number) == before


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_a_command_that_is_ended_ends_what_it_started_and_leaves_no_file(number, tmp_path: Path):
    """A program that it runs, which holds a file for as long as it lives. Takes as long as two imports of torch."""
    (tmp_path / "tmp").mkdir()
    begun = tmp_path / "begun"
    program = tmp_path / "a.py"
    program.write_text(f"import os, time\nopen({str(begun)!r}, 'w').write(str(os.getpid()))\ntime.sleep(99)\n")
    command = [sys.executable, "-m", "interp.cli", "solve", str(program), "1+1", "--trust", "unconfined"]
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp"), "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    while not begun.exists() or not begun.read_text():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(20) == 130 and process.stderr.read().strip() == "interp: interrupted"
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)
    assert not list((tmp_path / "tmp").iterdir())


def test_a_reader_that_has_seen_enough_is_no_error():
    """It is gone before Python starts. That a command then ends with status 0, the shell says."""
    shell = f"({sys.executable} -m interp.cli --help; echo $? >&2) | true"
    done = subprocess.run(shell, shell=True, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stderr == "0\n"
