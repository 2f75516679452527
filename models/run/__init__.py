"""The one fast forward: runs without hooks, and variants of them, by the same formulas.

A *run* is a lazy table (site, layer) -> activation of one batch (:class:`Run`). *Variants* are alternatives times
groups of positions, each computed from the first place where it differs (:class:`Variants`): patching, ablation, path
patching and interchange say which places differ and what they read. The hooked forward is the definition, the tests
compare this one with it, and a model whose config has a switch that the formulas do not know (:data:`KNOWN`), or which
is altered by hooks or otherwise, takes it everywhere (:func:`has_run`).

Nothing here knows what the positions mean: sites are named as hooks are, positions are numbers.
"""

from models.run.formulas import KNOWN, Formulas, has_formulas, has_run, unknown_switches
from models.run.groups import everywhere
from models.run.run import Frame, Run
from models.run.variants import Variants

__all__ = [
    "KNOWN",
    "Formulas",
    "Frame",
    "Run",
    "Variants",
    "everywhere",
    "has_formulas",
    "has_run",
    "unknown_switches",
]
