"""The progress bar: steps, time left, and the accuracy of every seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tqdm import tqdm


class Progress:
    """A tqdm bar whose postfix lists exact-match accuracy per seed (the eight best of many)."""

    def __init__(self, done: int, total: int, enabled: bool):
        self._bar = tqdm(
            total=total, initial=done, disable=not enabled, unit="step", dynamic_ncols=True, mininterval=1.0
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def advance(self, steps: int = 1) -> None:
        self._bar.update(steps)

    def over(self, rows: Sequence[int], name: str) -> Iterator[int]:
        """Yield these seeds one after the other, with a bar of their own."""
        yield from tqdm(rows, desc=name, disable=self._bar.disable or not rows, unit="seed", dynamic_ncols=True)

    def say(self, text: str) -> None:
        """Write a line above the bar."""
        if not self._bar.disable:
            self._bar.write(text)

    def show(self, states: Sequence[Any]) -> None:
        if any(s.validation_loss is not None for s in states):
            listed = " ".join(f"{s.seed}:{s.validation_loss:.3f} (best {s.best_loss:.3f})" for s in states[:8])
            self._bar.set_postfix_str(f"validation loss {listed}", refresh=False)
            return
        best = sorted(states, key=lambda s: -s.exact)[:8]
        listed = " ".join(f"{s.seed}:{s.exact:.3f}" for s in best)
        perfect = sum(s.best_exact == 1.0 for s in states)
        failed = sum(s.status == "failed" for s in states)
        lost = f", {failed} failed" if failed else ""
        self._bar.set_postfix_str(f"perfect {perfect}/{len(states)}{lost} · exact {listed}", refresh=False)
