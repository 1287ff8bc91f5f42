"""`load_paysim`: features without leaks, and one clear line for every broken file."""

import gzip
import pathlib

import chex
import numpy as np
import pandas as pd
import pytest

from fedjax_fraud.data import load_paysim
from fedjax_fraud.data.paysim import TYPES

HEADER = (
    "step,type,amount,nameOrig,oldbalanceOrg,newbalanceOrig,nameDest,oldbalanceDest,newbalanceDest,"
    "isFraud,isFlaggedFraud"
)
ROWS = (
    "1,PAYMENT,9839.64,C1231006815,170136.00,160296.36,M1979787155,0.00,0.00,0,0",
    "1,TRANSFER,181.00,C1305486145,181.00,0.00,C553264065,0.00,0.00,1,0",
    "26,CASH_OUT,181.00,C840083671,181.00,0.00,C553264065,21182.00,21363.00,1,1",
    "27,CASH_IN,100.00,C553264065,0.00,100.00,C38997010,500.00,400.00,0,0",
)


@pytest.fixture
def write(tmp_path):
    """Writes lines (or bytes) to a file and gives its path."""

    def to_file(*lines: str, name: str = "tiny.csv") -> pathlib.Path:
        path = tmp_path / name
        content = ("\n".join(lines) + "\n").encode()
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return to_file


def column(transactions, name):
    return transactions.features[:, transactions.names.index(name)]


def error_of(path, features="known_before"):
    """The one line that loading ``path`` ends with."""
    with pytest.raises(ValueError) as caught:
        load_paysim(path, features)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path.parent) not in message
    return message


@pytest.mark.parametrize("name", ["tiny.csv", "tiny.csv.gz"])
def test_every_field_of_a_small_file_has_the_right_value(write, name):
    loaded = load_paysim(write(HEADER, *ROWS, name=name))
    assert loaded.source == name
    chex.assert_shape(loaded.features, (4, len(loaded.names)))
    assert loaded.features.dtype == np.float32
    chex.assert_trees_all_equal(loaded.labels, np.array([0, 1, 1, 0], np.int32), strict=True)
    chex.assert_trees_all_equal(loaded.amount, np.array([9839.64, 181.0, 181.0, 100.0]), strict=True)
    chex.assert_trees_all_equal(loaded.time, np.array([1, 1, 26, 27]), strict=True)
    chex.assert_trees_all_equal(loaded.rule_alarm, np.array([False, True, True, False]), strict=True)
    chex.assert_trees_all_close(column(loaded, "log_amount"), np.log1p(loaded.amount).astype(np.float32))
    angle = 2 * np.pi * np.array([1, 1, 2, 3]) / 24
    chex.assert_trees_all_close(column(loaded, "hour_sin"), np.sin(angle).astype(np.float32), rtol=1e-6)
    chex.assert_trees_all_close(column(loaded, "hour_cos"), np.cos(angle).astype(np.float32), rtol=1e-6)
    chex.assert_trees_all_equal(column(loaded, "night"), np.array([0, 0, 1, 1], np.float32))


def test_only_what_leaves_an_account_counts_against_the_limit(write):
    rows = [ROWS[0].replace("9839.64", "400001"), ROWS[1].replace("181.00", "400001"), ROWS[2]]
    over = column(load_paysim(write(HEADER, *rows)), "log_amount_over_limit")
    chex.assert_trees_all_close(over, np.array([0, np.log(2), 0], np.float32), rtol=1e-5)


def test_equal_account_codes_mean_the_same_account_in_either_role(write):
    accounts = load_paysim(write(HEADER, *ROWS)).accounts
    origin, receiver = accounts["origin"], accounts["receiver"]
    assert receiver[1] == receiver[2] == origin[3]
    assert np.unique(np.concatenate([origin, receiver])).size == 6


def test_the_default_features_hold_no_balance_name_or_flag(write):
    """B28: what gives the label away is left out unless it is asked for."""
    default, everything = (load_paysim(write(HEADER, *ROWS), features) for features in ("known_before", "all"))
    leaks = ("balance", "name", "flagged", "error")
    assert not [name for name in default.names if any(leak in name.lower() for leak in leaks)]
    assert everything.names[: len(default.names)] == default.names
    assert not [name for name in everything.names if "name" in name.lower() or "flagged" in name.lower()]


def test_changing_balances_and_the_flag_changes_no_default_feature(write):
    first = load_paysim(write(HEADER, *ROWS)).features
    other = [row.replace("181.00,0.00", "999.00,818.00").replace("1,1", "1,0") for row in ROWS]
    chex.assert_trees_all_equal(load_paysim(write(HEADER, *other)).features, first)


def test_balance_errors_are_taken_in_float64_before_the_cast(write):
    large = "5,CASH_IN,0.01,C1,59585040.37,59585040.37,C2,356015889.35,356015889.34,0,0"
    loaded = load_paysim(write(HEADER, *ROWS, large), features="all")
    cent = np.log1p(np.float32(0.01))
    chex.assert_trees_all_close(column(loaded, "origin_error")[-1], cent, rtol=1e-5)
    chex.assert_trees_all_close(column(loaded, "receiver_error")[-1], np.log1p(np.float32(0.02)), rtol=1e-5)
    assert column(loaded, "origin_error")[1] == 0
    chex.assert_trees_all_close(column(loaded, "receiver_error")[1], np.log1p(np.float32(181)), rtol=1e-6)


def test_the_rule_needs_an_emptied_origin_an_amount_and_a_leaving_type(write):
    not_alarms = (
        "1,CASH_OUT,0.00,C1,0.00,0.00,C2,0.00,0.00,1,0",
        "1,PAYMENT,5.00,C1,5.00,0.00,M2,0.00,0.00,0,0",
        "1,TRANSFER,5.00,C1,5.00,5.00,C2,0.00,0.00,1,1",
        "1,TRANSFER,6.00,C1,5.00,0.00,C2,0.00,0.00,0,0",
    )
    assert not load_paysim(write(HEADER, *not_alarms)).rule_alarm.any()


def test_files_with_different_types_have_the_same_feature_columns(write):
    """B30: one fixed list of types."""
    first, second = load_paysim(write(HEADER, *ROWS[:2])), load_paysim(write(HEADER, *ROWS[1:]))
    assert first.names == second.names
    assert [name for name in first.names if name.startswith("type_")] == [f"type_{name}" for name in TYPES]
    chex.assert_trees_all_equal(column(first, "type_TRANSFER"), np.array([0, 1], np.float32))
    chex.assert_trees_all_equal(column(second, "type_TRANSFER"), np.array([1, 0, 0], np.float32))


def test_columns_are_found_by_name_in_any_order(write):
    names = HEADER.split(",")
    turned = [",".join([*row.split(",")[::-1], "extra"]) for row in ROWS]
    loaded = load_paysim(write(",".join([*names[::-1], "region"]), *turned))
    chex.assert_trees_all_equal(loaded, load_paysim(write(HEADER, *ROWS)))


def test_a_file_with_the_four_needed_columns_loads_without_rule_and_accounts(write):
    loaded = load_paysim(write("step,type,amount,isFraud", "1,PAYMENT,2,0", "2,TRANSFER,3,1"))
    assert loaded.rule_alarm is None
    assert loaded.accounts == {}


def test_a_byte_order_mark_is_not_part_of_the_first_name(write):
    """B32."""
    loaded = load_paysim(write("\ufeff" + HEADER, *ROWS))
    chex.assert_trees_all_equal(loaded, load_paysim(write(HEADER, *ROWS)))


def test_labels_written_as_floats_are_the_same_labels(write):
    """B32."""
    floats = [row[:-3] + row[-3] + ".0," + row[-1] for row in ROWS]
    chex.assert_trees_all_equal(load_paysim(write(HEADER, *floats)), load_paysim(write(HEADER, *ROWS)))


def test_blocks_of_a_long_file_are_joined_in_order(write, monkeypatch):
    path = write(HEADER, *ROWS * 50)
    whole = load_paysim(path)
    monkeypatch.setattr("fedjax_fraud.data.readers.BLOCK_BYTES", 1000)
    chex.assert_trees_all_equal(load_paysim(path), whole)


def test_a_bad_value_in_a_later_block_is_named_with_its_line(write, monkeypatch):
    monkeypatch.setattr("fedjax_fraud.data.readers.BLOCK_BYTES", 1000)
    path = write(HEADER, *ROWS * 50, ROWS[0].replace("PAYMENT", "PAYMENTS"))
    assert "'PAYMENTS' in line 202 of tiny.csv" in error_of(path)


BAD_ROWS = {
    "too few fields": (ROWS[0][:-2], ("10 fields", "line 6", "expected 11")),
    "too many fields": (ROWS[0] + ",7", ("12 fields", "line 6", "expected 11")),
    "thousands separator": (ROWS[0].replace("9839.64", '"9,839.64"'), ("`amount`", "'9,839.64'", "line 6", "separ")),
    "repeated header": (HEADER, ("repeated", "line 6", "Remove")),
    "text for a number": (ROWS[0].replace("9839.64", "n{o}"), ("`amount`", "'n{o}'", "line 6")),
    "no amount": (ROWS[0].replace("9839.64", ""), ("`amount`", "no value", "line 6")),
    "negative amount": (ROWS[0].replace("9839.64", "-1"), ("`amount`", "-1.0", "line 6")),
    "infinite amount": (ROWS[0].replace("9839.64", "inf"), ("`amount`", "inf", "line 6")),
    "NaN balance": (ROWS[0].replace("170136.00", "nan"), ("`oldbalanceOrg`", "no value", "line 6")),
    "half a step": ("1.5" + ROWS[0][1:], ("`step`", "1.5", "line 6")),
    "unknown type": (ROWS[0].replace("PAYMENT", "CASH-IN"), ("`type`", "'CASH-IN'", "CASH_IN", "line 6")),
    "no type": (ROWS[0].replace("PAYMENT", ""), ("`type`", "no value", "line 6")),
    "empty label": (ROWS[0][:-3] + ",0", ("`isFraud`", "no value", "line 6")),
    "label 2": (ROWS[0][:-3] + "2,0", ("`isFraud`", "2.0", "line 6")),
    "label yes": (ROWS[0][:-3] + "yes,0", ("`isFraud`", "'yes'", "line 6")),
    "no receiver": (ROWS[0].replace("M1979787155", ""), ("`nameDest`", "no value", "line 6")),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_a_row_that_does_not_fit_is_named_with_its_line_and_value(write, case):
    row, expected = BAD_ROWS[case]
    message = error_of(write(HEADER, *ROWS, row))
    assert not [part for part in expected if part not in message], message


def test_lines_are_counted_as_an_editor_does_even_with_blank_ones(write):
    message = error_of(write(HEADER, "", ROWS[0], "", "", ROWS[1].replace("TRANSFER", "GIFT")))
    assert "line 6" in message


BAD_HEADERS = {
    "another spelling": (("oldbalanceOrg", "oldbalanceOrig"), ("Rename `oldbalanceOrig` to `oldbalanceOrg`", "tiny")),
    "other capitals": (("newbalanceDest", "newBalanceDest"), ("Rename `newBalanceDest` to `newbalanceDest`",)),
    "action": (("type", "action"), ("`type` missing", "Rename `action` to `type`", "load_table")),
    "no label": (("isFraud,", "colour,"), ("`isFraud` missing from tiny.csv", "colour")),
    "semicolons in its header alone": ((",", ";"), ("1 fields in line 2 of tiny.csv, expected 11",)),
    "one name twice": (("nameDest", "nameOrig"), ("more than one column `nameOrig`",)),
}


@pytest.mark.parametrize("case", BAD_HEADERS)
def test_a_missing_column_is_named_with_what_was_found_instead(write, case):
    change, expected = BAD_HEADERS[case]
    message = error_of(write(HEADER.replace(*change), *ROWS))
    assert not [part for part in expected if part not in message], message


def test_a_file_in_another_format_is_to_name_its_label_first(write):
    rows = [f"{row},{row}.5,{row % 2},{row % 5 // 4}" for row in range(20)]
    message = error_of(write("when,paid,flag,is_fraud", *rows))
    assert message.startswith(
        "`path` tiny.csv is not in PaySim's format: name its label column, with `load_table`; two values are in "
        "`is_fraud`, `flag`. If it is PaySim's: `step`"
    )


def test_a_parquet_file_is_to_name_its_label(tmp_path):
    pd.DataFrame({"x": [1, 2, 3], "Class": [0, 1, 0]}).to_parquet(tmp_path / "rows.parquet")
    assert "name its label column, with `load_table`; two values are in `Class`" in error_of(tmp_path / "rows.parquet")


def test_semicolons_are_read_like_commas(write):
    lines = (HEADER, *ROWS)
    with_commas, with_semicolons = (load_paysim(write(*(line.replace(",", mark) for line in lines))) for mark in ",;")
    chex.assert_trees_all_equal(with_semicolons.features, with_commas.features, strict=True)
    assert with_semicolons.source == "tiny.csv (separated by semicolons)"


def test_all_features_need_the_balances(write):
    path = write("step,type,amount,isFraud", "1,PAYMENT,2,0", "2,TRANSFER,3,1")
    assert "`oldbalanceOrg`, `newbalanceOrig`, `oldbalanceDest`, `newbalanceDest` missing" in error_of(path, "all")


def test_an_unknown_feature_set_is_refused_before_the_file_is_read(write):
    with pytest.raises(ValueError, match=r"`features` must be one of .*known_before.*all.*'some'"):
        load_paysim("nowhere.csv", "some")


def test_a_missing_file_is_file_not_found(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"`path` must name a file.*none\.csv"):
        load_paysim(tmp_path / "none.csv")
    with pytest.raises(FileNotFoundError):
        load_paysim(tmp_path)


BAD_FILES = {
    "empty": ("tiny.csv", b"", "is empty"),
    "blank": ("tiny.csv", b"\n\n", "is empty"),
    "header only": ("tiny.csv", HEADER.encode() + b"\n", "no rows"),
    "only a header without newline": ("tiny.csv", HEADER.encode(), "no rows"),
    "a picture": ("tiny.csv", b"\x89PNG\r\n\x1a\n\x00\x00", "not a CSV file"),
    "binary zeros": ("tiny.csv", b"\x00\x01\x02\x03\n", "not a CSV file"),
    "gzip without its name": ("tiny.csv", gzip.compress(HEADER.encode()), "not a CSV file in UTF-8"),
    "name of gzip only": ("tiny.csv.gz", HEADER.encode(), "cannot be read"),
    "later bytes not UTF-8": ("tiny.csv", "\n".join([HEADER, *ROWS]).encode() + b"\n1,\xff\xfe", "line 6|UTF-8"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_file_that_is_no_table_is_refused_in_one_line(tmp_path, case):
    name, content, expected = BAD_FILES[case]
    (tmp_path / name).write_bytes(content)
    message = error_of(tmp_path / name)
    assert any(part in message for part in expected.split("|")), message
    assert name in message


@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_a_truncated_gzip_is_refused(tmp_path, kept):
    content = gzip.compress("\n".join([HEADER, *(f"{step}{ROWS[0][1:]}" for step in range(3000))]).encode())
    path = tmp_path / "cut.csv.gz"
    path.write_bytes(content[: int(kept * len(content))])
    assert "cut.csv.gz cannot be read" in error_of(path)


def test_a_file_without_fraud_or_with_nothing_else_is_refused(write):
    assert "no fraud at all in the 2 rows of tiny.csv" in error_of(write(HEADER, ROWS[0], ROWS[3]))
    assert "no genuine row at all" in error_of(write(HEADER, *ROWS[1:3]))


@pytest.mark.shared
@pytest.mark.parametrize(
    "name, num_rows, num_fraud",
    [("head5330.csv", 5330, 42), ("natural86k.csv.gz", 86213, 111), ("transfer_cashout_head.csv.gz", 37586, 114)],
)
def test_the_published_samples_load_with_their_counts(shared_data, name, num_rows, num_fraud):
    loaded = load_paysim(shared_data / f"paysim_kaggle_{name}", "all")
    assert (loaded.labels.size, int(loaded.labels.sum())) == (num_rows, num_fraud)
    chex.assert_tree_all_finite(loaded.features)
    assert not loaded.rule_alarm[loaded.labels == 0].any()


@pytest.mark.shared
def test_paysim_version_2_is_sent_to_load_table(shared_data):
    assert "load_table" in error_of(shared_data / "paysim_v2_accounts_s1.csv.gz")
