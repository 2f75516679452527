"""Studies of five papers: what each claims, this project's number for it, and the command that makes it.

    python -m studies headlines                   every claim, ours, and the verdict
    python -m studies reproduce toygpt:fig1       one figure or table: train what is missing, measure, write a page

``interp`` and ``models`` do without this package. Importing it registers, by name, what it adds to them: drawings of
its results, chapters of the report, readers of published files and methods of proof. A folder is a paper
(:mod:`studies.papers`) or a comparison of several papers' models; :mod:`studies.runs` runs and shows studies,
:mod:`studies.claims` reads and judges claims, and ``data`` has what was found.
"""

from importlib import import_module

from interp.core.loading import loads
from studies import adderboard as adderboard
from studies import checkpoints as checkpoints

#: Modules that register drawings.
DRAWINGS = ("studies.claims.figures", "studies.addlm.figures.circuits", "studies.addlm.figures.entries")


def _import_drawings(of: str = "studies") -> None:
    if of.split(".")[0] == "studies":
        for module in DRAWINGS:
            import_module(module)


def _import_chapters() -> None:
    import_module("studies.chapters")


def _import_methods() -> None:
    import_module("studies.adderboard.proof_methods")


loads("drawings", _import_drawings)
loads("chapters", _import_chapters)
loads("methods", _import_methods)
