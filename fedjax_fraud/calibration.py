"""Whether probabilities mean what they say: observed fraud rates beside predicted ones, bin by bin.

Bins as in scikit-learn's `calibration_curve`: of equal width (``"uniform"``) or of equal mass (``"quantile"``). Where
fraud is rare nearly all rows fall into the first bin of equal width, and its error hides the rest; bins of equal mass
spread the rows, but not the frauds. Neither is the whole truth: show both beside the Brier score.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fedjax_fraud.measures import equal_mass_places, equal_width_edges
from fedjax_fraud.metrics import order_key
from fedjax_fraud.vectors import Values, as_labels, as_probabilities, check_lengths, is_traced, tree_sum

STRATEGIES = ("uniform", "quantile")


class ReliabilityCurve(NamedTuple):
    """What was predicted and what happened in each bin, in rising order of probability.

    Attributes:
      count: ``[bins]`` int32, rows in the bin; 0 is legal.
      mean_probability: ``[bins]``, NaN for an empty bin.
      observed_rate: ``[bins]``, the share of frauds; NaN for an empty bin.
    """

    count: Int[Array, " bins"]
    mean_probability: Float[Array, " bins"]
    observed_rate: Float[Array, " bins"]


def reliability_curve(y_true: Values, y_prob: Values, *, num_bins=10, strategy: str = "uniform") -> ReliabilityCurve:
    """Mean predicted probability and observed fraud rate in each bin.

    Bins of equal width: bin b holds the probabilities in (b/B, (b+1)/B], and 0. Bins of equal mass are cut at the
    quantiles of the probabilities (NumPy's linear interpolation, ends left out), a probability at a cut in the lower
    bin: equal probabilities share a bin, so ties leave some bins large and others empty.

    Args:
      y_true: ``[samples]``, 1 = fraud, 0 = genuine.
      y_prob: ``[samples]``, the probability of fraud, in [0, 1]. A traced one is not checked.
      num_bins: static, at least 1.
      strategy: "uniform" for equal width, "quantile" for equal mass.

    Returns: a `ReliabilityCurve`. One class is legal (all rates 0, or all 1), and so is a constant probability (one bin
      holds every row). A traced NaN makes the bin that it falls into NaN.

    Raises: ValueError if the lengths differ or are 0, if concrete labels are not 0 and 1, if probabilities are NaN or
      outside [0, 1], for ``num_bins`` below 1 or an unknown strategy.

    Reference: scikit-learn's `calibration_curve`. Differs in: empty bins are kept, with count 0.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"`strategy` knows {', '.join(STRATEGIES)}; got {strategy!r}. Choose from these.")
    if isinstance(num_bins, bool) or not isinstance(num_bins, int | np.integer) or num_bins < 1:
        raise ValueError(f"`num_bins` must be an integer >= 1, got {num_bins!r}. Pass 10, for example.")
    positive, prob = as_labels(y_true), as_probabilities(y_prob)
    check_lengths(y_true=positive, y_prob=prob)
    values = y_prob if is_traced(y_prob) else np.asarray(y_prob)
    bins = (equal_width_bins if strategy == "uniform" else equal_mass_bins)(values, num_bins)
    return curve_of_bins(positive, prob, bins, num_bins)


def expected_calibration_error(
    y_true: Values, y_prob: Values, *, num_bins=10, strategy: str = "uniform"
) -> Float[Array, ""]:
    r"""Mean gap between predicted probability and observed rate, over bins by their share of the rows.

    ECE = \sum_b n_b / n \, | mean probability_b - observed rate_b |; empty bins are skipped. It depends on the bins, is
    biased upwards in small bins, and is 0 for a constant probability equal to the prevalence: it measures no skill.

    Args:
      y_true, y_prob, num_bins, strategy: as in `reliability_curve`.

    Returns: scalar in [0, 1]; NaN if a traced probability is NaN.

    Raises: as `reliability_curve`.

    Reference: Naeini, Cooper and Hauskrecht, Obtaining Well Calibrated Probabilities Using Bayesian Binning, AAAI 2015
    (there with bins of equal mass); Guo et al., On Calibration of Modern Neural Networks, ICML 2017, equation 5.
    Differs in: here the probability of fraud is judged, not the confidence in whichever class was chosen.
    """
    return error_of_curve(reliability_curve(y_true, y_prob, num_bins=num_bins, strategy=strategy))


def error_of_curve(curve: ReliabilityCurve) -> Float[Array, ""]:
    """The expected calibration error of a curve that is at hand."""
    share = curve.count.astype(curve.mean_probability.dtype) / jnp.sum(curve.count).astype(curve.mean_probability.dtype)
    gap = jnp.abs(curve.mean_probability - curve.observed_rate)
    return jnp.sum(jnp.where(curve.count > 0, share * gap, 0.0))


@functools.partial(jax.jit, static_argnames="num_bins")
def curve_of_bins(
    positive: Bool[Array, " samples"], prob: Float[Array, " samples"], bins: Int[Array, " samples"], num_bins: int
) -> ReliabilityCurve:
    """Counts and means of each bin, one bin after the other, so that sums do not round and memory does not grow."""

    def of_bin(b):
        member = bins == b
        count = jnp.sum(member, dtype=jnp.int32)
        num_positives = jnp.sum(member & positive, dtype=jnp.int32).astype(prob.dtype)
        total, size = tree_sum(jnp.where(member, prob, 0.0)), count.astype(prob.dtype)
        return count, total / size, num_positives / size

    return ReliabilityCurve(*jax.lax.map(of_bin, jnp.arange(num_bins, dtype=jnp.int32)))


def equal_width_bins(prob: np.ndarray | Array, num_bins: int) -> Int[Array, " samples"]:
    """The bin of equal width of each probability, as `np.searchsorted` finds it among 64-bit edges."""
    edges = equal_width_edges(num_bins)
    if isinstance(prob, np.ndarray):
        return jnp.asarray(np.searchsorted(edges, prob).astype(np.int32))
    # The largest number of the narrow type that is not above the edge separates the same numbers of that type.
    narrow = edges.astype(prob.dtype)
    narrow = np.where(narrow.astype(np.float64) > edges, np.nextafter(narrow, narrow.dtype.type(0)), narrow)
    return jnp.searchsorted(jnp.asarray(narrow), prob, method="compare_all").astype(jnp.int32)


def equal_mass_bins(prob: np.ndarray | Array, num_bins: int) -> Int[Array, " samples"]:
    """The bin of equal mass of each probability."""
    places = equal_mass_places(prob.shape[0], num_bins)
    if isinstance(prob, np.ndarray):
        return jnp.asarray(np.searchsorted(np.sort(prob)[places], prob).astype(np.int32))
    key = order_key(prob)
    return jnp.searchsorted(jnp.sort(key)[places], key, method="compare_all").astype(jnp.int32)
