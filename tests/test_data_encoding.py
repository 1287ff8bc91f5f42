"""The encoding: a table for readers, and plain values for files."""

import json

from fedjax_fraud.data import Column, Encoding
from fedjax_fraud.data.encoding import from_record

PLAN = Encoding(
    (
        Column("fraud", "label"),
        Column("when", "time", low="2026-01-01T00:00:00", high="2026-03-01T00:00:00", parts=("hour", "weekday")),
        Column("amount", "signed log", missing=3, low=0.0, high=1234567.5),
        Column("kind", "category", 2, (*"abcdefg", None)),
        Column("currency", "constant", note="always EUR"),
    ),
    hours_per_unit=1 / 3600,
    positive=("Yes",),
)


def test_the_table_says_for_each_column_what_it_is():
    lines = PLAN.describe().split("\n")
    assert [line.split()[0] for line in lines] == ["column", "fraud", "when", "amount", "kind", "currency"]
    assert lines[2].endswith("2026-01-01T00:00:00 to 2026-03-01T00:00:00; gives hour, weekday")
    assert lines[3].split() == ["amount", "signed", "log", "3", "0", "to", "1.23457e+06"]
    assert lines[4].endswith("a, b, c, d, e, f and 2 more")
    assert lines[5].endswith("always EUR")


def test_the_summary_has_a_line_for_each_kind():
    assert PLAN.summary().split("\n") == [
        "  label      fraud",
        "  time       when",
        "  signed log amount (3 gaps)",
        "  category   kind (8 values, 2 gaps)",
        "  constant   currency: always EUR",
    ]


def test_the_summary_of_a_wide_table_is_short():
    plan = Encoding(tuple(Column(f"V{at}", "number") for at in range(40)))
    assert plan.summary().endswith("V10, V11 and 28 more")


def test_the_record_is_strict_json_that_gives_the_encoding_back():
    record = json.loads(json.dumps(PLAN.record(), allow_nan=False))
    assert record == PLAN.record()
    assert from_record(record) == PLAN


def test_a_column_is_found_by_its_kind():
    assert (PLAN.named("label"), PLAN.named("silo")) == ("fraud", None)
