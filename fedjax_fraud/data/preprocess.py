"""Train and test sides of a table, standardised with what the training side alone shows, and their description."""

import warnings
from typing import Any

import numpy as np

from fedjax_fraud.types import Transactions

# Test values are held within the largest training value, or this many training standard deviations if that is more.
TEST_BOUND = 10.0


def split(
    transactions: Transactions, by: str = "time", test_fraction: float = 0.2, seed: int = 0
) -> tuple[Transactions, Transactions]:
    r"""Splits the rows into train and test, both standardised with training statistics.

    A feature becomes ``(x - mean) / scale`` with the mean and the standard deviation of the training rows, in
    float64. Where a training column does not vary beyond float32 rounding, scale is 1 and the column becomes 0.
    Training rows are not clipped. A test value may lie no further out than the farthest training value of its
    column, or 10 standard deviations if that is more; beyond that it is set to the bound.

    Args:
      transactions: at least 2 rows; ``by="time"`` needs ``time``.
      by: "time" trains on the past: the boundary lies between two distinct times, where the share of test rows comes
        closest to ``test_fraction`` (the earlier of two equally close). "random" draws ``test_fraction`` of each
        class, rounded, so that a class with one member stays in train.
      test_fraction: wanted share of test rows, in (0, 1).
      seed: 0 or more; of the random split.
    Returns: train and test, with every per-row field; rows keep their order.
    Raises: ValueError if an argument is out of range, ``time`` has one value only, or train would have no fraud.
    Warns: UserWarning if test has no fraud: recall and average precision do not exist there.
    """
    _check_arguments(transactions, by, test_fraction, seed)
    if by == "time":
        in_test = _later_rows(transactions.time, test_fraction)
    else:
        in_test = _random_rows(transactions.labels, test_fraction, seed)
    _check_sides(transactions.labels, in_test, by)
    train, test = _take(transactions, ~in_test), _take(transactions, in_test)
    return _standardise(train, test)


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
    finite = np.isfinite(transactions.features).all(axis=0)
    if not finite.all():
        name = transactions.names[int(np.argmin(finite))]
        raise ValueError(f"`transactions` has a NaN or infinite value in feature `{name}`. Fill it or drop it.")


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
    """The given rows of every per-row field."""
    fields = ("features", "labels", "amount", "time", "silo", "rule_alarm")
    taken = {name: getattr(transactions, name) for name in fields}
    taken = {name: None if value is None else value[rows] for name, value in taken.items()}
    accounts = {role: codes[rows] for role, codes in transactions.accounts.items()}
    return transactions._replace(**taken, accounts=accounts)


def _standardise(train: Transactions, test: Transactions) -> tuple[Transactions, Transactions]:
    """Both sides on the scale of the training side, column by column so that no float64 copy of all is made."""
    train_features, test_features = np.empty_like(train.features), np.empty_like(test.features)
    for column in range(train.features.shape[1]):
        values = train.features[:, column].astype(np.float64)
        center, scale = _center_and_scale(values)
        train_features[:, column] = (values - center) / scale
        bound = max(TEST_BOUND, np.abs(train_features[:, column]).max())
        test_features[:, column] = np.clip((test.features[:, column] - center) / scale, -bound, bound)
    return train._replace(features=train_features), test._replace(features=test_features)


def _center_and_scale(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of a float64 column; (its lowest value, 1) if it only varies by float32 rounding."""
    low, high = float(values.min()), float(values.max())
    if high - low <= 4 * np.finfo(np.float32).eps * max(abs(low), abs(high)):
        return low, 1.0
    return float(values.mean()), float(values.std())


def describe_split(train: Transactions, test: Transactions) -> dict[str, Any]:
    """What a reader must know about a split before believing a score on it.

    Args:
      train: the training side, from ``split``.
      test: the test side.
    Returns: plain Python values that JSON can hold. ``account_overlap`` counts, for each role and for "any", the
      accounts of the test side that the training side has in any role, and the share of test rows that touch one;
      empty if there are no accounts. ``one_rule`` is recall and precision of ``rule_alarm`` on the test side, None
      without it; recall is None without fraud, precision None without alarms.
    """
    return {
        "train": _describe_side(train),
        "test": _describe_side(test),
        "num_features": len(train.names),
        "features": list(train.names),
        "account_overlap": _account_overlap(train, test),
        "one_rule": _one_rule(test),
    }


def _describe_side(side: Transactions) -> dict[str, Any]:
    num_rows, num_positives = side.labels.size, int(side.labels.sum())
    time = None if side.time is None else [side.time.min().item(), side.time.max().item()]
    return {
        "num_rows": num_rows,
        "num_positives": num_positives,
        "prevalence": num_positives / num_rows,
        "time_range": time,
    }


def _account_overlap(train: Transactions, test: Transactions) -> dict[str, Any]:
    """Per role and for any role: accounts on both sides, and the share of test rows that touch one."""
    if not train.accounts or not test.accounts:
        return {}
    seen = np.unique(np.concatenate(list(train.accounts.values())))
    known = {role: np.isin(codes, seen) for role, codes in test.accounts.items()}
    shared = {role: np.unique(codes[known[role]]) for role, codes in test.accounts.items()}
    overlap = {role: _overlap(shared[role], known[role]) for role in test.accounts}
    anyone = np.unique(np.concatenate(list(shared.values())))
    return overlap | {"any": _overlap(anyone, np.logical_or.reduce(list(known.values())))}


def _overlap(shared: np.ndarray, known: np.ndarray) -> dict[str, Any]:
    return {"num_accounts_on_both_sides": int(shared.size), "share_of_test_rows": float(known.mean())}


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
