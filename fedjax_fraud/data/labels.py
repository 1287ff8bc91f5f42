"""The label column of a table: 1 for fraud, 0 for genuine, or the values that a user says mean fraud."""

import numpy as np
import pandas as pd

from fedjax_fraud.data import cells, readers


def read_labels(column: pd.Series, positive: tuple[str, ...] | None, where: readers.Where) -> np.ndarray:
    """The labels of a raw column.

    Args:
      column: 1 and 0, true and false, or anything if ``positive`` is given.
      positive: the texts (``as_texts``) that mean fraud; all others mean genuine. None: 1 does.
      where: row number from 0 -> where that is, for messages.
    Returns: ``[rows]`` int32.
    Raises: ValueError for a gap, or a value that is neither 1 nor 0.
    """
    tidied = cells.tidy(column)
    cells.refuse_gaps(tidied, where)
    if positive is not None:
        return cells.as_text(tidied).isin(positive).to_numpy().astype(np.int32)
    if cells.is_text(tidied):
        text = tidied.to_numpy(object)
        readers.refuse_first(text == column.name, text, *readers.header_rule(str(column.name)), where)
        bad = ~np.array([readers.is_number(value) for value in text])
        rule = f"`{column.name}` must be 1 (fraud) or 0 (genuine)"
        remedy = "Name the values that mean fraud in `positive`, write the label as 1 and 0, or drop the row."
        readers.refuse_first(bad, text, rule, remedy, where)
    return readers.check_labels(cells.finite_numbers(tidied, where), str(column.name), where)


def as_texts(positive: object) -> tuple[str, ...]:
    """The value, or values, that mean fraud, in the form in which a label column is compared with them."""
    values = positive if isinstance(positive, list | tuple | set) else [positive]
    return tuple(str(cells.as_text(cells.tidy(pd.Series([value]))).iloc[0]) for value in values)


def check_positive(column: pd.Series, positive: tuple[str, ...]) -> None:
    """Raises ValueError unless each of ``positive`` occurs in a raw label column."""
    found = sorted(cells.as_text(cells.tidy(column)).dropna().unique())
    absent = [value for value in positive if value not in found]
    if absent:
        shown = ", ".join(found[:8])
        raise ValueError(
            f"`positive` {absent[0]!r} does not occur in `{column.name}`, which holds {shown}. Choose from these."
        )
