"""Studies of five papers: what each claims, this project's number for it, and the command that makes it.

    python -m studies headlines                   every claim, ours, and the verdict
    python -m studies reproduce toygpt:fig1       one figure or table: train what is missing, measure, write a page

``interp`` and ``models`` do without this package. Importing it registers, by name, what it adds to them: drawings of
its results, chapters of the report, readers of published files and methods of proof. A folder is a paper
(:mod:`studies.papers`) or a comparison of several papers' models; :mod:`studies.runs` runs and shows studies,
:mod:`studies.claims` reads and judges claims, and ``data`` has what was found.
"""

from functools import partial
from importlib import import_module

from interp.core.loading import loads
from studies import adderboard as adderboard
from studies import checkpoints as checkpoints

#: What is registered, and the modules here that do so, imported when it is first asked for.
MODULES = {
    "drawings": ("claims.figures",),
    "chapters": ("chapters",),
    "methods": ("adderboard.proof_methods",),
    "measures": (
        "microadder.measures",
        "adder_456.measures",
        "position_coupling.measures",
        "toygpt.measures",
        "addlm.measures",
    ),
    "studies": (
        "microadder.studies",
        "adder_456.studies",
        "position_coupling.studies",
        "position_coupling.hand_built",
        "toygpt.studies",
        "addlm.studies",
        "addlm.claims_page",
        "comparison.adders",
        "comparison.counterexamples",
        "comparison.curvature",
        "comparison.variables",
    ),
}


def _import(what: str, of: str = "studies") -> None:
    if of.split(".")[0] == __name__:  # drawings are asked for by the module of a result
        for module in MODULES[what]:
            import_module(f"{__name__}.{module}")


for _what in MODULES:
    loads(_what, partial(_import, _what))
