<<<<<<< 7d8d264e2c4373c9d733db87d7ff241cf66a1b82
"""Studies of papers, and what only they need: not installed, and not needed to use or change the library.

Readers of the studies' files are registered when this package is imported; their modules are, when a file is read.
=======
"""Studies of five papers: what each claims, this project's number for it, and the command that makes it.

    python -m studies headlines                   every claim, ours, and the verdict
    python -m studies reproduce toygpt:fig1       one figure or table: train what is missing, measure, write a page

``interp`` and ``models`` do without this package. Importing it registers, by name, what it adds to them: drawings of
its results and chapters of the report. A folder is a paper (:mod:`studies.papers`) or a comparison of several papers'
models; :mod:`studies.runs` runs and shows studies, :mod:`studies.claims` reads and judges claims, and ``data`` has what
was found.
>>>>>>> 356ee4376061cecafeda01efa210fc391f1d8972
"""

from importlib import import_module

from interp.core.loading import loads
<<<<<<< 7d8d264e2c4373c9d733db87d7ff241cf66a1b82
from studies import adderboard as adderboard
from studies import checkpoints as checkpoints


def _import_methods() -> None:
    import_module("studies.adderboard.proof_methods")


loads("methods", _import_methods)
=======

#: Modules that register drawings.
DRAWINGS = ("studies.claims.figures", "studies.addlm.figures.circuits", "studies.addlm.figures.entries")


def _import_drawings(of: str = "studies") -> None:
    if of.split(".")[0] == "studies":
        for module in DRAWINGS:
            import_module(module)


def _import_chapters() -> None:
    import_module("studies.chapters")


loads("drawings", _import_drawings)
loads("chapters", _import_chapters)
>>>>>>> 356ee4376061cecafeda01efa210fc391f1d8972
