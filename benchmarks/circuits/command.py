"""``python -m benchmarks.circuits``: methods that find circuits, on models whose circuits are all counted."""

from __future__ import annotations

from pathlib import Path

from interp.cli.commands import Program
from interp.cli.options import Json, one_thread
from interp.cli.outputs import write_reply


def bench(
    runs: Path = Path("runs/bench"),
    quick: bool = False,
    only: tuple[str, ...] = (),
    methods: tuple[str, ...] = (),
    draws: int = 2,
    json: Json = None,
) -> None:
    """Score methods that find circuits on proved models; the same command resumes, and adds new methods.

    A method of your own is a file of twenty lines: ``python -m benchmarks.circuits --from my_method.py --quick``. All
    of it, with what was found: ``python -m studies reproduce comparison:circuits``.

    Args:
        runs: A folder for what was computed so far, one file per subject.
        quick: Three models and one draw of pairs: two minutes.
        only: Only these models (zoo names or paths).
        methods: Only these methods.
        draws: Draws of pairs that each method sees.
    """
    from benchmarks.circuits import run_benchmark

    one_thread()
    found = run_benchmark(
        runs,
        only=only or None,
        methods=methods or None,
        draws=draws,
        quick=quick,
        say=lambda line: print(line, flush=True),
    )
    assert found is not None
    print(found.sentence())
    print(found.summary().to_string(index=False))
    write_reply(json, found)


PROGRAM = Program(
    "python -m benchmarks.circuits",
    "benchmarks.circuits",
    (("command:bench", "bench", "score methods that find circuits"),),
    "bench",
)
