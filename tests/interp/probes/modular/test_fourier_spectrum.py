"""Spectra over a group against direct sums, on constructions whose frequencies are known, and their controls."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import interp
import models
from interp.core.modular.group_spectra import pair_power, sum_power
from models.errors import UserError
from models.families.hand_built.modular_programs import frequencies
from models.tasks import formatted
from models.tasks.named.cyclic_groups import CyclicGroup, group_of
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.weight_maps.constant import ConstantWeights


def built(program: str, p: int = 13):
    return models.build(f"modular-{program}-hand-built", p=p)


# ---- groups


@pytest.mark.parametrize(
    "answer, base, name, order",
    [
        ("(a + b) % 7", 7, "addition modulo 7", 7),
        ("(a - b) % 12", 12, "addition modulo 12", 12),
        ("(a * b) % 11", 11, "multiplication modulo 11", 10),
    ],
)
def test_the_logs_of_a_group_add(answer, base, name, order):
    task = formatted("{a}{b}=", answer, base=base)
    found = group_of(task)
    assert (found.name, found.order) == (name, order)
    log = {element: i for i, element in enumerate(found.elements)}
    for (a, b), value in zip(found.pairs().tolist(), task.answers(found.pairs()).tolist(), strict=True):
        assert log[value] == (log[a] + found.sign * log[b]) % order


@pytest.mark.parametrize("answer, base", [("(a * b) % 8", 8), ("(a * a + b) % 7", 7), ("max(a, b)", 7)])
def test_another_operation_is_no_cyclic_group(answer, base):
    with pytest.raises(UserError):
        group_of(formatted("{a}{b}=", answer, base=base))


@pytest.mark.parametrize("format", ["{a:2}{b:2}{s:2}", "{a}{b}{c}="])
def test_numbers_of_several_tokens_or_three_of_them_are_no_group(format):
    answer = "(a + b) % 100" if "2" in format else "(a + b + c) % 10"
    with pytest.raises(UserError):
        group_of(formatted(format, answer))
    with pytest.raises(UserError):
        group_of(models.load("microadder-57").task)


# ---- power, against products of waves


@given(st.integers(3, 9), st.integers(1, 3), st.integers(0, 1000))
def test_power_over_pairs_is_that_of_all_products_of_waves(m, dimensions, seed):
    values = np.random.default_rng(seed).normal(size=(m, m, dimensions))
    values = values - values.mean((0, 1))
    power, _ = pair_power(values)
    at = np.arange(m)
    for k in range(1, m // 2 + 1):
        waves = [np.ones(m), np.cos(2 * np.pi * k * at / m), np.sin(2 * np.pi * k * at / m)]
        basis = [w / np.linalg.norm(w) for w in waves if np.abs(w).max() > 1e-9]
        pairs = [(i, j) for i in range(len(basis)) for j in range(len(basis)) if i or j]
        direct = sum(np.einsum("a,b,abd->d", basis[i], basis[j], values) ** 2 for i, j in pairs) / m**2
        assert power[k - 1] == pytest.approx(direct, abs=1e-12)


@given(st.integers(3, 9), st.sampled_from([1, -1]), st.integers(0, 1000))
def test_power_of_sums_is_that_of_waves_in_a_plus_b_minus_c(m, sign, seed):
    values = np.random.default_rng(seed).normal(size=(m, m, m))
    group = CyclicGroup("made up", m, tuple(range(m)), sign)
    a, b, c = np.meshgrid(*[np.arange(m)] * 3, indexing="ij")
    angle = 2 * np.pi * (a + sign * b - c) / m
    for k, found in enumerate(sum_power(values, group), start=1):
        waves = [np.cos(k * angle), np.sin(k * angle)]
        direct = sum((w * values).sum() ** 2 / (w**2).sum() for w in waves if (w**2).sum() > 1e-9) / m**2
        assert found == pytest.approx(direct, abs=1e-12)


# ---- planted models


@pytest.mark.parametrize("program", ["clock", "pizza"])
@pytest.mark.parametrize("of", ["embeddings", "neurons", "logits"])
def test_the_frequencies_that_were_built_in_are_kept(program, of):
    found = interp.fourier_spectrum(built(program, 29), of=of)
    assert found.kept == frequencies(29) and found.p_value <= 0.01
    assert found.table.share[found.table.kept].sum() > 0.75


def test_a_table_of_one_hot_embeddings_keeps_no_frequency_and_needs_none():
    found = interp.fourier_spectrum(built("table"))
    alone, without = found.causal.replaced.values()
    assert found.kept == () and found.p_value > 0.05 and without.value == 1.0 and alone.value < 0.2


def test_a_models_answers_are_said_with_the_kept_frequencies_alone_and_without_them():
    alone, without = interp.fourier_spectrum(built("clock", 29)).causal.replaced.values()
    assert alone.value == 1.0 and without.value < 0.2
    assert interp.fourier_spectrum(built("clock", 29).W_E[:29]).causal is None  # a table answers nothing


def with_a_useless_circle() -> ArithmeticTransformer:
    """The table, whose embeddings also hold a large circle that nothing reads."""
    model = built("table")
    weights = {name: value.detach().double() for name, value in model.all_weights().items()}
    dims, p = model.weight_map.dims, 13
    free = dims["SUM"]  # what the units write; embeddings leave it empty, and the unembedding's table reads it
    angle = 2 * np.pi * torch.arange(p, dtype=torch.float64) / p
    circle = torch.outer(angle.cos(), torch.randn(13, generator=torch.Generator().manual_seed(0)).double())
    weights["embed.W_E"] = weights["embed.W_E"].clone()
    weights["embed.W_E"][:p, free] = 30 * circle
    return ArithmeticTransformer(ConstantWeights(model.config, weights), model.task, name="a circle for nothing").eval()


def test_a_circle_that_nothing_reads_is_found_and_said_to_be_needed_by_no_answer():
    model = with_a_useless_circle()
    found = interp.fourier_spectrum(model)
    alone, without = found.causal.replaced.values()
    assert found.kept == (1,) and without.value == found.causal.clean.value == 1.0 and alone.value < 0.2
    assert interp.group_program(model, n=200).verdict == "no Fourier program"


def test_units_have_the_phases_that_were_built_in():
    units = interp.fourier_spectrum(built("pizza", 29), of="neurons").units()
    assert set(units.frequency) == set(frequencies(29)) and (units.share > 0.9).all()
    assert np.allclose(units.phase_a, units.phase_b, atol=1e-6)  # a pizza's units read the mean
    turns = np.sort(units.phase_a[units.frequency == 1] % (2 * np.pi))
    assert np.allclose(np.diff(turns), 2 * np.pi / 12, atol=1e-6)
    with pytest.raises(UserError):
        interp.fourier_spectrum(built("pizza")).units()


def test_frequencies_of_a_product_are_over_logarithms():
    """The clock with its numbers renamed by a primitive root multiplies modulo 13, zero aside."""
    adder, p = built("clock", 13), 13
    task = formatted("{a}{b}=", "(a * b) % 13", base=13)
    group = group_of(task)
    weights = {name: value.detach().double() for name, value in adder.all_weights().items()}
    angle = 2 * np.pi * torch.arange(12, dtype=torch.float64) / 12
    points = torch.cat([torch.stack(((k * angle).cos(), (k * angle).sin()), 1) for k in (1, 3, 5)], 1)
    table = torch.zeros(p, 6, dtype=torch.float64).index_copy(0, torch.tensor(group.elements), points)
    dims = adder.weight_map.dims
    weights["embed.W_E"] = weights["embed.W_E"].clone()
    weights["unembed.W_U"] = weights["unembed.W_U"].clone()
    weights["embed.W_E"][:p, dims["NUMBER"]], weights["unembed.W_U"][dims["SUM"], :p] = table, table.T
    model = ArithmeticTransformer(ConstantWeights(adder.config, weights), task, name="discrete logarithms").eval()
    for of in ("embeddings", "neurons", "logits"):
        assert interp.fourier_spectrum(model, of=of).kept == (1, 3, 5)
    assert interp.fourier_spectrum(model.W_E[:13]).kept == ()  # in the order of the numbers themselves


# ---- refusals


def test_neurons_and_logits_need_a_group():
    for of in ("neurons", "logits"):
        with pytest.raises(UserError):
            interp.fourier_spectrum(models.load("microadder-57"), of=of)
    with pytest.raises(UserError):
        interp.fourier_spectrum(built("clock"), of="attention")
    with pytest.raises(UserError):
        interp.fourier_spectrum(built("clock").W_E, of="neurons")


def test_alike_logits_have_no_frequencies():
    model = built("clock")
    model.add_perma_hook("unembed.hook_out", lambda logits, hook: 0 * logits)
    with pytest.raises(UserError):
        interp.fourier_spectrum(model, of="logits")


# ---- which frequencies are kept


def waves(n: int, sizes: dict[int, float], noise: float, seed: int) -> np.ndarray:
    """Circles of these sizes by frequency, each in a plane of its own, and noise in all dimensions."""
    at = 2 * np.pi * np.arange(n) / n
    table = np.column_stack([size * wave(k * at) for k, size in sizes.items() for wave in (np.cos, np.sin)])
    return table + noise * np.random.default_rng(seed).normal(size=table.shape)


def test_a_small_frequency_next_to_a_large_one_is_kept():
    found = interp.fourier_spectrum(waves(59, {5: 10.0, 9: 1.0}, 0.1, 0))
    assert found.kept == (5, 9) and not found.table.share.sel(frequency=9) > 0.05


@pytest.mark.parametrize("sizes", [{}, {3: 10.0}])
def test_noise_is_kept_no_more_often_than_said_with_and_without_a_large_frequency(sizes, monkeypatch):
    """One table in twenty may keep a frequency of noise; of 60, more than 8 do with a probability below 1%."""
    monkeypatch.setattr("interp.probes.modular.fourier_spectrum.RELABELLINGS", 199)
    tables = [waves(13, sizes | {1: 0.0, 2: 0.0}, 0.3, seed) for seed in range(60)]
    kept = [interp.fourier_spectrum(table, seed=i).kept for i, table in enumerate(tables)]
    assert all(set(sizes) <= set(each) for each in kept)
    assert sum(set(each) != set(sizes) for each in kept) <= 8


@pytest.mark.slow
def test_units_of_random_embeddings_keep_no_more_frequencies_than_chance():
    adder, kept = built("clock", 13), []
    for seed in range(30):
        weights = {name: value.detach().double() for name, value in adder.all_weights().items()}
        generator = torch.Generator().manual_seed(seed)
        weights["embed.W_E"] = torch.randn(weights["embed.W_E"].shape, generator=generator, dtype=torch.float64)
        model = ArithmeticTransformer(ConstantWeights(adder.config, weights), adder.task, name="random").eval()
        kept.append(interp.fourier_spectrum(model, of="neurons", seed=seed).kept)
    assert sum(map(bool, kept)) <= 5  # of 30, more than 5 with a probability below 1%
