"""Models on the shared test rows, on the device: logits in chunks, scores pooled and per bank."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from fedjax_fraud import losses, metrics

ROWS_PER_CHUNK = 8192


class TestSet(NamedTuple):
    """The test rows, positives first (so that their number is static), cut into chunks.

    Attributes:
      features: ``[chunks, rows, features]``; the last chunk is filled with zeros.
      num_samples, num_positives: Python ints.
      index: ``[samples]`` host array: where each row stood before; ``labels[index]`` is sorted.
    """

    features: Array
    num_samples: int
    num_positives: int
    index: np.ndarray


class Scores(NamedTuple):
    """Scores of one model: scalars, or ``[banks]``. NaN where the rows have one class (see ``metrics``)."""

    log_loss: Array
    average_precision: Array
    roc_auc: Array


def make_test_set(features: np.ndarray, labels: np.ndarray) -> TestSet:
    """Orders and chunks the test rows on the host."""
    index = np.argsort(-np.asarray(labels), kind="stable")
    num_samples = len(index)
    rows = min(max(num_samples, 1), ROWS_PER_CHUNK)
    padded = np.zeros((-(-num_samples // rows) * rows, features.shape[1]), np.float32)
    padded[:num_samples] = features[index]
    return TestSet(padded.reshape(-1, rows, features.shape[1]), num_samples, int(np.sum(labels)), index)


def test_logits(apply: Callable, params, features: Float[Array, "chunks rows features"]) -> Float[Array, " padded"]:
    """Logits of every row, chunk by chunk, so that memory does not grow with the number of rows times the width."""
    return jax.lax.map(lambda x: apply(params, x), features).reshape(-1)


def pooled_scores(logits: Float[Array, " padded"], *, num_samples: int, num_positives: int) -> Scores:
    """Scores over all test rows (positives first)."""
    positive, negative = logits[:num_positives], logits[num_positives:num_samples]
    average_precision, roc_auc = metrics.ranking_scores(positive, negative)
    total = jnp.sum(losses.binary_cross_entropy(positive, jnp.ones_like(positive))) + jnp.sum(
        losses.binary_cross_entropy(negative, jnp.zeros_like(negative))
    )
    return Scores(total / num_samples, average_precision, roc_auc)
