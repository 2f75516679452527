"""Looking for a problem that a model answers wrong, where no proof reaches: along the gradients of its margins.

:func:`interp.proofs.attacks.attack.attack` is the question; :mod:`~interp.proofs.attacks.search` how it searches.
"""

from interp.proofs.attacks.attack import Attack, WrongAnswer, attack

__all__ = ["attack", "Attack", "WrongAnswer"]
