"""Proofs over the whole input domain: right on every input of a shape, not only on those that were tried.

interp.certify(model)                        by the way that the model is for: see certificates.ways
accuracy_bounds(model)                       on what share of all pairs it is right, from below and from above
check_certificate(certificate, model)        the same again, without searching
certificates.coupled_addition                the hand-built transformer, shape by shape
"""

from interp.certificates.accuracy_bounds import AccuracyBounds
from interp.certificates.certificate import Certificate
from interp.certificates.exact_accuracy import accuracy_bounds
from interp.certificates.exhaustive import ExhaustiveCertificate
from interp.certificates.verdict import Verdict
from interp.certificates.ways import certify
from interp.certificates.ways import check_verdict as check_certificate
from interp.certificates.ways import load_verdict as load_certificate

__all__ = [
    "AccuracyBounds",
    "Certificate",
    "ExhaustiveCertificate",
    "Verdict",
    "accuracy_bounds",
    "certify",
    "check_certificate",
    "load_certificate",
]
