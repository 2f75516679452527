"""Run the tests that mirror files: those given, else those that differ from the last commit.

    python -m tests.mirrored_tests [FILE ...]

The tests of interp/core/stats.py are tests/interp/core/test_stats.py; a package's are those of its folder's name.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
TESTED = ("interp", "models", "studies", "benchmarks", "tests")


def changed() -> list[str]:
    """The files that differ from the last commit, with new ones."""
    asked = ["git", "status", "--porcelain", "--no-renames", "--untracked-files=all"]
    lines = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [line[3:] for line in lines if not line.startswith(" D") and not line.startswith("D")]


def mirrored(files: Iterable[str], known: Iterable[str]) -> list[str]:
    """Of the ``known`` test files, those of the given files, in order; a test file that was changed is its own."""
    tests = [PurePosixPath(each) for each in known]
    found: dict[str, None] = {}
    for file in map(PurePosixPath, files):
        if file.suffix != ".py" or file.parts[0] not in TESTED:
            continue
        stem = file.parent.name if file.stem == "__init__" else file.stem
        beside = PurePosixPath("tests", *file.parts[:-1], f"test_{stem}.py")
        for each in tests:
            if each in (file, beside) or (each.name == f"test_{stem}.py" and file.parts[0] in each.parts):
                found[str(each)] = None
    return [*found]


def main(files: list[str]) -> int:
    """Run them, without the slow ones; 0 where all pass or there is none."""
    known = [str(each.relative_to(ROOT).as_posix()) for each in sorted((ROOT / "tests").rglob("test_*.py"))]
    tests = mirrored(files or changed(), known)
    print("\n".join(tests) or "No test mirrors what has changed.", flush=True)
    if not tests:
        return 0
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not slow", *tests], cwd=ROOT, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
