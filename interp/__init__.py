"""Tools that ask questions of a model; they use only its hooks, cache, ``cfg`` and ``W_*``.

    adder = models.load("microadder-57")
    interp.probes(adder)                         what can be asked of it, one line each

    interp.attention_by_role(adder).figure()     where each answer digit looks
    interp.carry_units(adder).to_dataframe()     which neurons detect the carry, and which carry it
    interp.certify(adder)                        right on all 10^20 pairs: a proof, or a pair that is wrong
    interp.compare(adder, other).figure()        two models of one format, part by part
    interp.explore(adder, other)                 in Jupyter: any problem, step by step, any part removed
    interp.save_figure(result, "figure.svg")     also .pdf, .png, .html and .json
    interp.dark(result)                          its figure on a dark ground, for dark notebooks and slides

    pairs = problem_pairs(adder.task, "carry", column=4, n=256)   from models.tasks: clean and corrupted problems
    interp.activation_patching(adder, pairs, site="resid_pre").figure()

Every probe returns a frozen result with ``.sentence()``, ``.to_dataframe()`` and ``.figure()``. All registered probes
are names of this package, including your own (:mod:`interp.core.probe`); those of everyday use come first in
``interp.__all__``.

The subpackages, each of which imports only earlier ones: :mod:`interp.core`; :mod:`interp.proofs`;
:mod:`interp.probes` (which observe) and :mod:`interp.causal` (which intervene); :mod:`interp.compare`;
:mod:`interp.figures`; :mod:`interp.site`; :mod:`interp.cli`.
"""

from importlib import import_module
from pkgutil import iter_modules, walk_packages
from typing import Any

from interp import import_check as _import_check  # noqa: F401  before anything imports models
from interp.core.loading import loads as _loads
from models.calls.progress_line import progress_line as _progress_line

_ROOMS = ("core", "probes", "causal", "proofs", "compare", "figures", "site", "cli")


def _import_probes(*rooms: str) -> None:
    """Import every module of these rooms, as any may register a probe."""
    for room in rooms:
        for module in walk_packages(import_module(f"interp.{room}").__path__, f"interp.{room}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)


def _import_drawings(of: str = "") -> None:
    """Import what draws results of the module ``of``: a drawing stands next to its result, in the same package."""
    import_module("interp.figures").import_all()
    package = of.rpartition(".")[0]
    if package.startswith("interp."):
        for module in iter_modules(import_module(package).__path__, f"{package}."):
            import_module(module.name)


_loads("probes", _import_probes)
_loads("drawings", _import_drawings)


def __getattr__(name: str) -> Any:
    """A subpackage, or a public name of :mod:`interp.public_names`, such as any registered probe."""
    if name in _ROOMS:
        return import_module(f"interp.{name}")
    if name == "__version__":
        return import_module("importlib.metadata").version("carrylens")
    if name.startswith("_") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from interp.public_names import public_names, resolve

    if name == "__all__":
        return list(public_names())
    with _progress_line("importing"):
        globals()[name] = found = resolve(name)
    return found


def __dir__() -> list[str]:
    """Every public name, which imports the modules of all probes."""
    from interp.public_names import public_names

    return sorted({*globals(), *public_names(), *_ROOMS})
