"""Proofs over the whole input domain: right on every input of a shape, not only on those that were tried.

interp.certify(model)                        by the way that fits the model: see interp.proofs.ways
accuracy_bounds(model)                       on what share of all pairs it is right, from below and from above
check_certificate(certificate, model)        the same again, without searching
decision_curves(model, 5, token=7).figure()  what an answer digit depends on, with all that is reached
interp.proofs.coupled_addition               the hand-built transformer, shape by shape
interp.proofs.hand_built_parity              the hand-built parity model, all lengths by induction
"""

from interp.proofs.accuracy_bounds import AccuracyBounds
from interp.proofs.certificate import Certificate
from interp.proofs.curves import decision_curves
from interp.proofs.exact_accuracy import accuracy_bounds
from interp.proofs.exhaustive import ExhaustiveCertificate
from interp.proofs.hand_built import HandBuiltCertificate
from interp.proofs.verdict import Verdict
from interp.proofs.ways import certify
from interp.proofs.ways import check_verdict as check_certificate
from interp.proofs.ways import load_verdict as load_certificate

__all__ = [
    "AccuracyBounds",
    "Certificate",
    "ExhaustiveCertificate",
    "HandBuiltCertificate",
    "Verdict",
    "accuracy_bounds",
    "certify",
    "check_certificate",
    "decision_curves",
    "load_certificate",
]
