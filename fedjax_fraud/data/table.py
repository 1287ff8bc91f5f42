"""Any labelled table -> Transactions: CSV, Parquet, several files, a database, or a pandas DataFrame."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from fedjax_fraud import checks
from fedjax_fraud.data import cells, encode, encoding, infer, labels, readers, silos, sources
from fedjax_fraud.data.accounts import account_codes
from fedjax_fraud.data.encoding import Encoding
from fedjax_fraud.data.infer import Roles
from fedjax_fraud.types import Transactions

MISSING = ("fill", "refuse")


def load_table(
    path_or_frame: sources.Source,
    label: str,
    silo: str | None = None,
    time: str | None = None,
    amount: str | None = None,
    drop: Iterable[str] = (),
    categories: Mapping[str, Sequence | None] | None = None,
    hours_per_unit: float | int | None = None,
    *,
    positive: object = None,
    missing: str = "fill",
    silo_buckets: int | None = None,
    entity: Iterable[str] = (),
    query: str | None = None,
    columns: Sequence[str] | None = None,
) -> Transactions:
    """Loads a table with a two-valued label; every column without another role becomes features.

    What each column is taken for stands in ``encoding`` (``print(table.encoding.describe())``): numbers stay as they
    are until ``split``, which puts those with heavy tails on a signed logarithmic scale; truth values become 0 and 1;
    text, and digits with leading zeros (00123), become one indicator ``column=value`` for each of their values, sorted;
    dates become their age in days, weekday and hour; the time column gives the hour of the day (sine and cosine) where
    the table covers two days, and the weekday where it covers two weeks, but never the time itself. Columns with one
    value are left out.

    Args:
      path_or_frame: a CSV file (plain or ``.gz``), a Parquet file (``.parquet``), several such files (one for each
        bank), a DataFrame, or a database URL with ``query``.
      label: the column with 1 for fraud, 0 for genuine (or True and False, or see ``positive``).
      silo: the column that names the owner of each row; not a feature. Of several files: the file, unless named.
      time: the column to split by. Dates, or numbers.
      amount: the column with the money at stake; remains a feature.
      drop: columns to leave out: names, row numbers, and whatever is known only after the fact.
      categories: column -> the values it may have, which fixes the indicators and their order, so that two files get
        the same features; or None: the values that the training rows have, for numbers that are codes. Text may have
        at most 50 values otherwise.
      hours_per_unit: what one unit of ``time`` is in hours, for its hour and weekday, and for budgets of alerts per
        day; known for dates.
      positive: the value, or values, of the label that mean fraud, such as "Yes"; all others mean genuine.
      missing: "fill": a numeric gap stays NaN until ``split`` fills it with the training median and adds an input
        ``column is missing``; a gap in text is a category of its own. "refuse": a gap is an error. A gap in label,
        silo or time always is.
      silo_buckets: deals the values of ``silo`` to so many banks, by a hash that is the same everywhere.
      entity: columns that name an account, a customer, a card; not features. ``describe_split`` counts which of them
        stand on both sides of the split and in two banks. Equal text in two of them is one account; equal numbers are
        not. A gap is an account of its own.
      query: what to ask the database.
      columns: the names of the columns of a CSV file that has no line of names.
    Returns: the transactions in table order; ``rule_alarm`` is None, ``accounts`` has a role for each of ``entity``.
    Raises:
      FileNotFoundError: there is no such file.
      ImportError: a database needs a package that is not installed.
      ValueError: a column is missing or cannot be a feature, a value is not allowed (the message names column,
        value and place), or the table has no fraud or nothing but fraud.
    Warns: UserWarning for columns that look like the number of a row or account, or like the time in another form.

    Example: text becomes indicators, the silo column is no feature.
      >>> frame = pd.DataFrame({"paid": [9.5, 80.0, 3.0], "kind": ["web", "shop", "web"], "bank": ["A", "B", "A"]})
      >>> rows = load_table(frame.assign(fraud=[0, 1, 0]), "fraud", silo="bank", amount="paid")
      >>> rows.names, rows.silo.tolist()
      (('paid', 'kind=shop', 'kind=web'), ['A', 'B', 'A'])
    """
    _check_options(hours_per_unit, missing, silo, silo_buckets)
    frame, source, where = sources.read(path_or_frame, query=query, columns=columns)
    if silo is None and silo_buckets is None and sources.FILE_COLUMN in frame and _is_several(path_or_frame):
        silo = sources.FILE_COLUMN
    roles, categories = Roles(label, silo, time, amount, _names(entity), _names(drop)), dict(categories or {})
    _check_roles(frame, roles, categories, source)
    texts = None if positive is None else labels.as_texts(positive)
    if texts is not None:
        labels.check_positive(frame[label], texts)
    is_fraud = labels.read_labels(frame[label], texts, where)
    readers.check_both_classes(is_fraud, label, source)
    plan = infer.infer(
        frame,
        roles,
        categories=categories,
        hours_per_unit=hours_per_unit,
        where=where,
        refuse_missing=missing == "refuse",
    )._replace(positive=texts, amount=amount, hours_per_unit=_unit(frame, time, hours_per_unit))
    plan = _with_notes(plan, silo_buckets)
    names = tuple(encode.feature_columns(plan))
    if not names:
        raise ValueError(f"`drop` leaves no feature column in {source}. Drop less.")
    _check_names(plan)
    infer.warn_of_odd_features(frame, plan)
    return Transactions(
        features=encode.encode(frame, plan, where),
        labels=is_fraud,
        names=names,
        amount=None if amount is None else _amount(frame[amount], where),
        time=None if time is None else _time(frame[time], where),
        silo=None if silo is None else _silo(frame[silo], silo_buckets, where),
        accounts={name: _account_codes(frame[name], at) for at, name in enumerate(roles.entity)},
        beginnings={name: _beginnings(frame[name]) for name in roles.entity},
        source=source,
        hours_per_unit=plan.hours_per_unit,
        encoding=plan,
    )


def _check_options(
    hours_per_unit: float | int | None, missing: str, silo: str | None, silo_buckets: int | None
) -> None:
    if hours_per_unit is not None:
        checks.check_positive("hours_per_unit", hours_per_unit)
    checks.check_choice("missing", [missing], MISSING)
    if silo_buckets is not None:
        checks.check_count("silo_buckets", silo_buckets, 2)
        if silo is None:
            raise ValueError("`silo_buckets` needs a `silo` column whose values to deal to banks. Name it.")


def _with_notes(plan: Encoding, silo_buckets: int | None) -> Encoding:
    """The encoding with what a reader should know of the label and the silo."""
    notes = {
        encoding.LABEL: "" if plan.positive is None else f"fraud where {' or '.join(plan.positive)}",
        encoding.SILO: "" if silo_buckets is None else f"dealt to {silo_buckets} banks",
    }
    return plan._replace(columns=tuple(one._replace(note=notes.get(one.kind, one.note)) for one in plan.columns))


def _check_names(plan: Encoding) -> None:
    """Raises ValueError if a column has the name of what another one gives."""
    given = [name for column in plan.columns for name in encode.feature_names(column)]
    given += [
        f"{column.name} is missing" for column in plan.columns if column.missing and column.kind != encoding.CATEGORY
    ]
    twice = [name for name in given if given.count(name) > 1]
    if twice:
        raise ValueError(f"`{twice[0]}` is a column, and the name of a feature of another. Rename that column.")


def _is_several(source: sources.Source) -> bool:
    return not isinstance(source, str | pd.DataFrame) and isinstance(source, Sequence)


def _unit(frame: pd.DataFrame, time: str | None, hours_per_unit: float | int | None) -> float | int | None:
    """The unit of the time column in hours: a date becomes seconds, of any other the user must say it."""
    if time is not None and cells.is_date(cells.tidy(frame[time])):
        return 1 / 3600 if hours_per_unit is None else hours_per_unit
    return hours_per_unit


def _names(given: Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check_roles(frame: pd.DataFrame, roles: Roles, categories: Mapping, source: str) -> None:
    """Every named column exists, and no column has two roles that exclude each other."""
    asked = [(role, getattr(roles, role)) for role in ("label", "silo", "time", "amount")]
    asked = [(role, name) for role, name in asked if name is not None]
    asked += [("drop", name) for name in roles.drop] + [("categories", name) for name in categories]
    asked += [("entity", name) for name in roles.entity]
    for role, name in asked:
        if name not in frame.columns:
            found = ", ".join(map(str, frame.columns))
            raise ValueError(f"`{role}` names `{name}`, which is missing from {source}. Choose from {found}.")
    if label_role := [role for role, name in asked if name == roles.label and role != "label"]:
        raise ValueError(f"`{label_role[0]}` is the label column `{roles.label}`. Name another column.")
    both = [name for name in roles.drop if name in (roles.silo, roles.time, *roles.entity)]
    if both:
        raise ValueError(f"`drop` names `{both[0]}`, which has another role. Name it once.")


def _amount(column: pd.Series, where: readers.Where) -> np.ndarray:
    tidied = cells.tidy(column, keep_codes=False)
    cells.refuse_gaps(tidied, where, "Fill it in, remove the row, or leave out `amount=...`.")
    return cells.finite_numbers(tidied, where)


def _time(column: pd.Series, where: readers.Where) -> np.ndarray:
    """Integers as they are, dates as seconds since 1970, other numbers as float64."""
    tidied = cells.tidy(column, keep_codes=False)
    cells.refuse_gaps(tidied, where, infer.TIME_REMEDY)
    if cells.is_date(tidied):
        return cells.seconds(tidied)
    if pd.api.types.is_integer_dtype(tidied):
        return tidied.to_numpy(np.int64)
    return cells.finite_numbers(tidied, where)


def _silo(column: pd.Series, num_buckets: int | None, where: readers.Where) -> np.ndarray:
    """The owner of each row: integers as they are, all else as text, or the bucket of either."""
    tidied = cells.tidy(column)
    cells.refuse_gaps(tidied, where, "Fill it in, remove the row, or leave out `silo=...`.")
    if num_buckets is not None:
        return silos.hashed_silos(tidied, num_buckets)
    if pd.api.types.is_integer_dtype(tidied):
        return tidied.to_numpy(np.int64)
    return cells.as_text(tidied).to_numpy(str)


def _account_codes(column: pd.Series, position: int) -> np.ndarray:
    """A code for each row's account; each gap is an account of its own.

    Equal text in two columns is one account. Equal numbers are not: customer 7 is not terminal 7.
    """
    tidied = cells.tidy(column)
    codes, texts = cells.distinct_texts(tidied)
    if not cells.is_text(tidied):
        texts = f"{column.name}\x00" + texts
    nobody = [f"\x00{position} {row}" for row in np.flatnonzero(codes < 0)]
    codes[codes < 0] = texts.size + np.arange(len(nobody))
    return account_codes(pa.array([*texts, *nobody], pa.string()))[codes]


def _beginnings(column: pd.Series) -> np.ndarray:
    """The first two characters of each row's account, for the search for leaks."""
    codes, texts = cells.distinct_texts(cells.tidy(column))
    return np.array([*(text[:2] for text in texts), ""], str)[codes]
