"""The folder of the results that come with this package."""

from importlib.resources import files
from pathlib import Path

DATA = Path(str(files("interp"))) / "data"
