"""Effects of edges of the residual stream, exactly and by estimates.

graph                  senders, receivers, and every edge between them
masked                 running a model with any edges cut, many cuts at once
experiment             pairs of problems, a metric and a direction on top of it
paths                  path patching: every edge alone, or all paths from a sender to a receiver
gradient_attribution   attribution patching, EAP, EAP-IG and conductance, each compared with the exact effects
"""

from interp.causal.edges.experiment import EdgeExperiment
from interp.causal.edges.gradient_attribution import EdgeAttribution, edge_attribution
from interp.causal.edges.graph import Edge, EdgeGraph
from interp.causal.edges.masked import MaskedModel
from interp.causal.edges.paths import PathPatching, path_patching
