"""A table from a database: any that SQLAlchemy knows, by a query of the user's own."""

from pathlib import Path
from types import ModuleType

import pandas as pd


def is_url(source: object) -> bool:
    """Whether ``source`` is a database URL such as ``sqlite:///bank.db``, and no file name."""
    return isinstance(source, str) and "://" in source


def read_query(url: str, query: str) -> tuple[pd.DataFrame, str]:
    """What a query returns, and what to call it: the URL without its password, and the query.

    The connection is opened for this query and closed without committing: a query cannot change the database.

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
    _check_sqlite_file(parsed)
    try:
        engine = alchemy.create_engine(parsed, poolclass=alchemy.pool.NullPool)  # nothing stays open afterwards
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


def _check_sqlite_file(url) -> None:
    """SQLite makes an empty database of a name that does not exist; a typing error must not."""
    name = url.database
    in_memory = name in (None, "", ":memory:") or name.startswith("file:")
    if url.get_backend_name() == "sqlite" and not in_memory and not Path(name).is_file():
        raise FileNotFoundError(f"`data` must name a SQLite file, got {name!r}. Check the name and the folder.")


def _reason(error: BaseException) -> str:
    """The first line of what the database said."""
    return str(getattr(error, "orig", None) or error).strip().split("\n")[0].strip(". ")
