"""Proofs over the whole input domain: that a model is right on every input, not only on those that were tried.

interp.certify(model)                        a verdict, by the method that fits the model: see interp.proofs.certify
accuracy_bounds(model)                       on what share of all pairs it is right, from below and from above
check_certificate(certificate, model)        verifies a stored verdict, without searching
interp.decompile(model)                      the program that an adder is, proved equal to it

Rooms, from the bottom up: ``numbers`` (intervals with every rounding), ``verdict`` (the record of a verdict), then one
for each kind of proof (``columns``, ``machine``, ``attention_only``, ``listed``, ``hand_built``) and ``attacks``, which
look for wrong answers; ``reading`` says what a certified adder does; ``certify`` chooses the method.
"""

from interp.proofs.certify import certify, check_certificate, load_certificate
from interp.proofs.columns.accuracy_bounds import AccuracyBounds, accuracy_bounds
from interp.proofs.reading.decision_curves import decision_curves
from interp.proofs.verdict.verdict import Verdict

__all__ = [
    "AccuracyBounds",
    "Verdict",
    "accuracy_bounds",
    "certify",
    "check_certificate",
    "decision_curves",
    "load_certificate",
]
