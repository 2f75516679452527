"""``import models`` and ``import interp`` cost little more than what they stand on."""

import subprocess
import sys
from pathlib import Path

HEAVY = ("models.training.loop", "models.training.trainer", "models.training.objective", "scipy.stats", "torch._dynamo")

STATISTICS = ("scipy.stats", "scipy.optimize", "scipy.sparse", "plotly")

SCRIPT = f"""
import sys, transformer_lens
before = set(sys.modules)
import models
print([name for name in {HEAVY} if name in sys.modules and name not in before])
import interp
print([name for name in {STATISTICS} if name in sys.modules and name not in before])
"""


def test_importing_loads_no_training_loop_no_statistics_and_no_compiler():
    """Beyond what transformer_lens itself imports: its 3.9 loads the compiler."""
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip().split("\n") == ["[]", "[]"]
