"""Where a table comes from: a file, several files, a database, or memory -> one DataFrame."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from fedjax_fraud.data import readers, sql

FILE_COLUMN = "file"

Source = str | Path | pd.DataFrame | Sequence[str | Path]


def read_frame(source: Source, *, query: str | None = None, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """The raw table, as ``load_table`` reads it: for ``Preprocessing.features``, or to look at.

    Args:
      source: a CSV file (any name; gzip if it ends in ``.gz``; its fields separated by commas, semicolons, tabs or
        vertical bars), a Parquet file (``.parquet``), several such files with the same columns, a database URL, or a
        DataFrame.
      query: what to ask a database; needed for a URL, refused for anything else.
      columns: the names of the columns of CSV files that have no line of names.
    Returns: the table; several files also give a column ``file`` with the name of each row's file.
    Raises:
      FileNotFoundError: there is no such file.
      ImportError: a database needs a package that is not installed.
      ValueError: a file is damaged, the files do not fit together, or ``query`` is missing or has no use.
    """
    return read(source, query=query, columns=columns)[0]


def read(
    source: Source, *, query: str | None = None, columns: Sequence[str] | None = None
) -> tuple[pd.DataFrame, str, readers.Where]:
    """The table as ``read_frame``, what to call it, and where its rows are."""
    if sql.is_url(source):
        if query is None:
            raise ValueError(
                "`data` is a database URL, which needs a `query`. Pass one, such as 'select * from payments'."
            )
        frame, name = sql.read_query(source, query)
        _check_names(frame)
        return frame.rename(columns=str), name, lambda row: f"row {row + 1} of the query"
    if query is not None:
        raise ValueError("`query` is for a database, and `data` is no URL such as sqlite:///bank.db. Leave it out.")
    if isinstance(source, pd.DataFrame):
        if columns is not None:
            raise ValueError("`columns` is for CSV files without a line of names, got a DataFrame. Leave it out.")
        _check_names(source)
        return source.rename(columns=str), "DataFrame", lambda row: f"row {row + 1} of the table"
    if isinstance(source, str | Path):
        source = [source]
    return _read_files([readers.check_file(path) for path in source], columns)


def _check_names(frame: pd.DataFrame) -> None:
    if not frame.columns.is_unique:
        repeated = frame.columns[frame.columns.duplicated()][0]
        raise ValueError(f"`path_or_frame` has more than one column `{repeated}`. Rename or remove one.")


def _read_files(paths: Sequence[Path], columns: Sequence[str] | None) -> tuple[pd.DataFrame, str, readers.Where]:
    """One table of all files, in order; with the column ``file`` if there are several."""
    if not paths:
        raise ValueError("`data` must name at least one file, got none. Add one.")
    tables = [_read_arrow(path, columns) for path in paths]
    if len(paths) == 1:
        return _frame(tables[0]), _name(paths[0], columns), _where(paths[0], columns)
    names = _file_names(paths)
    for path, table in zip(paths, tables, strict=True):
        _check_alike(paths[0], tables[0], path, table)
    tables = _with_codes_alike(tables)
    tables = [
        table.append_column(FILE_COLUMN, pa.array([name] * table.num_rows, pa.string()))
        for name, table in zip(names, tables, strict=True)
    ]
    try:
        joined = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        reason = str(error).split("\n")[0].strip(". ")
        raise ValueError(f"`data` has files that do not fit together: {reason}. Mend that column.") from error
    sizes = [table.num_rows for table in tables]
    name = ", ".join(_name(path, columns) for path in paths)
    return _frame(joined), name, partial(_where_of_several, paths, sizes, columns)


def _read_arrow(path: Path, columns: Sequence[str] | None) -> pa.Table:
    if path.suffix != ".parquet":
        return readers.read_csv(path, columns)
    if columns is not None:
        raise ValueError(f"`columns` is for CSV files without a line of names, got {path.name}. Leave it out.")
    try:
        table = pa.parquet.read_table(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"`path_or_frame` {path.name} is not a Parquet file. Copy it again.") from error
    for name in table.column_names:
        if table.column_names.count(name) > 1:
            raise ValueError(f"`path_or_frame` has more than one column `{name}`. Rename or remove one.")
    return table


def _name(path: Path, columns: Sequence[str] | None) -> str:
    """What to call a file in messages and in the record."""
    return path.name if path.suffix == ".parquet" else readers.source_of(path, columns)


def _frame(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(date_as_object=False)


def _with_codes_alike(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """A column that holds codes (00123) in one file is text in all of them, also where no code begins with a zero."""
    codes = {
        name
        for table in tables
        for name, column in zip(table.column_names, table.columns, strict=True)
        if pa.types.is_string(column.type) and readers.holds_codes(column)
    }
    alike = []
    for table in tables:
        fields = [
            pa.field(field.name, pa.string()) if field.name in codes and pa.types.is_integer(field.type) else field
            for field in table.schema
        ]
        alike.append(table.cast(pa.schema(fields)))
    return alike


def _file_names(paths: Sequence[Path]) -> list[str]:
    """A name for each file, without its suffix, with its folder where two would be alike."""
    short = [path.name.removesuffix(".gz").removesuffix(".csv").removesuffix(".parquet") for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]


def _check_alike(first_path: Path, first: pa.Table, path: Path, table: pa.Table) -> None:
    """Raises ValueError unless two files have the same columns, none of them called ``file``."""
    odd = sorted(set(first.column_names) ^ set(table.column_names))
    if odd:
        has, lacks = (path, first_path) if odd[0] in table.column_names else (first_path, path)
        raise ValueError(
            f"`data` has files with other columns: `{odd[0]}` is in {has.name}, not in {lacks.name}. Mend one."
        )
    if FILE_COLUMN in table.column_names:
        raise ValueError(f"`data` is several files, whose names become a column `{FILE_COLUMN}`; rename theirs.")


def _where(path: Path, columns: Sequence[str] | None) -> readers.Where:
    if path.suffix == ".parquet":
        return lambda row: f"row {row + 1} of {path.name}"
    return partial(readers.line_of, path, columns=columns)


def _where_of_several(paths: Sequence[Path], sizes: Sequence[int], columns: Sequence[str] | None, row: int) -> str:
    for path, size in zip(paths, sizes, strict=True):
        if row < size:
            return _where(path, columns)(row)
        row -= size
    raise IndexError(row)
