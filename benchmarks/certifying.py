"""How long a certificate takes, and how much memory: one CPU thread, best of three."""

from __future__ import annotations

import resource
import time

import interp
import models
from interp.certificates import check_certificate

NAMES = ("microadder-57", "microadder-67", "microadder-74")
REPEATS = 3


def main() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    for name in NAMES:
        model = models.load(name)
        for arithmetic in ("float", "interval", "float32"):
            found, checked = [], []
            for _ in range(REPEATS):
                start = time.perf_counter()
                certificate = interp.certify(model, arithmetic)
                found.append(time.perf_counter() - start)
                start = time.perf_counter()
                check_certificate(certificate, model)
                checked.append(time.perf_counter() - start)
            print(
                f"certify {name:14s} {arithmetic:9s} {certificate.status:10s} {min(found):5.2f} s, "
                f"smallest margin {certificate.smallest_margin:6.3f}; checked again in {min(checked):5.2f} s"
            )
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the process {after:.0f} MB, of which {before:.0f} MB before the first certificate")


if __name__ == "__main__":
    main()
