"""Losses on ``(logits, labels)``, one value per example, and their mean over the examples that count."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Shaped


def binary_cross_entropy(
    logits: Float[ArrayLike, "*shape"], labels: Shaped[ArrayLike, "*shape"]
) -> Float[Array, "*shape"]:
    r"""Negative log likelihood of each label, exact at any logit.

    With z = logit for label 0 and z = -logit for label 1 the loss is log(1 + exp(z)), evaluated without forming
    the probability: a logit of 40 with label 0 costs 40, with gradient 1, and no logit overflows.

    Args:
      logits: ``[...]``, the log odds of fraud.
      labels: ``[...]`` of any number type or bool, 1 = fraud, 0 = genuine. Other values (soft labels) are not
        supported and not detected.

    Returns: ``[...]`` in nats, >= 0; NaN where the logit is NaN.
    """
    logits = jnp.asarray(logits)
    return jax.nn.softplus(jnp.where(jnp.asarray(labels) == 1, -logits, logits))


def weighted_binary_cross_entropy(positive_weight: ArrayLike) -> Callable:
    """Makes a `binary_cross_entropy` in which every fraud counts ``positive_weight`` times.

    Args:
      positive_weight: the weight of a fraud relative to a genuine transaction, finite and > 0; 1 gives
        `binary_cross_entropy`. May be a tracer, which is not checked.

    Returns: ``(logits [...], labels [...]) -> losses [...]``, to use as the engine's ``loss_fn``.

    Raises: ValueError if ``positive_weight`` is not a finite number above 0.
    """
    if not isinstance(positive_weight, jax.core.Tracer) and not 0 < float(positive_weight) < math.inf:
        raise ValueError(f"`positive_weight` must be finite and > 0, got {positive_weight}. Pass 1 for no weighting.")

    def loss_fn(logits, labels):
        losses = binary_cross_entropy(logits, labels)
        weight = jnp.asarray(positive_weight, losses.dtype)
        return jnp.where(jnp.asarray(labels) == 1, weight * losses, losses)

    return loss_fn


def masked_mean(values: Float[ArrayLike, "*shape"], mask: Bool[ArrayLike, "*shape"]) -> Float[Array, ""]:
    """Mean of the values whose mask is True.

    Masked values are left out by selection, not multiplied by 0, so that a NaN or an infinity among them reaches
    neither the mean nor its gradient with respect to ``values``. (It can still reach the gradient of whatever
    *computed* that value: pad with finite rows.)

    Args:
      values: ``[...]``.
      mask: ``[...]`` bool.

    Returns: scalar; 0 if the mask is False everywhere, so that an empty batch has a zero gradient. A caller who must
    tell an empty batch from a perfect one counts the mask.
    """
    count = jnp.sum(mask, dtype=jnp.int32)
    total = jnp.sum(jnp.where(mask, values, 0))
    return total / jnp.maximum(count, 1).astype(total.dtype)
