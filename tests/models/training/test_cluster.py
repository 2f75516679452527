"""Ray itself: two workers on this machine, of which some are killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

import models
from benchmarks.false_certificates import Trials, trial
from interp.cli.commands import main, parse
from models.errors import UserError
from models.training import get_recipe, train_in_parts
from models.training.cluster import LOCAL, MOST_DEATHS, Cluster, connected, each
from models.training.run_folder import RunFolder
from models.training.train_in_parts import PlannedRun, train_on
from studies.position_coupling.exact_match_grid import exact_match_grid
from studies.runs import sweeps
from studies.runs.study import Settings
from tests.models.training.edited import saved

LONG = 900.0  # seconds: a busy machine takes its time to start workers
RECIPE = get_recipe("microadder").replace(
    steps=600, batch_size=32, eval_every=20, warmup_steps=10, validation_size=64, stop_after_perfect=None
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two workers. Workers import this module by name, as they do the project's own."""
    ray = pytest.importorskip("ray")
    path = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ |= LOCAL
    environment = {"env_vars": {"PYTHONPATH": ":".join(filter(None, path))}}
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, runtime_env=environment)
    try:
        with on_threads(1), connected("auto", "auto") as found:  # the connection that there is
            assert found is not None
            yield found
    finally:
        ray.shutdown()


@contextmanager
def on_threads(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def bits(folder: Path) -> list[Any]:
    _, tables, state = saved(folder)
    return [tables["theta"].tolist(), tables["best_theta"].tolist(), state["seeds"]]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Six seeds in parts of two, one part after the other in this process."""
    out = tmp_path_factory.mktemp("expected") / "run"
    with on_threads(1):
        train_on(None, [PlannedRun("microadder-57", out, 6, recipe=RECIPE)], parts_of=2, compile=False, progress=False)
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
    pack = train_in_parts.pack

    def packed(folder: Path) -> dict[str, bytes]:
        files = pack(folder)
        begun.append(sum(name.startswith("checkpoint-") for name in files))
        return files

    def kill() -> None:
        wait_for(lambda: len(list(out.glob("parts/*/checkpoint.json"))) >= 2)
        killed.append(wait_for(lambda: workers("_train_part"))[0])
        os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(train_in_parts, "pack", packed)
    killer = threading.Thread(target=kill)
    killer.start()
    run = PlannedRun("microadder-57", out, 6, recipe=RECIPE)
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
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        time.sleep(0.1)
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
    with on_threads(3), pytest.raises(UserError), connected("auto"):  # and each machine has two cores
        pass


@pytest.mark.slow
def test_sweeps_grids_and_trials_find_on_a_cluster_what_they_find_here(cluster: Cluster, tmp_path: Path):
    there = Settings(out=tmp_path / "cluster", seeds=2, progress=False, say=lambda _: None, cluster=cluster)
    here = replace(there, out=tmp_path / "here", cluster=None)
    names, recipe = ("microadder-57", "microadder-67"), RECIPE.replace(steps=40)
    rows = [
        sweeps.trained_rows(one, [sweeps.variant(one, name, name, recipe, name) for name in names])
        for one in (there, here, there)
    ]
    assert len(rows[0]) == 2 and rows[0] == rows[1] == rows[2]
    model = models.load("parity-coupling-1l4h-small")
    grids = [
        exact_match_grid(model, shapes=[(3,), (5,)], n=20, progress=False, cluster=where) for where in (cluster, None)
    ]
    assert grids[0].table.equals(grids[1].table)
    out = tmp_path / "trials.jsonl"
    Trials(n=1, out=out, pairs=100).run()
    first = out.read_text()
    Trials(n=3, out=out, pairs=100, cluster="auto").run()  # the connection that there is
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert out.read_text().startswith(first) and sorted(line["index"] for line in lines) == [0, 1, 2]
    for line in lines:
        again = asdict(trial(line["index"], pairs=100))
        assert again | {"seconds": 0} == line | {"seconds": 0}


LONGER = RECIPE.replace(steps=3000)  # some ten seconds, in which there is something to interrupt


def start(out: Path) -> subprocess.Popen[str]:
    """The command, in a group of processes of its own."""
    flags = "--seeds 4 --steps 3000 --batch-size 32 --eval-every 20 --warmup-steps 10 --validation-size 64"
    flags += " --stop-after-perfect None --compile False --device cpu --cluster local --parts-of 2"
    words = [sys.executable, "-m", "interp.cli", "train", "microadder-57", "--out", str(out), *flags.split()]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for_steps(process: subprocess.Popen[str], beyond: int) -> None:
    """Until its bar shows more steps than that."""
    assert process.stderr is not None
    said = ""
    while not any(int(n) > beyond for n in re.findall(r"\b(\d+)/\d+ \[", said)):
        char = process.stderr.read(1)
        assert char, said
        said += char


@pytest.mark.slow
def test_ctrl_c_saves_every_part_and_a_killed_driver_loses_nothing_that_was_saved(tmp_path: Path):
    pytest.importorskip("ray")
    out = tmp_path / "run"

    def steps() -> dict[str, int]:
        parts = {part.name: RunFolder(part).load_checkpoint() for part in out.glob("parts/*")}
        return {name: loaded[0] for name, loaded in parts.items() if loaded is not None}

    first = start(out)
    wait_for_steps(first, 0)
    assert not steps()  # nothing is saved in the first minute of a run, unless it is interrupted
    os.killpg(first.pid, signal.SIGINT)
    _, said = first.communicate(timeout=LONG)
    kept = steps()
    assert first.returncode == 130 and kept and all(0 < step < 3000 for step in kept.values()), said
    second = start(out)
    wait_for_steps(second, sum(kept.values()))
    second.kill()
    second.communicate(timeout=LONG)
    assert steps() == kept
    third = start(out)
    printed, said = third.communicate(timeout=LONG)
    assert third.returncode == 0 and "of 4 seeds answer every validation problem" in printed, said
    assert not (out / "parts").exists()

    run = PlannedRun("microadder-57", tmp_path / "alone", 4, recipe=LONGER)
    with on_threads(1):
        train_on(None, [run], parts_of=2, compile=False, progress=False)
    assert bits(out) == bits(tmp_path / "alone")


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        ["--cluster", "127.0.0.1:1"],
        ["--cluster", "nonsense"],
        ["--cluster", "ray://127.0.0.1:1"],
        ["--cluster", "local", "--data-parallel"],
        ["--parts-of", "3"],
    ],
    ids=" ".join,
)
def test_a_cluster_that_is_not_there_is_bad_input(more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("ray")
    assert main(["train", "microadder-57", "--out", str(tmp_path / "run"), *more]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1 and not (tmp_path / "run").exists()


def test_without_ray_one_sentence_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match="carrylens.cluster"):
        main_command = parse(["train", "microadder-57", "--out", str(tmp_path / "run"), "--cluster", "auto"])
        main_command.run()
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_cluster_of_this_machine_is_this_process_own(tmp_path: Path) -> None:
    """It listens on 127.0.0.1 alone, its folder is closed, and a process without its token runs nothing."""
    code = """
import os, stat, sys
from models.training.cluster import connected
with connected("local") as cluster:
    import ray
    folder = ray._private.worker._global_node.get_temp_dir_path()
    address = ray.get_runtime_context().gcs_address
    mode = oct(stat.S_IMODE(os.stat(os.path.dirname(folder)).st_mode))
    print(address.rpartition(":")[0], mode, len(os.environ["RAY_AUTH_TOKEN"]))
assert "RAY_AUTH_TOKEN" not in os.environ and not os.path.exists(os.path.dirname(folder))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LONG, check=True)
    assert found.stdout.split()[-3:] == ["127.0.0.1", "0o700", "64"]
