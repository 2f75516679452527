"""An import check: another package called ``models`` must not hide the one that comes with this package.

Many projects have a folder ``models``; in the folder where Python is started, it comes before what is installed.
"""

from importlib.util import find_spec
from pathlib import Path


def check() -> None:
    """Raise ImportError, naming what is in the way, unless ``models`` is the package that belongs to ``interp``."""
    spec = find_spec("models")
    places = [] if spec is None else list(spec.submodule_search_locations or [spec.origin or ""])
    if not any(Path(place, "weight_maps").is_dir() for place in places):
        found = f"Python finds {places[0]} first" if places else "Python finds none"
        raise ImportError(
            f"interp needs the package models that is installed with it, and {found}: rename what is there, or start "
            "Python from another folder.",
            name="models",
        )


check()
