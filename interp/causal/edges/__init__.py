"""Effects of edges of the residual stream, exactly and by estimates.

edge_graph        senders, receivers, and every edge between them
masked_model      running a model with any edges cut, many cuts at once
edge_experiment   pairs of problems, a metric and a direction on top of it
path_patching     path patching: every edge alone, or all paths from a sender to a receiver
edge_attribution  attribution patching, EAP, EAP-IG and conductance, each compared with the exact effects
"""

from interp.causal.edges.edge_attribution import EdgeAttribution, edge_attribution
from interp.causal.edges.edge_experiment import EdgeExperiment
from interp.causal.edges.edge_graph import Edge, EdgeGraph
from interp.causal.edges.masked_model import MaskedModel
from interp.causal.edges.path_patching import PathPatching, path_patching
