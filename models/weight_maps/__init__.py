"""Weight maps, which compute effective weights from free parameters.

A weight map is a module whose Parameters are exactly the model's free parameters (a checkpoint holds these, and these
are counted) and whose ``forward()`` returns the effective weights of a stock decoder under
HookedTransformer's names. The building blocks (arcs, spirals, rotations, low-rank products) are functions in
this package; the maps of the papers' models live with the models.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
