"""Cells of a table -> numbers, text or dates with gaps in one form, whatever pandas holds them as."""

import contextlib
import re
import warnings
from collections.abc import Collection

import numpy as np
import pandas as pd

from fedjax_fraud.data import readers

_ZONE = (
    r":\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:?\d{2})$"  # then all dates are taken in UTC, as summer and winter have two zones
)
_ISO_DATE = r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"


def tidy(column: pd.Series, *, keep_codes: bool = True) -> pd.Series:
    """A column in one of four forms: numbers, truth values, dates, or text; a gap is NaN, NaT in dates.

    Text that only holds numbers becomes numbers, text that only holds dates as in 2026-01-31 or 2026-01-31 12:00:00
    becomes dates; spellings of a gap count as gaps. What is none of the four stays as it is.

    Args:
      column: as it was read.
      keep_codes: whether digits with a leading zero, as in 00123, make text of a column; a column that is known to
        hold numbers is numbers without.
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if pd.api.types.is_datetime64_any_dtype(column):
        return column
    if pd.api.types.is_extension_array_dtype(column) and not isinstance(column.dtype, pd.StringDtype):
        return _plain_numbers(column, keep_codes)
    if not (column.dtype == object or isinstance(column.dtype, pd.StringDtype)):
        return column
    found = pd.api.types.infer_dtype(column, skipna=True)
    if found in ("boolean", "decimal", "integer", "floating", "mixed-integer-float"):
        return pd.to_numeric(column.astype(object).where(column.notna(), np.nan).astype(np.float64))
    if found in ("date", "datetime", "datetime64"):
        return pd.to_datetime(column)
    return _tidy_text(column, keep_codes) if found in ("string", "empty") else column


def _plain_numbers(column: pd.Series, keep_codes: bool) -> pd.Series:
    """pandas' own or pyarrow's numbers and truth values as NumPy's; float64 where there are gaps."""
    if not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)):
        return tidy(column.astype(object), keep_codes=keep_codes)
    if column.isna().any() or pd.api.types.is_float_dtype(column):
        return pd.Series(column.to_numpy(np.float64, na_value=np.nan), column.index, name=column.name)
    kind = np.int64 if pd.api.types.is_integer_dtype(column) else bool
    return pd.Series(column.to_numpy(kind), column.index, name=column.name)


def _tidy_text(column: pd.Series, keep_codes: bool) -> pd.Series:
    """A text column with its gaps as NaN; numbers or dates if that is all it holds."""
    values = pd.Index(column.dropna().unique()).astype(object)
    gaps = [value for value in values if value.strip() in readers.GAPS]
    if gaps:
        column = column.where(~column.isin(gaps))
        values = values.difference(gaps, sort=False)
    if not len(values):
        return pd.Series(np.full(len(column), np.nan), column.index, name=column.name)
    if all(map(readers.is_number, values)) and not (keep_codes and holds_codes(list(values))):
        return column.astype(object).map({value: float(value) for value in values}).astype(np.float64)
    if pd.Series(values).str.fullmatch(_ISO_DATE).all():
        has_time = pd.Series(values).str.contains(":").to_numpy(bool)
        if has_time.any() and not has_time.all():
            bare = int(column.isin(values[~has_time]).sum())
            warnings.warn(
                f"`{column.name}` has {bare:,} date(s) without a time of day among others that have one, taken "
                "as midnight. Write the time in every row if they are not.",
                stacklevel=2,
            )
        with contextlib.suppress(ValueError):  # a 31st of February: text
            return pd.to_datetime(column, format="ISO8601", utc=bool(pd.Series(values).str.contains(_ZONE).any()))
    return column


def holds_codes(texts: Collection[str]) -> bool:
    """Whether texts that are all digits have a leading zero among them: 00123 is a name, not a number."""
    return all(text.strip().isdecimal() for text in texts) and any(re.fullmatch(readers.CODE, text) for text in texts)


def is_text(column: pd.Series) -> bool:
    """Whether a tidy column holds text."""
    if isinstance(column.dtype, pd.StringDtype):
        return True
    return column.dtype == object and pd.api.types.infer_dtype(column, skipna=True) == "string"


def is_date(column: pd.Series) -> bool:
    """Whether a tidy column holds dates."""
    return pd.api.types.is_datetime64_any_dtype(column)


def is_number(column: pd.Series) -> bool:
    """Whether a tidy column holds numbers or truth values."""
    is_real = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column)
    return is_real or pd.api.types.is_bool_dtype(column)


def distinct_texts(column: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Each row's text as a position among the distinct texts of a tidy column, -1 for a gap; and these.

    A text does not depend on how a whole number is stored.
    """
    codes, values = pd.factorize(column)
    if pd.api.types.is_float_dtype(values) and (values == np.round(values)).all() and (np.abs(values) < 2**53).all():
        values = np.asarray(values).astype(np.int64)
    return codes, np.array([str(value) for value in values], object)


def as_text(column: pd.Series) -> pd.Series:
    """A tidy column as text, see ``distinct_texts``; a gap stays a gap."""
    codes, texts = distinct_texts(column)
    return pd.Series(np.append(texts, np.nan)[codes], column.index, object, name=column.name)


def raw_text(column: pd.Series) -> pd.Series:
    """A raw column as text: "01" stays "01", also where all of a small table are such codes; a gap stays a gap."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    if not is_text(column):
        return as_text(tidy(column))
    known = pd.Index(column.dropna().unique()).astype(object)
    return column.where(~column.isin([value for value in known if value.strip() in readers.GAPS]))


def refuse_gaps(column: pd.Series, where: readers.Where, remedy: str) -> None:
    """Raises ValueError for the first gap of a tidy column."""
    rule = f"`{column.name}` must have a value in every row"
    gaps = column.isna().to_numpy()
    readers.refuse_first(gaps, np.full(gaps.size, np.nan), rule, remedy, where)


def finite_numbers(column: pd.Series, where: readers.Where, *, droppable: bool = False) -> np.ndarray:
    """A tidy column of numbers as float64, gaps NaN; ``droppable``: whether the user may leave the column out.

    Raises: ValueError for what is no number, or infinite.
    """
    if not is_number(column):
        raise ValueError(_no_numbers(column, where) + (" Or put the column in `drop`." if droppable else ""))
    values = column.to_numpy(np.float64)
    rule = f"`{column.name}` must be finite"
    readers.refuse_first(np.isinf(values), values, rule, readers.CORRECT_VALUE, where)
    return values


def _no_numbers(column: pd.Series, where: readers.Where) -> str:
    """The message for a tidy column that does not hold numbers."""
    if is_date(column):
        return f"`{column.name}` must hold numbers, got dates. Write numbers."
    odd = (row for row, value in enumerate(column) if isinstance(value, str) and not readers.is_number(value))
    row = next(odd, None)
    if row is None:
        return f"`{column.name}` must hold numbers, got values of type {column.dtype}. Convert them."
    text = str(column.iloc[row])
    return f"`{column.name}` must hold numbers, got {text[:40]!r} in {where(row)}. {readers.number_fix(text)}"


def wall_seconds(column: pd.Series) -> np.ndarray:
    """Dates as seconds since 1970 of the clock on the wall, for hours and weekdays; NaN in a gap."""
    return seconds(column.dt.tz_localize(None) if column.dt.tz is not None else column)


def seconds(column: pd.Series) -> np.ndarray:
    """Dates as seconds since 1970 in UTC; a date without a zone counts as UTC; NaN in a gap."""
    if column.dt.tz is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    micros = column.to_numpy("datetime64[us]")
    return np.where(np.isnat(micros), np.nan, micros.astype(np.int64) / 1e6)
