"""A long question says on a terminal that it is at work; a short one, and one elsewhere, writes nothing."""

from __future__ import annotations

import io
import threading
import time
from contextlib import redirect_stderr, redirect_stdout

import pytest

from models.calls import progress_line
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
    monkeypatch.setattr(progress_line, "DELAY", 0.1)
    monkeypatch.setattr(progress_line, "EVERY", 0.02)
    monkeypatch.setattr(progress_line._pulse, "thread", None)
    monkeypatch.setattr(progress_line._pulse, "last", (0.0, 0.0))
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
    monkeypatch.setattr(progress_line, "DELAY", 0.0)
    with redirect_stderr(io.StringIO()) as elsewhere:
        takes(0.1)
    assert elsewhere.getvalue() == ""


def test_a_bar_stays_alone(terminal: Terminal):
    from tqdm import tqdm

    with tqdm(total=1, file=io.StringIO()), redirect_stderr(terminal):
        takes(0.3)
    assert terminal.getvalue() == ""


def test_a_command_names_its_question_and_prints_where_the_line_was(terminal: Terminal):
    output = io.StringIO()
    with redirect_stderr(terminal), redirect_stdout(output), progress_line.commanded("starting"):
        time.sleep(0.2)
        asks(0.2)
        before = terminal.getvalue()
        print("said")
        assert terminal.getvalue().rsplit("\r", 2)[1].strip() == ""
    assert "starting: 0 s" in before and "asks: 0 s" in before and "takes" not in before
    assert output.getvalue() == "said\n"


def test_a_bar_that_is_not_drawn_yet_leaves_the_line(terminal: Terminal):
    from tqdm import tqdm

    with redirect_stderr(terminal), tqdm(total=9, file=io.StringIO(), delay=60):
        takes(0.3)
    assert "takes: 0 s" in terminal.getvalue()


def test_a_question_says_what_it_does_now(terminal: Terminal):
    @checked
    def tries() -> None:
        progress_line.doing("the first way")
        time.sleep(0.2)
        progress_line.doing("the second way")
        time.sleep(0.2)

    with redirect_stderr(terminal):
        tries()
    assert "tries, the first way: 0 s" in terminal.getvalue() and "tries, the second way: 0 s" in terminal.getvalue()


def test_short_questions_one_after_the_other_are_one_wait(terminal: Terminal):
    with redirect_stderr(terminal):
        for _ in range(8):
            takes(0.05)
    assert "takes: 0 s" in terminal.getvalue()
