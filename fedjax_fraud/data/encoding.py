"""What was made of each column of a table: the kinds, as plain values that a reader can check and JSON can hold."""

from collections.abc import Mapping
from typing import Any, NamedTuple

LABEL, SILO, TIME, ENTITY = "label", "silo", "time", "entity"
NUMBER, SIGNED_LOG, BINARY, CATEGORY, DATE = "number", "signed log", "0/1", "category", "date"
CONSTANT, DROPPED = "constant", "dropped"
KINDS = (LABEL, SILO, TIME, ENTITY, NUMBER, SIGNED_LOG, BINARY, CATEGORY, DATE, CONSTANT, DROPPED)
SHOWN_CATEGORIES = 6
SHOWN_NAMES = 12


class Column(NamedTuple):
    """One column of a table.

    Attributes:
      name: as in the table.
      kind: one of ``KINDS``. ``label``, ``silo`` and ``entity`` are no features; ``time`` gives its hour and weekday
        where these are known; ``signed log`` is a number x that becomes sign(x) log(1 + |x|).
      missing: gaps in the whole table.
      categories: the values that have an indicator; None among them stands for a gap.
      fixed: whether the user has listed the categories: then they stay, whatever the training rows hold.
      low, high: the least and the largest value: numbers, or dates as text. None where there is no order.
      parts: what a date or time gives: "hour", "weekday", "day_of_seven" (of a clock that counts from anywhere),
        "age_days" (days before the row's time), "days" (since 1970).
      note: why it was dropped, what the user should know.
    """

    name: str
    kind: str
    missing: int = 0
    categories: tuple = ()
    fixed: bool = False
    low: Any = None
    high: Any = None
    parts: tuple[str, ...] = ()
    note: str = ""


class Encoding(NamedTuple):
    """Every column of a table in its order.

    Attributes:
      columns: see ``Column``.
      hours_per_unit: of the time column, or None.
      positive: the texts that mean fraud in the label column; None: it holds 1 and 0.
      amount: the column with the money at stake, or None.
      format: "table", or "paysim" where ``paysim.py`` makes the features.
      feature_set: which of PaySim's.
    """

    columns: tuple[Column, ...]
    hours_per_unit: float | None = None
    positive: tuple[str, ...] | None = None
    amount: str | None = None
    format: str = "table"
    feature_set: str | None = None

    def named(self, kind: str) -> str | None:
        """The first column of a kind, or None: ``encoding.named("label")``."""
        return next((column.name for column in self.columns if column.kind == kind), None)

    def describe(self) -> str:
        """A table for readers: a line for each column with its kind, gaps, and range or categories."""
        head = ("column", "kind", "missing", "values")
        lines = [head, *((one.name, one.kind, str(one.missing), _values(one)) for one in self.columns)]
        widths = [max(len(line[at]) for line in lines) for at in range(3)]
        padded = [[text.ljust(size) for text, size in zip(line[:3], widths, strict=True)] for line in lines]
        return "\n".join("  ".join([*cells, line[3]]).rstrip() for cells, line in zip(padded, lines, strict=True))

    def summary(self) -> str:
        """The same by kind and note, a line for each, so that a wide table stays short."""
        alike: dict[tuple[str, str], list[str]] = {}
        for one in self.columns:
            alike.setdefault((one.kind, one.note), []).append(_short(one))
        lines = []
        for kind, note in sorted(alike, key=lambda key: KINDS.index(key[0])):
            names = alike[kind, note]
            more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
            lines.append(f"  {kind:<10} {', '.join(names[:SHOWN_NAMES])}{more}" + (f": {note}" if note else ""))
        return "\n".join(lines)

    def record(self) -> dict[str, Any]:
        """Plain values that JSON can hold; ``from_record`` makes the encoding of them again."""
        columns = [one._asdict() | dict(categories=list(one.categories), parts=list(one.parts)) for one in self.columns]
        positive = None if self.positive is None else list(self.positive)
        return self._asdict() | dict(columns=columns, positive=positive)


def from_record(record: Mapping[str, Any]) -> Encoding:
    """The encoding of which ``record`` is the ``record()``."""
    columns = (
        Column(**{**one, "categories": tuple(one["categories"]), "parts": tuple(one["parts"])})
        for one in record["columns"]
    )
    positive = record["positive"]
    return Encoding(**{**record, "columns": tuple(columns), "positive": None if positive is None else tuple(positive)})


def _values(column: Column) -> str:
    """The last cell of a line of ``describe``."""
    words = []
    if column.categories:
        shown = ["(gap)" if value is None else str(value) for value in column.categories[:SHOWN_CATEGORIES]]
        more = len(column.categories) - len(shown)
        words.append(", ".join(shown) + (f" and {more} more" if more > 0 else ""))
    elif column.low is not None:
        words.append(f"{_number(column.low)} to {_number(column.high)}")
    if column.parts:
        words.append(f"gives {', '.join(part.replace('_', ' ') for part in column.parts)}")
    if column.note:
        words.append(column.note)
    return "; ".join(words)


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _short(column: Column) -> str:
    """A column's place in ``summary``."""
    words = []
    if column.kind == CATEGORY:
        words.append(f"{len(column.categories)} values")
    if column.missing:
        words.append(f"{column.missing} gaps")
    return column.name + (f" ({', '.join(words)})" if words else "")
