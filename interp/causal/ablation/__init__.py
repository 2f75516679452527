"""Ablation: what breaks without a component, a parameter, or a pair of parameters.

    from interp.causal.ablation import Head, component_ablation, heads, role_edges

    component_ablation(adder).figure()                       sublayers, heads and neurons, by carry stratum
    component_ablation(adder, role_edges(adder, adder.task), "zero")      attention edges by role
    component_ablation(adder, heads(adder), pairs=pairs, metrics=["logit_diff", "kl"])
    parameter_ablation(adder).figure()                       every free parameter and every pair of them

Every intervention is checked to change something: if it does not, that is an error, not a row of zeros.
"""

from interp.causal.ablation.ablated_runs import REPLACEMENTS, mean_activations, run_ablations
from interp.causal.ablation.attention_edges import role_edges
from interp.causal.ablation.carry_strata import carry_strata
from interp.causal.ablation.component_ablation import ComponentAblation, component_ablation, compute_component_ablation
from interp.causal.ablation.components import (
    AttentionEdges,
    Component,
    Direction,
    Head,
    Neuron,
    Sublayer,
    Together,
    heads,
    neurons,
    sublayers,
)
from interp.causal.ablation.parameter_ablation import ParameterAblation, compute_parameter_ablation, parameter_ablation
from interp.causal.ablation.parameter_variants import parameter_names
