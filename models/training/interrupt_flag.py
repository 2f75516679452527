"""Ctrl-C, SIGTERM and SIGHUP as a flag that is read between steps, so that only whole steps are saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class InterruptFlag:
    """While entered, the first Ctrl-C, SIGTERM or SIGHUP (of a terminal that closes) only sets ``seen``; a second one
    interrupts at once. What the process ignores (under ``nohup``) stays ignored.

    Outside the main thread, where Python does not allow handlers, it does nothing.
    """

    def __init__(self) -> None:
        self.seen = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> InterruptFlag:
        if threading.current_thread() is threading.main_thread():
            numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
            ignored = [number for number in numbers if signal.getsignal(number) == signal.SIG_IGN]  # nohup
            self._previous = {n: signal.signal(n, self._note) for n in numbers if n not in ignored}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True
