"""One's own models and tasks on the command line, in this process."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import models
from interp.cli import main
from interp.cli.own_flags import taken_out, trusted
from interp.core import probe as registry
from models import registry as model_registry
from models.importers.guess_from_model import _exact_gelu_first
from tests.other_tasks import exact_adder, modular_addition

TASK = "{a}{b}=; (a + b) % 7; base=7; variables=addition"
SPEC = """
import models
from models.tasks import formatted
from models.training import Recipe
from models.training.task_problems import TaskProblems
from models.weight_maps.dense import DenseWeights

config = models.TransformerConfig(
    n_layers=1, d_model=8, n_heads=2, d_head=4, d_mlp=8, d_vocab=8, n_ctx=3, act_fn="relu", normalization_type=None
)
spec = models.ModelSpec(
    name="{name}",
    weight_map=lambda: DenseWeights(config),
    task=lambda: formatted("{{a}}{{b}}=", "(a + b) % 7", base=7),
    recipe=Recipe(steps=4, batch_size=8, eval_every=2, validation_size=8, warmup_steps=1, problems=TaskProblems()),
    source="a test",
)
other = 3
"""


@pytest.fixture
def adder_file(tmp_path: Path) -> Path:
    """An exact adder of residues modulo 7 as a TransformerLens state dict, which says nothing of its task."""
    model = exact_adder(modular_addition(7))
    config = {"act_fn": "relu", "normalization_type": None, "attn_scale": 1.0}
    path = tmp_path / "adder.pt"
    torch.save({"state_dict": dict(model.all_weights()), "config": config}, path)
    return path


def test_a_file_is_asked_with_the_task_given_as_text(adder_file: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["certify", str(adder_file), "--task", TASK]) == 0
    assert "certified" in capsys.readouterr().out
    assert main(["ask", str(adder_file), "attention_by_role", f"--task={TASK}"]) == 0
    assert main(["solve", str(adder_file), "5 6", "--task", TASK]) == 0
    assert "4" in capsys.readouterr().out


@pytest.mark.parametrize(
    "task",
    ["{a}{b}=", "{a}{b; a + b", "{a}{b}=; a + b; bse=7", "{a}{b}=; a + b; base=x", "{a}{b}=; a; b", "no.py:task"],
)
def test_a_task_that_does_not_parse_is_refused(adder_file: Path, task: str):
    assert main(["score", str(adder_file), "--task", task]) == 2


def test_a_file_without_its_task_is_refused(adder_file: Path):
    assert main(["score", str(adder_file)]) == 2
    assert main(["score", str(adder_file), "--task"]) == 2


def test_operators_are_given_one_by_one():
    from models.tasks.task_definitions import task_of_text

    task = task_of_text("{a:2}{op}{b:2}={s:+3}; op + = a + b; op - = a - b; held_out=0.2; seed=4")
    assert task.decode(task.targets(["31+4", "4-31"])) == [35, -27]
    assert task.held_out.n == 4000


def test_a_spec_in_ones_own_file_is_trained_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        model_registry, "_REGISTRY", {name: models.get_spec(name) for name in models.names(sweeps=True)}
    )
    (tmp_path / "mine.py").write_text(SPEC.format(name="mod-7-of-a-test") + "models.register(spec)\n")
    assert main(["train", "mine.py:spec", "--seeds", "1"]) == 0
    assert main(["score", "runs/mod-7-of-a-test", "--from", "mine.py"]) == 0


@pytest.mark.parametrize("name", ["mine.py:other", "mine.py:missing", "absent.py:spec", "broken.py:spec"])
def test_what_is_no_spec_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SPEC.format(name="never-registered"))
    (tmp_path / "broken.py").write_text("1 / 0\n")
    assert main(["train", name]) == 2
    assert not (tmp_path / "runs").exists()


PROBE = """
from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from interp.core.probe import probe
from interp.core.task_checks import resolve_task
from interp.core.samples import draw
from interp.core.table_result import TableResult


@dataclass
class Kept:
    n: int


@probe("How many problems?")
def how_many(model, *, task=None, problems=None, n: int = 7, seed: int = 0) -> TableResult:
    \"\"\"How many problems are drawn.\"\"\"
    sample = draw(resolve_task(model, task), problems, n, seed)
    table = pd.DataFrame({"n": [Kept(len(sample.problems)).n]})
    return TableResult(f"{len(sample.problems)} problems are drawn", table, sample.provenance)
"""


def test_a_probe_in_ones_own_file_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(registry, "_PROBES", registry.registered())
    path = tmp_path / "interp.py"  # a name that is taken already
    path.write_text(PROBE)
    assert main(["ask", "microadder-57", "how_many", "--from", str(path)]) == 0
    assert "7 problems are drawn" in capsys.readouterr().out


@dataclass(frozen=True)
class Proposed:
    text: str
    correct: int
    config: dict[str, str]


def test_where_gelu_and_its_approximation_fit_equally_gelu_is_the_guess() -> None:
    """Of one task, with the other fields the same; what gives more right answers is not passed over."""
    erf, tanh, relu = ({"act_fn": name} for name in ("gelu", "gelu_new", "relu"))
    two = {"n_heads": "2"}
    before = [("a", 64, tanh), ("b", 64, tanh), ("a", 64, erf | two), ("a", 64, relu), ("a", 64, erf), ("b", 63, erf)]
    after = [("a", 64, erf), ("b", 64, tanh), ("a", 64, erf | two), ("a", 64, relu), ("a", 64, tanh), ("b", 63, erf)]
    for given in (before, after):
        made = [Proposed(*each) for each in given]
        assert _exact_gelu_first(made) == [Proposed(*each) for each in after]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("words", "trust", "left"),
    [
        (["score", "a.py", "--trust"], True, ["score", "a.py"]),
        (["score", "--trust", "a.py"], True, ["score", "a.py"]),
        (["--trust", "score", "a.py"], True, ["score", "a.py"]),
        (["score", "--trust", "unconfined", "a.py"], "unconfined", ["score", "a.py"]),
        (["score", "--trust", "docker run -i x", "a.py"], "docker run -i x", ["score", "a.py"]),
        (["score", "a.py", "--trust", "x y"], "x y", ["score", "a.py"]),
        (["score", "a.py", "--trust=x y"], "x y", ["score", "a.py"]),
        (["score", "a.py", "--trust=x"], "x", ["score", "a.py"]),
        (["score", "--trust", "a file.py"], True, ["score", "a file.py"]),
        (["solve", "a.py", "--trust", "--n", "3"], True, ["solve", "a.py", "--n", "3"]),
    ],
)
def test_how_a_program_is_trusted_is_said_with_and_without_a_sign(
    words: list[str], trust: bool | str, left: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a file.py").touch()
    assert taken_out(words) == left and trusted() == trust
    taken_out([])
