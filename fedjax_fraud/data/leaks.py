"""Columns that alone all but give the label away: filled in after the fact, or an artefact of a generator."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

MIN_FRAUDS = 5  # of a rule; fewer are an accident
PURE = 0.99  # precision of a rule about a value, or about two equal columns
BOTH = 0.95  # precision and recall of a rule about a threshold
MIN_EQUAL_RECALL = 0.1  # of a rule about two equal columns, or about how an account's name begins
CHANCE = 1e-6  # above this, so many frauds in a row may be luck
MAX_VALUES = 50  # above this, single values are not looked at
MAX_SHOWN = 5


class Leak(NamedTuple):
    """A rule on one column, or on two that are equal, that gives the label away, measured on training rows.

    Attributes:
      column: its column; of two, the first.
      rule: in words.
      recall: the share of frauds that it finds.
      precision: the share of frauds among what it finds.
      is_feature: whether the model sees the column.
    """

    column: str
    rule: str
    recall: float
    precision: float
    is_feature: bool = True


def suspected_leaks(
    numbers: Mapping[str, np.ndarray],
    categories: Mapping[str, tuple[np.ndarray, list[str]]],
    beginnings: Mapping[str, np.ndarray],
    labels: np.ndarray,
) -> list[Leak]:
    """Looks for columns that no honest feature resembles. The first rule that a column meets counts:

    - *value*: the column has at most 50 values (or is a category), and some of them, such as ``flagged = 1``, are
      fraud in 99 % of their rows, in at least 5 rows, and in more than chance allows: prevalence ** rows, times the
      values looked at, stays below 1e-6. A gap counts as a value; that there is any value counts as one too.
    - *threshold*: ``x >= t`` or ``x <= t`` finds 95 % of the frauds or all, with a precision of 95 %.
    - *equality*: two number columns are equal and not 0, which holds for at least a tenth of the frauds, 99 % pure.
    - *beginning*: the first two characters of an account's name, as for *value*, for a tenth of the frauds.

    A strong honest feature, such as a principal component that ranks most frauds first, or a category with a high
    rate, meets none of them: it is pure for few frauds or finds many with false alarms.

    Args:
      numbers: column -> ``[rows]``, NaN in gaps.
      categories: column -> (``[rows]`` position of the value, -1 for none; the values in words).
      beginnings: account column -> ``[rows]`` first characters.
      labels: ``[rows]`` 0 or 1, of the training rows.
    Returns: the leaks, at most one rule for each column and one for each pair.
    Cost: a few passes over each column; pairs are first compared on the frauds alone.
    """
    frauds = labels == 1
    if frauds.sum() < MIN_FRAUDS or frauds.all():
        return []
    found = []
    for column, values in numbers.items():
        leak = next(_number_rules(column, values, frauds), None)
        found += [leak] if leak else []
    for column, (codes, words) in categories.items():
        found += _value_rule(column, codes, dict(enumerate(words)), frauds)
    taken = {leak.column for leak in found}
    found += _equalities({name: values for name, values in numbers.items() if name not in taken}, frauds)
    for column, begins in beginnings.items():
        found += _beginning_rule(column, begins, frauds)
    return found


def _number_rules(column: str, values: np.ndarray, frauds: np.ndarray) -> Iterator[Leak]:
    """The rules that a number column meets."""
    gaps = np.isnan(values)
    if gaps.any():
        yield from _value_rule(column, gaps.astype(np.int64), {0: "any value", 1: "no value"}, frauds)
    distinct = np.unique(values[frauds & ~gaps])
    if 0 < distinct.size <= MAX_VALUES and np.unique(values[~gaps]).size <= MAX_VALUES:
        codes = np.searchsorted(distinct, values)
        codes[codes == distinct.size] = 0
        codes = np.where(~gaps & (distinct[codes] == values), codes, -1)
        yield from _value_rule(column, codes, {at: f"{value:g}" for at, value in enumerate(distinct)}, frauds)
    yield from _thresholds(column, values, frauds)


def _value_rule(column: str, codes: np.ndarray, words: Mapping[int, str], frauds: np.ndarray) -> list[Leak]:
    """The rule that names the values which are nearly always fraud; empty if there are none."""
    known = codes >= 0
    totals = np.bincount(codes[known], minlength=len(words))
    hits = np.bincount(codes[known & frauds], minlength=len(words))
    pure = np.flatnonzero((hits >= MIN_FRAUDS) & (hits >= PURE * totals))
    log_chance = hits * np.log(frauds.mean()) + np.log(max(len(words), 1))
    pure = [at for at in pure if log_chance[at] < np.log(CHANCE)]
    if not pure:
        return []
    shown = " or ".join(words[at] for at in pure[:MAX_SHOWN]) + (" or ..." if len(pure) > MAX_SHOWN else "")
    caught = int(hits[pure].sum())
    return [Leak(column, f"{column} = {shown}", caught / int(frauds.sum()), caught / int(totals[pure].sum()))]


def _thresholds(column: str, values: np.ndarray, frauds: np.ndarray) -> Iterator[Leak]:
    """Rules ``x >= t`` and ``x <= t`` that keep nearly all frauds and nearly nothing else."""
    of_frauds = np.sort(values[frauds & ~np.isnan(values)])
    least = int(np.ceil(BOTH * frauds.sum()))  # frauds that a rule must find
    if of_frauds.size < least:
        return
    spare = of_frauds.size - least
    candidates = [(">=", of_frauds[spare]), (">=", of_frauds[0]), ("<=", of_frauds[-1 - spare]), ("<=", of_frauds[-1])]
    for sign, threshold in candidates:
        alarms = values >= threshold if sign == ">=" else values <= threshold
        caught, total = int((alarms & frauds).sum()), int(alarms.sum())
        if caught >= least and caught >= BOTH * total:
            yield Leak(column, f"{column} {sign} {threshold:g}", caught / int(frauds.sum()), caught / total)


def _equalities(numbers: Mapping[str, np.ndarray], frauds: np.ndarray) -> list[Leak]:
    """Rules ``x = y`` on two number columns."""
    found, names = [], list(numbers)
    of_frauds = {name: values[frauds] for name, values in numbers.items()}
    num_frauds = int(frauds.sum())
    for at, first in enumerate(names):
        for second in names[at + 1 :]:
            caught = int(((of_frauds[first] == of_frauds[second]) & (of_frauds[first] != 0)).sum())
            if caught < max(MIN_FRAUDS, MIN_EQUAL_RECALL * num_frauds):
                continue
            total = int(((numbers[first] == numbers[second]) & (numbers[first] != 0)).sum())
            if caught >= PURE * total and caught * np.log(frauds.mean()) < np.log(CHANCE):
                found.append(Leak(first, f"{first} = {second}, not 0", caught / num_frauds, caught / total))
    return found


def _beginning_rule(column: str, begins: np.ndarray, frauds: np.ndarray) -> list[Leak]:
    """The rule on the first characters of an account's name."""
    words, codes = np.unique(begins, return_inverse=True)
    leaks = _value_rule(column, codes, dict(enumerate(map(str, words))), frauds)
    return [
        leak._replace(rule=leak.rule.replace(" = ", " begins with ", 1), is_feature=False)
        for leak in leaks
        if leak.recall >= MIN_EQUAL_RECALL
    ]
