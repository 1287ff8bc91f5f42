"""Inference: what each column is taken for, and which columns a user is asked about."""

import numpy as np
import pandas as pd
import pytest

from fedjax_fraud.data import load_table

NUM_ROWS = 200
RNG = np.random.default_rng(0)


def frame(**columns):
    """A table with a label, a number, and the given columns."""
    return pd.DataFrame({"y": np.arange(NUM_ROWS) % 5 == 0, "x": RNG.normal(size=NUM_ROWS)} | columns)


def column_of(table, name):
    return next(column for column in table.encoding.columns if column.name == name)


def kinds(table):
    return {column.name: column.kind for column in table.encoding.columns}


def test_every_column_is_listed_with_what_it_was_taken_for():
    table = load_table(
        frame(
            bank=["A", "B"] * 100,
            when=pd.date_range("2026-01-01", periods=NUM_ROWS, freq="3h"),
            customer=[f"C{i}" for i in range(NUM_ROWS)],
            flag=np.arange(NUM_ROWS) % 2,
            kind=["shop", "web", None, "atm"] * 50,
            opened=pd.date_range("2020-01-01", periods=NUM_ROWS),
            currency="EUR",
            note="?",
            remark=np.arange(NUM_ROWS).astype(str),
        ),
        "y",
        silo="bank",
        time="when",
        entity=["customer"],
        drop=["remark"],
    )
    assert kinds(table) == {
        **dict(y="label", x="number", bank="silo", when="time", customer="entity", flag="0/1", kind="category"),
        **dict(opened="date", currency="constant", note="constant", remark="dropped"),
    }
    assert column_of(table, "kind").missing == 50
    assert column_of(table, "kind").categories == ("atm", "shop", "web", None)
    assert column_of(table, "currency").note == "always EUR"
    assert column_of(table, "note").note == "empty"
    assert (column_of(table, "opened").low, column_of(table, "flag").high) == ("2020-01-01T00:00:00", 1.0)
    assert table.names[:3] == ("x", "when.hour_sin", "when.hour_cos")


@pytest.mark.parametrize(
    "num_rows, hours, parts",
    [
        (48, 1, ("hour",)),
        (30, 1, ()),
        (20, 24, ("day_of_seven",)),
        (10, 24, ()),
        (24 * 14, 1, ("hour", "day_of_seven")),
        (24 * 14, None, ()),
    ],
)
def test_the_time_column_gives_the_hour_after_two_days_and_the_weekday_after_two_weeks(num_rows, hours, parts):
    rows = pd.DataFrame({"y": np.arange(num_rows) % 2, "x": RNG.normal(size=num_rows), "t": np.arange(num_rows)})
    table = load_table(rows, "y", time="t", hours_per_unit=hours)
    assert column_of(table, "t").parts == parts
    assert "t" not in table.names


def test_a_time_of_dates_in_whole_days_gives_no_hour():
    days = pd.date_range("2026-01-01", periods=NUM_ROWS)
    assert column_of(load_table(frame(day=days), "y", time="day"), "day").parts == ("weekday",)


def test_number_codes_become_categories_where_that_is_asked():
    table = load_table(frame(code=[1.0, 3.0, np.nan, 7.0] * 50), "y", categories={"code": None})
    assert table.names == ("x", "code=1", "code=3", "code=7", "code is missing")
    assert table.features[:4, 1:].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]


@pytest.mark.parametrize("name", ["ID", "customer_id", "CardNumber", "accountNo"])
def test_whole_numbers_that_look_like_names_are_asked_about(name):
    numbers = RNG.integers(0, 10**6, NUM_ROWS)
    numbers[0] = numbers[1]
    with pytest.warns(UserWarning, match=rf"`{name}` looks by its name.*`drop`.*`entity`"):
        table = load_table(frame(**{name: numbers}), "y")
    assert name in table.names


def test_a_row_number_is_asked_about_by_what_it_holds():
    with pytest.warns(UserWarning, match="`policy` is another whole number in every row"):
        load_table(frame(policy=RNG.permutation(NUM_ROWS)), "y")


def test_the_time_in_another_form_is_asked_about():
    with pytest.warns(UserWarning, match="`days` never falls as time goes on"):
        load_table(frame(t=np.arange(NUM_ROWS), days=np.arange(NUM_ROWS) // 24), "y", time="t")


@pytest.mark.parametrize(
    "name, values", [("amount", RNG.normal(size=NUM_ROWS)), ("pin_number", np.arange(NUM_ROWS) % 9)]
)
def test_amounts_and_short_codes_are_not_asked_about(name, values):
    load_table(frame(**{name: values}), "y")


def test_entities_are_codes_that_agree_across_columns_and_gaps_are_nobody():
    table = load_table(
        frame(origin=["C1", "C2", None, None] * 50, receiver=["C2", "C3", None, "C1"] * 50),
        "y",
        entity=["origin", "receiver"],
    )
    origin, receiver = table.accounts["origin"], table.accounts["receiver"]
    assert origin[1] == receiver[0] and origin[0] == receiver[3]
    gaps = np.concatenate([origin[2::4], origin[3::4], receiver[2::4]])
    assert np.unique(gaps).size == gaps.size and not np.isin(gaps, [*origin[:2], *receiver[:2]]).any()
    assert table.names == ("x",)


def test_numbers_of_two_columns_are_two_kinds_of_entities():
    table = load_table(
        frame(customer=np.arange(NUM_ROWS) % 9, terminal=np.arange(NUM_ROWS) % 9), "y", entity=["customer", "terminal"]
    )
    customers, terminals = np.unique(table.accounts["customer"]), np.unique(table.accounts["terminal"])
    assert customers.size == terminals.size == 9 and np.intersect1d(customers, terminals).size == 0


def test_a_silo_can_be_dealt_to_banks():
    table = load_table(frame(terminal=np.arange(NUM_ROWS) % 40), "y", silo="terminal", silo_buckets=4)
    assert set(table.silo) == {0, 1, 2, 3}
    assert all(np.unique(table.silo[np.arange(NUM_ROWS) % 40 == one]).size == 1 for one in range(40))
    with pytest.raises(ValueError, match="`silo_buckets` needs a `silo`"):
        load_table(frame(), "y", silo_buckets=4)


@pytest.mark.parametrize("column", [["a", None] * 100, [1.5, None] * 100])
def test_a_column_with_the_name_of_a_feature_is_refused(column):
    with pytest.raises(ValueError, match="`z is missing` is a column, and the name of a feature"):
        load_table(frame(**{"z": column, "z is missing": RNG.normal(size=NUM_ROWS)}), "y")


def test_dates_in_another_form_are_shown_the_form():
    times = [f"{1 + row % 28:02d}.01.2026" for row in range(NUM_ROWS)]
    words = r"`t` must hold dates such as 2026-01-31.*got '01\.01\.2026' in row 1.*dayfirst=True"
    with pytest.raises(ValueError, match=words):
        load_table(frame(t=times), "y", time="t")


@pytest.mark.parametrize("values", [[[1], [2]] * 100, [1j, 2j] * 100, [1, "a"] * 100])
def test_what_is_neither_text_nor_number_nor_date_is_refused(values):
    with pytest.raises(ValueError, match=r"`z` must hold numbers.*`drop`"):
        load_table(frame(z=values), "y")


def test_one_column_cannot_be_dropped_and_used():
    with pytest.raises(ValueError, match="`drop` names `bank`, which has another role"):
        load_table(frame(bank=["A", "B"] * 100), "y", silo="bank", drop=["bank"])


def test_an_unknown_treatment_of_gaps_is_refused():
    with pytest.raises(ValueError, match="`missing` knows fill, refuse; got 'guess'"):
        load_table(frame(), "y", missing="guess")
