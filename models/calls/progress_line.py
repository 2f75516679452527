"""What takes longer than two seconds says on a terminal that it is at work, and for how long.

Loops that know their length draw bars of their own (:func:`interp.proofs.verdict.time_limit.watched`); while there is
one, nothing else is written.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

DELAY, EVERY = 2.0, 0.5  # seconds before the first sign of life, and between two
AT_ONCE = 0.3  # seconds after the end of a question within which the next one goes on with its clock


class _Pulse:
    """The outermost question of the main thread, and the thread that writes how long it has taken."""

    def __init__(self) -> None:
        self.asked: tuple[str, float] | None = None  # name and when it began
        self.last = (0.0, 0.0)  # when the last one began and ended
        self.command = False  # whether that is a command, in which a question is answered
        self.width = 0  # of what is written
        self.within_line = False  # whether the output has begun a line
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None

    def beat(self, stream: Any) -> None:
        """Write the line, if a question has been at work for long enough and no bar is drawn."""
        with self.lock:
            bars = self.drawn_bars()
            for bar in bars:
                bar.refresh()  # its time goes on where an item takes long
            if self.asked is None or self.within_line or bars:
                return
            name, began = self.asked
            if (seconds := time.monotonic() - began) >= DELAY:
                line = f"{name}: {seconds:.0f} s"
                stream.write("\r" + line.ljust(self.width))
                stream.flush()
                self.width = len(line)

    def take_away(self, stream: Any) -> None:
        """Take the line away again, until the next beat."""
        with self.lock:
            if self.width:
                stream.write("\r" + " " * self.width + "\r")
                stream.flush()
            self.width = 0

    @staticmethod
    def drawn_bars() -> list[Any]:
        bars = getattr(getattr(sys.modules.get("tqdm"), "tqdm", None), "_instances", ())
        return [bar for bar in tuple(bars) if bar.delay <= 0 or bar.last_print_t > bar.start_t]

    def run(self, stream: Any) -> None:
        while True:
            time.sleep(EVERY)
            self.beat(stream)


_pulse = _Pulse()


class progress_line:
    """A context in which a question is answered. It does nothing within another one, in other threads than the main
    one, and where standard error is no terminal."""

    def __init__(self, name: str):
        self.name, self.stream = name, None

    def __enter__(self) -> None:
        if (_pulse.asked is not None and not _pulse.command) or not sys.stderr or not sys.stderr.isatty():
            return
        if threading.current_thread() is not threading.main_thread():
            return
        self.stream, self.before = sys.stderr, (_pulse.asked, _pulse.command)
        now, (began, ended) = time.monotonic(), _pulse.last
        if _pulse.asked is not None:
            now = _pulse.asked[1]  # the clock of a command goes on with its questions
        elif now - ended < AT_ONCE:
            now = began
        _pulse.asked = (self.name, now)
        _pulse.command = False
        if _pulse.thread is None or not _pulse.thread.is_alive():  # a forked process has none
            _pulse.thread = threading.Thread(target=_pulse.run, args=(self.stream,), daemon=True)
            _pulse.thread.start()

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            if _pulse.asked is not None:
                _pulse.last = (_pulse.asked[1], time.monotonic())
            _pulse.asked, _pulse.command = self.before
            _pulse.take_away(self.stream)


def doing(what: str) -> None:
    """Say what the question that is at work does now, such as which method it tries."""
    if _pulse.asked is not None and not _pulse.command:
        name, began = _pulse.asked
        _pulse.asked = f"{name.partition(', ')[0]}, {what}", began


class _Output:
    """Standard output, before which the line is taken away."""

    def __init__(self, output: Any, stream: Any):
        self.output, self.stream = output, stream

    def write(self, text: str) -> int:
        _pulse.take_away(self.stream)
        _pulse.within_line = not text.endswith("\n") if text else _pulse.within_line
        return self.output.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.output, name)


@contextmanager
def commanded(name: str) -> Iterator[None]:
    """A context in which a command runs: it imports, asks questions, each under its own name, and prints."""
    with progress_line(name):
        if _pulse.asked is None or not sys.stdout:
            yield
            return
        _pulse.command = True
        output: Any = _Output(sys.stdout, sys.stderr)
        with redirect_stdout(output):
            yield
