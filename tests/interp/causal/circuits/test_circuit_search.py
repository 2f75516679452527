"""The searches on small graphs whose smallest circuits are known by brute force."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from interp.causal.circuits import circuit_space
from interp.causal.circuits.circuit_search import METHODS, Criterion, search
from interp.causal.circuits.circuit_space import CircuitSpace
from models.errors import UserError

#: Two layers: a and b feed h and g, which feed the logits; a also feeds the logits itself.
EDGES = (("a", "h"), ("b", "h"), ("a", "g"), ("b", "g"), ("h", "g"), ("h", "logits"), ("g", "logits"), ("a", "logits"))


def space(edges: tuple[tuple[str, str], ...] = EDGES, **more: object) -> CircuitSpace:
    return CircuitSpace(
        tuple(f"{s}->{r}#{i}" for i, (s, r) in enumerate(edges)),
        tuple(s for s, _ in edges),
        tuple(r for _, r in edges),
        **more,  # pyright: ignore[reportArgumentType]
    )


def criterion_of(evaluate: Callable[[Tensor], Tensor], n_edges: int, threshold: float) -> Criterion:
    """Faithful to what all edges give, from what none gives."""
    whole = torch.ones(1, n_edges, dtype=torch.bool)
    return Criterion(evaluate(whole)[:, 0], evaluate(~whole)[:, 0], threshold)


class Network:
    """A network on EDGES with one nonlinear unit a node, run with the other inputs of a second example."""

    def __init__(self, seed: int, zero: bool = False):
        generator = torch.Generator().manual_seed(seed)
        draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
        self.weights, self.inputs = draw(len(EDGES)), {"a": draw(2, 5), "b": draw(2, 5)}
        self.zero = zero

    def _run(self, masks: Tensor, which: int, other: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the nodes write, [variant, 5], where the edges that a mask leaves out carry ``other``."""
        nodes = {name: inputs[which].expand(len(masks), 5) for name, inputs in self.inputs.items()}
        for node in ("h", "g", "logits"):
            total = torch.full((len(masks), 5), 0.3, dtype=torch.float64)
            for i, (s, r) in enumerate(EDGES):
                if r == node:
                    total = total + self.weights[i] * torch.where(masks[:, i, None], nodes[s], other[s])
            nodes[node] = torch.tanh(total) if node != "logits" else total
        return nodes

    def __call__(self, masks: Tensor) -> Tensor:
        nothing = {node: torch.zeros(1, 5, dtype=torch.float64) for node in "abhg"}
        whole = torch.ones(1, len(EDGES), dtype=torch.bool)
        other = nothing if self.zero else self._run(whole, 1, nothing)
        return self._run(masks, 0, other)["logits"][None]

    def criterion(self, threshold: float = 0.8) -> Criterion:
        return criterion_of(self, len(EDGES), threshold)


ALL = torch.tensor(list(product((False, True), repeat=len(EDGES))))


@settings(max_examples=6)
@given(st.integers(0, 10_000), st.booleans())
def test_edges_that_hang_loose_change_nothing(seed: int, zero: bool) -> None:
    """What ``live`` drops, for a corrupted run and for zeros, leaves the output as it was to rounding."""
    network, graph = Network(seed, zero), space(replacement_from_one_run=not zero)
    torch.testing.assert_close(network(ALL), network(graph.live(ALL)), rtol=0, atol=1e-12)


def test_feeding_from_the_inputs_is_only_asked_where_the_other_values_are_a_run() -> None:
    """With zeros, a node without inputs still writes its bias: dropping its edge would change the output."""
    only = space().mask(["h->logits#5"])
    assert space(replacement_from_one_run=True).live(only).sum() == 0
    assert space().live(only).sum() == 1
    network = Network(0, zero=True)
    assert not torch.allclose(network(only[None]), network(torch.zeros(1, len(EDGES), dtype=torch.bool)))


def test_links_carry_and_are_no_edges() -> None:
    """x -> h.q, y -> h.k, h.q and h.k belong to h, h -> logits: without h's edge neither input matters."""
    links = (("h.q", "h"), ("h.k", "h"))
    graph = CircuitSpace(
        ("xq", "yk", "h"), ("x", "y", "h"), ("h.q", "h.k", "logits"), links, replacement_from_one_run=True
    )
    live = lambda *names: graph.names(graph.live(graph.mask(names)))  # noqa: E731
    assert live("xq", "h") == ("xq", "h") and live("yk", "h") == ("yk", "h")
    assert live("xq", "yk") == live("h") == ()
    assert len(graph.circuits(4)[0]) == 4 and graph.circuits(4)[1] == 3


@pytest.mark.parametrize("consistent", [False, True])
def test_every_different_circuit_is_listed_once(consistent: bool) -> None:
    graph = space(replacement_from_one_run=consistent)
    listed, size = graph.circuits(len(ALL))
    expected = torch.unique(graph.live(ALL), dim=0)
    assert len(listed) == len(torch.unique(listed, dim=0)) == len(expected) < len(ALL)
    assert size == int(graph.everything().sum()) and torch.equal(graph.live(listed), listed)


@pytest.mark.parametrize("consistent", [False, True])
@pytest.mark.parametrize("at_most", [1, 5, 12, 30])
def test_where_not_all_circuits_are_listed_those_up_to_a_size_are_and_no_other(consistent: bool, at_most: int) -> None:
    graph = space(replacement_from_one_run=consistent)
    listed, size = graph.circuits(at_most)
    every = torch.unique(graph.live(ALL), dim=0)
    assert len(listed) == int((every.sum(1) <= size).sum()) <= at_most < int((every.sum(1) <= size + 1).sum())


@settings(max_examples=6)
@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([0.5, 0.8, 0.95]))
def test_the_exhaustive_search_finds_what_brute_force_finds(seed: int, zero: bool, threshold: float) -> None:
    network, graph = Network(seed, zero), space(replacement_from_one_run=not zero)
    try:
        criterion = network.criterion(threshold)
    except UserError:
        return
    found = search(network, graph, criterion, "exhaustive")
    scores, live = criterion.score(network(ALL)), graph.live(ALL)
    size = int(live[scores >= threshold].sum(1).min())
    assert found.proven and found.size == size
    assert found.score == pytest.approx(float(scores[live.sum(1) == size].max()), abs=1e-9)
    distinct = torch.unique(live[(scores >= threshold) & (live.sum(1) == size)], dim=0)
    assert found.faithful_of_size is not None and found.faithful_of_size[0] == len(distinct)


@settings(max_examples=12)
@given(st.integers(0, 10_000), st.sampled_from(["greedy", "acdc"]))
def test_what_the_other_searches_find_is_faithful_and_never_smaller_than_the_smallest(seed: int, method: str) -> None:
    network, graph = Network(seed), space(replacement_from_one_run=True)
    try:
        criterion = network.criterion()
    except UserError:
        return
    found, best = (search(network, graph, criterion, name) for name in (method, "exhaustive"))
    assert not found.proven
    assert found.size >= best.size
    assert found.path[0].all() and not found.path[-1].any() and (found.scores[1:].diff() < 0).all()
    assert float(criterion.score(network(found.mask[None]))[0]) == pytest.approx(found.score)
    assert found.score >= criterion.threshold
    if method == "greedy":  # no single edge of it can be dropped
        for edge in found.mask.nonzero()[:, 0]:
            without = found.mask.clone()
            without[edge] = False
            assert float(criterion.score(network(graph.live(without)[None]))[0]) < criterion.threshold


def additive(weights: Tensor):
    """Each edge into the logits adds its weight: the smallest circuit is the fewest largest weights."""
    graph = space(tuple((f"n{i}", "logits") for i in range(len(weights))))
    return graph, lambda masks: (masks.double() @ weights)[None, :, None].expand(1, -1, 3)


@pytest.mark.parametrize("method", METHODS)
def test_a_planted_circuit_is_found_by_every_search(method: str) -> None:
    weights = torch.tensor([0.0, 5.0, 0.0, 4.0, 0.1, 0.0, 3.0, 0.0], dtype=torch.float64)
    graph, evaluate = additive(weights)
    found = search(evaluate, graph, criterion_of(evaluate, 8, 0.95), method)
    assert graph.names(found.mask) == ("n1->logits#1", "n3->logits#3", "n6->logits#6")


def test_greedy_in_batches_finds_the_planted_circuit_of_a_large_graph_with_few_runs() -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.where(torch.arange(400) % 50 == 7, 1.0, 1e-4 * torch.rand(400, generator=generator)).double()
    graph, evaluate = additive(weights)
    criterion = criterion_of(evaluate, 400, 0.99)
    found = search(evaluate, graph, criterion, "auto", share=0.2, to_the_end=False)
    assert found.method == "greedy" and found.mask.nonzero()[:, 0].tolist() == list(range(7, 400, 50))
    assert found.evaluated < 5_000 < 400 * 401 // 2


def test_of_several_shares_the_smallest_circuit_is_kept() -> None:
    network, graph = Network(11), space(replacement_from_one_run=True)
    criterion = network.criterion(0.7)
    sizes = [search(network, graph, criterion, "greedy", share=share).size for share in (0.0, 0.4, 0.8)]
    assert search(network, graph, criterion, "greedy", share=(0.0, 0.4, 0.8)).size <= min(sizes)


def test_a_circuit_that_does_more_than_the_model_is_not_faithful() -> None:
    """An edge that holds the answer down belongs to the circuit: without it F is 1.5, which is as far off as 0.5."""
    weights = torch.tensor([3.0, -1.0], dtype=torch.float64)
    graph, evaluate = additive(weights)
    criterion = criterion_of(evaluate, 2, 0.9)
    assert criterion.faithfulness(evaluate(torch.tensor([[True, False]]))).tolist() == [[1.5]]
    assert search(evaluate, graph, criterion, "exhaustive").size == 2


def test_edges_that_cancel_mislead_greedy_removal_and_not_the_exhaustive_search() -> None:
    """Neither of two edges that cancel can go alone: greedy keeps both, and does not claim that nothing is smaller."""
    graph, _ = additive(torch.ones(4))

    def evaluate(masks: Tensor) -> Tensor:
        m = masks.double()
        return (m[:, 0] * m[:, 1] + 2 * m[:, 2] - 2 * m[:, 3])[None, :, None].expand(1, -1, 2)

    criterion = criterion_of(evaluate, 4, 0.99)
    best, stuck = (search(evaluate, graph, criterion, method) for method in ("exhaustive", "greedy"))
    assert graph.names(best.mask) == ("n0->logits#0", "n1->logits#1") and best.proven
    assert stuck.size == 4 and not stuck.proven


def test_a_circuit_must_bring_back_every_metric() -> None:
    """The first metric needs one edge, the second the other two: only the three together are faithful."""
    graph, _ = additive(torch.ones(4))

    def evaluate(masks: Tensor) -> Tensor:
        m = masks.double()
        return torch.stack((m[:, 0], m[:, 1] + m[:, 2]))[..., None].expand(-1, -1, 3)

    criterion = criterion_of(evaluate, 4, 0.9)
    assert search(evaluate, graph, criterion, "exhaustive").mask.tolist() == [True, True, True, False]


def test_the_curve_has_the_best_circuit_of_every_size_from_whole_to_empty() -> None:
    network, graph = Network(3), space(replacement_from_one_run=True)
    criterion = network.criterion()
    found = search(network, graph, criterion, "exhaustive")
    sizes = found.path.sum(1)
    assert sizes[0] == 8 and sizes[-1] == 0 and (sizes.diff() < 0).all()
    assert found.scores[0] == pytest.approx(1) and found.scores[-1] == pytest.approx(0, abs=1e-12)
    scores, live = criterion.score(network(ALL)), graph.live(ALL)
    for size, score in zip(sizes.tolist(), found.scores.tolist(), strict=True):
        assert score == pytest.approx(float(scores[live.sum(1) == size].max()), abs=1e-9)


def test_bad_input() -> None:
    graph, evaluate = additive(torch.ones(3, dtype=torch.float64))
    full, empty = torch.full((1, 3), 3.0), torch.zeros(1, 3)
    criterion = Criterion(full, empty)
    with pytest.raises(UserError, match="Did you mean 'greedy'"):
        search(evaluate, graph, criterion, "gredy")
    with pytest.raises(UserError, match="changes the metric of no example"):
        Criterion(full, full)
    with pytest.raises(UserError, match="as it is"):
        Criterion(torch.tensor([[1.0, -1.0]]), torch.tensor([[0.0, 0.0]]))
    with pytest.raises(UserError, match="threshold"):
        Criterion(full, empty, 1.5)
    with pytest.raises(UserError, match="does not reproduce the model"):
        search(lambda masks: 2 * evaluate(masks), graph, criterion)
    with pytest.raises(UserError, match="evaluate must return"):
        search(lambda masks: evaluate(masks)[..., :2], graph, criterion)
    with pytest.raises(UserError, match="different circuits"):
        search(evaluate, graph, criterion, "exhaustive", at_most=7)
    with pytest.raises(UserError, match="share"):
        search(evaluate, graph, criterion, "greedy", share=1.0)
    with pytest.raises(UserError, match="several such numbers"):
        search(evaluate, graph, criterion, "greedy", share=())
    with pytest.raises(UserError, match="above 0"):
        search(evaluate, graph, criterion, "acdc", taus=())
    with pytest.raises(UserError, match="n1->logits#1"):
        graph.mask(["n1->logits"])
    with pytest.raises(UserError, match="circle"):
        CircuitSpace(("x", "y", "z"), ("a", "b", "a"), ("b", "a", "logits"))
    with pytest.raises(UserError, match="over 2 edges"):
        graph.live(torch.ones(2, dtype=torch.bool))


@pytest.mark.parametrize("consistent", [False, True])
def test_circuits_made_at_once_are_those_that_are_made_by_size(consistent: bool, monkeypatch: pytest.MonkeyPatch):
    of = space(replacement_from_one_run=consistent)
    at_once = of.circuits(2**8)
    monkeypatch.setattr(circuit_space, "MOST_AT_ONCE", 0)
    by_size = of.circuits(2**8)
    assert torch.equal(at_once[0], by_size[0]) and at_once[1] == by_size[1] == 8
