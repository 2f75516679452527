"""models.train: one's own model on one's own task, loaded again, resumed with the same bits."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import models
from models.errors import UserError
from models.tasks import formatted
from models.tasks.formats.string_task import function
from models.training.task_problems import TaskProblems
from models.weight_maps.dense import DenseWeights
from tests.sampling import sampled

TASK = formatted("{a}{b}=", "(a + b) % 7", base=7, variables="addition", held_out=0.3)
CONFIG = models.TransformerConfig(
    n_layers=1, d_model=16, n_heads=2, d_head=8, d_mlp=32, d_vocab=8, n_ctx=3, act_fn="relu", normalization_type=None
)


def run(out: Path, model: Any = CONFIG, task: Any = TASK, **options: Any) -> Any:
    recipe = {"steps": 30, "seeds": 2, "batch_size": 16, "eval_every": 10, "snapshots": 3, "stop_after_perfect": None}
    return models.train(model, task, out=out, progress=False, **recipe | options)


def weights(model: Any) -> list[torch.Tensor]:
    return list(model.weight_map.parameters())


def test_a_run_is_loaded_with_its_task_by_its_folder_alone(tmp_path: Path):
    result = run(tmp_path / "mine")
    assert result.complete and len(result.seeds) == 2
    model = models.load(tmp_path / "mine")
    assert model.task.definition == TASK.definition and model.config == CONFIG
    assert models.score(model).n == len(TASK.held_out.problems)
    assert models.load(tmp_path / "mine", seed=1).run == str(tmp_path / "mine")
    snapshot = sorted((tmp_path / "mine/snapshots").iterdir())[0]
    assert models.load(snapshot).config == CONFIG


@pytest.mark.parametrize("stop", sampled([1, 14], 14))
def test_an_interrupted_run_ends_with_the_same_bits(stop: int, tmp_path: Path):
    run(tmp_path / "whole")

    class Stop(Exception):
        pass

    def watch(states: Any, step: int, saved: bool) -> None:
        if step >= stop:
            raise Stop

    with pytest.raises(Stop):  # as by kill -9: nothing is saved on the way out
        run(tmp_path / "cut", watch=watch)
    assert run(tmp_path / "cut").complete
    for a, b in zip(weights(models.load(tmp_path / "whole")), weights(models.load(tmp_path / "cut")), strict=True):
        assert torch.equal(a, b)


def test_numbers_are_logged_as_they_are_kept(tmp_path: Path):
    logged: list[dict[str, float]] = []
    run(tmp_path / "two", log=logged.append)
    kept = [json.loads(line) for line in (tmp_path / "two/metrics.jsonl").read_text().splitlines()]
    assert [one["step"] for one in logged] == [10, 20, 30] == [line["step"] for line in kept]
    for one, line in zip(logged, kept, strict=True):
        assert one["lr"] == line["lr"]
        assert [one[f"{name}/seed {i}"] for name in ("exact", "token", "loss") for i in (0, 1)] == [
            *line["exact"], *line["token"], *line["loss"]
        ]  # fmt: skip
    run(tmp_path / "one", seeds=1, first_seed=1, log=logged.append)
    for measure in ("exact", "token", "uniform", "loss"):
        assert logged[3][measure] == logged[0][f"{measure}/seed 1"]


def test_what_cannot_be_called_is_no_log(tmp_path: Path):
    with pytest.raises(UserError):
        run(tmp_path / "run", log="runs/log.txt")
    assert not (tmp_path / "run").exists()


def test_a_log_that_fails_stops_the_run_which_then_resumes(tmp_path: Path):
    def fails(numbers: dict[str, float]) -> None:
        raise ConnectionError(numbers["step"])

    with pytest.raises(ConnectionError):
        run(tmp_path / "cut", log=fails)
    run(tmp_path / "whole")
    assert run(tmp_path / "cut").complete
    for a, b in zip(weights(models.load(tmp_path / "whole")), weights(models.load(tmp_path / "cut")), strict=True):
        assert torch.equal(a, b)


def test_a_task_in_python_code_has_to_be_given_again(tmp_path: Path):
    task = formatted("{a}{b}=", lambda a, b: (a + b) % 7, base=7)
    run(tmp_path / "code", task=task)
    with pytest.raises(UserError, match="task="):
        models.load(tmp_path / "code")
    assert models.load(tmp_path / "code", task=task).task is task


SOURCE = """
from pathlib import Path
from models.tasks import formatted

Path(__file__ if "__file__" in globals() else "ran").with_name("was-run").touch()
task = formatted("{a}{b}=", lambda a, b: (a + b) % 7, base=7)
"""


def test_the_source_of_a_task_in_a_file_is_kept_and_run_only_if_asked_for(tmp_path: Path, monkeypatch: Any):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "own_task_file.py"
    file.write_text(SOURCE)
    run(tmp_path / "kept", task=f"{file}:task")
    file.write_text(SOURCE.replace("a + b", "a - b"))
    (tmp_path / "was-run").unlink()
    with pytest.raises(UserError, match=r"--task .*own_task_file.py:task"):
        models.load(tmp_path / "kept")
    assert not (tmp_path / "was-run").exists()
    model = models.load(tmp_path / "kept", trust=True)
    assert (tmp_path / "was-run").exists()
    assert model.task.answers([(3, 6)]).tolist() == [2]  # what the file said when it was trained
    again = models.load(tmp_path / "kept", task=f"{file}:task")  # a path that was run before
    assert torch.equal(again.task.targets([(3, 6)]), model.task.targets([(3, 6)]))
    with pytest.raises(UserError, match="no Python file"):
        models.load(tmp_path / "kept", task="missing.py:task")
    (tmp_path / "kept/task_source.json").write_text('{"file": 1}')
    with pytest.raises(UserError):
        models.load(tmp_path / "kept", trust=True)


def test_what_no_file_makes_is_not_kept(tmp_path: Path):
    run(tmp_path / "code", task=formatted("{a}{b}=", lambda a, b: (a + b) % 7, base=7))
    run(tmp_path / "text", task="{a}{b}=; (a + b) % 7; base=7")
    assert not [*tmp_path.rglob("task_source.json")]
    assert models.load(tmp_path / "text").task.answers([(3, 6)]).tolist() == [2]


def test_a_weight_map_and_a_model_are_trained_as_well(tmp_path: Path):
    run(tmp_path / "map", DenseWeights(CONFIG, biases=False))
    assert "unembed.b_U" not in dict(models.load(tmp_path / "map").weight_map.own())
    run(tmp_path / "again", models.load(tmp_path / "map"), None)
    assert models.load(tmp_path / "again").config == CONFIG


def test_hard_problems_are_a_field_of_the_recipe(tmp_path: Path):
    task = formatted("{a:2r}+{b:2r}={s:3r}", "a + b", variables="addition")
    config = CONFIG.replace(d_vocab=12, n_ctx=8)
    run(tmp_path / "hard", config, task, problems=TaskProblems(hard=0.5))
    assert models.load(tmp_path / "hard").task.name == task.name


@pytest.mark.slow
def test_a_function_of_tokens_is_learnt(tmp_path: Path):
    task = function("01", length=6, answer=lambda bits: bits[:, 0] ^ bits[:, 5], held_out=12)
    config = CONFIG.replace(d_vocab=2, n_ctx=6)
    run(tmp_path / "xor", config, task, steps=400, seeds=2, eval_every=100, lr=1e-2, stop_after_perfect=1)
    model = models.load(tmp_path / "xor", task=task)
    assert models.score(model, task.sample(64, torch.Generator().manual_seed(0))).accuracy > 0.9


@pytest.mark.parametrize(
    "options",
    [
        {"model": CONFIG.replace(d_vocab=7)},
        {"model": CONFIG.replace(n_ctx=2)},
        {"model": torch.nn.Linear(2, 2)},
        {"task": None},
        {"task": 3},
        {"steps": None},
        {"learning_rate": 0.1},
        {"lr": -1.0},
        {"problems": TaskProblems(hard=0.1), "batch_size": 0},
    ],
    ids=str,
)
def test_what_cannot_be_trained_is_refused_and_leaves_no_folder(options: dict[str, Any], tmp_path: Path):
    with pytest.raises(UserError):
        run(tmp_path / "refused", **options)
    assert not (tmp_path / "refused").exists()


def test_a_folder_with_another_run_is_refused(tmp_path: Path):
    run(tmp_path / "mine")
    with pytest.raises(UserError, match="another run"):
        run(tmp_path / "mine", task=formatted("{a}{b}=", "(a * b) % 7", base=7))
