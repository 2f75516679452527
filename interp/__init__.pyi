# Written by `python -m interp.public_names` from the registry of probes; a test holds it equal to that.
from interp.core.probe import probes as probes
from interp.probes.attention_by_role import attention_by_role as attention_by_role
from interp.probes.carry_units import carry_units as carry_units
from interp.causal.patching.activation_patching import activation_patching as activation_patching
from interp.causal.circuits.smallest_circuit import smallest_circuit as smallest_circuit
from interp.causal.interchange.which_algorithm import which_algorithm as which_algorithm
from interp.causal.ablation.component_ablation import component_ablation as component_ablation
from interp.probes.score import score as score
from interp.proofs.certify import certify as certify
from interp.compare.compare import compare as compare
from interp.site.explorer import explore as explore
from interp.figures.save_figure import save_figure as save_figure
from interp.core.results import Provenance as Provenance
from interp.core.results import Result as Result
from interp.proofs.columns.accuracy_bounds import accuracy_bounds as accuracy_bounds
from interp.probes.accuracy_by_chain import accuracy_by_chain as accuracy_by_chain
from interp.causal.circuits.all_circuits import all_circuits as all_circuits
from interp.proofs.attacks.gradient_attack import attack as attack
from interp.probes.lens.attention_attribution import attention_attribution as attention_attribution
from interp.probes.attention_pattern import attention_pattern as attention_pattern
from interp.probes.attention_readout import attention_readout as attention_readout
from interp.causal.interchange.causal_scrubbing import causal_scrubbing as causal_scrubbing
from interp.compare.certified_circuits import certified_circuits as certified_circuits
from interp.core.probe_checks import check_probe as check_probe
from interp.probes.circle_fit import circle_fit as circle_fit
from interp.causal.circuits import circuit_as_model as circuit_as_model
from interp.compare.compare_models import compare_models as compare_models
from interp.probes.composition_scores import composition_scores as composition_scores
from interp.compare.construction.construction_units import construction_units as construction_units
from interp.figures.dark import dark as dark
from interp.proofs.reading.decompile import decompile as decompile
from interp.probes.lens.direct_logit_attribution import direct_logit_attribution as direct_logit_attribution
from interp.causal.edges.edge_attribution import edge_attribution as edge_attribution
from interp.probes.modular.fourier_spectrum import fourier_spectrum as fourier_spectrum
from interp.causal.interchange.group_program import group_program as group_program
from interp.probes.modular.group_symmetry import group_symmetry as group_symmetry
from interp.probes.induction_heads import induction_heads as induction_heads
from interp.causal.interchange.interchange_intervention import interchange_intervention as interchange_intervention
from interp.probes.lens.jacobian_lens import jacobian_lens as jacobian_lens
from interp.compare.construction.key_attention import key_attention as key_attention
from interp.probes.learning_curves import learning_curves as learning_curves
from interp.probes.lens.linear_probes import linear_probes as linear_probes
from interp.probes.lens.logit_lens import logit_lens as logit_lens
from interp.probes.loss import loss as loss
from interp.probes.ov_output_shape import ov_output_shape as ov_output_shape
from interp.causal.ablation.parameter_ablation import parameter_ablation as parameter_ablation
from interp.causal.edges.path_patching import path_patching as path_patching
from interp.compare.construction.pattern_patching import pattern_patching as pattern_patching
from interp.core.probe import probe as probe
from interp.compare.construction.residual_by_dimension import residual_by_dimension as residual_by_dimension
from interp.probes.modular.restricted_loss import restricted_loss as restricted_loss
from interp.causal.interchange.scrubbing_hypothesis import scrubbing_hypothesis as scrubbing_hypothesis
from interp.compare.swap_components import swap_components as swap_components
from interp.probes.training_dynamics import training_dynamics as training_dynamics
from interp.probes.lens.tuned_lens import tuned_lens as tuned_lens

__all__ = [
    "probes",
    "attention_by_role",
    "carry_units",
    "activation_patching",
    "smallest_circuit",
    "which_algorithm",
    "component_ablation",
    "score",
    "certify",
    "compare",
    "explore",
    "save_figure",
    "Provenance",
    "Result",
    "accuracy_bounds",
    "accuracy_by_chain",
    "all_circuits",
    "attack",
    "attention_attribution",
    "attention_pattern",
    "attention_readout",
    "causal_scrubbing",
    "certified_circuits",
    "check_probe",
    "circle_fit",
    "circuit_as_model",
    "compare_models",
    "composition_scores",
    "construction_units",
    "dark",
    "decompile",
    "direct_logit_attribution",
    "edge_attribution",
    "fourier_spectrum",
    "group_program",
    "group_symmetry",
    "induction_heads",
    "interchange_intervention",
    "jacobian_lens",
    "key_attention",
    "learning_curves",
    "linear_probes",
    "logit_lens",
    "loss",
    "ov_output_shape",
    "parameter_ablation",
    "path_patching",
    "pattern_patching",
    "probe",
    "residual_by_dimension",
    "restricted_loss",
    "scrubbing_hypothesis",
    "swap_components",
    "training_dynamics",
    "tuned_lens",
]
