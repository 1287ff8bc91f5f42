"""What is shown of a long run: whole lines in a log, a bar that clears its line on a terminal, nothing if quiet."""

import io

import pytest
import rich.console

from fedjax_fraud.cli import progress
from fedjax_fraud.progress import Pace

PACE = Pace(1, 1, 4, 10, 45, rows=3_000_000, seconds=2.0, steps=40, num_steps=100)


class FailureError(Exception):
    """A late error."""


@pytest.fixture
def text():
    return io.StringIO()


def shown(text, *, terminal=False, quiet=False):
    console = rich.console.Console(file=text, force_terminal=terminal, width=120)
    return progress.Display(quiet, console)


def test_a_log_has_a_line_for_each_phase_and_a_line_about_rounds_at_most_every_five_seconds(text, monkeypatch):
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with shown(text) as display:
        display("compile", 0, 1)
        for done in range(1, 101):
            now += 0.125
            display.pace(PACE)
            display("rounds", done, 100)
        display("banks", 0, 1)
    lines = text.getvalue().splitlines()
    assert lines[0] == "fedjax-fraud: compile ..." and lines[-1] == "fedjax-fraud: banks ..."
    rounds = [line for line in lines if ": rounds " in line]
    assert [line.split(",")[0] for line in rounds] == [
        "fedjax-fraud: rounds 1%",
        "fedjax-fraud: rounds 41%",
        "fedjax-fraud: rounds 81%",
        "fedjax-fraud: rounds 100%",
    ]
    assert all(line.endswith(PACE.describe()) for line in rounds)
    assert "\x1b" not in text.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_quiet_shows_nothing(text, terminal):
    with shown(text, terminal=terminal, quiet=True) as display:
        display("compile", 0, 1)
        display.pace(PACE)
        display("rounds", 50, 100)
    assert text.getvalue() == ""


def test_a_terminal_has_one_live_line_with_the_pace(text):
    with shown(text, terminal=True) as display:
        display.pace(PACE)
        display("rounds", 50, 100)
        display._bar.refresh()
    assert "1.50 million rows a second, 0:00:03 left" in text.getvalue()
    assert " 50%" in text.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_a_late_error_comes_after_a_finished_line(text, terminal):
    """The cursor stands at the start of an empty line when the error is printed."""
    with pytest.raises(FailureError), shown(text, terminal=terminal) as display:
        display("rounds", 50, 100)
        if terminal:
            display._bar.refresh()
        raise FailureError
    if terminal:
        assert text.getvalue().rstrip().endswith("\x1b[2K")  # erase the line
    else:
        assert text.getvalue().endswith("\n")
