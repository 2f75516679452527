"""How training went: stored learning curves, and any measure of a model over the snapshots of a run.

    grokking_curves("microadder-57")        validation accuracy, every seed
    run_curves("position-coupling-1l4h-small")   the same, of entries that store lines of their runs
    training_dynamics("adder-456")          accuracy by chain length, attention, embedding, units, norms
    register_measure(Measure(...))          one more measure

Measures are listed in :mod:`interp.probes.dynamics.measures`.
"""

from interp.probes.dynamics.curves import GrokkingCurves, grokking_curves
from interp.probes.dynamics.measures import (
    Measure,
    Questions,
    Reading,
    measure_names,
    measure_snapshot,
    register_measure,
)
from interp.probes.dynamics.run_curves import RunCurves, run_curves
from interp.probes.dynamics.snapshots import Snapshots, snapshots
from interp.probes.dynamics.training import TrainingDynamics, compute_training_dynamics, training_dynamics

__all__ = [
    "GrokkingCurves",
    "grokking_curves",
    "RunCurves",
    "run_curves",
    "Measure",
    "Questions",
    "Reading",
    "register_measure",
    "measure_names",
    "measure_snapshot",
    "Snapshots",
    "snapshots",
    "TrainingDynamics",
    "compute_training_dynamics",
    "training_dynamics",
]
