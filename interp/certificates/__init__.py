"""Proofs over the whole input domain: right on every input of a shape, not only on those that were tried.

interp.certify(model)                        by the way that the model is for: see certificates.ways
check_certificate(certificate, model)        the same again, without searching
certificates.coupled_addition                the hand-built transformer, shape by shape
"""

from interp.certificates.certificate import Certificate
from interp.certificates.exhaustive import ExhaustiveCertificate
from interp.certificates.verdict import Verdict
from interp.certificates.ways import certify
from interp.certificates.ways import check_verdict as check_certificate
from interp.certificates.ways import load_verdict as load_certificate

__all__ = ["Certificate", "ExhaustiveCertificate", "Verdict", "certify", "check_certificate", "load_certificate"]
