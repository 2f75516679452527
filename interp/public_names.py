"""The names of the package: every registered probe, and the few that are no probes.

``interp`` looks a name up here when it is first used, so that ``import interp`` imports nothing. Type checkers and
editors read ``interp/__init__.pyi`` in its place, which ``python -m interp.public_names`` writes.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any

from interp.core.probe import known, registered
from models.calls import checked

#: What one uses every day; documentation lists these first.
EVERYDAY = (
    "probes",
    "attention_by_role",
    "carry_units",
    "activation_patching",
    "smallest_circuit",
    "which_algorithm",
    "component_ablation",
    "score",
    "certify",
    "compare",
    "explore",
    "save_figure",
)
#: Names that are no probes, and where they come from.
OTHERS = {
    "probes": "interp.core.probe",
    "attention_pattern": "interp.probes.attention_pattern",
    "explore": "interp.site.explorer",
    "save_figure": "interp.figures.save_figure",
    "dark": "interp.figures.dark",
    "circuit_as_model": "interp.causal.circuits",
    "scrubbing_hypothesis": "interp.causal.interchange.scrubbing_hypothesis",
    "check_probe": "interp.core.probe_checks",
    "probe": "interp.core.probe",
    "Result": "interp.core.results",
    "Provenance": "interp.core.results",
}
_STUB = Path(__file__).parent / "__init__.pyi"
_HEAD = """# Written by `python -m interp.public_names` from the registry of probes; a test holds it equal to that.
"""


def public_names() -> dict[str, str]:
    """Every name of the package and the module that defines it, everyday names first."""
    found = OTHERS | {each.name: each.module for each in registered().values()}
    return {name: found[name] for name in (*EVERYDAY, *sorted(set(found) - set(EVERYDAY)))}


def resolve(name: str) -> Any:
    """The object of a public name; probes and other functions check their arguments when they are called.

    Raises:
        AttributeError: there is no such name; the message has the closest one.
    """
    names = public_names()
    if name not in names:
        near = get_close_matches(name, names, 1)
        meant = f". Did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module 'interp' has no attribute {name!r}{meant}")
    if name not in OTHERS:
        return known(name)
    found = getattr(import_module(OTHERS[name]), name)
    return checked(found) if isfunction(found) and name not in ("probe", "probes") else found


def stub() -> str:
    """The text of ``interp/__init__.pyi``."""
    names = public_names()
    listed = "".join(f'    "{name}",\n' for name in names)
    imports = "".join(f"from {module} import {name} as {name}\n" for name, module in names.items())
    return f"{_HEAD}{imports}\n__all__ = [\n{listed}]\n"


if __name__ == "__main__":
    _STUB.write_text(stub(), encoding="utf-8")
