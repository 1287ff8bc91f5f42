"""Thresholds: scikit-learn's confusion matrix, budgets that are never exceeded, costs by hand."""

import chex
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from fedjax_fraud import decisions, metrics
from tests.test_metrics import NUM_ROWS, any_scores, scores_32, spread_32, two_classes

compiled_threshold = jax.jit(decisions.threshold_at_budget)
row = st.integers(0, NUM_ROWS - 1)
budgets = st.one_of(st.floats(1e-3, 1), st.integers(1, NUM_ROWS).map(lambda k: k / NUM_ROWS))


def counts(y_true, y_score, threshold):
    """Genuine rows let pass, false alarms, missed and caught frauds, by scikit-learn."""
    return confusion_matrix(y_true, y_score >= threshold, labels=[0, 1]).ravel()


def expected(y_true, y_score, threshold):
    """Share flagged, recall and precision from the confusion matrix."""
    _, false_alarms, missed, caught = counts(y_true, y_score, threshold)
    alerts = false_alarms + caught
    return alerts / len(y_true), caught / (caught + missed), caught / alerts if alerts else np.nan


def at_threshold(y_true, y_score, threshold):
    return (
        decisions.alert_share(y_score, threshold=threshold),
        decisions.recall_at_threshold(y_true, y_score, threshold=threshold),
        decisions.precision_at_threshold(y_true, y_score, threshold=threshold),
    )


# --- at a threshold -------------------------------------------------------------------------------------------------


@hypothesis.given(two_classes, any_scores, row)
def test_shares_at_a_threshold_equal_scikit_learns_confusion_matrix(y_true, y_score, at):
    """The threshold is a score, so that >= and > differ; 64-bit scores too."""
    actual = at_threshold(y_true, y_score, y_score[at])
    np.testing.assert_allclose(actual, expected(y_true, y_score, y_score[at]), rtol=1e-6)


@hypothesis.given(two_classes, st.one_of(scores_32, spread_32), row)
def test_under_jit_the_shares_are_the_same(y_true, y_score, at):
    actual = jax.jit(at_threshold)(y_true, y_score, y_score[at])
    chex.assert_shape(actual, ())
    np.testing.assert_allclose(actual, expected(y_true, y_score, y_score[at]), rtol=1e-6)


def test_a_threshold_above_every_score_flags_nothing_and_has_no_precision():
    share, recall, precision = at_threshold([0, 1], [0.1, 0.2], np.inf)
    assert share == 0 and recall == 0 and np.isnan(precision)


def test_without_fraud_recall_is_undefined_and_precision_is_zero():
    share, recall, precision = at_threshold([0, 0], [0.1, 0.2], 0.2)
    assert share == 0.5 and np.isnan(recall) and precision == 0


def test_each_row_may_have_a_threshold_of_its_own():
    assert decisions.recall_at_threshold([1, 1], [0.5, 0.5], threshold=[0.4, 0.6]) == 0.5


def test_a_traced_nan_makes_the_shares_nan():
    for scores, threshold in (([0.5, jnp.nan], 0.1), ([0.5, 0.6], jnp.nan)):
        assert np.isnan(jax.jit(at_threshold)(jnp.array([0, 1]), jnp.array(scores), threshold)).all()


# --- thresholds from budgets ----------------------------------------------------------------------------------------


def best_count(y_score, budget):
    """The most rows that any threshold flags within the budget."""
    flagged = [np.sum(y_score >= value) for value in np.unique(y_score)]
    return max([count for count in flagged if count <= budget * len(y_score) * (1 + 1e-6)], default=0)


@hypothesis.given(any_scores, budgets)
def test_a_threshold_flags_as_much_as_any_within_the_budget_and_never_more(y_score, budget):
    threshold = decisions.threshold_at_budget(y_score, budget=budget)
    assert np.sum(y_score >= threshold) == best_count(y_score, budget)
    assert np.isinf(threshold) or threshold in y_score


@hypothesis.given(st.one_of(scores_32, spread_32), budgets)
def test_under_jit_the_threshold_is_the_same(y_score, budget):
    traced = compiled_threshold(y_score, budget=budget)
    chex.assert_shape(traced, ())
    assert traced == decisions.threshold_at_budget(y_score, budget=budget)


@pytest.mark.parametrize("num_alerts", [1, 4, 13, NUM_ROWS])
def test_without_ties_recall_at_the_threshold_is_recall_at_the_budget(num_alerts):
    rng = np.random.default_rng(0)
    y_true, y_score = rng.integers(0, 2, NUM_ROWS), rng.permutation(NUM_ROWS) / 7
    budget = num_alerts / NUM_ROWS
    threshold = decisions.threshold_at_budget(y_score, budget=budget)
    _, recall, precision = at_threshold(y_true, y_score, threshold)
    np.testing.assert_allclose(recall, metrics.recall_at_budget(y_true, y_score, budget=budget), rtol=1e-6)
    np.testing.assert_allclose(precision, metrics.precision_at_budget(y_true, y_score, budget=budget), rtol=1e-6)


def test_a_constant_score_flags_nothing_or_everything():
    assert np.isinf(decisions.threshold_at_budget([0.5] * 10, budget=0.9))
    assert decisions.threshold_at_budget([0.5] * 10, budget=1) == 0.5


def test_a_budget_of_less_than_a_row_flags_nothing():
    assert np.isinf(decisions.threshold_at_budget([0.1, 0.2, 0.3], budget=0.3))


def test_a_threshold_keeps_64_bits():
    y_score = np.array([1.0, 1 + 1e-12, 1 + 2e-12])
    threshold = decisions.threshold_at_budget(y_score, budget=1 / 3)
    assert decisions.alert_share(y_score, threshold=threshold) == np.float32(1 / 3)


def test_a_threshold_of_one_bank_spends_another_budget_at_another():
    """The other bank's scores are higher throughout, so it is flooded."""
    threshold = decisions.threshold_at_budget(np.arange(100) / 100, budget=0.05)
    np.testing.assert_allclose(decisions.alert_share(np.arange(100) / 100 + 0.5, threshold=threshold), 0.55)


def test_alerts_per_day_become_a_share_of_the_rows():
    hours = np.random.default_rng(0).permutation(np.repeat(np.arange(100, 196), 25))
    assert decisions.daily_budget(hours, alerts_per_day=3) == pytest.approx(12 / 2400)
    assert decisions.daily_budget(hours + 0.75, alerts_per_day=3) == pytest.approx(12 / 2400)
    assert decisions.daily_budget([5], alerts_per_day=12) == pytest.approx(0.5)
    assert decisions.daily_budget([5, 6], alerts_per_day=1e9) == 1.0


# --- cost -----------------------------------------------------------------------------------------------------------


@hypothesis.given(two_classes, any_scores, row, st.floats(0, 1e3), st.floats(0, 1e3))
def test_the_cost_is_that_of_the_confusion_matrix(y_true, y_score, at, missed_fraud, false_alarm):
    threshold = y_score[at]
    _, false_alarms, missed, _ = counts(y_true, y_score, threshold)
    actual = decisions.cost_weighted_loss(
        y_true, y_score, threshold=threshold, missed_fraud=missed_fraud, false_alarm=false_alarm
    )
    want = (missed * missed_fraud + false_alarms * false_alarm) / NUM_ROWS
    np.testing.assert_allclose(actual, want, rtol=1e-5, atol=1e-30)


def test_a_missed_fraud_may_cost_its_amount():
    y_true, y_score, amount = [1, 1, 0, 0], [0.9, 0.1, 0.8, 0.2], [500, 70, 30, 10]
    cost = dict(missed_fraud=amount, false_alarm=5)
    assert decisions.cost_weighted_loss(y_true, y_score, threshold=0.5, **cost) == (70 + 5) / 4
    assert decisions.cost_weighted_loss(y_true, y_score, threshold=np.inf, **cost) == 570 / 4
    assert decisions.cost_weighted_loss([0, 0, 0, 0], y_score, threshold=np.inf, **cost) == 0


@hypothesis.given(st.floats(0, 1), st.floats(0, 1e6), st.floats(1e-3, 1e3))
def test_the_threshold_of_costs_takes_the_cheaper_decision(prob, missed_fraud, false_alarm):
    flag = prob >= float(decisions.cost_threshold(missed_fraud, false_alarm))
    cost_of_flag, cost_of_pass = (1 - prob) * false_alarm, prob * missed_fraud
    chosen, other = (cost_of_flag, cost_of_pass) if flag else (cost_of_pass, cost_of_flag)
    assert chosen <= other + 1e-5 * (false_alarm + missed_fraud)


def test_costs_and_thresholds_may_be_traced_and_mapped():
    y_true, y_score, amount = jnp.array([1, 0, 1]), jnp.array([0.6, 0.4, 0.1]), jnp.array([10.0, 20.0, 30.0])

    def loss(false_alarm):
        threshold = decisions.cost_threshold(amount, false_alarm)
        return decisions.cost_weighted_loss(
            y_true, y_score, threshold=threshold, missed_fraud=amount, false_alarm=false_alarm
        )

    # Dear false alarms: nothing is flagged. Cheap ones: everything is.
    np.testing.assert_allclose(jax.jit(jax.vmap(loss))(jnp.array([1e3, 1e-3])), [40 / 3, 1e-3 / 3], rtol=1e-5)


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: decisions.threshold_at_budget([0.1], budget=0), "`budget` must be in"),
        (lambda: decisions.threshold_at_budget([0.1], budget=1.5), "`budget` must be in"),
        (lambda: decisions.threshold_at_budget([], budget=0.5), "`y_score` must be .samples."),
        (lambda: decisions.threshold_at_budget([0.1, float("nan")], budget=0.5), "`y_score` is NaN in row 1"),
        (lambda: decisions.daily_budget([1.0, np.inf], alerts_per_day=1), "`time` must be finite"),
        (lambda: decisions.daily_budget([], alerts_per_day=1), "`time`"),
        (
            lambda: decisions.daily_budget([1.0], alerts_per_day=0),
            "`alerts_per_day` must be a finite number > 0, got 0",
        ),
        (lambda: decisions.daily_budget([1.0], alerts_per_day="3"), "`alerts_per_day`"),
        (lambda: decisions.alert_share([0.1], threshold=float("nan")), "`threshold` must be a number"),
        (lambda: decisions.alert_share([0.1], threshold=[0.1, 0.2]), "`threshold` must be a number"),
        (lambda: decisions.recall_at_threshold([0, 1], [0.1], threshold=0.1), "one length"),
        (lambda: decisions.precision_at_threshold([0, 3], [0.1, 0.2], threshold=0.1), "`y_true` must be 0"),
        (lambda: decisions.cost_threshold(-1, 1), "`missed_fraud` must be a finite cost >= 0"),
        (lambda: decisions.cost_threshold(1, 0), "`false_alarm` must be a finite cost > 0"),
        (lambda: decisions.cost_threshold(float("nan"), 1), "`missed_fraud`"),
        (
            lambda: decisions.cost_weighted_loss(
                [0, 1], [0.1, 0.2], threshold=0.1, missed_fraud=[1, 2, 3], false_alarm=1
            ),
            "one length",
        ),
    ],
)
def test_bad_input_raises_with_the_argument_named(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
