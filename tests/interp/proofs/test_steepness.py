"""Errors of deep models through the derivatives of half blocks hold the worst that is found within the balls."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.functional import jacobian
from torch.nn.functional import normalize

import models
from interp.proofs import prefix_tree
from interp.proofs.enclosed import Enclosure
from interp.proofs.enclosures import FLOAT32, Rounding
from interp.proofs.head_errors import HeadMaps, Heads, lengths_of
from interp.proofs.prefix_leads import bounds_of
from interp.proofs.prefix_nodes import Rows, Tree
from interp.proofs.prefix_tree import EnclosedForward, Stream
from interp.proofs.steepness import Slopes, _stretches, applies
from interp.proofs.trials import perturb
from models.tasks.problem_space import ProblemSpace
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from models.transformer.config import TransformerConfig
from models.weight_maps.dense import DenseWeights
from tests.interp.proofs.conftest import zoo
from tests.other_tasks import column_addition
from tests.sampling import every_third, sampled

pytestmark = pytest.mark.usefixtures("without_shape_checks")

DEEP = TransformerConfig(3, 16, 4, 4, 24, 3, 6, act_fn="gelu_new", normalization_type="LN")
CONFIGS = {
    "LN, gelu_new": DEEP,
    "LN, gelu, no positions": replace(DEEP, act_fn="gelu", positional_embedding_type="none"),
    "RMS, silu, one head": replace(DEEP, normalization_type="RMS", act_fn="silu", n_heads=1, d_head=8),
    "RMS, no final norm": replace(DEEP, normalization_type="RMS", final_norm=False, attn_scale=1.0),
}


#: Which weights are large, so that most of an error goes through them.
LOUD = {
    "nothing": (),
    "scores": ("W_Q", "W_K"),
    "values": ("W_V", "W_O"),
    "attention": ("W_Q", "W_K", "W_V", "W_O"),
    "MLP": ("W_in", "W_out"),
}


#: One weight that is loud in each model in `make test`, all of all in `make test-all`.
ERRORS = sampled(product(CONFIGS, LOUD), *zip(CONFIGS, LOUD, strict=False))


def drawn(config: TransformerConfig, seed: int, loud: str = "nothing") -> ArithmeticTransformer:
    """A model with random weights, biases and gains, whose tokens are farther apart than its weights are large."""
    model = ArithmeticTransformer(DenseWeights(config), column_addition(3), name="drawn")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.weight_map.named_parameters():
            scale = 0.6 if name.startswith("embed") or name.endswith(LOUD[loud]) else 0.15
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale + name.endswith("/w"))
    return model


def in_float64(model: ArithmeticTransformer) -> dict[str, Tensor]:
    return {name: value.detach().double() for name, value in model.effective_weights().items()}


def some_rows(model: ArithmeticTransformer, n: int) -> Rows:
    rows = Rows.of(model.task, ProblemSpace.of(model.task))
    return rows[torch.arange(0, len(rows), len(rows) // n)]


def leads(model: ArithmeticTransformer, rows: Rows, weights: dict[str, Tensor], moved: Tensor) -> Tensor:
    """[row, target, token]: how far the right token leads each other, with the embedding moved."""
    hook = "blocks.0.hook_resid_pre"
    with model.hooks(fwd_hooks=[(hook, lambda value, hook: value + moved)]):
        logits = model(rows.tokens, weights=weights)[:, list(rows.queries)]
    return logits.gather(-1, rows.targets[..., None]) - logits


def worst_moves(model: ArithmeticTransformer, rows: Rows, weights: dict[str, Tensor], radius: float, seed: int) -> Any:
    """Yield moves of the embedding by ``radius`` at every node, each of which lowers one lead as fast as it can."""
    start = torch.zeros(*rows.tokens.shape, model.config.d_model, dtype=torch.float64, requires_grad=True)
    found = leads(model, rows, weights, start)
    for target in range(found.shape[1]):
        others = found[:, target].detach().scatter(1, rows.targets[:, [target]], torch.inf).argmin(1)
        (slope,) = torch.autograd.grad(found[range(len(rows)), target, others].sum(), start, retain_graph=True)
        yield -radius * slope / slope.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    yield radius * normalize(
        torch.randn(start.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), dim=-1
    )


@pytest.mark.parametrize("name", every_third(CONFIGS, 1))
@pytest.mark.parametrize("radius", sampled([1e-5, 3e-4], 3e-4))
def test_leads_stay_within_their_bounds_wherever_the_embedding_lies_in_its_ball(
    name: str, radius: float, monkeypatch: pytest.MonkeyPatch
):
    """The steepest moves of the embedding reach a few percent of the bounds after three layers."""
    assert applies(CONFIGS[name])
    embedded, reach = EnclosedForward._embedded, []

    def widened(self: EnclosedForward, tree: Tree) -> Enclosure:
        x = embedded(self, tree)
        return Enclosure.of(x.mid, x.rad + radius, x.norm + radius)

    monkeypatch.setattr(EnclosedForward, "_embedded", widened)
    for seed in range(3):
        model = drawn(CONFIGS[name], seed)
        weights, rows = in_float64(model), some_rows(model, 12)
        with torch.no_grad():
            low, high = bounds_of(EnclosedForward(model.config, model.effective_weights(), FLOAT32), rows)
        others = lambda x, rows=rows: x.scatter(-1, rows.targets[..., None], torch.inf).amin(-1)  # noqa: E731
        middle = others(leads(model, rows, weights, torch.zeros(())).detach())
        for move in worst_moves(model, rows, weights, radius, seed):
            found = others(leads(model, rows, weights, move).detach())
            assert (low <= found).all() and (found <= high).all()
            reach.append(float(((found - middle).abs() / (high - low) * 2).max()))
    assert max(reach) > 0.01


class OneError:
    """A drawn model's last two blocks, entered with an error at one node of a problem and none at the others."""

    def __init__(
        self, name: str, loud: str, seed: int, layer: int, node: int, radius: float = 1e-3, rounding: Any = FLOAT32
    ):
        model = drawn(CONFIGS[name], seed, loud)
        self.rows = some_rows(model, 1)[torch.tensor([0])]
        self.forward = EnclosedForward(model.config, model.effective_weights(), rounding)
        self.model, self.layer, self.node, self.radius = model.double(), layer, node, radius
        with torch.no_grad():
            _, cache = self.model.run_with_cache(self.rows.tokens)
        self.mid = cache[f"blocks.{layer}.hook_resid_pre"][0]

    def after(self, queries: tuple[int, ...] | None) -> Stream:
        rad = torch.zeros_like(self.mid)
        rad[self.node] = self.radius
        with torch.no_grad():
            ball = Enclosure.of(self.mid, rad, rad[:, 0])
            return self.forward._block(f"blocks.{self.layer}", ball, Tree.of(self.rows), queries)[0]

    def heads(self, exact: bool = False) -> tuple[Heads, Enclosure]:
        """The heads, as if what they read were ``exact`` if asked, and the last node's pattern [head, 1, key]."""
        rad, name, forward = torch.zeros_like(self.mid), f"blocks.{self.layer}", self.forward
        rad[self.node] = self.radius
        above = Tree.of(self.rows).above[-1]
        with torch.no_grad():
            read = forward._normed(Enclosure.of(self.mid, rad, rad[:, 0]), f"{name}.ln1")
            q, k, v = (y.heads_first() for y in forward._queries_keys_values(f"{name}.attn", read))
            assert forward.steepness is not None
            heads = forward.steepness.heads(f"{name}.attn", q, k, v, read)
            if exact:
                parts = [Enclosure(y.mid, y.own[..., None].expand_as(y.mid), y.own, y.own) for y in (q, k, v)]
                heads = replace(heads, q=parts[0], k=parts[1], v=parts[2], reach=torch.zeros_like(heads.reach))
            return heads, heads.attend(forward._scores(q, forward.rounding.keys(k), above), above)

    def block(self, x: Tensor, half: str = "post", added: dict[str, Tensor] | None = None) -> Tensor:
        """The residual stream after the block or after its attention ("mid"), or its "pattern".

        ``added`` has what is added to the queries, keys and values: "q", "k" and "v" [pos, head, d_head].
        """
        block, found, here = self.model.blocks[self.layer], {}, f"blocks.{self.layer}"
        name = "attn.hook_pattern" if half == "pattern" else f"hook_resid_{half}"
        hooks = [(f"{here}.{name}", lambda value, hook: found.update(value=value))]
        for part, more in (added or {}).items():
            hooks.append((f"{here}.attn.hook_{part}", lambda value, hook, more=more: value + more))
        with self.model.hooks(fwd_hooks=hooks):
            block(x[None])
        return found["value"][0]

    def moved(self, direction: Tensor) -> Tensor:
        move = torch.zeros_like(self.mid)
        move[self.node] = self.radius * direction / direction.norm()
        return self.mid + move


@pytest.mark.parametrize(("name", "loud"), ERRORS)
def test_a_block_keeps_an_error_within_its_ball(name: str, loud: str):
    """An error in the direction that a block stretches most comes out close to the end of the new ball."""
    for half in ("mid", "post"):
        reach: dict[str, list[float]] = {"own": [], "earlier": []}
        for seed, node in product(range(2), (1, 5)):
            one = OneError(name, loud, seed, 1, node)
            stream, run = one.after(None), partial(one.block, half=half)
            assert stream.mlp is not None
            ball, slope = {"mid": stream.mlp.x, "post": stream.whole}[half], jacobian(run, one.mid)
            for query in range(node, len(one.mid)):
                worst = torch.linalg.svd(slope[query, :, node]).Vh[0]
                for sign in (1, -1):
                    off = (run(one.moved(sign * worst)).detach() - ball.mid).norm(dim=-1)
                    assert (off <= ball.norm).all()
                    reach["own" if query == node else "earlier"].append(float((off / ball.norm)[query]))
        assert max(reach["own"]) > 0.3 and max(reach["earlier"]) > 0.15


@pytest.mark.parametrize("radius", [pytest.param(1e-3, marks=pytest.mark.slow), 1e-2])
@pytest.mark.parametrize("name", every_third(CONFIGS))
def test_patterns_stay_within_their_balls(name: str, radius: float):
    """The error at one node that moves one weight of a pattern most brings it close to the end of its ball."""
    reach: dict[str, list[float]] = {"own": [], "earlier": []}
    for seed, node in product(range(2), (1, 5)):
        one = OneError(name, "scores", seed, 1, node, radius)
        _, pattern = one.heads()
        run = lambda x, one=one: one.block(x, "pattern")  # noqa: E731
        slope = jacobian(run, one.mid)[..., node, :]
        for head, query, key in product(range(pattern.mid.shape[0]), [5], range(6)):
            for sign in (1, -1):
                found = run(one.moved(sign * slope[head, query, key])).detach()[:, query]
                off = (found - pattern.mid[:, 0]).abs()
                assert (off <= pattern.rad[:, 0]).all()
                reach["own" if query == node else "earlier"].append(float((off / pattern.rad[:, 0])[head, key]))
    assert min(max(found) for found in reach.values()) > 0.6


@pytest.mark.parametrize(("name", "loud"), ERRORS)
def test_products_with_what_the_heads_write_are_off_by_little_more_than_their_derivatives(name: str, loud: str):
    reach: dict[str, list[float]] = {"own": [], "earlier": []}
    for seed, node in product(range(3), (1, 5)):
        one = OneError(name, loud, seed, 1, node, 1e-7, Rounding(2.0**-44))
        vectors = torch.randn(1, 16, 7, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        heads, _ = one.heads()
        heads.reach[:] = torch.where(torch.arange(6) == node, heads.reach, 0.0)  # no roundings elsewhere
        allowed = heads.along(heads.done[-1], vectors)[0]
        slope = jacobian(lambda x, one=one: one.block(x, "mid")[-1], one.mid)[:, node]
        if node == 5:
            slope = slope - torch.eye(16)  # without the residual stream itself
        found = one.radius * (vectors[0].T @ slope).norm(dim=-1)
        assert (found <= allowed).all()
        reach["own" if node == 5 else "earlier"] += (found / allowed).tolist()
    assert min(max(found) for found in reach.values()) > 0.5


@pytest.mark.parametrize("name", every_third(CONFIGS, 2))
def test_a_block_keeps_the_roundings_of_its_heads_within_its_ball(name: str):
    """Queries, keys and values that are off by all that their roundings allow, where it matters most."""
    reach = []
    for seed in range(4):
        one = OneError(name, "attention", seed, 1, 0, 0.0, Rounding(2.0**-14))
        heads, _ = one.heads(exact=True)
        parts = [(y.own.T[..., None], torch.zeros_like(y.mid.transpose(0, 1))) for y in (heads.q, heads.k, heads.v)]
        run = lambda *more, one=one: one.block(one.mid, "mid", dict(zip("qkv", more, strict=True)))[-1]  # noqa: E731
        still = tuple(zeros for _, zeros in parts)
        slopes, more = jacobian(run, still), still
        along = torch.randn(16, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        for _ in range(8):
            steepest = [normalize(torch.einsum("d,dphe->phe", along, slope), dim=-1) for slope in slopes]
            more = [own * direction for (own, _), direction in zip(parts, steepest, strict=True)]
            along = torch.stack([torch.einsum("dphe,phe->d", *both) for both in zip(slopes, more, strict=True)]).sum(0)
        off, most = (run(*more) - run(*still)).detach().norm(), heads.done[-1].beyond
        assert off <= most
        reach.append(float(off / most))
    assert max(reach) > 0.25


@pytest.mark.parametrize(("name", "loud"), ERRORS)
def test_the_last_block_keeps_leads_within_their_bounds(name: str, loud: str):
    """An error that lowers a lead as fast as it can brings it close to its bound."""
    reach: dict[str, list[float]] = {"own": [], "earlier": []}
    for seed, node in product(range(2), (2, 5)):
        one = OneError(name, loud, seed, 2, node)
        (queries, stream), token = (one.rows.queries, one.after(one.rows.queries)), torch.tensor([1])

        def lead(x: Tensor, query: int, one: OneError = one) -> Tensor:
            y = one.block(x)[None]
            logits = one.model.unembed(one.model.ln_final(y) if one.model.config.has_final_norm else y)[0, query]
            return logits[1] - logits[torch.arange(len(logits)) != 1].max()

        for place, query in enumerate(queries):
            if query < node:
                continue
            with torch.no_grad():
                low, high = one.forward.margins(stream[torch.tensor([place])], token)
            start = one.mid.clone().requires_grad_()
            middle = lead(start, query)
            (slope,) = torch.autograd.grad(middle, start)
            for sign in (1, -1):
                found = lead(one.moved(sign * slope[one.node]), query).detach()
                assert low <= found <= high
                reach["own" if query == node else "earlier"].append(float((found - middle).abs() / (high - low) * 2))
    assert max(reach["own"]) > 0.2 and max(reach["earlier"]) > 0.01


def test_without_it_four_layers_have_no_proof(monkeypatch: pytest.MonkeyPatch):
    model = zoo("toygpt-long")
    rows = some_rows(model, 8)
    with torch.no_grad():
        low, high = bounds_of(EnclosedForward(model.config, model.effective_weights(), FLOAT32), rows)
        logits = model(rows.tokens)[:, list(rows.queries)]
        found = (logits.gather(-1, rows.targets[..., None]) - logits).scatter(-1, rows.targets[..., None], torch.inf)
        assert (low > 0).all() and (low <= found.amin(-1)).all() and (found.amin(-1) <= high).all()
        monkeypatch.setattr(prefix_tree, "applies", lambda config: False)
        without, _ = bounds_of(EnclosedForward(model.config, model.effective_weights(), FLOAT32), rows)
    assert (without < 0).all()


@pytest.mark.parametrize("seed", sampled(range(4), 1, 3))
def test_leads_of_models_near_a_trained_one_lie_within_their_bounds(seed: int):
    """Rounded to bfloat16 or not; some of these models make errors."""
    model = models.load("toygpt-long")
    perturb(model, noise=(1e-3, 1e-2, 3e-2, 0.1)[seed], rounding=("none", "bfloat16")[seed % 2], seed=seed)
    rows = some_rows(model, 12)
    with torch.no_grad():
        low, high = bounds_of(EnclosedForward(model.config, model.effective_weights(), FLOAT32), rows)
        found = leads(model, rows, dict(model.effective_weights()), torch.zeros(()))
    found = found.scatter(-1, rows.targets[..., None], torch.inf).amin(-1)
    assert (low <= found).all() and (found <= high).all() and low.isfinite().all()


@pytest.mark.parametrize("scale", [1.0, 1e-4, 1e-6])
def test_heads_after_a_matrix_write_no_more_than_their_bound_however_small_their_weights_are(scale: float):
    generator = torch.Generator().manual_seed(0)
    shapes = {"q": (4, 16, 4), "k": (4, 16, 4), "v": (4, 16, 4), "o": (4, 4, 16)}
    weights = {name: torch.randn(shape, generator=generator).double() for name, shape in shapes.items()}
    weights |= {name: weights[name] * scale for name in "vo"}
    one = OneError("LN, gelu_new", "nothing", 0, 1, 5)
    heads = replace(one.heads()[0], maps=HeadMaps.of(*weights.values()))
    matrix = torch.eye(16) + 0.3 * torch.randn(3, 16, 16, generator=generator)
    length = lengths_of(matrix)
    assert (length >= matrix.double().flatten(1).norm(dim=1)).all()
    together = heads._together(matrix, length)
    for share in torch.rand(20, 4, generator=generator).double():
        summed = torch.einsum("h,hde->de", share, weights["v"] @ weights["o"]) @ matrix.double()
        found = (share @ together @ share).sqrt()
        true = torch.linalg.matrix_norm(summed, 2)
        assert (found >= true).all() and (found <= 3 * true).all()


def test_where_a_bound_is_lost_the_others_stay():
    """A node whose slopes are not known has no bound, and does not spoil its neighbours'."""
    generator = torch.Generator().manual_seed(0)
    slope = torch.rand(5, 24, generator=generator, dtype=torch.float64)
    w_in, w_out = (torch.randn(shape, generator=generator).double() for shape in ((16, 24), (24, 16)))
    slope[2] = torch.nan
    found = Slopes.of(slope, w_in, w_out)
    assert found.off.isinf().tolist() == [False, False, True, False, False]
    rows = torch.tensor([0, 1, 3, 4])
    off = (found.derivatives(rows).double() - (w_in * slope[rows][:, None]) @ w_out).flatten(1).norm(dim=1)
    assert (off <= found.off[rows]).all() and (found.off[rows] < 1e-3).all()


@pytest.mark.parametrize("spread", [0.0, 1.0, 6.0])
def test_the_largest_singular_value_is_bounded_closely(spread: float):
    generator = torch.Generator().manual_seed(int(spread))
    left, right = (torch.linalg.qr(torch.randn(20, 32, 32, generator=generator))[0] for _ in range(2))
    matrices = left @ torch.diag_embed(torch.exp(-spread * torch.linspace(0, 1, 32))).expand(20, -1, -1) @ right
    found, true = _stretches(matrices), torch.linalg.matrix_norm(matrices.double(), 2)
    assert (found >= true).all() and (found <= true * (1.001 if spread == 0 else 1.4)).all()
