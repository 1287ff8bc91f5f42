"""`load_table`: any table, and one clear line for every column that cannot be a feature."""

import functools
import gzip

import chex
import numpy as np
import pandas as pd
import pytest

from fedjax_fraud.data import load_table

FRAME = pd.DataFrame(
    {
        "value": [1, 2, 3, 4],
        "ratio": [0.5, 1.5, -2.0, 0.0],
        "abroad": [True, False, False, True],
        "kind": ["shop", "web", "shop", "atm"],
        "bank": ["B", "A", "B", "A"],
        "day": [1, 2, 3, 4],
        "fraud": [0, 1, 0, 0],
    }
)


@pytest.fixture
def write(tmp_path):
    """Writes lines to a CSV file and gives its path."""

    def to_file(*lines: str, name: str = "tiny.csv"):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path / name

    return to_file


def error_of(source, label="fraud", **options):
    """The one line that loading ``source`` ends with."""
    with pytest.raises(ValueError) as caught:
        load_table(source, label, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_is_the_frame(loaded):
    assert loaded.names == ("value", "ratio", "abroad", "kind=atm", "kind=shop", "kind=web")
    expected = [[1, 0.5, 1, 0, 1, 0], [2, 1.5, 0, 0, 0, 1], [3, -2, 0, 0, 1, 0], [4, 0, 1, 1, 0, 0]]
    chex.assert_trees_all_equal(loaded.features, np.array(expected, np.float32), strict=True)
    chex.assert_trees_all_equal(loaded.labels, np.array([0, 1, 0, 0], np.int32), strict=True)
    chex.assert_trees_all_equal(loaded.amount, np.array([1.0, 2, 3, 4]), strict=True)
    chex.assert_trees_all_equal(loaded.time, np.array([1, 2, 3, 4]), strict=True)
    assert loaded.silo.tolist() == ["B", "A", "B", "A"]
    assert (loaded.accounts, loaded.rule_alarm) == ({}, None)


@pytest.mark.parametrize("kind", ["frame", "csv", "csv.gz", "parquet"])
def test_a_table_is_the_same_from_memory_csv_and_parquet(tmp_path, kind):
    path = tmp_path / f"table.{kind}"
    if kind == "parquet":
        FRAME.to_parquet(path)
    else:
        FRAME.to_csv(path, index=False)
    source = FRAME if kind == "frame" else path
    loaded = load_table(source, "fraud", silo="bank", time="day", amount="value")
    assert_is_the_frame(loaded)
    assert loaded.source == ("DataFrame" if kind == "frame" else path.name)


@pytest.mark.parametrize("dtype", [object, "category", "string", "str"])
def test_text_is_text_in_every_way_pandas_holds_it(dtype):
    """B32: pandas 3 strings are not `object`."""
    frame = FRAME.astype({"kind": dtype, "bank": dtype})
    assert_is_the_frame(load_table(frame, "fraud", silo="bank", time="day", amount="value"))


@pytest.mark.parametrize("labels", [[0.0, 1.0, 0.0, 0.0], [False, True, False, False], ["0", "1", "0", "0.0"]])
def test_floats_truth_values_and_digits_are_labels(labels):
    loaded = load_table(FRAME.assign(fraud=labels), "fraud", silo="bank")
    chex.assert_trees_all_equal(loaded.labels, np.array([0, 1, 0, 0], np.int32), strict=True)


def test_given_categories_fix_the_columns_of_text_and_of_numeric_codes():
    """B30: two parts of a table get the same features."""
    categories = {"kind": ["web", "shop", "atm", "phone"], "day": [1, 2, 3, 4]}
    first, second = (load_table(part, "fraud", silo="bank", categories=categories) for part in (FRAME[:2], FRAME[1:]))
    assert first.names == second.names
    assert first.names[3:] == (
        "kind=web", "kind=shop", "kind=atm", "kind=phone", "day=1", "day=2", "day=3", "day=4",
    )  # fmt: skip
    chex.assert_trees_all_equal(first.features[1], second.features[0])


def test_a_value_outside_the_given_categories_is_named_with_its_row():
    message = error_of(FRAME, silo="bank", categories={"kind": ["shop", "web"]})
    assert "`kind`" in message and "'atm'" in message and "row 4" in message and "`categories`" in message


def test_dates_become_seconds_and_are_no_feature(write):
    path = write("when,x,fraud", "1970-01-01 00:00:01,1,0", "1970-01-02 00:00:00,2,1")
    loaded = load_table(path, "fraud", time="when")
    chex.assert_trees_all_equal(loaded.time, np.array([1.0, 86400.0]), strict=True)
    assert loaded.names == ("x",)
    days = load_table(write("when,x,fraud", "1970-01-01,1,0", "1970-01-03,2,1"), "fraud", time="when")
    chex.assert_trees_all_equal(days.time, np.array([0.0, 172800.0]), strict=True)


def test_a_byte_order_mark_is_not_part_of_the_first_name(write):
    """B32."""
    assert load_table(write("\ufefffraud,x", "0,1", "1,2"), "fraud").names == ("x",)


def test_dropped_columns_may_hold_anything(write):
    path = write("id,note,x,fraud", "a1,,1,0", 'b2,"late, see file",2,1')
    assert load_table(path, "fraud", drop=("id", "note")).names == ("x",)
    assert load_table(path, "fraud", drop=["id", "note"]).names == ("x",)


BAD_CSV = {
    "too few fields": (("x,fraud", "1,0", "2"), ("1 fields", "line 3", "expected 2")),
    "too many fields": (("x,fraud", "1,0", "2,1,5"), ("3 fields", "line 3", "expected 2")),
    "thousands": (("x,fraud", '"9,839.64",0', '"1,864.28",1'), ("`x`", "'9,839.64'", "line 2", "thousands")),
    "some thousands": (("x,fraud", "1,0", '"1,864.28",1'), ("`x`", "'1,864.28'", "line 3", "thousands")),
    "repeated header": (("x,fraud", "1,0", "x,fraud", "2,1"), ("`fraud`", "repeated header", "line 3")),
    "text in numbers": (("x,fraud", "1,0", "2,1", "3,0", "n/k,1"), ("`x`", "'n/k'", "line 5", "`categories`")),
    "empty label": (("x,fraud", "1,0", "2,", "3,1"), ("`fraud`", "no value", "line 3")),
    "label 2": (("x,fraud", "1,0", "2,2", "3,1"), ("`fraud`", "2.0", "line 3")),
    "label yes": (("x,fraud", "1,no", "2,yes"), ("`fraud`", "'no'", "line 2", "1 and 0")),
    "too many texts": (("x,fraud", *(f"c{row},{row % 2}" for row in range(60))), ("`x`", "60", "`drop`", "`entity`")),
    "infinite": (("x,fraud", "1,0", "inf,1"), ("`x`", "inf", "line 3")),
    "beyond float32": (("x,fraud", "1,0", "1e300,1"), ("`x`", "1e+300", "float32", "line 3")),
    "no fraud": (("x,fraud", "1,0", "2,0"), ("`fraud`", "no fraud at all", "2 rows of tiny.csv")),
    "no rows": (("x,fraud",), ("no rows", "tiny.csv")),
    "one name twice": (("x,x,fraud", "1,1,0"), ("more than one column `x`",)),
    "a clock time": (("x,fraud", "12:30:00,0", "12:31:00,1"), ("`x`", "`drop`")),
    "only a label": (("fraud", "0", "1"), ("no feature column",)),
}


@pytest.mark.parametrize("lines", [("x,fraud", "1,0", ",1"), ("x,fraud", "a,0", '"",1'), ("x,fraud", "1.5,0", "?,1")])
def test_gaps_are_refused_with_their_line_where_that_is_asked(write, lines):
    message = error_of(write(*lines), missing="refuse")
    assert "`x`" in message and "no value" in message and "line 3" in message and "`drop`" in message


@pytest.mark.parametrize("case", BAD_CSV)
def test_what_is_wrong_with_a_csv_is_named_with_line_and_value(write, case):
    lines, expected = BAD_CSV[case]
    message = error_of(write(*lines))
    assert not [part for part in expected if part not in message], message


def test_text_with_many_values_is_refused_with_advice_to_drop_it():
    frame = pd.DataFrame({"name": [f"C{row}x" for row in range(51)], "x": range(51), "fraud": [0, 1, 0] * 17})
    message = error_of(frame)
    assert "`name`" in message and "51" in message and "`drop`" in message
    assert len(load_table(frame[:50], "fraud").names) == 51


@pytest.mark.parametrize("role", ["label", "silo", "time", "amount", "drop", "categories"])
def test_a_role_that_names_no_column_is_refused(role):
    options = {"drop": ["colour"], "categories": {"colour": ["red"]}}.get(role, "colour")
    message = error_of(FRAME, **({"label": "fraud"} | {role: options}))
    assert message.startswith(f"`{role}` names `colour`, which is missing from DataFrame. Choose from value, ratio")


def test_the_label_cannot_have_another_role():
    assert "`silo` is the label column `fraud`" in error_of(FRAME, silo="fraud")


def test_gaps_in_the_silo_or_time_are_refused():
    assert "`bank`" in error_of(FRAME.assign(bank=["A", None, "B", "A"]), silo="bank")
    assert "`day`" in error_of(FRAME.assign(day=[1, np.nan, 2, 3]), silo="bank", time="day")


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_a_damaged_file_is_refused_in_one_line(tmp_path, suffix):
    path = tmp_path / f"broken.{suffix}"
    path.write_bytes(b"\x00\xff\xfe\x01" * 100)
    assert f"broken.{suffix}" in error_of(path)


def test_a_missing_file_is_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.parquet"):
        load_table(tmp_path / "none.parquet", "fraud")


@pytest.mark.shared
def test_real_tables_load_with_their_counts(shared_data):
    cards = load_table(shared_data / "ulb_creditcard_sample.parquet", "Class", time="Time", amount="Amount")
    assert (cards.features.shape, int(cards.labels.sum())) == ((8585, 29), 492)
    claims = load_table(shared_data / "vehicle_claims_fraud_15k.csv.gz", "FraudFound_P", drop=["PolicyNumber"])
    assert (claims.labels.size, int(claims.labels.sum())) == (15420, 923)
    banks = load_table(
        shared_data / "paysim_v2_accounts_s1.csv.gz",
        "isFraud",
        silo="bankOrig",
        time="step",
        amount="amount",
        drop=("nameOrig", "nameDest", "isFlaggedFraud"),
    )
    assert (np.unique(banks.silo).size, int(banks.labels.sum())) == (5, 444)


def test_the_unit_of_a_time_column_is_known_for_dates_and_where_it_is_named():
    frame = pd.DataFrame(dict(y=[0, 1, 0], x=[1.0, 2, 3], day=[1, 2, 3], at=pd.date_range("2026-01-01", periods=3)))
    load = functools.partial(load_table, frame, "y")
    assert load(time="at", drop=["day"]).hours_per_unit == 1 / 3600
    assert load(time="day", drop=["at"]).hours_per_unit is None
    assert load(time="day", drop=["at"], hours_per_unit=24).hours_per_unit == 24
    assert load(drop=["at"]).hours_per_unit is None
    with pytest.raises(ValueError, match="`hours_per_unit`"):
        load(time="day", drop=["at"], hours_per_unit=0)


@pytest.mark.parametrize(
    "column, options, remedy",
    [
        ("bank", dict(silo="bank"), "leave out `silo=...`"),
        ("day", dict(silo="bank", time="day"), "leave out `time=...`"),
        ("value", dict(silo="bank", amount="value"), "leave out `amount=...`"),
        ("ratio", dict(silo="bank", missing="refuse"), "`drop`, or let `missing` be 'fill'"),
    ],
)
def test_the_advice_on_a_gap_is_that_of_the_column(column, options, remedy):
    message = error_of(FRAME.assign(**{column: FRAME[column].where(FRAME.index != 1)}), **options)
    assert f"`{column}` must have a value in every row, got no value in row 2" in message and remedy in message


# ---- separators, decimal commas, codes --------------------------------------------------------------------------

ROWS_OF_TEXT = ("code{0}x{0}kind{0}fraud", "01067{0}1.5{0}web{0}0", "80331{0}2.5{0}shop{0}1", "01067{0}-1{0}web{0}0")


@pytest.mark.parametrize("mark, name", [(";", "semicolons"), ("\t", "tabs"), ("|", "vertical bars"), (",", None)])
@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_what_separates_the_fields_is_seen_and_said(tmp_path, mark, name, suffix):
    text = "\n".join(ROWS_OF_TEXT).format(mark) + "\n"
    path = tmp_path / f"rows.{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    loaded = load_table(path, "fraud")
    assert loaded.names == ("code=01067", "code=80331", "x", "kind=shop", "kind=web")
    assert loaded.source == (path.name if name is None else f"{path.name} (separated by {name})")


def test_a_place_in_a_file_with_semicolons_is_its_line(write):
    message = error_of(write('"x";fraud', "1;0", '"2";7'))
    assert "line 3" in message and "7.0" in message
    assert "3 fields in line 3" in error_of(write("x;fraud", "1;0", "2;1;5"))


def test_a_name_with_a_comma_among_semicolons_is_a_name(write):
    assert load_table(write("paid, EUR;fraud;x", "1;0;1", "2;1;2"), "fraud").names == ("paid, EUR", "x")


def test_the_separator_of_a_file_without_names_gives_as_many_fields_as_names(write):
    path = write("1,5;2;0", "2,5;3;1", name="bare.data")
    assert load_table(path, "y", columns=["a", "b", "y"], drop=["a"]).names == ("b",)


@pytest.mark.parametrize("options", [{}, dict(amount="paid"), dict(time="paid")])
def test_decimal_commas_are_named_and_not_taken_for_text(write, options):
    lines = ("paid;kind;share;fraud", "1,5;a;1;0", "1.234,75;b;0,25;1", "?;a;2;0", "3;a;0,5;1")
    message = error_of(write(*lines), **options)
    assert message.startswith("`paid`, `share`: numbers with a decimal comma, such as '1,5' in line 2 of tiny.csv.")
    assert "1.5 for 1,5" in message


def test_thousands_alone_are_no_decimal_commas(write):
    assert "thousands separators" in error_of(write("x;fraud", "1,234;0", "12,345;1", "7;0"))


CODES = ["01067", "80331", None, "01067"]


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet"])
def test_digits_with_leading_zeros_are_codes_and_that_is_said(tmp_path, kind):
    frame = pd.DataFrame(dict(code=CODES, x=[1.0, 2, 3, 4], fraud=[0, 1, 0, 1]))
    path = tmp_path / f"rows.{kind}"
    if kind != "frame":
        frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    loaded = load_table(frame if kind == "frame" else path, "fraud")
    assert loaded.names == ("code=01067", "code=80331", "code is missing", "x")
    assert "digits with leading zeros: codes, not numbers" in loaded.encoding.describe()
    assert "digits with leading zeros" in loaded.encoding.summary()


def test_codes_longer_than_any_number_keep_their_zeros_too(write):
    long, other = "0" * 5 + "1" * 20, "2" * 25
    loaded = load_table(write("code,x,fraud", f"{long},1,0", f"{other},2,1"), "fraud")
    assert loaded.names == (f"code={long}", f"code={other}", "x")


@pytest.mark.parametrize("values", [("0", "10", "0.5"), ("0", "-1", "1"), ("0.07", "00.5", "1e3")])
def test_numbers_that_begin_with_a_zero_are_numbers(write, values):
    rows = (f"{value},{at % 2}" for at, value in enumerate(values))
    assert load_table(write("x,fraud", *rows), "fraud").names == ("x",)


def test_codes_of_one_file_are_codes_in_all_of_them(write):
    paths = [write("code,x,fraud", "01,1,0", name="a.csv"), write("code,x,fraud", "12,2,1", name="b.csv")]
    assert load_table(paths, "fraud").names == ("code=01", "code=12", "x")
    assert load_table(paths[::-1], "fraud").names == ("code=01", "code=12", "x")


def test_label_time_and_amount_are_numbers_whatever_zeros_they_begin_with(write):
    path = write("t,paid,bank,fraud", "08,007,01,00", "09,010,02,01", "10,120,02,00")
    loaded = load_table(path, "fraud", time="t", amount="paid", silo="bank", hours_per_unit=1)
    assert loaded.labels.tolist() == [0, 1, 0] and loaded.names == ("paid",)
    assert loaded.time.tolist() == [8, 9, 10] and loaded.amount.tolist() == [7, 10, 120]
    assert loaded.silo.tolist() == ["01", "02", "02"]


def test_too_many_codes_are_explained():
    frame = pd.DataFrame({"shop": [f"{row:04d}" for row in range(60)], "x": range(60), "fraud": [0, 1, 0] * 20})
    message = error_of(frame)
    assert "`shop` is a category of 60" in message and "leading zeros, such as 0000" in message
