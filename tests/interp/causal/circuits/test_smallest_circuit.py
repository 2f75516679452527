"""Circuits of models in which it is known what the answer needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import models
from interp.causal.circuits import Circuit, Criterion, search, smallest_circuit, space_of
from interp.causal.circuits.faithfulness import random_circuits
from interp.causal.edges import EdgeExperiment
from interp.causal.edges.edge_graph import part_and_input
from interp.causal.metrics import Metric, logit_diff
from models.errors import UserError
from models.tasks.paired.problem_pairs import ProblemPairs, problem_pairs
from models.tasks.task import Task
from models.transformer.arithmetic_transformer import ArithmeticTransformer
from tests.conformance.table import dense
from tests.sampling import sampled
from tests.toy_task import ToyAddition


def random_pairs(task: Task, n: int, target: int, seed: int = 0) -> ProblemPairs:
    """Pairs of any two problems with different answers at the target."""
    generator = torch.Generator().manual_seed(seed)
    clean, corrupted = task.sample(4 * n, generator), task.sample(4 * n, generator)
    differ = task.targets(clean)[:, target] != task.targets(corrupted)[:, target]
    return ProblemPairs(task, clean[differ][:n], corrupted[differ][:n], target, "everything", seed)


def own_answers(model: ArithmeticTransformer) -> Callable[[ProblemPairs], Metric]:
    """How much likelier the model's own answer to the clean problem is than that to the corrupted one, in logits."""

    def bind(pairs: ProblemPairs) -> Metric:
        position = pairs.task.query_positions[pairs.target]
        with torch.no_grad():
            one, other = (model(t)[:, position].argmax(-1) for t in (pairs.clean_tokens, pairs.corrupted_tokens))

        def compute(logits: Tensor, rows: slice) -> Tensor:
            def pick(token: Tensor) -> Tensor:
                return logits[..., 0, :].gather(-1, token[rows].expand(logits.shape[:-2])[..., None])

            return (pick(one) - pick(other))[..., 0]

        return Metric("own_answers", (position,), compute)

    return bind


def silenced(heads: list[int], **switches: Any) -> ArithmeticTransformer:
    """A random model of one layer whose ``heads`` write nothing, whatever they read."""
    model = dense(n_layers=1, **switches)(3).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("W_O"):
                parameter[heads] = 0
    assert all(not model.W_O[0, head].any() for head in heads)
    return model


def nodes(circuit: Circuit) -> set[str]:
    return {part_and_input(name)[0] for edge in circuit.edges for name in edge.split("@")[0].split("->")}


@pytest.fixture(scope="module")
def planted() -> Circuit:
    model = silenced([1], d_mlp=0)
    return smallest_circuit(
        model, random_pairs(model.task, 16, 0), metrics=own_answers(model), threshold=0.97, n_random=5
    )


def test_heads_that_write_nothing_are_left_out(planted: Circuit) -> None:
    assert planted.found.method == "exhaustive" and planted.found.proven
    assert "L0H1" not in nodes(planted) and "L0H0" in nodes(planted)


def test_the_whole_graph_is_one_and_the_empty_one_zero_under_every_ablation(planted: Circuit) -> None:
    for replacement in ("corrupted", "mean", "zero"):
        of = planted.faithfulness.sel(replacement=replacement)
        np.testing.assert_allclose(of.sel(part="full"), 1, atol=1e-9)
        np.testing.assert_allclose(of.sel(part="ablated"), 0, atol=1e-9)


def test_edges_that_do_not_differ_between_the_runs_are_in_no_circuit(planted: Circuit) -> None:
    """Position embeddings are the same in both runs of a pair: corrupted-run ablation cannot see them."""
    assert not any(edge.startswith("pos_embed") for edge in planted.edges)
    assert planted.space.everything().sum() == 9 < len(planted.space)  # 16 edges, 7 of them from position embeddings


@pytest.mark.parametrize("method", ["greedy", "acdc"])
def test_every_search_leaves_the_silent_head_out(method: str, planted: Circuit) -> None:
    model = silenced([1], d_mlp=0)
    found = smallest_circuit(
        model, random_pairs(model.task, 16, 0), metrics=own_answers(model), method=method, threshold=0.97, n_random=5
    )
    assert "L0H1" not in nodes(found)
    assert found.found.size >= planted.found.size


#: Operand digits that differ between the problems of a pair, -> at how many of the edges that read the embedding a
#: circuit of one head can carry the difference. The token at the query is the last operand's unit.
PLACES: dict[tuple[int, ...], int] = {(0,): 2, (0, 2): 2, (3,): 5, (1, 3): 5}


def pairs_that_differ_at(places: tuple[int, ...]) -> ProblemPairs:
    """Pairs of the toy task's problems that differ in these digits of a1 a0 b1 b0 alone."""
    digits = torch.randint(10, (6, 4), generator=torch.Generator().manual_seed(1))
    other = digits.clone()
    other[:, list(places)] = (other[:, list(places)] + torch.tensor([3])) % 10
    clean, corrupted = (torch.stack((10 * x[:, 0] + x[:, 1], 10 * x[:, 2] + x[:, 3]), 1) for x in (digits, other))
    return ProblemPairs(ToyAddition(), clean, corrupted, 0, "some digits")


#: What any difference at the query shows in.
ONE_LOGIT = Metric("a logit", (ToyAddition.query_positions[0],), lambda logits, rows: logits[..., 0, 3])


@pytest.mark.parametrize(("places", "into"), PLACES.items(), ids=str)
@pytest.mark.parametrize("positions", ["standard", "rotary"])
def test_circuits_are_different_where_their_outputs_are(places: tuple[int, ...], into: int, positions: str) -> None:
    """All masks of a random model of one layer: as many values of the metric as circuits are listed, and no fewer."""
    model = dense(n_layers=1, n_heads=1, d_head=12, positional_embedding_type=positions)(2).double()
    pairs = pairs_that_differ_at(places)
    experiment = EdgeExperiment(model, pairs, ONE_LOGIT, "corrupted", "noise")
    space = space_of(experiment)
    assert sum(name.startswith("embed") for name in space.names(space.everything())) == into
    listed, size = space.circuits(10_000)
    masks = torch.cartesian_prod(*[torch.tensor([False, True])] * len(space))
    masks = masks[torch.randperm(len(masks), generator=torch.Generator().manual_seed(0))[:2_000]]
    assert size == into + 3 and torch.equal(torch.unique(space.live(masks), dim=0), torch.unique(listed, dim=0))
    values = experiment(listed | ~space.everything())[0]
    apart = (values[:, None] - values).abs().amax(-1)
    assert apart[~torch.eye(len(listed), dtype=torch.bool)].min() > 1e-9
    torch.testing.assert_close(experiment(masks), experiment(space.live(masks)), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("n_layers", "ablation"), sampled([(1, "corrupted"), (1, "mean"), (2, "mean")], (1, "corrupted"), (1, "mean"))
)
def test_an_edge_is_live_exactly_if_it_changes_some_run(n_layers: int, ablation: str) -> None:
    model = dense(n_layers=n_layers, n_heads=1, d_head=12, d_mlp=6)(4).double()
    for places in PLACES:
        pairs = pairs_that_differ_at(places)
        experiment = EdgeExperiment(model, pairs, ONE_LOGIT, ablation, "noise")
        space = space_of(experiment)
        masks = torch.rand(150, len(space), generator=torch.Generator().manual_seed(1)) < 0.7
        values = experiment(masks)[0]
        turned = masks[:, None] ^ torch.eye(len(space), dtype=torch.bool)
        changes = experiment(turned.flatten(0, 1))[0].unflatten(0, (150, -1)) - values[:, None]
        assert torch.equal(changes.abs().amax((0, 2)) > 1e-9, space.everything())


@pytest.mark.parametrize(
    "switches",
    [
        {"normalization_type": None},
        {"normalization_type": "LN", "gated_mlp": True},
        {"positional_embedding_type": "rotary", "n_layers": 2, "n_heads": 1},
    ],
    ids=["no-norm", "LN-gated", "rotary-2-layers"],
)
def test_dropping_edges_that_hang_loose_changes_nothing(switches: dict[str, Any]) -> None:
    """What the space calls the same circuit gives the same logits, in models of every kind, with and without groups."""
    shape: dict[str, Any] = {"n_layers": 1} | switches
    model = dense(**shape)(1).double()
    pairs = random_pairs(model.task, 4, 1)
    for groups in (None, {"tens": (0, 2), "units": (1, 3), "written": (4,)}):
        for ablation in ("corrupted", "resample", "mean", "zero"):
            experiment = EdgeExperiment(model, pairs, own_answers(model)(pairs), ablation, groups=groups)
            space = space_of(experiment)
            assert set(space.labels) == set(experiment.graph.names)
            share = torch.rand(40, 1, generator=torch.Generator().manual_seed(2))
            masks = torch.rand(40, len(space), generator=torch.Generator().manual_seed(1)) < share
            live = space.live(masks)
            assert (live != masks).any()
            torch.testing.assert_close(experiment(masks), experiment(live), rtol=0, atol=1e-9)


def test_the_hand_built_adder_needs_the_two_heads_that_the_theorem_says() -> None:
    """PRE_SUM reads the digits, PRE_CARRY those of the previous column, the query's own token completes the carry; the
    heads of ">" and of EOS are not needed. Two digits in the middle of a running sum: Theorem 4.1's construction."""
    model = models.build("position-coupling-hand-built")
    target = next(i for i, role in enumerate(model.task.target_roles) if role.index == 2 and role.column == 1)
    circuit = smallest_circuit(model, random_pairs(model.task, 40, target), method="greedy", threshold=0.99, n_random=5)
    expected = {"embed->L0H0.v", "embed->L0H1.v", "embed->L0.mlp", "L0H0->L0.mlp", "L0H1->L0.mlp", "L0.mlp->logits"}
    assert set(circuit.edges) == expected and set(circuit.needed) == expected
    assert circuit.faithfulness.sel(replacement="corrupted", part="circuit", stat="value") == pytest.approx(1, abs=1e-6)


@pytest.fixture(scope="module")
def carry() -> Circuit:
    model = models.load("microadder-57")
    return smallest_circuit(
        model, problem_pairs(model.task, "carry", column=3, n=64), groups="roles", method="greedy", n_random=10
    )


def test_the_mean_logit_difference_alone_is_satisfied_by_a_circuit_that_answers_wrongly() -> None:
    """Why the right answer is asked for as well."""
    model = models.load("microadder-57")
    pairs = problem_pairs(model.task, "made carry", column=3, n=128)
    easy = smallest_circuit(model, pairs, metrics="logit_diff", threshold=0.8)
    hard = smallest_circuit(model, pairs, threshold=0.8)
    right = [float(c.exact_match.sel(part="circuit", replacement="corrupted", stat="value")) for c in (easy, hard)]
    assert easy.found.score >= 0.8 and right[0] < 0.5 < 0.8 < right[1]
    assert easy.found.size < hard.found.size


def test_what_a_circuit_says_is_in_its_table_and_pictures(carry: Circuit) -> None:
    table = carry.to_dataframe()
    found = carry.cell("value", quantity="faithfulness", replacement="corrupted", of="circuit")
    expected = carry.faithfulness.sel(replacement="corrupted", part="circuit").values
    np.testing.assert_array_equal((found.value, found.low, found.high), expected)
    assert "(split by seed 0)" in str(carry.provenance)
    drops = table.query("quantity == 'drop in logit_diff'")
    assert tuple(drops.of) == carry.edges and (table.n == carry.provenance.n).all()
    graph, curve = carry.figure(), carry.figure("curve")
    texts = " ".join(str(note.text) for note in graph.layout.annotations)
    assert all(word in texts for word in ("logits", "L0.mlp", "L0H0", "token", "previous operands"))
    hovers = [trace.text[0] for trace in graph.data]
    assert len(hovers) == carry.found.size and all(any(f"<b>{e}</b>" in h for h in hovers) for e in carry.edges)
    drawn = {trace.name: trace for trace in curve.data}
    np.testing.assert_allclose(
        drawn["greedy search, exact match"].y, carry.curve.sel(metric="exact_match", stat="value")
    )


@pytest.mark.parametrize("n_random", [5, 40])
def test_a_p_rests_on_random_circuits_that_differ(carry: Circuit, n_random: int) -> None:
    """However often each was drawn, and not on the circuit itself."""
    model = models.load("microadder-57")
    pairs = problem_pairs(model.task, "made carry", column=3, n=32)
    for groups in (None, "roles"):
        found = smallest_circuit(model, pairs, groups=groups, method="greedy", n_random=n_random)
        drawn = random_circuits(found.space, found.found.size, n_random, torch.Generator().manual_seed(0))
        apart = {tuple(row) for row in drawn.tolist()} - {tuple(found.found.mask.tolist())}
        assert len(found.random) == n_random and len(found.different) == len(apart)
        assert np.isin(found.different, found.random).all()
        if len(apart) < 19:
            assert np.isnan(found.random_p)
        else:
            assert 1 / (1 + len(apart)) <= found.random_p <= 1
    assert np.isnan(carry.random_p)  # of ten draws


@pytest.mark.slow
def test_searched_on_and_judged_on_problems_are_apart_and_the_same_seed_gives_the_same_result() -> None:
    model = silenced([1])
    pairs = random_pairs(model.task, 30, 0)
    one, other = (
        smallest_circuit(model, pairs, metrics=own_answers(model), method="greedy", seed=4, n_random=5)
        for _ in range(2)
    )
    assert 0 < one.provenance.n < len(pairs)  # the others were searched on
    np.testing.assert_array_equal(one.random, other.random)
    assert str(one) == str(other)
    together = smallest_circuit(
        model, pairs, metrics=own_answers(model), method="acdc", held_out=False, n_random=5, taus=0.01
    )
    assert together.found.looked_at.endswith("at tau 0.01")
    assert together.provenance.n == len(pairs)


def test_the_empty_circuit_is_never_faithful_and_a_search_needs_something_to_explain() -> None:
    model = silenced([0, 1], d_mlp=0)  # nothing is written but the query's own token
    pairs = random_pairs(model.task, 20, 0)
    experiment = EdgeExperiment(model, pairs, own_answers(model)(pairs))
    found = search(experiment, space_of(experiment), Criterion(experiment.full, experiment.empty))
    assert space_of(experiment).names(found.mask) == ("embed->logits",)


def test_bad_input() -> None:
    model = silenced([1])
    pairs = random_pairs(model.task, 20, 0)
    with pytest.raises(UserError, match="bound to other examples"):
        smallest_circuit(model, pairs, metrics=[logit_diff(pairs)])  # pyright: ignore[reportArgumentType]
    with pytest.raises(UserError, match="Did you mean 'corrupted'"):
        smallest_circuit(model, pairs, metrics="kl", replacement="corupted")
    with pytest.raises(UserError, match="Did you mean 'greedy'"):
        smallest_circuit(model, pairs, metrics=own_answers(model), method="greed")
    with pytest.raises(UserError, match="'roles' or a mapping"):
        smallest_circuit(model, pairs, metrics="kl", groups="role")
    with pytest.raises(UserError, match="Did you mean 'share'"):
        smallest_circuit(model, pairs, metrics=own_answers(model), method="greedy", shares=0.1)
    with pytest.raises(UserError, match="no option of the acdc search 'share'; there is taus"):
        smallest_circuit(model, pairs, metrics=own_answers(model), method="acdc", share=0.1)
    with pytest.raises(UserError, match="need at least 4 pairs, not 3; .* held_out=False"):
        smallest_circuit(model, pairs.select(slice(3)), metrics=own_answers(model))
    with pytest.raises(UserError, match="needs at least 2"):
        smallest_circuit(model, pairs.select(slice(1)), metrics=own_answers(model), held_out=False)
    with pytest.raises(UserError, match="n_random"):
        smallest_circuit(model, pairs, metrics="kl", n_random=0)
    with pytest.raises(UserError, match="changes nothing"):
        same = ProblemPairs(pairs.task, pairs.clean, pairs.clean, 0, "nothing")
        smallest_circuit(model, same, metrics=own_answers(model))
    with pytest.raises(UserError, match="norms come after"):
        smallest_circuit(dense(norm_placement="post")(0), pairs, metrics="kl")
