"""Looking for a problem that a model answers wrong, where no proof reaches: along the gradients of its margins.

:func:`interp.attacks.attack.attack` is the question; :mod:`~interp.attacks.search` how it searches.
"""

from interp.attacks.attack import Attack, WrongAnswer, attack

__all__ = ["attack", "Attack", "WrongAnswer"]
