"""Studies of papers, and what only they need: not installed, and not needed to use or change the library.

Readers of the studies' files are registered when this package is imported; their modules are, when a file is read.
"""

from importlib import import_module

from interp.core.loading import loads
from studies import adderboard as adderboard
from studies import checkpoints as checkpoints


def _import_methods() -> None:
    import_module("studies.adderboard.proof_methods")


loads("methods", _import_methods)
