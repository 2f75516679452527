"""Public calls: checked arguments, and a known state of the process while they run."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
