"""A run folder is one process's at a time, and damage to what it says is noticed."""

import contextlib
import errno
import json
import multiprocessing
import os
import random
import shutil
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import torch

import models
from models.errors import UserError
from models.files import locks
from models.training import run_folder, train
from models.training.publish import publish
from models.training.recipes import Recipe, starts_of
from models.training.run_folder import RunFolder, differences, digest_of
from models.transformer.hooked import model_name, own_name
from tests.models.training.edited import RECIPE, contents, edit_checkpoint, go_on, theta
from tests.sampling import sampled


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped; only copied."""
    folder = tmp_path_factory.mktemp("begun") / "run"
    go_on(folder, stop_at_step=20)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, which nothing stopped; only read."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    go_on(folder)
    return folder


@pytest.fixture
def run(tmp_path: Path, begun: Path) -> Path:
    return shutil.copytree(begun, tmp_path / "run")


# ---- one process


def test_a_second_process_is_refused_and_the_first_one_ends_as_if_alone(run: Path, whole: Path):
    with RunFolder(run).open(RunFolder(run).config()):
        before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
        with (
            ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as second,
            pytest.raises(UserError, match=str(os.getpid())),
        ):
            second.submit(go_on, run).result()
        with pytest.raises(UserError, match=str(os.getpid())):
            go_on(run)
        assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before
    go_on(run)
    assert torch.equal(theta(run), theta(whole))
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert not (run / ".lock").exists()


def test_a_start_that_is_refused_leaves_alone_what_began_after_it_had_looked(tmp_path: Path, monkeypatch):
    """The other one begins between the first look at the folder and the lock, in a folder that is new or empty."""
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "new" / "run", tmp_path / "empty"):
        with contextlib.ExitStack() as winner:

            def after_another(*arguments, out: Path = out, winner: contextlib.ExitStack = winner):
                monkeypatch.undo()
                winner.enter_context(RunFolder(out).open({"model": "winner"}))
                return locks.locked(*arguments)

            monkeypatch.setattr(run_folder, "locked", after_another)
            with pytest.raises(UserError), RunFolder(out).open({"model": "loser"}):
                raise AssertionError("two hold one folder")
            assert json.loads((out / "config.json").read_text())["model"] == "winner"
            assert (out / ".lock").exists()


def begin_at_once(out: Path, start, number: int) -> str:
    """What becomes of one of several starts: "won", "lost" (the folder, while it held it) or "refused"."""
    start.wait()
    try:
        with RunFolder(out).open({"model": f"{number}"}):
            time.sleep(0.01)
            if number % 2:
                raise UserError("what it was asked for cannot be")
            kept = json.loads((out / "config.json").read_text())["model"] == f"{number}"
            return "won" if kept and (out / ".lock").exists() else "lost"
    except UserError:
        return "refused"
    except OSError:
        return "lost"


def test_of_starts_at_one_moment_those_that_are_refused_take_nothing_from_the_others(tmp_path: Path):
    """Half of them are refused while they hold the folder, and then remove it, as they made it."""
    context = multiprocessing.get_context("fork")
    with context.Manager() as manager, ProcessPoolExecutor(4, mp_context=context) as pool:
        for round_ in range(12):
            out, start = tmp_path / f"{round_}" / "run", manager.Barrier(4)
            said = [each.result() for each in [pool.submit(begin_at_once, out, start, n) for n in range(4)]]
            assert "lost" not in said
            # A folder that two of them met in may be left, empty.
            there = [path.name for path in out.iterdir()] if out.exists() else []
            assert there == (["config.json"] if "won" in said else [])


def test_a_run_that_fails_lets_go_of_its_folder(run: Path):
    with pytest.raises(UserError):
        go_on(run, seeds=3)
    assert go_on(run).complete


def test_a_file_is_no_run_folder(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError):
        go_on(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


# ---- a full disk


class FullDisk:
    """Counts what is written, and lets one of it fail half-way: a file of its own, a line of the metrics, the lock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: int | None = None):
        self.count, self.fails = 0, fails
        fsync, append, write = os.fsync, RunFolder.append_metrics, os.pwrite

        def after(call):
            def counted(*given):
                if isinstance(given[0], RunFolder) and self.full():
                    with given[0].metrics_path.open("a") as file:
                        file.write('{"step": ')
                    raise UserError("full")
                if not isinstance(given[0], RunFolder) and self.full():
                    raise OSError(errno.ENOSPC, "No space left on device")
                return call(*given)

            return counted

        for holder, name, call in ((os, "fsync", fsync), (RunFolder, "append_metrics", append), (os, "pwrite", write)):
            monkeypatch.setattr(holder, name, after(call))

    def full(self) -> bool:
        self.count += 1
        return self.count - 1 == self.fails


@pytest.mark.parametrize("every", sampled([1, 3], 3))
def test_a_run_resumes_wherever_the_disk_was_full(every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each write of a run, or each third, fails in turn; nothing that was written is lost, and the last bits are the
    same."""
    short = {"seeds": 1, "recipe": RECIPE.replace(steps=2, eval_every=1, warmup_steps=1)}
    with monkeypatch.context() as patch:
        disk = FullDisk(patch)
        go_on(tmp_path / "whole", **short)
    assert disk.count >= 11
    for fails in range(0, disk.count, every):
        run = tmp_path / str(fails)
        with monkeypatch.context() as patch:
            FullDisk(patch, fails)
            with contextlib.suppress(UserError):  # a folder that cannot be flushed is no failure
                go_on(run, **short)
        assert go_on(run, **short).complete, fails
        assert contents(run) == contents(tmp_path / "whole"), fails


# ---- damage


def test_every_flipped_bit_of_a_checkpoint_is_noticed_or_means_nothing(run: Path):
    """Whatever bit of checkpoint.json is flipped, loading gives one sentence or the same contents."""
    path, intact = run / "checkpoint.json", (run / "checkpoint.json").read_bytes()
    expected = RunFolder(run).load_checkpoint()
    random.seed(0)
    noticed = 0
    for bit in random.sample(range(8 * len(intact)), 400):
        data = bytearray(intact)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            found = RunFolder(run).load_checkpoint()
        except UserError:
            noticed += 1
            continue
        assert (found[0], found[2]) == (expected[0], expected[2])
    assert noticed > 350  # others hit white space


def test_a_checkpoint_with_a_digest_of_something_else_is_refused(run: Path):
    entry = json.loads((run / "checkpoint.json").read_text())
    entry["state"]["seeds"][0]["best_exact"] = 1.0
    (run / "checkpoint.json").write_text(json.dumps(entry))
    for ask in (go_on, lambda run: publish([run])):
        with pytest.raises(UserError):
            ask(run)


def test_a_checkpoint_names_no_file_of_another_folder(run: Path):
    edit_checkpoint(run, lambda entry: entry.update(file="../checkpoint-20.safetensors"))
    with pytest.raises(UserError):
        RunFolder(run).load_checkpoint()


@pytest.mark.parametrize("damage", ["remove", "shorten", "change"])
def test_metrics_that_are_not_the_checkpoint_s_are_noticed_and_left_alone(run: Path, damage: str):
    path = run / "metrics.jsonl"
    data = path.read_bytes()
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(data[:-5] if damage == "shorten" else data.replace(b'"step": 10', b'"step": 11'))
    left = path.read_bytes() if path.exists() else None
    for ask in (go_on, lambda run: publish([run])):
        with pytest.raises(UserError, match=r"metrics\.jsonl"):
            ask(run)
    assert (path.read_bytes() if path.exists() else None) == left
    path.write_bytes(data)
    assert go_on(run).complete


def test_metrics_are_on_disk_before_the_checkpoint_that_counts_them(run: Path, monkeypatch):
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda d: (synced.append(os.readlink(f"/proc/self/fd/{d}")), fsync(d))[1])
    go_on(run)
    names = [Path(name).name for name in synced]
    last = max(i for i, name in enumerate(names) if name.startswith(".checkpoint.json"))
    assert "metrics.jsonl" in names[last - 3 : last]


# ---- surroundings


def test_a_run_that_goes_on_with_other_threads_says_so_once_and_remembers(run: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        go_on(run, stop_at_step=25)  # nothing has changed: nothing to say
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(threads + 1)
        with pytest.warns(UserWarning, match=f"threads was {threads} and is {threads + 1}"):
            go_on(run, stop_at_step=30)
    finally:
        torch.set_num_threads(threads)
    stretches = RunFolder(run).load_checkpoint()[2]["surroundings"]
    assert [(entry["from_step"], entry["threads"]) for entry in stretches] == [(0, threads), (25, threads + 1)]


def test_the_kernel_belongs_to_the_surroundings(run: Path, monkeypatch):
    from models.training.native import compiled_kernels as native

    kernels = RunFolder(run).load_checkpoint()[2]["surroundings"][0]["kernels"]
    if not kernels:
        pytest.skip("no C compiler here")
    assert kernels[0].startswith("split_stream-")
    monkeypatch.setenv("CARRYLENS_NATIVE", "0")
    native.library.cache_clear()
    with pytest.warns(UserWarning, match="kernels"):
        go_on(run)
    native.library.cache_clear()


def test_staging_folders_of_killed_saves_are_cleared_away(tmp_path: Path):
    for left in (".entry.carrylens-new-123", ".entry.old", ".entry.new-1", ".another.carrylens-new-5"):
        (tmp_path / left).mkdir()
        (tmp_path / left / "config.json").write_text("{")
    (tmp_path / "entry").mkdir()
    models.save_entry(tmp_path / "entry", models.build("microadder-57"), {}, {}, overwrite=True)
    stays = [".another.carrylens-new-5", ".entry.new-1", ".entry.old", "entry"]
    assert sorted(path.name for path in tmp_path.iterdir()) == stays


def test_a_refused_run_leaves_nothing_behind_and_does_not_block_the_next(tmp_path: Path):
    out = tmp_path / "runs" / "mine"
    refused = Recipe(steps=20, batch_size=32, validation_size=64, initial_values=(("no_such_number", 1.0),))
    with pytest.raises(UserError):
        train("microadder-57", out, recipe=refused, progress=False)
    assert not any(tmp_path.iterdir())
    allowed = refused.replace(initial_values=None, warmup_steps=5, eval_every=10)
    assert train("microadder-57", out, recipe=allowed, progress=False, compile=False).complete
    kept = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    with pytest.raises(UserError):
        train("microadder-57", out, recipe=refused, progress=False)
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == kept


def test_a_run_says_where_it_is_and_is_found_without_a_separator(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = Recipe(steps=20, batch_size=32, validation_size=64, warmup_steps=5, eval_every=10)
    train("microadder-57", "mine", recipe=small, progress=False, compile=False)
    model = models.load("mine")
    assert model_name(model) == "microadder-57, run at mine" and own_name(model) == "microadder-57"
    assert models.score(model, [(1, 1)]).model == "microadder-57, run at mine"
    assert model_name(model.dense_copy()) == model_name(model)


def test_no_minutes_are_no_steps(tmp_path: Path):
    result = train("microadder-57", tmp_path / "run", minutes=0.0, progress=False, compile=False, device="cpu")
    assert result.steps_done == 0 and not result.complete and result.seconds < 30


@pytest.mark.parametrize("every", sampled([1, 7], 7))
def test_a_flipped_bit_of_a_runs_config_is_noticed(every: int, tmp_path: Path):
    """Every bit of a small file, or every seventh: the run does not go on, load or publish with other settings than it
    was begun with."""
    folder, config = RunFolder(tmp_path / "run"), {"model": "microadder-57", "recipe": {}, "seeds": 2, "first_seed": 0}
    with folder.open(config):
        pass
    whole = folder.config_path.read_bytes()
    assert folder.config() == config
    missed = []
    for at in range(0, 8 * len(whole), every):
        data = bytearray(whole)
        data[at // 8] ^= 1 << at % 8
        folder.config_path.write_bytes(bytes(data))
        try:
            missed += [at] if folder.config() != config else []
        except UserError:
            continue
    assert not missed


def test_problems_that_an_earlier_version_named_otherwise_are_no_difference() -> None:
    today = {"recipe": {"problems": {"hard": 0.0, "share": 1.0}}}
    assert not list(differences({"recipe": {"problems": {}}}, today))
    assert not list(differences({"recipe": {"problems": {"characters": 1_003_854}}}, today))
    assert list(differences({"recipe": {"problems": {"characters": 501_927}}}, today)) == [
        ("recipe.problems.share", 0.5, 1.0)
    ]


def test_a_run_of_an_earlier_version_goes_on_though_fields_had_other_names_or_are_gone(run: Path, whole: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    del config["digest"]
    earlier = {"drop_seed_below": "give_up", "keep_share": "keep_best"}
    earlier |= {"initial_values": "begin_at", "freeze_until": "hold_until"}
    assert set(earlier) <= set(config["recipe"])
    config["recipe"] = {earlier.get(name, name): value for name, value in config["recipe"].items()} | {"teacher": None}
    (run / "config.json").write_text(json.dumps(config | {"digest": digest_of(config)}))
    assert RunFolder(run).config() == RunFolder(whole).config()
    assert go_on(run).complete and theta(run).equal(theta(whole))


def test_a_run_with_a_field_that_is_gone_is_another_run() -> None:
    today = {"recipe": Recipe().to_dict()}
    taught = {"recipe": today["recipe"] | {"teacher": {"name": "microadder-57", "weight": 0.9}}}
    assert [path for path, *_ in differences(taught, today)] == ["recipe.teacher"]


def test_where_seeds_began_is_read_of_recipes_of_earlier_versions() -> None:
    today = Recipe(initial_values=(("arc_A", 0.5), ("arc_B", (0.1, 0.2)))).to_dict()
    assert starts_of(today) == ({"arc_B": (0.1, 0.2)}, ["arc_A"])
    assert starts_of({"begin_at": today["initial_values"]}) == starts_of(today)
