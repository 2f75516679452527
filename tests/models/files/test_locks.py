"""One at a time: who comes second hears who is there, and what a dead process left is taken over."""

import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from models.errors import Caution, UserError
from models.files.locks import locked

HOLD = """
import sys, time
from pathlib import Path
from models.files.locks import locked
with locked(Path(sys.argv[1]), "it"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path):
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_the_second_process_hears_who_holds_it(tmp_path: Path, holder):
    with pytest.raises(UserError) as error, locked(tmp_path / "lock", "it"):
        raise AssertionError("two hold one lock")
    found = json.loads((tmp_path / "lock").read_text())
    assert found["pid"] == holder.pid and found["host"] == socket.gethostname()
    assert all(str(found[key]) in str(error.value) for key in ("pid", "host", "since"))


def test_what_a_killed_process_left_is_taken_over(tmp_path: Path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "lock").exists()
    with locked(tmp_path / "lock", "it"):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    assert not (tmp_path / "lock").exists()


def test_it_is_free_again_after_an_error_and_not_within_one_process(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "lock", "it"):
        with pytest.raises(UserError), locked(tmp_path / "lock", "it"):
            raise AssertionError("two hold one lock")
        raise ZeroDivisionError
    with locked(tmp_path / "lock", "it"):
        pass


def test_a_lock_that_its_holder_removes_is_not_held_by_who_opened_it_before(tmp_path: Path, monkeypatch):
    """Between opening and locking, the holder ends and removes the file: the name must be locked, not what it was."""
    path, original, inodes = tmp_path / "lock", fcntl.flock, []

    def removed_in_between(descriptor: int, how: int) -> None:
        if not inodes:
            path.unlink()
        inodes.append(os.fstat(descriptor).st_ino)
        original(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", removed_in_between)
    with locked(path, "it"):
        assert len(inodes) == 2 and path.stat().st_ino == inodes[1]


def test_a_file_system_without_locks_is_warned_of(tmp_path: Path, monkeypatch):
    def none(descriptor: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.warns(Caution), locked(tmp_path / "lock", "it"):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()
    assert not (tmp_path / "lock").exists()


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path):
    (tmp_path / "file").touch()
    for name in ("file", "a\0b"):
        with pytest.raises(UserError), locked(tmp_path / name / "lock", "it"):
            raise AssertionError
