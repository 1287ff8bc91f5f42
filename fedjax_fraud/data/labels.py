"""The label column of a table: 1 for fraud, 0 for genuine, or the values that a user says mean fraud."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from fedjax_fraud.data import cells, readers

SHOWN_VALUES = 8
LABEL_WORDS = ("fraud", "label", "class", "target", "default", "chargeback")
MOST_BATCHES = 8
GAP_REMEDY = "Give such rows their label, or remove them."
POSITIVE_REMEDY = "Name the values that mean fraud in `positive`, or write the label as 1 and 0, or remove the row."


def read_labels(
    column: pd.Series, positive: tuple[str, ...] | None, where: readers.Where, remedy: str | None = None
) -> np.ndarray:
    """The labels of a raw column.

    Args:
      column: 1 and 0, true and false, or anything if ``positive`` is given.
      positive: the texts (``as_texts``) that mean fraud; all others mean genuine. None: 1 does.
      where: row number from 0 -> where that is, for messages.
      remedy: what to do about a gap or a wrong value, where no table is being loaded to train on.
    Returns: ``[rows]`` int32.
    Raises: ValueError for a gap, or a value that is neither 1 nor 0.
    """
    tidied = cells.tidy(column, keep_codes=False)
    cells.refuse_gaps(tidied, where, remedy or GAP_REMEDY)
    if positive is not None:
        return cells.as_text(tidied).isin(positive).to_numpy().astype(np.int32)
    if cells.is_text(tidied):
        values = tidied.to_numpy(object)
        readers.refuse_first(values == column.name, values, *readers.header_rule(str(column.name)), where)
        bad = ~np.array([readers.is_number(value) for value in values])
    else:
        values = cells.finite_numbers(tidied, where)
        bad = (values != 0) & (values != 1)
    holds = f" holds {_shown(tidied)}, and" if bad.any() else ""
    rule = f"`{column.name}`{holds} must be 1 (fraud) or 0 (genuine)"
    readers.refuse_first(bad, values, rule, remedy or POSITIVE_REMEDY, where)
    return values.astype(np.float64).astype(np.int32)


def _shown(tidied: pd.Series) -> str:
    """The distinct values of a tidy label column, as far as they fit into a message."""
    found = _distinct(tidied)
    more = len(found) - SHOWN_VALUES
    return ", ".join(found[:SHOWN_VALUES]) + (f" and {more} more" if more > 0 else "")


def _distinct(tidied: pd.Series) -> list[str]:
    """The distinct values as texts: numbers by size, text by its letters."""
    found = cells.as_text(tidied).dropna().unique().tolist()
    return sorted(found, key=float if all(map(readers.is_number, found)) else str)


def as_texts(positive: object) -> tuple[str, ...]:
    """The value, or values, that mean fraud, in the form in which a label column is compared with them."""
    values = positive if isinstance(positive, list | tuple | set) else [positive]
    return tuple(str(cells.as_text(cells.tidy(pd.Series([value]), keep_codes=False)).iloc[0]) for value in values)


def check_positive(column: pd.Series, positive: tuple[str, ...]) -> None:
    """Raises ValueError unless each of ``positive`` occurs in a raw label column."""
    tidied = cells.tidy(column, keep_codes=False)
    found = cells.as_text(tidied).dropna().unique()
    absent = [value for value in positive if value not in found]
    if absent:
        raise ValueError(
            f"`positive` {absent[0]!r} does not occur in `{column.name}`, which holds {_shown(tidied)}. "
            "Choose from these."
        )


def candidates(path: Path) -> list[str]:
    """The columns of a CSV or Parquet file that may be its label, likeliest first: two values in the first rows.

    Fraud is rare: a column that is called like a label may show one of them only.
    """
    values: dict[str, set] = {}
    try:
        for batch in itertools.islice(_batches(path), MOST_BATCHES):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                found = values.setdefault(name, set())
                if len(found) <= 2:
                    found |= set(column.drop_null().unique()[:3].to_pylist())
    except (ValueError, OSError, TypeError, pa.ArrowException):
        return []
    likely = {name: any(word in name.lower() for word in LABEL_WORDS) for name in values}
    fitting = [name for name, found in values.items() if len(found) == 2 or (likely[name] and len(found) == 1)]
    return sorted(fitting, key=lambda name: not likely[name])


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The columns of a file, some rows at a time."""
    if path.suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches()
    else:
        yield from readers.stream_csv(path, dict.fromkeys(readers.read_header(path), pa.string()))
