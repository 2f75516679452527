"""A process of its own: what comes back, what a confined program cannot do, and how it ends."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from models.errors import UserError
from models.files.checkpoint import format_weights
from studies.adderboard.isolation import UNCONFINED, _answer, _bubblewrap, _no_bubblewrap, require_shelter, run_isolated
from tests.sampling import sampled

ATTEMPTS = "tests.studies.adderboard.programs:attempts"
MiB = 1 << 20
_LIBC = "import ctypes, os, resource, signal; c = ctypes.CDLL(None, use_errno=True); "
#: What reaches outside, as (statement, what it gives to a program that may). Each is run as Python has it or past it.
REACHES = {
    "read": ("found = open({outside!r}).read()", "kept"),
    "list": ("import os; found = 'outside' in os.listdir({folder!r})", True),
    "remove": ("import os; found = os.remove({folder!r} + '/removed')", None),
    "write beside": ("import os; found = open(os.path.dirname({program!r}) + '/new', 'w').write('a')", 1),
    "mode": ("import os; found = os.chmod({program!r}, 0o644)", None),
    "mode by descriptor": (_LIBC + "found = c.fchmod(os.open({program!r}, os.O_RDONLY), 0o644)", 0),
    "attribute": (_LIBC + "found = c.setxattr({program!r}.encode(), b'user.a', b'b', 1, 0)", 0),
    "time": ("import os; found = os.utime({program!r}, (1, 1))", None),
    "network": ("import socket; found = socket.create_connection(('127.0.0.1', {port})) is not None", True),
    "path socket": ("import socket; found = socket.socket(socket.AF_UNIX).connect({socket!r})", None),
    "signal": ("import os; found = os.kill({parent}, 0)", None),
    "limits of others": (_LIBC + "found = len(resource.prlimit({parent}, resource.RLIMIT_CPU))", 2),
    "memory of others": (
        "import glob, os\nfound = False\nfor at in glob.glob('/proc/[0-9]*/mem'):\n"
        "  try: found |= at != f'/proc/{os.getpid()}/mem' and open(at, 'r+b') is not None\n  except OSError: pass",
        True,
    ),
    "script's folder": ("found = open({script!r} + '/notes').read()", "kept"),
    "script's package": ("found = open({script!r} + '/own/__init__.py').read()", ""),
    "anonymous file": ("import os; found = os.memfd_create('a') > 0", True),
    "shared memory": (_LIBC + "found = c.shmget(0, 4096, 0o600) >= 0", True),
}
#: What a confined program may do, and where its limits are.
LIMITS = {
    "own file": ("open('mine', 'w').write('a'); found = open('mine').read()", "a"),
    "process": ("import os; os.fork()", "PermissionError"),
    "thread": ("import threading; threading.Thread(target=print).start()", "RuntimeError"),
    "large file": ("f = open('large', 'wb')\nfor _ in range(70): f.write(bytes(1 << 20))", "OSError"),
    "too much memory": ("bytearray(600 << 20)", "MemoryError"),
    "too many numbers": ("import torch; torch.ones(600 << 18)", "RuntimeError"),
    "some memory": ("found = len(bytearray(100 << 20))", 100 * MiB),
    "limits of all processes": (
        "import glob\nfiles = glob.glob('/proc/[0-9]*/limits')\n"
        "found = {x.split()[3] for at in files for x in open(at) if 'address' in x}\n"
        "found = [each.isdigit() for each in found]",
        [True],
    ),
    "output": ("import os; print('x' * 9999); found = os.write(1, b'!' * 9999)", 9999),
    "secret": ("import os; found = 'A_SECRET' in os.environ", False),
}


def require_bubblewrap() -> None:
    if why := _no_bubblewrap():
        pytest.skip(f"nothing can be confined here: {why}")


def attempts(group: dict[str, tuple[str, object]], places: dict[str, object]) -> dict[str, str]:
    """The statements, with their places put in."""
    found = {}
    for name, (text, _) in group.items():
        for place, value in places.items():
            text = text.replace(f"{{{place}!r}}", repr(value)).replace(f"{{{place}}}", str(value))
        found[name] = text
    return found


@pytest.mark.parametrize("trust", [True, UNCONFINED])
def test_what_comes_back_and_what_can_be_reached(
    trust: bool | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A confined process reaches nothing of what an unconfined one, the control, reaches."""
    if trust is True:
        require_bubblewrap()
    outside, shown = tmp_path / "outside", tmp_path / "shown"
    outside.write_text("kept")
    shown.mkdir()
    (tmp_path / "removed").touch()
    (shown / "program.py").write_text("# its own text")
    (shown / "program.py").chmod(0o600)
    (tmp_path / "script" / "own").mkdir(parents=True)
    (tmp_path / "script" / "own" / "__init__.py").touch()
    (tmp_path / "script" / "notes").write_text("kept")
    monkeypatch.syspath_prepend(tmp_path / "script")
    monkeypatch.setenv("A_SECRET", "told")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(tmp_path)
        listener.bind("s")
        listener.listen()
        places = {"outside": str(outside), "folder": str(tmp_path), "program": str(shown / "program.py")}
        places |= {"script": str(tmp_path / "script")}
        places |= {"socket": str(tmp_path / "s"), "port": server.getsockname()[1], "parent": os.getpid()}
        groups = REACHES | LIMITS if trust is True else REACHES
        statements = attempts(groups, places)
        tensors, said = run_isolated(ATTEMPTS, {"statements": statements}, 60, 512 * MiB, trust, shown)
    assert torch.equal(tensors["tensor"], torch.tensor([1.5, float("-inf")])) and list(tensors) == ["tensor"]
    for name, (_, allowed) in REACHES.items():
        if trust != UNCONFINED:
            assert said[name] != allowed or said[name] is False, name
        elif name != "attribute":  # which not every file system has
            assert said[name] == allowed, name
    if trust is True:
        assert {name: said[name] for name in LIMITS} == {name: expected for name, (_, expected) in LIMITS.items()}
        assert (shown / "program.py").stat().st_mode & 0o777 == 0o600 and outside.read_text() == "kept"
        assert {path.name for path in tmp_path.iterdir()} == {"outside", "removed", "script", "shown", "s"}
        assert [path.name for path in shown.iterdir()] == ["program.py"]


def test_what_is_shown_is_there_under_a_link_to_it_too(tmp_path: Path) -> None:
    """As an environment is that several checkouts share."""
    require_bubblewrap()
    (tmp_path / "real" / "packages").mkdir(parents=True)
    (tmp_path / "real" / "packages" / "a").write_text("kept")
    (tmp_path / "root").mkdir()
    for link in (tmp_path / "root" / "link", tmp_path / "elsewhere"):
        link.symlink_to(tmp_path / "real")
        command = _bubblewrap([str(tmp_path / "root"), str(link / "packages")])
        done = subprocess.run([*command, "--", "/usr/bin/cat", str(link / "packages" / "a")], capture_output=True)
        assert done.stdout == b"kept"


def test_a_program_that_does_not_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    require_bubblewrap()
    statement = (
        "import os, time\nfor _ in range(3):\n  try: os.fork() or os.setsid()\n  except OSError: pass\nwhile True: pass"
    )
    start = time.monotonic()
    with pytest.raises(UserError, match="1 seconds"):
        run_isolated(ATTEMPTS, {"statements": {"": statement}}, seconds=1.0)
    assert time.monotonic() - start < 60


@pytest.mark.slow
@pytest.mark.parametrize("statement", sampled(["while True: pass", "import time; time.sleep(99)"], "while True: pass"))
def test_an_unconfined_program_that_does_not_end_is_ended(statement: str) -> None:
    start = time.monotonic()
    with pytest.raises(UserError, match="1 seconds"):
        run_isolated(ATTEMPTS, {"statements": {"": statement}}, seconds=1.0, trust=UNCONFINED)
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        pytest.param("import os; os._exit(3)", "status 3", marks=pytest.mark.slow),
        ("raise SystemExit('a\\n\\x1b[31m' + 'b' * 9999)", r"SystemExit: a \?\[31mb+$"),
    ],
)
def test_a_program_that_ends_itself_is_an_error(statement: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        run_isolated(ATTEMPTS, {"statements": {"": statement}}, trust=UNCONFINED)
    assert len(str(error.value)) <= 300 and str(error.value).isprintable()


@pytest.mark.slow
def test_a_command_of_ones_own_runs_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a container's: what stands before it is run, and it is shown the folder."""
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/called\nshift\nexec "$@"\n')
    wrapper.chmod(0o700)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    command = f"{wrapper} {{folder}} {sys.executable} -B"
    shown = tmp_path / "a folder"
    _, said = run_isolated(ATTEMPTS, {"statements": {"": "found = 1"}}, trust=command, folder=shown)
    assert said == {"": 1} and (tmp_path / "called").read_text().strip() == str(shown)


@pytest.mark.parametrize("trust", ["please", "", "'", "no-such-command run"])
def test_another_word_than_a_command_is_refused(trust: str) -> None:
    with pytest.raises(UserError, match="unconfined"):
        require_shelter(trust)


def test_without_bubblewrap_nothing_runs_until_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "bwrap" else which(name))
    _no_bubblewrap.cache_clear()
    try:
        with pytest.raises(UserError, match="what you can"):
            run_isolated(ATTEMPTS, {"statements": {}})
        require_shelter(UNCONFINED)
    finally:
        _no_bubblewrap.cache_clear()


NO_ANSWERS = {
    "pickle": b"\x80\x04\x95",
    "nothing after a header": (5).to_bytes(8, "little") + b"{}",
    "a list": format_weights({}, {"facts": "[]"}),
    "too deep": format_weights({}, {"facts": "[" * 100_000}),
    "a deep header": (10**5).to_bytes(8, "little") + b"[" * 10**5,
    "infinite": format_weights({}, {"facts": '{"free": Infinity}'}),
    "no number": format_weights({}, {"facts": '{"free": NaN}'}),
    "a long number": format_weights({}, {"facts": '{"free": 1' + "0" * 9999 + "}"}),
    "no facts": format_weights({}, {}),
    "too large": bytes((64 << 20) + 1),
}


@pytest.mark.parametrize("name", NO_ANSWERS)
def test_an_answer_is_data_and_nothing_else(name: str) -> None:
    with pytest.raises(UserError, match="no answer"):
        _answer(NO_ANSWERS[name], 0, 1.0)
