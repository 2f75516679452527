"""Carry a trained MicroAdder over to other options: find the parameters whose circuits come closest to its own.

The settings of :class:`models.microadder_options.MicroAdderOptions` do not share a parametrisation, but all have the
same circuits: the maps between tokens, places, scores and logits that remain when norm gains are folded into what reads
the residual stream.
"""

from __future__ import annotations

import torch
from torch import Tensor

from models.microadder import MicroAdderWeights
from models.microadder_options import MicroAdderOptions


def circuits(weight_map: MicroAdderWeights) -> dict[str, Tensor]:
    """The circuits with norm gains folded in: embeddings, QK and OV (head first), both MLP matrices, unembedding."""
    weights, attn_scale = weight_map(), weight_map.config.attn_scale
    assert attn_scale is not None  # microadder_config sets it
    norm = [weights[name][:, None] for name in ("blocks.0.ln1.w", "blocks.0.ln2.w", "ln_final.w")]
    w_q, w_k, w_v, w_o = (weights[f"blocks.0.attn.W_{name}"] for name in "QKVO")
    return {
        "tokens": weights["embed.W_E"],
        "places": weights["pos_embed.W_pos"],
        "QK": (norm[0] * w_q) @ (norm[0] * w_k).mT / attn_scale,
        "OV": norm[0] * w_v @ w_o,
        "MLP in": norm[1] * weights["blocks.0.mlp.W_in"],
        "MLP out": weights["blocks.0.mlp.W_out"],
        "unembedding": norm[2] * weights["unembed.W_U"],
    }


def carried_over(parent: MicroAdderWeights, options: MicroAdderOptions, steps: int = 400) -> dict[str, Tensor]:
    """Parameters for ``options`` whose circuits are nearest to the parent's, each circuit relative to its own size.

    They are found by least squares with L-BFGS in float64, from the parent's own numbers where names and shapes agree,
    and from the options' initial values elsewhere. Places that no scored query reads (after the tenth column, without
    EOS) do not count. If the options can express the parent, the models are equal up to rounding; otherwise training
    has to make up for what is lost.
    """
    child = MicroAdderWeights(options)
    child.initialise(torch.Generator().manual_seed(0))
    old = dict(parent.named_parameters())
    with torch.no_grad():
        for name, parameter in child.named_parameters():
            if name in old and old[name].shape == parameter.shape:
                parameter.copy_(old[name])
            elif name in ("W_fc1", "W_head") and not options.mirror:  # the child has fewer columns
                parameter.copy_(old[name][:, : parameter.shape[1]])
                if name == "W_head" and options.head_reads.endswith("slope"):
                    parameter[:, -1] = old[name][:, -1]
            elif name == "out_B" and parameter.ndim:
                parameter.copy_(old[name][: parameter.shape[0]])
            elif name == "W_v":
                parameter.copy_(old["W_head"] @ old["out_A"] if "out_A" in old else old["W_v"])
            elif name == "norm_w":
                parameter.copy_(old[name].mean().expand(parameter.shape))
    child.double()
    seen = slice(None) if options.predict_eos else slice(0, -2)  # neither z_hi nor EOS is ever queried
    with torch.no_grad():
        target = {k: v.double() for k, v in circuits(parent).items()}
    target["places"] = target["places"][seen]
    optimiser = torch.optim.LBFGS(
        child.parameters(), max_iter=steps, history_size=50, line_search_fn="strong_wolfe", tolerance_grad=1e-12
    )

    def distance() -> Tensor:
        optimiser.zero_grad()
        own = circuits(child)
        own["places"] = own["places"][seen]
        loss = torch.stack([(own[k] - v).square().sum() / v.square().sum() for k, v in target.items()]).sum()
        loss.backward()
        return loss

    optimiser.step(distance)
    return {name: parameter.detach().float() for name, parameter in child.named_parameters()}
