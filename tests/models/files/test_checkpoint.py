"""Files survive crashes and full disks, and damage is noticed."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from models.errors import UserError
from models.files import checkpoint
from models.files.checkpoint import read_bytes, write_bytes_atomic
from models.files.stored_names import ZOO

TENSORS = {
    "matrix": torch.randn(4, 3, generator=torch.Generator().manual_seed(0)),
    "scalar": torch.tensor(2.5),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "steps": torch.arange(5),
    "flags": torch.tensor([True, False]),
    "empty": torch.zeros(0, 7),
}


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "weights.safetensors"
    checkpoint.save_weights(path, TENSORS, {"step": "17", "model": "x"})
    return path


def run_in_child(action: Callable[[], None]) -> int:
    """Fork, run ``action``, and return how the child ended: 0, its exit status, or minus the signal."""
    child = os.fork()
    if child == 0:
        try:
            action()
        except UserError:
            os._exit(3)
        finally:
            os._exit(4)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def only_file_in(folder: Path) -> str:
    (name,) = (path.name for path in folder.iterdir())
    return name


# ---- bytes


def test_writing_makes_missing_folders_and_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file"
    checkpoint.write_bytes_atomic(path, b"old")
    checkpoint.write_bytes_atomic(path, b"new")
    assert path.read_bytes() == b"new"
    assert only_file_in(path.parent) == "file"


def test_a_new_file_has_the_permissions_that_any_other_has(tmp_path: Path) -> None:
    checkpoint.write_bytes_atomic(tmp_path / "ours", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, number: int
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(UserError, match=f"file could not be written .{os.strerror(number)}.; what was there"):
        checkpoint.write_bytes_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert only_file_in(tmp_path) == "file"


def test_a_write_that_runs_out_of_space_half_way_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def write_more_than_allowed() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        checkpoint.write_bytes_atomic(path, bytes(10_000_000))

    assert run_in_child(write_more_than_allowed) == 3  # a UserError
    assert path.read_bytes() == b"old"
    assert only_file_in(tmp_path) == "file"


def test_the_new_bytes_are_on_disk_before_the_name_points_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (order.append("fsync"), fsync(descriptor))[1])
    monkeypatch.setattr(os, "replace", lambda *paths: (order.append("replace"), replace(*paths))[1])
    checkpoint.write_bytes_atomic(tmp_path / "file", b"new")
    assert order == ["fsync", "replace", "fsync"]  # the file, the rename, the folder


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_kill_before_the_rename_keeps_the_old_file(tmp_path: Path, step: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def die_at_step() -> None:
        setattr(os, step, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        checkpoint.write_bytes_atomic(path, b"new")

    assert run_in_child(die_at_step) == -signal.SIGKILL
    assert path.read_bytes() == b"old"


def test_a_kill_at_any_moment_leaves_one_whole_version(tmp_path: Path) -> None:
    path = tmp_path / "file"
    versions = [bytes([i]) * 2_000_000 for i in range(2)]
    path.write_bytes(versions[0])
    for round_ in range(8):
        child = os.fork()
        if child == 0:
            while True:
                for version in versions:
                    checkpoint.write_bytes_atomic(path, version)
        time.sleep(0.01 + 0.007 * round_)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        assert path.read_bytes() in versions


# ---- what must not be replaced


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "file", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    checkpoint.write_bytes_atomic(link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"
    target.unlink()
    checkpoint.write_bytes_atomic(link, b"again")  # a link to nothing, as open() would
    assert link.is_symlink() and target.read_bytes() == b"again"
    assert [path.name for path in target.parent.iterdir()] == ["file"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    checkpoint.write_bytes_atomic(path, b"new")
    assert path.read_bytes() == b"new" and stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_that_root_replaces_stays_its_owner_s(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    os.chown(path, 12345, 23456)
    checkpoint.write_bytes_atomic(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 23456)


def test_a_secret_is_readable_to_nobody_else_while_it_is_written(tmp_path: Path, monkeypatch) -> None:
    path, seen = tmp_path / "file", []
    path.write_bytes(b"old")
    path.chmod(0o600)
    keep = checkpoint._keep_permissions
    monkeypatch.setattr(
        checkpoint,
        "_keep_permissions",
        lambda d, *a: (seen.append(stat.S_IMODE(os.fstat(d).st_mode)), keep(d, *a)),
    )
    checkpoint.write_bytes_atomic(path, b"new")
    assert seen == [0o600]


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, data = tmp_path / "pipe", bytes(range(256)) * 1000  # more than a pipe holds
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    checkpoint.write_bytes_atomic(pipe, data)
    reader.join(30)
    assert read == [data] and stat.S_ISFIFO(pipe.lstat().st_mode)


def test_devices_stay_devices(tmp_path: Path) -> None:
    """Through a link, so that a failure replaces the link and not the machine's device."""
    null, full = tmp_path / "null", tmp_path / "full"
    null.symlink_to("/dev/null")
    full.symlink_to("/dev/full")
    checkpoint.write_bytes_atomic(null, b"data")
    with pytest.raises(UserError):
        checkpoint.write_bytes_atomic(full, b"data")
    assert null.is_symlink() and full.is_symlink()
    assert all(stat.S_ISCHR(Path(f"/dev/{name}").stat().st_mode) for name in ("null", "full"))


def test_what_this_process_prints_to_gets_both(tmp_path: Path) -> None:
    """``--json /dev/stdout > file``: the file has what was printed before, the data and what is printed after."""
    link, out = tmp_path / "stdout", tmp_path / "out"
    link.symlink_to("/dev/stdout")  # so that a failure replaces the link

    def print_to(descriptor: int) -> None:
        """In a child with this standard output."""
        if not (child := os.fork()):
            try:
                os.dup2(descriptor, 1)
                sys.stdout = os.fdopen(1, "w")
                print("before")
                write_bytes_atomic(link, b"data\n")
                print("after", flush=True)
            finally:
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    with out.open("wb") as file:
        print_to(file.fileno())
    assert out.read_bytes() == b"before\ndata\nafter\n" and link.is_symlink()
    reader, writer = os.pipe()
    print_to(writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as piped:
        assert piped.read() == b"before\ndata\nafter\n"


def test_a_reader_that_went_away_is_for_the_caller(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    opened = os.open

    def open_and_lose_the_reader(path, *arguments):
        descriptor = opened(path, *arguments)
        if str(path) == str(pipe):
            os.close(reader)
        return descriptor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", open_and_lose_the_reader)
        with pytest.raises(BrokenPipeError):
            checkpoint.write_bytes_atomic(pipe, b"data")


@pytest.mark.parametrize("name", ["a\0b", "folder", "x" * 300])
def test_a_path_that_cannot_be_written_is_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError):
        checkpoint.write_bytes_atomic(tmp_path / name, b"data")
    assert only_file_in(tmp_path) == "folder"


# ---- JSON


def test_json_comes_back_as_it_was(tmp_path: Path) -> None:
    value = {"name": "Ångström", "numbers": [1, 2.5, None], "nested": {"x": True}}
    checkpoint.write_json_atomic(tmp_path / "x.json", value)
    assert checkpoint.read_json(tmp_path / "x.json") == value


def test_a_value_that_is_not_json_overwrites_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    checkpoint.write_json_atomic(path, {"a": 1})
    for bad in ({"a": float("nan")}, {"a": object()}):
        with pytest.raises((ValueError, TypeError)):
            checkpoint.write_json_atomic(path, bad)
    assert checkpoint.read_json(path) == {"a": 1}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b'{"a": 1', "not valid JSON"), (b"\xff\xfe", "not valid JSON"), (b"[1]", "a list"), (b"", "not valid JSON")],
)
def test_a_damaged_json_file_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(UserError, match=f"x.json.*{complaint}"):
        checkpoint.read_json(tmp_path / "x.json")


# ---- weights


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_weights_and_metadata_come_back_bit_for_bit(weights: Path) -> None:
    tensors, metadata = checkpoint.load_weights(weights)
    assert_same(tensors, TENSORS)
    assert metadata == {"step": "17", "model": "x"}


def test_other_safetensors_readers_can_read_them(weights: Path) -> None:
    assert_same(safetensors.torch.load_file(weights), TENSORS)


def test_the_returned_hash_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    digest = checkpoint.save_weights(path, TENSORS, {})
    assert digest == checkpoint.sha256(path.read_bytes())
    assert_same(checkpoint.load_weights(path, digest)[0], TENSORS)


def test_equal_contents_make_equal_files(tmp_path: Path) -> None:
    metadata = {str(i): "x" for i in range(20)}
    first = checkpoint.save_weights(tmp_path / "1", TENSORS, metadata)
    backwards = dict(reversed(TENSORS.items())), dict(reversed(metadata.items()))
    assert checkpoint.save_weights(tmp_path / "2", *backwards) == first


def test_views_and_shared_memory_are_stored_by_value(tmp_path: Path) -> None:
    table = torch.arange(6.0).reshape(2, 3)
    shared = {"whole": table, "transposed": table.T, "row": table[0], "again": table}
    checkpoint.save_weights(tmp_path / "w", shared)
    assert_same(checkpoint.load_weights(tmp_path / "w")[0], shared)


def test_every_truncation_is_noticed(weights: Path) -> None:
    data = weights.read_bytes()
    for length in range(0, len(data), 7):
        weights.write_bytes(data[:length])
        with pytest.raises(UserError, match="weights.safetensors is not a complete safetensors file"):
            checkpoint.load_weights(weights)


def test_every_changed_byte_of_the_tensors_is_noticed(weights: Path) -> None:
    data = bytearray(weights.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    assert start < len(data)
    for position in range(start, len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        weights.write_bytes(changed)
        with pytest.raises(UserError, match="does not match the checksum"):
            checkpoint.load_weights(weights)


def test_no_changed_byte_of_the_header_gives_other_contents(weights: Path) -> None:
    data = bytearray(weights.read_bytes())
    for position in range(8 + int.from_bytes(data[:8], "little")):
        changed = bytearray(data)
        changed[position] ^= 1
        weights.write_bytes(changed)
        try:
            tensors, metadata = checkpoint.load_weights(weights)
        except UserError:
            continue
        # What passes (a flipped bit in a space, say) must mean the same.
        assert_same(tensors, TENSORS)
        assert metadata == {"step": "17", "model": "x"}


def test_a_file_hash_that_does_not_match_is_named(weights: Path) -> None:
    with pytest.raises(UserError, match="weights.safetensors does not match its recorded SHA-256"):
        checkpoint.load_weights(weights, "0" * 64)


def test_a_foreign_file_is_read_only_with_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "foreign.safetensors"
    safetensors.torch.save_file({"x": torch.ones(2)}, path)
    with pytest.raises(UserError, match="no checksum"):
        checkpoint.load_weights(path)
    assert_same(checkpoint.load_weights(path, checkpoint.sha256(path.read_bytes()))[0], {"x": torch.ones(2)})


@pytest.mark.parametrize("make", ["nothing", "folder", "text", "pickle"])
def test_what_is_no_weight_file_is_refused_by_name(tmp_path: Path, make: str) -> None:
    path = tmp_path / "thing.safetensors"
    complaint = {"nothing": "There is no file", "folder": "is a folder"}.get(make, "not a complete safetensors file")
    if make == "folder":
        path.mkdir()
    elif make == "text":
        path.write_text("weights")
    elif make == "pickle":
        torch.save({"x": torch.ones(1)}, path)
    with pytest.raises(UserError, match=complaint) as error:
        checkpoint.load_weights(path)
    assert "thing.safetensors" in str(error.value)


# ---- parameters


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda tensors: tensors.pop("bias"), "lacks bias"),
        (lambda tensors: tensors.update(extra=torch.ones(1)), "has extra"),
        (lambda tensors: tensors.update(bias=torch.ones(4)), r"bias as \[4\]"),
        (lambda tensors: tensors.update(bias=torch.ones(3).double()), "float64"),
    ],
)
def test_parameters_that_do_not_fit_change_nothing(change, complaint: str) -> None:
    module = torch.nn.Linear(2, 3)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    tensors = {name: torch.full_like(tensor, 7.0) for name, tensor in before.items()}
    change(tensors)
    with pytest.raises(UserError, match=f"here.bin.*{complaint}"):
        checkpoint.assign_parameters(module, tensors, "here.bin")
    assert_same(module.state_dict(), before)


def test_parameters_that_fit_are_copied() -> None:
    module = torch.nn.Linear(2, 3)
    tensors = {name: torch.full_like(tensor, 7.0) for name, tensor in module.state_dict().items()}
    checkpoint.assign_parameters(module, tensors, "here.bin")
    assert_same(module.state_dict(), tensors)


def test_what_an_installed_package_leaves_out_is_said_and_other_missing_files_are_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not in the installed package"):
        read_bytes(ZOO / "microadder-57" / "left_out.safetensors")
    for path in (ZOO / "no-such-model" / "model.safetensors", tmp_path / "model.safetensors"):
        with pytest.raises(UserError, match="There is no file"):
            read_bytes(path)
