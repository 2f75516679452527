"""How many of an entry's seeds answer its whole test set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.rates import Rate


def seed_rate(training: Mapping[str, Any]) -> Rate:
    """The rate of an entry's seeds that answer its whole test set, each seed once: a repeat on another build is no
    independent draw (:func:`repeated_seeds` tells of it)."""
    return Rate(training["seeds_tried"], training["seeds_grokked"])


def repeated_seeds(training: Mapping[str, Any]) -> str:
    """What repeats of the same seeds on builds that round differently gave: "0 of 128"; empty without a repeat."""
    return ", ".join(f"{run['seeds_grokked']} of {run['seeds_tried']}" for run in training.get("repeats", ()))


def grokked_seeds(training: Mapping[str, Any]) -> str:
    """:func:`seed_rate` in words, with its 95% interval if it is a rate, and what repeats gave.

    Seeds that started near one model are not a sample of seeds.
    """
    rate, again = seed_rate(training), repeated_seeds(training)
    if training.get("start"):
        return f"{rate.correct}, all begun near {training['start']['origin'].partition(',')[0]}"
    low, high = (100 * x for x in rate.interval)
    return f"{rate.correct} ({low:.1f}-{high:.1f}%)" + (f"; again {again}" if again else "")
