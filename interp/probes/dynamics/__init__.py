"""Measures of a model over the snapshots of a run; stored learning curves are in :mod:`interp.probes.curves`.

    training_dynamics("adder-456")          accuracy by chain length, attention, embedding, units, norms
    register_measure(Measure(...))          one more measure

Measures are listed in :mod:`interp.probes.dynamics.measures`.
"""

from interp.probes.dynamics.measures import (
    Measure,
    Questions,
    measure_names,
    measure_snapshot,
    register_measure,
)
from interp.probes.dynamics.snapshots import Snapshots, snapshots
from interp.probes.dynamics.training import TrainingDynamics, compute_training_dynamics, training_dynamics
