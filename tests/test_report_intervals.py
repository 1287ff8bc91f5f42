"""Intervals: scipy as the oracle, hand-worked values, and no bound where no score lies."""

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from fedjax_fraud.report import intervals, tables
from fedjax_fraud.report.intervals import NOT_NEGATIVE, SHARE
from tests.test_report import fake_result

NAN = float("nan")


def test_interval_is_scipys_t_interval():
    values = np.random.default_rng(1).normal(0.3, 0.05, 10)
    low, high = scipy.stats.t.interval(0.95, 9, loc=values.mean(), scale=scipy.stats.sem(values))
    found = intervals.mean_interval(values)
    np.testing.assert_allclose([found.mean, found.low, found.high], [values.mean(), low, high], rtol=1e-12)
    assert (found.n, found.num_dropped) == (10, 0)


def test_interval_of_one_two_three_is_worked_by_hand():
    found = intervals.mean_interval([1.0, 2.0, 3.0])  # t(0.975, 2) = 4.302653, s = 1, half width 4.302653 / sqrt(3)
    np.testing.assert_allclose(found[:3], [2, 2 - 2.484138, 2 + 2.484138], rtol=1e-6)


def test_interval_of_one_value_has_no_bounds():
    found = intervals.mean_interval([0.25])
    assert found.mean == 0.25 and np.isnan(found.low) and np.isnan(found.high) and found.n == 1


def test_interval_drops_and_counts_what_is_not_finite():
    found = intervals.mean_interval([0.2, NAN, 0.4, np.inf])
    assert found.mean == pytest.approx(0.3) and (found.n, found.num_dropped) == (2, 2)


@pytest.mark.parametrize("values", [[], [NAN, NAN]])
def test_interval_of_nothing_is_undefined_and_not_zero(values):
    found = intervals.mean_interval(values)
    assert np.isnan(found.mean) and found.n == 0 and found.num_dropped == len(values)


@pytest.mark.parametrize(
    ("values", "within", "wanted"),
    [
        ([0.0, 0.0, 0.3], SHARE, (0.0, 0.530265)),
        ([0.9, 1.0], SHARE, (0.314690, 1.0)),
        ([0.0, 4.0], NOT_NEGATIVE, (0.0, 27.412409)),
    ],
)
def test_interval_ends_where_scores_end(values, within, wanted):
    whole, cut = intervals.mean_interval(values), intervals.mean_interval(values, within)
    np.testing.assert_allclose((max(whole.low, within[0]), min(whole.high, within[1])), (cut.low, cut.high))
    np.testing.assert_allclose((cut.low, cut.high), wanted, atol=5e-3)
    assert cut.mean == whole.mean and cut.n == whole.n


def test_intervals_of_groups_are_those_of_each_group():
    rounds = fake_result(num_seeds=3).rounds
    within = {"average_precision": SHARE, "log_loss": NOT_NEGATIVE}
    table = intervals.mean_intervals(rounds, ["algorithm", "alpha", "round"], within)
    for row in table.to_dict("records"):
        same = (rounds[["algorithm", "round"]] == [row["algorithm"], row["round"]]).all(axis=1)
        group = rounds[same & ((rounds["alpha"] == row["alpha"]) | (np.isnan(row["alpha"]) & rounds["alpha"].isna()))]
        for name, ends in within.items():
            wanted = intervals.mean_interval(group[name], ends)
            np.testing.assert_allclose([row[name], row[f"{name}_low"], row[f"{name}_high"]], wanted[:3], rtol=1e-12)


def test_every_interval_of_a_score_in_a_report_lies_where_scores_lie():
    rounds = fake_result(num_seeds=2).rounds
    rounds["average_precision"] = rounds["seed"] * 0.9
    for table in (tables.summarise(rounds), tables.curves(tables.best_settings(rounds))):
        assert (table["average_precision_low"] == 0).all() and (table["average_precision_high"] == 1).all()
        assert isinstance(table, pd.DataFrame) and len(table)
