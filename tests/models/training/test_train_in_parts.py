"""Parts of a run, and what is kept of them. What needs Ray is in test_cluster.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import interp
import models
from models.errors import UserError
from models.training import get_recipe, train, train_in_parts
from models.training.acceptance import Acceptance
from models.training.publish import publish
from models.training.run_folder import RunFolder
from models.training.seed_state import SeedState
from models.training.train_in_parts import KEPT_EVALUATIONS, PlannedRun, coarse, merge, pack, train_on, unpack
from models.training.warm_start import Start
from tests.models.training.edited import saved

RECIPE = get_recipe("microadder").replace(
    steps=6, batch_size=8, eval_every=2, warmup_steps=1, validation_size=16, stop_after_perfect=None
)


def tables(folder: Path) -> dict[str, torch.Tensor]:
    return {name: saved(folder).tensors[name] for name in ("theta", "best_theta")}


def states(folder: Path) -> list[dict]:
    return saved(folder).state["seeds"]


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("merged") / "run"
    (result,) = train_on(None, [PlannedRun("microadder-57", out, 5, 3, RECIPE)], parts_of=2, progress=False)
    assert result.complete and [state.seed for state in result.seeds] == [3, 4, 5, 6, 7]
    return out


def test_a_run_of_parts_has_the_bits_of_ordinary_runs_one_after_the_other(merged: Path, tmp_path: Path):
    for first, n in ((3, 2), (5, 2), (7, 1)):
        train("microadder-57", tmp_path / str(first), n, first, RECIPE, progress=False)
    alone = [tmp_path / str(first) for first in (3, 5, 7)]
    for name, table in tables(merged).items():
        assert torch.equal(table, torch.cat([tables(folder)[name] for folder in alone]))
    assert states(merged) == [state for folder in alone for state in states(folder)]
    curves = [RunFolder(folder).metrics() for folder in alone]
    for line, *lines in zip(RunFolder(merged).metrics(), *curves, strict=True):
        for key in ("exact", "token", "uniform", "loss", "status"):
            assert line[key] == [x for one in lines for x in one[key]]
        assert (line["step"], line["lr"]) == (lines[0]["step"], lines[0]["lr"])


@pytest.mark.slow
def test_parts_as_large_as_the_groups_have_the_bits_of_one_stacked_run(tmp_path: Path):
    recipe = RECIPE.replace(steps=4)
    train_on(None, [PlannedRun("microadder-57", tmp_path / "parts", 128, recipe=recipe)], progress=False)
    train("microadder-57", tmp_path / "stacked", 128, recipe=recipe, progress=False)
    assert RunFolder(tmp_path / "parts").config()["parts_of"] in (16, 64)  # without and with a compiler
    for name, table in tables(tmp_path / "parts").items():
        assert torch.equal(table, tables(tmp_path / "stacked")[name])


def test_whatever_reads_run_folders_reads_a_merged_one(merged: Path, tmp_path: Path):
    assert not (merged / "parts").exists() and not (merged / "snapshots").exists()
    curves = interp.learning_curves(merged)
    assert curves.of("microadder-57").seed.values.tolist() == [3, 4, 5, 6, 7]
    assert curves.of("microadder-57").step.values.tolist() == [2, 4, 6]
    one = models.load(merged, seed=6)
    flat = torch.cat([p.detach().flatten() for p in one.weight_map.parameters()])
    assert torch.equal(flat, tables(merged)["best_theta"][3])


@pytest.mark.slow
def test_a_merged_run_can_be_published(merged: Path, tmp_path: Path):
    entry, _ = publish([merged], tmp_path / "entry")
    config = models.zoo.read_entry(entry)
    assert config["training"]["seeds_tried"] == 5 and "snapshots.safetensors" not in config["sha256"]
    assert "--parts-of 2" in config["training"]["commands"][0]
    curves = (interp.learning_curves(source).of("microadder-57") for source in (entry, merged))
    assert next(curves).equals(next(curves))


def test_a_finished_run_is_left_alone_and_no_other_way_of_training_goes_on_with_it(merged: Path):
    before = {path: path.read_bytes() for path in merged.rglob("*") if path.is_file()}
    (again,) = train_on(None, [PlannedRun("microadder-57", merged, 5, 3, RECIPE)], progress=False)
    assert again.complete and again.steps_done == 6
    with pytest.raises(UserError):
        train("microadder-57", merged, 5, 3, RECIPE, progress=False)
    with pytest.raises(UserError):
        train_on(None, [PlannedRun("microadder-57", merged, 5, 3, RECIPE)], parts_of=3, progress=False)
    assert {path: path.read_bytes() for path in merged.rglob("*") if path.is_file()} == before


def test_a_merge_that_a_crash_cut_short_is_made_again(merged: Path, tmp_path: Path, monkeypatch):
    run = PlannedRun("microadder-57", tmp_path / "run", 5, 3, RECIPE)

    def crash(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "keep_metrics", crash)
        with pytest.raises(MemoryError):
            train_on(None, [run], parts_of=2, progress=False)
    with monkeypatch.context() as patch:
        patch.setattr("models.training.train_in_parts.train", crash)  # nothing is left to train
        train_on(None, [run], progress=False)
    for name, table in tables(merged).items():
        assert torch.equal(table, tables(run.out)[name])


class Content:
    """A judge that accepts seeds of odd number."""

    option = "--judge"

    def __call__(self, model: models.ArithmeticTransformer, step: int, seed: int) -> Acceptance:
        return Acceptance(seed % 2 == 1, "looked at", {"seed": seed}, {"evidence.txt": str(seed).encode()})


def test_what_a_judge_accepted_in_any_part_is_kept_with_its_evidence(tmp_path: Path):
    weights = dict(models.load("microadder-57").weight_map.named_parameters())
    recipe = RECIPE.replace(lr=1e-9, validation_size=8)
    run = PlannedRun("microadder-57", tmp_path / "run", 4, 0, recipe, Start(weights, "the zoo", "here", 0.0), Content())
    (result,) = train_on(None, [run], parts_of=2, progress=False)
    assert [seed.seed for seed in result.accepted] == [1, 3]
    assert [seed.status for seed in result.seeds] == ["finished", "accepted"] * 2
    kept = {path.relative_to(run.out).as_posix() for path in (run.out / "accepted").rglob("*.*")}
    assert kept == {f"accepted/seed-{n}/{name}" for n in (1, 3) for name in ("evidence.txt", "model.safetensors")}
    assert RunFolder(run.out).evidence(3) == {"evidence.txt": b"3"}


def test_curves_are_thinned_and_a_part_that_ended_early_keeps_its_last_evaluation():
    def line(step: int, *exact: float) -> dict:
        return {"step": step, "lr": 0.0, "exact": list(exact), "status": ["training"] * len(exact)}

    long = [line(step, step / 1e4) for step in range(10, 10_001, 10)]
    short = [line(step, 0.5, 1.0) for step in range(10, 101, 10)]
    found = coarse([long, short], RECIPE)
    assert len(found) == KEPT_EVALUATIONS and (found[0]["step"], found[-1]["step"]) == (10, 10_000)
    assert all(line["exact"] == [line["step"] / 1e4, 0.5, 1.0] for line in found)
    assert all(line["lr"] == RECIPE.lr_at(line["step"] - 1) for line in found)


def test_a_packed_folder_is_written_so_that_one_checkpoint_is_whole(tmp_path: Path, monkeypatch):
    train("microadder-57", tmp_path / "run", recipe=RECIPE, progress=False, stop_at_step=2)
    old = pack(tmp_path / "run")
    train("microadder-57", tmp_path / "run", recipe=RECIPE, progress=False, stop_at_step=4)
    new = pack(tmp_path / "run")
    assert not any(name.startswith(("snapshots", ".")) for name in new)

    from models.files import checkpoint as storage

    write, left = storage.write_bytes_atomic, [0]

    def until(path: Path, data: bytes) -> None:
        if not left[0]:
            raise OSError
        left[0] -= 1
        write(path, data)

    monkeypatch.setattr(storage, "write_bytes_atomic", until)
    for writes in range(len(new) + 1):
        folder = tmp_path / f"after-{writes}"
        left[0] = len(old)
        unpack(old, folder)
        left[0] = writes
        if writes < len(new):
            with pytest.raises(OSError):
                unpack(new, folder)
        else:
            unpack(new, folder)
        assert saved(folder).step == (4 if writes == len(new) else 2)
    assert pack(tmp_path / f"after-{len(new)}") == new


@pytest.mark.parametrize("n", [256, pytest.param(4096, marks=pytest.mark.slow)])
def test_4096_seeds_of_57_parameters_take_less_than_16_mib(n: int, tmp_path: Path):
    """As large as they get, with other numbers for every seed at every evaluation; 256 take a sixteenth."""
    run = PlannedRun("microadder-57", tmp_path / "run", n, recipe=RECIPE.replace(steps=1, eval_every=1))
    generator = torch.Generator().manual_seed(0)
    parts = train_in_parts._parts(run, n // 4)
    for part in parts:
        folder = part.folder
        with folder.open({}):
            for step in range(1, KEPT_EVALUATIONS + 2):
                token, loss = [[round(x, 6) for x in row] for row in torch.rand(2, part.seeds).tolist()]
                few = [round(round(x * 64) / 2048, 6) for x in loss]
                lines = {
                    "exact": few,
                    "token": token,
                    "uniform": few,
                    "loss": loss,
                    "status": ["training"] * part.seeds,
                }
                folder.append_metrics({"step": step, "lr": 0.02} | lines)
            theta = torch.randn(part.seeds, 57, generator=generator)
            seeds = [vars(SeedState(part.first_seed + i, "finished")) for i in range(part.seeds)]
            state = {"seeds": seeds, "losses": loss, "seconds": 1.0, "surroundings": []}
            folder.save_checkpoint(step, {"theta": theta, "best_theta": theta + 1}, state)
    merge(parts)
    size = sum(path.stat().st_size for path in run.out.rglob("*") if path.is_file())
    print(f"{n:,} seeds: {size:,} bytes")
    assert size < n * 2**12
    assert len(RunFolder(run.out).metrics()) == KEPT_EVALUATIONS and len(states(run.out)) == n


def test_what_cannot_be_trained_is_refused_before_anything_is_written(tmp_path: Path):
    out = tmp_path / "run"
    for run in (
        PlannedRun("microadder-57", out, 0),
        PlannedRun("microadder-57-by-hand", out),
        PlannedRun("nothing", out),
    ):
        with pytest.raises(UserError):
            train_on(None, [run], progress=False)
    with pytest.raises(UserError):
        train_on(None, [PlannedRun("microadder-57", out)], parts_of=0, progress=False)
    assert not out.exists()
