"""Who owns which row: partitions of a table over clients, and how far each client's labels are from the whole.

Host side, NumPy. Every function here gives each row to exactly one client, lets clients be empty, and draws from
generators of its own: NumPy's global generator is neither read nor moved. There is no rejection loop and no hidden
balancing (a minimum of frauds is asked for, and moves no more than it must); what cannot be done raises at once.

The Dirichlet partitions are of the *per class over clients* family: each class (or bin of a feature) is spread over
the clients by its own draw q ~ Dir(alpha, ..., alpha), so that a client's share of one class has mean 1/n and standard
deviation sqrt((1/n)(1 - 1/n) / (n alpha + 1)). (The other family draws each client's class mix; the same alpha
means another skew there.) Smaller alpha = more skew.

Proportions and rows have separate random streams. `dirichlet_labels` and `dirichlet_feature` with the same
``(num_clients, alpha, seed)`` therefore give a training table and a test table the same proportions, whatever their
sizes: that is guaranteed, so that each bank is tested on the mix that it trains on. (`min_positives` moves frauds off
these proportions.) `controlled` draws no proportions: it takes them.

Reference: Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification, 2019, and Li, Diao, Chen and He, Federated Learning on Non-IID Data Silos: An Experimental Study,
ICDE 2022, section 4 (the per-class family and quantity skew). Differs in: remainders go to the largest fractions, and
no draw is repeated until every client has a minimum size.
"""

import heapq
import math
import numbers
from collections.abc import Collection

import numpy as np
import pandas as pd
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from fedjax_fraud.types import Partition

EPSILON = 1e-12
"""Added to both probabilities in `summary`'s KL divergence."""

Values = ArrayLike | Collection


# --- checks -----------------------------------------------------------------------------------------------------


def _check_alpha(alpha) -> float:
    """A Dirichlet concentration: a finite number above 0."""
    is_number = isinstance(alpha, numbers.Real) and not isinstance(alpha, bool | np.bool_)
    if not is_number or not 0 < alpha < math.inf:
        raise ValueError(f"`alpha` must be a finite number > 0, got {alpha!r}. Use `iid` for no skew at all.")
    return float(alpha)


def _check_integer(name: str, value, minimum: int) -> int:
    """A whole number that is not a bool."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_)
    if not is_integer or value < minimum:
        raise ValueError(f"`{name}` must be an integer >= {minimum}, got {value!r}. Pass a plain Python int.")
    return int(value)


def _check_sizes(num_examples: int, num_clients) -> int:
    """At least one client, and at least as many rows as clients."""
    num_clients = _check_integer("num_clients", num_clients, 1)
    if num_examples < num_clients:
        raise ValueError(
            f"`num_clients` must be at most the number of rows, {num_examples}, got {num_clients}. Lower it."
        )
    return num_clients


def _check_labels(labels: Values) -> np.ndarray:
    """One-dimensional, not empty, 0 or 1 only."""
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError(f"`labels` must be [samples] with at least one row, got shape {labels.shape}. Pass a column.")
    wrong = labels[(labels != 0) & (labels != 1)]
    if wrong.size:
        raise ValueError(f"`labels` must be 0 (genuine) or 1 (fraud), got {wrong[0].item()!r}. Recode them first.")
    return labels.astype(np.int32)


def _as_column(name: str, values: Values) -> np.ndarray:
    """One-dimensional and not empty, without missing values; text becomes objects."""
    # Not np.asarray on a list: it would turn ["a", nan] into the text "nan".
    column = np.asarray(values if hasattr(values, "dtype") else pd.Series(list(values)))
    if column.ndim != 1 or column.size == 0:
        raise ValueError(f"`{name}` must be [samples] with at least one row, got shape {column.shape}. Pass a column.")
    if column.dtype.kind in "US":
        return column.astype(object)
    missing = pd.isna(column)
    if missing.any():
        row = int(np.flatnonzero(missing)[0])
        raise ValueError(f"`{name}` has a missing value in row {row}. Fill or drop such rows first.")
    return column


# --- drawing --------------------------------------------------------------------------------------------------------


def _generators(seed) -> tuple[np.random.Generator, np.random.Generator]:
    """Independent streams for the proportions and for the rows."""
    seed = _check_integer("seed", seed, 0)
    shares, rows = (np.random.SeedSequence(seed, spawn_key=(stream,)) for stream in range(2))
    return np.random.default_rng(shares), np.random.default_rng(rows)


def _split_counts(share: np.ndarray, num_examples: int) -> np.ndarray:
    """Whole numbers near ``share * num_examples`` that add up: floors, then one more for the largest fractions."""
    ideal = share * num_examples
    count = np.floor(ideal).astype(np.int64)
    order = np.argsort(count - ideal, kind="stable")
    count[order[: num_examples - count.sum()]] += 1
    return count


def _from_owner(owner: np.ndarray, num_clients: int) -> Partition:
    """The partition in which row i belongs to client ``owner[i]``; a client's rows stay in table order."""
    count = np.bincount(owner, minlength=num_clients)
    # NumPy sorts 16-bit integers by radix, in linear time.
    order = np.argsort(owner.astype(np.uint16) if num_clients <= 2**16 else owner, kind="stable")
    return Partition(order.astype(np.int32), (np.cumsum(count) - count).astype(np.int32), count.astype(np.int32))


def _spread(codes: np.ndarray, shares: np.ndarray, rows_rng: np.random.Generator, least: tuple = ()) -> Partition:
    """Spreads the rows of each code over the clients in the proportions ``shares [codes, clients]``.

    ``least``: for each code, rows that every client must have (0 by default).
    """
    num_clients = shares.shape[1]
    owner = np.empty(len(codes), np.int64)
    for code, share in enumerate(shares):
        rows = rows_rng.permutation(np.flatnonzero(codes == code))
        owner[rows] = _fill_up(_split_counts(share, len(rows)), least[code] if least else 0)
    return _from_owner(owner, num_clients)


def _fill_up(count: np.ndarray, least: int) -> np.ndarray:
    """The owner of each row when client k gets ``count[k]`` in turn, and those below ``least`` take from the largest.

    A client gives away its last rows; all others keep their place. Rows suffice: ``least * clients <= count.sum()``.
    """
    owner = np.repeat(np.arange(len(count)), count)
    wanted = np.maximum(least - count, 0)
    kept = count.copy()
    largest = [(-size, client) for client, size in enumerate(count.tolist())]
    heapq.heapify(largest)
    for _ in range(wanted.sum()):
        size, client = largest[0]
        heapq.heapreplace(largest, (size + 1, client))
        kept[client] -= 1
    place_in_client = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    given = place_in_client >= np.repeat(kept, count)
    owner[given] = np.repeat(np.arange(len(count)), wanted)
    return owner


def dirichlet_proportions(num_classes: int, num_clients: int, alpha, seed) -> Float[np.ndarray, "classes clients"]:
    """The proportions by which the Dirichlet partitions spread each class over the clients.

    Args:
      num_classes: rows to draw; the first rows do not depend on how many follow.
      num_clients: at least 1.
      alpha: concentration, finite and > 0; below about 0.001 nearly every row has a single 1.
      seed: integer >= 0.

    Returns: ``[classes, clients]``, each row >= 0 with sum 1. Exact zeros are legal.

    Raises: ValueError on an argument out of range.

    Example:
      >>> shares = dirichlet_proportions(2, num_clients=3, alpha=0.5, seed=0)
      >>> shares.shape, shares.sum(axis=1).round(6).tolist()
      ((2, 3), [1.0, 1.0])
    """
    alpha = _check_alpha(alpha)
    num_clients = _check_integer("num_clients", num_clients, 1)
    num_classes = _check_integer("num_classes", num_classes, 1)
    return _generators(seed)[0].dirichlet(np.full(num_clients, alpha), size=num_classes)


# --- partitions -----------------------------------------------------------------------------------------------------


def dirichlet_labels(labels: Values, num_clients, alpha, seed, *, min_positives=0) -> Partition:
    """Label skew: frauds and genuine transactions are each spread over the clients by a Dirichlet draw.

    Per class over clients, see the module's page. Both classes' proportions are always drawn, genuine first, even
    where a class is absent, so equal ``(num_clients, alpha, seed)`` means equal proportions on every table.

    Args:
      labels: ``[samples]``, 1 = fraud, 0 = genuine.
      num_clients: at least 1, at most the number of rows.
      alpha: concentration, finite and > 0; smaller = more skew.
      seed: integer >= 0; one seed, one partition.
      min_positives: frauds that every client must hold. After the draw, clients that have fewer are filled up to it,
        fraud by fraud from the client that then has most (the first of several). Nothing is drawn again: genuine rows
        and all other frauds stay where the draw put them, and 0 is the plain draw. The clients' shares of the frauds
        become max(share, min_positives / frauds), less what the largest give away.

    Returns: a partition of all rows. Clients without rows or (unless ``min_positives``) without frauds are legal, and
      usual at small alpha.

    Raises: ValueError on an argument out of range, labels other than 0 and 1, no rows, or fewer frauds than
      ``num_clients * min_positives``.

    Example: every row has one owner, and every bank at least one of the four frauds.
      >>> banks = dirichlet_labels([1, 1, 1, 1] + [0] * 16, num_clients=3, alpha=0.1, seed=0, min_positives=1)
      >>> int(banks.count.sum()), sorted(banks.order.tolist()) == list(range(20))
      (20, True)
    """
    labels = _check_labels(labels)
    num_clients = _check_sizes(len(labels), num_clients)
    min_positives = _check_integer("min_positives", min_positives, 0)
    num_positives = int(labels.sum())
    if num_clients * min_positives > num_positives:
        raise ValueError(
            f"`min_positives` must be at most {num_positives // num_clients}, what {num_positives} frauds allow "
            f"{num_clients} clients, got {min_positives}. Lower it, or use fewer clients."
        )
    shares = dirichlet_proportions(2, num_clients, alpha, seed)
    return _spread(labels, shares, _generators(seed)[1], least=(0, min_positives))


def dirichlet_feature(
    values: Values,
    num_clients,
    alpha,
    seed,
    *,
    num_bins: int = 10,
    edges: Values | None = None,
    reference: Values | None = None,
) -> Partition:
    """Feature skew: the rows of each bin of a feature are spread over the clients by a Dirichlet draw.

    Clients then differ in what their transactions look like (type, amount, hour), not in the fraud rate of a bin.

    Args:
      values: ``[samples]``, see `feature_bins`.
      num_clients, alpha, seed: as in `dirichlet_labels`, with the same guarantee for tables with the same bins.
      num_bins, edges, reference: as in `feature_bins`. For a test table give the training column as ``reference``
        (or the same ``edges``), or its bins will not be those of the training table.

    Returns: a partition of all rows; empty clients are legal.

    Raises: ValueError on an argument out of range, a missing value, a category that the reference lacks, or no rows.

    Example: rows of one kind are dealt together; a test table with the same kinds is dealt in the same proportions.
      >>> banks = dirichlet_feature(["web"] * 6 + ["shop"] * 6, num_clients=2, alpha=0.1, seed=0)
      >>> int(banks.count.sum())
      12
    """
    codes = feature_bins(values, num_bins, reference, edges=edges)
    num_clients = _check_sizes(len(codes), num_clients)
    shares = dirichlet_proportions(int(codes.max()) + 1, num_clients, alpha, seed)
    return _spread(codes, shares, _generators(seed)[1])


def dirichlet_quantity(num_examples, num_clients, alpha, seed) -> Partition:
    """Quantity skew: client sizes are one Dirichlet draw, rows are dealt at random.

    Args:
      num_examples: rows of the table.
      num_clients: at least 1, at most ``num_examples``.
      alpha: concentration, finite and > 0; smaller = fewer clients hold most rows.
      seed: integer >= 0.

    Returns: a partition of all rows; empty clients are legal.

    Raises: ValueError on an argument out of range.

    Example:
      >>> int(dirichlet_quantity(100, num_clients=4, alpha=0.3, seed=0).count.sum())
      100
    """
    num_examples = _check_integer("num_examples", num_examples, 1)
    num_clients = _check_sizes(num_examples, num_clients)
    shares = dirichlet_proportions(1, num_clients, alpha, seed)
    return _spread(np.zeros(num_examples, np.int32), shares, _generators(seed)[1])


def iid(num_examples, num_clients, seed) -> Partition:
    """No skew: rows are dealt at random, sizes differ by at most one (the first clients hold the extra rows).

    Label counts still vary by chance: this is a random deal, not a stratified one.

    Args:
      num_examples: rows of the table.
      num_clients: at least 1, at most ``num_examples``.
      seed: integer >= 0.

    Returns: a partition of all rows.

    Raises: ValueError on an argument out of range.

    Example:
      >>> iid(10, num_clients=3, seed=0).count
      array([4, 3, 3], dtype=int32)
    """
    num_examples = _check_integer("num_examples", num_examples, 1)
    num_clients = _check_sizes(num_examples, num_clients)
    owner = _generators(seed)[1].permutation(np.arange(num_examples) % num_clients)
    return _from_owner(owner, num_clients)


def natural(silo: Values, names: Values | None = None) -> Partition:
    """The table's own owners: one client for each distinct value of a column such as the bank.

    Args:
      silo: ``[samples]``, the owner of each row; text or numbers.
      names: the owners, client k being ``names[k]``. Default: the sorted distinct values of ``silo``. Give the
        training table's names for a test table, so that client numbers agree.

    Returns: a partition of all rows; a name without rows is an empty client.

    Raises: ValueError on a missing value, a silo that is not in ``names``, a repeated name, or no rows.

    Example: bank A owns rows 1 and 3.
      >>> banks = natural(["B", "A", "B", "A"])
      >>> banks.order, banks.count
      (array([1, 3, 0, 2], dtype=int32), array([2, 2], dtype=int32))
    """
    silo = _as_column("silo", silo)
    names = _categories("silo", silo) if names is None else _as_column("names", names)
    if len(pd.unique(names)) < len(names):
        raise ValueError(f"`names` must be distinct, got {names.tolist()}. Name each client once.")
    return _from_owner(_category_codes("silo", silo, names), len(names))


# --- banks made to measure ------------------------------------------------------------------------------------------


def controlled(
    labels: Values,
    sizes: Values,
    prevalences: Values,
    seed,
    kinds: Values | None = None,
    mixes: Values | None = None,
    *,
    relative: bool = True,
) -> Partition:
    """Banks of given size, fraud rate and mix of fraud kinds, each set apart from the others; rows are drawn at random.

    Every row has an owner, so what is asked must add up to the table. Sizes are shares of the rows. Fraud rates are
    **relative** by default: only their ratios count, and bank k's rate is c x ``prevalences[k]`` with the one c that
    gives every fraud a bank. So one request fits a training and a test table with different fraud rates. Mixes are
    relative too: bank k's frauds of kind j are in proportion to ``mixes[k, j]`` x a_j x b_k, with the factors a and b
    that fit the table's frauds of each kind and the bank's frauds in all (iterative proportional fitting, Deming and
    Stephan 1940). Mixes that the table can give exactly are given exactly.

    Counts are rounded by largest fractions. With mixes each kind is rounded by itself, so a bank's frauds may differ
    from those without mixes by up to the number of kinds; its size does not.

    Args:
      labels: ``[samples]``, 1 = fraud, 0 = genuine.
      sizes: ``[clients]``, each bank's share of the rows, > 0, with sum 1.
      prevalences: ``[clients]``, each bank's fraud rate, >= 0.
      seed: integer >= 0, for which rows a bank gets; how many does not depend on it.
      kinds: ``[samples]`` integers from 0, the kind of each fraud; those of genuine rows are not looked at.
      mixes: ``[clients, kinds]`` weights >= 0 of the kinds within each bank; 0 = the bank never sees that kind.
      relative: False takes ``prevalences`` as they are: then rates x sizes must add up to the table's frauds (within
        half a row for each bank), since no row is dropped.

    Returns: a partition of all rows.

    Raises: ValueError on an argument out of range, and for what cannot be: a bank with more frauds than rows; absolute
      rates that need more frauds than there are, or leave some over; mixes without enough frauds of the kinds that a
      bank may see. It names the first bank that cannot be served and what is available.

    Example: the large bank has twice the fraud rate of the small one.
      >>> controlled([1, 1, 1, 0, 0, 0, 0, 0, 0, 0], sizes=[0.6, 0.4], prevalences=[2, 1], seed=0).count
      array([6, 4], dtype=int32)
    """
    labels = _check_labels(labels)
    sizes, prevalences = check_controlled(sizes, prevalences)
    num_clients = _check_sizes(len(labels), len(sizes))
    num_examples, num_positives = _split_counts(sizes, len(labels)), int(labels.sum())
    rows_rng = _generators(seed)[1]
    wanted = _wanted_positives(num_examples, prevalences, num_positives, relative)
    owner = np.empty(len(labels), np.int64)
    given = np.zeros(num_clients, np.int64)
    if (kinds is None) != (mixes is None):
        raise ValueError("`kinds` and `mixes` go together, got one of them. Pass both, or neither.")
    fraud = np.flatnonzero(labels)
    codes = np.zeros(len(fraud), np.int64) if kinds is None else _check_kinds(kinds, labels)[fraud]
    weights = np.ones((num_clients, 1)) if mixes is None else _check_mixes(mixes, num_clients, codes)
    target = _fit_margins(weights, wanted, np.bincount(codes, minlength=weights.shape[1]))
    for kind, share in enumerate(target.T):
        rows = rows_rng.permutation(fraud[codes == kind])
        count = _split_counts(share / max(share.sum(), 1e-300), len(rows))
        owner[rows] = np.repeat(np.arange(num_clients), count)
        given += count
    short = np.flatnonzero(given > num_examples)
    if short.size:
        bank = short[0]
        raise ValueError(
            f"`prevalences` give bank {bank} {given[bank]} frauds, but its size is {num_examples[bank]} rows. "
            "Lower its fraud rate, or raise its size."
        )
    genuine = rows_rng.permutation(np.flatnonzero(labels == 0))
    owner[genuine] = np.repeat(np.arange(num_clients), num_examples - given)
    return _from_owner(owner, num_clients)


def check_controlled(sizes: Values, prevalences: Values) -> tuple[np.ndarray, np.ndarray]:
    """The sizes and fraud rates of `controlled`, checked as far as they can be without a table.

    Raises: ValueError for other numbers, other lengths, or sizes that do not sum to 1.
    """
    columns = []
    for name, values in (("sizes", sizes), ("prevalences", prevalences)):
        column = np.asarray(values)
        if column.ndim != 1 or column.size == 0 or column.dtype.kind not in "iuf":
            raise ValueError(
                f"`{name}` must hold a number for each bank, got {values!r}. Pass a list such as [0.7, 0.3]."
            )
        columns.append(column.astype(np.float64))
    sizes, prevalences = columns
    if len(sizes) != len(prevalences):
        raise ValueError(
            f"`prevalences` must have one entry for each of the {len(sizes)} `sizes`, got {len(prevalences)}. "
            "Name each bank in both."
        )
    for name, column, good in (
        ("sizes", sizes, np.isfinite(sizes) & (sizes > 0)),
        ("prevalences", prevalences, np.isfinite(prevalences) & (prevalences >= 0)),
    ):
        if not good.all():
            bank = int(np.flatnonzero(~good)[0])
            bound = "> 0" if name == "sizes" else ">= 0"
            raise ValueError(f"`{name}` must be finite and {bound}, got {column[bank]} for bank {bank}. Mend it.")
    if abs(sizes.sum() - 1) > 1e-6:
        raise ValueError(f"`sizes` must be shares with sum 1, got a sum of {sizes.sum():.6g}. Divide them by it.")
    if not prevalences.any():
        raise ValueError("`prevalences` must not all be 0: the frauds need a bank. Raise one of them.")
    return sizes / sizes.sum(), prevalences


def _wanted_positives(num_examples: np.ndarray, prevalences: np.ndarray, num_positives: int, relative: bool):
    """Frauds of each bank, not rounded, which add up to those of the table."""
    wanted = num_examples * prevalences
    if relative:
        if not wanted.any():
            raise ValueError("`prevalences` are 0 in every bank with rows: the frauds need a bank. Raise one of them.")
        wanted = wanted * (num_positives / wanted.sum())
    elif abs(wanted.sum() - num_positives) > len(wanted) / 2:
        left = num_positives - np.cumsum(wanted)
        short = np.flatnonzero(left < -0.5)
        if short.size:
            bank = short[0]
            available = max(num_positives - wanted[:bank].sum(), 0.0)
            raise ValueError(
                f"`prevalences` ask for {wanted[bank]:.6g} frauds in bank {bank}, but {available:.6g} of "
                f"{num_positives} are left. Lower them, or pass relative=True to keep their ratios only."
            )
        raise ValueError(
            f"`prevalences` leave {left[-1]:.6g} of {num_positives} frauds without a bank. Raise them, or pass "
            "relative=True to keep their ratios only."
        )
    over = np.flatnonzero(wanted > num_examples + 0.5)
    if over.size:
        bank = over[0]
        raise ValueError(
            f"`prevalences` give bank {bank} {wanted[bank]:.6g} frauds, but its size is {num_examples[bank]} rows. "
            "Lower its fraud rate, or raise its size."
        )
    return wanted


def _check_kinds(kinds: Values, labels: np.ndarray) -> np.ndarray:
    """One whole number >= 0 for each row."""
    kinds = _as_column("kinds", kinds)
    if kinds.shape != labels.shape or kinds.dtype.kind not in "iu":
        raise ValueError(
            f"`kinds` must be integers, one for each of the {len(labels)} rows, got {kinds.dtype} of shape "
            f"{kinds.shape}. Number the kinds from 0 (`feature_bins` does)."
        )
    if (kinds < 0).any():
        raise ValueError(f"`kinds` must be >= 0, got {kinds.min()}. Number the kinds from 0.")
    return kinds.astype(np.int64)


def _check_mixes(mixes: Values, num_clients: int, codes: np.ndarray) -> np.ndarray:
    """Weights for each bank and every kind that there is."""
    mixes = np.asarray(mixes)
    least = int(codes.max()) + 1 if codes.size else 1
    good = mixes.ndim == 2 and mixes.shape[0] == num_clients and mixes.shape[1] >= least and mixes.dtype.kind in "iuf"
    if not good:
        raise ValueError(
            f"`mixes` must be numbers [clients={num_clients}, kinds>={least}], got {mixes.dtype} of shape "
            f"{mixes.shape}. Give each bank a weight for each kind of fraud."
        )
    mixes = mixes.astype(np.float64)
    wrong = ~np.isfinite(mixes).all(axis=1) | (mixes < 0).any(axis=1) | ~mixes.any(axis=1)
    if wrong.any():
        bank = int(np.flatnonzero(wrong)[0])
        raise ValueError(f"`mixes` must be finite, >= 0 and not all 0, got {mixes[bank].tolist()} for bank {bank}.")
    return mixes / mixes.sum(axis=1, keepdims=True)


def _fit_margins(weights: np.ndarray, of_bank: np.ndarray, of_kind: np.ndarray) -> np.ndarray:
    """Frauds ``[banks, kinds]`` with given sums, in the odds ratios of the weights."""
    fitted = weights * of_bank[:, None]
    for _ in range(_FIT_STEPS):
        fitted *= np.divide(of_bank, fitted.sum(axis=1), where=fitted.sum(axis=1) > 0, out=np.zeros(len(of_bank)))[
            :, None
        ]
        column = fitted.sum(axis=0)
        fitted *= np.divide(of_kind, column, where=column > 0, out=np.zeros(len(of_kind)))
        if np.abs(fitted.sum(axis=1) - of_bank).max() < 1e-6:
            break
    orphan = np.flatnonzero((of_kind > 0) & (fitted.sum(axis=0) == 0))
    short = np.flatnonzero(fitted.sum(axis=1) < of_bank - 0.5)
    if short.size:
        bank = short[0]
        seen = np.flatnonzero(weights[bank] > 0)
        raise ValueError(
            f"`mixes` ask for {of_bank[bank]:.6g} frauds of kinds {seen.tolist()} in bank {bank}; the table has "
            f"{of_kind[seen].sum()}, of which {fitted[bank].sum():.6g} can go there. Let it see another kind, or lower "
            "its fraud rate."
        )
    if orphan.size:
        raise ValueError(
            f"`mixes` give the {of_kind[orphan[0]]} frauds of kind {orphan[0]} no bank. Let a bank see that kind."
        )
    return fitted


_FIT_STEPS = 10_000


# --- bins of a feature ----------------------------------------------------------------------------------------------


def _categories(name: str, column: np.ndarray) -> np.ndarray:
    """The sorted distinct values."""
    distinct = np.asarray(pd.unique(column))
    try:
        return np.sort(distinct)
    except TypeError:
        kinds = " and ".join(sorted({type(value).__name__ for value in distinct}))
        raise ValueError(f"`{name}` mix {kinds}, which have no common order. Convert them to text.") from None


def _category_codes(name: str, column: np.ndarray, categories: np.ndarray) -> np.ndarray:
    """The position of each value in the list of categories."""
    codes, distinct = pd.factorize(column)
    position = pd.Index(categories).get_indexer(distinct)
    if (position < 0).any():
        unseen, known = distinct[position < 0][0], ", ".join(repr(known) for known in categories[:10].tolist())
        more = f" and {len(categories) - 10:,} more" if len(categories) > 10 else ""
        raise ValueError(
            f"`{name}` has {unseen!r}, which is not among the {len(categories):,} that training has ({known}{more}). "
            "Map it to one of them, or deal the values to fewer banks (`silo_buckets`)."
        )
    return position[codes].astype(np.int32)


def _quantile_edges(reference: np.ndarray, num_bins: int) -> np.ndarray:
    """Values of the column that cut it into about equal bins; ties make them fewer."""
    edges = np.quantile(reference, np.arange(1, num_bins) / num_bins, method="inverted_cdf")
    return np.unique(edges[edges > reference.min()])


def _check_edges(edges: Values) -> np.ndarray:
    """Strictly increasing cut points."""
    edges = _as_column("edges", edges)
    if edges.dtype.kind not in "iuf" or (np.diff(edges) <= 0).any():
        raise ValueError(f"`edges` must be strictly increasing numbers, got {edges.tolist()}. Sort them.")
    return edges


def feature_bins(
    values: Values, num_bins: int = 10, reference: Values | None = None, *, edges: Values | None = None
) -> Int[np.ndarray, " samples"]:
    """Numbers the bins of a feature: categories as they are, numbers by quantile.

    Text, objects, bools, and integers with at most ``num_bins`` distinct values are categories, numbered in sorted
    order. Other numbers are cut at the quantiles of ``reference``; equal values share a bin, so a feature with many
    ties has fewer bins. Values beyond the reference's range fall into the first or last bin.

    Args:
      values: ``[samples]``, without missing values.
      num_bins: at least 1; quantile bins, and the most distinct integers that are still categories.
      reference: the column that categories and cuts are learned from: the training rows. Default: ``values``.
      edges: ``[bins - 1]`` strictly increasing cut points to use instead; a value equal to a cut is above it.

    Returns: ``[samples]`` int32, the bin of each row, from 0.

    Raises: ValueError on a missing value, a category that ``reference`` lacks, edges for text, or no rows.

    Example: categories in sorted order; numbers cut at the median.
      >>> feature_bins(["web", "atm", "web"]).tolist(), feature_bins([0.1, 9.0, 0.2, 8.0], num_bins=2).tolist()
      ([1, 0, 1], [0, 1, 1, 1])
    """
    num_bins = _check_integer("num_bins", num_bins, 1)
    values = _as_column("values", values)
    reference = values if reference is None else _as_column("reference", reference)
    numeric = values.dtype.kind in "iuf" and reference.dtype.kind in "iuf"
    if edges is not None:
        if not numeric:
            raise ValueError(f"`edges` need numbers, got values of type {values.dtype}. Leave `edges` out.")
        return np.searchsorted(_check_edges(edges), values, side="right").astype(np.int32)
    if numeric and (reference.dtype.kind == "f" or len(pd.unique(reference)) > num_bins):
        return np.searchsorted(_quantile_edges(reference, num_bins), values, side="right").astype(np.int32)
    return _category_codes("values", values, _categories("values", reference))


# --- measures -------------------------------------------------------------------------------------------------------


def client_of(partition: Partition) -> Int[np.ndarray, " samples"]:
    """The owner of each row: ``[samples]`` int32.

    Example:
      >>> client_of(natural(["B", "A", "B", "A"]))
      array([1, 0, 1, 0], dtype=int32)
    """
    owner = np.empty(len(partition.order), np.int32)
    owner[partition.order] = np.repeat(np.arange(len(partition.count), dtype=np.int32), partition.count)
    return owner


def summary(partition: Partition, labels: Values, kinds: Values | None = None) -> pd.DataFrame:
    """What each client holds, and how far its label distribution is from the whole table's.

    With P_k(c) the share of class c among client k's rows and P(c) among all rows, in natural logarithms:
    ``kl`` = sum_c P_k(c) ln((P_k(c) + eps) / (P(c) + eps)), eps = `EPSILON` = 1e-12, and
    ``tvd`` = 1/2 sum_c abs(P_k(c) - P(c)).

    Args:
      partition: any partition of the table.
      labels: ``[samples]``, 1 = fraud, 0 = genuine.
      kinds: ``[samples]`` integers from 0, the kind of each fraud; those of genuine rows are not looked at.

    Returns: one row per client, with the columns ``client``, ``num_examples``, ``num_positives``, ``prevalence`` (a
    fraction), ``kl`` (nats), ``tvd`` (in [0, 1]); ``share_of_rows`` and ``share_of_positives``, of the whole table's;
    and with ``kinds`` for each kind j ``kind_j``, its share of the client's frauds. ``prevalence``, ``kl`` and ``tvd``
    are NaN for a client without rows, ``kind_j`` for one without frauds, ``share_of_positives`` if there is no fraud.

    Raises: ValueError if the labels are not 0 and 1, or not one per row of the partition, or the kinds are not.

    Example:
      >>> table = summary(natural(["A", "A", "B", "B"]), [1, 0, 0, 0])
      >>> table[["client", "num_examples", "num_positives", "prevalence"]]
         client  num_examples  num_positives  prevalence
      0       0             2              1         0.5
      1       1             2              0         0.0
    """
    labels = _check_labels(labels)
    if len(labels) != len(partition.order):
        raise ValueError(
            f"`labels` must have one entry per row, {len(partition.order)}, got {len(labels)}. Pass the same table."
        )
    num_examples = partition.count.astype(np.int64)
    num_positives = np.bincount(client_of(partition), labels, len(num_examples)).astype(np.int64)
    prevalence = _share(num_positives, num_examples)
    local = np.stack([1 - prevalence, prevalence], axis=1)
    overall = np.array([1 - labels.mean(), labels.mean()])
    table = pd.DataFrame(
        {
            "client": np.arange(len(num_examples)),
            "num_examples": num_examples,
            "num_positives": num_positives,
            "prevalence": prevalence,
            "kl": np.sum(local * np.log((local + EPSILON) / (overall + EPSILON)), axis=1),
            "tvd": 0.5 * np.sum(np.abs(local - overall), axis=1),
            "share_of_rows": num_examples / len(labels),
            "share_of_positives": _share(num_positives, labels.sum()),
        }
    )
    if kinds is not None:
        codes, owner, fraud = _check_kinds(kinds, labels), client_of(partition), labels == 1
        for kind in range(int(codes[fraud].max(initial=0)) + 1):
            count = np.bincount(owner[fraud & (codes == kind)], minlength=len(num_examples))
            table[f"kind_{kind}"] = _share(count, num_positives)
    return table


def _share(part: np.ndarray, whole) -> np.ndarray:
    """A fraction; NaN of nothing."""
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)
