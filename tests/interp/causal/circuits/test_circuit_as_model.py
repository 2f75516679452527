"""A circuit as a model computes what runs with masks compute, and can be judged like any other model."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

import interp
import models
from interp.causal.circuits.circuit_as_model import constants_of, masked_as_model
from interp.causal.edges.masked_model import MaskedModel
from models.errors import UserError
from tests.conformance.table import dense
from tests.sampling import sampled

KINDS: dict[str, dict[str, Any]] = {
    "one layer": {"n_layers": 1},
    "LayerNorm": {"n_layers": 2, "normalization_type": "LN"},
    "gated": {"n_layers": 2, "gated_mlp": True, "act_fn": "silu"},
    "no norms": {"n_layers": 2, "normalization_type": None},
    "parallel": {"n_layers": 2, "parallel_attn_mlp": True},
    "query norms": {"n_layers": 1, "use_qk_norm": True},
    "attention only": {"n_layers": 2, "d_mlp": 0},
}

#: Constants that are fitted take long.
FITTED = sampled(product(KINDS, ["optimal"]), ("one layer", "optimal"))


@pytest.mark.parametrize(
    ("kind", "constants"),
    [*product(KINDS, ["mean", "zero", (1, 2)]), *FITTED],
)
def test_its_logits_are_those_of_the_masked_run(kind: str, constants: Any) -> None:
    model = dense(**KINDS[kind])(0).double()
    masked = MaskedModel(model)
    generator = torch.Generator().manual_seed(len(kind))
    mask = torch.rand(len(masked.graph), generator=generator) < 0.6
    carried = constants_of(masked, mask[None], constants, 8, 0)[0]
    tokens = model.task.encode(model.task.sample(5, generator))
    expected = masked.run(tokens, mask[None], carried[:, None].expand(masked.shape(5)))[0]
    circuit = masked_as_model(masked, mask, carried)
    found = circuit(tokens)
    assert circuit.config.d_model == len(masked.graph.receivers) * model.config.d_model
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_all_edges_are_the_model_and_none_answers_alike_everywhere() -> None:
    model = models.load("microadder-57")
    tokens = model.task.encode([(57, 48), (9_999_999_999, 1)])
    everything = interp.circuit_as_model(model, MaskedModel(model).graph.names)
    torch.testing.assert_close(everything(tokens), model(tokens), rtol=1e-5, atol=1e-4)
    nothing = interp.circuit_as_model(model, [])
    assert torch.equal(*nothing(tokens))


def test_what_is_no_circuit_is_refused() -> None:
    model = models.load("microadder-57")
    with pytest.raises(UserError, match="L0H0->logits"):
        interp.circuit_as_model(model, ["L0H0->logit"])
    with pytest.raises(UserError):
        interp.circuit_as_model(model, [], constants="median")
    with pytest.raises(UserError, match="zero"):
        interp.circuit_as_model(models.load("arc-decoder-16"), [], constants="mean")
    circuit = interp.circuit_as_model(model, ["embed->L0H0.v"])
    with pytest.raises(UserError, match="norm_groups"):
        circuit.to_hooked_transformer()


@pytest.mark.slow
def test_the_smallest_circuit_of_an_adder_is_proved_on_all_inputs() -> None:
    model = models.load("microadder-57")
    edges = [f"{sender}->{to}" for sender in ("embed", "L0H0") for to in ("L0.mlp", "logits")]
    right = interp.circuit_as_model(model, [*edges, "embed->L0H0.v", "L0.mlp->logits"], (0, 0))
    assert interp.certify(right, tolerance=None).status == "certified"
    smaller = interp.circuit_as_model(model, [*edges, "L0.mlp->logits"], (0, 0))
    assert interp.certify(smaller, tolerance=None).status == "refuted"
