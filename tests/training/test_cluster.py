"""Ray itself: two workers on this machine, of which some are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from models.cluster import MOST_DEATHS, Cluster, connected, each
from models.errors import UserError
from models.training import get_recipe, many_seeds
from models.training.many_seeds import Run, train_on
from models.training.run_folder import RunFolder

LONG = 300.0  # seconds: a busy machine takes its time to start workers
RECIPE = get_recipe("microadder").replace(
    steps=400, batch_size=32, eval_every=20, warmup_steps=10, validation_size=64, stop_after_perfect=None
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two workers. Workers import this module by name, as they do the project's own."""
    ray = pytest.importorskip("ray")
    path = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    environment = {"env_vars": {"PYTHONPATH": ":".join(filter(None, path))}}
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with connected("auto", "auto") as found:  # the connection that there is
            assert found is not None
            yield found
    finally:
        torch.set_num_threads(threads)
        ray.shutdown()


def bits(folder: Path) -> list[Any]:
    loaded = RunFolder(folder).load_checkpoint()
    assert loaded is not None
    return [loaded[1]["theta"].tolist(), loaded[1]["best_theta"].tolist(), loaded[2]["seeds"]]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Six seeds in parts of two, one part after the other in this process."""
    out = tmp_path_factory.mktemp("expected") / "run"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    train_on(None, [Run("microadder-57", out, 6, recipe=RECIPE)], parts_of=2, compile=False, progress=False)
    torch.set_num_threads(threads)
    return bits(out)


def workers(name: str) -> list[int]:
    """Processes below this one that run a task of this name."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes().startswith(f"ray::{name}".encode()):
                pid = at = int(process.name)
                while at > 1 and at != os.getpid():
                    at = int((Path("/proc") / str(at) / "stat").read_text().rpartition(")")[2].split()[1])
                found += [pid] if at == os.getpid() else []
        except OSError:  # it has ended
            continue
    return found


def wait_for(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + LONG
    while not (found := what()):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found


@pytest.mark.slow
def test_a_killed_worker_s_part_goes_on_from_its_checkpoint_and_the_bits_are_the_same(
    cluster: Cluster, expected: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    out, begun, killed = tmp_path / "run", list[int](), list[int]()
    pack = many_seeds.pack

    def packed(folder: Path) -> dict[str, bytes]:
        files = pack(folder)
        begun.append(sum(name.startswith("checkpoint-") for name in files))
        return files

    def kill() -> None:
        wait_for(lambda: list(out.glob("parts/*/checkpoint.json")))
        killed.append(wait_for(lambda: workers("_train_part"))[0])
        os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(many_seeds, "pack", packed)
    killer = threading.Thread(target=kill)
    killer.start()
    run = Run("microadder-57", out, 6, recipe=RECIPE)
    (result,) = train_on(cluster, [run], parts_of=2, compile=False, checkpoint_seconds=0.0, progress=False)
    killer.join()
    assert killed and result.complete and bits(out) == expected
    assert begun == [0, 0, 0, 1]  # three parts from nothing, and one from what its first worker had sent


def dies(post: Callable[[Any], None], i: int, attempt: int, times: int) -> tuple[int, int]:
    post(f"{i} begins")
    if attempt < times and i == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return i, attempt


def dies_silently(post: Callable[[Any], None], i: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuses(post: Callable[[Any], None], i: int) -> int:
    if i:
        raise UserError("This job cannot be done.")
    time.sleep(600)
    return i


@pytest.mark.slow
def test_jobs_are_done_once_whatever_their_workers_do(cluster: Cluster):
    begun, found = [0, 0, 0], []

    def arguments(i: int) -> tuple:
        begun[i] += 1
        return i, begun[i] - 1, 2

    assert each(dies, 3, arguments, lambda i, item: found.append(item), cluster)
    assert sorted(item for item in found if isinstance(item, tuple)) == [(0, 0), (1, 2), (2, 0)]
    assert begun == [1, 3, 1] and sum(item == "1 begins" for item in found if isinstance(item, str)) >= 1


@pytest.mark.slow
def test_a_job_that_kills_every_worker_is_given_up(cluster: Cluster):
    begun = []
    with pytest.raises(UserError):
        each(dies_silently, 1, lambda i: (begun.append(i) or i,), lambda i, item: None, cluster)
    assert len(begun) == MOST_DEATHS


@pytest.mark.slow
def test_an_error_of_one_job_stops_the_others_and_is_raised_as_it_is(cluster: Cluster):
    started = time.monotonic()
    with pytest.raises(UserError) as caught:
        each(refuses, 2, lambda i: (i,), lambda i, item: None, cluster)
    assert str(caught.value) == "This job cannot be done." and time.monotonic() - started < LONG


@pytest.mark.slow
def test_what_the_cluster_does_not_have_is_refused(cluster: Cluster):
    for address, device in (("auto", "cuda:1"), ("auto", "cuda"), ("auto", "tpu")):
        if device != "cuda" or not torch.cuda.is_available():
            with pytest.raises(UserError), connected(address, device):
                pass
    threads = torch.get_num_threads()
    torch.set_num_threads(3)  # and each machine has two cores
    try:
        with pytest.raises(UserError), connected("auto"):
            pass
    finally:
        torch.set_num_threads(threads)


def command(out: Path, *more: str) -> list[str]:
    flags = "--seeds 6 --steps 400 --batch-size 32 --eval-every 20 --warmup-steps 10 --validation-size 64"
    flags += " --stop-after-perfect None --no-compile --device cpu"
    return [sys.executable, "-m", "interp.cli", "train", "microadder-57", "--out", str(out), *flags.split(), *more]


@pytest.mark.slow
def test_ctrl_c_and_a_killed_driver_lose_nothing_that_was_saved(expected: list[Any], tmp_path: Path):
    pytest.importorskip("ray")
    out = tmp_path / "run"
    words = command(out, "--cluster", "local", "--parts-of", "2")

    def steps() -> dict[str, int]:
        found = {}
        for part in out.glob("parts/*"):
            loaded = RunFolder(part).load_checkpoint()
            found |= {} if loaded is None else {part.name: loaded[0]}
        return found

    def start(**more: Any) -> subprocess.Popen[str]:
        # Ctrl-C reaches a whole group of processes; Ray's are the driver's business.
        return subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **more)

    first = start(start_new_session=True)
    progress = wait_for(lambda: next((line for line in iter(lambda: first.stderr.read(1), "") if line == "%"), None))
    assert progress
    os.killpg(first.pid, signal.SIGINT)
    _, said = first.communicate(timeout=LONG)
    assert first.returncode == 130, said
    (result,) = train_on(None, [Run("microadder-57", out, 6, recipe=RECIPE)], minutes=0.0, progress=False)
    assert not result.complete
