"""What a reproduction found: lines of a table, ours beside theirs, with a verdict; tables and pictures beside them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedjax_fraud.report.intervals import Interval, mean_interval

HOLDS, FAILS, UNDECIDED, NOT_TESTED = "holds", "does not hold", "undecided", "not tested"


class Line(NamedTuple):
    """One published number or statement.

    Attributes:
      what: what is compared.
      theirs: the published value.
      ours: the engine's.
      verdict: ``HOLDS``, ``FAILS``, ``UNDECIDED`` (the interval holds both answers) or ``NOT_TESTED``.
      why: what a reader has to know of it.
    """

    what: str
    theirs: str
    ours: str
    verdict: str
    why: str = ""


class Table(NamedTuple):
    """A table of the page."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


class Outcome(NamedTuple):
    """A reproduction's result.

    Attributes:
      key, title: "R1" and its name.
      source: whose result it is.
      setup: how it was run, in whole sentences; one paragraph each.
      lines: the verdicts.
      tables: what stands behind them.
      pictures: file name without ending -> (caption, ``Figure``).
      record: what is kept as JSON beside the lines.
    """

    key: str
    title: str
    source: str
    setup: Sequence[str]
    lines: Sequence[Line]
    tables: Sequence[Table] = ()
    pictures: Mapping[str, tuple[str, Any]] = {}
    record: Any = None


def verdict(holds: bool) -> str:
    """The verdict of a statement that can be told without an interval."""
    return HOLDS if holds else FAILS


def sign_verdict(interval: Interval) -> str:
    """Whether a difference is above 0, by its 95 % interval."""
    if not np.isfinite(interval.low):
        return UNDECIDED
    return HOLDS if interval.low > 0 else FAILS if interval.high < 0 else UNDECIDED


def show(
    values: Interval | Sequence[float] | np.ndarray, digits: int = 3, scale: float = 1.0, sign: bool = False
) -> str:
    """Mean [95 % interval] of values or of an ``Interval``."""
    one = values if isinstance(values, Interval) else mean_interval(np.asarray(values, np.float64))
    plus = "+" if sign else ""
    if not np.isfinite(one.low):
        return f"{one.mean * scale:{plus}.{digits}f}"
    return (
        f"{one.mean * scale:{plus}.{digits}f} [{one.low * scale:{plus}.{digits}f}, {one.high * scale:{plus}.{digits}f}]"
    )


def show_factor(logarithm: Interval, digits: int = 2) -> str:
    """The interval of a logarithm as a factor."""
    return show(
        logarithm._replace(**{name: np.exp(getattr(logarithm, name)) for name in ("mean", "low", "high")}), digits
    )
