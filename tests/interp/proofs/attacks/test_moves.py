"""The parts of the attack: what may be changed, what is estimated, what the programme proposes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

import models
from interp.proofs.attacks.counted_runs import Runner, estimates, margin_of
from interp.proofs.attacks.problem_digits import (
    DigitSpace,
    changed_digits,
    crossed,
    digit_space,
    moved_digits,
    runs_of_nines,
    unseen,
)
from interp.proofs.attacks.proposals import proposals_for
from models.tasks import (
    MultiOperandAddition,
    Multiplication,
    Parity,
    TenDigitAddition,
    TwoDigitAddition,
    formatted,
    function,
)
from models.tasks.named.addition import PaddedAddition
from models.tasks.task import Task
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.dense import DenseWeights
from tests.sampling import sampled
from tests.toy_task import ToyAddition

TASKS: list[Task] = [
    TenDigitAddition(),
    PaddedAddition(),
    TwoDigitAddition(),
    ToyAddition(),
    MultiOperandAddition(3, 4),
    Multiplication(2, 3),
    Parity(7),
]
SPACES = {task.name: digit_space(task) for task in TASKS}
each_space = pytest.mark.parametrize("space", SPACES.values(), ids=SPACES.keys())


def drawn(space: DigitSpace, n: int, seed: int) -> torch.Tensor:
    return space.digits(space.task.sample(n, torch.Generator().manual_seed(seed)))


@each_space
def test_digits_and_problems_are_the_same_thing(space: DigitSpace):
    problems = space.task.sample(50, torch.Generator().manual_seed(1))
    digits = space.digits(problems)
    assert torch.equal(space.problems(digits), problems) and space.contains(digits).all()
    operands = [i for i, role in enumerate(space.task.roles) if role.kind == "operand"]
    written = space.task.encode(problems)[:, operands]
    for digit in range(1, space.base):  # zeros also fill numbers up
        assert torch.equal((written == digit).sum(1), (digits == digit).sum((1, 2)))


def test_leading_zeros_stay_out_where_the_task_has_none():
    assert SPACES["multi-operand-addition"].domain.size == 9000**3 and SPACES["multiplication"].domain.size == 90 * 900
    assert SPACES["ten-digit-addition"].domain.size == 10**20 and SPACES["parity"].domain.size == 2**7
    space = SPACES["multiplication"]
    assert not space.contains(torch.tensor([[[5, 0, 0], [1, 2, 3]]]))[0]  # 05 is no number of two digits
    assert not space.contains(torch.tensor([[[5, 1, 1], [1, 2, 3]]]))[0]  # and 115 has three


@each_space
def test_moves_lead_to_other_problems_of_the_space(space: DigitSpace):
    own, other = drawn(space, 2, 3)
    changed = changed_digits(space, own)
    assert len(changed) == int(space.allowed.sum()) - space.n_operands * space.n_columns
    assert ((changed != own).flatten(1).sum(1) == 1).all()
    moved = moved_digits(space, own)
    assert torch.equal(moved.sum(1), own.sum(0).expand(len(moved), -1))
    assert ((moved != own).flatten(1).sum(1) == 2).all() if len(moved) else space.n_operands == 1
    for found in (changed, moved, crossed(space, own, other)):
        assert space.contains(found).all() and len(unseen(space, found, set())) <= len(found)
    assert len(unseen(space, changed, set())) == len(changed)
    for row in crossed(space, own, other).transpose(1, 2):
        assert all(torch.equal(c, a) or torch.equal(c, b) for c, a, b in zip(row, own.T, other.T, strict=True))


@pytest.mark.parametrize("name", ["ten-digit-addition", "two-digit-addition", "multi-operand-addition"])
def test_a_run_of_nines_passes_carries_on_according_to_the_symbolic_algorithm(name: str):
    space = SPACES[name]
    own = drawn(space, 1, 5)
    sums = space.digit_sums(own)
    assert sums is not None
    made = runs_of_nines(space, own[0], sums[0])
    propagate = space.task.variables(space.problems(made))["propagate"].flatten(1)
    before = space.task.variables(space.problems(own))["propagate"].flatten(1)
    assert len(made) > 5 and (propagate.sum(1) > 0).all()
    changed = (made != own).any(1)  # [problem, column]
    if made.shape[1] == 2 and name != "multi-operand-addition":
        assert (propagate[:, : space.n_columns] >= changed.long()).all()
        assert int(propagate.sum(1).max()) == space.n_columns > int(before.sum())


def test_tasks_without_carries_have_no_runs_of_nines():
    for name in ("parity", "multiplication", "toy-addition"):
        assert SPACES[name].digit_sums(drawn(SPACES[name], 2, 0)) is None


def test_fresh_problems_are_new_until_there_are_none_left():
    space, rng = digit_space(Parity(4)), np.random.default_rng(0)
    seen: set[bytes] = set()
    first, rest = space.fresh(10, rng, seen), space.fresh(10, rng, seen)
    assert len(first) == 10 and len(rest) == 6 and len(seen) == 16
    assert len(torch.cat((first, rest)).unique(dim=0)) == 16 and not len(space.fresh(1, rng, seen))


# ---- margins, gradients, estimates


@given(st.lists(st.floats(-50, 50, allow_subnormal=False), min_size=3, max_size=6), st.integers(0, 2))
def test_a_margin_is_the_right_logit_less_the_best_other(logits: list[float], right: int):
    margin, rival = margin_of(torch.tensor([[logits]]), torch.tensor([[right]]))
    others = [x for i, x in enumerate(torch.tensor(logits).tolist()) if i != right]
    assert float(margin) == pytest.approx(torch.tensor(logits)[right].item() - max(others))
    assert int(rival) != right


def gradients_of(name: str, n: int = 16) -> tuple[Runner, DigitSpace, torch.Tensor, torch.Tensor, Any]:
    model = models.load(name)
    runner, space = Runner(model, model.task), digit_space(model.task)
    digits = drawn(space, n, 0)
    targets = runner.margins(space.problems(digits)).values.argmin(1)
    proposer = proposals_for(runner, model.task)
    found = runner.gradients(space.problems(digits), targets, proposer.hooks if proposer else ())
    if proposer is not None:
        found = replace(found, effects=proposer.effects(model.task.encode(space.problems(digits)), targets, found))
    return runner, space, digits, targets, found


def test_effects_are_the_derivative_of_the_margin_along_embeddings():
    runner, space, digits, targets, found = gradients_of("toygpt-learned-pre", 4)
    model, task, step = runner.model, space.task, 1e-3
    tokens, right = task.encode(space.problems(digits)), task.targets(space.problems(digits))
    for row, position, token in [(0, 0, 3), (1, 2, 9), (3, 3, 0)]:

        def shifted(sign: int, row: int = row, position: int = position, token: int = token) -> float:
            def hook(value: torch.Tensor, hook: Any) -> torch.Tensor:
                direction = torch.zeros_like(value)
                direction[:, position] = model.W_E[token] - value[:, position]
                return value + sign * step * direction

            logits = model.run_with_hooks(tokens[row : row + 1], fwd_hooks=[("hook_embed", hook)])
            target = int(targets[row])
            query = task.query_positions[target]
            return float(margin_of(logits[:, [query]].detach(), right[row : row + 1, [target]])[0])

        slope = (shifted(1) - shifted(-1)) / (2 * step)
        effect = found.effects[row, position, token] - found.effects[row, position, tokens[row, position]]
        assert slope == pytest.approx(float(effect), rel=0.02, abs=0.05)


@pytest.mark.parametrize(
    "name",
    sampled(["adder-456", "toygpt-learned-pre", "position-coupling-2l2h-small"], "adder-456", "toygpt-learned-pre"),
)
def test_the_estimates_sign_is_right_more_often_than_chance(name: str):
    runner, space, digits, targets, found = gradients_of(name)
    task, hits, n = space.task, 0, 0
    for row, target in enumerate(targets.tolist()):
        own = space.problems(digits[row : row + 1])
        near = changed_digits(space, digits[row])
        near = near[:: max(1, len(near) // 20)]
        same = task.targets(space.problems(near))[:, target] == task.targets(own)[0, target]
        near = near[same]
        if not len(near):
            continue
        problems = space.problems(near)
        old, new = task.encode(own).expand(len(near), -1), task.encode(problems)
        effects = found.effects[row].expand(len(near), -1, -1)
        margins = found.margins[row].expand(len(near))
        estimate = (estimates(margins, effects, old, new) - margins).numpy()
        actual = (runner.margins(problems).values[:, target] - margins).numpy()
        moving = (np.abs(actual) > 1e-4) & (np.abs(estimate) > 1e-4)  # a token behind the query moves nothing
        hits += int((np.sign(estimate) == np.sign(actual))[moving].sum())
        n += int(moving.sum())
    assert n > 50 and binomtest(hits, n, 0.5, alternative="greater").pvalue < 1e-3


def test_a_margin_and_its_gradient_agree_and_are_counted():
    runner, space, digits, targets, found = gradients_of("toygpt-learned-pre", 8)
    assert runner.runs == 8 + 3 * 8
    margins = runner.margins(space.problems(digits)).values.gather(1, targets[:, None])[:, 0]
    assert torch.allclose(margins, found.margins, atol=1e-4)


# ---- the programme


def test_the_programmes_sum_is_the_ratio_of_a_head_exactly():
    model = models.load("adder-456")
    runner, space = Runner(model, model.task), digit_space(model.task)
    proposer = proposals_for(runner, model.task)
    assert proposer is not None and proposer.has_ratio and model.cfg.n_heads == 1
    target, query = 6, model.task.query_positions[6]
    digits = drawn(space, 400, 2)
    tokens = model.task.encode(space.problems(digits))
    rows = (tokens[:, query] == tokens[0, query]).nonzero().flatten()  # the query's own token is the same
    tokens = tokens[rows]
    direction = torch.randn(model.cfg.d_model, generator=torch.Generator().manual_seed(0))
    terms = proposer._ratio(tokens[0], query, direction)
    caught = runner.catch(tokens, ("blocks.0.hook_attn_out", "blocks.0.attn.hook_attn_scores"))
    out = caught["blocks.0.hook_attn_out"][:, query].double() @ direction.double()
    scores = caught["blocks.0.attn.hook_attn_scores"][:, 0, query, : query + 1].double()
    denominator = scores.exp().sum(1)
    total = terms.gather(1, tokens[:, : query + 1].T).sum(0)
    expected = (out - out[0]) * denominator / denominator[0]
    assert len(rows) > 10 and float(expected.abs().max()) > 1e-3
    assert torch.allclose(total, expected, atol=1e-4 * float(expected.abs().max()), rtol=1e-3)
    assert target == model.task.query_positions.index(query)


@pytest.mark.parametrize("name", ["adder-456", "addlm-adder-ten-digit"])
def test_the_programme_proposes_problems_with_the_same_answer_and_a_smaller_estimate(name: str):
    model = models.load(name)
    runner, space = Runner(model, model.task), digit_space(model.task)
    proposer = proposals_for(runner, model.task)
    assert proposer is not None and proposer.has_ratio == (model.cfg.n_layers == 1)
    digits, target = drawn(space, 1, 4), 5
    problems = space.problems(digits)
    targets = torch.tensor([target])
    found = runner.gradients(problems, targets, proposer.hooks)
    effects = proposer.effects(model.task.encode(problems), targets, found)
    proposed = proposer.proposals(space, digits, targets, effects)
    assert len(proposed) and space.contains(proposed).all()
    answers = model.task.targets(space.problems(proposed))[:, target]
    assert (answers == model.task.targets(problems)[0, target]).all()
    if not proposer.has_ratio:
        n = len(proposed)
        old = model.task.encode(problems).expand(n, -1)
        estimate = estimates(
            found.margins.expand(n), effects.expand(n, -1, -1), old, model.task.encode(space.problems(proposed))
        )
        random = drawn(space, 2_000, 6)
        random = random[model.task.targets(space.problems(random))[:, target] == answers[0]]
        m = len(random)
        others = estimates(
            found.margins.expand(m),
            found.effects.expand(m, -1, -1),
            model.task.encode(problems).expand(m, -1),
            model.task.encode(space.problems(random)),
        )
        assert float(estimate.min()) < float(others.min())


@pytest.mark.parametrize(
    "task",
    [
        formatted("{a:4}+{b:4}+{c:4}={s:5}", "a + b + c"),
        formatted("{a:6r}?{b:6r}=", "a < b"),
        formatted("{a:16}+{b:16}={s:17}", "a + b", base=2),
        function("01234567", 6, "sorted"),
    ],
    ids=["three numbers", "comparison", "bits", "sorted strings"],
)
def test_the_programmes_problems_have_the_least_sums_that_there_are(task: Task):
    """As far as twenty thousand random problems can say, among those with the same answer and the same token read."""
    config = models.TransformerConfig(
        n_layers=1, d_model=16, n_heads=1, d_head=16, d_mlp=16, d_vocab=task.d_vocab, n_ctx=task.input_length
    )
    model = ArithmeticTransformer(DenseWeights(config), task, name="random")
    with torch.no_grad():
        for i, weight in enumerate(model.weight_map.parameters()):
            weight.normal_(std=0.5, generator=torch.Generator().manual_seed(i))
    runner, space = Runner(model, task), digit_space(task)
    proposer = proposals_for(runner, task)
    assert proposer is not None and proposer.has_ratio
    digits, target = drawn(space, 1, 4), len(task.query_positions) - 1
    problems, targets = space.problems(digits), torch.tensor([target])
    found = runner.gradients(problems, targets, proposer.hooks)
    tokens, query = task.encode(problems), task.query_positions[target]
    effects = proposer.effects(tokens, targets, found)
    proposed = space.problems(proposer.proposals(space, digits, targets, effects))
    many = task.sample(20_000, torch.Generator().manual_seed(5))
    right = task.targets(problems)[0, target]
    assert (task.targets(proposed)[:, target] == right).all()

    def least(of: torch.Tensor) -> float:
        rows = task.encode(of)[:, : query + 1]
        alike = (rows[:, query] == tokens[0, query]) & (task.targets(of)[:, target] == right)
        return float(effects[0, : query + 1].gather(1, rows[alike].T).sum(0).min())

    assert least(proposed) <= least(many) + 1e-9


def test_other_tasks_have_no_programme():
    model = models.load("toygpt-learned-pre")
    assert proposals_for(Runner(model, model.task), model.task) is None
