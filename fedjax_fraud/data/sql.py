"""A table from a database: any that SQLAlchemy knows, by a query of the user's own."""

import re
import sqlite3
from pathlib import Path
from types import ModuleType

import pandas as pd

READING = ("select", "with", "values", "table", "from", "show")


def is_url(source: object) -> bool:
    """Whether ``source`` is a database URL such as ``sqlite:///bank.db``, and no file name."""
    return isinstance(source, str) and "://" in source


def read_query(url: str, query: str) -> tuple[pd.DataFrame, str]:
    """What a query returns, and what to call it: the URL without its password, and the query.

    The query must begin as one that reads; a SQLite file is opened for reading only, other databases roll back what is
    not committed.

    Args:
      url: as SQLAlchemy takes it: ``sqlite:///bank.db``, ``postgresql+psycopg://user@host/bank``.
      query: SQL that returns rows.
    Returns: the table, and its source for the record.
    Raises:
      ImportError: SQLAlchemy, or the driver of that database, is not installed.
      FileNotFoundError: there is no such SQLite file.
      ValueError: the URL cannot be read, the database cannot be reached, or it refuses the query.
    """
    alchemy = _alchemy()
    try:
        parsed = alchemy.engine.make_url(url)
    except alchemy.exc.ArgumentError as error:
        raise ValueError("`data` is not a database URL. Write it as in sqlite:///bank.db.") from error
    source = f"{parsed.render_as_string(hide_password=True)}: {' '.join(query.split())}"
    _check_reads(query)
    _check_sqlite_file(parsed)
    try:
        options = _read_only(parsed) | dict(poolclass=alchemy.pool.NullPool)  # nothing stays open afterwards
        engine = alchemy.create_engine(parsed, **options)
        with engine.connect() as connection:
            frame = pd.read_sql_query(alchemy.text(query), connection)
    except (ModuleNotFoundError, alchemy.exc.NoSuchModuleError) as error:
        raise ImportError(
            f"`data` needs the driver of {parsed.drivername}, which is not installed: {_reason(error)}. Install it, "
            "for example `pip install 'psycopg[binary]'` for postgresql+psycopg."
        ) from error
    except (alchemy.exc.SQLAlchemyError, pd.errors.DatabaseError) as error:
        raise ValueError(
            f"`query` failed on {parsed.render_as_string(hide_password=True)}: {_reason(error)}. "
            "Check the URL and try the query in the database's own shell."
        ) from error
    return frame, source


def _alchemy() -> ModuleType:
    try:
        import sqlalchemy
    except ImportError as error:
        raise ImportError(
            "`data` is a database URL, which needs SQLAlchemy. Install it: `pip install 'fedjax-fraud[sql]'`."
        ) from error
    return sqlalchemy


def _check_reads(query: str) -> None:
    """Raises ValueError for a query that does not begin as one that only reads."""
    words = re.findall(r"[a-z]+", re.sub(r"--[^\n]*|/\*.*?\*/", " ", query, flags=re.DOTALL).lower())
    if not words or words[0] not in READING:
        raise ValueError(f"`query` must begin with {', '.join(READING)}, got {query[:40]!r}. It may only read.")


def _read_only(url) -> dict:
    """Options of an engine that cannot change a SQLite file; other databases roll back what is not committed."""
    if not _is_sqlite_file(url):
        return {}
    place = f"{Path(url.database).resolve().as_uri()}?mode=ro"
    return dict(creator=lambda: sqlite3.connect(place, uri=True))


def _is_sqlite_file(url) -> bool:
    name = url.database
    return url.get_backend_name() == "sqlite" and name not in (None, "", ":memory:") and not name.startswith("file:")


def _check_sqlite_file(url) -> None:
    """SQLite makes an empty database of a name that does not exist; a typing error must not."""
    if _is_sqlite_file(url) and not Path(url.database).is_file():
        raise FileNotFoundError(f"`data` must name a SQLite file, got {url.database!r}. Check the name and the folder.")


def _reason(error: BaseException) -> str:
    """The first line of what the database said."""
    return str(getattr(error, "orig", None) or error).strip().split("\n")[0].strip(". ")
