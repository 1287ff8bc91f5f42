"""Cells: one form for numbers, text, dates and gaps, whatever pandas holds them as."""

import datetime
import decimal

import chex
import numpy as np
import pandas as pd
import pytest

from fedjax_fraud.data import cells, readers

SPELLINGS = {
    "numbers": [1.5, np.nan, 3.0],
    "nullable": pd.array([1.5, None, 3.0], "Float64"),
    "Arrow's": pd.array([1.5, None, 3.0], "float64[pyarrow]"),
    "decimals": [decimal.Decimal("1.5"), None, decimal.Decimal(3)],
    "digits": ["1.5", "?", "3"],
    "digits and spaces": ["1.5", " NA ", "3.0"],
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_numbers_with_a_gap_are_the_same_floats_in_every_spelling(spelling):
    tidied = cells.tidy(pd.Series(SPELLINGS[spelling], name="x"))
    chex.assert_trees_all_equal(tidied.to_numpy(np.float64), np.array([1.5, np.nan, 3.0]), strict=True)
    assert cells.is_number(tidied) and not cells.is_text(tidied)


@pytest.mark.parametrize("dtype", ["int64", "Int64", "int64[pyarrow]"])
def test_whole_numbers_without_a_gap_stay_whole(dtype):
    tidied = cells.tidy(pd.Series([1, 2**53 + 1]).astype(dtype))
    chex.assert_trees_all_equal(tidied.to_numpy(), np.array([1, 2**53 + 1]), strict=True)


@pytest.mark.parametrize("values", [[True, False, None], pd.array([True, False, None], "boolean")])
def test_truth_values_with_a_gap_are_one_zero_and_nan(values):
    chex.assert_trees_all_equal(cells.tidy(pd.Series(values)).to_numpy(np.float64), np.array([1.0, 0.0, np.nan]))


@pytest.mark.parametrize("dtype", [object, "str", "category", "string"])
@pytest.mark.parametrize("gap", [gap for gap in readers.GAPS])
def test_every_spelling_of_a_gap_in_text_is_a_gap(dtype, gap):
    tidied = cells.tidy(pd.Series(["shop", gap, "none"]).astype(dtype))
    assert cells.is_text(tidied)
    assert tidied.isna().tolist() == [False, True, False]


@pytest.mark.parametrize(
    "values",
    [
        ["2026-01-31", None, "2026-02-01"],
        ["2026-01-31 00:00:00", "?", "2026-02-01T00:00:00"],
        [datetime.date(2026, 1, 31), None, datetime.date(2026, 2, 1)],
        [datetime.datetime(2026, 1, 31), None, datetime.datetime(2026, 2, 1)],
    ],
)
def test_dates_are_dates_in_every_spelling(values):
    tidied = cells.tidy(pd.Series(values))
    assert cells.is_date(tidied)
    chex.assert_trees_all_equal(cells.seconds(tidied), np.array([1769817600.0, np.nan, 1769904000.0]))


def test_dates_of_summer_and_winter_are_one_clock():
    tidied = cells.tidy(pd.Series(["2026-01-31T12:00:00+01:00", "2026-07-31T12:00:00+02:00"]))
    assert cells.seconds(tidied).tolist() == [1769857200.0, 1785492000.0]
    for at, text in enumerate(["2026-01-31T12:00:00+01:00", "2026-07-31T12:00:00+02:00"]):  # alone as among others
        alone = cells.tidy(pd.Series([text]))
        assert cells.seconds(alone)[0] == cells.wall_seconds(alone)[0] == cells.wall_seconds(tidied)[at]


@pytest.mark.parametrize("values", [[1, None, 3], ["1", "3", None], [0.5, 2.5, None]])
def test_an_ordered_category_is_what_it_holds(values):
    tidied = cells.tidy(pd.Series(pd.Categorical(values, ordered=True)))
    expected = [np.nan if value is None else float(value) for value in values]
    chex.assert_trees_all_equal(tidied.to_numpy(np.float64), np.array(expected))


@pytest.mark.parametrize("values", [[1j, 2j], [[1], [2]], [1, "a"], [b"a", b"b"], [datetime.time(1), datetime.time(2)]])
def test_what_is_no_cell_of_a_table_is_neither_number_nor_text(values):
    tidied = cells.tidy(pd.Series(values))
    assert not (cells.is_number(tidied) or cells.is_text(tidied) or cells.is_date(tidied))


def test_a_date_that_does_not_exist_leaves_text():
    assert cells.is_text(cells.tidy(pd.Series(["2026-02-30", "2026-02-01"])))


def test_the_hour_is_that_of_the_wall_and_the_order_that_of_the_sun():
    paris = pd.Series(pd.to_datetime(["2026-07-01 12:00"])).dt.tz_localize("Europe/Paris")
    utc = pd.Series(pd.to_datetime(["2026-07-01 10:00"]))
    chex.assert_trees_all_equal(cells.seconds(paris), cells.seconds(utc))
    assert cells.wall_seconds(paris)[0] - cells.seconds(paris)[0] == 7200


@pytest.mark.parametrize("values", [[7, 12], [7.0, 12.0], ["7", "12"], pd.array([7, 12], "Int64")])
def test_a_whole_number_has_one_text_however_it_is_stored(values):
    assert cells.as_text(cells.tidy(pd.Series(values))).tolist() == ["7", "12"]


def test_a_gap_stays_a_gap_as_text():
    assert cells.as_text(pd.Series([7.0, np.nan])).isna().tolist() == [False, True]


def test_dates_without_a_time_among_others_are_counted():
    column = pd.Series(["2026-01-31 12:00:00", "2026-01-31", "2026-02-01", None], name="when")
    with pytest.warns(UserWarning, match="`when` has 2 date.s. without a time of day"):
        assert cells.tidy(column).dt.hour.tolist()[:3] == [12, 0, 0]
