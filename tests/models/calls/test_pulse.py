"""A long question says on a terminal that it is at work; a short one, and one elsewhere, writes nothing."""

from __future__ import annotations

import io
import threading
import time
from contextlib import redirect_stderr

import pytest

from models.calls import pulse
from models.calls.checked_calls import checked


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@checked
def takes(seconds: float) -> None:
    time.sleep(seconds)


@checked
def asks(seconds: float) -> None:
    takes(seconds)


@pytest.fixture
def terminal(monkeypatch) -> Terminal:
    monkeypatch.setattr(pulse, "DELAY", 0.1)
    monkeypatch.setattr(pulse, "EVERY", 0.02)
    monkeypatch.setattr(pulse._pulse, "thread", None)
    return Terminal()


def test_a_long_question_says_that_it_is_at_work_and_leaves_no_trace(terminal: Terminal):
    with redirect_stderr(terminal):
        asks(0.3)
    written = terminal.getvalue()
    assert "asks: 0 s" in written and "takes" not in written
    assert written.endswith("\r") and not written.rsplit("\r", 2)[1].strip()
    time.sleep(0.1)
    assert terminal.getvalue() == written


def test_a_short_question_and_one_of_another_thread_write_nothing(terminal: Terminal):
    thread = threading.Thread(target=takes, args=(0.3,))
    with redirect_stderr(terminal):
        takes(0.01)
        thread.start()
        thread.join()
    assert terminal.getvalue() == ""


def test_nothing_is_written_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(pulse, "DELAY", 0.0)
    with redirect_stderr(io.StringIO()) as elsewhere:
        takes(0.1)
    assert elsewhere.getvalue() == ""


def test_a_bar_stays_alone(terminal: Terminal):
    from tqdm import tqdm

    with tqdm(total=1, file=io.StringIO()), redirect_stderr(terminal):
        takes(0.3)
    assert terminal.getvalue() == ""
