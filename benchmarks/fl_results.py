"""A record of `run_fl_benchmark.py` as numbers: spreads over the repeats, times by phase, and ratios."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.peers import work

COLD, WARM = "fedjax_fraud, cold", "fedjax_fraud, warm"


class Spread(NamedTuple):
    """Median, smallest and largest over the repeats."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.low == self.high:
            return digits(self.median)
        return f"{digits(self.median)} [{digits(self.low)}, {digits(self.high)}]"


def spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def digits(value: float) -> str:
    """Three significant digits, never in powers of ten."""
    if value == 0:
        return "-"
    if not math.isfinite(value):
        return str(value)
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


class Record:
    """The runs of a record that ended well, by case and contender."""

    def __init__(self, record: dict):
        self.record = record
        self.failed = [run for run in record["runs"] if "error" in run]
        self._runs: dict[tuple[str, str], dict[int, dict]] = {}
        for run in record["runs"]:
            if "error" not in run:
                self._runs.setdefault((run["case"], run["contender"]), {})[run["repeat"]] = run

    def contenders(self, case: str) -> list[str]:
        """In the order in which they ran."""
        return [contender for of_case, contender in self._runs if of_case == case]

    def runs(self, case: str, contender: str) -> dict[int, dict]:
        """By repeat; empty if there are none."""
        return self._runs.get((case, contender), {})

    def first(self, case: str, contender: str) -> dict:
        """The run that has the final scores."""
        return self.runs(case, contender)[0]

    def spread(self, case: str, contender: str, value: Callable[[dict], float]) -> Spread:
        return spread([value(run) for run in self.runs(case, contender).values()])

    def gflops_per_core(self) -> Spread | None:
        """The fastest matrix product, whatever its size."""
        runs = self.runs("", "floor").values()
        return spread([max(run["gflops_per_core"].values()) for run in runs]) if runs else None

    def floor_seconds(self, run: dict) -> float | None:
        """What the run's operations take at the rate of the fastest matrix product on all cores."""
        rate = self.gflops_per_core()
        if rate is None:
            return None
        flops = work.flops(run["num_settings"], run["num_rounds"])
        return flops / (1e9 * rate.median * self.first("", "floor")["cores"])


def whole(run: dict) -> float:
    return run["whole_seconds"]


def rounds(run: dict) -> float:
    return run["seconds"]["run"]


def warm_up(run: dict) -> float:
    """Compiling, or Flower's start of Ray."""
    return run["seconds"].get("warm_up", 0.0)


def imports(run: dict) -> float:
    return run["seconds"]["import"]


def other(run: dict) -> float:
    """All but compiling or warming up, and the rounds."""
    return whole(run) - rounds(run) - warm_up(run)


# ---- ratios -----------------------------------------------------------------------------------------------------


class Ratio(NamedTuple):
    """A row of the table of ratios: another's seconds over ours, taken within each repeat.

    Attributes:
      what: which seconds.
      case, contender: of the other.
      our_case, ours: of this package.
      value: run -> seconds, of both sides.
      extrapolate: None, or (the other's run, number of settings) -> seconds.
    """

    what: str
    case: str
    contender: str
    our_case: str
    ours: str
    value: Callable[[dict], float]
    extrapolate: Callable[[dict, int], float] | None = None

    def their_seconds(self, theirs: dict, ours: dict) -> float:
        """The other's seconds; for as many settings as our run has, if extrapolated."""
        return self.extrapolate(theirs, ours["num_settings"]) if self.extrapolate else self.value(theirs)


def _ratios() -> list[Ratio]:
    numpy2, one = "NumPy, 2 processes", "k10-fedavg"
    result = [Ratio("rounds alone", "sweep27", "PyTorch, 1 process", "sweep27", WARM, rounds)]
    result += [Ratio("rounds alone", case, numpy2, case, WARM, rounds) for case in ("sweep27", "sweep270")]
    result += [
        Ratio("whole", case, numpy2, case, ours, whole) for case in ("sweep27", "sweep270") for ours in (COLD, WARM)
    ]
    result += [Ratio("whole", "sweep27", "PyTorch, 2 processes", "sweep27", ours, whole) for ours in (COLD, WARM)]
    for ours in (COLD, WARM):
        result += [
            Ratio("whole, times settings", one, "Flower", "sweep27", ours, whole, lambda run, num: num * whole(run)),
            Ratio(
                "whole, one start",
                one,
                "Flower",
                "sweep27",
                ours,
                whole,
                lambda run, num: whole(run) + (num - 1) * rounds(run),
            ),
        ]
    others = ("pfl, 1 process", "pfl, 2 processes", "Flower", "NumPy, 1 process", "PyTorch, 1 process")
    result += [Ratio("whole", one, contender, one, WARM, whole) for contender in others]
    return [
        *result,
        Ratio("rounds alone", "skewed9", "fedjax_fraud, padded", "skewed9", "fedjax_fraud, packed", rounds),
    ]


class Quotient(NamedTuple):
    """A ratio as measured: the seconds of both sides, and their quotient within each repeat."""

    ratio: Ratio
    theirs: Spread
    ours: Spread
    quotient: Spread


def quotients(record: Record) -> list[Quotient]:
    """Every ratio that the runs allow."""
    result = []
    for ratio in _ratios():
        theirs, ours = record.runs(ratio.case, ratio.contender), record.runs(ratio.our_case, ratio.ours)
        repeats = sorted(theirs.keys() & ours.keys())
        if not repeats:
            continue
        seconds = [ratio.their_seconds(theirs[i], ours[i]) for i in repeats]
        our_seconds = [ratio.value(ours[i]) for i in repeats]
        quotient = spread([a / b for a, b in zip(seconds, our_seconds, strict=True)])
        result.append(Quotient(ratio, spread(seconds), spread(our_seconds), quotient))
    return result
