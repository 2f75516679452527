"""Small models of families that are trained nowhere else here: ``python -m benchmarks.circuits.recipes [NAMES]``.

They are trained as the ordinary models are (:mod:`benchmarks.provability.train`), in seconds to minutes each on one
thread, and one is kept only if it answers every problem of its task. A recipe with another seed is a fresh subject.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.provability.ordinary_models import (
    ATTENTION_ONLY,
    NO_NORM,
    ONE_WIDE_HEAD,
    TWO_LAYERS,
    OrdinaryModel,
)
from benchmarks.provability.train import store, trained
from models import ArithmeticTransformer

MODELS = Path(__file__).parent / "models"
TRIES = 4  # seeds, each a hundred after the last
DIGITS = "0123456789abcdef"

ONE_HEAD: dict[str, Any] = {"n_heads": 1, "d_head": 32, "d_mlp": 64}
THREE_HEADS: dict[str, Any] = {"n_heads": 3, "d_head": 8}
FOUR_HEADS: dict[str, Any] = {**NO_NORM, "n_heads": 4, "d_head": 8}


def _digits(format: str, answer: str, base: int = 10) -> dict[str, Any]:
    return {"format": format, "answer": answer, "base": base}


def _two_tokens(answer: str, base: int) -> dict[str, Any]:
    return _digits("{a}{b}=", answer, base)


def _string(length: int, answer: str, vocabulary: str = "01") -> dict[str, Any]:
    return {"function": {"vocabulary": vocabulary, "length": length, "answer": answer}}


def _three(answer: str, base: int = 16) -> dict[str, Any]:
    return _digits("{a}{b}{c}=", answer, base)


def _count(of: str, base: int) -> dict[str, Any]:
    """How many of five numbers fulfil what is said of ``x``."""
    return _digits("{a}{b}{c}{d}{e}=", " + ".join(f"({of})".replace("x", name) for name in "abcde"), base)


def _dihedral(n: int) -> dict[str, Any]:
    """Turns and reflections of a polygon: number n s + r is a turn by r after s reflections."""
    turned = f"(a % {n} + (1 - 2 * (a // {n})) * (b % {n})) % {n}"
    return _two_tokens(f"{turned} + {n} * ((a // {n} + b // {n}) % 2)", 2 * n)


def _chosen(even: str, odd: str, base: int = 16) -> dict[str, Any]:
    """One of two functions of a and b, as c is even or odd."""
    return _digits("{c}{a}{b}=", f"(c % 2 == 0) * ({even}) + (c % 2) * ({odd})", base)


def _at(data: str) -> str:
    """The number at place i."""
    return " + ".join(f"{name} * (i % {len(data)} == {place})" for place, name in enumerate(data))


def _bits(n: int, answer: str) -> dict[str, Any]:
    return _digits("".join(f"{{{name}}}" for name in "abcdefghi"[:n]) + "=", answer, 2)


_WITHOUT_CARRY = "(a + b) % 10 + 10 * ((a // 10 + b // 10) % 10)"
_LARGER_DIGITS = "max(a % 10, b % 10) + 10 * max(a // 10, b // 10)"
_WHERE_ZERO = "(a > 0) * (1 + (b > 0) * (1 + (c > 0) * (1 + (d > 0))))"
_SECOND_TABLE = "(9 * a + 4 * b + 5) * (3 * a + 14 * b + 1) // 11 % 16"
_THIRD_TABLE = "(6 * a + 13 * b + 8) * (11 * a + 2 * b + 7) // 13 % 16"
_AFFINE = "((a // 5 + 1) * (b // 5 + 1) % 5 - 1) * 5 + ((a // 5 + 1) * (b % 5) + a % 5) % 5"
_COMPARE = {"format": "{a:2}?{b:2}=", "answer": "(a > b) + (a >= b)", "variables": "comparison"}
_ADD = {"format": "{a:2}+{b:2}={s:3r}", "answer": "a + b", "variables": "addition"}
_SUBTRACT = {"format": "{a:2}-{b:2}={s:2r}", "answer": "a - b", "where": "a >= b", "variables": "subtraction"}

#: Kind of model -> (family, task, config, how many seeds are kept).
KINDS: Mapping[str, tuple[str, dict[str, Any], dict[str, Any], int]] = {
    "add-mod-23": ("modular", _two_tokens("(a + b) % 23", 23), FOUR_HEADS, 2),
    "add-mod-29-norm": ("modular", _two_tokens("(a + b) % 29", 29), {}, 1),
    "subtract-mod-23": ("modular", _two_tokens("(a - b) % 23", 23), {}, 2),
    "multiply-mod-23": ("modular", _two_tokens("(a * b) % 23", 23), FOUR_HEADS, 1),
    "add-2-two-layers": ("two-layer adders", _ADD, {**TWO_LAYERS, **ONE_HEAD}, 3),
    "subtract-2-two-layers": ("two-layer adders", _SUBTRACT, {**TWO_LAYERS, **ONE_HEAD}, 2),
    "max-3-of-16": ("order", _three("max(a, max(b, c))"), {}, 2),
    "median-3-of-16": ("order", _three("max(min(a, b), min(max(a, b), c))"), {}, 1),
    "sorted-3-of-10": ("order", _string(3, "sorted", DIGITS[:10]), {}, 1),
    "copy-4": ("order", _string(4, "copy", DIGITS[:10]), {}, 1),
    "less-of-32": ("comparison", _two_tokens("a < b", 32), {}, 3),
    "compare-2": ("comparison", _COMPARE, {}, 3),
    "compare-2-two-layers": ("comparison", _COMPARE, {**TWO_LAYERS, **ONE_HEAD}, 1),
    "brackets-8": ("strings", _string(8, "balanced"), {}, 2),
    "brackets-10-two-layers": ("strings", _string(10, "balanced"), {**TWO_LAYERS, **ONE_HEAD}, 2),
    "parity-5": ("strings", _string(5, "parity"), {}, 2),
    "majority-9": ("strings", _string(9, "majority"), {}, 1),
    # families that were added together, with three kinds each
    "lookup-4-of-6": ("lookup", _digits("{a}{b}{c}{d}{i}", _at("abcd"), 6), {}, 1),
    "lookup-3-of-8": ("lookup", _digits("{a}{b}{c}{i}", _at("abc"), 8), THREE_HEADS, 1),
    "lookup-two-layers": ("lookup", _digits("{i}{a}{b}{c}{d}=", _at("abcd"), 6), ATTENTION_ONLY | ONE_WIDE_HEAD, 1),
    "member-4-of-6": ("matching", _digits("{a}{b}{c}{d}{q}", "(q == a) | (q == b) | (q == c) | (q == d)", 6), {}, 1),
    "equal-of-24": ("matching", _two_tokens("a == b", 24), FOUR_HEADS, 1),
    "twice-in-3-of-12": ("matching", _three("(a == b) | (b == c) | (a == c)", 12), THREE_HEADS, 1),
    "times-1-2": ("products", _digits("{a:1}*{b:2}={p:3r}", "a * b"), {}, 1),
    "times-table-16": ("products", _digits("{a}*{b}={p:2r}", "a * b", 16), FOUR_HEADS, 1),
    "times-1-1-1": ("products", _digits("{a:1}*{b:1}*{c:1}={p:3r}", "a * b * c"), THREE_HEADS, 1),
    "quotient-24": ("division", _two_tokens("a // (b + 1)", 24), {}, 1),
    "remainder-24": ("division", _two_tokens("a % (b + 1)", 24), FOUR_HEADS, 1),
    "gcd-24": ("division", _two_tokens("gcd(a + 1, b + 1) - 1", 24), THREE_HEADS, 1),
    "xor-4": ("digitwise", _digits("{a:4}^{b:4}={s:4}", "a ^ b", 2), {}, 1),
    "sum-without-carry-2": ("digitwise", _digits("{a:2}+{b:2}={s:2}", _WITHOUT_CARRY), FOUR_HEADS, 1),
    "larger-digits-2": ("digitwise", _digits("{a:2}?{b:2}={s:2}", _LARGER_DIGITS), THREE_HEADS, 1),
    "count-zeros-of-6": ("counting", _count("x == 0", 6), {}, 1),
    "count-large-of-6": ("counting", _count("x > 2", 6), FOUR_HEADS, 1),
    "count-even-of-7": ("counting", _count("x % 2 == 0", 7), THREE_HEADS, 1),
    "larger-or-smaller-16": ("gates", _chosen("max(a, b)", "min(a, b)"), {}, 1),
    "sum-or-difference-11": ("gates", _chosen("(a + b) % 11", "(a - b) % 11", 11), FOUR_HEADS, 1),
    "first-or-second-16": ("gates", _chosen("a", "b"), THREE_HEADS, 1),
    "double-3": ("one number", _digits("{a:3}={s:4r}", "2 * a"), {}, 1),
    "remainder-of-7": ("one number", _digits("{a:3}={s:1}", "a % 7"), FOUR_HEADS, 1),
    "successor-3": ("one number", _digits("{a:3}={s:4r}", "a + 1"), THREE_HEADS, 1),
    "where-largest": ("where", _three("(b > a) * (b >= c) + 2 * (c > a) * (c > b)"), {}, 1),
    "rank-of-first": ("where", _three("(b < a) + (c < a)"), FOUR_HEADS, 1),
    "where-zero": ("where", _digits("{a}{b}{c}{d}=", _WHERE_ZERO, 8), THREE_HEADS, 1),
    "table-16-first": ("tables", _two_tokens("(13 * a + 7 * b + 3) * (5 * a + 11 * b + 2) // 7 % 16", 16), {}, 1),
    "table-16-second": ("tables", _two_tokens(_SECOND_TABLE, 16), FOUR_HEADS, 1),
    "table-16-third": ("tables", _two_tokens(_THIRD_TABLE, 16), THREE_HEADS, 1),
    "dihedral-11": ("groups", _dihedral(11), {}, 1),
    "affine-5": ("groups", _two_tokens(_AFFINE, 20), FOUR_HEADS, 1),
    "dihedral-9": ("groups", _dihedral(9), THREE_HEADS, 1),
    "midpoint-24": ("number line", _two_tokens("(a + b) // 2", 24), {}, 1),
    "distance-24": ("number line", _two_tokens("abs(a - b)", 24), FOUR_HEADS, 1),
    "clipped-sum-24": ("number line", _two_tokens("min(a + b, 23)", 24), THREE_HEADS, 1),
    "or-of-ands-9": ("formulas", _bits(9, "(a & b & c) | (d & e & f) | (g & h & i)"), {}, 1),
    "xor-of-ands-8": ("formulas", _bits(8, "(a & b) ^ (c & d) ^ (e & f) ^ (g & h)"), FOUR_HEADS, 1),
    "and-of-ors-8": ("formulas", _bits(8, "(a | b) & (c | d) & (e | f) & (g | h)"), THREE_HEADS, 1),
}  # fmt: skip


def recipe(kind: str, seed: int) -> OrdinaryModel:
    """The recipe of a kind of model with a seed."""
    _, task, config, _ = KINDS[kind]
    return OrdinaryModel(f"{kind}-{seed}", task, config, seed)


def train(kind: str, seed: int) -> tuple[ArithmeticTransformer, dict[str, Any]] | None:
    """A model that is right on every problem, with what its training came to; None if the training did not lead there.
    These tasks have at most 20,000 problems, all of which are run."""
    model, came_to = trained(recipe(kind, seed), seed, lambda said: None)
    return None if came_to["wrong"] else (model, came_to)


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    for kind, (_, _, _, seeds) in KINDS.items():
        for first in range(seeds):
            wanted = recipe(kind, first)
            if (MODELS / wanted.name).exists() or (names and wanted.name not in names):
                continue
            for seed in range(first, first + 100 * TRIES, 100):
                found = train(kind, seed)
                print(f"{wanted.name}, seed {seed}: {found and found[1]}", flush=True)
                if found is not None:
                    store(wanted, seed, *found, models=MODELS)
                    break


if __name__ == "__main__":
    main(sys.argv[1:])
