"""Search for the smallest circuit that does what the whole model does.

circuit_space          which edges can matter, and which subsets of them are different circuits
circuit_search         exhaustive, greedy and ACDC-like searches with one signature
faithfulness           faithfulness, completeness and minimality with bootstrap intervals, on other pairs
pair_halves            two halves of the pairs that share no problem
edge_space             the edge graph of a model as a space to search in
smallest_circuit       the whole search, for a model and pairs of problems
smallest_circuit_view  its pictures
all_circuits           every faithful circuit, the minimal ones, and how stable they are
circuit_as_model       a circuit as a model of its own, about which any question can be asked
part_exchange          whether two circuits do the same with the parts that both have
"""

from interp.causal.circuits.all_circuits import AllCircuits, all_circuits
from interp.causal.circuits.circuit_as_model import circuit_as_model
from interp.causal.circuits.circuit_search import METHODS, Criterion, FoundCircuit, acdc, exhaustive, greedy, search
from interp.causal.circuits.circuit_space import CircuitSpace
from interp.causal.circuits.edge_space import space_of
from interp.causal.circuits.faithfulness import compute_drops, compute_faithfulness
from interp.causal.circuits.pair_halves import halves
from interp.causal.circuits.smallest_circuit import Circuit, smallest_circuit
from interp.causal.circuits.smallest_circuit_view import circuit_view, faithfulness_view
