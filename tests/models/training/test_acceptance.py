"""Runs with a judge: only candidates are judged, what is accepted is kept, whatever interrupts the run."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import models
from models.errors import UserError
from models.training import train
from models.training.acceptance import Acceptance, judge_of
from models.training.publish import publish
from models.training.recipes import Recipe
from models.training.run_folder import RunFolder
from models.training.stacked_objective import ParameterLayout
from models.training.trainer import Trainer
from models.training.warm_start import Start
from tests.models.training.edited import contents, saved
from tests.sampling import sampled

NAME = "microadder-57"
# Steps so small that a perfect seed stays perfect on these few problems, and large enough that its weights move.
SLOW = Recipe(
    steps=50, batch_size=32, warmup_steps=1, eval_every=10, validation_size=64, snapshots=4, lr=1e-5, weight_decay=0.0
)

FACTS = {"status": "certified", "arithmetic": "in floats", "targets": "all", "witness": [57, 48], "file": "why.txt"}


@dataclass(frozen=True)
class Planted(Start):
    """The given parameters for some seeds, and a random start for the others."""

    seeds: tuple[int, ...] = ()

    def row(self, layout: ParameterLayout, seed: int) -> Tensor:
        return super().row(layout, seed) if seed in self.seeds else layout.flatten(models.build(NAME, seed))


@dataclass
class FakeJudge:
    """Accepts a seed from a step on; remembers what it was asked."""

    accepts_from: dict[int, int] = field(default_factory=dict)
    option: str = "--fake yes"
    asked: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, model: Any, step: int, seed: int) -> Acceptance:
        self.asked.append((seed, step))
        if step < self.accepts_from.get(seed, 1_000):
            return Acceptance(False, f"seed {seed} is not good enough at step {step}")
        first = float(next(model.weight_map.parameters()).detach().flatten()[0])
        evidence = f"seed {seed}, step {step}, {first!r}".encode()
        return Acceptance(True, f"seed {seed} is good", FACTS | {"smallest_margin": float(step)}, {"why.txt": evidence})


def run(out: Path, judge: Any, planted: tuple[int, ...] = (1, 2), **changes: Any) -> Any:
    weights = dict(models.load(NAME).weight_map.named_parameters())
    start = Planted(weights, "the zoo's", "this test", noise=0.0, seeds=planted)
    settings = {"seeds": 3, "recipe": SLOW, "progress": False, "compile": False, "device": "cpu", "start": start}
    return train(NAME, out, judge=judge, **settings | changes)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose judge accepts two seeds, which nothing stopped; only read."""
    folder = tmp_path_factory.mktemp("judged") / "whole"
    run(folder, FakeJudge({1: 20, 2: 40}))
    return folder


def test_only_seeds_that_answer_all_validation_problems_are_judged_and_training_does_not_notice(tmp_path: Path):
    judge = FakeJudge()
    judged = run(tmp_path / "judged", judge)
    assert judge.asked == [(seed, step) for step in range(10, 51, 10) for seed in (1, 2)]
    assert [state.turned_down for state in judged.seeds] == [0, 5, 5] and not judged.accepted
    run(tmp_path / "alone", None, recipe=SLOW)
    for key in ("theta", "m", "v", "best_theta"):
        one, other = (saved(tmp_path / name).tensors[key] for name in ("judged", "alone"))
        assert torch.equal(one, other)
    lines, plain = (RunFolder(tmp_path / name).metrics() for name in ("judged", "alone"))
    assert lines[2].pop("verdicts") == [
        {"seed": seed, "accepted": False, "statement": f"seed {seed} is not good enough at step 30"} for seed in (1, 2)
    ]
    assert lines[2] == plain[2] and "verdicts" not in plain[0]


def test_an_accepted_seed_stops_and_is_kept_while_the_others_go_on(tmp_path: Path):
    result = run(tmp_path / "run", FakeJudge({1: 30}))
    first, accepted, turned_down = result.seeds
    assert [s.status for s in result.seeds] == ["finished", "accepted", "finished"]
    assert (accepted.stopped_at, accepted.best_step, accepted.best_exact, accepted.turned_down) == (30, 30, 1.0, 2)
    assert (turned_down.best_step, turned_down.turned_down, first.turned_down) == (50, 5, 0)
    assert accepted.accepted == FACTS | {"smallest_margin": 30.0} and result.accepted == [accepted]
    best = saved(tmp_path / "run").tensors["best_theta"]
    run(tmp_path / "stopped", None, stop_at_step=30)
    stopped = saved(tmp_path / "stopped").tensors["theta"]
    assert torch.equal(best[1], stopped[1]) and not torch.equal(best[2], stopped[2])
    folder = tmp_path / "run" / "accepted" / "seed-1"
    kept = models.load(folder / "model.safetensors")
    assert torch.equal(ParameterLayout(kept).flatten(kept), best[1])
    assert RunFolder(tmp_path / "run").evidence(1) == {"why.txt": (folder / "why.txt").read_bytes()}
    assert RunFolder(tmp_path / "run").evidence(2) == {}


def test_a_run_ends_when_all_its_seeds_are_accepted(tmp_path: Path):
    result = run(tmp_path / "run", FakeJudge({0: 10, 1: 20, 2: 30}), planted=(0, 1, 2))
    assert result.complete and result.steps_done == 30
    assert [s.best_step for s in result.seeds] == [10, 20, 30]


def test_being_perfect_for_a_while_ends_no_seed_that_is_not_accepted(tmp_path: Path):
    recipe = SLOW.replace(stop_after_perfect=2)
    assert run(tmp_path / "without", None, recipe=recipe).seeds[1].stopped_at == 20
    result = run(tmp_path / "with", FakeJudge({1: 40}), recipe=recipe)
    assert [(s.status, s.stopped_at) for s in result.seeds[1:]] == [("accepted", 40), ("finished", 50)]


def test_a_run_in_slices_gets_the_same_bits_and_verdicts(tmp_path: Path, whole: Path):
    for stop in (7, 20, 33, None):
        run(tmp_path / "sliced", FakeJudge({1: 20, 2: 40}), stop_at_step=stop)
    assert contents(tmp_path / "sliced") == contents(whole)


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint_seconds", [0.0, 1e9], ids=["checkpoint behind the verdict", "no checkpoint"])
def test_a_run_that_died_gets_the_same_bits_and_verdicts(tmp_path: Path, whole: Path, monkeypatch, checkpoint_seconds):
    """Died without a chance to save, as by kill -9, when one seed was accepted."""
    step = Trainer.step

    def dies(self):
        if self.step_number == 27:
            raise MemoryError
        step(self)

    monkeypatch.setattr(Trainer, "step", dies)
    with pytest.raises(MemoryError):
        run(tmp_path / "died", FakeJudge({1: 20, 2: 40}), checkpoint_seconds=checkpoint_seconds)
    assert (tmp_path / "died" / "accepted" / "seed-1" / "why.txt").exists()
    assert (tmp_path / "died" / "checkpoint.json").exists() == (checkpoint_seconds == 0.0)
    (tmp_path / "died" / "accepted" / "seed-1" / ".why.txt.1-ab.tmp").write_text("half")
    monkeypatch.setattr(Trainer, "step", step)
    run(tmp_path / "died", FakeJudge({1: 20, 2: 40}))
    assert contents(tmp_path / "died") == contents(whole)


def test_what_was_accepted_after_the_last_checkpoint_is_forgotten_on_resume(tmp_path: Path):
    run(tmp_path / "run", FakeJudge({1: 20}), stop_at_step=25)
    folder = RunFolder(tmp_path / "run")
    folder.save_accepted(2, {"x": torch.zeros(1)}, {}, {"why.txt": b"from a future that did not come"})
    run(tmp_path / "run", FakeJudge({1: 20}))
    assert [path.name for path in (tmp_path / "run" / "accepted").iterdir()] == ["seed-1"]


def test_a_run_with_another_judge_is_another_run(tmp_path: Path):
    run(tmp_path / "run", FakeJudge(), stop_at_step=10)
    with pytest.raises(UserError, match="holds another run: judge is '--fake yes' there and None now"):
        run(tmp_path / "run", None)
    with pytest.raises(UserError, match="holds another run: judge is '--fake yes' there and '--fake no' now"):
        run(tmp_path / "run", FakeJudge(option="--fake no"))


def test_an_accepted_seed_is_published_with_its_evidence_before_all_others(tmp_path: Path):
    result = run(tmp_path / "run", FakeJudge({2: 30}))
    assert result.seeds[1].first_perfect_step == 10 and result.seeds[2].status == "accepted"
    entry, _ = publish([tmp_path / "run"], tmp_path / "entry")
    config = models.zoo.read_entry(entry)
    assert (config["training"]["seed"], config["training"]["step"]) == (2, 30)
    assert models.zoo.entry_file(entry, "why.txt") == RunFolder(tmp_path / "run").evidence(2)["why.txt"]
    card = (entry / "card.md").read_text()
    assert config["certificate"] == FACTS | {"smallest_margin": 30.0} and "30.000 logits, at 57 + 48" in card
    rows = json.loads((entry / "seeds.json").read_text())
    assert [row.get("turned_down") for row in rows] == [None, 5, 2]
    model = models.load(entry)
    assert torch.equal(ParameterLayout(model).flatten(model), saved(tmp_path / "run").tensors["best_theta"][2])


# ---- what a judge gives back


@dataclass
class GivesBack(FakeJudge):
    """Accepts nobody, and gives back the same problems to one seed."""

    seed: int = 1
    problems: tuple[tuple[int, ...], ...] = ((9_999_999_990, 17), (5, 5))

    def __call__(self, model: Any, step: int, seed: int) -> Acceptance:
        found = super().__call__(model, step, seed)
        return replace(found, problems=self.problems if seed == self.seed else ())


def test_a_seed_trains_on_what_its_judge_gives_back_and_others_do_not(tmp_path: Path):
    run(tmp_path / "fed", GivesBack({2: 40}))
    run(tmp_path / "plain", FakeJudge({2: 40}))
    fed, plain = saved(tmp_path / "fed").tensors["theta"], saved(tmp_path / "plain").tensors["theta"]
    assert not torch.equal(fed[1], plain[1])  # the seed that got problems
    assert torch.equal(fed[0], plain[0]) and torch.equal(fed[2], plain[2])
    state = saved(tmp_path / "fed").state["seeds"][1]
    assert state["returned"] == [[9_999_999_990, 17], [5, 5]] and state["last_verdict"]


def test_problems_given_back_are_an_eighth_of_a_batch_and_the_rest_stays(tmp_path: Path):
    trainer = Trainer(NAME, SLOW, [4, 5], RunFolder(tmp_path), torch.device("cpu"), False, judge=FakeJudge())
    own = trainer.make_stream([4, 5]).batch(7)
    trainer.states[1].keep_counterexamples([(12, 34)])
    tokens, targets = trainer.make_stream([4, 5]).batch(7)
    task = trainer.model.task
    problem = torch.tensor([[12, 34]])
    last = torch.full((4,), 0)  # an eighth of 32
    assert torch.equal(tokens[0], own[0][0]) and torch.equal(tokens[1, :, :-4], own[0][1, :, :-4])
    assert torch.equal(tokens[1, :, -4:].T.long(), task.encode(problem)[last])
    assert torch.equal(targets[1, :, -4:].T.long(), task.targets(problem)[last])
    assert tokens.dtype == own[0].dtype and targets.dtype == own[1].dtype


def test_problems_of_the_test_set_are_not_given_back(tmp_path: Path):
    held = tuple(models.load(NAME).task.held_out.problems[3].tolist())
    run(tmp_path / "run", GivesBack(problems=(held, (5, 5))))
    assert saved(tmp_path / "run").state["seeds"][1]["returned"] == [[5, 5]]


@pytest.mark.parametrize("stop", sampled([20, 35], 35))
def test_a_run_that_trains_on_what_came_back_resumes_with_the_same_bits(stop: int, tmp_path: Path):
    run(tmp_path / "whole", GivesBack())
    run(tmp_path / "cut", GivesBack(), stop_at_step=stop)
    run(tmp_path / "cut", GivesBack())
    assert torch.equal(saved(tmp_path / "whole").tensors["theta"], saved(tmp_path / "cut").tensors["theta"])


def test_a_judge_that_takes_long_is_asked_rarely_and_at_the_end(tmp_path: Path):
    judge = FakeJudge()
    judge.rarely = True  # pyright: ignore[reportAttributeAccessIssue]
    run(tmp_path / "run", judge, recipe=SLOW.replace(steps=70))
    assert [step for seed, step in judge.asked if seed == 1] == [10, 20, 40, 70]


def test_until_is_the_name_of_a_judge_or_a_judge():
    assert judge_of(None, NAME) is None and judge_of(judge := FakeJudge(), NAME) is judge
    for wrong in ("certifed", 3):
        with pytest.raises(UserError):
            judge_of(wrong, NAME)
