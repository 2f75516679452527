"""What is known of a registered model on all inputs: a stored proof, an exhaustive count, or nothing.

Of a trained model this lies next to its weights. Constructed models have no entry; their verdicts are stored in one
file, which ``python -m interp.proofs.known`` makes again (some minutes).
"""

from __future__ import annotations

import json
from typing import Any

import models
from interp.core.stored_data import DATA
from interp.proofs.stored import all_pairs
from models import zoo
from models.registry import constructed

ALL_PAIRS = "all pairs of ten-digit numbers"
STORED = DATA / "constructed_verdicts.json"


def on_all_inputs(name: str) -> str:
    """The strength of evidence on all inputs in a few words, with the domain where it is not all pairs; or nothing."""
    if name not in zoo.zoo_names():  # not trained yet, or constructed
        found = json.loads(STORED.read_text()).get(name)
        if found is None:
            return ""
        return found["evidence"] if found["domain"] == ALL_PAIRS else f"{found['evidence']}, {found['domain']}"
    whole = zoo.read_entry(name)["score"].get("all")
    if whole is not None:
        return f"exhaustive: {whole['correct']:,} of {whole['n']:,}"
    return all_pairs(name)


def judge_constructed(name: str) -> dict[str, Any]:
    """The strongest verdict that there is of a constructed model, at its own size.

    Raises:
        UserError: no way of the certifier judges it.
    """
    from interp.proofs.coupled_grid import load_certified_grids
    from interp.proofs.ways import certified_at_best, certify
    from models.tasks.addition import FixedWidthAddition
    from models.tasks.multi_addition import MultiOperandAddition

    model = models.build(name)
    if isinstance(model.task, MultiOperandAddition):  # every size has a proof of its own, made by coupled_grid
        grid = load_certified_grids()["rounded"]
        operands, digits = grid.margins.shape
        sizes = f"all sizes to {operands} operands of {digits} digits"
        return {"evidence": "certified with rounding", "domain": sizes, "smallest_margin": float(grid.margins.min())}
    found = certified_at_best(model) if isinstance(model.task, FixedWidthAddition) else certify(model)
    evidence = found.provenance.rung if found.status == "certified" else found.status
    domain = ALL_PAIRS if isinstance(model.task, FixedWidthAddition) else found.provenance.source
    return {
        "evidence": evidence,
        "domain": domain.removeprefix("parts of a proof for "),
        "smallest_margin": float(found.smallest_margin),
    }


def main() -> None:
    """Judge every constructed model and store the verdicts."""
    found = {name: judge_constructed(name) for name in constructed()}
    STORED.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
