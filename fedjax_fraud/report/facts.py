"""What a report reads from a manifest, tolerant of facts that are not there.

A report must not fail after hours of work because one number is missing.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np


def fact(manifest: Mapping, *path: str) -> Any:
    """The value at a path of keys; None if any of them is missing."""
    value = manifest
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def number_fact(manifest: Mapping, *path: str) -> float:
    """The number at a path of keys; NaN if there is none."""
    value = fact(manifest, *path)
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    return float(value) if is_number else math.nan


def prevalence(manifest: Mapping) -> float:
    """The share of frauds among the test rows: the average precision of a random ranking. NaN if unknown."""
    return number_fact(manifest, "data", "test", "prevalence")


def feature_names(manifest: Mapping) -> list[str]:
    """The features of the model; empty if the manifest does not say."""
    return [str(name) for name in fact(manifest, "data", "features") or ()]


def leaks_label(manifest: Mapping) -> bool:
    """Whether the features hold what a bank only knows afterwards: ``features="all"``, or PaySim's balances by name."""
    by_name = any(part in name.lower() for part in ("oldbalance", "newbalance") for name in feature_names(manifest))
    return fact(manifest, "config", "features") == "all" or by_name


def flatten(mapping: Mapping, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All values of a nested mapping, their keys joined by dots, in order."""
    for key, value in mapping.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping):
            yield from flatten(value, name)
        else:
            yield name, value
