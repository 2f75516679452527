"""How long a certificate takes and how much memory.

One CPU thread, best of three. Wall time is what a user waits; CPU time is what it would be on an idle machine.
"""

from __future__ import annotations

import subprocess
import sys
import time

import interp
import models
from interp.proofs import check_certificate

NAMES = ("microadder-57", "microadder-67", "microadder-74")
REPEATS = 3
LIMITS = {"float": 3.0, "interval": 5.0, "float32": 10.0}  # seconds of CPU time, for the 57
MOST_MEMORY = 500  # MB

#: What a fresh process needs that loads a model and certifies it, in MB: before the certificate, and at its peak.
#: (A child's ru_maxrss begins at its parent's; VmHWM is its own.)
MEMORY = """
import sys, torch, interp, models
def size(name):
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith(name))
torch.set_num_threads(1)
model = models.load("microadder-57")
before = size("VmRSS")
interp.certify(model, arithmetic=sys.argv[1])
print(before, size("VmHWM"))
"""


def main() -> None:
    for name in NAMES:
        model = models.load(name)
        for arithmetic, limit in LIMITS.items():
            found, used, checked = [], [], []
            for _ in range(REPEATS):
                start, cpu = time.perf_counter(), time.process_time()
                certificate = interp.certify(model, arithmetic=arithmetic)  # pyright: ignore[reportArgumentType]
                found.append(time.perf_counter() - start)
                used.append(time.process_time() - cpu)
                start = time.perf_counter()
                check_certificate(certificate, model)
                checked.append(time.perf_counter() - start)
            allowed = f" (at most {limit:g} s)" if name == NAMES[0] else ""
            print(
                f"certify {name:14s} {arithmetic:9s} {certificate.status:10s} {min(found):5.2f} s, "
                f"CPU {min(used):5.2f} s{allowed}, smallest margin {certificate.smallest_margin:6.3f}; "
                f"checked again in {min(checked):5.2f} s"
            )
    memory()


def memory() -> None:
    for arithmetic in LIMITS:
        run = subprocess.run([sys.executable, "-c", MEMORY, arithmetic], capture_output=True, text=True, check=True)
        before, peak = map(float, run.stdout.split())
        print(
            f"peak memory of a fresh process that certifies {NAMES[0]} ({arithmetic}): {peak:.0f} MB (under "
            f"{MOST_MEMORY} MB), of which {before:.0f} MB for the imports and the model"
        )


if __name__ == "__main__":
    main()
