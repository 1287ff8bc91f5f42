"""How far a sweep is and how fast it goes, counted from what was trained."""

import datetime
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Pace(NamedTuple):
    """How far the rounds of a sweep are.

    Attributes:
      program, num_programs: the compiled program that runs, from 1, and how many there are.
      round_index, num_rounds: its last finished round.
      num_settings: the settings that it trains side by side.
      rows: training rows visited so far by all programs, those before a resume included.
      seconds: wall time of their rounds, likewise.
      steps, num_steps: lane-steps so far and in all, as if everybody took part.
    """

    program: int
    num_programs: int
    round_index: int
    num_rounds: int
    num_settings: int
    rows: int
    seconds: float
    steps: float
    num_steps: int

    @property
    def rows_per_second(self) -> float:
        """``rows / seconds``; NaN before any time has passed."""
        return self.rows / self.seconds if self.seconds > 0 else math.nan

    @property
    def seconds_left(self) -> float:
        """Of the rounds, if the steps that are left take as long as those before; NaN before the first."""
        return self.seconds * (self.num_steps - self.steps) / self.steps if self.steps > 0 else math.nan

    def describe(self) -> str:
        """In words, for a line of progress."""
        many = f"program {self.program} of {self.num_programs}, " if self.num_programs > 1 else ""
        words = f"{many}round {self.round_index} of {self.num_rounds} of {self.num_settings} settings"
        if self.rows and self.seconds > 0:
            words += f", {self.rows_per_second / 1e6:.2f} million rows a second"
        if math.isfinite(self.seconds_left):
            words += f", {clock(self.seconds_left)} left"
        return words


class Counter:
    """Counts the rounds of a sweep's programs and tells who asked: ``progress``, and its ``pace`` if it has one.

    Args:
      progress: called with ("rounds", settings x rounds so far, in all).
      num_settings, num_steps: of each program; steps of all its rounds.
      num_rounds: of every program.
    """

    def __init__(
        self, progress: Callable, num_settings: Sequence[int], num_steps: Sequence[int], num_rounds: int
    ) -> None:
        self._progress, self._tell = progress, getattr(progress, "pace", None)
        self._num_settings, self._num_steps, self._num_rounds = num_settings, num_steps, num_rounds
        self._rounds, self._rows, self._seconds = ([0] * len(num_settings) for _ in range(3))

    def on_rounds(self, program: int, num_rounds: int, num_rows: int, seconds: float) -> None:
        """Takes note of rounds just finished.

        Args:
          program: which, from 0.
          num_rounds, num_rows: how many rounds, and the rows visited in them.
          seconds: wall time of all rounds of this program so far.
        """
        self._rounds[program] += num_rounds
        self._rows[program] += num_rows
        self._seconds[program] = seconds
        if self._tell is not None:
            self._tell(self._pace(program))
        done, total = (
            sum(each * rounds for each, rounds in zip(self._num_settings, counts, strict=True))
            for counts in (self._rounds, [self._num_rounds] * len(self._num_settings))
        )
        self._progress("rounds", done, total)

    def _pace(self, program: int) -> Pace:
        shares = [rounds / self._num_rounds for rounds in self._rounds]
        return Pace(
            program + 1,
            len(self._rounds),
            self._rounds[program],
            self._num_rounds,
            self._num_settings[program],
            sum(self._rows),
            sum(self._seconds),
            sum(share * steps for share, steps in zip(shares, self._num_steps, strict=True)),
            sum(self._num_steps),
        )


def clock(seconds: float) -> str:
    """A duration to the second, ``1:02:03``."""
    return str(datetime.timedelta(seconds=round(seconds)))
