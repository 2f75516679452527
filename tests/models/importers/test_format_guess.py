"""Formats that are guessed from a model: the one that it was trained on is found, and an untrained model has none."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import models
from interp.cli.commands import main
from models.errors import UserError
from models.importers.ways_to_write import candidates
from models.tasks.task_definitions import task_of_text
from models.weight_maps.dense import DenseWeights
from tests.sampling import sampled

ORDINARY = Path(__file__).parents[3] / "benchmarks/provability/models"


def bare(model: Any, path: Path) -> Path:
    """The state dict of a model, without anything that says what it is; keys are scaled as TransformerLens expects."""
    weights = {name: value.detach().clone() for name, value in model.all_weights().items()}
    if model.config.attn_scale is not None:
        weights["blocks.0.attn.W_Q"] *= sqrt(model.config.d_head) / model.config.attn_scale
    torch.save(weights, path)
    return path


CASES = {
    "microadder-57": "{a:10r}+{b:10r}={s:11r}<EOS>",
    "adder-456": "{a:10}+{b:10}={s:11r}<EOS>",
    "modular-multiplication-113": "{a}{b}={s}",
    "modular-addition-59": "{a}{b}={s}",
    "add-3-highest-first-0": "{a:3}+{b:3}={s:4}",
    "subtract-signed-3-0": "{a:3}-{b:3}={s:+3r}",
}


@pytest.mark.parametrize("name", sampled(CASES, "microadder-57", "modular-multiplication-113"))
def test_the_format_of_a_bare_state_dict_is_found(name: str, tmp_path: Path):
    model = models.load(str(ORDINARY / name) if (ORDINARY / name).exists() else name)
    found = models.guess(bare(model, tmp_path / "bare.pt"), {"act_fn": model.config.act_fn}, seconds=60)
    assert found.complete and found.task.format == CASES[name]
    own, guessed = model.task, found.task
    problems = own.sample(100, torch.Generator().manual_seed(1))
    assert torch.equal(own.encode_prompt(problems), guessed.encode_prompt(problems))
    assert torch.equal(own.targets(problems), guessed.targets(problems))
    again = task_of_text(found.proposals[0].text)
    assert torch.equal(again.encode(problems), guessed.encode(problems))
    assert str(found).startswith("A guess")


@pytest.mark.slow
def test_an_activation_that_is_not_said_is_tried_and_those_that_cannot_be_told_apart_are_shown(tmp_path: Path):
    path = bare(models.load("adder-456"), tmp_path / "bare.pt")
    with pytest.raises(UserError, match="act_fn"):
        models.load(path, task=models.load("adder-456").task)
    found = models.guess(path, seconds=60)
    assert found.task.format == CASES["adder-456"] and len(found.tied) >= 1
    first = [each.config["act_fn"] for each in (found.proposals[0], *found.tied)]
    assert {"gelu", "gelu_new"} <= {*first} and first[0] in ("gelu", "gelu_new")
    assert "cannot be told from it" in str(found)
    assert models.score(models.load(path, task=found.task, config=found.config), [(57, 48)]).correct == 1


@pytest.mark.slow
def test_of_activations_with_equal_answers_the_smallest_loss_comes_first(tmp_path: Path):
    path = bare(models.load(str(ORDINARY / "add-3-no-norm-relu-0")), tmp_path / "bare.pt")
    found = models.guess(path, seconds=60)
    assert found.config == {"act_fn": "relu"} and {"act_fn": "gelu"} in [each.config for each in found.tied]


@pytest.mark.parametrize(
    ("name", "scale"),
    sampled(
        [
            ("modular-addition-59", 1.0),
            ("microadder-57", 1.0),
            ("add-3-highest-first-0", 1.0),
            ("add-3-ln-gelu-0", 16.0),
        ],
        ("modular-addition-59", 1.0),
    ),
)
def test_a_scale_of_attention_that_is_not_said_is_tried(name: str, scale: float, tmp_path: Path):
    """The queries are stored as a model without the usual root needs them, or one that divides by d_head."""
    model = models.load(str(ORDINARY / name) if (ORDINARY / name).exists() else name)
    weights = {key: value.detach().clone() for key, value in model.all_weights().items()}
    for layer in range(model.config.n_layers):
        for key in (f"blocks.{layer}.attn.W_Q", f"blocks.{layer}.attn.b_Q"):
            weights[key] = weights[key] * scale / model.config.score_scale
    path, given = tmp_path / "bare.pt", {"act_fn": model.config.act_fn}
    torch.save(weights, path)
    found = models.guess(path, given, seconds=60)
    assert found.config == {"attn_scale": scale} and found.task.format == CASES.get(name, "{a:3}+{b:3}={s:4r}")
    loaded = models.load(path, task=found.task, config=given | dict(found.config))
    problems = loaded.task.sample(100, torch.Generator().manual_seed(2))
    assert models.score(loaded, problems).accuracy > 0.98
    said = models.guess(path, given | {"attn_scale": scale}, seconds=60)  # what is said is not tried
    assert said.config == {} and said.task.format == found.task.format and said.searched < found.searched


def test_a_model_that_does_something_else_has_no_format(tmp_path: Path):
    model = models.load(str(ORDINARY / "copy-8-0"))
    with pytest.raises(UserError, match="Nothing fits"):
        models.guess(bare(model, tmp_path / "c.pt"), {"act_fn": model.config.act_fn}, work=100_000)


def test_an_untrained_model_has_no_format(tmp_path: Path):
    trained = models.load("modular-addition-59")
    config = trained.config
    weights = DenseWeights(config)
    weights.initialise(torch.Generator().manual_seed(0))
    untrained = models.ArithmeticTransformer(weights, trained.task)
    with pytest.raises(UserError, match="Nothing fits"):
        models.guess(bare(untrained, tmp_path / "r.pt"), {"act_fn": config.act_fn}, seconds=60)
    found = models.guess(trained, seconds=60)  # the control: the same search finds a trained one
    assert found.task.format == CASES["modular-addition-59"]


@pytest.mark.parametrize("d_vocab, n_ctx", [(10, 12), (60, 3), (3, 8)])
def test_a_candidate_writes_the_tokens_of_its_task(d_vocab: int, n_ctx: int):
    seen = 0
    for written in list(candidates(d_vocab, n_ctx))[::61]:
        try:
            task = written.task(d_vocab)
        except UserError:
            continue
        rows = torch.as_tensor(written.tokens(16))
        assert task.input_length == written.input_length in (n_ctx, n_ctx - 1)
        texts = task.decode(rows[:, written.prompt_length :])
        values = task.digit_values(rows[:, [i for i, r in enumerate(task.roles) if r.kind == "operand"]])
        base, n = task.base, max(1, written.n)
        powers = base ** torch.arange(n)
        powers = powers if written.up else powers.flip(0)
        problems = (values.unflatten(1, (written.operands, n)) * powers).sum(2)
        assert task.answers(problems).tolist() == texts
        assert torch.equal(task.encode(problems), rows[:, :-1])
        seen += 1
    assert seen > 1


class Planted:
    """A model that answers by a function of its tokens, at its last position, and takes ``pause`` seconds a token."""

    def __init__(self, d_vocab: int, n_ctx: int, answer: Callable[[torch.Tensor], torch.Tensor], pause: float = 0.0):
        self.cfg = SimpleNamespace(d_vocab=d_vocab, n_ctx=n_ctx)
        self.answer, self.pause, self.tokens = answer, pause, 0

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        time.sleep(self.pause * tokens.numel())
        self.tokens += tokens.numel()
        logits = torch.zeros(*tokens.shape, self.cfg.d_vocab)
        logits[torch.arange(len(tokens)), -1, self.answer(tokens)] = 1.0
        return logits


@pytest.mark.parametrize(
    "answer",
    [
        lambda bits: (bits.sum(1) >= 2).long(),
        lambda bits: bits.amax(1),
        lambda bits: bits.amin(1),
        lambda bits: bits.sum(1) % 2,
        lambda bits: torch.zeros_like(bits[:, 0]),
    ],
    ids=["majority", "max", "min", "parity", "constant"],
)
@pytest.mark.parametrize("n_ctx", [2, 3, 4])
def test_a_function_of_so_few_problems_that_a_format_would_fit_by_chance_has_none(n_ctx: int, answer: Any):
    for d_vocab in (3, 6)[: 5 - n_ctx]:
        with pytest.raises(UserError):
            models.guess(Planted(d_vocab, n_ctx, lambda tokens: answer(tokens.clamp(max=1))))


@pytest.mark.parametrize(("operands", "d_vocab"), [(2, 64), (3, 64), (4, 64), (4, 10), (6, 20)])
@pytest.mark.parametrize("name", ["max", "min"])
def test_the_largest_of_several_numbers_is_found(name: str, operands: int, d_vocab: int):
    answer = torch.amax if name == "max" else torch.amin
    found = models.guess(Planted(d_vocab, operands, lambda tokens: answer(tokens, 1)))
    task, size = found.task, 10 if d_vocab < 64 else d_vocab
    problems = torch.randint(size, (50, operands), generator=torch.Generator().manual_seed(0))
    assert found.proposals[0].correct == found.proposals[0].n == 64
    assert torch.equal(task.encode(problems), problems)
    assert torch.equal(task.targets(problems)[:, 0], answer(problems, 1))


@pytest.mark.parametrize("pause", [1e-5, 1e-3])
def test_a_limit_of_time_holds_within_a_factor_of_two(pause: float):
    """For models that take a second or more for the tokens of one forward pass without the limit."""
    slow = Planted(10, 12, lambda tokens: tokens[:, 0], pause)
    start = time.monotonic()
    with pytest.raises(UserError):
        models.guess(slow, seconds=2.0)
    assert time.monotonic() - start < 4.0 and slow.tokens > 0


def test_the_same_work_tries_the_same_on_a_slow_machine():
    tried = []
    for pause in (0.0, 1e-5):
        model = Planted(10, 12, lambda tokens: tokens[:, 0], pause)
        with pytest.raises(UserError):
            models.guess(model, work=500)
        tried.append(model.tokens)
    assert tried[0] == tried[1] <= 2**15 + 1.6 * 500e6 / 20_000


def test_what_says_its_task_is_not_guessed():
    with pytest.raises(UserError, match="says its own task"):
        models.guess(str(ORDINARY / "add-3-highest-first-0"))
    with pytest.raises(UserError, match="There is no file"):
        models.guess("./nothing.pt")
    with pytest.raises(UserError):
        models.guess(3)


def test_the_command_prints_what_to_ask_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = bare(models.load("modular-addition-59"), tmp_path / "m.pt")
    assert main(["load", str(path)]) == 0
    said = capsys.readouterr().out
    assert "(a + b) % 59" in said and f"interp score {path} --task" in said and "--config act_fn=" in said
    assert main(["load", str(path), "--task", "{a}{b}=; (a + b) % 59; base=59", "--config", "act_fn=relu"]) == 0
    assert "--config act_fn=relu" in capsys.readouterr().out
    assert main(["score", str(path), "--task", "{a}{b}=; (a + b) % 59; base=59", "--config", "act_fn"]) == 2
