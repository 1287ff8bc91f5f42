"""What a bank would decide with one model, measured on the host: NumPy only, exact counts, sums in 64 bits.

Every number is what the functions of `metrics`, `decisions` and `calibration` give on the same rows. Those are for
compiled code and for one score at a time; compiling all of them takes longer than the work for a hundred models here.
The scores are sorted by value only, once all together and once within each bank: the place of a fraud among them says
how many rows are above it, and how many are tied with it.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np

ROUNDING = 2.0**-22
"""A whole number of alerts that rounding to float32 has missed by this share is still that number."""

NUM_BINS = 10


class Rules(NamedTuple):
    """A policy for given test rows.

    Attributes:
      names: ``[budgets]``, of columns: "at_0.001", ..., "per_day".
      budgets: ``[budgets]`` shares of the rows.
      transfer_budget: a share of the rows of the bank that chooses.
      missed_fraud: ``[samples]`` float32, positives first.
      false_alarm: a number.
      amount: ``[samples]`` float32, positives first, or None.
      alerts_per_day: of the budget "per_day", where there is one.
      defaults: which of "false_alarm" and "missed_fraud" are conventions, because nobody gave a figure.
    """

    names: tuple[str, ...]
    budgets: np.ndarray
    transfer_budget: float
    missed_fraud: np.ndarray
    false_alarm: float
    amount: np.ndarray | None
    alerts_per_day: float | None = None
    defaults: tuple[str, ...] = ()

    def record(self) -> dict:
        """What a reader of the table needs to know, ready for JSON."""
        return dict(
            budgets=dict(zip(self.names, self.budgets.tolist(), strict=True)),
            alerts_per_day=self.alerts_per_day,
            transfer_budget=self.transfer_budget,
            false_alarm=self.false_alarm,
            mean_missed_fraud=float(self.missed_fraud.mean(dtype=np.float64)) if self.missed_fraud.size else math.nan,
            missed_fraud="amount" if self.amount is not None and self.missed_fraud is self.amount else "a number",
            defaults=list(self.defaults),
        )


class Rows(NamedTuple):
    """The test rows, positives first, divided among banks. ``groups``: all rows, then each bank's.

    Attributes:
      owner: ``[samples]``, the bank of each row.
      num_rows, num_positives: ``[groups]``.
      largest: the bank with the most rows, the first of several.
    """

    owner: np.ndarray
    num_rows: np.ndarray
    num_positives: np.ndarray
    largest: int


class Measures(NamedTuple):
    """Of one model, or stacked over jobs. ``groups``: all rows, then each bank's.

    Attributes:
      brier, cost, cost_without_alerts: ``[groups]``.
      recall, precision, value_recall: ``[budgets, groups]``.
      transfer_share, transfer_recall: ``[groups]``, at the threshold of the largest bank.
      ece, ece_equal_mass: scalars, over all rows.
      bin_count, bin_probability, bin_rate: ``[bins]``, of all rows, bins of equal mass.
    """

    brier: np.ndarray
    cost: np.ndarray
    cost_without_alerts: np.ndarray
    recall: np.ndarray
    precision: np.ndarray
    value_recall: np.ndarray
    transfer_share: np.ndarray
    transfer_recall: np.ndarray
    ece: np.ndarray
    ece_equal_mass: np.ndarray
    bin_count: np.ndarray
    bin_probability: np.ndarray
    bin_rate: np.ndarray


def divide(owner: np.ndarray, num_positives: int, num_banks: int) -> Rows:
    """Counts the rows and the positives of each bank."""
    num_rows = _sums(owner, None, num_banks)
    return Rows(owner, num_rows, _sums(owner[:num_positives], None, num_banks), int(num_rows[1:].argmax()))


def measure(logits: np.ndarray, rows: Rows, rules: Rules) -> Measures:
    """Everything about one model.

    Args:
      logits: ``[samples]`` float32, positives first.
      rows: whose they are.
      rules: what may be flagged, and what mistakes cost.

    Returns: `Measures`, NaN where undefined. If a logit is NaN, all are but ``cost_without_alerts`` and the counts,
      which are then those of a constant score.
    """
    lost = bool(np.isnan(logits).any())
    with np.errstate(all="ignore"):  # Shares of nothing are NaN, and probabilities reach 0.
        measures = _measure(np.zeros_like(logits) if lost else logits, rows, rules)
    if not lost:
        return measures
    known = dict(cost_without_alerts=measures.cost_without_alerts, bin_count=measures.bin_count)
    return Measures(*(np.full(np.shape(values), np.nan) for values in measures))._replace(**known)


def _measure(logits: np.ndarray, rows: Rows, rules: Rules) -> Measures:
    """`measure`, where there is no NaN."""
    prob = 1 / (1 + np.exp(-logits.astype(np.float64)))
    brier, cost, cost_without_alerts = mean_losses(prob, rows, rules)
    key = order_key(logits)
    bank_key = _by_bank(rows.owner, key)
    sorted_bank_key = np.sort(bank_key)
    num_positives = rows.num_positives[0]
    recall, precision, value_recall = at_budgets(key, bank_key, sorted_bank_key, rows, rules)
    transfer_share, transfer_recall = transferred(key, sorted_bank_key, rows, rules.transfer_budget)
    frauds, prob = prob[:num_positives], np.sort(prob)
    equal_width = curve(prob, frauds, equal_width_edges(NUM_BINS))
    equal_mass = curve(prob, frauds, prob[equal_mass_places(len(prob), NUM_BINS)])
    return Measures(
        brier=brier,
        cost=cost,
        cost_without_alerts=cost_without_alerts,
        recall=recall,
        precision=precision,
        value_recall=value_recall,
        transfer_share=transfer_share,
        transfer_recall=transfer_recall,
        ece=calibration_error(*equal_width),
        ece_equal_mass=calibration_error(*equal_mass),
        **dict(zip(("bin_count", "bin_probability", "bin_rate"), equal_mass, strict=True)),
    )


def _sums(owner: np.ndarray, values: np.ndarray | None, num_banks: int) -> np.ndarray:
    """``[groups]``: sums (counts, of None) over all rows, then over each bank's."""
    each = np.bincount(owner, values, num_banks)
    return np.concatenate([each.sum(keepdims=True), each])


# ---- order ------------------------------------------------------------------------------------------------------


def order_key(scores: np.ndarray) -> np.ndarray:
    """`metrics.order_key` of float32 without NaN: unsigned integers in the order of the scores."""
    bits = (scores + np.float32(0)).view(np.uint32)  # -0.0 + 0.0 is 0.0
    negative = (bits.view(np.int32) >> 31).view(np.uint32)  # all bits, or none
    return bits ^ (negative | np.uint32(1 << 31))


def _by_bank(bank: np.ndarray, key: np.ndarray | int) -> np.ndarray:
    """Integers in the order of bank, then key; a key may be 2^32, above all."""
    return (bank.astype(np.uint64) << np.uint64(32)) + np.uint64(key)


def _around(sorted_key: np.ndarray, key: np.ndarray, end: np.ndarray | int) -> np.ndarray:
    """Rows above each key and tied with it, itself among them; its own bank's rows end at ``end``."""
    first, stop = np.searchsorted(sorted_key, key), np.searchsorted(sorted_key, key, side="right")
    return np.stack([end - stop, stop - first])


# ---- scores of banks --------------------------------------------------------------------------------------------


def bank_scores(logits: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log loss, average precision and ROC-AUC of one model within each bank's own rows: ``[banks]`` each.

    A bank whose rows have one class has no ranking scores: both are NaN, although the average precision of a bank with
    nothing but fraud would be 1. If a logit is NaN, all are.

    Args:
      logits: ``[samples]`` float32, positives first.
      rows: whose they are.
    """
    num_banks = len(rows.num_rows) - 1
    if np.isnan(logits).any():
        return tuple(np.full((3, num_banks), np.nan))
    with np.errstate(all="ignore"):  # Shares of nothing are NaN.
        ranking = _ranking_by_bank(order_key(logits), rows)
        margin = logits.astype(np.float64)
        margin[: rows.num_positives[0]] *= -1
        losses = np.bincount(rows.owner, np.logaddexp(0, margin), num_banks) / rows.num_rows[1:]
    return losses, *ranking


def _ranking_by_bank(key: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Average precision and ROC-AUC of each bank, from the places of its frauds among its rows and its frauds."""
    num_rows, num_positives = rows.num_rows[1:], rows.num_positives[1:]
    owner = rows.owner[: rows.num_positives[0]]
    bank_key = _by_bank(rows.owner, key)
    frauds = bank_key[: len(owner)]
    above, tied = _around(np.sort(bank_key), frauds, np.cumsum(num_rows)[owner])
    fraud_above, fraud_tied = _around(np.sort(frauds), frauds, np.cumsum(num_positives)[owner])
    precision = (fraud_above + fraud_tied) / (above + tied)
    num_negatives = (num_rows - num_positives)[owner]
    negative_above, negative_tied = above - fraud_above, tied - fraud_tied
    won = (num_negatives - negative_above - negative_tied / 2) / num_negatives
    average_precision, roc_auc = (
        np.bincount(owner, values, len(num_rows)) / num_positives for values in (precision, won)
    )
    return np.where(np.isnan(roc_auc), np.nan, average_precision), roc_auc


# ---- alerts -----------------------------------------------------------------------------------------------------


def at_budgets(
    key: np.ndarray, bank_key: np.ndarray, sorted_bank_key: np.ndarray, rows: Rows, rules: Rules
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Recall, precision, recall of money ``[budgets, groups]``, flagging the highest scores; ties count in part."""
    num, num_groups = rows.num_positives[0], len(rows.num_rows)
    owner = rows.owner[:num]
    end = np.cumsum(rows.num_rows[1:])[owner]
    # The frauds twice: among all rows, and within their bank.
    group = np.concatenate([np.zeros_like(owner), 1 + owner])
    all_key = np.sort(key)
    places = (_around(all_key, key[:num], len(key)), _around(sorted_bank_key, bank_key[:num], end))
    above, tied = np.concatenate(places, axis=1)
    amount = np.full(2 * num, np.nan) if rules.amount is None else np.tile(rules.amount[:num].astype(np.float64), 2)
    allowed = rules.budgets[:, None] * rows.num_rows
    flagged = [np.clip((alerts[group] - above) / tied, 0, 1) for alerts in allowed]
    caught = np.stack([np.bincount(group, share, num_groups) for share in flagged])
    value = np.stack([np.bincount(group, share * amount, num_groups) for share in flagged])
    return caught / rows.num_positives, caught / allowed, value / np.bincount(group, amount, num_groups)


def transferred(
    key: np.ndarray, sorted_bank_key: np.ndarray, rows: Rows, budget: float
) -> tuple[np.ndarray, np.ndarray]:
    """Share of the rows and of the frauds ``[groups]`` that the largest bank's threshold flags.

    It is the lowest that flags no more of that bank's rows than the budget allows, see `decisions.threshold_at_budget`.
    """
    end = np.cumsum(rows.num_rows[1:])
    own = sorted_bank_key[end[rows.largest] - rows.num_rows[1 + rows.largest] : end[rows.largest]]
    num_left = len(own) - whole_alerts(budget * len(own))
    first = np.searchsorted(own, own[num_left - 1], side="right") if num_left > 0 else 0
    threshold = int(own[first]) % (1 << 32) if first < len(own) else 1 << 32
    banks = np.arange(len(end))
    flagged = end - np.searchsorted(sorted_bank_key, _by_bank(banks, threshold))
    num_positives = rows.num_positives[0]
    caught = _sums(rows.owner[:num_positives], key[:num_positives] >= threshold, len(end))
    return np.concatenate([flagged.sum(keepdims=True), flagged]) / rows.num_rows, caught / rows.num_positives


def whole_alerts(num_alerts: float) -> int:
    """The whole alerts in a number of alerts, forgiving what is rounded off."""
    return math.floor(num_alerts * (1 + ROUNDING))


# ---- probabilities ----------------------------------------------------------------------------------------------


def mean_losses(prob: np.ndarray, rows: Rows, rules: Rules) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Brier score, cost of flagging where that is cheaper, and of flagging nothing, ``[groups]``.

    The rule is `decisions.cost_threshold`, the cost `decisions.cost_weighted_loss`.
    """
    num, num_banks = rows.num_positives[0], len(rows.num_rows) - 1
    error = prob.copy()
    error[:num] -= 1
    missed = rules.missed_fraud.astype(np.float64)
    cheaper = prob >= rules.false_alarm / (rules.false_alarm + missed)
    row_costs = np.where(cheaper, rules.false_alarm, 0.0)
    row_costs[:num] = np.where(cheaper[:num], 0.0, missed[:num])
    without_alerts = _sums(rows.owner[:num], missed[:num], num_banks)
    brier, cost = (_sums(rows.owner, values, num_banks) for values in (np.square(error), row_costs))
    return brier / rows.num_rows, cost / rows.num_rows, without_alerts / rows.num_rows


def equal_width_edges(num_bins: int) -> np.ndarray:
    """The inner edges of bins of equal width; an edge belongs to the bin below it."""
    return np.linspace(0, 1, num_bins + 1)[1:-1]


def equal_mass_places(num_rows: int, num_bins: int) -> np.ndarray:
    """Which of the sorted rows are the inner edges of bins of equal mass.

    An interpolated quantile at place q of the sorted rows has the same rows below it as the row at floor(q): no value
    lies between. So the edges are rows, found without rounding.
    """
    return np.array([k * (num_rows - 1) // num_bins for k in range(1, num_bins)], np.int64)


def curve(
    sorted_prob: np.ndarray, positive_prob: np.ndarray, edges: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, mean probability and observed rate of each bin, see `calibration.ReliabilityCurve`."""
    inner = np.searchsorted(sorted_prob, edges, side="right")
    bounds = np.concatenate([[0], inner, [len(sorted_prob)]])
    count = np.diff(bounds)
    total = np.array([sorted_prob[first:end].sum() for first, end in itertools.pairwise(bounds)])
    num_positives = np.bincount(np.searchsorted(edges, positive_prob), minlength=len(count))
    return count, total / count, num_positives / count


def calibration_error(count: np.ndarray, probability: np.ndarray, rate: np.ndarray) -> np.floating:
    """The gap between probability and rate, over bins by their share of the rows; empty bins are skipped."""
    return np.nansum(count * np.abs(probability - rate)) / count.sum()
