"""Tables from a database: SQLite in a file, PostgreSQL where there is one, and a clear line for what is wrong."""

import os
import sqlite3
import sys

import chex
import numpy as np
import pandas as pd
import pytest

from fedjax_fraud.data import load_table, read_frame

pytest.importorskip("sqlalchemy")

FRAME = pd.DataFrame(
    {
        "amount": [1.5, 20.0, None, 4.0],
        "kind": ["shop", None, "web", "shop"],
        "bank": ["A", "B", "A", "B"],
        "at": ["2026-01-01 10:00:00", "2026-01-02 11:00:00", "2026-01-03 12:00:00", "2026-01-04 13:00:00"],
        "fraud": [0, 1, 0, 1],
    }
)
QUERY = "select * from payments order by at"


@pytest.fixture
def url(tmp_path):
    """A SQLite file with the table ``payments``."""
    path = tmp_path / "bank.db"
    connection = sqlite3.connect(path)
    FRAME.to_sql("payments", connection, index=False)
    connection.close()
    return f"sqlite:///{path}"


def load(source, **options):
    return load_table(source, "fraud", silo="bank", time="at", **options)


def test_a_query_gives_what_the_same_table_in_memory_gives(url):
    loaded, expected = load(url, query=QUERY), load(FRAME)
    assert loaded.names == expected.names
    for name in ("features", "labels", "time", "silo"):
        chex.assert_trees_all_equal(getattr(loaded, name), getattr(expected, name))
    assert loaded.encoding == expected.encoding
    assert loaded.source == f"{url}: {QUERY}"


@pytest.mark.parametrize(
    "query, words",
    [
        ("delete from payments", "`query` must begin with select"),
        ("-- harmless\ndrop table payments", "`query` must begin with select"),
        ("with x as (select 1) delete from payments", "`query` failed.*readonly"),
    ],
)
def test_a_query_cannot_change_the_database(url, query, words):
    with pytest.raises(ValueError, match=words):
        read_frame(url, query=query)
    assert len(read_frame(url, query=QUERY)) == 4


def test_what_the_database_refuses_is_one_line(url):
    with pytest.raises(ValueError, match=r"`query` failed on sqlite:///.*no such table: nowhere") as caught:
        read_frame(url, query="select * from nowhere")
    assert "\n" not in str(caught.value)


def test_a_file_that_does_not_exist_is_not_created(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.db"):
        read_frame(f"sqlite:///{tmp_path}/none.db", query="select 1")
    assert list(tmp_path.iterdir()) == []


def test_a_password_is_in_no_message():
    with pytest.raises((ImportError, ValueError)) as caught:
        read_frame("postgresql+psycopg://me:secret@127.0.0.1:1/bank", query="select 1")
    assert "secret" not in str(caught.value)


def test_a_driver_that_is_not_there_is_named():
    with pytest.raises(ImportError, match="driver of nosuch"):
        read_frame("nosuch://host/bank", query="select 1")


def test_without_sqlalchemy_the_extra_is_named(url, monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(ImportError, match=r"SQLAlchemy.*fedjax-fraud\[sql\]"):
        read_frame(url, query=QUERY)


def test_a_database_needs_a_query_and_a_file_does_not(url, tmp_path):
    with pytest.raises(ValueError, match="needs a `query`"):
        read_frame(url)
    with pytest.raises(ValueError, match="`query` is for a database"):
        read_frame(tmp_path / "rows.csv", query=QUERY)


def test_a_query_without_rows_says_so(url):
    with pytest.raises(ValueError, match="no rows"):
        load(url, query="select * from payments where amount > 1000")


def test_postgresql_gives_the_same_table():
    """Set FEDJAX_FRAUD_POSTGRES to the URL of any database: the rows come with the query."""
    url = os.environ.get("FEDJAX_FRAUD_POSTGRES")
    if not url:
        pytest.skip("no PostgreSQL here: FEDJAX_FRAUD_POSTGRES is not set")
    rows = ", ".join(
        f"({'null' if np.isnan(row.amount) else row.amount}, {'null' if row.kind is None else repr(row.kind)}, "
        f"'{row.bank}', timestamp '{row.at}', {bool(row.fraud)})"
        for row in FRAME.replace({np.nan: None}).assign(amount=FRAME.amount).itertuples()
    )
    query = f"select * from (values {rows}) as payments (amount, kind, bank, at, fraud) order by at"
    loaded, expected = load(url, query=query), load(FRAME)
    assert loaded.names == expected.names
    for name in ("features", "labels", "time", "silo"):
        chex.assert_trees_all_equal(getattr(loaded, name), getattr(expected, name))
