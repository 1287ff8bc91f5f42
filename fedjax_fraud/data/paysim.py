"""PaySim in the format of the Kaggle file: CSV -> Transactions.

Reference: Lopez-Rojas, Elmir, Axelsson, PaySim: A financial mobile money simulator for fraud detection, EMSS 2016.
"""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute

from fedjax_fraud.data import cells, encoding, labels, parsed, readers
from fedjax_fraud.data.accounts import account_codes
from fedjax_fraud.data.encoding import Column, Encoding
from fedjax_fraud.data.parsed import Block
from fedjax_fraud.types import Transactions

TYPES = ("CASH_IN", "CASH_OUT", "DEBIT", "PAYMENT", "TRANSFER")
FEATURE_SETS = ("known_before", "all")
REQUIRED = ("step", "type", "amount", "isFraud")
ACCOUNTS = {"origin": "nameOrig", "receiver": "nameDest"}
BALANCES = ("oldbalanceOrg", "newbalanceOrig", "oldbalanceDest", "newbalanceDest")
NUMBERS = ("step", "amount", "isFraud", *BALANCES)
# Raise the version when the meaning of a parsed column changes: what was kept before is then read anew.
PARSED_VERSION = "1"
PARSED_TYPES = {
    **{name: pa.float64() for name in ("amount", *BALANCES)},
    **{name: pa.int64() for name in ("step", *ACCOUNTS.values())},
    "type": pa.int8(),
    "isFraud": pa.int32(),
}
BLOCK_ROWS = 1 << 16
NIGHT_HOURS = range(2, 8)
MOST_CANDIDATES = 5
LIMIT = 200_000.0  # above this, PaySim's description says, a bank looks closely


def load_paysim(path: str | Path, features: str = "known_before", *, cache: str | Path | None = None) -> Transactions:
    """Loads a PaySim file in Kaggle's format; columns are found by name, in any order, others are ignored.

    ``features="known_before"`` is what a bank knows before it books the transaction: the type (one-hot over the
    fixed list ``TYPES``), the amount (``log1p``; again for TRANSFER and for CASH_OUT alone, and by how much these
    two exceed 200,000) and the hour of the day (``step % 24``: sine, cosine, and whether it is in 2 to 7). Account
    names, ``isFlaggedFraud`` and all balances stay out: even the balance *before* the transaction gives the label
    away, because a fraud takes all of it. ``features="all"`` adds the balances and the errors of their equations,
    as signed logarithms, for comparison with work that uses them.

    Args:
      path: CSV, plain or ``.gz``. ``step``, ``type``, ``amount`` and ``isFraud`` are required. The four balances
        are required for ``features="all"``. Without balances ``rule_alarm`` is None; without ``nameOrig`` or
        ``nameDest`` that role is absent from ``accounts``.
      features: "known_before" or "all".
      cache: a folder to keep the parsed columns in, for both sets of features, so that the next load is several
        times faster; see ``parsed.load`` for when they are read anew. None = keep nothing.
    Returns: the transactions in file order; ``amount`` in the file's currency, ``time`` the hour from 1,
      ``rule_alarm`` where a TRANSFER or CASH_OUT takes exactly all that the origin has.
    Raises:
      FileNotFoundError: there is no such file.
      ValueError: a column is missing or misspelt, a row does not fit (the message has line, column and value), or
        the file has no fraud or nothing but fraud.
    Warns: UserWarning if a kept file is damaged, or ``cache`` cannot be written to; the result is the same.
    """
    _check_features(features)
    path = readers.check_file(path)
    if path.suffix == ".parquet":
        raise ValueError(_label_first(path))
    chosen = _choose_columns(readers.read_header(path), features, path)

    def read() -> Iterator[Block]:
        batches = readers.stream_csv(path, {name: _column_type(name) for name in chosen})
        return _parsed_blocks(batches, partial(readers.line_of, path))

    collect = partial(_collect, features=features, source=readers.source_of(path))
    if cache is None:
        return collect(read())
    schema = pa.schema([(name, PARSED_TYPES[name]) for name in chosen], metadata={"version": PARSED_VERSION})
    return parsed.load(path, cache, schema, read, collect)


def from_batches(
    batches: Iterable[pa.RecordBatch], features: str, *, source: str, where: readers.Where
) -> Transactions:
    """The transactions of record batches with Kaggle's columns: the one way from raw columns to features.

    Args:
      batches: the rows, in order; the same columns in each.
      features: "known_before" or "all".
      source: what to call the data in messages and in the record.
      where: row number from 0 -> where that is, for messages.
    Returns: float32 features ``[samples, features]`` and the fields that the columns allow.
    Raises: ValueError if a value is not allowed, or there are not two classes.
    """
    _check_features(features)
    return _collect(_parsed_blocks(batches, where), features, source)


def _parsed_blocks(batches: Iterable[pa.RecordBatch], where: readers.Where) -> Iterator[Block]:
    """The checked columns of the batches, in blocks small enough for a processor's cache."""
    num_rows = 0
    for batch in batches:
        for first in range(0, batch.num_rows, BLOCK_ROWS):
            yield _parse(batch.slice(first, BLOCK_ROWS), partial(_shifted, where, num_rows + first))
        num_rows += batch.num_rows


def _collect(blocks: Iterable[Block], features: str, source: str) -> Transactions:
    """The transactions of parsed blocks. Raises ValueError if there are not two classes."""
    chunks = [_digest(block, features) for block in blocks]
    if not chunks:
        readers.check_both_classes(np.zeros(0), "isFraud", source)
    joined = _join(chunks)
    readers.check_both_classes(joined.labels, "isFraud", source)
    return joined._replace(source=source, encoding=_encoding(joined, features))


def _encoding(loaded: Transactions, features: str) -> Encoding:
    """What was made of each of Kaggle's columns; those that no feature set ever sees are not listed."""
    kind, note = (encoding.SIGNED_LOG, "") if features == "all" else (encoding.DROPPED, "a fraud takes all of it")
    balances = loaded.rule_alarm is not None or features == "all"
    return Encoding(
        (
            Column("step", encoding.TIME, low=float(loaded.time.min()), high=float(loaded.time.max()), parts=("hour",)),
            Column("type", encoding.CATEGORY, categories=TYPES, fixed=True),
            Column("amount", encoding.SIGNED_LOG, low=float(loaded.amount.min()), high=float(loaded.amount.max())),
            Column("isFraud", encoding.LABEL),
            *(Column(ACCOUNTS[role], encoding.ENTITY) for role in loaded.accounts),
            *(Column(name, kind, note=note) for name in BALANCES if balances),
        ),
        loaded.hours_per_unit,
        amount="amount",
        format="paysim",
        feature_set=features,
    )


def feature_names(features: str) -> tuple[str, ...]:
    """The names of a feature set, in order."""
    empty = {name: np.zeros(1, kind.to_pandas_dtype()) for name, kind in PARSED_TYPES.items()}
    return tuple(_feature_columns(empty, features))


def frame_features(frame: pd.DataFrame, features: str) -> np.ndarray:
    """The features of a raw table with Kaggle's columns, as ``load_paysim`` makes them; it needs no label.

    Args:
      frame: ``step``, ``type``, ``amount``, and the balances for "all".
      features: "known_before" or "all".
    Returns: ``[rows, features]`` float32.
    Raises: ValueError if a column is missing or a value is not allowed.
    """
    needed = ["step", "type", "amount", *(BALANCES if features == "all" else ())]
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        found = ", ".join(map(str, frame.columns))
        raise ValueError(f"`frame` lacks the column `{missing[0]}`, which the features need. It has {found}. Add it.")
    columns = {name: _raw_column(frame[name]) for name in needed}
    types = pa.schema([(name, _column_type(name)) for name in needed])
    table = pa.Table.from_pandas(pd.DataFrame(columns), types, preserve_index=False)
    blocks = _parsed_blocks(table.to_batches(), _row_of_table)
    return np.concatenate([_feature_matrix(block, features) for block in blocks])


def _raw_column(column: pd.Series) -> pd.Series:
    """A column of a raw table as numbers, or as text."""
    if column.name in NUMBERS:
        values = cells.finite_numbers(cells.tidy(column, keep_codes=False), _row_of_table)
        return pd.Series(values, column.index, name=column.name)
    return cells.as_text(cells.tidy(column)).astype(object)


def _row_of_table(row: int) -> str:
    """Where a row is, for messages about a table in memory."""
    return f"row {row + 1} of the table"


def _shifted(where: readers.Where, offset: int, row: int) -> str:
    return where(offset + row)


def _check_features(features: str) -> None:
    if features not in FEATURE_SETS:
        raise ValueError(f"`features` must be one of {FEATURE_SETS}, got {features!r}. Choose 'known_before'.")


def _column_type(name: str) -> pa.DataType:
    return pa.float64() if name in NUMBERS else pa.string()


def _choose_columns(header: Sequence[str], features: str, path: Path) -> list[str]:
    """The columns to read. Raises ValueError if one is missing, or seems to be there under another spelling."""
    required = (*REQUIRED, *BALANCES) if features == "all" else REQUIRED
    optional = (*BALANCES, *ACCOUNTS.values())
    missing = [name for name in required if name not in header]
    close = {name: _near_miss(name, header) for name in (*required, *optional) if name not in header}
    close = {name: found for name, found in close.items() if found}
    if missing or close:
        wanted = ", ".join(f"`{name}`" for name in missing or close)
        renames = "".join(f" Rename `{found}` to `{name}`." for name, found in close.items())
        lacks = f"{wanted} missing from {path.name}, found the columns {', '.join(header)}.{renames}"
        if any(name in REQUIRED and name not in close for name in missing):
            raise ValueError(f"{_label_first(path)} If it is PaySim's: {lacks}")
        raise ValueError(f"{lacks} A table in another format (such as PaySim 2) is read by `load_table`.")
    return [name for name in dict.fromkeys((*required, *optional)) if name in header]


def _label_first(path: Path) -> str:
    """The message for a file in another format: how to name its label, and what that may be."""
    may_be = ", ".join(f"`{name}`" for name in labels.candidates(path)[:MOST_CANDIDATES])
    found = f"; two values are in {may_be}" if may_be else ""
    return f"`path` {path.name} is not in PaySim's format: name its label column, with `load_table`{found}."


def _near_miss(name: str, header: Sequence[str]) -> str | None:
    """The column that ``name`` was probably meant to be, or None."""
    known = (*REQUIRED, *BALANCES, *ACCOUNTS.values())
    candidates = {column.lower().strip(): column for column in header if column not in known}
    if name == "type" and "action" in candidates:
        return candidates["action"]
    close = difflib.get_close_matches(name.lower(), candidates, n=1, cutoff=0.85)
    return candidates[close[0]] if close else None


def _parse(batch: pa.RecordBatch, where: readers.Where) -> Block:
    """One block of raw columns, checked: a type becomes its position in ``TYPES``, an account its code."""
    number = {name: _numbers(batch, name, where) for name in NUMBERS if _has(batch, name)}
    code = _type_codes(batch.column("type"), where)
    readers.refuse_first(
        number["step"] % 1 != 0, number["step"], "`step` must be a whole hour", readers.CORRECT_VALUE, where
    )
    readers.refuse_first(
        number["amount"] < 0, number["amount"], "`amount` must be 0 or more", readers.CORRECT_VALUE, where
    )
    accounts = {name: _codes(batch, name, where) for name in ACCOUNTS.values() if _has(batch, name)}
    columns = number | {"type": code} | accounts
    return {name: column.astype(PARSED_TYPES[name].to_pandas_dtype()) for name, column in columns.items()}


def _digest(block: Block, features: str) -> Transactions:
    """One parsed block with its features."""
    return Transactions(
        features=_feature_matrix(block, features),
        labels=block["isFraud"],
        names=feature_names(features),
        amount=block["amount"],
        time=block["step"],
        accounts={role: block[name] for role, name in ACCOUNTS.items() if name in block},
        rule_alarm=_rule_alarm(block),
        hours_per_unit=1.0,
    )


def _feature_matrix(block: Block, features: str) -> np.ndarray:
    """``[rows, features]`` float32 of one parsed block."""
    columns = _feature_columns(block, features).values()
    return np.stack([column.astype(np.float32) for column in columns], axis=1)


def _feature_columns(block: Block, features: str) -> dict[str, np.ndarray]:
    """name -> ``[rows]`` of one parsed block."""
    columns = _known_before(block["step"], block["type"], block["amount"])
    return columns | _balance_features(block) if features == "all" else columns


def _has(batch: pa.RecordBatch, name: str) -> bool:
    return name in batch.schema.names


def _numbers(batch: pa.RecordBatch, name: str, where: readers.Where) -> np.ndarray:
    """A column of finite float64; the label only 0 or 1."""
    values = batch.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
    if name == "isFraud":
        return readers.check_labels(values, name, where).astype(np.float64)
    rule = f"`{name}` must be a finite number"
    readers.refuse_first(~np.isfinite(values), values, rule, readers.CORRECT_VALUE, where)
    return values


def _type_codes(column: pa.Array, where: readers.Where) -> np.ndarray:
    """The position of each row's type in ``TYPES``."""
    codes = pa.compute.fill_null(pa.compute.index_in(column, value_set=pa.array(TYPES)), -1).to_numpy()
    rule = f"`type` must be one of {', '.join(TYPES)}"
    readers.refuse_first(codes < 0, column, rule, "Correct the type, or remove the row.", where)
    return codes


def _codes(batch: pa.RecordBatch, name: str, where: readers.Where) -> np.ndarray:
    """The account codes of a column of names."""
    names = batch.column(name).cast(pa.string())
    empty = pa.compute.fill_null(pa.compute.equal(names, ""), True).to_numpy(zero_copy_only=False)
    rule, remedy = f"`{name}` must name an account", "Fill it in, or leave the whole column out."
    readers.refuse_first(empty, names, rule, remedy, where)
    return account_codes(names)


def _known_before(step: np.ndarray, code: np.ndarray, amount: np.ndarray) -> dict[str, np.ndarray]:
    """What a bank knows before it books: name -> ``[rows]``."""
    angle = step % 24 * (2 * np.pi / 24)
    log_amount = np.log1p(amount)
    is_type = {name: code == index for index, name in enumerate(TYPES)}
    leaves = is_type["TRANSFER"] | is_type["CASH_OUT"]
    return {
        **{f"type_{name}": rows for name, rows in is_type.items()},
        "log_amount": log_amount,
        "log_amount_TRANSFER": log_amount * is_type["TRANSFER"],
        "log_amount_CASH_OUT": log_amount * is_type["CASH_OUT"],
        "log_amount_over_limit": leaves * np.maximum(0, log_amount - np.log1p(LIMIT)),
        "hour_sin": np.sin(angle),
        "hour_cos": np.cos(angle),
        "night": np.isin(step % 24, NIGHT_HOURS),
    }


def _balance_features(number: Block) -> dict[str, np.ndarray]:
    """Balances and the errors of their equations, differences taken in float64 and rounded to cents."""
    amount = number["amount"]
    origin_error = number["newbalanceOrig"] + amount - number["oldbalanceOrg"]
    receiver_error = number["oldbalanceDest"] + amount - number["newbalanceDest"]
    columns = {f"log_{name}": _signed_log(number[name]) for name in BALANCES}
    return columns | {
        "origin_error": _signed_log(np.round(origin_error, 2)),
        "receiver_error": _signed_log(np.round(receiver_error, 2)),
    }


def _signed_log(values: np.ndarray) -> np.ndarray:
    return np.sign(values) * np.log1p(np.abs(values))


def _rule_alarm(block: Block) -> np.ndarray | None:
    """Whether a TRANSFER or CASH_OUT takes exactly all that the origin has; None without the balances."""
    if "oldbalanceOrg" not in block or "newbalanceOrig" not in block:
        return None
    leaves = np.isin(block["type"], [TYPES.index("TRANSFER"), TYPES.index("CASH_OUT")])
    amount = block["amount"]
    emptied = (amount == block["oldbalanceOrg"]) & (block["newbalanceOrig"] == 0)
    return leaves & emptied & (amount > 0)


def _join(chunks: list[Transactions]) -> Transactions:
    """The rows of all chunks, field by field. Empties ``chunks``, so that only one field at a time is there twice."""
    first = chunks[0]
    fields = ("features", "labels", "amount", "time", "rule_alarm")
    parts = {name: [getattr(chunk, name) for chunk in chunks] for name in fields if getattr(first, name) is not None}
    accounts = {role: [chunk.accounts[role] for chunk in chunks] for role in first.accounts}
    chunks.clear()
    joined = {name: np.concatenate(parts.pop(name)) for name in fields if name in parts}
    return first._replace(**joined, accounts={role: np.concatenate(accounts.pop(role)) for role in first.accounts})
