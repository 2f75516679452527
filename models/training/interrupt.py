"""Ctrl-C and SIGTERM as a flag that is read between steps, so that only whole steps are saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class InterruptFlag:
    """While entered, the first Ctrl-C (or SIGTERM) only sets ``seen``; a second one interrupts at once.

    Outside the main thread, where Python does not allow handlers, it does nothing.
    """

    def __init__(self) -> None:
        self.seen = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> InterruptFlag:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True
