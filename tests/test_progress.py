"""Progress adds up: rows, time, steps, and what is left of them."""

import math

import pytest

from fedjax_fraud import progress


class Watcher:
    """Keeps what it is told."""

    def __init__(self):
        self.paces, self.calls = [], []

    def pace(self, pace):
        self.paces.append(pace)

    def __call__(self, *call):
        self.calls.append(call)


def test_two_programs_by_hand():
    """Programs of 3 and 2 settings, 10 rounds, 900 and 100 steps in all."""
    watcher = Watcher()
    counter = progress.Counter(watcher, [3, 2], [900, 100], 10)
    counter.on_rounds(0, 4, 1000, 2.0)
    assert watcher.calls == [("rounds", 12, 50)]
    pace = watcher.paces[-1]
    assert (pace.program, pace.num_programs, pace.round_index, pace.num_settings) == (1, 2, 4, 3)
    assert pace.rows_per_second == 500
    assert pace.seconds_left == pytest.approx(2.0 * (1000 - 360) / 360)
    counter.on_rounds(0, 6, 1500, 5.0)  # the program's seconds are all of it so far
    counter.on_rounds(1, 5, 200, 1.0)
    pace = watcher.paces[-1]
    assert watcher.calls[1:] == [("rounds", 30, 50), ("rounds", 40, 50)]
    assert (pace.program, pace.round_index, pace.rows, pace.seconds) == (2, 5, 2700, 6.0)
    assert pace.rows_per_second == 2700 / 6
    assert pace.seconds_left == pytest.approx(6.0 * 50 / 950)
    counter.on_rounds(1, 5, 200, 2.0)
    assert watcher.paces[-1].seconds_left == 0


def test_what_a_resumed_run_had_done_before_counts():
    """The first call brings the rounds, rows and seconds of the checkpoint."""
    watcher = Watcher()
    counter = progress.Counter(watcher, [1], [100], 10)
    counter.on_rounds(0, 8, 800, 4.0)
    counter.on_rounds(0, 1, 100, 4.5)
    assert watcher.paces[-1].rows_per_second == 200
    assert watcher.paces[-1].seconds_left == pytest.approx(0.5)


def test_round_0_has_no_pace_yet():
    watcher = Watcher()
    progress.Counter(watcher, [1], [100], 10).on_rounds(0, 0, 0, 0.0)
    pace = watcher.paces[0]
    assert math.isnan(pace.rows_per_second) and math.isnan(pace.seconds_left)
    assert pace.describe() == "round 0 of 10 of 1 settings"


def test_a_plain_function_is_called_as_ever():
    calls = []
    progress.Counter(lambda what, done, total: calls.append((what, done, total)), [2], [1], 3).on_rounds(0, 3, 5, 1.0)
    assert calls == [("rounds", 6, 6)]


def test_the_words_hold_the_numbers():
    pace = progress.Pace(2, 3, 4, 10, 45, rows=3_000_000, seconds=2.0, steps=40, num_steps=100)
    assert pace.describe() == ("program 2 of 3, round 4 of 10 of 45 settings, 1.50 million rows a second, 0:00:03 left")
