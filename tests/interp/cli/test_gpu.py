"""The queue for a GPU: its plan, its slices, what is kept of them; and every step of it at toy size, on a CPU."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from interp.cli import gpu, main
from interp.cli.gpu import Gpu, Job, keep, read_queue
from models.errors import UserError
from models.registry import build
from models.training.objective import ParameterLayout
from models.training.run_folder import RunFolder
from tests.text_at_hand import text_at_hand

TRAIN = ["train", "microadder-57", "--seeds", "2", "--steps", "4", "--eval-every", "2", "--validation-size", "16"]


def a_queue(path: Path, **jobs: list[str]) -> Path:
    text = "".join(
        f'[[job]]\nname = "{name}"\ncommand = {json.dumps(words)}\nminutes = 1\ngib = 1\n'
        for name, words in jobs.items()
    )
    path.write_text(text)
    return path


def start(out: Path, queue: Path, *more: str) -> dict[str, dict]:
    assert main(["gpu", "--device", "cpu", "--out", str(out), "--queue", str(queue), *more]) == 0
    return json.loads((out / "queue.json").read_text())


def metrics(folder: Path) -> list[str]:
    return (folder / "metrics.jsonl").read_text().splitlines()


def test_slices_end_where_one_go_does(tmp_path: Path) -> None:
    queue = a_queue(tmp_path / "queue.toml", a=TRAIN)
    sliced = start(tmp_path / "slices", queue, "--slice", "0.000001")["a"]
    assert start(tmp_path / "whole", queue)["a"]["slices"] == 1
    assert sliced["status"] == "done" and sliced["slices"] == 4
    kept = [tmp_path / name / "kept" / "a" for name in ("slices", "whole")]
    assert metrics(kept[0]) == metrics(kept[1]) and len(metrics(kept[0])) == 2
    one, other = (load_file(folder / "weights.safetensors") for folder in kept)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert one["arc_A"].shape == (2,) and one["arc_A"].dtype == torch.float32
    assert start(tmp_path / "slices", queue)["a"] == sliced  # what is done is not begun again


def test_a_job_that_fails_lets_the_others_go_on_and_is_tried_again(tmp_path: Path) -> None:
    taken = tmp_path / "out" / "runs" / "a"
    taken.mkdir(parents=True)
    (taken / "mine").touch()
    queue = a_queue(tmp_path / "queue.toml", a=TRAIN, b=TRAIN)
    found = start(tmp_path / "out", queue)
    assert (found["a"]["status"], found["b"]["status"]) == ("failed", "done")
    (taken / "mine").unlink()
    assert start(tmp_path / "out", queue)["a"]["status"] == "done"


def test_the_time_in_all_ends_it_and_the_next_start_goes_on(tmp_path: Path, monkeypatch, capsys) -> None:
    queue, seconds = a_queue(tmp_path / "queue.toml", a=TRAIN), count()
    with monkeypatch.context() as patch:  # every look at the clock takes a second
        patch.setattr(gpu, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
        first = start(tmp_path / "out", queue, "--minutes", "0.05", "--slice", "0.000001")["a"]
    assert (first["status"], first["slices"]) == ("begun", 1) and "Not finished" in capsys.readouterr().out
    assert start(tmp_path / "out", queue)["a"]["status"] == "done"


def test_large_weights_are_halved_and_cut_into_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([*TRAIN, "--out", str(tmp_path / "run")]) == 0
    monkeypatch.setattr(gpu, "FILE_BYTES", 64)
    keep(tmp_path / "run", tmp_path / "kept")
    files = sorted((tmp_path / "kept").glob("weights-*.safetensors"))
    index = json.loads((tmp_path / "kept" / "weights.safetensors.index.json").read_text())["weight_map"]
    parts = {file.name: load_file(file) for file in files}
    assert len(files) > 3 and {name for part in parts.values() for name in part} == set(index)
    assert all(len(part) == 1 or sum(x.nbytes for x in part.values()) <= 64 for part in parts.values())
    loaded = RunFolder(tmp_path / "run").load_checkpoint()
    assert loaded is not None
    for name, x in ParameterLayout(build("microadder-57")).unflatten(loaded[1]["best_theta"]).items():
        assert torch.equal(parts[index[name]][name], x.half())


def test_a_queue_that_cannot_be_run_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    for words in (["score", "microadder-57"], [], ["train", "microader-57"]):
        queue = a_queue(tmp_path / "queue.toml", a=TRAIN, b=words)
        assert main(["gpu", "--device", "cpu", "--out", str(tmp_path / "out"), "--queue", str(queue)]) == 2
    with pytest.raises(UserError):
        Job("a", TRAIN, minutes=0, gib=1)
    (tmp_path / "twice.toml").write_text(queue.read_text().replace('"b"', '"a"'))
    for path in (tmp_path / "none.toml", tmp_path / "twice.toml"):
        with pytest.raises(UserError):
            read_queue(path)
    assert not (tmp_path / "out").exists()


def test_the_plan_counts_what_is_left(tmp_path: Path, capsys) -> None:
    jobs = read_queue()
    *_, last = Gpu(out=tmp_path).planned(jobs)
    assert f"about {sum(job.minutes for job in jobs):g} minutes" in last
    (tmp_path / "queue.json").write_text(json.dumps({jobs[0].name: {"status": "done", "slices": 1, "minutes": 2.0}}))
    *_, last = Gpu(out=tmp_path).planned(jobs)
    assert f"about {sum(job.minutes for job in jobs[1:]):g} minutes" in last
    if not torch.cuda.is_available():
        assert main(["gpu", "--out", str(tmp_path / "out")]) == 2 and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_every_step_of_the_queue_runs_at_toy_size(tmp_path: Path) -> None:
    jobs = {job.name: job for job in read_queue() if text_at_hand() or "addlm" not in job.name}
    assert all(job.toy and job.toy[0] in ("train", job.command[0]) for job in jobs.values())  # reproducing trains too
    assert {job.toy[0] for job in jobs.values()} == {job.command[0] for job in jobs.values()}
    trained = [name for name, job in jobs.items() if job.toy[0] == "train"]
    state = start(tmp_path, gpu.QUEUE, "--toy", "--slice", "0.000001")
    assert all(state[name]["status"] == "done" and state[name]["slices"] > 1 for name in trained)
    state = start(tmp_path, gpu.QUEUE, "--toy")
    assert {name: state[name]["status"] for name in jobs} == dict.fromkeys(jobs, "done")
    for name in jobs:
        kept = {path.suffix for path in (tmp_path / "kept" / name).iterdir()}
        assert kept >= ({".safetensors", ".jsonl", ".json"} if name in trained else {".html", ".json"})
    assert all(path.stat().st_size <= 2**24 for path in (tmp_path / "kept").rglob("*"))
