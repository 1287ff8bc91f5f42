"""Calibration: scikit-learn's bins, ties and edges included; empty bins skipped; one class and constants defined."""

import chex
import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from fedjax_fraud import calibration

NUM_ROWS = 41
# Edges of bins in 32 and in 64 bits, which are not the same numbers, and the ends.
EDGES = [k / 10 for k in range(11)] + np.linspace(0, 1, 11).astype(np.float32).tolist() + [0.30000000000000004, 1e-40]
probabilities = st.one_of(
    hnp.arrays(np.float64, NUM_ROWS, elements=st.sampled_from(EDGES)),
    hnp.arrays(np.float64, NUM_ROWS, elements=st.floats(0, 1, width=32, allow_subnormal=False)),
    hnp.arrays(np.float32, NUM_ROWS, elements=st.sampled_from(np.float32(EDGES[:22]).tolist())),
)
compiled_curve = jax.jit(calibration.reliability_curve, static_argnames="strategy")
labels = hnp.arrays(np.int32, NUM_ROWS, elements=st.integers(0, 1)).filter(lambda y: 0 < y.sum() < NUM_ROWS)


@pytest.mark.parametrize("strategy", calibration.STRATEGIES)
@pytest.mark.parametrize("num_bins", [1, 4, 10])
@hypothesis.given(labels, probabilities)
def test_bins_that_are_not_empty_equal_scikit_learns(strategy, num_bins, y_true, y_prob):
    rate, mean = calibration_curve(y_true, y_prob, n_bins=num_bins, strategy=strategy)
    curve = calibration.reliability_curve(y_true, y_prob, num_bins=num_bins, strategy=strategy)
    chex.assert_shape(curve, (num_bins,))
    filled = np.asarray(curve.count) > 0
    assert curve.count.sum() == NUM_ROWS
    np.testing.assert_allclose(curve.observed_rate[filled], rate, atol=1e-6)
    np.testing.assert_allclose(curve.mean_probability[filled], mean, atol=1e-6)
    assert np.isnan(curve.observed_rate[~filled]).all() and np.isnan(curve.mean_probability[~filled]).all()


@pytest.mark.parametrize("strategy", calibration.STRATEGIES)
@hypothesis.given(labels, probabilities)
def test_under_jit_the_bins_are_the_same(strategy, y_true, y_prob):
    y_prob = y_prob.astype(np.float32)
    compiled = compiled_curve(y_true, y_prob, strategy=strategy)
    expected = calibration.reliability_curve(y_true, y_prob, strategy=strategy)
    chex.assert_trees_all_close(compiled, expected, rtol=1e-6, strict=True)


@pytest.mark.parametrize("strategy", calibration.STRATEGIES)
@hypothesis.given(labels, probabilities)
def test_the_error_is_the_mean_gap_by_share_of_rows(strategy, y_true, y_prob):
    curve = calibration.reliability_curve(y_true, y_prob, num_bins=5, strategy=strategy)
    gap = np.abs(np.asarray(curve.mean_probability, float) - np.asarray(curve.observed_rate, float))
    expected = np.nansum(gap * np.asarray(curve.count)) / NUM_ROWS
    actual = calibration.expected_calibration_error(y_true, y_prob, num_bins=5, strategy=strategy)
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    one = calibration.expected_calibration_error(y_true, y_prob, num_bins=1, strategy=strategy)
    np.testing.assert_allclose(one, abs(y_prob.mean(dtype=float) - y_true.mean()), atol=1e-6)


def test_the_error_worked_by_hand():
    # (0, 0.5]: mean 0.2, one fraud of four; (0.5, 1]: mean 0.8, one of one.
    y_true, y_prob = [0, 1, 0, 0, 1], [0.1, 0.2, 0.2, 0.3, 0.8]
    actual = calibration.expected_calibration_error(y_true, y_prob, num_bins=2)
    np.testing.assert_allclose(actual, 4 / 5 * 0.05 + 1 / 5 * 0.2, rtol=1e-5)


@pytest.mark.parametrize("strategy", calibration.STRATEGIES)
def test_a_constant_probability_fills_one_bin_and_is_calibrated_at_the_prevalence(strategy):
    y_true, y_prob = np.arange(100) < 3, np.full(100, 0.03)
    curve = calibration.reliability_curve(y_true, y_prob, strategy=strategy)
    assert sorted(np.asarray(curve.count).tolist()) == [0] * 9 + [100]
    np.testing.assert_allclose(calibration.expected_calibration_error(y_true, y_prob, strategy=strategy), 0, atol=1e-7)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("strategy", calibration.STRATEGIES)
def test_one_class_is_defined(label, strategy):
    y_prob = np.linspace(0, 1, 20)
    curve = calibration.reliability_curve(np.full(20, label), y_prob, strategy=strategy)
    assert set(np.asarray(curve.observed_rate).tolist()) == {float(label)}
    error = calibration.expected_calibration_error(np.full(20, label), y_prob, strategy=strategy)
    np.testing.assert_allclose(error, 0.5, atol=1e-6)


def test_a_single_row_is_legal():
    np.testing.assert_allclose(calibration.expected_calibration_error([1], [0.25], strategy="quantile"), 0.75)


def test_sums_of_many_small_probabilities_do_not_round():
    rng = np.random.default_rng(0)
    y_prob = rng.uniform(0, 2e-3, 3_000_000).astype(np.float32)
    curve = calibration.reliability_curve(rng.random(len(y_prob)) < y_prob, y_prob)
    np.testing.assert_allclose(curve.mean_probability[0], y_prob.mean(dtype=float), rtol=1e-6)


@pytest.mark.parametrize("strategy", calibration.STRATEGIES)
def test_a_traced_nan_makes_the_error_nan(strategy):
    error = jax.jit(lambda y, p: calibration.expected_calibration_error(y, p, strategy=strategy))
    assert np.isnan(error(jnp.array([0, 1]), jnp.array([0.5, jnp.nan])))


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        (([0, 1], [0.5, 1.5]), {}, "`y_prob` must be in .0, 1., got 1.5"),
        (([0, 1], [0.5, float("nan")]), {}, "`y_prob` is NaN in row 1"),
        (([0, 2], [0.5, 0.5]), {}, "`y_true` must be 0"),
        (([0, 1], [0.5]), {}, "one length"),
        (([0, 1], [0.5, 0.5]), dict(num_bins=0), "`num_bins` must be an integer >= 1, got 0"),
        (([0, 1], [0.5, 0.5]), dict(num_bins=2.0), "`num_bins`"),
        (([0, 1], [0.5, 0.5]), dict(strategy="width"), "`strategy` knows uniform, quantile; got 'width'"),
    ],
)
def test_bad_input_raises_with_the_argument_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        calibration.expected_calibration_error(*arguments, **options)
