"""Reading CSV files for the loaders, with one clear line for everything that can be wrong with one.

The fast path is pyarrow's. Only when something is wrong is the file read again, slowly, to find the line.
"""

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

BLOCK_BYTES = 1 << 23
GAPS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?")
"""How people write that there is no value. Lower-case "none" is not among them: it is a value more often than a gap."""
CORRECT_VALUE = "Correct the value, or remove the row."
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
CODE = r"\s*0\d+\s*"
"""Digits with a leading zero, as postcodes and merchants' numbers have them: a name, not a number."""
THOUSANDS = r"\s*[+-]?\d{1,3}(,\d{3})+(\.\d+)?\s*"
DECIMAL_COMMA = r"\s*[+-]?(\d{1,3}(\.\d{3})+|\d+),\d+\s*"
DECIMAL_POINT = "Export numbers with a decimal point, 1.5 for 1,5 and 1234.56 for 1.234,56."

Where = Callable[[int], str]


def check_file(path: str | Path) -> Path:
    """``path`` as a Path. Raises: FileNotFoundError if there is no such file."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"`path` must name a file, got {str(path)!r}. Check the name and the folder.")
    return path


def separator_of(path: Path, columns: Sequence[str] | None = None) -> str:
    """What stands between the fields of a CSV file: comma, semicolon, tab or vertical bar, by its first line.

    The one that gives most column names, or as many fields as there are ``columns``; a comma where several do.

    Args:
      path: a CSV file, plain or ``.gz``.
      columns: the names of its columns, if it has no line of names.
    Raises: ValueError as ``read_header``.
    """
    with _one_line_errors(path), _open_text(path) as file:
        line = next((line for line in file if line.strip("\r\n")), "")
        counts = {mark: len(next(csv.reader([line], delimiter=mark), [])) for mark in SEPARATORS}
    if columns is None:
        return max(counts, key=counts.get)
    return next((mark for mark, count in counts.items() if count == len(columns)), ",")


def source_of(path: Path, columns: Sequence[str] | None = None) -> str:
    """What to call a CSV file: its name, and what separates its fields if that is no comma."""
    separator = separator_of(path, columns)
    return path.name if separator == "," else f"{path.name} (separated by {SEPARATORS[separator]})"


def read_header(path: Path) -> list[str]:
    """The column names of a CSV file, plain or ``.gz``, without a byte-order mark.

    Raises: ValueError if the file is empty, is not text, is damaged, or has two columns of one name.
    """
    separator = separator_of(path)
    with _one_line_errors(path), _open_text(path) as file:
        header = next((row for row in csv.reader(file, delimiter=separator) if row), [])
    if not header:
        raise ValueError(f"`path` {path.name} is empty. It must start with a line of column names.")
    if any("\x00" in name for name in header):
        raise ValueError(f"`path` {path.name} is not a CSV file: its first line is binary. Export it as text.")
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise ValueError(f"`path` {path.name} has more than one column `{repeated[0]}`. Rename or remove one.")
    return header


def stream_csv(
    path: Path, column_types: Mapping[str, pa.DataType], columns: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yields the named columns of a CSV file block by block, so that the text is never held as a whole.

    Args:
      path: a CSV file, plain or ``.gz``.
      column_types: column name -> type; other columns are skipped.
      columns: the names of all its columns, if it has no line of names.
    Yields: record batches; together every row, in file order.
    Raises: ValueError naming line, column and value if a row does not fit.
    """
    convert = pa.csv.ConvertOptions(column_types=dict(column_types), include_columns=list(column_types))
    numeric = [name for name, kind in column_types.items() if pa.types.is_floating(kind)]
    parse = pa.csv.ParseOptions(delimiter=separator_of(path, columns))
    with _one_line_errors(path, numeric, columns), pa.input_stream(str(path), compression="detect") as stream:
        read = pa.csv.ReadOptions(block_size=BLOCK_BYTES, column_names=columns)
        yield from pa.csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert)


def read_csv(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The whole CSV file with the column types that its values suggest; the usual spellings of a gap are gaps.

    Columns of digits of which one has a leading zero (``CODE``) are text.

    Args:
      path: a CSV file, plain or ``.gz``.
      columns: the names of its columns, if it has no line of names.
    Raises: ValueError as ``stream_csv``.
    """
    if columns is None:
        read_header(path)
    table = _read_whole(path, columns, {})
    codes = _codes(path, columns, table)
    return _read_whole(path, columns, dict.fromkeys(codes, pa.string())) if codes else table


def _read_whole(path: Path, columns: Sequence[str] | None, column_types: Mapping[str, pa.DataType]) -> pa.Table:
    read = pa.csv.ReadOptions(column_names=None if columns is None else list(columns))
    parse = pa.csv.ParseOptions(delimiter=separator_of(path, columns))
    convert = pa.csv.ConvertOptions(null_values=list(GAPS), strings_can_be_null=True, column_types=dict(column_types))
    with _one_line_errors(path, columns=columns), pa.input_stream(str(path), compression="detect") as stream:
        return pa.csv.read_csv(stream, read_options=read, parse_options=parse, convert_options=convert)


def _codes(path: Path, columns: Sequence[str] | None, table: pa.Table) -> list[str]:
    """The columns that were read as numbers and hold a code: their text is looked at once more."""
    digits = {name: pa.string() for name in table.column_names if _digits(table[name])}
    found = set()
    for batch in stream_csv(path, digits, columns) if digits and _may_hold_codes(path) else ():
        found |= {name for name in digits if name not in found and holds_codes(batch.column(name))}
        if len(found) == len(digits):
            break
    return sorted(found)


def _may_hold_codes(path: Path) -> bool:
    """Whether a 0 and a digit begin a cell anywhere, by a look at the bytes: most files are not parsed twice so."""
    before = b"\n\n"
    with pa.input_stream(str(path), compression="detect") as stream:
        while block := stream.read(BLOCK_BYTES):
            text = np.frombuffer(before + block, np.uint8)
            zero = 2 + np.flatnonzero(text[2:-1] == ord("0"))
            zero = zero[_is_digit(text[zero + 1])]
            begins = np.isin(text[zero - 1], tuple(b"\n\r\"',;\t|\xbf"))  # the last ends a byte-order mark
            begins |= (text[zero - 1] == ord(" ")) & ~_is_digit(text[zero - 2])  # not 2026-01-31 00:30
            if begins.any():
                return True
            before = (before + block)[-3:]  # a block may end within a cell
    return False


def _is_digit(text: np.ndarray) -> np.ndarray:
    return (text >= ord("0")) & (text <= ord("9"))


def _digits(column: pa.ChunkedArray) -> bool:
    """Whether a column may be digits alone: whole numbers, or floats that are whole and of more than 64 bits."""
    if pa.types.is_floating(column.type):
        largest = pa.compute.max(pa.compute.abs(column)).as_py()
        is_large = largest is not None and largest >= 2.0**63
        return is_large and bool(pa.compute.all(pa.compute.equal(column, pa.compute.floor(column))).as_py())
    return pa.types.is_integer(column.type)


def holds_codes(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a text has digits with a leading zero."""
    return bool(pa.compute.any(pa.compute.match_substring_regex(column, f"^{CODE}$")).as_py())


def line_of(path: Path, row: int, *, columns: Sequence[str] | None = None) -> str:
    """Where data row ``row`` (from 0) of a CSV file ends, for an error message: "line 3 of name.csv"."""
    separator, has_header = separator_of(path, columns), columns is None
    with _open_text(path) as file:
        reader = csv.reader(file, delimiter=separator)
        records = (reader.line_num for fields in reader if fields)
        line = next(line for index, line in enumerate(records) if index == row + has_header)
    return f"line {line} of {path.name}"


def refuse_first(
    bad: np.ndarray, values: np.ndarray | pa.Array | Sequence, rule: str, remedy: str, where: Where
) -> None:
    """Raises ValueError for the first row where ``bad [rows]`` is true; ``rule`` says what must hold of what."""
    if not bad.any():
        return
    row = int(np.argmax(bad))
    value = values[row].as_py() if isinstance(values, pa.Array) else values[row]
    value = value.item() if isinstance(value, np.generic) else value
    shown = "no value" if value is None or value != value or value == "" else repr(value)
    raise ValueError(f"{rule}, got {shown} in {where(row)}. {remedy}")


def check_labels(values: np.ndarray, column: str, where: Where) -> np.ndarray:
    """``values [rows]`` (float64, NaN = no value) as int32 labels. Raises: ValueError unless each is 0 or 1."""
    good = (values == 0) | (values == 1)
    rule = f"`{column}` must be 1 (fraud) or 0 (genuine)"
    refuse_first(~good, values, rule, "Correct the label, or remove the row.", where)
    return values.astype(np.int32)


def check_both_classes(labels: np.ndarray, column: str, source: str) -> None:
    """Raises ValueError if the table has no rows, no fraud, or nothing but fraud."""
    if labels.size == 0:
        raise ValueError(_no_rows(source))
    if labels.min() == labels.max():
        kind = "fraud" if labels[0] == 0 else "genuine row"
        raise ValueError(
            f"`{column}` has no {kind} at all in the {labels.size} rows of {source}. Load a file with both classes, "
            "or more of its rows."
        )


@contextmanager
def _one_line_errors(path: Path, numeric: Sequence[str] = (), columns: Sequence[str] | None = None) -> Iterator[None]:
    """Turns what the readers raise within the block into one line that names file, line, column and value."""
    try:
        yield
    except UnicodeDecodeError as error:
        fix = "Save it as UTF-8 text (Latin-1 by `iconv -f latin1 -t utf-8`); a compressed file must be named .csv.gz."
        raise ValueError(f"`path` {path.name} is not a CSV file in UTF-8. {fix}") from error
    except csv.Error as error:
        raise ValueError(f"`path` {path.name} is not a CSV file: {error}. Export it as text.") from error
    except pa.ArrowInvalid as error:
        raise ValueError(_explain(path, numeric, columns) or _unreadable(path, error)) from error
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(_unreadable(path, error)) from error


def _explain(path: Path, numeric: Sequence[str], columns: Sequence[str] | None) -> str | None:
    """Reads the file line by line for the first row that does not fit its names; None if all do."""
    header, separator, num_rows = list(columns or read_header(path)), separator_of(path, columns), 0
    with _one_line_errors(path), _open_text(path) as file:
        reader = csv.reader(file, delimiter=separator)
        if columns is None:
            next(row for row in reader if row)
        for num_rows, fields in enumerate(filter(None, reader), start=1):  # noqa: B007
            problem = _row_problem(fields, header, numeric)
            if problem:
                return problem.format(place=f"line {reader.line_num} of {path.name}")
    return None if num_rows else _no_rows(path.name)


def _no_rows(source: str) -> str:
    return f"`{source}` has no rows below its column names. Check how it was exported."


def _row_problem(fields: list[str], header: list[str], numeric: Sequence[str]) -> str | None:
    """What is wrong with one row, with ``{place}`` left open; None if nothing is."""
    if fields == header:
        return repeated_header(header[0])
    if len(fields) != len(header):
        return f"`path` has {len(fields)} fields in {{place}}, expected {len(header)}. Correct or remove the line."
    for name, text in zip(header, fields, strict=True):
        if name in numeric and not is_number(text) and text.strip():
            return text_for_number(name, text)
    return None


def repeated_header(column: str) -> str:
    """The message for column names in the middle of a file, with ``{place}`` left open."""
    return f"`{column}` has its own name as a value in {{place}}: the header is repeated there. Remove that line."


def header_rule(name: str) -> tuple[str, str]:
    """What is wrong with a column name among its values, and the remedy."""
    return f"`{name}` has its own name as a value (a repeated header)", "Remove that line."


def text_for_number(column: str, text: str) -> str:
    """The message for ``text`` in a column of numbers, with ``{place}`` left open."""
    shown = text[:40].replace("{", "{{").replace("}", "}}")
    return f"`{column}` must be a number, got {shown!r} in {{place}}. {number_fix(text)}"


def number_fix(text: str) -> str:
    """What to do about ``text`` in a column of numbers."""
    if re.fullmatch(THOUSANDS, text):
        return "Write numbers without thousands separators."
    return DECIMAL_POINT if re.fullmatch(DECIMAL_COMMA, text) else CORRECT_VALUE


def has_decimal_commas(texts: Sequence[str]) -> bool:
    """Whether texts are numbers of which some have a decimal comma: 1,5, and not only 1,234, which may be thousands."""
    with_comma = [text for text in texts if re.fullmatch(DECIMAL_COMMA, text)]
    others = sum(is_number(text) for text in texts)
    return len(with_comma) + others == len(texts) and not all(re.fullmatch(THOUSANDS, text) for text in with_comma)


def is_number(text: str) -> bool:
    """Whether ``text`` is a plain decimal number; NaN and infinities count, 1_000 and 1,000 do not."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _unreadable(path: Path, error: BaseException) -> str:
    reason = str(error).split("\n")[0].strip(". ")
    return f"`path` {path.name} cannot be read: {reason}. Copy it again, or look at it in a text editor."


def _open_text(path: Path) -> TextIOWrapper:
    """The file as text, without its byte-order mark."""
    opener = gzip.open if path.suffix == ".gz" else open
    return opener(path, "rt", encoding="utf-8-sig", newline="")
