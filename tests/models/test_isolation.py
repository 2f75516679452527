"""A process of its own: what comes back, what the program in it cannot do, and how it ends."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
import torch

from models.errors import UserError
from models.isolation import run_isolated
from tests.sampling import sampled

ATTEMPTS = "tests.models.programs:attempts"
MiB = 1 << 20
#: Refused by Python's own audit hook, on any system.
BY_PYTHON = {
    "write": "open({outside!r}, 'w')",
    "append": "import os; os.open({outside!r}, os.O_WRONLY | os.O_APPEND)",
    "remove": "import os; os.remove({outside!r})",
    "move away": "import os; os.rename({outside!r}, 'mine')",
    "move over": "import os; open('mine', 'w').close(); os.replace('mine', {outside!r})",
    "link": "import os; os.symlink({outside!r}, 'there')",
    "socket": "import socket; socket.socket()",
    "name": "import socket; socket.getaddrinfo('localhost', 80)",
    "program": "import subprocess; subprocess.run(['true'])",
    "shell": "import os; os.system('true')",
    "fork": "import os; os.fork()",
    "signal": "import os; os.kill(os.getppid(), 9)",
    "library": "import ctypes; ctypes.CDLL(None)",
}
_LIBC = "import ctypes, os, struct; c = ctypes.pythonapi; "  # the system's functions, past Python's hooks
_ADDRESS = "struct.pack('=HH4s8x', 2, {port} >> 8 | ({port} & 255) << 8, bytes((127, 0, 0, 1)))"
#: Refused by the kernel where Python is got around.
BY_KERNEL = {
    "write": _LIBC + "found = c.open({outside!r}.encode(), os.O_WRONLY)",
    "remove": _LIBC + "found = c.unlink({outside!r}.encode())",
    "signal": _LIBC + "found = c.kill(os.getppid(), 0)",
    "program": _LIBC + "found = c.execl(b'/bin/true', b'true', None)",
    "connect": _LIBC + "found = c.connect(c.socket(2, 1, 0), " + _ADDRESS + ", 16)",
}
ALLOWED = {
    "own file": "open('mine', 'w').write('a'); found = open('mine').read()",
    "read": "found = open({outside!r}).read()",
    "read past Python": _LIBC + "found = c.open({outside!r}.encode(), os.O_RDONLY) >= 0",
    "environment": "import os; found = sorted(os.environ)",
    "too much memory": "bytearray(600 << 20)",
    "too many numbers": "import torch; torch.ones(600 << 18)",
    "some memory": "found = len(bytearray(100 << 20))",
    "output": "import os; print('x' * 9999); os.write(1, b'!' * 9999)",
}


def test_what_comes_back_and_what_cannot_be_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process tries everything, first as Python asks for it and then past Python."""
    outside = tmp_path / "outside"
    outside.write_text("kept")
    monkeypatch.setenv("A_SECRET", "told")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        groups = {"python": BY_PYTHON, "kernel": BY_KERNEL, "allowed": ALLOWED}
        port = server.getsockname()[1]
        statements = {
            f"{group} {name}": text.replace("{outside!r}", repr(str(outside))).replace("{port}", str(port))
            for group, texts in groups.items()
            for name, text in texts.items()
        }
        tensors, said = run_isolated(ATTEMPTS, {"statements": statements}, memory=512 * MiB)
        with pytest.raises(TimeoutError):
            server.accept()
    assert torch.equal(tensors["tensor"], torch.tensor([1.5, float("-inf")])) and list(tensors) == ["tensor"]
    assert {said[f"python {name}"] for name in BY_PYTHON} == {"PermissionError"}
    if not said["unprotected"]:
        assert {name: said[f"kernel {name}"] for name in BY_KERNEL} == dict.fromkeys(BY_KERNEL, -1)
    assert outside.read_text() == "kept" and [path.name for path in tmp_path.iterdir()] == ["outside"]
    assert (said["allowed own file"], said["allowed read"], said["allowed read past Python"]) == ("a", "kept", True)
    assert "A_SECRET" not in said["allowed environment"] and "HOME" in said["allowed environment"]
    assert said["allowed too much memory"] == "MemoryError" and said["allowed too many numbers"] == "RuntimeError"
    assert said["allowed some memory"] == 100 * MiB and said["allowed output"] is None


@pytest.mark.parametrize("statement", sampled(["while True: pass", "import time; time.sleep(99)"], "while True: pass"))
def test_a_program_that_does_not_end_is_ended(statement: str) -> None:
    start = time.monotonic()
    with pytest.raises(UserError, match="1 seconds"):
        run_isolated(ATTEMPTS, {"statements": {"": statement}}, seconds=1.0)
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
        run_isolated(ATTEMPTS, {"statements": {"": statement}})
    assert len(str(error.value)) <= 300 and str(error.value).isprintable()


def test_an_answer_is_data_and_nothing_else(tmp_path: Path) -> None:
    """Bytes that the program itself writes in place of the answer are not unpickled or evaluated."""
    marker = tmp_path / "marker"
    forged = (
        "import os, sys, json, pickle\n"
        "class P:\n"
        f"    def __reduce__(self): return open, ({str(marker)!r}, 'w')\n"
        "os.write(json.loads(sys.argv[2])['answer'], pickle.dumps(P()))\n"
        "os._exit(0)\n"
    )
    with pytest.raises(UserError, match="no answer"):
        run_isolated(ATTEMPTS, {"statements": {"": forged}})
    assert not marker.exists()
