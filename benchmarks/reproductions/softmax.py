"""Softmax regression as the engine sees it: one vector of parameters, and which data set it belongs to.

The vector holds the kernel, the bias, and at its end a number that no gradient touches: the data set on which the model
is scored, so that federations on different data can stand in one program. A vector trains faster than a tree of arrays.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np


def make_logits(num_features: int, num_classes: int) -> Callable:
    """``(params, x [batch, features]) -> [batch, classes]``."""
    size = num_features * num_classes

    def logits(params, x):
        return x @ params[:size].reshape(num_features, num_classes) + params[size:-1][None]

    return logits


def start(num_features: int, num_classes: int, datasets: Sequence[int]) -> np.ndarray:
    """Models at zero, one for each setting: ``[settings, parameters]``."""
    params = np.zeros((len(datasets), (num_features + 1) * num_classes + 1), np.float32)
    params[:, -1] = datasets
    return params


def dataset_of(params) -> jax.Array:
    """The number at the end."""
    return params[-1].astype(jnp.int32)


def cross_entropy(logits, labels):
    """Of each row; labels are numbers of classes."""
    is_label = labels[:, None] == jnp.arange(logits.shape[1])[None]
    shifted = logits - jax.lax.stop_gradient(jnp.max(logits, axis=1, keepdims=True))
    return jnp.log(jnp.sum(jnp.exp(shifted), axis=1)) - jnp.sum(jnp.where(is_label, shifted, 0), axis=1)


def is_right(logits, labels):
    """1 where the largest logit is the label's."""
    return (jnp.argmax(logits, axis=1) == labels).astype(jnp.float32)
