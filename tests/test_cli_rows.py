"""The data options: a table of one's own, as a user would name its columns."""

import sqlite3
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

from fedjax_fraud import cli
from fedjax_fraud.cli import processes
from tests.test_cli import catching_what_is_asked

NUM_ROWS = 240


@pytest.fixture(autouse=True)
def _one_device(monkeypatch):
    monkeypatch.setattr(processes, "set_up_jax", lambda keep_programs: None)


@pytest.fixture
def frame():
    """A bank's table: text labels, gaps, a silo, dates."""
    rng = np.random.default_rng(0)
    amount = rng.lognormal(3, 2, NUM_ROWS)
    return pd.DataFrame(
        {
            "is_fraud": np.where(rng.random(NUM_ROWS) < 0.2, "Yes", "No"),
            "bank": rng.choice(["North", "South", "West"], NUM_ROWS),
            "ts": pd.date_range("2026-01-01", periods=NUM_ROWS, freq="6h"),
            "amount": np.where(np.arange(NUM_ROWS) % 9 == 0, np.nan, amount),
            "customer": [f"C{row % 70}" for row in range(NUM_ROWS)],
            "kind": rng.choice(["shop", "web"], NUM_ROWS),
        }
    )


OWN = ["--label", "is_fraud", "--positive", "Yes", "--silo", "bank", "--time", "ts", "--entity", "customer"]


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """The rows and options that ``sweep`` is called with."""
    run = catching_what_is_asked(monkeypatch)
    return lambda *arguments: run(["sweep", "--out", str(tmp_path / "out"), *map(str, arguments)])


def refusal(capsys, *arguments):
    """The one line of a command that must fail."""
    assert cli.main(["sweep", *map(str, arguments)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_a_table_with_banks_keeps_them(asked, frame, tmp_path):
    frame.to_csv(tmp_path / "my.csv", index=False)
    train, test, options = asked("--data", tmp_path / "my.csv", *OWN)
    assert options["partition_kind"] == "natural"
    assert set(train.silo) == {"North", "South", "West"}
    assert train.labels.sum() + test.labels.sum() == (frame.is_fraud == "Yes").sum()
    assert train.time.max() < test.time.min()
    assert "amount is missing" in train.names and "ts.hour_sin" in train.names


def test_another_partition_can_be_asked_for(asked, frame, tmp_path):
    frame.to_csv(tmp_path / "my.csv", index=False)
    *_, options = asked("--data", tmp_path / "my.csv", *OWN, "--partition", "labels")
    assert options["partition_kind"] == "labels"


def test_what_the_columns_were_taken_for_is_printed_before_training(asked, frame, tmp_path, capsys):
    frame.to_csv(tmp_path / "my.csv", index=False)
    asked("--data", tmp_path / "my.csv", *OWN)
    said = capsys.readouterr().out
    assert said.startswith(f"my.csv: {NUM_ROWS} rows, {(frame.is_fraud == 'Yes').sum()} frauds (")
    for line in ("label      is_fraud", "silo       bank", "signed log amount (27 gaps)", "category   kind (2 values)"):
        assert line in said
    asked("--data", tmp_path / "my.csv", *OWN, "--quiet")
    assert capsys.readouterr().out == ""


def test_a_file_for_each_bank_is_a_federation(asked, frame, tmp_path):
    paths = []
    for bank, rows in frame.groupby("bank"):
        paths.append(tmp_path / f"{bank}.csv")
        rows.drop(columns=["bank", "customer"]).to_csv(paths[-1], index=False, header=False)
    train, _, options = asked(
        "--data",
        *paths,
        "--columns",
        "fraud",
        "ts",
        "amount",
        "kind",
        "--label",
        "fraud",
        "--positive",
        "Yes",
        "--time",
        "ts",
    )
    assert options["partition_kind"] == "natural"
    assert set(train.silo) == {"North", "South", "West"}


def test_a_column_can_be_dealt_to_banks(asked, frame, tmp_path):
    options = "--label is_fraud --positive Yes --silo customer --silo-buckets 4 --drop bank ts --categorical amount"
    frame.assign(amount=frame.amount.round(-2).clip(upper=500)).to_parquet(tmp_path / "my.parquet")
    train, *_ = asked("--data", tmp_path / "my.parquet", *options.split())
    assert set(train.silo) == {0, 1, 2, 3}
    assert "amount=100" in train.names


def test_a_database_is_a_table(asked, frame, tmp_path):
    pytest.importorskip("sqlalchemy")
    connection = sqlite3.connect(tmp_path / "bank.db")
    frame.to_sql("payments", connection, index=False)
    connection.close()
    url = f"sqlite:///{tmp_path / 'bank.db'}"
    train, test, _ = asked("--data", url, "--query", "select * from payments", *OWN)
    frame.to_csv(tmp_path / "my.csv", index=False)
    same, *_ = asked("--data", tmp_path / "my.csv", *OWN)
    np.testing.assert_array_equal(train.features, same.features)
    assert train.labels.size + test.labels.size == NUM_ROWS


@pytest.mark.parametrize(
    "options, words",
    [
        ("--silo bank", ["--silo", "needs --label"]),
        ("--query select", ["--query", "needs --label"]),
        ("--label is_fraud", ["`is_fraud`", "--positive"]),
        ("--label is_fraud --positive maybe", ["--positive", "'maybe'", "No, Yes"]),
        ("--label is_fraud --positive Yes", ["`customer`", "--drop", "--entity"]),
        ("--label is_fraud --positive Yes --entity customer --missing refuse", ["`amount`", "no value", "line 2"]),
        ("--label is_fraud --positive Yes --entity customer --missing guess", ["--missing", "'guess'"]),
        ("--label is_fraud --positive Yes --silo bank --silo-buckets 1", ["--silo-buckets", "1"]),
        ("--label is_fraud --query select", ["--query", "is for a database"]),
    ],
)
def test_what_does_not_fit_is_one_line_with_the_option(capsys, frame, tmp_path, options, words):
    frame.to_csv(tmp_path / "my.csv", index=False)
    line = refusal(capsys, "--data", tmp_path / "my.csv", *options.split(), "--out", tmp_path / "out")
    assert all(word in line for word in words), line
    assert not (tmp_path / "out").exists()


def test_two_files_need_a_label_too(capsys, tmp_path):
    assert "--data needs --label" in refusal(capsys, "--data", "a.csv", "b.csv", "--out", tmp_path / "out")


def test_without_sqlalchemy_the_extra_is_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    line = refusal(
        capsys, "--data", "sqlite:///bank.db", "--query", "select 1", "--label", "y", "--out", tmp_path / "out"
    )
    assert "fedjax-fraud[sql]" in line


@pytest.mark.parametrize("text, value", [("24", 24.0), ("1/3600", 1 / 3600), ("0.5", 0.5)])
def test_a_unit_may_be_a_ratio(text, value):
    assert cli.parser.ratio(text) == value


@pytest.mark.parametrize("text", ["1/0", "a/2", "hour", "1/"])
def test_what_is_no_ratio_is_refused(text):
    with pytest.raises(cli.parser.argparse.ArgumentTypeError):
        cli.parser.ratio(text)


@pytest.mark.parametrize("option", ["--clients 5", "--alphas 0.2", "--rows 100"])
def test_an_option_that_has_no_use_is_refused(capsys, frame, tmp_path, option):
    frame.to_csv(tmp_path / "my.csv", index=False)
    line = refusal(capsys, "--data", tmp_path / "my.csv", *OWN, *option.split())
    assert f"{option} has no use" in line and "Leave it out" in line


def test_one_bank_is_no_federation(capsys, frame, tmp_path):
    frame.assign(bank="North").to_csv(tmp_path / "my.csv", index=False)
    assert "`silo` has the value 'North' only" in refusal(capsys, "--data", tmp_path / "my.csv", *OWN)


def test_dates_that_nobody_splits_by_are_named(asked, capsys, frame, tmp_path):
    frame.to_csv(tmp_path / "my.csv", index=False)
    without = ["--label", "is_fraud", "--positive", "Yes", "--entity", "customer", "--quiet"]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        asked("--data", tmp_path / "my.csv", *without)
    assert "`ts` holds dates, but rows are split at random. `--time ts` tests on the future." in capsys.readouterr().err
    asked("--data", tmp_path / "my.csv", *without, "--split", "random")
    assert capsys.readouterr().err == ""


def test_every_column_with_too_many_values_is_named_at_once(capsys, frame, tmp_path):
    rows = range(NUM_ROWS)
    frame.assign(note=[f"note {i}" for i in rows]).to_csv(tmp_path / "my.csv", index=False)
    line = refusal(capsys, "--data", tmp_path / "my.csv", "--label", "is_fraud", "--positive", "Yes", "--silo", "bank")
    assert "`customer` is a category of 70" in line and "`note` (240)" in line and "--drop" in line


def test_a_time_that_is_none_is_named_with_its_line(capsys, frame, tmp_path):
    frame.assign(ts=frame.ts.astype(str).where(frame.index != 30, "yesterday")).to_csv(tmp_path / "my.csv", index=False)
    assert "got 'yesterday' in line 32" in refusal(capsys, "--data", tmp_path / "my.csv", *OWN)


def test_semicolons_are_said_before_training(asked, frame, tmp_path, capsys):
    frame.to_csv(tmp_path / "my.csv", index=False, sep=";")
    asked("--data", tmp_path / "my.csv", *OWN)
    assert capsys.readouterr().out.startswith(f"my.csv (separated by semicolons): {NUM_ROWS} rows, ")


def test_decimal_commas_are_one_line(capsys, frame, tmp_path):
    frame.to_csv(tmp_path / "my.csv", index=False, sep=";", decimal=",")
    line = refusal(capsys, "--data", tmp_path / "my.csv", *OWN)
    assert "`amount`: numbers with a decimal comma" in line and "--drop" in line


def test_without_a_label_the_first_remedy_is_to_name_it(capsys, frame, tmp_path):
    frame.to_csv(tmp_path / "my.csv", index=False)
    line = refusal(capsys, "--data", tmp_path / "my.csv")
    assert line.index("--label COLUMN") < line.index("If it is PaySim's")
    assert "two values are in `is_fraud`, `kind`" in line
    assert "needs --label COLUMN and --query" in refusal(capsys, "--data", "sqlite:///bank.db")


@pytest.fixture
def early(frame, tmp_path):
    """Arguments for a table in which all frauds come early."""
    is_fraud = (frame.index % 5 == 0) & (frame.index < 150)
    frame.assign(is_fraud=np.where(is_fraud, "Yes", "No")).to_csv(tmp_path / "my.csv", index=False)
    return ["--data", str(tmp_path / "my.csv"), *OWN, "--out", str(tmp_path / "out")]


@pytest.mark.parametrize("command", ["sweep", "train"])
def test_test_rows_without_fraud_are_refused_before_training(capsys, early, tmp_path, command):
    assert cli.main([command, *early]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    for word in ("`test` has 0 frauds among 48 rows", "--test-fraction", "--split random", "--time COLUMN"):
        assert word in said.err
    assert not (tmp_path / "out").exists()


def test_a_partition_needs_no_fraud_among_the_test_rows(capsys, early):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert cli.main(["partition", *early]) == 0
    assert "warning: 0 positives in test" in capsys.readouterr().err


def test_a_label_of_other_values_names_the_option(capsys, frame, tmp_path):
    frame.assign(is_fraud=frame.index % 3).to_csv(tmp_path / "my.csv", index=False)
    line = refusal(capsys, "--data", tmp_path / "my.csv", "--label", "is_fraud", "--entity", "customer")
    assert "holds 0, 1, 2" in line and "--positive VALUE" in line


def test_a_gap_in_the_label_is_no_reason_to_drop_it(capsys, frame, tmp_path):
    frame.assign(is_fraud=frame.is_fraud.where(frame.index != 8)).to_csv(tmp_path / "my.csv", index=False)
    line = refusal(capsys, "--data", tmp_path / "my.csv", *OWN)
    assert "no value in line 10 of my.csv. Give such rows their label, or remove them" in line and "--drop" not in line


def test_a_gap_in_the_banks_names_the_option(capsys, frame, tmp_path):
    frame.assign(bank=frame.bank.where(frame.index != 8)).to_csv(tmp_path / "my.csv", index=False)
    assert "or leave out `silo=...` (--silo COLUMN)" in refusal(capsys, "--data", tmp_path / "my.csv", *OWN)
