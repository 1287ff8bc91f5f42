"""PaySim-like transactions from a seed, when there is no file to load.

The raw columns are those of the Kaggle file, made to the figures in ``calibration.py``; ``paysim.from_batches``
turns them into features exactly as it does for a file.
"""

import gzip
from collections.abc import Mapping
from io import BufferedWriter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from fedjax_fraud.data import calibration, paysim
from fedjax_fraud.data.calibration import Curve
from fedjax_fraud.files import replacing
from fedjax_fraud.types import Transactions

MIN_ROWS = 100
MAX_FRAUD_RATE = 0.5
MONEY = ("amount", *paysim.BALANCES)
CASH_OUT, PAYMENT, TRANSFER = (paysim.TYPES.index(name) for name in ("CASH_OUT", "PAYMENT", "TRANSFER"))

Columns = Mapping[str, np.ndarray]


def paysim_like(
    num_rows: int = 100_000,
    seed: int = 0,
    *,
    fraud_rate: float = calibration.FRAUD_RATE,
    features: str = "known_before",
) -> Transactions:
    """Makes PaySim-like transactions, calibrated to the published file.

    Type mix, amounts and balances by type and class, daily rhythm, days of a month, repeated receivers, and fraud as
    TRANSFER and CASH_OUT pairs follow the file. Amounts and the balances before are drawn independently of each
    other, and the rows of one account are no history.

    Args:
      num_rows: at least 100.
      seed: 0 or more; the same seed gives the same bits. NumPy's global state is neither used nor changed.
      fraud_rate: share of fraud rows, in (0, 0.5]. There are ``round(num_rows * fraud_rate)``, but at least 2.
      features: "known_before" or "all", see ``load_paysim``.
    Returns: the transactions by ``time`` (the hour, 1 to 743), with every optional field but ``silo``.
    Raises: ValueError if an argument is out of range.

    Example:
      >>> rows = paysim_like(1_000, seed=0, fraud_rate=0.05)
      >>> rows.features.shape, int(rows.labels.sum())
      ((1000, 12), 50)
    """
    raw = raw_paysim(num_rows, seed, fraud_rate)
    source = f"paysim_like(num_rows={num_rows}, seed={seed}, fraud_rate={fraud_rate})"
    return paysim.from_batches(raw.to_batches(), features, source=source, where=lambda row: f"row {row + 1}")


def write_paysim_csv(
    path: str | Path, num_rows: int = 100_000, seed: int = 0, fraud_rate: float = calibration.FRAUD_RATE
) -> None:
    """Writes what ``paysim_like`` makes as CSV in Kaggle's format; gzip if ``path`` ends in ``.gz``.

    Loading the file gives the transactions of ``paysim_like``. It appears under its name only when it is complete.

    Args:
      path: the file; its folder must exist. A file of that name is replaced.
      num_rows: see ``paysim_like``; so are ``seed`` and ``fraud_rate``.
    Raises:
      ValueError: an argument is out of range.
      FileNotFoundError: there is no such folder.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"`path` is in a folder that does not exist, got {str(path)!r}. Create it first.")
    raw = raw_paysim(num_rows, seed, fraud_rate)
    with replacing(path) as file:
        _write_table(raw, file, compress=path.suffix == ".gz")


def _write_table(raw: pa.Table, file: BufferedWriter, *, compress: bool) -> None:
    """Writes Kaggle's columns with money as two decimals; the same table gives the same bytes."""
    for name in MONEY:
        decimal = raw[name].cast(pa.decimal128(15, 2))
        raw = raw.set_column(raw.schema.get_field_index(name), name, decimal)
    options = pa.csv.WriteOptions(include_header=False, quoting_style="none")
    if not compress:
        file.write(_header(raw))
        return pa.csv.write_csv(raw, file, options)
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as zipped:
        zipped.write(_header(raw))
        return pa.csv.write_csv(raw, zipped, options)


def _header(raw: pa.Table) -> bytes:
    return (",".join(raw.column_names) + "\n").encode()


def raw_paysim(num_rows: int, seed: int, fraud_rate: float) -> pa.Table:
    """The columns of the Kaggle file, sorted by step, in random order within a step.

    Raises: ValueError if an argument is out of range.
    """
    if num_rows < MIN_ROWS:
        raise ValueError(f"`num_rows` must be at least {MIN_ROWS}, got {num_rows}. Raise it.")
    if seed < 0:
        raise ValueError(f"`seed` must be 0 or more, got {seed}. Choose another.")
    if not 0 < fraud_rate <= MAX_FRAUD_RATE:
        raise ValueError(
            f"`fraud_rate` must be in (0, {MAX_FRAUD_RATE}], got {fraud_rate}. It is a share, not a percentage."
        )
    rng = np.random.default_rng(seed)
    num_fraud = max(2, round(num_rows * fraud_rate))
    parts = _genuine(rng, num_rows - num_fraud), _fraud(rng, num_fraud)
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns |= _accounts(rng, columns)
    order = np.lexsort((rng.random(num_rows), columns["step"]))
    return _table({name: column[order] for name, column in columns.items()})


def _genuine(rng: np.random.Generator, num_rows: int) -> Columns:
    """The genuine rows, without their accounts."""
    rows_of_type = np.array([calibration.GENUINE[name].num_rows for name in paysim.TYPES])
    code = rng.choice(len(paysim.TYPES), num_rows, p=rows_of_type / rows_of_type.sum())
    amount, before, receiver_before = np.empty((3, num_rows))
    for index, name in enumerate(paysim.TYPES):
        rows = np.flatnonzero(code == index)
        curves = calibration.GENUINE[name]
        amount[rows] = _draw(rng, curves.amount, rows.size)
        before[rows] = _draw(rng, curves.origin_balance, rows.size)
        receiver_before[rows] = _draw(rng, curves.receiver_balance, rows.size)
    before = np.where(amount == before, _cents(before + 0.01), before)  # only fraud takes exactly all
    step = rng.choice(calibration.LAST_STEP, num_rows, p=_step_shares()) + 1
    received = _received(rng, step, code, amount)
    sign = np.where(code == paysim.TYPES.index("CASH_IN"), 1, -1)
    return {
        "step": step,
        "type": code,
        "amount": amount,
        "oldbalanceOrg": before,
        "newbalanceOrig": _cents(np.maximum(0, before + sign * amount)),
        "oldbalanceDest": receiver_before,
        "newbalanceDest": _cents(np.maximum(0, receiver_before + received)),
        "isFraud": np.zeros(num_rows, np.int64),
        "isFlaggedFraud": np.zeros(num_rows, np.int64),
    }


def _received(rng: np.random.Generator, step: np.ndarray, code: np.ndarray, amount: np.ndarray) -> np.ndarray:
    """By how much each receiver's balance changes: merchants have none, and some are written late."""
    last_steps, shares = list(calibration.LATE_WRITES), list(calibration.LATE_WRITES.values())
    late = rng.random(step.size) < np.array(shares)[np.searchsorted(last_steps, step)]
    return np.select(
        [code == PAYMENT, code == paysim.TYPES.index("CASH_IN")],
        [0.0, -amount],
        amount + late * rng.permutation(amount),
    )


def _fraud(rng: np.random.Generator, num_rows: int) -> Columns:
    """Pairs of TRANSFER and CASH_OUT of one amount in one step (one TRANSFER more if ``num_rows`` is odd)."""
    num_pairs = -(-num_rows // 2)
    step = rng.integers(1, calibration.LAST_STEP + 1, num_pairs)
    balance = _draw(rng, calibration.VICTIM_BALANCE, num_pairs)
    amount = np.minimum(balance, calibration.FRAUD_CAP)
    transfers = _fraud_transfers(rng, step, amount, balance)
    cash_outs = _fraud_cash_outs(rng, step, amount)
    return {name: np.concatenate([transfers[name], cash_outs[name]])[:num_rows] for name in transfers}


def _fraud_transfers(rng: np.random.Generator, step: np.ndarray, amount: np.ndarray, balance: np.ndarray) -> Columns:
    """The victims' money goes to mules, whose own balances stay at 0 in almost every row."""
    flagged = rng.random(step.size) < calibration.FLAGGED
    credited = np.where(rng.random(step.size) < calibration.MULE_UNTOUCHED, 0.0, amount)
    return {
        "step": step,
        "type": np.full(step.size, TRANSFER),
        "amount": amount,
        "oldbalanceOrg": balance,
        "newbalanceOrig": np.where(flagged, balance, _cents(balance - amount)),
        "oldbalanceDest": np.zeros(step.size),
        "newbalanceDest": credited,
        "isFraud": np.ones(step.size, np.int64),
        "isFlaggedFraud": flagged.astype(np.int64),
    }


def _fraud_cash_outs(rng: np.random.Generator, step: np.ndarray, amount: np.ndarray) -> Columns:
    """The same amounts are taken out at once; a few of amount 0, and a few from an origin that shows nothing."""
    kind = rng.random(step.size)
    amount = np.where(kind < calibration.CASHED_NOTHING, 0.0, amount)
    empty = kind < calibration.CASHED_NOTHING + calibration.CASHED_FROM_EMPTY
    receiver_before = _draw(rng, calibration.CASHED_RECEIVER_BALANCE, step.size)
    return {
        "step": step,
        "type": np.full(step.size, CASH_OUT),
        "amount": amount,
        "oldbalanceOrg": np.where(empty, 0.0, amount),
        "newbalanceOrig": np.zeros(step.size),
        "oldbalanceDest": receiver_before,
        "newbalanceDest": _cents(receiver_before + amount),
        "isFraud": np.ones(step.size, np.int64),
        "isFlaggedFraud": np.zeros(step.size, np.int64),
    }


def _accounts(rng: np.random.Generator, columns: Columns) -> Columns:
    """Account numbers: origins, merchants and mules from all numbers; other receivers again and again."""
    num_rows = columns["step"].size
    origin, receiver = rng.integers(0, calibration.NUM_ACCOUNT_NUMBERS, (2, num_rows))
    is_mule = (columns["type"] == TRANSFER) & (columns["isFraud"] == 1)
    customers = np.flatnonzero((columns["type"] != PAYMENT) & ~is_mule)
    # Popularity rises linearly along the pool; 0.93 of a pool drawn 7.4 times a head is seen at all.
    pool_size = max(1, round(customers.size / calibration.ROWS_PER_CUSTOMER_RECEIVER / 0.93))
    pool = rng.integers(0, calibration.NUM_ACCOUNT_NUMBERS, pool_size)
    receiver[customers] = pool[(pool_size * np.sqrt(rng.random(customers.size))).astype(np.int64)]
    return {"nameOrig": origin, "nameDest": receiver}


def _step_shares() -> np.ndarray:
    """The share of genuine rows in each step from 1, with the given shares of hours and of days."""
    step = np.arange(1, calibration.LAST_STEP + 1)
    hour, day = step % 24, (step - 1) // 24
    by_hour, by_day = np.array(calibration.SHARE_BY_HOUR), np.array(calibration.SHARE_BY_DAY)
    shares = by_hour[hour] * by_day[day]
    for _ in range(20):  # alternate scaling: the last day is an hour short, so that hours and days depend a little
        shares *= (by_day / np.maximum(np.bincount(day, shares), 1e-12))[day]
        shares *= (by_hour / np.bincount(hour, shares))[hour]
    return shares / shares.sum()


def _draw(rng: np.random.Generator, curve: Curve, num_rows: int) -> np.ndarray:
    """Random money from a curve: its quantiles, joined in ``log1p``, to the cent."""
    points = dict(zip(calibration.LEVELS, curve.quantiles, strict=True))
    for flat in curve.flats:
        points = {level: value for level, value in points.items() if not flat.start <= level <= flat.stop}
        points |= {flat.start: flat.value, flat.stop: flat.value}
    levels = sorted(points)
    values = np.log1p([points[level] for level in levels])
    return _cents(np.expm1(np.interp(rng.random(num_rows), levels, values)))


def _cents(money: np.ndarray) -> np.ndarray:
    """The nearest whole cents, as the float64 that their decimal text reads as."""
    return np.rint(money * 100) / 100


def _table(columns: Columns) -> pa.Table:
    """Kaggle's columns in Kaggle's order, with types and accounts as text."""
    payment = columns["type"] == PAYMENT
    text = {
        "type": pa.array(paysim.TYPES).take(pa.array(columns["type"])),
        "nameOrig": _account_names(np.zeros_like(payment), columns["nameOrig"]),
        "nameDest": _account_names(payment, columns["nameDest"]),
    }
    order = (
        "step", "type", "amount", "nameOrig", "oldbalanceOrg", "newbalanceOrig", "nameDest", "oldbalanceDest",
        "newbalanceDest", "isFraud", "isFlaggedFraud",
    )  # fmt: skip
    return pa.table({name: text.get(name, columns[name]) for name in order})


def _account_names(is_merchant: np.ndarray, number: np.ndarray) -> pa.Array:
    letter = pa.array(["C", "M"]).take(pa.array(is_merchant.astype(np.int8)))
    return pa.compute.binary_join_element_wise(letter, pa.array(number).cast(pa.string()), "")
