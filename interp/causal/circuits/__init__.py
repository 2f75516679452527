"""Search for the smallest circuit that does what the whole model does.

circuit_space    which edges can matter, and which subsets of them are different circuits
circuit_search   exhaustive, greedy and ACDC-like searches with one signature
faithfulness     faithfulness, completeness and minimality with bootstrap intervals, on other pairs
split            two halves of the pairs that share no problem
circuit_edges    the edge graph of a model as a space to search in
circuit          the whole search, for a model and pairs of problems
circuit_drawing  its pictures
every_circuit    every faithful circuit, the minimal ones, and how stable they are
circuit_files    a circuit as a file of MIB or of attribution-graph pages
as_model         a circuit as a model of its own, about which any question can be asked
exchange         whether two circuits do the same with the parts that both have
"""

from interp.causal.circuits.as_model import circuit_as_model
from interp.causal.circuits.circuit import Circuit, smallest_circuit
from interp.causal.circuits.circuit_drawing import circuit_view, faithfulness_view
from interp.causal.circuits.circuit_edges import space_of
from interp.causal.circuits.circuit_files import attribution_graph, circuit_json
from interp.causal.circuits.circuit_search import METHODS, Criterion, FoundCircuit, acdc, exhaustive, greedy, search
from interp.causal.circuits.circuit_space import CircuitSpace
from interp.causal.circuits.every_circuit import AllCircuits, all_circuits
from interp.causal.circuits.faithfulness import compute_drops, compute_faithfulness
from interp.causal.circuits.split import halves
