"""Decisions of finished models: every number of the table is what the public functions give on the same rows."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from fedjax_fraud import banks, calibration, decisions, devices, evaluate, grid, logits, metrics, partition, score
from fedjax_fraud.types import Model, Transactions

NUM_BANKS, WIDTH, NUM_TEST = 3, 2, 90
POLICY = evaluate.Policy(budgets=(0.05, 0.2), alerts_per_day=6.0, transfer_budget=0.1)


def _init(key):
    return {"w": jax.random.normal(key, (WIDTH,))}


LINEAR = Model(_init, lambda params, x: x @ params["w"])


def eighths(values):
    return (np.round(8 * values) / 8).astype(np.float32)


def table(num_rows, seed):
    rng = np.random.default_rng(seed)
    # Eighths, as the weights: logits are exact in every order of operations, and some are tied.
    features = eighths(rng.normal(size=(num_rows, WIDTH)))
    labels = (rng.random(num_rows) < 1 / (1 + np.exp(1 - features[:, 0]))).astype(np.int32)
    return Transactions(
        features,
        labels,
        ("a", "b"),
        amount=rng.lognormal(3, 1, num_rows),
        time=rng.integers(0, 72, num_rows),
        hours_per_unit=1.0,
    )


TRAIN, TEST = table(60, 0), table(NUM_TEST, 1)
DAYS = (TEST.time.max() - TEST.time.min() + 1) / 24
GRID = grid.make_grid(
    TRAIN,
    TEST,
    algorithms=["fedavg"],
    alphas=[0.5, 2.0],
    seeds=[4, 5],
    num_clients=NUM_BANKS,
    client_lrs=[0.1],
    mus=[0.0],
    num_epochs=[1],
    partition_kind="labels",
    partition_feature="amount",
    baselines=True,
)
FEDERATIONS = GRID.federations + GRID.centralised
WEIGHTS = eighths(np.random.default_rng(2).normal(1, 1, size=(len(FEDERATIONS), WIDTH)))


def run(test=TEST, policy=POLICY, weights=WEIGHTS):
    test_set = score.make_test_set(test.features, test.labels)
    jobs = banks.make_jobs(GRID, FEDERATIONS, test_set)
    mesh = devices.settings_mesh(jax.devices()[:1])
    rules = evaluate.make_rules(policy, test, test_set)
    features = jnp.asarray(test_set.features)
    of_models = logits.lower_logits(LINEAR, [len(weights)], test_set, features, mesh).compile()
    return evaluate.decision_table(jobs, of_models({"w": weights}), test_set, rules), rules


@pytest.fixture(scope="module", autouse=True)
def small_chunks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(score, "ROWS_PER_CHUNK", 16)
        yield


@pytest.fixture(scope="module")
def made(small_chunks):
    return run()


def owner_of(row):
    return partition.client_of(GRID.owners[row.alpha, row.seed].test)


def rows_of(row):
    """Labels, scores, probabilities and amounts of the rows that a line of the table is about."""
    mine = np.ones(NUM_TEST, bool) if row.client == evaluate.POOLED else owner_of(row) == row.client
    logits = TEST.features @ WEIGHTS[row.setting]
    prob = 1 / (1 + np.exp(-logits))
    return TEST.labels[mine], logits[mine], prob[mine], TEST.amount[mine]


def some(lines):
    """Those of a federated and of a centralised setting: every number of rows is another program."""
    return lines[lines.setting.isin([1, 4])].head(8).itertuples()


def check(actual, expected):
    np.testing.assert_allclose(float(actual), float(expected), rtol=2e-4, atol=1e-6)


def test_there_is_a_line_for_every_setting_and_bank_and_one_for_all_banks(made):
    lines, _ = made
    assert len(lines) == (4 + 2 * 2) * (1 + NUM_BANKS)
    assert lines.client.tolist() == [-1, 0, 1, 2] * 8
    assert not lines.duplicated(["setting", "alpha", "client"]).any()
    pooled = lines[lines.client == -1]
    assert set(pooled.num_test) == {NUM_TEST} and set(pooled.num_test_positives) == {TEST.labels.sum()}
    sums = lines[lines.client >= 0].groupby(["setting", "alpha"])[["num_test", "num_test_positives"]].sum()
    assert set(sums.num_test) == {NUM_TEST} and set(sums.num_test_positives) == {TEST.labels.sum()}


def test_budgets_are_those_of_the_metrics_on_the_same_rows(made):
    lines, rules = made
    assert rules.names == ("at_0.05", "at_0.2", "per_day")
    check(rules.budgets[2], 6 * DAYS / NUM_TEST)
    for line in some(lines):
        labels, scores, _, amount = rows_of(line)
        if len(labels) == 0:
            continue
        for name, budget in zip(rules.names, rules.budgets.tolist(), strict=True):
            got = {kind: lines.at[line.Index, f"{kind}_{name}"] for kind in ("recall", "precision", "value_recall")}
            check(got["recall"], metrics.recall_at_budget(labels, scores, budget=budget))
            check(got["precision"], metrics.precision_at_budget(labels, scores, budget=budget))
            check(got["value_recall"], metrics.value_recall_at_budget(labels, scores, amount, budget=budget))


def test_brier_and_cost_are_those_of_the_public_functions(made):
    lines, rules = made
    check(rules.false_alarm, TEST.amount.mean() / 100)
    for line in some(lines):
        labels, _, prob, amount = rows_of(line)
        if len(labels) == 0:
            assert math.isnan(line.brier) and math.isnan(line.cost)
            continue
        check(line.brier, metrics.brier_score_loss(labels, prob))
        costs = dict(missed_fraud=amount, false_alarm=rules.false_alarm)
        threshold = decisions.cost_threshold(**costs)
        check(line.cost, decisions.cost_weighted_loss(labels, prob, threshold=threshold, **costs))
        check(line.cost_without_alerts, decisions.cost_weighted_loss(labels, prob, threshold=np.inf, **costs))


def test_calibration_is_that_of_all_rows_together(made):
    lines, _ = made
    assert lines[lines.client >= 0].filter(regex="^ece|^bin_").isna().all(axis=None)
    for line in lines[lines.client == -1].itertuples():
        labels, _, prob, _ = rows_of(line)
        check(line.ece, calibration.expected_calibration_error(labels, prob))
        check(line.ece_equal_mass, calibration.expected_calibration_error(labels, prob, strategy="quantile"))
        curve = calibration.reliability_curve(labels, prob, strategy="quantile")
        for name, values in zip(("count", "probability", "rate"), curve, strict=True):
            got = lines.loc[line.Index, [f"bin_{name}_{b}" for b in range(evaluate.NUM_BINS)]].astype(float)
            np.testing.assert_allclose(got, values, rtol=1e-4)


def test_the_largest_banks_threshold_is_used_at_every_bank(made):
    lines, _ = made
    for line in lines.itertuples():
        owner, logits = owner_of(line), TEST.features @ WEIGHTS[line.setting]
        source = np.bincount(owner, minlength=NUM_BANKS).argmax()
        assert line.transfer_from == source
        threshold = decisions.threshold_at_budget(logits[owner == source], budget=POLICY.transfer_budget)
        labels, scores, _, _ = rows_of(line)
        if len(labels) == 0:
            assert math.isnan(line.transfer_share)
            continue
        check(line.transfer_share, decisions.alert_share(scores, threshold=threshold))
        check(line.transfer_recall, decisions.recall_at_threshold(labels, scores, threshold=threshold))
        assert line.client != source or line.transfer_share <= POLICY.transfer_budget


@pytest.mark.parametrize("num_models", [1, 2])
def test_groups_of_models_give_the_same_table(made, num_models, monkeypatch):
    """Five models do not fill three groups of two."""
    monkeypatch.setattr(logits, "LOGITS_BYTES", num_models * 4 * 96)
    pd.testing.assert_frame_equal(run()[0], made[0], check_exact=True)


def test_a_model_that_is_lost_has_counts_and_no_measures():
    weights = WEIGHTS.copy()
    weights[1] = np.nan
    lines, _ = run(weights=weights)
    lost = lines[lines.setting == 1]
    measures = lost.filter(regex="^brier|^cost$|^recall|^precision|^value|^transfer_[sr]|^ece|^bin_[pr]")
    assert measures.isna().all(axis=None) and (lost.num_test.sum() == 2 * NUM_TEST)
    assert lines[lines.setting == 0].brier.notna().any()


def test_without_amounts_and_time_there_is_no_money_recalled_and_no_daily_budget():
    lines, rules = run(test=TEST._replace(amount=None, time=None))
    assert rules.names == ("at_0.05", "at_0.2") and not lines.filter(like="value_recall").size
    assert rules.false_alarm == 1.0 and set(rules.missed_fraud.tolist()) == {100.0}
    assert rules.record()["missed_fraud"] == "a number" and rules.record()["alerts_per_day"] is None
    assert rules.record()["defaults"] == ["false_alarm", "missed_fraud"]


def test_test_rows_without_fraud_have_no_recall_and_no_precision():
    lines, _ = run(test=TEST._replace(labels=np.zeros(NUM_TEST, np.int32)))
    assert lines.filter(regex="^recall|^value").isna().all(axis=None)
    assert (lines[lines.client == -1].filter(regex="^precision") == 0).all(axis=None)
    assert (lines[lines.client == -1].cost_without_alerts == 0).all()


def test_a_time_column_of_unknown_unit_gives_no_daily_budget_unless_the_unit_is_named():
    test_set = score.make_test_set(TEST.features, TEST.labels)
    days = TEST._replace(time=TEST.time // 24, hours_per_unit=24.0)
    num_days = np.ptp(days.time) + 1
    check(evaluate.make_rules(POLICY, days, test_set).budgets[-1], 6 * num_days / NUM_TEST)
    seconds = TEST._replace(time=1.7e9 + 3600.0 * TEST.time, hours_per_unit=None)
    assert "per_day" not in evaluate.make_rules(POLICY, seconds, test_set).names
    named = evaluate.make_rules(POLICY._replace(hours_per_unit=1 / 3600), seconds, test_set)
    check(named.budgets[-1], 6 * DAYS / NUM_TEST)
    assert "per_day" not in evaluate.make_rules(POLICY._replace(alerts_per_day=None), TEST, test_set).names


def test_fixed_costs_replace_amounts():
    test_set = score.make_test_set(TEST.features, TEST.labels)
    rules = evaluate.make_rules(POLICY._replace(missed_fraud=7.0, false_alarm=2.0), TEST, test_set)
    assert set(rules.missed_fraud.tolist()) == {7.0} and rules.false_alarm == 2.0
    assert rules.record()["mean_missed_fraud"] == 7.0 and rules.record()["defaults"] == []
    rules = evaluate.make_rules(POLICY._replace(missed_fraud=None, false_alarm=2.0), TEST, test_set)
    assert rules.record()["defaults"] == ["missed_fraud"]


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(budgets=()), "`budgets` must name at least one value"),
        (dict(budgets=(0.1, 1.5)), "`budgets` must be in .0, 1., got 1.5"),
        (dict(budgets=(0.0,)), "`budgets`"),
        (dict(transfer_budget=2.0), "`transfer_budget` must be in"),
        (dict(alerts_per_day=0), "`alerts_per_day`"),
        (dict(false_alarm=-1.0), "`false_alarm`"),
        (dict(missed_fraud=float("nan")), "`missed_fraud`"),
        (dict(hours_per_unit=0.0), "`hours_per_unit`"),
    ],
)
def test_a_policy_out_of_range_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        evaluate.check_policy(POLICY._replace(**changes))
    assert "\n" not in str(caught.value)
