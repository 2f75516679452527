"""The loop: resumable to the bit, each seed for itself, nothing lost."""

import json
import multiprocessing
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import models
from models.errors import UserError
from models.training import train
from models.training.devices import resolve_device
from models.training.named_recipes import get_recipe
from models.training.recipes import Recipe
from models.training.run_folder import RunFolder, log_spaced_steps
from models.training.seed_state import SeedState
from models.training.split_stream_kernel import PositionOnlyObjective
from models.training.stacked_objective import ParameterLayout
from models.training.trainer import SeedGroup, Trainer
from models.training.warm_start import Start
from tests.models.training.edited import contents, plant, saved, theta
from tests.sampling import sampled

TINY = Recipe(steps=60, batch_size=32, warmup_steps=5, eval_every=10, validation_size=64, snapshots=6)
QUIET = {"progress": False, "compile": False, "device": "cpu"}


def tiny(out: Path, **changes):
    settings = {"seeds": 3, "recipe": TINY} | QUIET | changes
    return train("microadder-57", out, **settings)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three seeds that nothing disturbed; only read."""
    folder = tmp_path_factory.mktemp("undisturbed") / "whole"
    result = tiny(folder)
    assert result.complete and result.steps_done == 60
    return folder


def test_a_run_in_slices_ends_with_the_same_bits(tmp_path: Path, whole: Path):
    for stop in (7, 20, 33, None):
        sliced = tiny(tmp_path / "sliced", stop_at_step=stop)
    assert sliced.complete
    assert contents(tmp_path / "sliced") == contents(whole)


def test_a_finished_run_is_left_alone(whole: Path):
    before = contents(whole)
    assert tiny(whole).complete
    assert contents(whole) == before


def test_kill_minus_nine_loses_at_most_the_steps_since_the_last_checkpoint(tmp_path: Path):
    recipe = TINY.replace(steps=100)
    settings = {"seeds": 2, "recipe": recipe, "checkpoint_seconds": 0.0}
    killed = multiprocessing.get_context("fork").Process(target=tiny, args=(tmp_path / "killed",), kwargs=settings)
    killed.start()
    deadline = time.monotonic() + 120
    while not (tmp_path / "killed" / "checkpoint.json").exists():
        assert killed.is_alive() and time.monotonic() < deadline
        time.sleep(0.005)
    killed.kill()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert json.loads((tmp_path / "killed" / "checkpoint.json").read_text())["step"] < 100
    for folder in ("killed", "whole"):
        tiny(tmp_path / folder, seeds=2, recipe=recipe)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_what_a_killed_writer_left_is_cleared_away(tmp_path: Path, whole: Path):
    """Temporary files of a write that kill -9 cut short, before the first one too, neither stay nor stop a run."""
    run = tmp_path / "run"
    run.mkdir()
    (run / ".config.json.1-ab.tmp").write_text("{")
    tiny(run, stop_at_step=20)
    for left in (".checkpoint.json.1-ab.tmp", "snapshots/.0000011.safetensors.1-ab.tmp"):
        (run / left).write_text("half")
    tiny(run)
    assert contents(run) == contents(whole)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four seeds in one group; only read."""
    folder = tmp_path_factory.mktemp("four") / "whole"
    assert tiny(folder, seeds=4).complete
    return folder


def groups_of_two(patch: pytest.MonkeyPatch) -> None:
    original = PositionOnlyObjective.__init__

    def small_groups(self, *args):
        original(self, *args)
        self.group_size = 2

    patch.setattr(PositionOnlyObjective, "__init__", small_groups)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two groups of two seeds; only read."""
    folder = tmp_path_factory.mktemp("groups") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        groups_of_two(patch)
        tiny(folder, seeds=4)
    return folder


@pytest.fixture
def foreground() -> Iterator[None]:
    """Signals as in a terminal; a program in the background of a shell ignores some, and so would its tests."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("foreground")
@pytest.mark.parametrize("number", sampled([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], signal.SIGINT))
def test_ctrl_c_in_the_middle_of_a_step_finishes_it_and_saves(tmp_path: Path, monkeypatch, number, undisturbed):
    """Two groups: the signal comes when one has taken the step and the other has not."""
    step = SeedGroup.step

    def interrupted(self, step_number: int):
        step(self, step_number)
        if step_number == 17 and self.rows == [0, 1]:
            signal.raise_signal(number)

    groups_of_two(monkeypatch)
    monkeypatch.setattr(SeedGroup, "step", interrupted)
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        tiny(tmp_path / "run", seeds=4)
    assert signal.getsignal(number) == before
    assert saved(tmp_path / "run").step == 18
    monkeypatch.setattr(SeedGroup, "step", step)
    tiny(tmp_path / "run", seeds=4)
    assert contents(tmp_path / "run") == contents(undisturbed)


@pytest.mark.usefixtures("foreground")
def test_a_second_ctrl_c_does_not_wait(tmp_path: Path, monkeypatch):
    def impatient(self):
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second signal should have ended the step")

    monkeypatch.setattr(Trainer, "step", impatient)
    with pytest.raises(KeyboardInterrupt):
        tiny(tmp_path / "run")


def test_a_seed_trains_alike_alone_and_in_a_stack(tmp_path: Path):
    tiny(tmp_path / "stacked", stop_at_step=20)
    tiny(tmp_path / "alone", stop_at_step=20, seeds=1, first_seed=2)
    stacked, alone = theta(tmp_path / "stacked"), theta(tmp_path / "alone")
    torch.testing.assert_close(alone[0], stacked[2], rtol=1e-4, atol=1e-5)
    assert (stacked[0] - stacked[2]).abs().max() > 0.1


def test_a_failed_seed_does_not_disturb_the_others(tmp_path: Path, monkeypatch, whole: Path):
    plant(monkeypatch, [1], float("inf"))
    result = tiny(tmp_path / "poisoned")
    assert [state.status for state in result.seeds] == ["finished", "failed", "finished"]
    assert result.seeds[1].stopped_at == 10
    thetas = [theta(run) for run in (whole, tmp_path / "poisoned")]
    assert torch.equal(thetas[0][[0, 2]], thetas[1][[0, 2]])


@pytest.fixture
def perfect_theta() -> torch.Tensor:
    model = models.load("microadder-57")  # right on all pairs
    return ParameterLayout(model).flatten(model)


def test_a_seed_that_stays_perfect_stops_early_and_keeps_its_weights(tmp_path: Path, monkeypatch, perfect_theta):
    plant(monkeypatch, [1], perfect_theta)
    recipe = TINY.replace(lr=1e-9, weight_decay=0.0, stop_after_perfect=3)
    result = tiny(tmp_path / "run", recipe=recipe)
    perfect = result.seeds[1]
    assert (perfect.status, perfect.stopped_at, perfect.first_perfect_step) == ("perfect", 30, 10)
    assert [s.status for s in (result.seeds[0], result.seeds[2])] == ["finished", "finished"]
    best = RunFolder(tmp_path / "run").load_checkpoint()[1]["best_theta"]
    torch.testing.assert_close(best[1], perfect_theta, rtol=1e-5, atol=1e-6)


def test_groups_are_repacked_when_seeds_end_and_the_others_do_not_notice(tmp_path: Path, monkeypatch, undisturbed):
    """Two groups of two become one when two seeds fail; the survivors end as they would have."""
    groups_of_two(monkeypatch)
    plant(monkeypatch, [0, 3], float("inf"))
    make, groups = Trainer._make_groups, []

    def watched(self):
        make(self)
        groups.append([group.rows for group in self.groups])

    monkeypatch.setattr(Trainer, "_make_groups", watched)
    tiny(tmp_path / "poisoned", seeds=4)
    assert groups == [[[0, 1], [2, 3]], [[1, 2]]]
    thetas = [theta(run) for run in (undisturbed, tmp_path / "poisoned")]
    torch.testing.assert_close(thetas[0][[1, 2]], thetas[1][[1, 2]], rtol=1e-3, atol=1e-4)


def test_a_seed_that_falls_behind_is_given_up_and_the_others_go_on_with_the_same_bits(tmp_path: Path, four: Path):
    tokens = [line["token"] for line in RunFolder(four).metrics()]
    threshold = sorted(tokens[1])[2]  # two of the four are below it at step 20
    some = tiny(tmp_path / "some", seeds=4, recipe=TINY.replace(drop_seed_below=((20, threshold),)))
    kept = [i for i, token in enumerate(tokens[1]) if token >= threshold]
    assert [s.status for s in some.seeds] == ["finished" if i in kept else "hopeless" for i in range(4)]
    assert all(s.stopped_at == 20 for i, s in enumerate(some.seeds) if i not in kept)
    thetas = [theta(run) for run in (four, tmp_path / "some")]
    torch.testing.assert_close(thetas[0][kept], thetas[1][kept], rtol=1e-3, atol=1e-4)
    assert RunFolder(tmp_path / "some").load_checkpoint()[2]["group_size"] == 2  # half of the places were spare
    assert some.complete


@pytest.mark.slow
def test_only_the_best_share_of_the_seeds_goes_on_whether_or_not_the_run_was_stopped(tmp_path: Path, four: Path):
    tokens = [line["token"] for line in RunFolder(four).metrics()]
    best = sorted(range(4), key=lambda i: tokens[1][i], reverse=True)[:2]  # at step 20
    last = max(best, key=lambda i: tokens[3][i])  # at step 40
    recipe = TINY.replace(keep_share=((20, 0.5), (40, 0.25)))
    halved = tiny(tmp_path / "halved", seeds=4, recipe=recipe)
    ends = [60 if i == last else 40 if i in best else 20 for i in range(4)]
    assert [s.stopped_at for s in halved.seeds] == ends
    assert [s.status for s in halved.seeds] == ["finished" if end == 60 else "hopeless" for end in ends]
    tiny(tmp_path / "parts", seeds=4, recipe=recipe, stop_at_step=30)
    tiny(tmp_path / "parts", seeds=4, recipe=recipe)
    runs = (tmp_path / "halved", tmp_path / "parts", four)
    thetas = [theta(run) for run in runs]
    assert torch.equal(thetas[0], thetas[1])
    torch.testing.assert_close(thetas[0][[last]], thetas[2][[last]], rtol=1e-3, atol=1e-4)


def test_held_parameters_begin_where_the_recipe_says_and_stay_there_whether_or_not_the_run_was_stopped(tmp_path: Path):
    begin = (("arc_A", 4.0), ("norm_w[4]", 0.25))
    recipe = TINY.replace(initial_values=begin, freeze_until=(("arc_A", 30), ("norm_w[4]", 30)))
    thetas = []
    for name, stops in (("whole", [None]), ("parts", [20, 40, None])):
        for stop in stops:
            tiny(tmp_path / name, recipe=recipe, stop_at_step=stop)
        thetas.append(theta(tmp_path / name))
    assert torch.equal(*thetas)
    for step, kept in RunFolder(tmp_path / "whole").snapshots().items():
        held = (kept["arc_A"] == 4.0).all() and (kept["norm_w"][:, 4] == 0.25).all()
        assert held == (step <= 30)
        assert (kept["norm_w"][:, 3] == 1.0).all() == (step == 0)
        assert (
            not torch.equal(kept["arc_start"], RunFolder(tmp_path / "whole").snapshots()[0]["arc_start"]) or step == 0
        )
    for name in ("arc_B", "norm_w[5]", "norm_w[-1]"):
        with pytest.raises(UserError):
            tiny(tmp_path / "wrong", recipe=TINY.replace(initial_values=((name, 4.0),)))


def test_a_start_drawn_from_a_range_is_the_seeds_own_and_covers_the_range(tmp_path: Path):
    low, high = -2.0, 6.0
    first = {}
    for name, seeds, first_seed in (("eight", 8, 0), ("one", 1, 5)):
        recipe = TINY.replace(initial_values=(("W_fc1", (low, high)),))
        tiny(tmp_path / name, seeds=seeds, first_seed=first_seed, recipe=recipe, stop_at_step=1)
        first[name] = RunFolder(tmp_path / name).snapshots()[0]["W_fc1"]
    drawn = first["eight"].flatten()
    assert (drawn >= low).all() and (drawn <= high).all() and len(drawn.unique()) == len(drawn)
    assert drawn.min() < low + 1 and drawn.max() > high - 1
    assert torch.equal(first["eight"][5], first["one"][0])
    for ends in ((3.0, 2.0), (0.0, float("inf")), (float("nan"), 1.0)):
        with pytest.raises(UserError):
            TINY.replace(initial_values=(("W_fc1", ends),))


def test_seeds_that_were_given_up_do_not_stand_above_those_that_go_on():
    given_up, failed, going = SeedState(0, token=0.9), SeedState(1, token=0.9), SeedState(2, token=0.1)
    given_up.end("hopeless", 10)
    failed.end("failed", 10)
    finished = SeedState(3, token=0.5)
    finished.end("perfect", 10)
    assert max((given_up, failed, going), key=lambda state: state.rank) is going
    assert finished.rank > going.rank  # its place is its own


@pytest.mark.parametrize("recipe", ["adder-456", "parity-coupling-1l4h-small", "position-coupling-1l4h-small"])
def test_a_recipe_of_another_task_is_refused_before_anything_is_written(recipe: str, tmp_path: Path):
    others = get_recipe(recipe)
    with pytest.raises(UserError):
        train("toygpt", tmp_path / "run", recipe=others)
    assert not (tmp_path / "run").exists()


def test_a_compiled_kernel_is_not_given_half_precision(tmp_path: Path):
    """The recipe of the text models, with ten-digit problems: the kernel reads float32, whatever autocast would do."""
    half = get_recipe("addlm-0.8m").replace(steps=4, eval_every=2, validation_size=8, snapshots=0)
    runs = [
        train("microadder-57", tmp_path / str(i), recipe=half.replace(autocast=bool(i)), progress=False) for i in (0, 1)
    ]
    assert runs[0].seeds == runs[1].seeds


@pytest.mark.parametrize("rule", [((-1, 0.5),), ((10, 0.0),), ((10, 1.5),)])
def test_a_share_of_seeds_is_above_zero_and_at_most_one(rule: tuple[tuple[int, float], ...]):
    with pytest.raises(UserError):
        Recipe(keep_share=rule)


def test_metrics_are_json_lines_and_snapshots_are_log_spaced(whole: Path):
    run = RunFolder(whole)
    assert [line["step"] for line in run.metrics()] == list(range(10, 61, 10))
    assert sorted(run.snapshots()) == log_spaced_steps(60, 6)
    initial = models.build("microadder-57", 2).weight_map.W_qk
    assert torch.equal(run.snapshots()[0]["W_qk"][2], initial)


def test_the_stored_recipes_are_the_papers():
    assert (
        get_recipe("microadder").to_dict()
        == get_recipe("microadder-74")
        .replace(steps=60_000, problems=get_recipe("microadder").problems, adaptive_decay=None)
        .to_dict()
    )
    recipe = get_recipe("microadder-74")
    fade = recipe.problems.carry_mix
    assert (recipe.steps, fade.fade_start, fade.fade_end) == (120_000, 10_000, 80_000)


# ---- bad input


def test_seeds_can_start_around_given_parameters(tmp_path: Path):
    """Step 0 is the start times 1 + noise; the folder knows the start, so another one is another run."""
    stored = models.load("microadder-57")
    start = Start(dict(stored.weight_map.named_parameters()), "the zoo's microadder-57", "this test", noise=0.01)
    tiny(tmp_path / "run", start=start, stop_at_step=10)
    first = RunFolder(tmp_path / "run").snapshots()[0]
    for name, value in stored.weight_map.named_parameters():
        moved = (first[name] - value).abs()
        assert (moved.amax() > 0) and (moved <= 0.06 * value.abs()).all()
        assert not torch.equal(first[name][0], first[name][1])
    with pytest.raises(UserError, match="holds another run: start"):
        tiny(tmp_path / "run", start=replace(start, noise=0.02))
    with pytest.raises(UserError, match="The start has the parameters"):
        tiny(tmp_path / "other", start=Start({"arc_A": torch.zeros(())}, "nowhere", "nothing"))


def test_a_folder_of_another_run_is_refused_and_left_alone(tmp_path: Path):
    tiny(tmp_path / "run", stop_at_step=10)
    before = contents(tmp_path / "run")
    with pytest.raises(UserError, match=r"holds another run: recipe.lr is 0.02 there and 0.5 now"):
        tiny(tmp_path / "run", recipe=TINY.replace(lr=0.5))
    with pytest.raises(UserError, match=r"seeds is 3 there and 4 now"):
        tiny(tmp_path / "run", seeds=4)
    assert contents(tmp_path / "run") == before


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="not empty and holds no run"):
        tiny(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "json"])
def test_a_damaged_checkpoint_is_named_and_not_overwritten(tmp_path: Path, damage: str):
    run = tmp_path / "run"
    tiny(run, stop_at_step=10)
    (weights,) = run.glob("checkpoint-*.safetensors")
    data = bytearray(weights.read_bytes())
    if damage == "truncate":
        weights.write_bytes(data[:-5])
    elif damage == "flip":
        data[-1] ^= 1
        weights.write_bytes(data)
    elif damage == "remove":
        weights.unlink()
    else:
        (run / "checkpoint.json").write_text('{"step": 10,')
    with pytest.raises(UserError, match="checkpoint"):
        tiny(run)
    if damage != "json":
        assert json.loads((run / "checkpoint.json").read_text())["step"] == 10


def test_unknown_models_devices_and_counts_are_refused(tmp_path: Path):
    with pytest.raises(UserError, match="Did you mean 'microadder-57'"):
        train("microader-57", tmp_path / "a")
    with pytest.raises(UserError, match="at least 1"):
        tiny(tmp_path / "b", seeds=0)
    with pytest.raises(UserError, match="There is no device 'gpu'"):
        resolve_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="No CUDA device"):
            resolve_device("cuda")
    assert not any(tmp_path.iterdir())


@pytest.mark.cuda
def test_a_few_steps_on_cuda_agree_with_the_cpu(tmp_path: Path):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    thetas = []
    for device in ("cpu", "cuda"):
        tiny(tmp_path / device, stop_at_step=20, device=device)
        thetas.append(theta(tmp_path / device))
    torch.testing.assert_close(*thetas, rtol=1e-3, atol=1e-4)


# ---- recipes that change what a step is


@pytest.mark.parametrize(("capability", "rounds"), sampled([("AVX2", False), ("AVX512", True)], ("AVX512", True)))
def test_autocast_rounds_only_where_the_processor_has_bfloat16(tmp_path: Path, monkeypatch, capability, rounds):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    recipe = get_recipe("toygpt").replace(steps=2, batch_size=8, warmup_steps=1, eval_every=2, validation_size=8)
    weights = {}
    for autocast in (False, True):
        run = tmp_path / str(autocast)
        train("toygpt-none-post", run, recipe=recipe.replace(autocast=autocast), **QUIET)
        weights[autocast] = theta(run)
    assert (not torch.equal(weights[False], weights[True])) == rounds


@pytest.mark.slow
def test_validation_drops_nothing(tmp_path: Path):
    """A model with dropout is measured as it answers later."""
    recipe = get_recipe("toygpt").replace(steps=30, eval_every=30, validation_size=256)
    train("toygpt-none-post", tmp_path / "run", recipe=recipe, **QUIET)
    model = models.load(tmp_path / "run")
    problems = model.task.held_out.validation(256, seed=0)
    with torch.no_grad():
        predicted = model(model.task.encode(problems))[:, list(model.task.query_positions)].argmax(-1)
    (line,) = [json.loads(text) for text in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()][-1:]
    own = (predicted == model.task.targets(problems)).float().mean().item()
    assert line["step"] == 30 and line["token"] == [pytest.approx(own, abs=1e-6)] and own > 0.15
