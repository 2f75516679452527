"""A question that takes longer than two seconds says on a terminal that it is at work, and for how long.

Loops that know their length draw bars of their own (:func:`interp.proofs.watch.watched`); while there is one, nothing
else is written.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

DELAY, EVERY = 2.0, 1.0  # seconds before the first sign of life, and between two


class _Pulse:
    """The outermost question of the main thread, and the thread that writes how long it has taken."""

    def __init__(self) -> None:
        self.asked: tuple[str, float] | None = None  # name and when it began
        self.width = 0  # of what is written
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None

    def beat(self, stream: Any) -> None:
        """Write the line, if a question has been at work for long enough and no bar is drawn."""
        with self.lock:
            if self.asked is None or self.bar_is_drawn():
                return
            name, began = self.asked
            if (seconds := time.monotonic() - began) >= DELAY:
                line = f"{name}: {seconds:.0f} s"
                stream.write("\r" + line.ljust(self.width))
                stream.flush()
                self.width = len(line)

    def end(self, stream: Any) -> None:
        """Take the line away again."""
        with self.lock:
            self.asked = None
            if self.width:
                stream.write("\r" + " " * self.width + "\r")
                stream.flush()
            self.width = 0

    @staticmethod
    def bar_is_drawn() -> bool:
        bars = sys.modules.get("tqdm")
        return bars is not None and bool(getattr(bars.tqdm, "_instances", ()))

    def run(self, stream: Any) -> None:
        while True:
            time.sleep(EVERY)
            self.beat(stream)


_pulse = _Pulse()


class asking:
    """A context in which a question is answered. It does nothing within another one, in other threads than the main
    one, and where standard error is no terminal."""

    def __init__(self, name: str):
        self.name, self.stream = name, None

    def __enter__(self) -> None:
        if _pulse.asked is not None or not sys.stderr or not sys.stderr.isatty():
            return
        if threading.current_thread() is not threading.main_thread():
            return
        self.stream, _pulse.asked = sys.stderr, (self.name, time.monotonic())
        if _pulse.thread is None or not _pulse.thread.is_alive():  # a forked process has none
            _pulse.thread = threading.Thread(target=_pulse.run, args=(self.stream,), daemon=True)
            _pulse.thread.start()

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            _pulse.end(self.stream)
