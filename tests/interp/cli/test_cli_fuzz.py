"""Whatever is typed: an exit status and one sentence, never a traceback; whatever the output is connected to."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interp.cli import main
from models.errors import UserError

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    """A folder with all that a model is not."""
    monkeypatch.chdir(tmp_path)
    for name in ("folder", "folder.pt", "folder.safetensors"):
        Path(name).mkdir()
    Path("empty").write_bytes(b"")
    Path("junk.pt").write_bytes(b"\x80\x04junk")
    Path("junk.safetensors").write_bytes(b"12345678{}")
    for name, config in (
        ("run", '{"model": 3}'),
        ("half", "{"),
        ("list", "[]"),
        ("other", '{"model": "x", "recipe": {}, "seeds": 1, "first_seed": 0}'),
    ):
        Path(name).mkdir()
        Path(name, "config.json").write_text(config)
    Path("other", "checkpoint.json").write_text("{}")
    return tmp_path


def outcome(arguments: list[str], capsys) -> tuple[int, str]:
    """The exit status, whether returned or raised by the parser, and what stands on stderr."""
    try:
        status = main(arguments)
    except SystemExit as stop:
        status = int(stop.code or 0)
    return status, capsys.readouterr().err


@pytest.mark.parametrize("command", ["score", "solve", "certify", "attack", "compare", "report", "explore", "publish"])
def test_what_is_no_model_is_one_sentence(command: str, here: Path, capsys):
    for model in (
        "folder",
        "./folder",
        "folder.pt",
        "folder.safetensors",
        "empty",
        "./empty",
        "junk.pt",
        "/",
        "./run",
        "junk.safetensors",
        "./half",
        "./list",
        "./other",
        "/dev/null",
        "./" + "x" * 300,
        "a\0b",
        "",
        "é",
    ):
        problem = ["1+2"] if command == "solve" else []
        status, said = outcome([command, model, *problem], capsys)
        assert status == 2 and "Traceback" not in said, model
        assert len(said.strip().splitlines()) == 1 and said.startswith("interp: "), (model, said)


# ---- where the output goes: of a process that imports no torch, and of commands that do in this one


def interp(arguments: str, shell: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    command = f"{sys.executable} -m interp.cli {arguments} {shell}"
    return subprocess.run(
        command, shell=True, cwd=REPOSITORY, capture_output=True, text=True, check=False, env=os.environ | environment
    )


def test_a_full_disk_is_one_sentence(monkeypatch, capsys):
    done = interp("--help", "> /dev/full")
    assert done.returncode == 2 and done.stderr.startswith("interp: ") and len(done.stderr.splitlines()) == 1
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        status, said = outcome(["solve", "microadder-57", "1+2"], capsys)
    assert status == 2 and said.startswith("interp: ") and len(said.splitlines()) == 1


@pytest.mark.parametrize("shell", [">&-", ">&- 2>&-"])
def test_closed_streams_are_no_error(shell: str, monkeypatch):
    done = interp("--help", shell)
    assert done.returncode == 0 and "Traceback" not in done.stderr + done.stdout
    for name in ("stdout", "stderr")[: shell.count("&-")]:
        monkeypatch.setattr(sys, name, None)
    assert main(["solve", "microadder-57", "1+2"]) == 0


def test_a_terminal_without_our_letters_gets_others(monkeypatch):
    done = interp("scroe", LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii", PYTHONCOERCECLOCALE="0")
    assert "Traceback" not in done.stderr and done.returncode == 2
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["list"]) == 0
    assert b"microadder-57" in written.getvalue()


def test_what_the_system_refuses_is_one_sentence(monkeypatch, capsys):
    import interp.cli.commands as cli

    def fails(error: BaseException):
        def run(arguments: list[str], program: object, said: list[str]) -> int:
            raise error

        return run

    for error in (OSError(28, "No space left on device", "file"), MemoryError(), UserError("no")):
        monkeypatch.setattr(cli, "_run", fails(error))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cli, "_discard_output", lambda: None)
            status, said = outcome([], capsys)
        assert status == 2 and len(said.splitlines()) == 1


def test_a_warning_is_one_line_without_source(monkeypatch, capsys):
    import warnings

    import interp.cli.commands as cli

    def run(arguments: list[str], program: object, said: list[str]) -> int:
        warnings.warn("mind this", stacklevel=1)
        return 0

    monkeypatch.setattr(cli, "_run", run)
    assert outcome([], capsys) == (0, "interp: warning: mind this\n")


def test_a_download_that_breaks_off_is_one_sentence_and_writes_nothing(monkeypatch, tmp_path: Path, capsys):
    import http.client
    import io
    import urllib.request

    class Broken(io.BytesIO):
        def read(self, *_: object) -> bytes:
            raise http.client.IncompleteRead(b"First Citizen", 1_000_000)

    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: Broken())
    status, said = outcome(["fetch-data", "--out", str(tmp_path / "text")], capsys)
    assert status == 2 and len(said.splitlines()) == 1 and not list(tmp_path.iterdir())
