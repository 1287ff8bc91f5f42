"""How much privacy the noisy local steps cost: epsilon of one row of a bank, at a given delta.

The steps are composed twice, by Rényi divergences (tighter for many steps that cost little) and by distributions of
the privacy loss (tighter for the rest); each is an upper bound, and so is the lower of the two. Google's
``dp-accounting`` computes both.

Reference: Mironov, Talwar and Zhang, Rényi Differential Privacy of the Sampled Gaussian Mechanism, 2019; Koskela, Jälkö
and Honkela, Computing Tight Differential Privacy Guarantees Using FFT, AISTATS 2020.
"""

import functools
import importlib.util
import math

import numpy as np
import pandas as pd

from fedjax_fraud.grid import CENTRALISED, LOCAL_ONLY

# Whole orders alone: those between cost most of the time, and here their sums often do not converge.
_ORDERS = (*range(2, 17), 20, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)
_GRID = 1e-3  # of the losses; rounded up, so that the bound holds


def check_installed() -> None:
    """Raises ValueError, with what to install, if the accountant is not there."""
    if importlib.util.find_spec("dp_accounting") is None:
        raise ValueError(
            "`noise_multiplier` needs the package dp-accounting, to say what epsilon it gives, and it is not "
            "installed. Install it: pip install 'fedjax-fraud[privacy]'."
        )


def epsilon_of(noise_multiplier: float, num_examples: int, batch_size: int, num_steps: int, delta: float) -> float:
    """Epsilon of ``num_steps`` noisy steps, two tables being neighbours if one has a row more.

    Args:
      noise_multiplier: z, the noise's standard deviation over the clipping norm.
      num_examples: rows of the bank; each is in a batch with probability ``batch_size / num_examples``, at most 1.
      batch_size, num_steps: rows of a batch in the mean; steps in all rounds.
      delta: probability with which the bound may fail.

    Returns: an upper bound; 0 for a bank without rows or steps, infinity without noise.

    Example: one step on all rows is the Gaussian mechanism.
      >>> round(epsilon_of(4.0, num_examples=50, batch_size=64, num_steps=1, delta=1e-5), 2)
      0.93
    """
    if num_examples == 0 or num_steps == 0:
        return 0.0
    if noise_multiplier == 0:
        return math.inf
    rate = min(1.0, batch_size / num_examples)
    return _epsilon(float(noise_multiplier), rate, int(num_steps), float(delta))


@functools.lru_cache(maxsize=4096)
def _epsilon(noise_multiplier: float, rate: float, num_steps: int, delta: float) -> float:
    """The lower of two upper bounds. Banks of a size cost the same, and a sweep has many of them."""
    import dp_accounting
    from dp_accounting import pld, rdp

    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise_multiplier))
    bounds = []
    for accountant in (rdp.RdpAccountant(orders=_ORDERS), pld.PLDAccountant(value_discretization_interval=_GRID)):
        accountant.compose(dp_accounting.SelfComposedDpEvent(step, num_steps))
        bounds.append(float(accountant.get_epsilon(delta)))
    return min(bounds)


def with_epsilon(banks: pd.DataFrame, num_rounds: int, batch_size: int, delta: float) -> pd.DataFrame:
    """The table of banks with a column ``epsilon``, if any of its settings is private.

    Args:
      banks: a row per setting and bank, with ``noise_multiplier``, ``clip_norm``, ``num_train`` and ``num_epochs``.
      num_rounds: the bank is taken to do all its work in each of them: with partial participation, stragglers or
        drop-outs it spends less.

    Returns: the table; epsilon is infinite for settings without noise, NaN for baselines, which are not private.
    """
    if (banks["noise_multiplier"] == 0).all():
        return banks
    steps = num_rounds * banks["num_epochs"] * -(-banks["num_train"] // batch_size)
    spent = [
        epsilon_of(noise, rows, batch_size, num_steps, delta)
        for noise, rows, num_steps in zip(banks["noise_multiplier"], banks["num_train"], steps, strict=True)
    ]
    baseline = banks["algorithm"].isin([CENTRALISED, LOCAL_ONLY])
    return banks.assign(epsilon=np.where(baseline, np.nan, spent))


def record(delta: float) -> dict:
    """What the manifest says of the accounting."""
    return dict(
        delta=delta,
        protects="one training row of one bank, present or absent",
        against="whoever sees all messages and the final model",
        public="the banks' numbers of rows, the scaling and the categories of the features",
        accountant="dp-accounting: the lower of Renyi and privacy loss distributions, Poisson sampling",
    )
