"""Any labelled table -> Transactions: CSV, Parquet, or a pandas DataFrame."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from fedjax_fraud import checks
from fedjax_fraud.data import readers
from fedjax_fraud.types import Transactions

MAX_CATEGORIES = 50


def load_table(
    path_or_frame: str | Path | pd.DataFrame,
    label: str,
    silo: str | None = None,
    time: str | None = None,
    amount: str | None = None,
    drop: Iterable[str] = (),
    categories: Mapping[str, Sequence] | None = None,
    hours_per_unit: float | int | None = None,
) -> Transactions:
    """Loads a table with a 0/1 label; every column without another role becomes features.

    Numeric columns stay as they are, booleans become 0 and 1, text columns become one indicator ``column=value`` for
    each of their values, sorted. Nothing is filled in: a gap is an error, except in a dropped column.

    Args:
      path_or_frame: a CSV file (plain or ``.gz``), a Parquet file (``.parquet``), or a DataFrame.
      label: the column with 1 for fraud, 0 for genuine (or True and False).
      silo: the column that names the owner of each row; not a feature.
      time: the column to split by; not a feature. A date becomes seconds since 1970.
      amount: the column with the money at stake; remains a feature.
      drop: columns to leave out: names, row numbers, and whatever is known only after the fact.
      categories: column -> the values it may have, which fixes the indicators and their order, so that two files get
        the same features. Works for numeric codes too. Without it, text may have at most 50 values.
      hours_per_unit: what one unit of ``time`` is in hours, for budgets of alerts per day; known for dates.
    Returns: the transactions in table order; ``accounts`` is empty and ``rule_alarm`` None.
    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a column is missing or cannot be a feature, a value is not allowed (the message names column,
        value and place), or the table has no fraud or nothing but fraud.
    """
    if hours_per_unit is not None:
        checks.check_positive("hours_per_unit", hours_per_unit)
    frame, source, where = _read(path_or_frame)
    drop, categories = _names(drop), dict(categories or {})
    roles = {"label": label, "silo": silo, "time": time, "amount": amount}
    _check_columns(frame, roles, drop, categories, source)
    labels = _labels(frame[label], where)
    readers.check_both_classes(labels, label, source)
    columns = {}
    for name in frame.columns:
        if name not in (label, silo, time, *drop):
            columns |= _feature_columns(frame[name], categories.get(name), where)
    if not columns:
        raise ValueError(f"`drop` leaves no feature column in {source}. Drop less.")
    return Transactions(
        features=np.stack(list(columns.values()), axis=1),
        labels=labels,
        names=tuple(columns),
        amount=None if amount is None else _numbers(frame[amount], where),
        time=None if time is None else _time(frame[time], where),
        silo=None if silo is None else _silo(frame[silo], where),
        source=source,
        hours_per_unit=_unit(frame, time, hours_per_unit),
    )


def _unit(frame: pd.DataFrame, time: str | None, hours_per_unit: float | int | None) -> float | int | None:
    """The unit of the time column in hours: a date becomes seconds, of any other the user must say it."""
    if time is not None and hours_per_unit is None and pd.api.types.is_datetime64_any_dtype(frame[time]):
        return 1 / 3600
    return hours_per_unit


def _read(path_or_frame: str | Path | pd.DataFrame) -> tuple[pd.DataFrame, str, readers.Where]:
    """The table, what to call it, and where its rows are."""
    if isinstance(path_or_frame, pd.DataFrame):
        return path_or_frame, "DataFrame", lambda row: f"row {row + 1} of the table"
    path = readers.check_file(path_or_frame)
    if path.suffix == ".parquet":
        try:
            table = pa.parquet.read_table(path)
        except (pa.ArrowInvalid, OSError) as error:
            raise ValueError(f"`path_or_frame` {path.name} is not a Parquet file. Copy it again.") from error
        return table.to_pandas(date_as_object=False), path.name, lambda row: f"row {row + 1} of {path.name}"
    return readers.read_csv(path).to_pandas(date_as_object=False), path.name, partial(readers.line_of, path)


def _names(drop: Iterable[str]) -> tuple[str, ...]:
    return (drop,) if isinstance(drop, str) else tuple(drop)


def _check_columns(
    frame: pd.DataFrame, roles: Mapping[str, str | None], drop: Sequence[str], categories: Mapping, source: str
) -> None:
    """Every named column exists once, and no column has two roles that exclude each other."""
    if not frame.columns.is_unique:
        repeated = frame.columns[frame.columns.duplicated()][0]
        raise ValueError(f"`path_or_frame` has more than one column `{repeated}`. Rename or remove one.")
    asked = [(role, name) for role, name in roles.items() if name is not None]
    asked += [("drop", name) for name in drop] + [("categories", name) for name in categories]
    for role, name in asked:
        if name not in frame.columns:
            found = ", ".join(map(str, frame.columns))
            raise ValueError(f"`{role}` names `{name}`, which is missing from {source}. Choose from {found}.")
    if label_role := [role for role, name in asked if name == roles["label"] and role != "label"]:
        raise ValueError(f"`{label_role[0]}` is the label column `{roles['label']}`. Name another column.")


def _labels(column: pd.Series, where: readers.Where) -> np.ndarray:
    """The label column as int32."""
    _refuse_gaps(column, where)
    if _is_text(column):
        text = column.to_numpy(object)
        readers.refuse_first(text == column.name, text, *_header_rule(column.name), where)
        rule = f"`{column.name}` must be 1 (fraud) or 0 (genuine)"
        number = np.array([float(value) if readers.is_number(value) else np.nan for value in text])
        readers.refuse_first(np.isnan(number), text, rule, "Write the label as 1 and 0, or drop the row.", where)
        return readers.check_labels(number, str(column.name), where)
    return readers.check_labels(column.to_numpy(np.float64), str(column.name), where)


def _header_rule(name: str) -> tuple[str, str]:
    return f"`{name}` has its own name as a value (a repeated header)", "Remove that line."


def _feature_columns(column: pd.Series, categories: Sequence | None, where: readers.Where) -> dict[str, np.ndarray]:
    """The float32 features of one column: itself, or an indicator for each of its values."""
    if categories is None and not _is_text(column):
        return {str(column.name): _float32(column, where)}
    _refuse_gaps(column, where)
    known = _found_categories(column, where) if categories is None else list(categories)
    position = pd.Index(known).get_indexer(column)
    rule = f"`{column.name}` must be one of its `categories` {known}"
    remedy = "Add the value to `categories`, or remove the row."
    readers.refuse_first(position < 0, column.to_numpy(object), rule, remedy, where)
    return {f"{column.name}={value}": (position == at).astype(np.float32) for at, value in enumerate(known)}


def _found_categories(column: pd.Series, where: readers.Where) -> list[str]:
    """The sorted values of a text column that is what it seems to be."""
    found = sorted(column.astype(str).unique())
    if column.name in found:
        text = column.to_numpy(object)
        readers.refuse_first(text == column.name, text, *_header_rule(str(column.name)), where)
    _refuse_text_among_numbers(column, found, where)
    if len(found) > MAX_CATEGORIES:
        raise ValueError(
            f"`{column.name}` is text with {len(found)} different values, at most {MAX_CATEGORIES} can be features. "
            f"Put it in `drop` if it is a name or a number of a row, or list its values in `categories`."
        )
    return found


def _refuse_text_among_numbers(column: pd.Series, found: Sequence[str], where: readers.Where) -> None:
    """A column whose values are mostly numbers is a number column with a slip in it, not text."""
    odd = {value for value in found if not readers.is_number(value)}
    with_commas = {value for value in odd if readers.is_number(value.replace(",", ""))}
    if len(found) - len(odd) + len(with_commas) <= len(found) / 2:
        return
    row = int(np.argmax(column.isin(list(odd)).to_numpy()))
    message = readers.text_for_number(str(column.name), str(column.iloc[row]))
    raise ValueError(message.format(place=where(row)) + " Or list the values in `categories`.")


def _is_text(column: pd.Series) -> bool:
    """Text in any of the ways in which pandas holds it."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return all(isinstance(value, str) for value in column.cat.categories)
    if isinstance(column.dtype, pd.StringDtype):
        return True
    return column.dtype == object and pd.api.types.infer_dtype(column, skipna=True) == "string"


def _refuse_gaps(column: pd.Series, where: readers.Where) -> None:
    """No empty cell, whatever pandas writes for one."""
    empty = column.isna().to_numpy() | (column.to_numpy(object) == "" if _is_text(column) else False)
    rule, remedy = (
        f"`{column.name}` must have a value in every row",
        "Fill it in, remove the row, or `drop` the column.",
    )
    readers.refuse_first(empty, np.full(empty.size, np.nan), rule, remedy, where)


def _numbers(column: pd.Series, where: readers.Where) -> np.ndarray:
    """A numeric or boolean column as finite float64."""
    _refuse_gaps(column, where)
    if not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)):
        raise ValueError(
            f"`{column.name}` must hold numbers, got values of type {column.dtype}. Convert it, or put it in `drop`."
        )
    values = column.to_numpy(np.float64)
    rule = f"`{column.name}` must be finite"
    readers.refuse_first(~np.isfinite(values), values, rule, readers.CORRECT_VALUE, where)
    return values


def _float32(column: pd.Series, where: readers.Where) -> np.ndarray:
    """A numeric column as float32. Raises ValueError where it does not fit."""
    values = _numbers(column, where)
    too_large = np.abs(values) > np.finfo(np.float32).max
    readers.refuse_first(too_large, values, f"`{column.name}` must fit float32", "Rescale the column.", where)
    return values.astype(np.float32)


def _time(column: pd.Series, where: readers.Where) -> np.ndarray:
    """Integers as they are, dates as seconds since 1970, other numbers as float64."""
    _refuse_gaps(column, where)
    if pd.api.types.is_datetime64_any_dtype(column):
        return column.to_numpy("datetime64[us]").astype(np.int64) / 1e6
    if pd.api.types.is_integer_dtype(column):
        return column.to_numpy(np.int64)
    return _numbers(column, where)


def _silo(column: pd.Series, where: readers.Where) -> np.ndarray:
    """The owner of each row: integers as they are, all else as text."""
    _refuse_gaps(column, where)
    return column.to_numpy(np.int64 if pd.api.types.is_integer_dtype(column) else str)
