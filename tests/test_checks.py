"""What is refused, in one line that names the argument, what came, and the remedy."""

import numpy as np
import pytest

from fedjax_fraud import checks


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), 1e39, 1e-60, "abc", True, None])
def test_a_rate_that_float32_cannot_hold_above_zero_is_refused(value):
    with pytest.raises(ValueError, match=r"^`client_lr` must be a finite number above 0 within float32, got .*\. Pass"):
        checks.check_numbers("client_lr", [value])


def test_zero_is_allowed_where_it_makes_sense():
    checks.check_numbers("mu", [0, 0.01], positive=False)


def test_a_feature_that_overflows_float32_is_refused_like_infinity():
    features = np.array([[1.0], [1e300], [np.nan]])
    with pytest.raises(ValueError, match=r"NaN or infinity in 2 rows \(first: row 1\)"):
        checks.check_rows("train", features, np.array([0, 1, 0]))


def test_a_wrong_label_is_shown_as_it_is():
    with pytest.raises(ValueError, match=r"`train.labels` must be 0 or 1, got 2\. Map"):
        checks.check_rows("train", np.zeros((2, 1)), np.array([0, 2], np.int32))


@pytest.mark.parametrize("values", [[], [0.1, 0.1]])
def test_an_empty_list_and_a_repeated_value_are_refused(values):
    with pytest.raises(ValueError, match="`alphas` must name"):
        checks.check_distinct("alphas", values)
