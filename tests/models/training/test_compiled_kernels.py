"""The kernels' cache: what is damaged, foreign or cannot be built never reaches the process."""

import os
import shutil
import stat
import time
import warnings
from pathlib import Path

import pytest

from models.training.native import compiled_kernels as native
from models.training.native.compiled_kernels import library
from tests.sampling import sampled

SIZES = {"NQ": 1, "NP": 2, "FIRST": 1, "ND": 2, "NT": 1, "NM": 1, "NV": 2, "NR": 1}
SOURCE = ("split_stream.c", *(f"-D{name}={value}" for name, value in SIZES.items()))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder in which the library was built."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home))
        library.cache_clear()
        if library(*SOURCE) is None:
            pytest.skip("no C compiler here")
        library.cache_clear()
    return home / "carrylens"


@pytest.fixture
def cache(built: Path, tmp_path: Path, monkeypatch) -> Path:
    """A cache folder of its own with the library in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    shutil.copytree(built, tmp_path / "carrylens")
    library.cache_clear()
    yield tmp_path / "carrylens"
    library.cache_clear()


def builds(monkeypatch) -> list[str]:
    """What is compiled from now on."""
    seen, original = [], native._compiled
    monkeypatch.setattr(native, "_compiled", lambda *a: (seen.append(a[1]), original(*a))[1])
    return seen


def only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_it_is_built_once_and_private(cache: Path, monkeypatch):
    seen = builds(monkeypatch)
    kernel = library(*SOURCE)
    assert kernel is not None and kernel.loss_and_gradient and not seen
    assert stat.S_IMODE(only(cache).stat().st_mode) == 0o600
    assert only(cache).stem.startswith(native.kernel_name(kernel))


@pytest.mark.parametrize("damage", sampled(["truncated", "empty", "foreign", "one bit"], "one bit"))
def test_a_damaged_library_is_built_again(cache: Path, monkeypatch, damage: str):
    path = only(cache)
    whole = path.read_bytes()
    bit = bytearray(whole)
    bit[len(bit) // 2] ^= 1
    damaged = {"truncated": whole[: len(whole) // 3], "empty": b"", "one bit": bytes(bit)}
    if damage == "foreign":
        library("addition_batches.c")
        damaged["foreign"] = next(p.read_bytes() for p in cache.iterdir() if p != path)  # without the symbol
        library.cache_clear()
    path.unlink()
    path.write_bytes(damaged[damage])
    seen = builds(monkeypatch)
    kernel = library(*SOURCE)
    assert kernel is not None and kernel.loss_and_gradient
    assert seen == ["split_stream.c"] and path.read_bytes() == whole


def test_a_library_that_others_may_write_is_not_loaded(cache: Path, monkeypatch):
    only(cache).chmod(0o666)
    seen = builds(monkeypatch)
    assert library(*SOURCE) is not None
    assert seen == ["split_stream.c"] and stat.S_IMODE(only(cache).stat().st_mode) == 0o600


def test_a_link_to_another_library_is_not_loaded(cache: Path, monkeypatch):
    path = only(cache)
    path.rename(cache.parent / "elsewhere.so")
    path.symlink_to(cache.parent / "elsewhere.so")
    seen = builds(monkeypatch)
    assert library(*SOURCE) is not None and seen == ["split_stream.c"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("what", sampled(["file", "folder"], "file"))
def test_what_another_user_planted_is_not_loaded(cache: Path, monkeypatch, what: str):
    os.chown(only(cache) if what == "file" else cache, 12345, 12345)
    seen = builds(monkeypatch)
    assert library(*SOURCE) is not None and seen == ["split_stream.c"]


def test_a_folder_that_a_group_may_write_to_is_closed(cache: Path):
    cache.chmod(0o777)
    assert library(*SOURCE) is not None
    assert not stat.S_IMODE(cache.stat().st_mode) & 0o022


def test_without_a_home_it_is_built_for_this_process(monkeypatch, cache: Path):
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    kernel = library(*SOURCE)
    assert kernel is not None and kernel.loss_and_gradient


def test_a_cache_that_cannot_be_written_is_no_obstacle(monkeypatch, tmp_path: Path, cache: Path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert library(*SOURCE) is not None


def test_it_is_on_disk_before_it_has_its_name(cache: Path, monkeypatch):
    only(cache).unlink()
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda d: (order.append("fsync"), fsync(d))[1])
    monkeypatch.setattr(os, "replace", lambda *p: (order.append("replace"), replace(*p))[1])
    assert library(*SOURCE) is not None
    assert order[:2] == ["fsync", "replace"]


def compiler(folder: Path, script: str, monkeypatch) -> Path:
    """A compiler that does what ``script`` says, before all others on the path."""
    path = folder / "bin" / "gcc"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(native, "_given_up", [])
    return path


def test_a_compiler_that_hangs_is_given_up_with_what_it_started(tmp_path: Path, monkeypatch, cache: Path):
    own = compiler(tmp_path, f"sleep 300 & echo $! > {tmp_path}/child; wait", monkeypatch)
    monkeypatch.setattr(native, "PATIENCE", 0.5)
    started = time.monotonic()
    with pytest.warns(UserWarning, match="could not compile"):
        assert library(*SOURCE) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # and is not asked again
        assert library("addition_batches.c") is None
    assert time.monotonic() - started < 20 and native._given_up == [str(own)]
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    raise AssertionError("the compiler's child lives on")


def test_a_compiler_that_fails_says_so(tmp_path: Path, monkeypatch, cache: Path):
    compiler(tmp_path, "exit 1", monkeypatch)
    with pytest.warns(UserWarning, match="could not compile"):
        assert library(*SOURCE) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("flags : fpu avx2\nprocessor : 0\ncpu MHz : 1", "flags : fpu\nprocessor : 0\ncpu MHz : 1"),
        ("Features : asimd\nCPU part : 0xd40", "Features : asimd sve\nCPU part : 0xd40"),
        ("Features : asimd\nCPU part : 0xd40", "Features : asimd\nCPU part : 0xd0c"),
    ],
)
def test_the_key_tells_processors_apart_on_x86_and_arm(one: str, other: str, monkeypatch):
    def described(text: str) -> str:
        monkeypatch.setattr(Path, "read_text", lambda self: text)
        native.processor.cache_clear()
        return native.processor()

    try:
        assert described(one) != described(other)
        assert described(one) == described(one.replace("MHz : 1", "MHz : 2"))
    finally:
        monkeypatch.undo()
        native.processor.cache_clear()
