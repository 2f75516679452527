"""Training, snapshot by snapshot.

    training_dynamics("adder-456")          accuracy by chain length, attention, embedding, units, norms

A measure is a probe that gives a number.
"""

from interp.probes.dynamics.run_snapshots import Snapshots, snapshots
from interp.probes.dynamics.training import TrainingDynamics, compute_training_dynamics, training_dynamics

__all__ = ["Snapshots", "TrainingDynamics", "compute_training_dynamics", "snapshots", "training_dynamics"]
