"""Hand-built multiplication: proved sizes are right, each step of the proof says what the model does, errors show."""

from __future__ import annotations

from functools import cache
from itertools import product

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import interp
import models
from interp.cli import main
from interp.proofs import check_certificate
from interp.proofs.hand_built.addition_values import NotSeparated
from interp.proofs.hand_built.multiplication_keys import FIRST_VARIABLE, VARIABLES, Places, find_keys, is_exact, quantum
from interp.proofs.hand_built.multiplication_proof import MultiplicationProof, cases, prove_sizes
from interp.proofs.numbers.rounded_operations import REAL
from interp.proofs.verdict import time_limit
from models.errors import UserError
from models.evaluation import predict
from tests.interp.proofs.conftest import in_shape
from tests.models.tasks.named.position_coupling.task_sequences import smallest_margin
from tests.sampling import every_third, sampled

pytestmark = pytest.mark.usefixtures("without_shape_checks")
NAME = "multiplication-hand-built"
MOST = 4
sizes = st.tuples(st.integers(1, MOST), st.integers(1, MOST))


@cache
def proved(rounded: bool) -> MultiplicationProof:
    return MultiplicationProof(models.build(NAME, max_digits=MOST), (MOST, MOST), rounded)


@cache
def in_float64():
    return models.build(NAME, max_digits=MOST, dtype="float64")


def changed(key: str, index, by: float, max_digits: int = 2, **options):
    """The construction with one weight moved."""
    model = models.build(NAME, max_digits=max_digits, **options)
    with torch.no_grad():
        model.weight_map.get_buffer(key.replace(".", "/"))[index] += by
    return model


def place(name: str, offset: int = 0, max_digits: int = 2) -> int:
    """Of a dimension of the residual stream."""
    return models.build(NAME, max_digits=max_digits).weight_map.dims[name].start + offset


# ---- what is proved


@pytest.mark.parametrize(("arithmetic", "least"), sampled([("interval", 0.999), ("float32", 0.8)], ("float32", 0.8)))
def test_all_sizes_are_certified(arithmetic, least):
    found = interp.certify(models.build(NAME, max_digits=3), arithmetic=arithmetic)
    assert found.status == "certified" and [part.name for part in found.parts][3] == "2 x 1 digits"
    assert len(found.parts) == 9 and least < found.smallest_margin <= 1


@pytest.mark.slow
def test_all_pairs_of_up_to_thirty_digits_are_certified():
    found = interp.certify(models.build(NAME))
    assert found.status == "certified" and len(found.parts) == 900 and found.smallest_margin > 0.8


@hypothesis.settings(max_examples=2)
@hypothesis.given(sizes, st.integers(0, 2**20))
def test_a_proved_margin_is_below_every_measured_one(size: tuple[int, int], seed: int):
    """With rounding of float32 as it runs; over the reals of the same weights in float64."""
    proof = proved(True)
    task = in_shape(proof.model, *size)
    problems = task.sample(20, torch.Generator().manual_seed(seed))
    problems[0] = 9 * (problems[0] >= 0) * (torch.arange(task.n_digits) < torch.tensor(size)[:, None])
    measured = smallest_margin(proof.model, task, problems)
    bound, obstacle = proof.lead_of_size(task)
    assert obstacle is None and 0 < bound <= measured
    double = in_float64()
    bound, obstacle = proved(False).lead_of_size(task)
    assert obstacle is None and measured - 1e-3 < bound <= smallest_margin(double, task, problems)


@pytest.mark.parametrize("size", sampled([[1, 1], [2, 1], [1, 2]], [1, 1], [1, 2]))
def test_the_bound_holds_for_every_problem_of_a_small_size(size):
    model = models.build(NAME, max_digits=2)
    task = in_shape(model, *size)
    numbers = torch.cartesian_prod(*(torch.arange(10**n) for n in size))
    problems = torch.stack([numbers // 10**k % 10 for k in range(max(size))], -1)
    (bound, obstacle), *_ = prove_sizes(model, [size], True)
    assert obstacle is None and bound <= smallest_margin(model, task, problems)


# ---- what the steps say


@hypothesis.given(sizes, st.integers(0, 2**20))
def test_every_query_of_a_problem_is_a_case_of_its_class(size: tuple[int, int], seed: int):
    """What each head reads in the model's own pattern is the class' variable, with a value that its cases have."""
    proof = proved(True)
    task = in_shape(proof.model, *size)
    problem = task.sample(1, torch.Generator().manual_seed(seed))
    sequences = task.sequences(problem)
    tokens, right = sequences.inputs[0], sequences.targets[0]
    _, cache = proof.model.run_with_cache(sequences.inputs)
    for query, features in zip(Places.of(task).queries, proof.classes(task), strict=True):
        codes, (_, stage, *exist, own, target) = features[:9], features[9:]
        case = cases(stage, exist, own, target)
        fits = (case.token == tokens[query].item()) & (case.target == right[query].item())
        for head, code in enumerate(codes):
            pattern = cache["pattern", 0][0, head, query]
            keys = (pattern[1:] > 1e-6).nonzero().flatten() + 1
            assert (code == 0) == (len(keys) == 0)
            if code >= FIRST_VARIABLE:
                (key,) = keys.tolist()
                fits &= case.values[code - FIRST_VARIABLE] == tokens[key].item()
        assert fits.any(), (VARIABLES, task.token_text(tokens), int(query), features)


def test_from_four_digits_on_there_are_no_new_classes():
    proof = MultiplicationProof(models.build(NAME, max_digits=5), (5, 5), False)
    of = {size: proof.classes(in_shape(proof.model, *size)) for size in product(range(1, 6), repeat=2)}
    up_to = lambda n: {tuple(row) for size, rows in of.items() if max(size) <= n for row in rows.tolist()}  # noqa: E731
    assert [len(up_to(n)) for n in range(1, 6)] == [6, 22, 32, 36, 36]


@hypothesis.given(st.lists(st.integers(-(2**20), 2**20), min_size=1, max_size=9), st.integers(-30, 30))
def test_a_quantum_divides_all_numbers_and_its_double_does_not(whole: list[int], power: int):
    values = np.ldexp(np.array(whole, dtype=np.float64), power)
    q = quantum(values)
    if not values.any():
        assert q == np.inf
        return
    assert (values / q == np.round(values / q)).all() and (values / (2 * q) != np.round(values / (2 * q))).any()


@hypothesis.given(st.lists(st.integers(-4095, 4095), min_size=2, max_size=8), st.integers(0, 2**20))
def test_what_is_said_to_be_exact_is_exact_in_float32_in_any_order(whole: list[int], seed: int):
    a, b = np.array([whole], dtype=np.float64) / 64, np.array(whole, dtype=np.float64)[:, None]
    if is_exact((abs(a) @ abs(b)).item(), quantum(a) * quantum(b), 24):
        order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
        terms = torch.tensor(a[0], dtype=torch.float32)[order] * torch.tensor(b[:, 0], dtype=torch.float32)[order]
        assert terms.sum().item() == (a @ b).item()
    assert is_exact(2.0**23, 1.0, 24) and not is_exact((2.0**13 + 1) * (2.0**12 + 1), 1.0, 24)


# ---- what fails

BROKEN = {
    "a digit of the sum's step": ("blocks.1.mlp.W_out", (177, place("SUM", 0)), 1.0),
    "a threshold of the sum": ("blocks.1.mlp.b_in", 100, -3.0),
    "what a product's unit writes": ("blocks.0.mlp.W_out", (0, place("OWN")), -0.5),
    "where a product ends": ("blocks.0.mlp.b_in", 18, 1.5),
    "the end of the answer": ("unembed.W_U", (place("EOS"), 14), -3.0),
    "a code that is another's": ("pos_embed.W_pos", (0, 3, slice(place("POS_1"), place("POS_1") + 3)), 2.0),
    "a head that copies too little": ("blocks.0.attn.W_V", (0, place("NUM"), 0), -0.5),
    "no tie with BOS": ("blocks.0.attn.W_K", (2, place("IS_BOS"), 2), 2.0),
}


@pytest.mark.parametrize("name", every_third(BROKEN))
def test_one_wrong_weight_is_refuted_by_a_product_that_is_wrong(name: str):
    model = changed(*BROKEN[name])
    found = interp.certify(model)
    assert found.status == "refuted" and found.open > 0
    task = in_shape(model, *found.counterexample.shape)
    problem = [found.counterexample.problem]
    assert not torch.equal(predict(model, problem, "greedy", 1, task), task.targets(problem))
    check_certificate(found, model)


@pytest.mark.parametrize(
    ("key", "index", "message"),
    [
        ("blocks.0.attn.W_Q", (0, 0, 0), "queries depend on the token"),
        ("blocks.0.attn.W_K", (0, 0, 0), "keys depend on the digit"),
    ],
)
def test_heads_that_couple_digits_and_positions_are_not_read(key, index, message):
    """However little: 2^-20."""
    model = models.build(NAME, max_digits=2)
    weights = {name: value.detach().double().numpy() for name, value in model.weight_map().items()}
    weights[key][index] += 2.0**-20
    places = Places.of(model.task.at(2, 2))
    W_pos = weights["pos_embed.W_pos"]
    placed = W_pos[np.arange(len(W_pos)), places.ids].sum(1)
    W_Q, W_K = (weights[f"blocks.0.attn.W_{letter}"][0] for letter in "QK")
    with pytest.raises(NotSeparated, match=message):
        find_keys(places, weights["embed.W_E"], placed, W_Q, W_K, 16.0, REAL)


@pytest.mark.parametrize("key", ["blocks.0.attn.W_Q", "blocks.1.attn.W_O", "blocks.1.mlp.b_out"])
def test_a_weight_that_was_changed_is_not_proved(key: str):
    """However little: 2^-20."""
    model = changed(key, 0, 2.0**-20)
    with pytest.raises(NotSeparated, match=f"{key} is not what its options build"):
        MultiplicationProof(model, (2, 2), False)
    found = interp.certify(model)
    assert found.status == "undecided" and found.open == len(found.parts)


@pytest.mark.parametrize(
    ("eta", "status"), sampled([(1.0, "refuted"), (13.75, "certified"), (13.7, "undecided")], (13.7, "undecided"))
)
def test_temperatures(eta: float, status: str):
    """Sums of multiples of 13.7 are rounded in float32, and the bound on that is more than the margin."""
    model = models.build(NAME, max_digits=2, eta=eta)
    assert interp.certify(model, task=in_shape(model, 2, 2)).status == status


def test_position_ids_of_another_layout_are_refused():
    model = models.build(NAME, max_digits=3)
    small = Places.of(in_shape(model, 2, 2))
    large = Places.of(in_shape(model, 3, 3))
    assert (np.diff(small.within(large)) > 0).all()
    moved = Places(**vars(large) | {"ids": large.ids[::-1]})
    with pytest.raises(NotSeparated):
        small.within(moved)


# ---- the command


def test_ctrl_c_leaves_what_is_proved_and_says_what_is_not(monkeypatch):
    model, of = models.build(NAME, max_digits=2), MultiplicationProof.lead_of_size

    def interrupted(self, task):
        if task.shape == (2, 1):
            raise KeyboardInterrupt
        return of(self, task)

    monkeypatch.setattr(MultiplicationProof, "lead_of_size", interrupted)
    found = interp.certify(model)
    assert found.status == "undecided" and [part.proved for part in found.parts] == [True, True, False, False]
    assert {part.obstacle for part in found.parts[2:]} == {time_limit.EndedBy.INTERRUPT.value}


def test_what_the_time_leaves_out_is_open(capsys):
    found = interp.certify(models.build(NAME, max_digits=3), minutes=1e-9)
    assert found.status == "undecided" and found.open == 9
    assert {part.obstacle for part in found.parts} == {time_limit.EndedBy.TIME.value}
    assert main(["certify", NAME, "--shape", "3", "2"]) == 0
    assert "all products of up to 3 x 2 digits" in capsys.readouterr().out


def test_rounding_in_another_precision_is_not_bounded():
    model = models.build(NAME, max_digits=2, dtype="float16")
    with pytest.raises(UserError):
        interp.certify(model, arithmetic="float32")
    assert interp.certify(model, arithmetic="interval", task=in_shape(model, 1, 2)).status == "certified"
