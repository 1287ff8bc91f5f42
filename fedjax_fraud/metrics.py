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

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt

from fedjax_fraud.vectors import (
    Values,
    as_amounts,
    as_floats,
    as_labels,
    as_probabilities,
    as_scores,
    check_lengths,
    is_traced,
    tree_sum,
    unless_nan,
)

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


def _running(op: Callable, values: Int[Array, " samples"], identity: int) -> Int[Array, " samples"]:
    """``op`` over each position and all before it, by doubling: compiles in half the time of `jnp.cumsum`."""
    num_rows = values.shape[0]
    padding = jnp.full(num_rows, identity, values.dtype)

    def double(i, total):
        earlier = jax.lax.dynamic_slice_in_dim(jnp.concatenate([padding, total]), num_rows - (1 << i), num_rows)
        return op(total, earlier)

    return jax.lax.fori_loop(0, (num_rows - 1).bit_length(), double, values)


def _count_less(
    table: UInt[Array, " table"], lower: Int[Array, "..."], upper: Int[Array, "..."], key: UInt[Array, " samples"]
) -> Int[Array, " samples"]:
    """Binary search of each key in its own sorted segment ``table[lower:upper]``: the first place not below it."""
    num_steps = table.shape[0].bit_length()

    def stride(i, place):
        further = place + (1 << (num_steps - 1) >> i)
        return jnp.where((further <= upper) & (table.at[further - 1].get(mode="clip") < key), further, place)

    return jax.lax.fori_loop(0, num_steps, stride, jnp.broadcast_to(lower, key.shape))


# --- scores split by label: the engine's path -----------------------------------------------------------------------


class Ranks(NamedTuple):
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


def rank_positives(positive_scores, positive_group, negative_scores, negative_group, num_groups) -> Ranks:
    """Counts, for each positive, the negatives around it. ``negative_group`` may be a scalar.

    Only the positives are sorted. Each negative looks up its place among the positives of its group and is counted
    in that bin; running totals over the bins then say how many negatives lie below each positive.
    """
    num_rows = positive_scores.shape[0]
    group, key = jax.lax.sort((positive_group, order_key(positive_scores)), num_keys=2)
    in_earlier = group[None, :] < jnp.arange(num_groups + 1, dtype=group.dtype)[:, None]
    bound = jnp.sum(in_earlier, axis=1, dtype=jnp.int32)
    lower, upper = bound[:-1], bound[1:]
    largest = ~jnp.zeros((), key.dtype)

    # Bin (place + group): a group with m positives has the m + 1 bins from its lower bound on. Slot 1 of a bin holds
    # the ties with the positive at that place; slot 1 of a group's last bin, where no tie can be, holds its NaNs.
    negative_key = order_key(negative_scores)
    place = _count_less(key, lower[negative_group], upper[negative_group], negative_key)
    tie = (place < upper[negative_group]) & (key.at[place].get(mode="clip") == negative_key)
    slot = (tie | (negative_key == largest)).astype(jnp.int32)
    count = jnp.zeros(2 * (num_rows + num_groups), jnp.int32).at[2 * (place + negative_group) + slot].add(1)
    count = count.reshape(-1, 2)
    up_to = _running(jnp.add, count[:, 0] + count[:, 1], 0)

    groups = jnp.arange(num_groups, dtype=jnp.int32)
    last_bin = upper + groups
    before = jnp.concatenate([jnp.zeros(1, jnp.int32), up_to[last_bin][:-1]])
    first = _count_less(key, lower[group], upper[group], key)
    tied = count[first + group, 1]
    return Ranks(
        group=group,
        positives_from=upper[group] - first,
        below=up_to[first + group] - before[group] - tied,
        tied=tied,
        num_positives=upper - lower,
        num_negatives=up_to[last_bin] - before,
        has_nan=(count[last_bin, 1] > 0) | ((upper > lower) & (key.at[upper - 1].get(mode="clip") == largest)),
    )


def _group_mean(values: Float[Array, " positives"], ranks: Ranks) -> Float[Array, " groups"]:
    """Mean over each group's positives; NaN for a group without any, or with a NaN score."""
    groups = jnp.arange(ranks.num_positives.shape[0], dtype=jnp.int32)
    member = ranks.group[:, None] == groups[None, :]
    total = tree_sum(jnp.where(member, values[:, None], 0))
    defined = (ranks.num_positives > 0) & ~ranks.has_nan
    return jnp.where(defined, total / jnp.maximum(ranks.num_positives, 1).astype(total.dtype), jnp.nan)


def _grouped_scores(positive_scores, positive_group, negative_scores, negative_group, num_groups):
    """`grouped_ranking_scores`, where ``negative_group`` may be a scalar."""
    if positive_scores.shape[0] == 0:
        undefined = jnp.full(num_groups, jnp.nan, float)
        return undefined, undefined
    ranks = rank_positives(positive_scores, positive_group, negative_scores, negative_group, num_groups)
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


# --- labels and scores in any order ---------------------------------------------------------------------------------


class _Sorted(NamedTuple):
    """Rows in rising order of score, all ``[samples]``.

    A row's run of ties is ``first`` to ``end`` (exclusive); ``positives_before``, ``[samples + 1]``, counts the
    positives before each position; ``row`` is where the row stood before.
    """

    positive: Bool[Array, " samples"]
    first: Int[Array, " samples"]
    end: Int[Array, " samples"]
    positives_before: Int[Array, " samples_plus_one"]
    row: Int[Array, " samples"]


def _sort_rows(positive: Bool[Array, " samples"], scores: Shaped[Array, " samples"]) -> _Sorted:
    """Sorts by score, finds the ties and counts."""
    position = jnp.arange(scores.shape[0], dtype=jnp.int32)
    key, row = jax.lax.sort((order_key(scores), position), num_keys=1)
    differs = key[1:] != key[:-1]
    edge = jnp.ones(1, bool)
    first = jnp.where(jnp.concatenate([edge, differs]), position, 0)
    end = jnp.where(jnp.concatenate([differs, edge]), position + 1, scores.shape[0])
    positive = positive[row]
    before = _running(jnp.add, positive.astype(jnp.int32), 0)
    return _Sorted(
        positive=positive,
        first=_running(jnp.maximum, first, 0),
        end=_running(jnp.minimum, end[::-1], scores.shape[0])[::-1],
        positives_before=jnp.concatenate([jnp.zeros(1, jnp.int32), before]),
        row=row,
    )


def _mean_over(where: Bool[Array, " samples"], values: Float[Array, " samples"]) -> Float[Array, ""]:
    """Mean of the selected values; NaN if none is."""
    return tree_sum(jnp.where(where, values, 0)) / jnp.sum(where, dtype=jnp.int32).astype(values.dtype)


@jax.jit
def _average_precision(positive, scores):
    rows = _sort_rows(positive, scores)
    true_alerts = rows.positives_before[-1] - rows.positives_before[rows.first]
    alerts = scores.shape[0] - rows.first
    return unless_nan(_mean_over(rows.positive, true_alerts.astype(float) / alerts.astype(float)), scores)


@jax.jit
def _roc_auc(positive, scores):
    rows = _sort_rows(positive, scores)
    below = rows.first - rows.positives_before[rows.first]
    below_or_tied = rows.end - rows.positives_before[rows.end]
    num_negatives = scores.shape[0] - rows.positives_before[-1]
    won = 0.5 * (below.astype(float) + below_or_tied.astype(float))
    return unless_nan(_mean_over(rows.positive, won / num_negatives.astype(float)), scores)


def average_precision_score(y_true: Values, y_score: Values) -> Float[Array, ""]:
    """Area under the precision-recall curve by the step sum, scikit-learn's `average_precision_score`.

    The mean over the frauds of the precision among all rows that score at least as high. Show the prevalence beside
    it: that is what a constant score reaches.

    Args:
      y_true: ``[samples]``, 1 = fraud, 0 = genuine.
      y_score: ``[samples]``, any increasing measure of suspicion; need not be a probability.

    Returns: scalar in [0, 1]; 1 if every row is a fraud; NaN if none is, or if a traced score is NaN.

    Raises: ValueError if the lengths differ or are 0, or if concrete labels are not 0 and 1 or scores are NaN.

    Reference: scikit-learn's `average_precision_score`. Differs in: without any fraud the score is undefined, so NaN
    and not 0.0.

    Example: the frauds come first and third, with precisions 1 and 2/3.
      >>> round(float(average_precision_score([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1])), 4)
      0.8333
    """
    positive, scores = as_labels(y_true), as_scores(y_score)
    check_lengths(y_true=positive, y_score=scores)
    return _average_precision(positive, scores)


def roc_auc_score(y_true: Values, y_score: Values) -> Float[Array, ""]:
    """The probability that a random fraud scores above a random genuine transaction, ties counting half.

    Args:
      y_true: ``[samples]``, 1 = fraud, 0 = genuine.
      y_score: ``[samples]``, any increasing measure of suspicion; need not be a probability.

    Returns: scalar in [0, 1]; NaN if there is only one class, or if a traced score is NaN.

    Raises: ValueError if the lengths differ or are 0, or if concrete labels are not 0 and 1 or scores are NaN.

    Example: three of the four pairs of a fraud and a genuine row are in order.
      >>> float(roc_auc_score([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1]))
      0.75
    """
    positive, scores = as_labels(y_true), as_scores(y_score)
    check_lengths(y_true=positive, y_score=scores)
    return _roc_auc(positive, scores)


# --- probabilities --------------------------------------------------------------------------------------------------


@jax.jit
def _mean_log_loss(positive, logits):
    return tree_sum(jax.nn.softplus(jnp.where(positive, -logits, logits))) / logits.shape[0]


@jax.jit
def _mean_brier(positive, y_prob):
    return tree_sum(jnp.square(y_prob - positive.astype(y_prob.dtype))) / y_prob.shape[0]


def log_loss(y_true: Values, logits: Values) -> Float[Array, ""]:
    """Mean negative log likelihood, from logits, so that a confident model is not clipped.

    Args:
      y_true: ``[samples]``, 1 = fraud, 0 = genuine.
      logits: ``[samples]``, the log odds of fraud (not probabilities).

    Returns: scalar in nats, >= 0; NaN if a traced logit is NaN.

    Raises: ValueError if the lengths differ or are 0, or if concrete labels are not 0 and 1 or logits are NaN.

    Reference: scikit-learn's `log_loss` on the probabilities. Differs in: takes logits.

    Example: log odds of 0 say one half for both, which costs ln 2.
      >>> round(float(log_loss([1, 0], [0.0, 0.0])), 4)
      0.6931
    """
    positive, logits = as_labels(y_true), as_floats("logits", logits)
    check_lengths(y_true=positive, logits=logits)
    return _mean_log_loss(positive, logits)


def brier_score_loss(y_true: Values, y_prob: Values) -> Float[Array, ""]:
    """Mean squared difference between the probability of fraud and what happened.

    Args:
      y_true: ``[samples]``, 1 = fraud, 0 = genuine.
      y_prob: ``[samples]``, the probability of fraud, in [0, 1].

    Returns: scalar in [0, 1]; NaN if a traced probability is NaN.

    Raises: ValueError if the lengths differ or are 0, or if concrete labels are not 0 and 1 or probabilities are
      NaN or outside [0, 1].

    Example:
      >>> float(brier_score_loss([1, 0], [0.5, 0.5]))
      0.25
    """
    positive, y_prob = as_labels(y_true), as_probabilities(y_prob)
    check_lengths(y_true=positive, y_prob=y_prob)
    return _mean_brier(positive, y_prob)


# --- alert budgets --------------------------------------------------------------------------------------------------


def num_alerts_of(budget, num_rows: int) -> Float[Array, ""]:
    """How many of the rows may be flagged; need not be whole."""
    if not is_traced(budget) and not 0 < float(budget) <= 1:
        raise ValueError(
            f"`budget` must be in (0, 1], got {budget}. It is the share of transactions that may be flagged."
        )
    return jnp.asarray(budget * num_rows).astype(float)


@jax.jit
def _flagged_sum(positive, scores, amount, num_alerts):
    """Expected total of ``amount`` over the flagged frauds."""
    rows = _sort_rows(positive, scores)
    above = (scores.shape[0] - rows.end).astype(float)
    tied = (rows.end - rows.first).astype(float)
    flagged = jnp.clip((num_alerts - above) / tied, 0, 1)
    total = tree_sum(jnp.where(rows.positive, flagged * amount[rows.row], 0))
    return unless_nan(total, scores)


def _flagged_frauds(y_true, y_score, budget):
    """Expected number of flagged frauds, alerts, and frauds."""
    positive, scores = as_labels(y_true), as_scores(y_score)
    check_lengths(y_true=positive, y_score=scores)
    num_alerts = num_alerts_of(budget, scores.shape[0])
    ones = jnp.ones(scores.shape, float)
    return _flagged_sum(positive, scores, ones, num_alerts), num_alerts, jnp.sum(positive, dtype=jnp.int32)


def precision_at_budget(y_true: Values, y_score: Values, *, budget: ArrayLike) -> Float[Array, ""]:
    """Share of frauds among the alerts, if the highest scores are flagged until the budget is used up.

    The budget is used exactly: ties at the cut are flagged in part, which gives the expected value over all ways to
    break them at random, and so is the last alert of a budget that is not a whole number of rows.

    Args:
      y_true: ``[samples]``, 1 = fraud, 0 = genuine.
      y_score: ``[samples]``, any increasing measure of suspicion.
      budget: share of the transactions that may be flagged, in (0, 1]. May be a tracer, which is not checked.

    Returns: scalar in [0, 1]; 0 if there is no fraud; NaN if a traced score is NaN.

    Raises: ValueError if the lengths differ or are 0, if concrete labels are not 0 and 1 or scores are NaN, or if the
      budget is out of range.

    Example: two alerts of four rows, one of them a fraud.
      >>> float(precision_at_budget([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1], budget=0.5))
      0.5
    """
    caught, num_alerts, _ = _flagged_frauds(y_true, y_score, budget)
    return caught / num_alerts


def recall_at_budget(y_true: Values, y_score: Values, *, budget: ArrayLike) -> Float[Array, ""]:
    """Share of the frauds that are flagged within an alert budget.

    Ties and budgets that are not whole numbers of rows count in part, as in `precision_at_budget`.

    Args:
      y_true: ``[samples]``, 1 = fraud, 0 = genuine.
      y_score: ``[samples]``, any increasing measure of suspicion.
      budget: share of the transactions that may be flagged, in (0, 1]. May be a tracer, which is not checked.

    Returns: scalar in [0, 1]; NaN if there is no fraud, or if a traced score is NaN.

    Raises: as `precision_at_budget`.

    Example: two alerts catch one of the two frauds.
      >>> float(recall_at_budget([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1], budget=0.5))
      0.5
    """
    caught, _, num_positives = _flagged_frauds(y_true, y_score, budget)
    return caught / num_positives.astype(caught.dtype)


def value_recall_at_budget(y_true: Values, y_score: Values, amount: Values, *, budget: ArrayLike) -> Float[Array, ""]:
    """Share of the defrauded money that is flagged within an alert budget.

    Ties and budgets that are not whole numbers of rows count in part, as in `precision_at_budget`.

    Args:
      y_true: ``[samples]``, 1 = fraud, 0 = genuine.
      y_score: ``[samples]``, any increasing measure of suspicion.
      amount: ``[samples]`` in the account's currency (not its logarithm), finite and >= 0.
      budget: share of the transactions that may be flagged, in (0, 1]. May be a tracer, which is not checked.

    Returns: scalar in [0, 1]; NaN if no money was defrauded, or if a traced score or amount is NaN.

    Raises: as `precision_at_budget`, and if a concrete amount is negative or not finite.

    Example: the fraud that is caught is the large one.
      >>> float(value_recall_at_budget([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1], [300, 10, 100, 10], budget=0.5))
      0.75
    """
    positive, scores, amount = as_labels(y_true), as_scores(y_score), as_amounts("amount", amount)
    check_lengths(y_true=positive, y_score=scores, amount=amount)
    caught = _flagged_sum(positive, scores, amount, num_alerts_of(budget, scores.shape[0]))
    return caught / tree_sum(jnp.where(positive, amount, 0))
