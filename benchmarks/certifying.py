"""How long a certificate takes and how much memory, beside what issue 6 allows and what the arithmetic itself costs.

One CPU thread, best of three. Wall time is what a user waits; CPU time is what it would be on an idle machine.
"""

from __future__ import annotations

import subprocess
import sys
import time
import timeit
from unittest.mock import patch

from flint import arb, arb_mat

import interp
import models
from interp.proofs import check_certificate
from interp.proofs.decision import Decision
from models.transformer import ArithmeticTransformer

NAMES = ("microadder-57", "microadder-67", "microadder-74")
REPEATS = 3
LIMITS = {"float": 0.5, "interval": 3.0, "float32": 10.0}  # seconds, for the 57
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
interp.certify(model, sys.argv[1])
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
    floor()
    memory()


def memory() -> None:
    for arithmetic in LIMITS:
        run = subprocess.run([sys.executable, "-c", MEMORY, arithmetic], capture_output=True, text=True, check=True)
        before, peak = map(float, run.stdout.split())
        print(
            f"peak memory of a fresh process that certifies {NAMES[0]} ({arithmetic}): {peak:.0f} MB (under "
            f"{MOST_MEMORY} MB), of which {before:.0f} MB for the imports and the model"
        )


def floor() -> None:
    """The proof's time beside the time of its ball operations alone, in C: what Python's calls cost on top."""
    model = models.load(NAMES[0])
    counts = operations(model)
    costs = operation_costs()
    one = sum(counts[name] * costs[name] for name in counts)
    parts = ", ".join(f"{counts[name]} {name} of {1e9 * costs[name]:.0f} ns" for name in counts)
    print(f"one margin of {NAMES[0]} needs {parts}: {1e6 * one:.0f} us")
    for arithmetic in ("interval", "float32"):
        calls, spent, original = 0, 0.0, Decision.margin

        def counted(*arguments: object, margin=original) -> object:
            nonlocal calls, spent
            start = time.process_time()
            found = margin(*arguments)  # pyright: ignore[reportArgumentType]
            spent += time.process_time() - start
            calls += 1
            return found

        with patch.object(Decision, "margin", counted):
            certificate = interp.certify(model, arithmetic=arithmetic)  # pyright: ignore[reportArgumentType]
        pieces = sum(len(cuts) + 1 for cuts in certificate.cuts)
        print(
            f"{arithmetic:9s} {calls:,} margins for {len(certificate.cuts):,} classes in {pieces:,} pieces: "
            f"{spent:.2f} s of CPU time, {1e6 * spent / calls:.0f} us each, {spent / calls / one:.1f} times that floor"
        )


def operations(model: ArithmeticTransformer) -> dict[str, int]:
    """Ball operations of one margin over the real numbers; with float32 rounding their number about doubles.

    Products: s B, two norms' squares, W_in, W_out, and the leads over all other tokens. Quotients and roots: two in
    each norm, one a unit's input, two for the answer; gelu takes an erf and a quotient at both ends of its ball.
    """
    d, m, vocabulary = model.config.d_model, model.config.d_mlp, model.config.d_vocab
    return {
        "multiply-adds": d * (3 + 2 * m + vocabulary - 1),
        "quotients and roots": 4 + m + 2 * m + 1,
        "erf": 2 * m,
    }


def operation_costs(n: int = 64) -> dict[str, float]:
    """Seconds an operation on balls of 53 bits, with radii; a multiply-add as in a product of matrices, in C."""
    balls = [[arb(1 + i * j % 7 / 8, 1e-3) for j in range(n)] for i in range(n)]
    matrix, x, y = arb_mat(balls), arb(1.25, 1e-3), arb(0.75)

    def seconds(call, number: int) -> float:
        return min(timeit.repeat(call, number=number, repeat=5)) / number

    column = arb_mat([row[:1] for row in balls])
    return {
        "multiply-adds": seconds(lambda: matrix * column, 20) / n**2,
        "quotients and roots": seconds(lambda: x / y, 10000),
        "erf": seconds(y.erf, 2000),
    }


if __name__ == "__main__":
    main()
