"""Exams of the proof by a task's machine: what it says of every problem of small tasks is held against running them.

Models have random switches (:func:`tests.interp.proofs.machine.machine_exam.random_fields`); noise makes them wrong
here and there, and a bias puts the truth of a class near zero. No bound may lie above the truth, and nothing wrong be
certified.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.proofs.machine.machine_method import METHOD, certify_by_machine, why_not_model
from interp.proofs.machine.margin_bounds import margin_bounds
from interp.proofs.machine.path_search import PathNode, cuts_of
from interp.proofs.machine.ratio_extremes import Nodes
from interp.proofs.verdict.subject import Subject
from models import ArithmeticTransformer
from models.errors import UserError
from models.evaluation import predict
from models.tasks import formatted
from models.weight_maps import DenseWeights
from tests.interp.proofs.listed.test_prefix_method import vanishing
from tests.interp.proofs.machine.machine_exam import (
    TASKS,
    Judged,
    Truth,
    made,
    noisy,
    proof_of,
    random_fields,
    random_model,
    shifted,
    trained,
)
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("without_shape_checks")

ARITHMETICS = ("interval", "float32")
#: Beyond these, every family of task and each way in which classes are made.
MORE_TASKS: tuple[dict[str, Any], ...] = (
    {"format": "{a:2}+{b:2}={s:3r}", "answer": "a + b"},
    {"format": "{a:2r}+{b:1}={s:3}", "answer": "a + b"},
    {"format": "{a:1}+{b:1}+{c:1}={s:2r}", "answer": "a + b + c"},
    {"format": "{a:2}?{b:2}=", "answer": "(a > b) + (a >= b)"},
    {"format": "{a:3}={s:3r}", "answer": "a"},
    {"format": "{a}{b}=", "answer": "(a + b) % 11", "base": 11},
    {"format": "{a:2}{op}{b:2}={s:+3r}", "answer": {"+": "a + b", "-": "a - b"}, "base": 4},
)


# ---- classes


@pytest.mark.parametrize("definition", (*TASKS, *MORE_TASKS), ids=lambda one: f"{one['format']} {one['answer']}")
def test_classes_partition_the_domain(definition: dict[str, Any]) -> None:
    """At every target each problem lies in one class, whose right token is its own, and which counts it."""
    task = formatted(**definition)
    truth = Truth(task)
    proof = proof_of(random_model(task, 0, 0.3), task, "interval", seconds=1e-3)
    for target in range(len(task.query_positions)):
        own = [one for one in proof.classes if one.paths.target == target]
        inside = torch.stack([truth.inside(one) for one in own])
        assert bool((inside.sum(0) == 1).all())
        assert all(
            bool((truth.targets[rows, target] == one.answer).all()) for one, rows in zip(own, inside, strict=True)
        )
        counts = [one.paths.count([mask[one.label] for mask in one.paths.roots]) for one in own]
        assert counts == inside.sum(1).tolist() and sum(counts) == task.domain.size


# ---- bounds


def bounds_hold(seed: int) -> int:
    """Bounds of random nodes of a random model, for the token that leads there on average; how many were positive."""
    rng = np.random.default_rng(seed)
    task = made(seed)
    model = random_model(task, seed, float(rng.choice([0.2, 0.5, 1.0, 2.0])), **{"d_model": 6, **random_fields(rng)})
    return bounds_hold_of(model, seed)


def bounds_hold_of(model: ArithmeticTransformer, seed: int) -> int:
    """The same for a given model of a task with few problems."""
    generator, arithmetic = torch.Generator().manual_seed(seed), ARITHMETICS[seed % 2]
    if why_not_model(model) is not None:
        return 0
    task = model.task
    truth, positive = Truth(task), 0
    proof = proof_of(model, task, arithmetic, seconds=1e-3)
    runner = model
    if arithmetic == "interval":
        weights = {name: value.detach() for name, value in model.effective_weights().items()}
        runner = ArithmeticTransformer(DenseWeights.holding(model.config, weights).double(), task)
    with torch.no_grad():
        logits = runner(truth.tokens)[:, list(task.query_positions)].double()
    for one in proof.classes:
        masks = [mask[one.label] for mask in one.paths.roots]
        share = 0.1 + 0.9 * float(torch.rand((), generator=generator))
        some = [mask & (torch.rand(mask.shape, generator=generator) < share) for mask in masks]
        for node in (masks, [mask[0] for mask in one.paths.pruned([mask[None] for mask in some])]):
            if not all(bool(mask.any()) for mask in node):
                continue
            kept = one.paths.originals(node)
            rows = torch.stack([torch.from_numpy(part)[truth.paths[:, k]] for k, part in enumerate(kept)]).all(0)
            leads = logits[rows, one.paths.target]
            answer = int(leads.mean(0).argmax())
            leads = (leads[:, [answer]] - leads).index_fill(1, torch.tensor([answer]), torch.inf)
            single = [mask[None] for mask in node]
            nodes = Nodes(one.paths, one.reading, single, cuts_of([PathNode(tuple(node))]))
            samples = one.paths.sample(single, 8, generator)
            with torch.inference_mode():
                bound = float(margin_bounds(proof.search.layers, nodes, torch.tensor([answer]), samples).margin[0])
            slack = 1e-9 if arithmetic == "interval" else 0.0
            if bound > 0:
                positive += 1
                assert bound <= float(leads.min()) * (1 + slack) + slack, (seed, one.paths.target, answer)
    return positive


def test_no_lead_of_a_random_model_is_below_its_bound() -> None:
    assert sum(bounds_hold(seed) for seed in range(8)) > 50


@pytest.mark.slow
def test_no_lead_of_many_random_models_is_below_its_bound() -> None:
    assert sum(bounds_hold(seed) for seed in range(8, 250)) > 2_000


# ---- searches to the end


def exam(
    seed: int, noises: tuple[float, ...] = (0.0, 0.1, 0.3), beyond: tuple[float, ...] = (1e-3, -1e-3, -1e-6)
) -> tuple[int, int]:
    """(classes proved, classes wrong somewhere) of a trained model and of noisy copies. None of them is falsely proved,
    nor is a copy in which one class is as little right or wrong as ``beyond``."""
    rng, arithmetic = np.random.default_rng(seed), ARITHMETICS[seed % 2]
    task = made(seed)
    truth, model = Truth(task), trained(task, seed, **random_fields(rng))
    proved = wrong = 0
    if why_not_model(model) is not None:
        return 0, 0
    for noise in noises:
        changed = noisy(model, noise, seed)
        judged = Judged(changed, truth, arithmetic)
        assert judged.false() == []
        proved, wrong = proved + judged.proved, wrong + sum(least <= 0 for _, least in judged.least)
        one, least = judged.least[int(rng.integers(len(judged.least)))]
        for wanted in beyond:
            near = Judged(shifted(changed, one.answer, wanted - least), truth, arithmetic)
            assert near.false() == []
    return proved, wrong


def test_no_class_with_an_error_is_proved() -> None:
    proved, wrong = exam(2, (0.1,), (-1e-6,))
    assert proved > 10 and wrong > 10


@pytest.mark.slow
def test_no_class_with_an_error_is_proved_of_many_models() -> None:
    proved, wrong = map(sum, zip(*(exam(seed) for seed in range(40)), strict=True))
    assert proved > 500 and wrong > 500


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["LN", "RMS", None])
def test_no_class_with_an_error_is_proved_without_a_final_norm(norm: str | None) -> None:
    """Where the lead in logits is linear in the stream, and the unembedding's bias counts in full."""
    task = formatted(**TASKS[0])
    truth, wrong = Truth(task), 0
    for seed in range(6):
        fields = {"normalization_type": norm, "final_norm": False, "act_fn": ("gelu", "relu")[seed % 2]}
        model = trained(task, seed, **fields)
        for noise in (0.05, 0.2):
            changed = noisy(model, noise, seed)
            changed = shifted(changed, seed % task.d_vocab, 0.5)
            judged = Judged(changed, truth, ARITHMETICS[seed % 2])
            assert judged.false() == []
            wrong += sum(least <= 0 for _, least in judged.least)
    assert wrong > 20


# ---- verdicts


def verdict_is_true(model: ArithmeticTransformer, truth: Truth) -> str:
    """The status of ``certify``, after a comparison with all answers; "refused" for a UserError."""
    try:
        found = interp.certify(model, minutes=0.5)
    except UserError:
        return "refused"
    with torch.no_grad():
        right = predict(model, truth.problems) == truth.targets
    if found.status == "certified":
        assert bool(right.all())
    if found.status == "refuted":
        assert not bool(right.all())
        text = found.counterexample.problem
        assert bool((predict(model, [text]) != truth.task.targets([text])).any())
    return found.status


def scaled(by: float, name: str) -> Callable[[ArithmeticTransformer], None]:
    def change(model: ArithmeticTransformer) -> None:
        model.weight_map.own()[name].mul_(by)

    return change


def entry(value: float, name: str) -> Callable[[ArithmeticTransformer], None]:
    def change(model: ArithmeticTransformer) -> None:
        model.weight_map.own()[name].view(-1)[3] = value

    return change


TENSORS = ("embed.W_E", "blocks.0.attn.W_Q", "blocks.0.attn.b_V", "blocks.0.mlp.W_in", "ln_final.w", "unembed.W_U")
EXTREMES = {
    **{f"a NaN in {name}": entry(float("nan"), name) for name in TENSORS},
    **{f"an infinity in {name}": entry(float("inf"), name) for name in TENSORS},
    **{f"an entry near the largest float in {name}": entry(3.3e38, name) for name in TENSORS},
    **{f"denormal {name}": scaled(1e-41, name) for name in TENSORS},
    **{f"huge {name}": scaled(1e18, name) for name in TENSORS},
    **{f"no {name}": scaled(0.0, name) for name in TENSORS},
}


@pytest.fixture(scope="module")
def right_model() -> tuple[ArithmeticTransformer, Truth]:
    """A model that is right on all problems of its task, and the truth of it."""
    task = formatted(**TASKS[0])
    return trained(task, 0, rate=5e-3, d_model=16, d_head=8, d_mlp=32), Truth(task)


def test_a_right_model_is_certified(right_model: tuple[ArithmeticTransformer, Truth]) -> None:
    model, truth = right_model
    assert verdict_is_true(model, truth) == "certified"
    for arithmetic in ARITHMETICS:
        found = certify_by_machine(model, arithmetic)  # pyright: ignore[reportArgumentType]
        assert found.status == "certified"
        assert 0 < found.smallest_margin <= float(truth.leads(model, arithmetic).min()) * (1 + 1e-9)


@pytest.mark.parametrize(
    "what",
    sampled(
        EXTREMES,
        "a NaN in unembed.W_U",
        "an infinity in embed.W_E",
        "an entry near the largest float in blocks.0.attn.W_Q",
        "denormal ln_final.w",
        "huge embed.W_E",
        "no blocks.0.mlp.W_in",
    ),
)
def test_a_model_with_an_extreme_number_gets_a_true_verdict(
    what: str, right_model: tuple[ArithmeticTransformer, Truth]
) -> None:
    model, truth = copy.deepcopy(right_model[0]), right_model[1]
    with torch.no_grad():
        EXTREMES[what](model)
    assert verdict_is_true(model, truth) in ("refused", "refuted", "undecided", "certified", "sampled")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_another_dtype_gets_a_true_verdict(
    dtype: torch.dtype, right_model: tuple[ArithmeticTransformer, Truth]
) -> None:
    model, truth = copy.deepcopy(right_model[0]).to(dtype), right_model[1]
    assert METHOD.why_not(Subject(model, truth.task)) is not None
    verdict_is_true(model, truth)


@pytest.mark.slow
def test_models_with_one_changed_entry_get_a_true_verdict(right_model: tuple[ArithmeticTransformer, Truth]) -> None:
    model, truth = right_model
    rng, statuses = np.random.default_rng(0), []
    for name, value in model.weight_map.own().items():
        changed = copy.deepcopy(model)
        with torch.no_grad():
            at = int(rng.integers(value.numel()))
            changed.weight_map.own()[name].view(-1)[at] += float(rng.choice([-3.0, -0.3, 0.3, 3.0]))
        statuses.append(verdict_is_true(changed, truth))
    assert {"certified", "refuted"} <= set(statuses)


# ---- planted


def other_task(model: ArithmeticTransformer, answer: Any) -> ArithmeticTransformer:
    """The model, asked for another answer in the same tokens."""
    task = formatted(model.task.format, answer, base=3, vocabulary=model.task.parsed.ids, name="planted")  # pyright: ignore
    return ArithmeticTransformer(model.weight_map, task, name="planted").eval()


@pytest.mark.parametrize(
    "answer",
    [
        "a + b + (a == 7) * (b == 2)",
        "a + b - (a == b) * (a == 4)",
        "a + b + (a == 8) * (b == 8)",
        lambda a, b: a + b + ((a == 5) & (b == 3)),
        lambda a, b: torch.where((a == 0) & (b == 1), 0, a + b),
    ],
)
def test_a_task_that_differs_on_one_problem_is_not_certified(
    answer: Any, right_model: tuple[ArithmeticTransformer, Truth]
) -> None:
    planted = other_task(right_model[0], answer)
    assert interp.certify(planted).status == "refuted"


def test_a_backdoor_in_the_forward_pass_is_not_certified(right_model: tuple[ArithmeticTransformer, Truth]) -> None:
    """The model runs another MLP where it meets one problem; its weights say nothing of it."""
    model, truth = copy.deepcopy(right_model[0]), right_model[1]
    secret = truth.tokens[40]
    mlp = model.blocks[0].mlp

    class Backdoor(type(mlp)):  # pyright: ignore
        def forward(self, x: Any, *rest: Any, **more: Any) -> Any:
            found = super().forward(x, *rest, **more)
            return torch.where((x.shape[1] >= len(secret)) & (x.sum() == 0), found, -found)

    mlp.__class__ = Backdoor
    with pytest.raises(UserError):
        certify_by_machine(model)
    assert verdict_is_true(model, truth) != "certified"


@pytest.mark.parametrize("outside", sampled([False, True], True))
@pytest.mark.parametrize("eps", [0.0, 1e-30, 2.0**-40])
def test_squares_that_underflow_are_not_certified(outside: bool, eps: float) -> None:
    """The last stream of one string is so small that its square is zero in float32, and the model answers nonsense."""
    model, string = vanishing(10, outside, eps)
    wrong = predict(model, string).item() != 1
    try:
        found = certify_by_machine(model, "float32")
    except UserError:
        assert eps < 2.0**-40
    else:
        assert not wrong or found.status != "certified"


# ---- many problems


@pytest.mark.slow
def test_noisy_adders_of_four_digits_have_no_false_class() -> None:
    """Two columns are fixed, so that all problems that are left can be run: 10,000 of 10^8."""
    task = formatted("{a:4}+{b:4}={s:5r}", "a + b", variables="addition")
    inner = torch.cartesian_prod(torch.arange(100), torch.arange(100))
    problems = inner + torch.tensor([3100, 6800])
    model, truth, proved, wrong = _adder(task), Truth(task, problems), 0, 0
    for seed, noise in enumerate((0.02, 0.1)):
        judged = Judged(noisy(model, noise, seed), truth, "float32", seconds=15)
        assert judged.false() == []
        proved, wrong = proved + judged.proved, wrong + sum(least <= 0 for _, least in judged.least)
    assert proved > 20 and wrong > 20


def _adder(task: Any) -> ArithmeticTransformer:
    """A small adder that is mostly right."""
    model, generator = random_model(task, 0, 0.2, d_model=16, d_head=8, d_mlp=32), torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(600):
        problems = torch.cat((task.sample(64, generator), task.sample(64, generator, long_carries=True)))
        logits = model(task.encode(problems), weights=model.effective_weights())[:, list(task.query_positions)]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), task.targets(problems).flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model
