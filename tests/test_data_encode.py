"""Encoding a table: closed forms of the features of dates, and one clear line for a table that does not fit."""

import chex
import numpy as np
import pandas as pd
import pytest

from fedjax_fraud.data import Column, Encoding
from fedjax_fraud.data.encode import encode, feature_columns


def where(row: int) -> str:
    return f"row {row}"


def encoded(frame, *columns, **options):
    """name -> values of the features of the columns."""
    plan = Encoding(columns, **options)
    features = encode(pd.DataFrame(frame), plan, where)
    assert features.dtype == np.float32
    return dict(zip(feature_columns(plan), features.T, strict=True))


def test_hours_stand_on_a_circle_of_a_day():
    made = encoded({"t": [0, 6, 12, 30]}, Column("t", "time", parts=("hour",)), hours_per_unit=1)
    chex.assert_trees_all_close(made["t.hour_sin"], np.array([0, 1, 0, 1], np.float32), atol=1e-6)
    chex.assert_trees_all_close(made["t.hour_cos"], np.array([1, 0, -1, 0], np.float32), atol=1e-6)


def test_weekdays_are_those_of_the_calendar():
    dates = pd.to_datetime(["1969-12-31 00:00", "1970-01-01 23:59", "2026-11-30 00:00", "2024-02-29 00:00"])
    made = encoded({"d": dates}, Column("d", "time", parts=("weekday",)))
    day = [
        name.split("=")[1] for row in np.stack(list(made.values()), 1) for name, on in zip(made, row, strict=True) if on
    ]
    assert day == ["Wed", "Thu", "Mon", "Thu"]


def test_a_clock_without_a_calendar_gives_a_day_of_seven():
    made = encoded({"t": [0, 1, 6, 7, 13]}, Column("t", "time", parts=("day_of_seven",)), hours_per_unit=24)
    assert [int(np.argmax(row)) for row in np.stack(list(made.values()), 1)] == [0, 1, 6, 0, 6]


def test_the_age_of_a_date_is_counted_from_the_time_of_its_row():
    frame = {
        "opened": ["2026-01-01", None, "2026-01-05"],
        "at": [f"2026-01-{at}:00:00" for at in ("02 12", "03 00", "04 00")],
    }
    columns = (Column("opened", "date", parts=("age_days",)), Column("at", "time"))
    chex.assert_trees_all_equal(encoded(frame, *columns)["opened.age_days"], np.array([1.5, np.nan, -1], np.float32))


def test_without_a_time_a_date_is_the_day_since_1970():
    made = encoded({"d": ["1970-01-03 00:00:00", "1970-01-01 06:00:00"]}, Column("d", "date", parts=("days",)))
    assert made["d.days"].tolist() == [2.0, 0.25]


def test_a_category_that_is_not_known_has_no_indicator():
    made = encoded({"k": ["a", "b", None, "zebra"]}, Column("k", "category", categories=("a", "b", None)))
    assert np.stack(list(made.values()), 1).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert list(made) == ["k=a", "k=b", "k is missing"]


def test_a_gap_that_is_not_known_has_no_indicator():
    made = encoded({"k": [1.0, np.nan, 5.0]}, Column("k", "category", categories=(1, 2)))
    assert np.stack(list(made.values()), 1).tolist() == [[1, 0], [0, 0], [0, 0]]


@pytest.mark.parametrize("values", [["1", "2"], [1, 2], [1.0, 2.0]])
def test_categories_of_text_know_their_values_in_any_form(values):
    made = encoded({"k": values}, Column("k", "category", categories=("1", "2", "A")))
    assert np.stack(list(made.values()), 1).tolist() == [[1, 0, 0], [0, 1, 0]]


def test_codes_keep_their_leading_zeros():
    made = encoded({"k": ["01", "1", "01"]}, Column("k", "category", categories=("01", "1", "A")))
    assert np.stack(list(made.values()), 1).tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0]]


def test_a_column_that_is_missing_is_named_with_what_there_is():
    with pytest.raises(ValueError, match=r"`frame` lacks the column `z`.* It has a, b"):
        encoded({"a": [1], "b": [2]}, Column("a", "number"), Column("z", "number"))


def test_the_time_is_needed_where_an_age_is_counted_from_it():
    with pytest.raises(ValueError, match="`frame` lacks the column `at`"):
        encoded({"d": ["2026-01-01"]}, Column("d", "date", parts=("age_days",)), Column("at", "time"))


@pytest.mark.parametrize(
    "column, values, message",
    [
        (Column("x", "number"), ["1", "red"], "`x` must hold numbers"),
        (Column("x", "number"), [1.0, np.inf], "`x` must be finite, got inf in row 1"),
        (Column("x", "number"), [1.0, -1e39], "`x` must fit float32"),
        (Column("x", "date", parts=("days",)), ["red", "blue"], "`x` must hold dates"),
    ],
)
def test_a_column_of_another_kind_than_before_is_refused(column, values, message):
    with pytest.raises(ValueError, match=message):
        encoded({"x": values}, column)
