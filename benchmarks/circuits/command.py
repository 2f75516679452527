"""``python -m benchmarks.circuits``: methods that find circuits, on models whose circuits are all counted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from interp.cli.arguments import Force, Json, one_thread
from interp.cli.commands import Program
from interp.cli.outputs import write_reply


@dataclass(frozen=True)
class Bench:
    """Score methods that find circuits on proved models; the same command resumes, and adds new methods.

    A method of your own is a file of twenty lines: ``python -m benchmarks.circuits --from my_method.py --quick``. All
    of it, with what was found: ``python -m studies reproduce comparison:circuits``.
    """

    runs: Path = Path("runs/bench")
    """A folder for what was computed so far, one file per subject."""
    quick: bool = False
    """Three models and one draw of pairs: two minutes."""
    only: tuple[str, ...] = ()
    """Only these models (zoo names or paths)."""
    methods: tuple[str, ...] = ()
    """Only these methods."""
    draws: int = 2
    """Draws of pairs that each method sees."""
    json: Json = None
    force: Force = False

    def run(self) -> None:
        from benchmarks.circuits import run_benchmark
        from interp.core.replies import reply_of

        one_thread()
        found = run_benchmark(
            self.runs,
            only=self.only or None,
            methods=self.methods or None,
            draws=self.draws,
            quick=self.quick,
            say=lambda line: print(line, flush=True),
        )
        assert found is not None
        print(found.sentence())
        print(found.summary().to_string(index=False))
        write_reply(self.json, reply_of(found))


PROGRAM = Program("python -m benchmarks.circuits", "benchmarks.circuits", {"bench": "command:Bench"}, only="bench")
