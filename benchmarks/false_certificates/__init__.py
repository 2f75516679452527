"""Look for a wrong certificate, with noise (:mod:`.noise`) and with planted wrong answers (:mod:`.planted`)."""

from benchmarks.false_certificates.noise import (
    Trial,
    Trials,
    perturb,
    random_pairs,
    rounded,
    significant,
    summary,
    trial,
    wrong_answers,
)

__all__ = [
    "Trial",
    "Trials",
    "perturb",
    "random_pairs",
    "rounded",
    "significant",
    "summary",
    "trial",
    "wrong_answers",
]
