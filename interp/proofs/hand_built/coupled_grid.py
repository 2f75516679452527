"""The proof of :mod:`interp.proofs.hand_built.addition_proof` for every shape of the hand-built transformer's grid.

    python -m interp.proofs.hand_built.coupled_grid        # 30 x 30 shapes, over the reals and with rounding

A shape takes the time of one forward pass, the whole grid a few minutes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import models
from interp.core.results import Provenance
from interp.core.stored_data import DATA
from interp.core.views import Grid, Picture
from interp.proofs.hand_built.addition_proof import ShapeProof, prove_shapes
from interp.proofs.verdict.verdict import STRENGTHS, ArithmeticName
from models import UserError
from models.families.hand_built.position_coupling_addition import NAME
from models.files import write_bytes_atomic
from models.number_format import shown
from models.transformer import HookedModel

STORED = DATA / "hand_built_certificates.json"


@dataclass(frozen=True)
class CertifiedGrid:
    """Lower bounds of the logit margin, [operands, digits], each counted from 1; every shape was certified."""

    arithmetic: ArithmeticName
    margins: np.ndarray

    def sentence(self) -> str:
        m, n = self.margins.shape
        where = "in real arithmetic" if self.arithmetic == "interval" else "with float32 rounding"
        return (
            f"Certified {where}: right on every problem of each of {self.margins.size} shapes, 1 to {m} operands by "
            f"1 to {n} digits; the right token leads by at least {shown(float(self.margins.min()), 3)}."
        )


def certify_grid(
    model: HookedModel,
    max_operands: int,
    max_digits: int,
    arithmetic: ArithmeticName = "float32",
    progress: bool = False,
) -> CertifiedGrid | ShapeProof:
    """Certify all shapes up to a size; if one fails, return the first that does."""
    from tqdm import tqdm

    margins = np.zeros((max_operands, max_digits))
    for m in tqdm(range(1, max_operands + 1), disable=not progress, unit="row"):
        for proof in prove_shapes(model, [(m, n) for n in range(1, max_digits + 1)], arithmetic):
            if proof.obstacle is not None:
                return proof
            margins[m - 1, proof.digits - 1] = proof.margin
    return CertifiedGrid(arithmetic, margins)


def load_certified_grids(path: Path = STORED) -> dict[str, CertifiedGrid]:
    """The stored bounds by arithmetic. Raises UserError if there are none."""
    try:
        value = json.loads(path.read_text())
        return {name: CertifiedGrid(name, np.array(rows)) for name, rows in value["margins"].items()}
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        raise UserError(
            f"{path.name} holds no certificates; python -m interp.proofs.hand_built.coupled_grid makes some."
        ) from None


def main() -> int:
    model, found = models.build(NAME), {}
    arithmetics: tuple[ArithmeticName, ...] = ("interval", "float32")
    for arithmetic in arithmetics:
        grid = certify_grid(model, 30, 30, arithmetic, progress=True)
        if isinstance(grid, ShapeProof):
            print(f"{grid.operands} x {grid.digits} digits: {grid.obstacle}")
            return 1
        print(grid.sentence(), flush=True)
        # Round down, so that what is stored stays a bound.
        found[arithmetic] = (np.floor(grid.margins * 1e4) / 1e4).tolist()
    text = json.dumps({"model": NAME, "margins": found}).replace("], [", "],\n[")
    write_bytes_atomic(STORED, f"{text}\n".encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())


def margins_view(result: CertifiedGrid) -> Picture:
    """The proved margin of every shape, operands by digits."""
    m, n = result.margins.shape
    axes = "digits of each operand", "operands", "", result.margins, range(1, m + 1), range(1, n + 1), "margin (logits)"
    rests_on = Provenance(result.margins.size, None, "shapes, all problems of each", STRENGTHS[result.arithmetic])
    return Picture([Grid(*axes, "range", upwards=True)], title=result.sentence(), provenance=rests_on)
