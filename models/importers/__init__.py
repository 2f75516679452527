"""Models from files: readers of what people have (:mod:`models.importers.readers`), and copies of live modules."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
