"""Train and test sides of a table, put through what the training side alone shows, and their description."""

import warnings
from typing import Any

import numpy as np

from fedjax_fraud.data import accounts, encode, encoding, leaks, preprocessing
from fedjax_fraud.types import Transactions


def split(
    transactions: Transactions, by: str = "time", test_fraction: float = 0.2, seed: int = 0
) -> tuple[Transactions, Transactions]:
    r"""Splits the rows into train and test, both preprocessed with training statistics.

    A feature becomes ``(x - mean) / scale`` with the mean and the standard deviation of the training rows, in
    float64. Where a training column does not vary beyond float32 rounding, scale is 1 and the column becomes 0 (in a
    table it is left out). A gap is filled with the median of the training rows, and an input ``column is missing`` is
    added. Training rows are not clipped. A test value may lie no further out than the farthest training value of its
    column, or 10 standard deviations if that is more; beyond that it is set to the bound. The whole of it is the
    ``preprocessing`` of both sides, which does the same to a new table.

    Args:
      transactions: at least 2 rows; ``by="time"`` needs ``time``.
      by: "time" trains on the past: the boundary lies between two distinct times, where the share of test rows comes
        closest to ``test_fraction`` (the earlier of two equally close). "random" draws ``test_fraction`` of each
        class, rounded, so that a class with one member stays in train.
      test_fraction: wanted share of test rows, in (0, 1).
      seed: 0 or more; of the random split.
    Returns: train and test, with every per-row field; rows keep their order.
    Raises: ValueError if an argument is out of range, ``time`` has one value only, or train would have no fraud.
    Warns: UserWarning if test has no fraud (recall and average precision do not exist there), and if a column of a
      table all but gives the label away, see ``leaks.suspected_leaks``.

    Example: the last fifth of the month is for testing.
      >>> from fedjax_fraud import data
      >>> train, test = data.split(data.paysim_like(1_000, seed=0, fraud_rate=0.05))
      >>> bool(train.time.max() < test.time.min())
      True
      >>> bool(abs(train.features.mean(axis=0)).max() < 1e-5)
      True
    """
    _check_arguments(transactions, by, test_fraction, seed)
    if by == "time":
        in_test = _later_rows(transactions.time, test_fraction)
    else:
        in_test = _random_rows(transactions.labels, test_fraction, seed)
    _check_sides(transactions.labels, in_test, by)
    raw, names, plan = transactions.features, transactions.names, transactions.encoding
    made = preprocessing.fit(raw, names, ~in_test, plan)
    findings = dict(
        filled=preprocessing.gaps_filled(raw, names, in_test, plan, made),
        unseen_categories=preprocessing.unseen_in_test(raw, names, in_test, plan, made),
        suspected_leaks=_suspected_leaks(transactions, ~in_test),
    )
    return tuple(
        _take(transactions, np.flatnonzero(rows))._replace(
            features=preprocessing.apply(made.fitted, raw, names, np.flatnonzero(rows)),
            names=made.names,
            encoding=made.encoding,
            preprocessing=made,
            findings=findings,
        )
        for rows in (~in_test, in_test)
    )


def _check_arguments(transactions: Transactions, by: str, test_fraction: float, seed: int) -> None:
    if by not in ("time", "random"):
        raise ValueError(f"`by` must be 'time' or 'random', got {by!r}. Choose one of them.")
    if not 0 < test_fraction < 1:
        raise ValueError(f"`test_fraction` must be in (0, 1), got {test_fraction}. It is a share, not a percentage.")
    if seed < 0:
        raise ValueError(f"`seed` must be 0 or more, got {seed}. Choose another.")
    if transactions.labels.size < 2:
        raise ValueError(f"`transactions` must have at least 2 rows, got {transactions.labels.size}. Load more.")
    if by == "time" and transactions.time is None:
        raise ValueError("`transactions` has no `time`, which by='time' needs. Name a time column, or by='random'.")
    infinite = np.isinf(transactions.features).any(axis=0)
    if infinite.any():
        name = transactions.names[int(np.argmax(infinite))]
        raise ValueError(f"`transactions` has an infinite value in feature `{name}`. Correct it or drop it.")


def _later_rows(time: np.ndarray, test_fraction: float) -> np.ndarray:
    """Which rows come at or after the time that puts the share closest to ``test_fraction`` on the test side."""
    if time.dtype.kind == "f" and np.isnan(time).any():
        raise ValueError("`transactions` has a NaN in `time`. Fill it, or remove the row.")
    times, counts = np.unique(time, return_counts=True)
    if times.size < 2:
        raise ValueError(f"`time` must have two distinct values, got only {times[0]}. Split by='random'.")
    num_before = np.cumsum(counts)[:-1]
    distance = np.abs((time.size - num_before) - test_fraction * time.size)
    return time >= times[1 + int(np.argmin(distance))]


def _random_rows(labels: np.ndarray, test_fraction: float, seed: int) -> np.ndarray:
    """Which rows are drawn for the test side: ``test_fraction`` of each class, but never all of it."""
    rng = np.random.default_rng(seed)
    in_test = np.zeros(labels.size, bool)
    for label in (0, 1):
        rows = np.flatnonzero(labels == label)
        num_test = min(int(np.floor(test_fraction * rows.size + 0.5)), max(rows.size - 1, 0))
        in_test[rng.permutation(rows)[:num_test]] = True
    return in_test


def _check_sides(labels: np.ndarray, in_test: np.ndarray, by: str) -> None:
    """Refuses a side that nothing can be learned from; warns of one that nothing can be measured on."""
    if not in_test.any():
        raise ValueError(f"`test_fraction` leaves no row of {labels.size} for test. Raise it, or load more rows.")
    if not labels[~in_test].any():
        remedy = "Lower `test_fraction`, load more rows, or split by='random'."
        raise ValueError(f"`transactions` has no fraud in the {(~in_test).sum()} training rows of {by=}. {remedy}")
    if not labels[in_test].any():
        message = "0 positives in test: recall and average precision do not exist there. Raise `test_fraction`."
        warnings.warn(message, UserWarning, stacklevel=3)


def _take(transactions: Transactions, rows: np.ndarray) -> Transactions:
    """The given rows of every per-row field but the features."""
    fields = ("labels", "amount", "time", "silo", "rule_alarm")
    taken = {name: getattr(transactions, name) for name in fields}
    taken = {name: None if value is None else value[rows] for name, value in taken.items()}
    for name in ("accounts", "beginnings"):
        taken[name] = {role: values[rows] for role, values in getattr(transactions, name).items()}
    return transactions._replace(**taken)


def _suspected_leaks(transactions: Transactions, in_train: np.ndarray) -> list[dict[str, Any]]:
    """The leaks among the columns of a table, as plain values; warns of those that the model sees."""
    plan = transactions.encoding
    if plan is None or plan.format != "table":
        return []
    position = {name: at for at, name in enumerate(transactions.names)}
    numbers, categories = {}, {}
    for column in plan.columns:
        if column.kind == encoding.CATEGORY:
            names = [encode.indicator_name(column.name, value) for value in column.categories]
            indicators = transactions.features[in_train][:, [position[name] for name in names]]
            codes = np.where(indicators.any(axis=1), indicators.argmax(axis=1), -1)
            categories[column.name] = (codes, ["no value" if one is None else str(one) for one in column.categories])
        elif column.name in position:
            numbers[column.name] = transactions.features[in_train, position[column.name]]
    beginnings = {name: values[in_train] for name, values in transactions.beginnings.items()}
    found = leaks.suspected_leaks(numbers, categories, beginnings, transactions.labels[in_train])
    _warn_of_leaks([leak for leak in found if leak.is_feature])
    return [leak._asdict() for leak in found]


def _warn_of_leaks(found: list[leaks.Leak]) -> None:
    if found:
        rules = "; ".join(f"{leak.rule} (recall {leak.recall:.3f}, precision {leak.precision:.3f})" for leak in found)
        message = (
            f"these rules all but give the label away in the training rows: {rules}. Put what is not known when the "
            "transaction is booked in `drop`."
        )
        warnings.warn(message, UserWarning, stacklevel=4)


def describe_split(train: Transactions, test: Transactions) -> dict[str, Any]:
    """What a reader must know about a split before believing a score on it.

    Args:
      train: the training side, from ``split``.
      test: the test side.
    Returns: plain Python values that JSON can hold. ``columns`` is what was made of each column of the source, empty if
      that is not known. ``account_overlap`` counts, for each role and for "any", the accounts of the test side that
      the training side has in any role, and the share of test rows that touch one; ``silo_crossings`` those that two
      banks have; empty if there are no accounts (or banks). ``one_rule`` is recall and precision of ``rule_alarm`` on
      the test side, None without it; recall is None without fraud, precision None without alarms. ``filled``,
      ``unseen_categories`` and ``suspected_leaks``: see ``Transactions.findings``.
    """
    both = {role: np.concatenate([codes, test.accounts[role]]) for role, codes in train.accounts.items()}
    silo = None if train.silo is None else np.concatenate([train.silo, test.silo])
    return {
        "train": _describe_side(train),
        "test": _describe_side(test),
        "num_features": len(train.names),
        "features": list(train.names),
        "columns": [] if train.encoding is None else train.encoding.record()["columns"],
        "account_overlap": accounts.split_overlap(train.accounts, test.accounts),
        "silo_crossings": accounts.silo_crossings(both, silo),
        "one_rule": _one_rule(test),
        "filled": train.findings.get("filled", {}),
        "unseen_categories": train.findings.get("unseen_categories", {}),
        "suspected_leaks": train.findings.get("suspected_leaks", []),
    }


def _describe_side(side: Transactions) -> dict[str, Any]:
    num_rows, num_positives = side.labels.size, int(side.labels.sum())
    time = None if side.time is None else [_moment(side, value) for value in (side.time.min(), side.time.max())]
    return {
        "num_rows": num_rows,
        "num_positives": num_positives,
        "prevalence": num_positives / num_rows,
        "time_range": time,
    }


def _moment(side: Transactions, time: np.generic) -> float | int | str:
    """A time as it was in the table: a date as text (UTC), a number as it is."""
    columns = () if side.encoding is None else side.encoding.columns
    if any(column.kind == encoding.TIME and isinstance(column.low, str) for column in columns):
        return str(np.datetime64(round(float(time) * 1e6), "us").astype("datetime64[s]"))
    return time.item()


def _one_rule(test: Transactions) -> dict[str, float | None] | None:
    """Recall and precision of the hand-written rule on the test side."""
    if test.rule_alarm is None:
        return None
    caught = int((test.rule_alarm & (test.labels == 1)).sum())
    num_positives, num_alarms = int(test.labels.sum()), int(test.rule_alarm.sum())
    return {
        "recall": caught / num_positives if num_positives else None,
        "precision": caught / num_alarms if num_alarms else None,
    }
