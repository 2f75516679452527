"""Search along the gradients of a model's margins for a problem that it answers wrong, where no proof reaches.

:func:`interp.proofs.attacks.gradient_attack.attack` asks the question; :mod:`~interp.proofs.attacks.attack_search`
does the search.
"""

from interp.proofs.attacks.gradient_attack import Attack, FoundFailure, attack

__all__ = ["attack", "Attack", "FoundFailure"]
