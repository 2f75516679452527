"""Proofs over the whole input domain: right on every input of a shape, not only on those that were tried.

interp.certify(model)                        a one-layer adder, on all 10^20 pairs
accuracy_bounds(model)                       on what share of all pairs it is right, from below and from above
check_certificate(certificate, model)        the same proof again, without searching
certificates.coupled_addition                the hand-built transformer, shape by shape
"""

from interp.certificates.accuracy_bounds import AccuracyBounds
from interp.certificates.certificate import Certificate, load_certificate
from interp.certificates.certify import certify, check_certificate
from interp.certificates.exact_accuracy import accuracy_bounds

__all__ = ["AccuracyBounds", "Certificate", "accuracy_bounds", "certify", "check_certificate", "load_certificate"]
