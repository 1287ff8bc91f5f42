"""Epsilon: never below the exact value where that is known, close to it, and it moves the right way."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from fedjax_fraud import accountant
from fedjax_fraud.accountant import epsilon_of


def exact_gaussian(noise: float, num_steps: int, delta: float) -> float:
    """Composed Gaussian mechanisms are one (Balle and Wang, ICML 2018, theorem 8)."""
    mu = math.sqrt(num_steps) / noise

    def excess(epsilon):
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(excess, 0, 200)


def exact_single_step(noise: float, rate: float, delta: float) -> float:
    """One step of the sampled Gaussian, by numerical integration of both directions."""
    x = np.linspace(-12 * noise, 1 + 12 * noise, 400_001)
    without = norm.pdf(x, 0, noise)
    with_row = (1 - rate) * without + rate * norm.pdf(x, 1, noise)

    def excess(epsilon):
        pairs = ((with_row, without), (without, with_row))
        return max(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), x) for p, q in pairs) - delta

    return brentq(excess, 0, 50)


@pytest.mark.parametrize(("noise", "num_steps"), [(1.0, 1), (4.0, 1), (2.0, 30), (20.0, 500)])
def test_steps_on_all_rows_are_gaussian_mechanisms(noise, num_steps):
    exact = exact_gaussian(noise, num_steps, 1e-6)
    found = epsilon_of(noise, num_examples=60, batch_size=64, num_steps=num_steps, delta=1e-6)
    assert exact <= found <= 1.03 * exact + 0.01


@pytest.mark.parametrize(("noise", "num_examples"), [(0.5, 640), (1.0, 640), (1.0, 100), (3.0, 200)])
def test_one_sampled_step_is_that_of_the_integral(noise, num_examples):
    exact = exact_single_step(noise, 64 / num_examples, 1e-5)
    found = epsilon_of(noise, num_examples, 64, 1, 1e-5)
    assert exact - 1e-6 <= found <= 1.03 * exact + 0.01


def test_more_noise_and_more_rows_cost_less_and_more_steps_cost_more():
    def of(noise=1.0, rows=5000, steps=100, delta=1e-6):
        return epsilon_of(noise, rows, 64, steps, delta)

    assert of(noise=2.0) < of() < of(noise=0.7)
    assert of(rows=20_000) < of() < of(rows=500)
    assert of(steps=10) < of() < of(steps=1000)
    assert of(delta=1e-3) < of() < of(delta=1e-9)


def test_no_noise_is_no_privacy_and_no_work_is_no_loss():
    assert epsilon_of(0.0, 100, 64, 5, 1e-6) == math.inf
    assert epsilon_of(0.0, 0, 64, 5, 1e-6) == 0 and epsilon_of(1.0, 100, 64, 0, 1e-6) == 0


def test_the_table_of_banks_gets_what_each_bank_spends():
    banks = pd.DataFrame(
        {
            "algorithm": ["fedavg", "scaffold", "fedavg", "local_only"],
            **dict(noise_multiplier=[1.0, 1.0, 0.0, 0.0], num_train=[130, 130, 130, 130], num_epochs=[1, 2, 1, 1]),
        }
    )
    found = accountant.with_epsilon(banks, num_rounds=4, batch_size=64, delta=1e-6)["epsilon"]
    assert found[0] == epsilon_of(1.0, 130, 64, 4 * 3, 1e-6) and found[1] == epsilon_of(1.0, 130, 64, 4 * 6, 1e-6)
    assert found[2] == math.inf and np.isnan(found[3])


def test_a_table_without_noise_stays_as_it_is():
    banks = pd.DataFrame({"noise_multiplier": [0.0], "num_train": [10]})
    assert accountant.with_epsilon(banks, 1, 64, 1e-6) is banks


def test_a_missing_accountant_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(accountant.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"fedjax-fraud\[privacy\]"):
        accountant.check_installed()
