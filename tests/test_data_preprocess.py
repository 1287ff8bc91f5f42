"""`split` and `describe_split`: what is fitted where, and what a reader is told."""

import json
import warnings

import chex
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedjax_fraud.data import describe_split, split
from fedjax_fraud.types import Transactions


def table(labels, *, features=None, time=None, **fields):
    """Transactions with the row number as amount, so that rows can be followed."""
    labels = np.asarray(labels, np.int32)
    features = np.arange(labels.size)[:, None] if features is None else np.asarray(features)
    return Transactions(
        features=features.astype(np.float32),
        labels=labels,
        names=tuple(f"x{column}" for column in range(features.shape[1])),
        amount=np.arange(labels.size, dtype=np.float64),
        time=None if time is None else np.asarray(time),
        **fields,
    )


def quiet_split(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return split(*args, **kwargs)


@given(
    st.lists(st.integers(1, 12), min_size=2, max_size=60),
    st.floats(0.05, 0.95),
)
def test_a_time_split_trains_on_the_past_and_parts_no_step(steps, test_fraction):
    times = np.array(steps)
    if np.unique(times).size < 2:
        return
    labels = (times == times.min()).astype(int)
    train, test = quiet_split(table(labels, time=times), "time", test_fraction)
    assert train.time.max() < test.time.min()
    chex.assert_trees_all_equal(np.sort(np.concatenate([train.amount, test.amount])), np.arange(times.size) * 1.0)
    reachable = [np.sum(times >= boundary) for boundary in np.unique(times)[1:]]
    wanted = test_fraction * times.size
    assert abs(test.labels.size - wanted) == min(abs(size - wanted) for size in reachable)


@given(st.integers(2, 60), st.integers(2, 60), st.floats(0.1, 0.9), st.integers(0, 5))
def test_a_random_split_keeps_the_share_of_each_class(num_genuine, num_fraud, test_fraction, seed):
    rows = table([0] * num_genuine + [1] * num_fraud)
    if test_fraction * max(num_genuine, num_fraud) < 0.5:
        return
    train, test = quiet_split(rows, "random", test_fraction, seed)
    assert set(train.amount) | set(test.amount) == set(rows.amount)
    assert not set(train.amount) & set(test.amount)
    for label, count in ((0, num_genuine), (1, num_fraud)):
        assert (train.labels == label).sum() >= 1
        assert abs((test.labels == label).sum() - test_fraction * count) <= max(0.5, test_fraction * count - count + 1)


def test_the_random_split_is_the_same_for_the_same_seed_only():
    rows = table([0, 1] * 50)
    first, again, other = (split(rows, "random", seed=seed)[1].amount for seed in (1, 1, 2))
    chex.assert_trees_all_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_class_with_one_member_stays_in_train():
    with pytest.warns(UserWarning, match="0 positives in test"):
        train, test = split(table([0] * 20 + [1]), "random", 0.5)
    assert (int(train.labels.sum()), int(test.labels.sum())) == (1, 0)


def test_every_per_row_field_is_split_along():
    number = np.arange(10)
    rows = table(
        [0, 1] * 5, time=number, silo=number, accounts={"origin": number, "receiver": number + 5}, rule_alarm=number > 3
    )
    train, test = split(rows, test_fraction=0.3)
    for side in (train, test):
        chex.assert_trees_all_equal(side.silo * 1.0, side.amount)
        chex.assert_trees_all_equal(side.accounts, {"origin": side.silo, "receiver": side.silo + 5})
        chex.assert_trees_all_equal(side.rule_alarm, side.silo > 3)
    chex.assert_trees_all_equal(test.time, np.array([7, 8, 9]))


def test_both_sides_are_on_the_scale_of_the_training_rows():
    values = np.random.default_rng(0).normal(5, 3, (100, 2))
    train, test = split(table([0, 1] * 50, features=values, time=np.arange(100)), test_fraction=0.25)
    mean, deviation = values[:75].mean(axis=0), values[:75].std(axis=0)
    chex.assert_trees_all_close(train.features, ((values[:75] - mean) / deviation).astype(np.float32), atol=1e-5)
    chex.assert_trees_all_close(test.features, ((values[75:] - mean) / deviation).astype(np.float32), atol=1e-5)
    chex.assert_trees_all_close(train.features.std(axis=0), np.ones(2, np.float32), atol=1e-5)


def test_changing_the_test_rows_changes_nothing_in_train():
    """B30."""
    values = np.random.default_rng(1).normal(size=(40, 3))
    train, _ = split(table([0, 1] * 20, features=values, time=np.arange(40)))
    values[32:] = 1e6
    other, _ = split(table([0, 1] * 20, features=values, time=np.arange(40)))
    chex.assert_trees_all_equal(train.features, other.features)


@pytest.mark.parametrize("value", [np.log(1e-5), 0.0, 0.1, 1e7, -3e30])
def test_a_constant_column_becomes_zero_and_stays_finite_in_test(value):
    """B30: 22 training rows of log(1e-5); a last test row that is a million times larger."""
    values = np.full((30, 1), value)
    values[-1] *= 1e6
    train, test = split(table([0, 1] * 15, features=values, time=np.arange(30)), test_fraction=8 / 30)
    chex.assert_trees_all_equal(train.features, np.zeros((22, 1), np.float32))
    chex.assert_trees_all_equal(test.features[:-1], np.zeros((7, 1), np.float32))
    assert np.abs(test.features).max() <= 10


def test_a_column_that_varies_by_rounding_only_is_not_blown_up():
    value = np.float32(np.log(1e-5))
    values = np.full((30, 1), value)
    values[3] = np.nextafter(value, np.float32(0))
    train, _ = split(table([0, 1] * 15, features=values, time=np.arange(30)))
    assert np.abs(train.features).max() < 1e-5


def test_one_indicator_in_many_rows_still_counts_as_varying():
    values = np.zeros((100_000, 1))
    values[7] = 1
    labels = np.arange(100_000) % 2
    train, _ = split(table(labels, features=values, time=np.arange(100_000)))
    chex.assert_trees_all_close(train.features.std(), np.float32(1), rtol=1e-3)


def test_test_values_are_held_within_ten_deviations_or_the_farthest_training_value():
    """B30: a test value 1e6 times larger than any training value."""
    usual = np.random.default_rng(2).normal(size=100)
    rare = np.zeros(100)
    rare[5] = 1
    usual[-1], rare[-1] = 1e6, 1
    values = np.stack([usual, rare], axis=1)
    labels = np.arange(100) % 2
    train, test = split(table(labels, features=values, time=np.arange(100)), test_fraction=0.01)
    assert test.features[0, 0] == 10
    assert test.features[0, 1] == train.features[:, 1].max()


def test_a_time_split_into_a_period_without_fraud_warns_and_counts():
    """B29: 10 steps of 20 rows, fraud in steps 1 to 6 only, test from step 8; one account in steps 2 and 9."""
    time = np.repeat(np.arange(1, 11), 20)
    labels = (np.arange(200) % 20 == 0) & (time <= 6)
    accounts = np.arange(200)
    accounts[time == 9] = np.where(np.arange(20) == 0, accounts[time == 2][0], accounts[time == 9])
    with pytest.warns(UserWarning, match="0 positives in test"):
        train, test = split(table(labels, time=time, accounts={"customer": accounts}), test_fraction=0.3)
    assert (train.time.max(), test.time.min()) == (7, 8)
    described = describe_split(train, test)
    assert described["test"] == {"num_rows": 60, "num_positives": 0, "prevalence": 0.0, "time_range": [8, 10]}
    assert described["account_overlap"]["customer"] == {
        "num_accounts_on_both_sides": 1,
        "share_of_test_rows": pytest.approx(1 / 60),
    }


def test_the_overlap_is_counted_per_role_and_for_any_role():
    accounts = {"origin": np.array([1, 2, 3, 4]), "receiver": np.array([10, 11, 1, 10])}
    train, test = split(table([1, 0, 1, 0], time=[1, 1, 2, 2], accounts=accounts), test_fraction=0.5)
    overlap = describe_split(train, test)["account_overlap"]
    assert overlap["origin"] == {"num_accounts_on_both_sides": 0, "share_of_test_rows": 0.0}
    assert overlap["receiver"] == {"num_accounts_on_both_sides": 2, "share_of_test_rows": 1.0}
    assert overlap["any"] == {"num_accounts_on_both_sides": 2, "share_of_test_rows": 1.0}


def test_the_one_rule_baseline_is_counted_on_the_test_side():
    rule = np.array([True, False, True, False, True, True])
    train, test = split(table([1, 0, 1, 1, 1, 0], time=[1, 1, 2, 2, 2, 2], rule_alarm=rule), test_fraction=0.7)
    assert describe_split(train, test)["one_rule"] == {"recall": 2 / 3, "precision": 2 / 3}


def test_a_baseline_that_does_not_exist_is_none_not_zero():
    train, test = quiet_split(table([1, 0, 0], time=[1, 2, 2], rule_alarm=np.array([True, False, False])))
    assert describe_split(train, test)["one_rule"] == {"recall": None, "precision": None}
    train, test = quiet_split(table([1, 0, 0], time=[1, 2, 2]))
    assert describe_split(train, test)["one_rule"] is None


def test_the_description_is_strict_json():
    number = np.arange(10)
    rows = table([0, 1] * 5, time=number, accounts={"origin": number}, rule_alarm=number > 3)
    described = describe_split(*split(rows))
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    assert described["features"] == ["x0"]
    assert describe_split(*split(table([0, 1] * 5), "random"))["test"]["time_range"] is None


BAD_SPLITS = {
    "by": (lambda: split(table([0, 1]), "date"), r"`by` must be 'time' or 'random', got 'date'"),
    "fraction": (lambda: split(table([0, 1]), "random", 20.0), r"`test_fraction` must be in \(0, 1\), got 20.0"),
    "seed": (lambda: split(table([0, 1]), "random", seed=-1), r"`seed` must be 0 or more, got -1"),
    "one row": (lambda: split(table([1]), "random"), r"at least 2 rows, got 1"),
    "no time": (lambda: split(table([0, 1])), r"no `time`.*by='random'"),
    "one time": (lambda: split(table([0, 1], time=[3, 3])), r"`time` must have two distinct values, got only 3"),
    "NaN time": (lambda: split(table([0, 1], time=[3, np.nan])), r"NaN in `time`"),
    "fraud in test only": (lambda: split(table([0, 0, 1], time=[1, 2, 3])), r"no fraud in the 2 training rows"),
    "nothing for test": (lambda: split(table([0, 1]), "random"), r"`test_fraction` leaves no row of 2 for test"),
    "infinite": (lambda: split(table([0, 1], features=[[1.0, np.inf], [1.0, 2.0]]), "random"), r"feature `x1`"),
}


@pytest.mark.parametrize("case", BAD_SPLITS)
def test_a_split_that_cannot_be_made_says_why_in_one_line(case):
    attempt, message = BAD_SPLITS[case]
    with pytest.raises(ValueError, match=message) as caught:
        attempt()
    assert "\n" not in str(caught.value)
