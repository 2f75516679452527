"""``import models`` and ``import interp`` cost little more than what they stand on; nor does a score."""

import json
import subprocess
import sys
from pathlib import Path

HEAVY = (
    "models.training.loop",
    "models.training.trainer",
    "models.training.stacked_objective",
    "scipy.stats",
    "torch._dynamo",
)

STATISTICS = ("scipy.stats", "scipy.optimize", "scipy.sparse", "plotly")

LENS = ("transformers", "datasets", "transformer_lens.patching")

SCRIPT = f"""
import json, sys
import models
loaded = [[name for name in {HEAVY} if name in sys.modules]]
import interp
loaded.append([name for name in {STATISTICS} if name in sys.modules])
assert models.score(models.load("microadder-57"), ["57+48"]).correct == 1
loaded.append([name for name in {LENS} if name in sys.modules])
print(json.dumps(loaded))
"""


def test_importing_and_scoring_load_no_training_loop_no_statistics_no_compiler_and_little_of_transformer_lens():
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert json.loads(run.stdout) == [[], [], []]
