"""Measures on the host equal the public functions in JAX on the same rows, ties included."""

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np

from fedjax_fraud import calibration, decisions, measures, metrics
from tests.test_metrics import NUM_ROWS, scores_32, spread_32

# Fixed sizes, so that each function compiles once for each. The last bank has no rows.
SIZES = (17, 12, 11, 0)
NUM_BANKS = len(SIZES)
OWNER = np.repeat(np.arange(NUM_BANKS, dtype=np.int32), SIZES)

close_32 = hnp.arrays(np.float32, NUM_ROWS, elements=st.integers(-12, 12).map(lambda x: x / 4))
logits_32 = st.one_of(scores_32, spread_32, close_32)
owners = st.permutations(range(NUM_ROWS)).map(lambda order: OWNER[np.array(order)])
money = hnp.arrays(np.float32, NUM_ROWS, elements=st.sampled_from([0.0, 1.0, 2.5, 100.0, 1e4]))
budgets = st.one_of(st.floats(1e-3, 1), st.integers(1, NUM_ROWS).map(lambda k: k / NUM_ROWS))
costs = st.sampled_from([0.01, 1.0, 2.5, 300.0])


def measured(logits, owner, num_positives, shares=(0.1, 0.5), transfer=0.2, amount=None, false_alarm=1.0):
    missed = np.full(NUM_ROWS, 100.0, np.float32) if amount is None else amount
    rules = measures.Rules(("a", "b"), np.array(shares), transfer, missed, false_alarm, amount)
    return measures.measure(logits, measures.divide(owner, num_positives, NUM_BANKS), rules)


def groups_of(owner):
    """The rows of each group that has any: all, then each bank's."""
    groups = [np.ones(NUM_ROWS, bool)] + [owner == bank for bank in range(NUM_BANKS)]
    return [(place, mine) for place, mine in enumerate(groups) if mine.any()]


def probability(logits):
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-logits.astype(np.float64)))


def labels_of(num_positives):
    return (np.arange(NUM_ROWS) < num_positives).astype(np.int32)


def check(actual, expected):
    np.testing.assert_allclose(np.float64(actual), np.float64(expected), rtol=2e-5, atol=2e-6)


@hypothesis.given(logits_32)
def test_keys_are_those_of_the_metrics(logits):
    np.testing.assert_array_equal(measures.order_key(logits), np.asarray(metrics.order_key(logits)))


@hypothesis.given(logits_32, owners, st.integers(0, NUM_ROWS), st.tuples(budgets, budgets), money)
def test_alerts_within_a_budget_are_those_of_the_metrics(logits, owner, num_positives, shares, amount):
    labels = labels_of(num_positives)
    got = measured(logits, owner, num_positives, shares=shares, amount=amount)
    for place, mine in groups_of(owner):
        for which, budget in enumerate(shares):
            rows = labels[mine], logits[mine]
            check(got.recall[which, place], metrics.recall_at_budget(*rows, budget=budget))
            check(got.precision[which, place], metrics.precision_at_budget(*rows, budget=budget))
            check(got.value_recall[which, place], metrics.value_recall_at_budget(*rows, amount[mine], budget=budget))


@hypothesis.given(logits_32, owners, st.integers(0, NUM_ROWS), budgets)
def test_the_largest_banks_threshold_is_that_of_decisions(logits, owner, num_positives, budget):
    labels = labels_of(num_positives)
    got = measured(logits, owner, num_positives, transfer=budget)
    threshold = decisions.threshold_at_budget(logits[owner == 0], budget=budget)
    for place, mine in groups_of(owner):
        check(got.transfer_share[place], decisions.alert_share(logits[mine], threshold=threshold))
        recall = decisions.recall_at_threshold(labels[mine], logits[mine], threshold=threshold)
        check(got.transfer_recall[place], recall)


@hypothesis.given(logits_32, owners, st.integers(0, NUM_ROWS), money, costs)
def test_losses_are_those_of_the_public_functions(logits, owner, num_positives, amount, false_alarm):
    labels, prob = labels_of(num_positives), probability(logits)
    got = measured(logits, owner, num_positives, amount=amount, false_alarm=false_alarm)
    for place, mine in groups_of(owner):
        check(got.brier[place], metrics.brier_score_loss(labels[mine], prob[mine]))
        costs = dict(missed_fraud=amount[mine], false_alarm=false_alarm)
        threshold = decisions.cost_threshold(**costs)
        rows = labels[mine], prob[mine]
        check(got.cost[place], decisions.cost_weighted_loss(*rows, threshold=threshold, **costs))
        check(got.cost_without_alerts[place], decisions.cost_weighted_loss(*rows, threshold=np.inf, **costs))


@hypothesis.given(logits_32, owners, st.integers(0, NUM_ROWS))
def test_calibration_is_that_of_the_public_functions(logits, owner, num_positives):
    labels, prob = labels_of(num_positives), probability(logits)
    got = measured(logits, owner, num_positives)
    check(got.ece, calibration.expected_calibration_error(labels, prob))
    check(got.ece_equal_mass, calibration.expected_calibration_error(labels, prob, strategy="quantile"))
    curve = calibration.reliability_curve(labels, prob, strategy="quantile")
    np.testing.assert_array_equal(got.bin_count, curve.count)
    check(got.bin_probability, curve.mean_probability)
    check(got.bin_rate, curve.observed_rate)


def test_a_bank_without_rows_has_no_measures():
    got = measured(np.linspace(-3, 3, NUM_ROWS, dtype=np.float32), OWNER, 9, amount=np.ones(NUM_ROWS, np.float32))
    of_groups = [values for values in got if values.shape[-1:] == (1 + NUM_BANKS,)]
    assert len(of_groups) == 8
    assert all(np.isnan(values[..., -1]).all() for values in of_groups)
    assert all(np.isfinite(values[..., 0]).all() for values in of_groups)


def test_sums_do_not_lose_small_terms_among_many_rows():
    """A million terms of 0.01 are 1 % off if they are added up in 32 bits."""
    num_rows = 1_000_000
    logits = np.full(num_rows, np.log(0.1 / 0.9), np.float32)
    rules = measures.Rules(("a",), np.array([0.1]), 0.1, np.ones(num_rows, np.float32), 1.0, None)
    got = measures.measure(logits, measures.divide(np.zeros(num_rows, np.int32), 1, 1), rules)
    np.testing.assert_allclose(got.brier, 0.01 + (0.81 - 0.01) / num_rows, rtol=1e-6)
