"""What is refused before any work: every error names the argument, what came, and the remedy, on one line."""

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
import optax

from fedjax_fraud.types import Partition

LARGEST = float(np.finfo(np.float32).max)
NUM_SEEDS = 2**32


def check_choice(name: str, values: Sequence, known: Sequence) -> None:
    """Raises ValueError for a name that is not known, an empty list, or one given twice."""
    for value in values:
        if value not in known:
            raise ValueError(f"`{name}` knows {', '.join(known)}; got {value!r}. Choose from these.")
    check_distinct(name, values)


def check_distinct(name: str, values: Sequence) -> None:
    """Raises ValueError for an empty list, or a value given twice."""
    if not values:
        raise ValueError(f"`{name}` must name at least one value, got none. Add one.")
    if len(set(values)) != len(values):
        raise ValueError(f"`{name}` must name each value once, got {list(values)}. Remove the repeated one.")


def check_numbers(name: str, values: Sequence, *, positive: bool = True) -> None:
    """Raises ValueError unless every value is a number above 0 (or at least 0) that float32 can hold."""
    check_distinct(name, values)
    least = float(np.finfo(np.float32).tiny) if positive else 0.0
    for value in values:
        good = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
        if not good or not least <= value <= LARGEST:
            wanted = "above 0" if positive else "of at least 0"
            raise ValueError(
                f"`{name}` must be a finite number {wanted} within float32, got {value!r}. Pass a number {wanted}."
            )


def check_rate(client_lr: Any, remedy: str) -> None:
    """Raises TypeError for an optimizer or a schedule where an algorithm takes the rate of plain SGD.

    ``remedy`` says what the algorithm rests on and what to pass instead. A tracer is a rate.
    """
    if isinstance(client_lr, optax.GradientTransformation) or callable(client_lr):
        kind = "a schedule" if callable(client_lr) else "an optax optimizer"
        raise TypeError(f"`client_lr` must be a number, got {kind}. {remedy}")


def check_count(name: str, value: Any, least: int = 1, most: int | None = None) -> None:
    """Raises ValueError unless ``value`` is an integer of at least ``least``, and at most ``most`` if that is given."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"`{name}` must be an integer of at least {least}, got {value!r}. Pass {least} or more.")
    if most is not None and value > most:
        raise ValueError(f"`{name}` must be at most {most:,}, got {value:,}. Pass fewer.")


def check_seed(seed: Any) -> None:
    """Raises ValueError unless ``seed`` is an integer of 32 bits without a sign."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < NUM_SEEDS:
        raise ValueError(f"`seed` must be an integer in [0, 2**32), got {seed!r}. Pass a small number, for example 0.")


def check_rows(name: str, features: np.ndarray, labels: np.ndarray, *, binary: bool = True) -> None:
    """Raises ValueError unless the table is rectangular, finite and, if ``binary``, labelled 0 or 1."""
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise ValueError(
            f"`{name}` must hold features [samples, features] and labels [samples], got shapes {features.shape} and "
            f"{labels.shape}. Pass one label for each row."
        )
    if len(labels) == 0:
        raise ValueError(f"`{name}` must hold at least one row, got 0. Check how it was filtered or split.")
    # Two numbers say that all is well, without a copy of the table; a NaN makes both NaN.
    if features.size and not (features.min() >= -LARGEST and features.max() <= LARGEST):
        bad = np.flatnonzero(~(np.abs(features) <= LARGEST).all(axis=1))
        raise ValueError(
            f"`{name}.features` must be finite in float32, got NaN or infinity in {bad.size} rows "
            f"(first: row {bad[0]}). Fill or drop them."
        )
    if not binary:
        if not np.isfinite(labels).all():
            raise ValueError(f"`{name}.labels` must be finite, got NaN or infinity. Fill or drop those rows.")
    elif not np.isin(labels, (0, 1)).all():
        wrong = labels[~np.isin(labels, (0, 1))][0].item()
        raise ValueError(f"`{name}.labels` must be 0 or 1, got {wrong!r}. Map the label to 1 = fraud, 0 = genuine.")


def check_classes(name: str, labels: np.ndarray) -> None:
    """Raises ValueError for rows of one class: nothing is learned from them, and their ranking has no score."""
    num_frauds = int(labels.sum())
    if num_frauds in (0, len(labels)):
        raise ValueError(
            f"`{name}` has {num_frauds:,} frauds among {len(labels):,} rows, and a sweep learns and scores with both "
            "classes. Split the table otherwise (another `test_fraction`, by='random', another `time=...`), or load "
            "more rows."
        )


def check_width(train_width: int, test_width: int) -> None:
    """Raises ValueError unless training and test rows have the same features."""
    if train_width != test_width:
        raise ValueError(
            f"`test` must have the {train_width} features of `train`, got {test_width}. Split one table into both."
        )


def check_partition(partition: Partition, num_samples: int) -> None:
    """Raises ValueError unless the partition assigns each of ``num_samples`` rows exactly once."""
    order = np.asarray(partition.order)
    start, count = np.asarray(partition.start), np.asarray(partition.count)
    missing = np.setdiff1d(np.arange(num_samples), order)
    if order.shape != (num_samples,):
        got = f"an `order` of shape {order.shape}"
    elif missing.size:
        got = f"an `order` without row {missing[0]}"
    elif count.sum() != num_samples:
        got = f"clients of {count.sum()} rows in all"
    elif (count < 0).any():
        got = f"a client of {count.min()} rows"
    elif start.shape != count.shape or not np.array_equal(start, np.cumsum(count) - count):
        got = "a `start` that is not where the client before ends"
    else:
        return
    raise ValueError(
        f"`partition` must assign each of the {num_samples} rows of `train` exactly once, got {got}. "
        "Make it from the labels of the same table."
    )


def check_work(work: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raises ValueError unless ``work`` has the given shape and values in [0, 1]."""
    outside = work[~((work >= 0) & (work <= 1))]
    if work.shape != shape or outside.size:
        got = f"the value {outside[0]}" if work.shape == shape else f"shape {work.shape}"
        raise ValueError(
            f"`work` must be an array of shape {shape} with values in [0, 1], got {got}. "
            "Give each round and client its share of local work: 0 = absent, 1 = all of it."
        )


def check_available(available: np.ndarray, shape: tuple[int, ...]) -> None:
    """Raises ValueError unless ``available`` says yes or no for each round and client."""
    if available.shape != shape or not np.isin(available, (0, 1)).all():
        got = f"shape {available.shape}" if available.shape != shape else "values other than 0 and 1"
        raise ValueError(
            f"`available` must be an array of shape {shape}, rounds by clients, of True and False, got {got}. "
            "Give each round and client one value."
        )


def check_clock(name: str, seconds: Any, num_clients: int) -> None:
    """Raises ValueError unless ``seconds`` is one number of at least 0, or one for each client."""
    values = np.asarray(seconds)
    if values.shape not in ((), (num_clients,)):
        raise ValueError(
            f"`{name}` must be a number or one for each of the {num_clients} clients, got shape {values.shape}. "
            "Pass one value for all, or a list of that length."
        )
    if values.dtype.kind not in "iuf" or not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(f"`{name}` must be finite and at least 0, got {seconds!r}. It counts simulated time.")


def check_participation(participation: float) -> None:
    """Raises ValueError unless ``participation`` is in (0, 1]."""
    if isinstance(participation, bool | str) or not 0 < participation <= 1:
        raise ValueError(
            f"`participation` must be in (0, 1], got {participation!r}. It is the share of clients a round."
        )


def check_share(name: str, value: Any) -> None:
    """Raises ValueError unless ``value`` is a number in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= value <= 1:
        raise ValueError(f"`{name}` must be a number in [0, 1], got {value!r}. It is a share or a probability.")


def check_noise(noise_multiplier: float) -> None:
    """Raises ValueError unless the noise is a finite number of at least 0."""
    number = isinstance(noise_multiplier, numbers.Real) and not isinstance(noise_multiplier, bool)
    if not number or not 0 <= noise_multiplier < math.inf:
        raise ValueError(
            f"`noise_multiplier` must be a finite number of at least 0, got {noise_multiplier!r}. 0 = no noise; 0.5 to "
            "2 are usual."
        )


def check_positive(name: str, value: Any) -> None:
    """Raises ValueError unless ``value`` is a number above 0; infinity will do."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not value > 0:
        raise ValueError(f"`{name}` must be a number above 0, got {value!r}. Infinity means no limit.")
