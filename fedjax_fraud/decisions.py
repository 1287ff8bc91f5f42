"""What a threshold on the score does: how much it flags, what it catches, what it costs; and thresholds from budgets.

`metrics` ranks rows; here a row is *flagged* when its score is at least the threshold. A threshold is a number that can
be chosen on one bank's rows and used on another's, which a ranking metric cannot say anything about.

Concrete arguments are compared on the host in the precision of the scores, so a threshold that was one of 64-bit scores
flags that row. Traced ones are compared as ordered integers (`metrics.order_key`). A NaN among traced arguments makes
the result NaN; among concrete ones it raises.
"""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from fedjax_fraud.measures import ROUNDING
from fedjax_fraud.metrics import num_alerts_of, order_key
from fedjax_fraud.vectors import Values, as_labels, as_vector, check_lengths, is_traced, tree_sum, unless_nan

HOURS_PER_DAY = 24


# --- thresholds from budgets ----------------------------------------------------------------------------------------


def threshold_at_budget(y_score: Values, *, budget: ArrayLike) -> Any:
    """The lowest threshold that flags no more rows than a budget allows.

    The budget is a promise: rows that are tied at the cut are flagged all or none, and none if all would be too many.
    (The metrics at a budget flag them in part, which no threshold can do.) What is flagged on these rows is therefore
    at most ``floor(budget * samples)``; on other rows it may be anything.

    Args:
      y_score: ``[samples]``, any increasing measure of suspicion, finite.
      budget: share of the rows that may be flagged, in (0, 1]. May be a tracer, which is not checked.

    Returns: one of the scores, to be used as ``score >= threshold``: a NumPy scalar of the scores' own type if all
      arguments are concrete, else a traced scalar. Infinity if nothing can be flagged: a budget of less than one row,
      or more rows tied at the top than the budget allows (a constant score). NaN if a traced score is NaN.

    Raises: ValueError if the scores are NaN or there are none, or if the budget is out of range.

    Example:
      >>> float(threshold_at_budget([0.9, 0.2, 0.7, 0.7], budget=0.5))
      0.9
    """
    if is_traced(y_score) or is_traced(budget):
        return _traced_threshold(jnp.asarray(y_score), budget)
    scores = as_vector("y_score", y_score)
    num_alerts = int(whole_alerts(num_alerts_of(budget, len(scores))))
    if num_alerts >= len(scores):
        return scores.min()
    cut = len(scores) - 1 - num_alerts
    flagged = scores[scores > np.partition(scores, cut)[cut]]
    return flagged.min() if flagged.size else np.float64(np.inf)


def _traced_threshold(scores: Float[Array, " samples"], budget: ArrayLike) -> Float[Array, ""]:
    """`threshold_at_budget` in compiled code."""
    check_lengths(y_score=scores)
    scores = scores if jnp.issubdtype(scores.dtype, jnp.floating) else scores.astype(float)
    key = order_key(scores)
    flagged = key >= threshold_key(key, whole_alerts(num_alerts_of(budget, scores.shape[0])))
    lowest = scores[jnp.argmin(jnp.where(flagged, key, ~jnp.zeros_like(key)))]
    return unless_nan(jnp.where(jnp.any(flagged), lowest, jnp.inf), scores)


def whole_alerts(num_alerts: ArrayLike) -> Array:
    """The whole alerts in a number of alerts, forgiving what float32 rounds off."""
    return jnp.floor(jnp.asarray(num_alerts) * (1 + ROUNDING)).astype(jnp.int32)


def threshold_key(key: Array, num_alerts: Array) -> Array:
    """The lowest key from which at most so many rows are flagged; the largest key there is if none can be.

    Args:
      key: ``[samples]`` unsigned, as ``order_key`` gives them.
      num_alerts: a whole number >= 0.
    """
    num_rows = key.shape[0]
    best_beyond = jnp.sort(key)[jnp.clip(num_rows - 1 - num_alerts, 0)]
    best_beyond = jnp.where(num_alerts < num_rows, best_beyond, jnp.zeros_like(best_beyond))
    return jnp.min(jnp.where(key > best_beyond, key, ~jnp.zeros_like(key)))


def daily_budget(time: Values, *, alerts_per_day, resolution: float = 1.0) -> float:
    """Alerts per day as a share of the rows, which is what the metrics at a budget take.

    The rows cover the days from the start of the first row's hour to the end of the last row's (of its day, if times
    are days), a part of a day counting as such: budget = alerts_per_day x days / samples. If the rows are a sample of
    all transactions, these are the alerts per day among the sample.

    Args:
      time: ``[samples]`` in hours from any origin, in any order.
      alerts_per_day: how many transactions a day may be flagged; a finite number > 0.
      resolution: hours for which one value of ``time`` stands; 24 for days. At least an hour is counted.

    Returns: a share in (0, 1]; 1 if more alerts are allowed than there are rows.

    Raises: ValueError if a time is not finite, if there are none, or if the number of alerts is out of range.

    Example: four days of 600 rows each, 3 alerts a day:
      >>> daily_budget(np.repeat(np.arange(96), 25), alerts_per_day=3)
      0.005
    """
    hours = as_vector("time", time)
    if not np.isfinite(hours).all():
        raise ValueError("`time` must be finite hours, got infinity. Drop such rows.")
    if not (isinstance(alerts_per_day, int | float | np.number) and 0 < alerts_per_day < math.inf):
        raise ValueError(
            f"`alerts_per_day` must be a finite number > 0, got {alerts_per_day!r}. Pass a number such as 10."
        )
    num_days = (math.floor(hours.max()) - math.floor(hours.min()) + max(1.0, resolution)) / HOURS_PER_DAY
    return min(1.0, float(alerts_per_day) * num_days / len(hours))


# --- at a threshold -------------------------------------------------------------------------------------------------


def _flagged(y_score: Values, threshold: Values) -> tuple[Bool[Array, " samples"], Bool[Array, ""]]:
    """Which rows are flagged, and whether a traced argument is NaN. The threshold: one, or one for each row."""
    if is_traced(y_score) or is_traced(threshold):
        scores = jnp.asarray(y_score)
        scores = scores if jnp.issubdtype(scores.dtype, jnp.floating) else scores.astype(float)
        cut = jnp.asarray(threshold).astype(scores.dtype)
        has_nan = jnp.any(jnp.isnan(scores)) | jnp.any(jnp.isnan(cut))
        return order_key(scores) >= order_key(cut), has_nan
    scores, cut = as_vector("y_score", y_score), np.asarray(threshold)
    if cut.dtype.kind not in "biuf" or np.isnan(cut).any() or cut.shape not in ((), scores.shape):
        raise ValueError(
            f"`threshold` must be a number, or one for each of the {len(scores)} rows, got {threshold!r}. "
            "`threshold_at_budget` gives one."
        )
    if scores.dtype.kind == "f":
        cut = cut.astype(scores.dtype)
    return jnp.asarray(scores >= cut), jnp.asarray(False)


def _ratio(part: Array, whole: Array, has_nan: Array) -> Float[Array, ""]:
    """Share of a count; NaN of nothing."""
    return jnp.where(has_nan, jnp.nan, part.astype(float) / whole.astype(float))


def _count(rows: Bool[Array, " samples"]) -> Array:
    """How many rows are marked."""
    return jnp.sum(rows, dtype=jnp.int32)


def alert_share(y_score: Values, *, threshold: Values) -> Float[Array, ""]:
    """Share of the rows that a threshold flags: the budget that it really spends.

    Args:
      y_score: ``[samples]``, any increasing measure of suspicion.
      threshold: rows with at least this score are flagged; one number, or ``[samples]``.

    Returns: scalar in [0, 1].

    Raises: ValueError if concrete scores or thresholds are NaN, or the shapes do not fit.
    """
    flagged, has_nan = _flagged(y_score, threshold)
    check_lengths(y_score=flagged)
    return _ratio(_count(flagged), jnp.asarray(flagged.shape[0]), has_nan)


def recall_at_threshold(y_true: Values, y_score: Values, *, threshold: Values) -> Float[Array, ""]:
    """Share of the frauds that a threshold flags.

    Args:
      y_true: ``[samples]``, 1 = fraud, 0 = genuine.
      y_score: ``[samples]``, any increasing measure of suspicion.
      threshold: rows with at least this score are flagged; one number, or ``[samples]``.

    Returns: scalar in [0, 1]; NaN if there is no fraud.

    Raises: ValueError if the lengths differ or are 0, if concrete labels are not 0 and 1, or as `alert_share`.
    """
    positive, (flagged, has_nan) = as_labels(y_true), _flagged(y_score, threshold)
    check_lengths(y_true=positive, y_score=flagged)
    return _ratio(_count(positive & flagged), _count(positive), has_nan)


def precision_at_threshold(y_true: Values, y_score: Values, *, threshold: Values) -> Float[Array, ""]:
    """Share of frauds among the rows that a threshold flags.

    Args:
      y_true, y_score, threshold: as in `recall_at_threshold`.

    Returns: scalar in [0, 1]; 0 if there is no fraud; NaN if nothing is flagged.

    Raises: as `recall_at_threshold`.
    """
    positive, (flagged, has_nan) = as_labels(y_true), _flagged(y_score, threshold)
    check_lengths(y_true=positive, y_score=flagged)
    return _ratio(_count(positive & flagged), _count(flagged), has_nan)


# --- cost -----------------------------------------------------------------------------------------------------------


def _as_cost(name: str, cost: Values, *, positive: bool = False) -> Array:
    """A cost for all rows, or for each; concrete ones must be finite and not negative."""
    if not is_traced(cost):
        values = np.asarray(cost)
        good = values.dtype.kind in "biuf" and np.isfinite(values).all() and (values >= 0).all() and values.ndim < 2
        if not good or (positive and not (values > 0).all()):
            bound = "> 0" if positive else ">= 0"
            raise ValueError(f"`{name}` must be a finite cost {bound}, one or one for each row, got {cost!r}. Mend it.")
    return jnp.asarray(cost).astype(float)


def cost_threshold(missed_fraud: Values, false_alarm: Values) -> Float[Array, "..."]:
    """The probability from which flagging is the cheaper decision: false_alarm / (false_alarm + missed_fraud).

    Flagging a transaction of fraud probability p costs (1 - p) x false_alarm on average, letting it pass
    p x missed_fraud. It is the best threshold only for scores that are calibrated probabilities.

    Args:
      missed_fraud: cost of a fraud that passes, >= 0: one number, or ``[samples]`` such as the amounts.
      false_alarm: cost of flagging a genuine transaction, > 0, in the same currency.

    Returns: in (0, 1], in the shape of ``missed_fraud``.

    Raises: ValueError if a concrete cost is out of range.

    Reference: Elkan, The Foundations of Cost-Sensitive Learning, IJCAI 2001, equation 2, where a correct decision costs
    nothing.
    """
    missed_fraud, false_alarm = (
        _as_cost("missed_fraud", missed_fraud),
        _as_cost("false_alarm", false_alarm, positive=True),
    )
    return false_alarm / (false_alarm + missed_fraud)


def cost_weighted_loss(
    y_true: Values, y_score: Values, *, threshold: Values, missed_fraud: Values, false_alarm: Values
) -> Float[Array, ""]:
    """Mean cost per transaction of the decisions of a threshold; a correct decision costs nothing.

    loss = (sum of ``missed_fraud`` over the frauds that pass + ``false_alarm`` x genuine rows flagged) / samples. With
    an infinite threshold it is what doing nothing costs.

    Args:
      y_true: ``[samples]``, 1 = fraud, 0 = genuine.
      y_score: ``[samples]``, any increasing measure of suspicion.
      threshold: rows with at least this score are flagged; one number, or ``[samples]`` as `cost_threshold` gives them.
      missed_fraud: cost of a fraud that passes, >= 0: one number, or ``[samples]`` such as the amounts.
      false_alarm: cost of flagging a genuine row, >= 0: one number, or ``[samples]``.

    Returns: scalar >= 0 in the currency of the costs; NaN if a traced argument is.

    Raises: ValueError if the lengths differ or are 0, if concrete labels are not 0 and 1, scores or thresholds are NaN,
      or costs are negative or not finite.
    """
    positive, (flagged, has_nan) = as_labels(y_true), _flagged(y_score, threshold)
    check_lengths(y_true=positive, y_score=flagged)
    missed_fraud, false_alarm = _as_cost("missed_fraud", missed_fraud), _as_cost("false_alarm", false_alarm)
    for name, cost in (("missed_fraud", missed_fraud), ("false_alarm", false_alarm)):
        if cost.ndim:
            check_lengths(**{"y_true": positive, name: cost})
    row_costs = jnp.where(positive & ~flagged, missed_fraud, 0.0) + jnp.where(~positive & flagged, false_alarm, 0.0)
    total = tree_sum(row_costs)
    return jnp.where(has_nan, jnp.nan, total / positive.shape[0])
