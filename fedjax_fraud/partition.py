"""Who owns which row: partitions of a table over clients, and how far each client's labels are from the whole.

Host side, NumPy. Every function here gives each row to exactly one client, lets clients be empty, and draws from
generators of its own: NumPy's global generator is neither read nor moved. There is no rejection loop and no hidden
balancing; what cannot be done raises at once.

The Dirichlet partitions are of the *per class over clients* family: each class (or bin of a feature) is spread over
the clients by its own draw q ~ Dir(alpha, ..., alpha), so that a client's share of one class has mean 1/n and standard
deviation sqrt((1/n)(1 - 1/n) / (n alpha + 1)). (The other family draws each client's class mix; the same alpha
means another skew there.) Smaller alpha = more skew.

Proportions and rows have separate random streams. `dirichlet_labels` and `dirichlet_feature` with the same
``(num_clients, alpha, seed)`` therefore give a training table and a test table the same proportions, whatever their
sizes: that is guaranteed, so that each bank is tested on the mix that it trains on.

Reference: Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification, 2019, and Li, Diao, Chen and He, Federated Learning on Non-IID Data Silos: An Experimental Study,
ICDE 2022, section 4 (the per-class family and quantity skew). Differs in: remainders go to the largest fractions, and
no draw is repeated until every client has a minimum size.
"""

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


def _spread(codes: np.ndarray, shares: np.ndarray, rows_rng: np.random.Generator) -> Partition:
    """Spreads the rows of each code over the clients in the proportions ``shares [codes, clients]``."""
    num_clients = shares.shape[1]
    owner = np.empty(len(codes), np.int64)
    for code, share in enumerate(shares):
        rows = rows_rng.permutation(np.flatnonzero(codes == code))
        owner[rows] = np.repeat(np.arange(num_clients), _split_counts(share, len(rows)))
    return _from_owner(owner, num_clients)


def dirichlet_proportions(num_classes: int, num_clients: int, alpha, seed) -> Float[np.ndarray, "classes clients"]:
    """The proportions by which the Dirichlet partitions spread each class over the clients.

    Args:
      num_classes: rows to draw; the first rows do not depend on how many follow.
      num_clients: at least 1.
      alpha: concentration, finite and > 0; below about 0.001 nearly every row has a single 1.
      seed: integer >= 0.

    Returns: ``[classes, clients]``, each row >= 0 with sum 1. Exact zeros are legal.

    Raises: ValueError on an argument out of range.
    """
    alpha = _check_alpha(alpha)
    num_clients = _check_integer("num_clients", num_clients, 1)
    num_classes = _check_integer("num_classes", num_classes, 1)
    return _generators(seed)[0].dirichlet(np.full(num_clients, alpha), size=num_classes)


# --- partitions -----------------------------------------------------------------------------------------------------


def dirichlet_labels(labels: Values, num_clients, alpha, seed) -> Partition:
    """Label skew: frauds and genuine transactions are each spread over the clients by a Dirichlet draw.

    Per class over clients, see the module's page. Both classes' proportions are always drawn, genuine first, even
    where a class is absent, so equal ``(num_clients, alpha, seed)`` means equal proportions on every table.

    Args:
      labels: ``[samples]``, 1 = fraud, 0 = genuine.
      num_clients: at least 1, at most the number of rows.
      alpha: concentration, finite and > 0; smaller = more skew.
      seed: integer >= 0; one seed, one partition.

    Returns: a partition of all rows. Clients without rows or without frauds are legal, and usual at small alpha.

    Raises: ValueError on an argument out of range, labels other than 0 and 1, or no rows.
    """
    labels = _check_labels(labels)
    num_clients = _check_sizes(len(labels), num_clients)
    return _spread(labels, dirichlet_proportions(2, num_clients, alpha, seed), _generators(seed)[1])


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
    """
    silo = _as_column("silo", silo)
    names = _categories("silo", silo) if names is None else _as_column("names", names)
    if len(pd.unique(names)) < len(names):
        raise ValueError(f"`names` must be distinct, got {names.tolist()}. Name each client once.")
    return _from_owner(_category_codes("silo", silo, names), len(names))


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
        raise ValueError(f"`{name}` has {unseen!r}, which is not among {known}. Add it, or map it to one of them.")
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
    """The owner of each row: ``[samples]`` int32."""
    owner = np.empty(len(partition.order), np.int32)
    owner[partition.order] = np.repeat(np.arange(len(partition.count), dtype=np.int32), partition.count)
    return owner


def summary(partition: Partition, labels: Values) -> pd.DataFrame:
    """What each client holds, and how far its label distribution is from the whole table's.

    With P_k(c) the share of class c among client k's rows and P(c) among all rows, in natural logarithms:
    ``kl`` = sum_c P_k(c) ln((P_k(c) + eps) / (P(c) + eps)), eps = `EPSILON` = 1e-12, and
    ``tvd`` = 1/2 sum_c abs(P_k(c) - P(c)).

    Args:
      partition: any partition of the table.
      labels: ``[samples]``, 1 = fraud, 0 = genuine.

    Returns: one row per client, with the columns ``client``, ``num_examples``, ``num_positives``, ``prevalence`` (a
    fraction), ``kl`` (nats), ``tvd`` (in [0, 1]). The last three are NaN for a client without rows.

    Raises: ValueError if the labels are not 0 and 1, or not one per row of the partition.
    """
    labels = _check_labels(labels)
    if len(labels) != len(partition.order):
        raise ValueError(
            f"`labels` must have one entry per row, {len(partition.order)}, got {len(labels)}. Pass the same table."
        )
    num_examples = partition.count.astype(np.int64)
    num_positives = np.bincount(client_of(partition), labels, len(num_examples)).astype(np.int64)
    prevalence = np.where(num_examples > 0, num_positives / np.maximum(num_examples, 1), np.nan)
    local = np.stack([1 - prevalence, prevalence], axis=1)
    overall = np.array([1 - labels.mean(), labels.mean()])
    return pd.DataFrame(
        {
            "client": np.arange(len(num_examples)),
            "num_examples": num_examples,
            "num_positives": num_positives,
            "prevalence": prevalence,
            "kl": np.sum(local * np.log((local + EPSILON) / (overall + EPSILON)), axis=1),
            "tvd": 0.5 * np.sum(np.abs(local - overall), axis=1),
        }
    )
