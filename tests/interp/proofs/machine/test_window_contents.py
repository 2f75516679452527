"""Decoders that see near ids: paths hold all problems and no others, and bounds hold what the model computes."""

from __future__ import annotations

import json
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch

import interp
import models
from interp.proofs import check_certificate, load_certificate
from interp.proofs.listed.prefix_forward import PrefixForward
from interp.proofs.machine import machine_method, window_contents
from interp.proofs.machine.gated_block import GatedBlock, is_gated_block
from interp.proofs.machine.machine_method import certify_by_machine, placed_of
from interp.proofs.machine.path_graph import QueryPaths
from interp.proofs.machine.path_projection import query_paths
from interp.proofs.machine.window_contents import EachPath, keys_in_sight
from interp.proofs.numbers.activation_functions import ACTIVATIONS, SMOOTH
from interp.proofs.numbers.enclosure import Enclosure
from interp.proofs.numbers.rounded_operations import FLOAT32, REAL
from interp.proofs.numbers.token_tables import TokenTables
from interp.proofs.stored_verdicts import store, stored_certificate, stored_verdict
from interp.proofs.verdict import time_limit
from interp.proofs.verdict.subject import Subject
from interp.proofs.verdict.verdict import Verdict
from models.errors import UserError
from models.evaluation import margins
from models.tasks.named.position_coupling.multi_addition import AdditionFormat, MultiOperandAddition
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.constant import ConstantWeights
from tests.interp.proofs.conftest import zoo
from tests.models.coders import coder
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("without_shape_checks")

TRAINED = "position-coupling-1l4h-ids40-window-2x2-steps10000-small"


def at(model: ArithmeticTransformer, *shape: int) -> MultiOperandAddition:
    assert isinstance(model.task, MultiOperandAddition)
    return model.task.at(*shape)


def all_problems(task: MultiOperandAddition) -> torch.Tensor:
    cells = task.n_operands * task.n_digits
    return torch.tensor(list(product(range(10), repeat=cells))).view(-1, *task.shape)


def seen_by(task: MultiOperandAddition, target: int) -> Any:
    """The keys of a target's query, and all that it can see there."""
    query = task.query_positions[target]
    keys = keys_in_sight(coder("-window-2x2"), task, query)
    return keys, query_paths(task.machine_of_shorter(), query, target, keys)


def contents(task: MultiOperandAddition, keys: list[int], paths: QueryPaths) -> torch.Tensor:
    """The tokens at the keys on every path of every class, and the right token."""
    found = []
    for label, one in enumerate(paths.labels):
        options = paths.all_paths([mask[label] for mask in paths.roots])
        tokens = dict(paths.fixed)
        columns = {position: torch.full((len(options),), token) for position, token in tokens.items()}
        for step, option in zip(paths.steps, options.T, strict=True):
            for i, position in enumerate(step.positions):
                columns[position] = torch.from_numpy(step.tokens)[option, i]
        assert sorted(columns) == keys
        found.append(torch.stack([*(columns[key] for key in keys), torch.full((len(options),), one.answer)], 1))
    return torch.cat(found)


@pytest.mark.parametrize("shape", [(2, 2), pytest.param((4, 1), marks=pytest.mark.slow), (3, 1), (1, 3)])
@pytest.mark.parametrize("form", [AdditionFormat(), AdditionFormat(zero_start=False)])
def test_the_paths_are_what_queries_see_in_all_problems_and_nothing_else(shape: Any, form: AdditionFormat):
    task = MultiOperandAddition(shape[0], shape[1], form)
    problems = all_problems(task)
    tokens, targets = task.encode(problems), task.targets(problems)
    for target in range(len(task.query_positions)):
        keys, every = seen_by(task, target)
        real = torch.cat((tokens[:, keys], targets[:, [target]]), 1).unique(dim=0)
        assert torch.equal(real, torch.cat([contents(task, keys, paths) for paths in every]).unique(dim=0))
        assert sum(
            paths.count([m[i] for m in paths.roots]) for paths in every for i in range(len(paths.labels))
        ) == len(problems)


@pytest.mark.parametrize("shape", [(3, 3), *(pytest.param(each, marks=pytest.mark.slow) for each in ((7, 2), (5, 1)))])
def test_a_path_has_a_problem_that_shows_what_it_says(shape: tuple[int, int]):
    task = MultiOperandAddition(*shape)
    generator = torch.Generator().manual_seed(0)
    for target in range(0, len(task.query_positions), 2):
        keys, every = seen_by(task, target)
        for paths in every[:: max(1, len(every) // 3)]:
            options = paths.sample(paths.roots, 2, generator)[0]
            problems = torch.stack([paths.problem(path) for path in options])
            answers = torch.full((2, 1), paths.labels[0].answer)
            claimed = torch.cat((task.encode(problems)[:, keys], task.targets(problems)[:, [target]]), 1)
            assert torch.equal(claimed[:, -1:], answers)
            assert (claimed[:, None] == contents(task, keys, paths)[None]).all(2).any(1).all()


@pytest.mark.parametrize("rounding", [FLOAT32, pytest.param(REAL, marks=pytest.mark.slow)], ids=["float32", "reals"])
def test_leads_of_the_model_lie_within_their_bounds(rounding: Any):
    """By lengths, and followed back; in the model's own arithmetic and in float64."""
    model = coder("-window-2x2")
    task = at(model, 3, 2)
    kept = {name: value.detach() for name, value in model.effective_weights().items()}
    weights = kept if rounding is FLOAT32 else {name: value.double() for name, value in kept.items()}
    ids = task.position_ids(task.encode(task.sample(1, torch.Generator())))[0]
    reading = TokenTables(model.config, kept, rounding, placed_of(task.machine_of_shorter()), ids, None)
    generator = torch.Generator().manual_seed(0)
    for target, query in enumerate(task.query_positions):
        _, every = seen_by(task, target)
        paths = every[len(every) // 2]
        options = paths.sample(paths.roots, 8, generator)[0]
        answers = torch.full((8,), paths.labels[0].answer)
        problems = torch.stack([paths.problem(path) for path in options])
        logits = model(task.encode(problems), weights=weights)[:, [query]]
        lead = margins(logits, answers[:, None])[:, 0].double()
        width = []
        for proof in (EachPath(reading, [], -torch.inf), EachPath(reading, [], torch.inf)):
            shown, number = proof.contents(paths, options)
            low, high = proof.leads(paths, shown, answers[: len(shown)])
            assert (low[number] <= lead + 1e-6).all() and (lead - 1e-6 <= high[number]).all()
            assert (high - low).max() < (5.0 if rounding is FLOAT32 else 1e-5)
            width.append(float((high - low).mean()))
        assert rounding is REAL or width[1] < width[0]


@pytest.mark.parametrize(("act", "outside"), sampled(product(SMOOTH, (False, True)), ("gelu", False), ("silu", True)))
def test_points_of_a_ball_have_leads_within_the_bounds_of_the_block(act: Any, outside: bool):
    """From balls as large as a tenth of the stream, where what a stage curves by is no small thing."""
    config = TransformerConfig(
        1, 16, 2, 8, 10, 40, 24, act_fn=act, gated_mlp=True, normalization_type="RMS", norm_placement="both",
        norm_eps_outside=outside, eps=1e-4, positional_embedding_type="none",
    )  # fmt: skip
    model = coder("-window-2x2")
    generator = torch.Generator().manual_seed(1)
    shapes = {name: value.shape for name, value in model.effective_weights().items() if "pos_embed" not in name}
    weights = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) * 0.4 + name.endswith(".w")
        for name, shape in shapes.items()
    }
    assert is_gated_block(config, weights)
    forward = PrefixForward(config, weights, REAL)
    x = torch.randn(30, 16, generator=generator, dtype=torch.float64)
    z = torch.randn(30, 16, generator=generator, dtype=torch.float64)
    tokens = torch.randint(14, (30,), generator=generator)

    def leads(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        def norm(v: torch.Tensor, name: str) -> torch.Tensor:
            scale = v.pow(2).mean(-1, keepdim=True)
            return v / (scale.sqrt() + 1e-4 if outside else (scale + 1e-4).sqrt()) * weights[name]

        act_fn = {
            "gelu": torch.nn.functional.gelu,
            "gelu_new": lambda v: torch.nn.functional.gelu(v, approximate="tanh"),
            "silu": torch.nn.functional.silu,
        }[act]
        h = norm(x + z @ weights["blocks.0.attn.W_O"].flatten(0, 1), "blocks.0.ln1_post.w")
        read = norm(h, "blocks.0.ln2.w")
        hidden = act_fn(read @ weights["blocks.0.mlp.W_gate"]) * (read @ weights["blocks.0.mlp.W_in"])
        out = norm(norm(h + hidden @ weights["blocks.0.mlp.W_out"], "blocks.0.ln2_post.w"), "ln_final.w")
        return margins((out @ weights["unembed.W_U"])[:, None], tokens[:, None])[:, 0]

    for radius in (1e-9, 1e-3, 1e-1):
        away = torch.randn(200, 2, 30, 16, generator=generator, dtype=torch.float64)
        away = away / away.norm(dim=-1, keepdim=True) * radius
        balls = [Enclosure.of(m, torch.full_like(m, radius), torch.full(m.shape[:1], radius).double()) for m in (x, z)]
        block = GatedBlock(forward, *balls)
        for low, high in (block.leads(tokens), block.followed(tokens)):
            for dx, dz in away:
                found = leads(x + dx, z + dz)
                assert (low <= found + 1e-9).all() and (found - 1e-9 <= high).all()
        if radius == 1e-9:
            assert (high - low).max() < 1e-6


@pytest.mark.parametrize("name", SMOOTH)
def test_activations_curve_by_less_than_they_are_said_to(name: str):
    x = torch.linspace(-12, 12, 200_001, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(ACTIVATIONS[name].value(x).sum(), x, create_graph=True)
    (curve,) = torch.autograd.grad(slope.sum(), x)
    assert 0.9 * ACTIVATIONS[name].curved < float(curve.abs().max()) < ACTIVATIONS[name].curved


@cache
def verdict_on_the_trained_one() -> Verdict:
    return interp.certify(zoo(TRAINED), task=at(zoo(TRAINED), 3, 1))


def test_the_trained_decoder_is_certified_and_its_certificate_holds(tmp_path: Any):
    model, verdict = zoo(TRAINED), verdict_on_the_trained_one()
    assert (verdict.status, verdict.size, verdict.arithmetic) == ("certified", 1000, "float32")
    assert verdict.share == 1 and verdict.smallest_margin > 9
    (tmp_path / "c.json").write_text(json.dumps(verdict.to_dict()))
    stored = load_certificate(tmp_path / "c.json")
    assert check_certificate(stored, model).smallest_margin == pytest.approx(verdict.smallest_margin)
    with pytest.raises(UserError):
        larger = stored.classes.assign(bound=stored.classes["bound"] + 6)  # more than problems that are run have
        check_certificate(stored.replace(classes=larger), model)
    with pytest.raises(UserError):
        check_certificate(stored.replace(shape=(2, 1)), model)


def test_a_proof_goes_into_an_entry_and_onto_its_card(tmp_path: Any):
    model = zoo(TRAINED)
    entry = models.save_entry(tmp_path / "entry", model, {}, {"shapes": []})
    found = verdict_on_the_trained_one()
    with pytest.raises(UserError):
        store(entry, certify_by_machine(coder("-window-2x2"), "float32", at(coder("-window-2x2"), 2, 1)))
    assert stored_verdict(entry) is None
    store(entry, found)
    stored = stored_verdict(entry)
    assert stored is not None and stored.to_dict() == found.to_dict() and stored_certificate(entry) is None


def test_a_decoder_that_is_wrong_is_refuted_by_a_problem_that_it_gets_wrong():
    model = coder("-window-2x2")
    verdict = certify_by_machine(model, "float32", at(model, 2, 1))
    assert verdict.status == "refuted" and verdict.size == 100 and verdict.share == 0
    one = verdict.counterexample
    assert one is not None and one.predicted != one.expected


def test_a_proof_that_is_cut_short_is_undecided(monkeypatch: pytest.MonkeyPatch):
    def interrupted(items: Any, *args: Any, **kwargs: Any) -> Any:
        for count, item in enumerate(items):
            if count == 3:
                raise KeyboardInterrupt
            yield item

    monkeypatch.setattr(window_contents, "watched", interrupted)
    model = zoo(TRAINED)
    verdict = certify_by_machine(model, "interval", at(model, 3, 1))
    assert verdict.status == "undecided" and 0 < verdict.proved < len(verdict.classes)
    assert verdict.obstacle == time_limit.EndedBy.INTERRUPT.value
    with pytest.raises(UserError):
        check_certificate(verdict, model)


def changed(**changes: Any) -> ArithmeticTransformer:
    model = coder("-window-2x2")
    return ArithmeticTransformer(
        ConstantWeights(model.config.replace(**changes), model.effective_weights()), model.task
    )


@pytest.mark.parametrize(
    "model", [coder("-window1"), coder(""), coder("-window-2x2", layers=2), changed(attn_scores="max_plus")]
)
def test_other_models_are_not_judged(model: ArithmeticTransformer):
    assert machine_method.why_not(Subject(model)) is not None
    with pytest.raises(UserError):
        certify_by_machine(model)


def test_only_proofs_are_asked_for():
    with pytest.raises(UserError):
        certify_by_machine(changed(), "float")  # type: ignore[arg-type]
