"""Scores on ``(y_true, y_score)`` as scikit-learn defines them, in JAX: exact, ties included, jit- and vmap-able.

Two ways in. The public functions (`average_precision_score`, `roc_auc_score`, ...) take labels and scores in any
order; the labels may be traced. The engine, which scores hundreds of models on one test set, splits the scores by
label once and calls `ranking_scores` or `grouped_ranking_scores`; these never sort the many negatives.

Both compare integers: `order_key` maps scores to unsigned integers of the same order, so that tiny scores, which a
compiled program may flush to 0, keep their order. NumPy arrays and lists of 64-bit numbers are ranked on the host
first, so that two scores that differ only beyond float32 stay different.

A score that is not defined (one class only) is NaN, never 0 or 0.5: a mean over clients can leave it out and count
it. A NaN among the scores of compiled code makes the result NaN; among concrete arrays it raises.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt

# --- order ------------------------------------------------------------------------------------------------------


def order_key(scores: Shaped[ArrayLike, "*shape"]) -> UInt[Array, "*shape"]:
    """Unsigned integers in the order of the scores, equal exactly where the scores are equal.

    Sorting and comparing them is exact and several times faster than on floats. A float's bits already are in
    order as sign and magnitude; flipping all bits of the negatives, and the sign of the rest, makes them unsigned.

    Args:
      scores: ``[...]`` of float or integer type.

    Returns: ``[...]`` uint32 (uint64 for 64-bit scores under x64). -0.0 and 0.0 have one key; every NaN has the
    largest key there is, above infinity's.
    """
    scores = jnp.asarray(scores)
    wide = jnp.uint64 if scores.dtype.itemsize == 8 else jnp.uint32
    num_bits = 8 * jnp.dtype(wide).itemsize
    sign = jnp.array(1 << (num_bits - 1), wide)
    if jnp.issubdtype(scores.dtype, jnp.floating):
        narrow = scores.dtype.itemsize < 4
        bits = jax.lax.bitcast_convert_type(scores.astype(jnp.float32) if narrow else scores, wide)
        magnitude = bits & ~sign
        infinity = jax.lax.bitcast_convert_type(jnp.array(jnp.inf, f"float{num_bits}"), wide)
        key = jnp.where((bits != magnitude) & (magnitude != 0), ~bits, magnitude | sign)
        return jnp.where(magnitude > infinity, ~jnp.zeros_like(key), key)
    if jnp.issubdtype(scores.dtype, jnp.signedinteger):
        return jax.lax.bitcast_convert_type(scores.astype(f"int{num_bits}"), wide) ^ sign
    return scores.astype(wide)


def _first_of_ties(*keys: Shaped[Array, " samples"]) -> Int[Array, " samples"]:
    """For each position of sorted keys, where its run of equal keys begins."""
    differs = functools.reduce(jnp.logical_or, (key[1:] != key[:-1] for key in keys))
    position = jnp.arange(1, keys[0].shape[0], dtype=jnp.int32)
    first = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.where(differs, position, 0)])
    return jax.lax.cummax(first)


def _count_less(
    table: UInt[Array, " table"], lower: Int[Array, "..."], upper: Int[Array, "..."], key: UInt[Array, " samples"]
) -> Int[Array, " samples"]:
    """Binary search of each key in its own sorted segment ``table[lower:upper]``: the first place not below it."""

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) // 2
        right = (low < high) & (table.at[middle].get(mode="clip") < key)
        return jnp.where(right, middle + 1, low), jnp.where(right, high, middle)

    bounds = jnp.broadcast_to(lower, key.shape), jnp.broadcast_to(upper, key.shape)
    return jax.lax.fori_loop(0, table.shape[0].bit_length(), halve, bounds)[0]


def _tree_sum(values: Float[Array, "samples ..."]) -> Float[Array, "..."]:
    """Sum over the leading axis by eights, so that rounding errors do not grow with the number of rows."""
    if values.shape[0] == 0:
        return jnp.zeros(values.shape[1:], values.dtype)
    while values.shape[0] > 1:
        padding = [(0, -values.shape[0] % 8)] + [(0, 0)] * (values.ndim - 1)
        values = jnp.sum(jnp.pad(values, padding).reshape(8, -1, *values.shape[1:]), axis=0)
    return values[0]


# --- scores split by label: the engine's path -----------------------------------------------------------------------


class _Ranks(NamedTuple):
    """The positives in order of (group, score), and the rows of the same group around each.

    Fields ``[positives]``: ``group``; ``positives_from``, positives with at least this score; ``below`` and
    ``tied``, negatives with a lower score and with this one. Fields ``[groups]``: ``num_positives``,
    ``num_negatives``, ``has_nan``.
    """

    group: Int[Array, " positives"]
    positives_from: Int[Array, " positives"]
    below: Int[Array, " positives"]
    tied: Int[Array, " positives"]
    num_positives: Int[Array, " groups"]
    num_negatives: Int[Array, " groups"]
    has_nan: Bool[Array, " groups"]


def _rank_positives(positive_scores, positive_group, negative_scores, negative_group, num_groups) -> _Ranks:
    """Counts, for each positive, the negatives around it. ``negative_group`` may be a scalar.

    Only the positives are sorted. Each negative looks up its place among the positives of its group and is counted
    in that bin; running totals over the bins then say how many negatives lie below each positive.
    """
    num_rows = positive_scores.shape[0]
    group, key = jax.lax.sort((positive_group, order_key(positive_scores)), num_keys=2)
    bound = jnp.searchsorted(group, jnp.arange(num_groups + 1, dtype=group.dtype)).astype(jnp.int32)
    lower, upper = bound[:-1], bound[1:]
    largest = ~jnp.zeros((), key.dtype)

    # Bin (place + group): a group with m positives has the m + 1 bins from its lower bound on. Slot 1 of a bin holds
    # the ties with the positive at that place; slot 1 of a group's last bin, where no tie can be, holds its NaNs.
    negative_key = order_key(negative_scores)
    place = _count_less(key, lower[negative_group], upper[negative_group], negative_key)
    tie = (place < upper[negative_group]) & (key.at[place].get(mode="clip") == negative_key)
    slot = (tie | (negative_key == largest)).astype(jnp.int32)
    count = jnp.zeros((num_rows + num_groups, 2), jnp.int32).at[place + negative_group, slot].add(1)
    up_to = jnp.cumsum(jnp.sum(count, axis=1))

    groups = jnp.arange(num_groups, dtype=jnp.int32)
    last_bin = upper + groups
    before = jnp.concatenate([jnp.zeros(1, jnp.int32), up_to[last_bin][:-1]])
    first = _first_of_ties(group, key)
    tied = count[first + group, 1]
    return _Ranks(
        group=group,
        positives_from=upper[group] - first,
        below=up_to[first + group] - before[group] - tied,
        tied=tied,
        num_positives=upper - lower,
        num_negatives=up_to[last_bin] - before,
        has_nan=(count[last_bin, 1] > 0) | ((upper > lower) & (key.at[upper - 1].get(mode="clip") == largest)),
    )


def _group_mean(values: Float[Array, " positives"], ranks: _Ranks) -> Float[Array, " groups"]:
    """Mean over each group's positives; NaN for a group without any, or with a NaN score."""
    groups = jnp.arange(ranks.num_positives.shape[0], dtype=jnp.int32)
    member = ranks.group[:, None] == groups[None, :]
    total = _tree_sum(jnp.where(member, values[:, None], 0))
    defined = (ranks.num_positives > 0) & ~ranks.has_nan
    return jnp.where(defined, total / jnp.maximum(ranks.num_positives, 1).astype(total.dtype), jnp.nan)


def _grouped_scores(positive_scores, positive_group, negative_scores, negative_group, num_groups):
    """`grouped_ranking_scores`, where ``negative_group`` may be a scalar."""
    if positive_scores.shape[0] == 0:
        undefined = jnp.full(num_groups, jnp.nan, float)
        return undefined, undefined
    ranks = _rank_positives(positive_scores, positive_group, negative_scores, negative_group, num_groups)
    num_negatives = ranks.num_negatives[ranks.group]
    alerts = ranks.positives_from + num_negatives - ranks.below
    precision = ranks.positives_from.astype(float) / alerts.astype(float)
    won = ranks.below.astype(float) + 0.5 * ranks.tied.astype(float)
    share = won / jnp.maximum(num_negatives, 1).astype(float)
    roc_auc = jnp.where(ranks.num_negatives > 0, _group_mean(share, ranks), jnp.nan)
    return _group_mean(precision, ranks), roc_auc


def ranking_scores(
    positive_scores: Float[Array, " positives"], negative_scores: Float[Array, " negatives"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Average precision and ROC-AUC of scores that are already split by label; the engine's pooled score.

    Average precision is the mean over the positives of TP / (TP + FP) at their score, ROC-AUC the mean of
    (negatives below + half of those tied) / negatives. Each term is a share before it is summed, so that no pair
    count overflows 32 bits.

    Args:
      positive_scores: ``[positives]``, the scores of the frauds.
      negative_scores: ``[negatives]``, the scores of the genuine transactions.

    Returns: two scalars. No positives: both NaN. No negatives: 1 and NaN. A NaN score: both NaN.
    """
    positive_group = jnp.zeros(positive_scores.shape, jnp.int32)
    scores = _grouped_scores(positive_scores, positive_group, negative_scores, jnp.int32(0), 1)
    return scores[0][0], scores[1][0]


def grouped_ranking_scores(
    positive_scores: Float[Array, " positives"],
    positive_group: Int[Array, " positives"],
    negative_scores: Float[Array, " negatives"],
    negative_group: Int[Array, " negatives"],
    num_groups: int,
) -> tuple[Float[Array, " groups"], Float[Array, " groups"]]:
    """`ranking_scores` within each group (each bank's own rows), all groups in one pass.

    The mean of these is not the score of the pooled rows: two banks that each rank perfectly, on different scales,
    have 1 each and less than 1 together.

    Args:
      positive_scores, positive_group: ``[positives]``, score and group of each fraud.
      negative_scores, negative_group: ``[negatives]``, score and group of each genuine transaction.
      num_groups: static; groups are in ``[0, num_groups)``, which is not checked.

    Returns: average precision and ROC-AUC, ``[groups]`` each. A group without positives: both NaN; without
    negatives: 1 and NaN; with a NaN score: both NaN.
    """
    return _grouped_scores(positive_scores, positive_group, negative_scores, negative_group, num_groups)
