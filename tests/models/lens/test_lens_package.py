"""Models run and are scored without TransformerLens' whole package, which is there for whoever asks for it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

#: What every public name of the package is, with and without this project's import before it.
NAMES = """
import json, sys
{first}
import transformer_lens.HookedRootModule
from transformer_lens import ActivationCache, FactoredMatrix, HookedRootModule, patching, utilities
from transformer_lens.hook_points import HookPoint
assert isinstance(HookedRootModule, type) and isinstance(ActivationCache, type), HookedRootModule
assert utilities.get_act_name("pattern", 0) == "blocks.0.attn.hook_pattern"
assert issubclass(models.ArithmeticTransformer, HookedRootModule)
transformer_lens.evals
names = [name for name in dir(transformer_lens) if name[:1] != "_"]
def said(x):
    if isinstance(x, type(sys)):
        return ["module", x.__name__]
    return [type(x).__name__, str(getattr(x, "__module__", "")), getattr(x, "__name__", "")]
kinds = {{name: said(getattr(transformer_lens, name)) for name in names}}
print(json.dumps(kinds, default=str))
"""


def said_by(program: str) -> Any:
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.transformer_lens
def test_whoever_asks_for_the_package_gets_it_as_it_is():
    whole = said_by(NAMES.format(first="import transformer_lens, models"))
    later = said_by(NAMES.format(first="import models, transformer_lens; models.load('microadder-57')"))
    for name in set(whole) & set(later):
        assert later[name] == whole[name], name
    assert {"ActivationCache", "FactoredMatrix", "HookedRootModule"} <= set(later)
