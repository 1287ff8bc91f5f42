"""What the columns of a table are: kinds from roles and values, and a warning for those that look like no feature."""

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedjax_fraud.data import cells, encode, encoding, readers
from fedjax_fraud.data.encoding import Column, Encoding

MAX_CATEGORIES = 50
MIN_ROWS_FOR_WARNINGS = 100
GAP_REMEDY = "Fill it in, remove the row, put the column in `drop`, or let `missing` be 'fill'."
TIME_REMEDY = "Fill it in, remove the row, or leave out `time=...`."
ID_WORDS = ("id", "ids", "uuid", "guid", "number", "no", "nr", "account", "iban")


class Roles(NamedTuple):
    """Which column is what; the others become features. ``entity`` and ``drop`` may be empty."""

    label: str
    silo: str | None = None
    time: str | None = None
    amount: str | None = None
    entity: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


def infer(
    frame: pd.DataFrame,
    roles: Roles,
    *,
    categories: Mapping[str, Sequence | None],
    hours_per_unit: float | int | None,
    where: readers.Where,
    refuse_missing: bool = False,
) -> Encoding:
    """The kind of every column, from its role, else from its values.

    Text is a category (at most 50 values), and so are digits with leading zeros (00123); numbers that are only 0 and 1
    are 0/1, a column with one value is constant and gives nothing. Whether a number is put on a logarithmic scale is
    not decided here but on training rows.

    Args:
      frame: the table; columns have distinct names.
      roles: names that the table has.
      categories: column -> its values, or None: those that it holds.
      hours_per_unit: of the time column, if that holds numbers.
      where: row number from 0 -> where that is, for messages.
      refuse_missing: whether a gap in a feature is an error.
    Returns: the encoding.
    Raises: ValueError if a column can be no feature; the message says what to do.
    """
    columns, too_many, with_commas = [], [], []
    for name in frame.columns:
        if name in roles.drop:
            columns.append(Column(name, encoding.DROPPED))
            continue
        values = cells.tidy(frame[name], keep_codes=name not in (roles.time, roles.amount))
        given = name in categories
        if name in (roles.label, roles.silo, *roles.entity):
            kind = {roles.label: encoding.LABEL, roles.silo: encoding.SILO}.get(name, encoding.ENTITY)
            columns.append(Column(name, kind, int(values.isna().sum())))
        elif not given and cells.is_text(values) and readers.has_decimal_commas(_texts(values)):
            with_commas.append(values)
        elif name == roles.time:
            columns.append(_time_column(values, hours_per_unit, where))
        else:
            if refuse_missing:
                cells.refuse_gaps(values, where, GAP_REMEDY)
            try:
                columns.append(
                    _category(values, categories[name], where) if given else _feature(values, frame, roles, where)
                )
            except _ManyCategoriesError as error:
                too_many.append(error)
    if with_commas:
        raise ValueError(_comma_words(with_commas, where))
    if too_many:
        raise ValueError(_many_words(too_many))
    return Encoding(tuple(columns), hours_per_unit)


def _by_pandas(text: str) -> str:
    """How to rewrite a date whose parts stand in another order, such as 31.01.2026."""
    if not re.match(r"\d{1,2}[./-]\d{1,2}[./-]\d{4}", text):
        return ""
    return "; pandas.to_datetime(column, dayfirst=True) reads dates that begin with the day"


def _time_column(values: pd.Series, hours_per_unit: float | int | None, where: readers.Where) -> Column:
    """The time column: it gives the hour if it covers two days, the weekday if two weeks (rounded)."""
    cells.refuse_gaps(values, where, TIME_REMEDY)
    is_date = cells.is_date(values)
    if not (is_date or cells.is_number(values)):
        text = values.astype(str)
        parsed = pd.to_datetime(text, errors="coerce", format="ISO8601", utc=True)
        row = int(np.argmax(parsed.isna().to_numpy()))  # the first if each is a date by itself
        raise ValueError(
            f"`{values.name}` must hold dates such as 2026-01-31 or 2026-01-31 12:00:00, or numbers, got "
            f"{values.iloc[row]!r} in {where(row)}. Write all of them in that form{_by_pandas(text.iloc[row])}."
        )
    low, high = _date_range(values) if is_date else _range(cells.finite_numbers(values, where))
    if is_date:
        hours_per_unit = encode.HOURS_PER_SECOND
    hours = encode.clock_hours(values, hours_per_unit)
    if hours is None:
        return Column(values.name, encoding.TIME, low=low, high=high, note="unit not known: no hour, no weekday")
    span, parts = hours.max() - hours.min(), []
    if round(span / 24) >= 2 and np.ptp(hours % 24) > 0:
        parts.append("hour")
    if round(span / 168) >= 2:
        parts.append("weekday" if is_date else "day_of_seven")
    return Column(values.name, encoding.TIME, low=low, high=high, parts=tuple(parts))


def _feature(values: pd.Series, frame: pd.DataFrame, roles: Roles, where: readers.Where) -> Column:
    """A column without a role, by its values."""
    missing = int(values.isna().sum())
    if not (cells.is_text(values) or cells.is_date(values) or missing == len(values)):
        cells.finite_numbers(values, where, droppable=True)
    distinct = values.drop_duplicates().dropna()
    if len(distinct) == 0 or (len(distinct) == 1 and missing == 0):
        note = f"always {distinct.iloc[0]}" if len(distinct) else "empty"
        return Column(values.name, encoding.CONSTANT, missing, note=note)
    if cells.is_text(values):
        return _category(values, None, where)
    if cells.is_date(values):
        return _date(values, frame, roles, missing)
    numbers = cells.finite_numbers(values, where)
    low, high = _range(numbers)
    if set(distinct.astype(np.float64)) <= {0.0, 1.0}:
        return Column(values.name, encoding.BINARY, missing, low=low, high=high)
    return Column(values.name, encoding.NUMBER, missing, low=low, high=high)


def _date(values: pd.Series, frame: pd.DataFrame, roles: Roles, missing: int) -> Column:
    """A date that is not the row's time: how old it is, its weekday, and its hour if it has one."""
    dated = roles.time is not None and cells.is_date(cells.tidy(frame[roles.time]))
    parts = ["age_days" if dated else "days", "weekday"]
    if np.nanmax(cells.wall_seconds(values) % 86400) > 0:
        parts.append("hour")
    low, high = _date_range(values)
    return Column(values.name, encoding.DATE, missing, low=low, high=high, parts=tuple(parts))


def _range(numbers: np.ndarray) -> tuple[float, float]:
    return float(np.nanmin(numbers)), float(np.nanmax(numbers))


def _date_range(values: pd.Series) -> tuple[str, str]:
    return values.min().isoformat(), values.max().isoformat()


def _category(values: pd.Series, given: Sequence | None, where: readers.Where) -> Column:
    """A column with an indicator for each of its values; a gap is one of them where there are any."""
    known = _found_categories(values, where) if given is None else list(given)
    if given is not None:
        outside = encode.category_codes(values, tuple(known)) < 0
        rule = f"`{values.name}` must be one of its `categories` {known}"
        remedy = "Add the value to `categories`, or remove the row."
        readers.refuse_first(outside & values.notna().to_numpy(), values.to_numpy(object), rule, remedy, where)
    missing = int(values.isna().sum())
    gap = [None] if missing else []
    note = ""
    if given is None and _has_codes(known):
        note = "digits with leading zeros: codes, not numbers"
    return Column(values.name, encoding.CATEGORY, missing, (*known, *gap), fixed=given is not None, note=note)


def _found_categories(values: pd.Series, where: readers.Where) -> list:
    """The sorted values of a column of categories that is what it seems to be."""
    known = values.dropna()
    if not cells.is_text(values):
        found = sorted(known.drop_duplicates().tolist())
        if all(isinstance(value, float) and value.is_integer() for value in found):
            found = [int(value) for value in found]  # a gap had made them floats
        _check_few(values.name, found)
        return found
    found = sorted(_texts(values))
    if values.name in found:
        text = values.to_numpy(object)
        readers.refuse_first(text == values.name, text, *readers.header_rule(str(values.name)), where)
    _refuse_text_among_numbers(values, found, where)
    _check_few(values.name, found)
    return found


def _check_few(name: str, found: Sequence) -> None:
    if len(found) > MAX_CATEGORIES:
        code = next((value for value in found if re.fullmatch(readers.CODE, str(value))), None)
        raise _ManyCategoriesError(name, len(found), code if _has_codes(found) else None)


class _ManyCategoriesError(ValueError):
    """A column of text with more values than can be features: its name, how many, and one that is a code, if any."""


def _many_words(errors: Sequence[_ManyCategoriesError]) -> str:
    """All such columns in one message."""
    (name, count, _), *others = (error.args for error in errors)
    more = "".join(f", `{other}` ({number})" for other, number, _ in others)
    codes = "".join(
        f" `{other}` has digits with leading zeros, such as {code}, which makes it codes: write it without if it is a "
        "number."
        for other, _, code in (error.args for error in errors)
        if code is not None
    )
    return (
        f"`{name}` is a category of {count} different values{more and ', and so are more: ' + more[2:]}; at most "
        f"{MAX_CATEGORIES} can be features. Put it in `drop` if it is a name or a number of a row, in `entity` if an "
        f"account or a customer, or list its values in `categories`.{codes}"
    )


def _texts(values: pd.Series) -> list[str]:
    """The distinct texts of a tidy column of text."""
    return values.dropna().astype(str).unique().tolist()


def _has_codes(found: Sequence) -> bool:
    """Whether categories are all digits, some with a leading zero."""
    return all(isinstance(value, str) for value in found) and cells.holds_codes(found)


def _comma_words(columns: Sequence[pd.Series], where: readers.Where) -> str:
    """All columns with decimal commas in one message."""
    first = columns[0].astype(object)
    row = int(np.argmax(first.map(lambda value: isinstance(value, str) and "," in value).to_numpy(bool)))
    names = ", ".join(f"`{column.name}`" for column in columns)
    return (
        f"{names}: numbers with a decimal comma, such as {first.iloc[row]!r} in {where(row)}. {readers.DECIMAL_POINT} "
        "Or put such columns in `drop`, or list their values in `categories`."
    )


def _refuse_text_among_numbers(column: pd.Series, found: Sequence[str], where: readers.Where) -> None:
    """A column whose values are mostly numbers is a number column with a slip in it, not text."""
    odd = {value for value in found if not readers.is_number(value)}
    with_commas = {value for value in odd if "," in value and readers.number_fix(value) != readers.CORRECT_VALUE}
    has_codes = any(re.fullmatch(readers.CODE, value) for value in found)
    if has_codes or len(found) - len(odd) + len(with_commas) <= len(found) / 2:
        return
    row = int(np.argmax(column.isin(list(odd)).to_numpy()))
    message = readers.text_for_number(str(column.name), str(column.iloc[row]))
    raise ValueError(message.format(place=where(row)) + " Or list the values in `categories`.")


# ---- columns that look like no feature --------------------------------------------------------------------------


def warn_of_odd_features(frame: pd.DataFrame, plan: Encoding, stacklevel: int = 3) -> None:
    """Warns of number columns that look like a name, a row number, or the time in another form.

    They stay features: only the user knows. Tables below 100 rows are not looked at.

    Warns: UserWarning that names the columns, why, and the remedy.
    """
    if len(frame) < MIN_ROWS_FOR_WARNINGS:
        return
    time = plan.named(encoding.TIME)
    order = None if time is None else np.argsort(cells.tidy(frame[time], keep_codes=False).to_numpy(), kind="stable")
    reasons = {}
    for column in plan.columns:
        if column.kind == encoding.NUMBER and column.missing == 0:
            reason = _oddity(column.name, cells.tidy(frame[column.name], keep_codes=False).to_numpy(), order)
            if reason:
                reasons.setdefault(reason, []).append(f"`{column.name}`")
    for reason, names in reasons.items():
        message = f"{', '.join(names)} {reason}. Put it in `drop`, or in `entity` if it is an account or a customer."
        warnings.warn(message, UserWarning, stacklevel=stacklevel)


def _oddity(name: str, values: np.ndarray, time_order: np.ndarray | None) -> str | None:
    """What a column without gaps looks like instead of a feature; None if it looks like one."""
    if values.dtype.kind == "i":
        num_distinct = np.unique(values).size
        if num_distinct == values.size:
            return "is another whole number in every row, as a row number is"
        words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name)
        if words and words[-1].lower() in ID_WORDS and num_distinct > MAX_CATEGORIES:
            return "looks by its name like the number of an account, not an amount"
    if time_order is not None and values.max() > values.min() and (np.diff(values[time_order]) >= 0).all():
        return "never falls as time goes on, so that test rows lie beyond all training rows"
    return None
