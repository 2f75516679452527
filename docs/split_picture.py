"""The picture in docs/proofs.md of a set of strings that is split until every part is proved.

python docs/split_picture.py             takes about ten seconds
"""

from __future__ import annotations

from html import escape
from pathlib import Path

import torch

import models
from interp.proofs.attention_only.arrangement_method import ArrangementProof
from models.tasks import Arrangements

OUT = Path(__file__).parent / "split.svg"
MODEL = Path(__file__).parents[1] / "benchmarks/provability/models/induction-12-one-head-0"
SET = ".......ni..n"  # the last token, where it stood before, and what followed it
ROW, LEFT, WIDTH = 22, 250, 820  # pixels
LOW, HIGH = -6.0, 18.0  # logits
PROVED, OPEN, MET = "#1f6fb4", "#c8442b", "#333333"


Row = tuple[int, str, float, float]


def rows_of(proof: ArrangementProof, sets: list[Arrangements], depth: int, said: list[str]) -> list[Row]:
    """(Depth, what is known, bound, least lead that was met) of some sets and, below it, of the parts of each."""
    found = []
    for one, bound, text in zip(sets, proof.bounds.bounded(sets), said, strict=True):
        strings = one.sample(2_000, torch.Generator().manual_seed(0))
        met = float(proof.weights.leads(strings, proof.query, one.answer)[0].min())
        found.append((depth, text, bound.bound, met))
        if bound.bound <= 0 and bound.split is not None:
            token = proof.task.token_text(bound.split)
            parts = one.by_place_of(bound.split)
            places = [*(f"{token} at place {place}" for place in one.free), f"{token} nowhere"][: len(parts)]
            found += rows_of(proof, parts, depth + 1, places)
    return found


def drawing(rows: list[Row]) -> str:
    """The rows as a picture: a bar for each bound, and a dot for the least lead that was met."""
    at = lambda x: LEFT + (WIDTH - LEFT - 20) * (max(x, LOW) - LOW) / (HIGH - LOW)  # noqa: E731
    height = ROW * (len(rows) + 3)
    text = '<text x="{:.0f}" y="{:.0f}" text-anchor="{}" fill="{}">{}</text>'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for tick in range(int(LOW), int(HIGH) + 1, 6):
        parts.append(f'<path d="M{at(tick):.0f} 0V{height - 2 * ROW}" stroke="{"#888" if tick == 0 else "#e4e4e4"}"/>')
        parts.append(text.format(at(tick), height - 1.4 * ROW, "middle", MET, tick))
    for number, (depth, said, bound, met) in enumerate(rows):
        middle, colour = ROW * (number + 0.9), PROVED if bound > 0 else OPEN
        ends = sorted((at(0), at(bound)))
        parts.append(text.format(10 + 22 * depth, middle + 4, "start", MET, escape(said)))
        parts.append(
            f'<rect x="{ends[0]:.1f}" y="{middle - 5}" width="{ends[1] - ends[0]:.1f}" height="10" fill="{colour}"/>'
        )
        parts.append(f'<circle cx="{at(met):.1f}" cy="{middle}" r="3" fill="{MET}"/>')
    legend = "bar: proved lower bound of the right token's lead (logits); dot: least lead met in 2,000 strings"
    parts.append(text.format(WIDTH - 20, height - 0.4 * ROW, "end", MET, legend))
    return "\n".join([*parts, "</svg>\n"])


def main() -> None:
    """Bound, split and draw."""
    model = models.load(MODEL)
    with torch.inference_mode():
        proof = ArrangementProof(model, model.task, "float32")
        tokens = tuple(-1 if letter == "." else model.task.vocabulary.index(letter) for letter in SET)  # pyright: ignore
        (one,) = (each.strings for each in proof.classes if each.strings.tokens == tokens)
        rows = rows_of(proof, [one], 0, [f"{SET.replace('.', '·')}: {one.count():,} strings"])
    OUT.write_text(drawing(rows), encoding="utf-8")
    print(f"wrote {OUT.name}: {len(rows)} sets, {sum(row[2] > 0 for row in rows)} of them proved")


if __name__ == "__main__":
    main()
