"""Proofs over the whole input domain: right on every input of a shape, not only on those that were tried.

interp.certify(model)                        a one-layer adder, on all 10^20 pairs
check_certificate(certificate, model)        the same proof again, without searching
decision_curves(model, 5, token=7).figure()  what an answer digit depends on, with all that is reached
certificates.coupled_addition                the hand-built transformer, shape by shape
"""

from interp.certificates.certificate import Certificate, load_certificate
from interp.certificates.certify import certify, check_certificate
from interp.certificates.curves import decision_curves

__all__ = ["Certificate", "certify", "check_certificate", "decision_curves", "load_certificate"]
