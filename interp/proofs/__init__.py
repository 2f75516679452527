"""Proofs over the whole input domain: that a model is right on every input, not only on those that were tried.

interp.certify(model)                        a verdict, by the method that fits the model: see interp.proofs.certify
accuracy_bounds(model)                       on what share of all pairs it is right, from below and from above
check_certificate(certificate, model)        verifies a stored verdict, without searching
interp.decompile(model)                      the program that an adder is, proved equal to it (proofs.decompile)
decision_curves(model, 5, token=7).figure()  what an answer digit depends on, and which values of it occur
interp.proofs.hand_built.addition_proof               the hand-built transformer, shape by shape
interp.proofs.hand_built.multiplication_proof         hand-built multiplication, all sizes by one list of classes
interp.proofs.hand_built.parity_proof              the hand-built parity model, all lengths by induction
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
