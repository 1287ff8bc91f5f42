"""Intervals of means: 95 % Student t, within the range that a score can have."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import stdtrit

_CONFIDENCE = 0.95

ANYWHERE, SHARE, NOT_NEGATIVE = (-np.inf, np.inf), (0.0, 1.0), (0.0, np.inf)
"""Ranges that a score can lie in; the second is that of a probability."""


class Interval(NamedTuple):
    """A mean and its 95 % t interval.

    Attributes:
      mean: mean of the finite values; NaN if there are none.
      low: lower bound; NaN for fewer than two values.
      high: upper bound; NaN for fewer than two values.
      n: how many finite values there were.
      num_dropped: how many values were left out because they are not finite.
    """

    mean: float
    low: float
    high: float
    n: int
    num_dropped: int


def mean_interval(
    values: Float[np.ndarray, " seeds"] | pd.Series | list | tuple, within: tuple[float, float] = ANYWHERE
) -> Interval:
    r"""Mean over seeds with a 95 % Student t interval, ``mean ± t_{0.975, n-1} s / sqrt(n)``.

    With few seeds the interval can reach where no score lies. It is cut at the ends of ``within``, which loses no
    coverage: the mean lies there too.

    Args:
      values: one number per seed; values that are not finite are dropped and counted.
      within: the smallest and the largest value that the score can have.

    Returns: an ``Interval``; its bounds are NaN for ``n < 2``, its mean is NaN for ``n = 0``.

    Example:
      >>> [round(float(x), 3) for x in mean_interval([1.0, 2.0, 3.0])]
      [2.0, -0.484, 4.484, 3.0, 0.0]
      >>> [round(float(x), 3) for x in mean_interval([0.1, 0.2, 0.6], within=SHARE)]
      [0.3, 0.0, 0.957, 3.0, 0.0]
    """
    given = np.asarray(values, dtype=np.float64)
    kept = given[np.isfinite(given)]
    n = int(kept.size)
    if n == 0:
        return Interval(np.nan, np.nan, np.nan, 0, int(given.size))
    mean = float(kept.mean())
    half = np.nan
    if n > 1:
        half = float(stdtrit(n - 1, (1 + _CONFIDENCE) / 2) * kept.std(ddof=1) / np.sqrt(n))
    low, high = np.clip([mean - half, mean + half], *within)
    return Interval(mean, float(low), float(high), n, int(given.size) - n)


def mean_intervals(frame: pd.DataFrame, keys: list[str], within: Mapping[str, tuple[float, float]]) -> pd.DataFrame:
    """``mean_interval`` of several columns for each group of rows, without a loop over the groups.

    Args:
      frame: the rows; values that are not finite are dropped.
      keys: the columns that make a group; NaN is a value like any other.
      within: the columns to average, and the range of each.

    Returns: the keys, in rising order, and each name with ``_low`` and ``_high``.
    """
    names = list(within)
    values = frame[names].astype(np.float64)
    groups = frame[keys].assign(**values.where(np.isfinite(values))).groupby(keys, dropna=False, sort=True)
    mean, count = groups.mean(), groups.count()
    several = count.where(count > 1)
    half = stdtrit(several - 1, (1 + _CONFIDENCE) / 2) * groups.std() / np.sqrt(several)
    lowest, highest = (pd.Series({name: ends[side] for name, ends in within.items()}) for side in (0, 1))
    low, high = ((mean + side * half).clip(lowest, highest, axis=1) for side in (-1, 1))
    bounds = {"": mean, "_low": low, "_high": high}
    columns = {f"{name}{end}": table[name] for name in names for end, table in bounds.items()}
    return pd.DataFrame(columns).reset_index()


def with_bounds(name: str, interval: Interval) -> dict[str, float]:
    """The three columns of a mean: ``name``, ``name_low``, ``name_high``."""
    return {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
