"""The columns of a table -> float32 features, as its encoding says, before anything is fitted.

A number keeps its value and its gaps (NaN). What is fitted on training rows alone (fills, logarithms, categories,
scales) is in ``preprocessing.py``.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from fedjax_fraud.data import cells, encoding, readers
from fedjax_fraud.data.encoding import Column, Encoding

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
HOURS_PER_SECOND = 1 / 3600
FEATURE_KINDS = (encoding.NUMBER, encoding.SIGNED_LOG, encoding.BINARY, encoding.CATEGORY, encoding.DATE)


def encode(frame: pd.DataFrame, plan: Encoding, where: readers.Where) -> np.ndarray:
    """The features of a table.

    Args:
      frame: has every column of which ``plan`` makes features, and the time column if it makes any of that.
      plan: the encoding.
      where: row number from 0 -> where that is, for messages.
    Returns: ``[rows, features]`` float32, NaN in gaps, in the order of ``feature_columns(plan)``. A category that
      ``plan`` does not know gives 0 in every indicator of its column.
    Raises: ValueError if a column is missing, or a number column holds what is no number.
    """
    frame = frame.rename(columns=str)
    check_columns(frame, plan)
    names = list(feature_columns(plan))
    features = np.empty((len(frame), len(names)), np.float32)
    for column in plan.columns:
        for name, values in _features(frame, column, plan, where).items():
            features[:, names.index(name)] = values
    return features


def feature_columns(plan: Encoding) -> dict[str, str]:
    """The name of every feature that ``encode`` makes, in order -> the column that it comes from."""
    return {name: column.name for column in plan.columns for name in feature_names(column)}


def feature_names(column: Column) -> list[str]:
    """The names of the features that one column gives."""
    if column.kind in (encoding.NUMBER, encoding.SIGNED_LOG, encoding.BINARY):
        return [column.name]
    if column.kind == encoding.CATEGORY:
        return [indicator_name(column.name, value) for value in column.categories]
    made = {
        "hour": ["hour_sin", "hour_cos"],
        "weekday": [f"weekday={day}" for day in DAYS],
        "day_of_seven": [f"day_of_seven={day}" for day in range(7)],
    }
    return [f"{column.name}.{name}" for part in column.parts for name in made.get(part, [part])]


def check_columns(frame: pd.DataFrame, plan: Encoding) -> None:
    """Raises ValueError if the table lacks a column that features are made of."""
    needed = [one.name for one in plan.columns if one.kind in FEATURE_KINDS or one.parts]
    if any("age_days" in one.parts for one in plan.columns):
        needed.append(plan.named(encoding.TIME))
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        found = ", ".join(map(str, frame.columns))
        raise ValueError(f"`frame` lacks the column `{missing[0]}`, which the features need. It has {found}. Add it.")


def _features(frame: pd.DataFrame, column: Column, plan: Encoding, where: readers.Where) -> Mapping[str, np.ndarray]:
    """name -> ``[rows]`` of one column; empty if it gives none."""
    if column.kind in (encoding.NUMBER, encoding.SIGNED_LOG, encoding.BINARY):
        return {column.name: float32_numbers(cells.tidy(frame[column.name], keep_codes=False), where)}
    if column.kind == encoding.CATEGORY:
        return _indicators(frame[column.name], column)
    if column.parts:
        return _clock_features(frame, column, plan, where)
    return {}


def float32_numbers(column: pd.Series, where: readers.Where) -> np.ndarray:
    """A tidy column of numbers as float32, gaps NaN. Raises ValueError where it does not fit."""
    values = cells.finite_numbers(column, where)
    too_large = np.abs(values) > np.finfo(np.float32).max
    readers.refuse_first(too_large, values, f"`{column.name}` must fit float32", readers.CORRECT_VALUE, where)
    return values.astype(np.float32)


def category_codes(column: pd.Series, categories: tuple) -> np.ndarray:
    """The position of each row's value in ``categories``, -1 for none; None among them stands for a gap."""
    known = [value for value in categories if value is not None]
    is_text = all(isinstance(value, str) for value in known)
    values = cells.raw_text(column) if is_text else cells.tidy(column, keep_codes=False)
    gaps = values.isna().to_numpy()
    position = pd.Index(known).get_indexer(pd.Index(values))
    position[gaps] = -1
    if len(known) == len(categories):
        return position
    place = categories.index(None)
    position[position >= place] += 1
    position[gaps] = place
    return position


def indicator_name(column: str, value: object) -> str:
    """The name of the feature that says whether ``column`` has ``value``."""
    return f"{column} is missing" if value is None else f"{column}={value}"


def _indicators(values: pd.Series, column: Column) -> dict[str, np.ndarray]:
    codes = category_codes(values, column.categories)
    return {indicator_name(column.name, value): codes == at for at, value in enumerate(column.categories)}


def clock_hours(column: pd.Series, hours_per_unit: float | int | None) -> np.ndarray | None:
    """A tidy time column in hours of the clock on the wall (dates) or of its own clock; None without a unit."""
    if cells.is_date(column):
        return cells.wall_seconds(column) * HOURS_PER_SECOND
    return None if hours_per_unit is None else column.to_numpy(np.float64) * hours_per_unit


def _clock_features(frame: pd.DataFrame, column: Column, plan: Encoding, where: readers.Where) -> dict[str, np.ndarray]:
    """The hour, the weekday and the age of a date or time column, as far as ``column.parts`` asks for them."""
    name, values = column.name, cells.tidy(frame[column.name], keep_codes=False)
    if column.kind == encoding.DATE or "weekday" in column.parts or isinstance(column.low, str):
        _check_dates(values)
    else:
        cells.finite_numbers(values, where)
    hours = clock_hours(values, plan.hours_per_unit)
    made = {}
    if "age_days" in column.parts:
        made[f"{name}.age_days"] = (_row_seconds(frame, plan) - cells.seconds(values)) / 86400
    if "days" in column.parts:
        made[f"{name}.days"] = cells.seconds(values) / 86400
    if "hour" in column.parts:
        angle = hours % 24 * (2 * np.pi / 24)
        made |= {f"{name}.hour_sin": np.sin(angle), f"{name}.hour_cos": np.cos(angle)}
    if "weekday" in column.parts:
        day = (np.floor(hours / 24) + 3) % 7  # 1 January 1970 was a Thursday
        made |= {f"{name}.weekday={text}": day == at for at, text in enumerate(DAYS)}
    if "day_of_seven" in column.parts:
        day = np.floor(hours / 24) % 7
        made |= {f"{name}.day_of_seven={at}": day == at for at in range(7)}
    return made


def _row_seconds(frame: pd.DataFrame, plan: Encoding) -> np.ndarray:
    times = cells.tidy(frame[plan.named(encoding.TIME)])
    _check_dates(times)
    return cells.seconds(times)


def _check_dates(column: pd.Series) -> None:
    """Raises ValueError unless a tidy column holds dates, or nothing at all."""
    if not (cells.is_date(column) or column.isna().all()):
        raise ValueError(f"`{column.name}` must hold dates, as it did in training. Write them as 2026-01-31 12:00:00.")
