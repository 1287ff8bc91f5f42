"""Binary classifiers as init/apply pairs: logistic regression, a multi-layer perceptron, any Flax module."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from jaxtyping import Float

from fedjax_fraud.types import Model

if TYPE_CHECKING:  # Flax takes half a second to import, and only its users need it.
    import flax.linen as nn


def _dense(params: dict, x: Float[ArrayLike, "rows width"]) -> Float[jax.Array, "rows outputs"]:
    return x @ params["kernel"] + params["bias"][None]


def from_flax(module: nn.Module, num_features: int, description: str | None = None) -> Model:
    """Any Flax (linen) module as a ``Model``.

    Args:
      module: maps ``[batch, features]`` to logits ``[batch]`` or ``[batch, 1]``. It must keep no state but its
        parameters: no batch statistics, no dropout.
      num_features: columns of the feature matrix, at least 1.
      description: one line for the record; default the module's class name.

    Raises: ValueError if ``num_features`` is below 1.

    Example:
      >>> import flax.linen as nn
      >>> model = from_flax(nn.Dense(1), num_features=3)
      >>> model.apply(model.init(jax.random.key(0)), jnp.ones((5, 3))).shape
      (5,)
    """
    _check_width(num_features)

    def init(key):
        return module.init(key, jnp.zeros((1, num_features)))["params"]

    def apply(params, x):
        logits = module.apply({"params": params}, x)
        return logits.reshape(x.shape[0])

    return Model(init, apply, description or type(module).__name__)


def logistic_regression(num_features: int) -> Model:
    """One linear layer that starts at zero, so that a run does not depend on a random start.

    Raises: ValueError if ``num_features`` is below 1.

    Example:
      >>> model = logistic_regression(3)
      >>> model.apply(model.init(jax.random.key(0)), jnp.ones((2, 3))).tolist()
      [0.0, 0.0]
    """
    _check_width(num_features)

    def init(key):
        del key
        return {"kernel": jnp.zeros((num_features, 1)), "bias": jnp.zeros(1)}

    return Model(init, lambda params, x: _dense(params, x)[:, 0], f"logistic regression on {num_features} features")


def mlp(num_features: int, hidden: tuple[int, ...] = (64, 32)) -> Model:
    """A perceptron with ReLU layers of the widths ``hidden`` (He initialisation) and one logit.

    The last layer starts with LeCun's variance, 1 / width, as there is no ReLU behind it; biases start at zero.

    Raises: ValueError if a width is below 1.

    Example:
      >>> model = mlp(3, hidden=(8,))
      >>> model.description
      'multi-layer perceptron 3-8-1, ReLU'
      >>> model.apply(model.init(jax.random.key(0)), jnp.ones((2, 3))).shape
      (2,)
    """
    _check_width(num_features)
    if any(width < 1 for width in hidden):
        raise ValueError(f"`hidden` must hold widths of at least 1, got {tuple(hidden)}. Use () for no hidden layer.")
    widths = (num_features, *hidden, 1)
    names = [f"Dense_{i}" for i in range(len(hidden) + 1)]
    draw_hidden, draw_last = jax.nn.initializers.he_normal(), jax.nn.initializers.lecun_normal()

    def init(key):
        draws = [draw_hidden] * len(hidden) + [draw_last]
        layers = zip(draws, jax.random.split(key, len(names)), itertools.pairwise(widths), strict=True)
        kernels = [draw(layer_key, shape) for draw, layer_key, shape in layers]
        return {
            name: {"kernel": kernel, "bias": jnp.zeros(kernel.shape[1])}
            for name, kernel in zip(names, kernels, strict=True)
        }

    def apply(params, x):
        for name in names[:-1]:
            x = jax.nn.relu(_dense(params[name], x))
        return _dense(params[names[-1]], x)[:, 0]

    return Model(init, apply, f"multi-layer perceptron {'-'.join(map(str, widths))}, ReLU")


def perceptron(num_features: int, hidden: tuple[int, ...]) -> Model:
    """``mlp`` with these widths, or ``logistic_regression``, which starts at zero, for ()."""
    return mlp(num_features, hidden) if hidden else logistic_regression(num_features)


def _check_width(num_features: int) -> None:
    if num_features < 1:
        raise ValueError(
            f"`num_features` must be at least 1, got {num_features}. Pass the width of the feature matrix."
        )


def as_vector(model: Model) -> tuple[Model, Callable]:
    """The same model with all parameters in one vector, and how to get the tree back.

    An algorithm that treats all parameters alike then needs one operation where a tree needs one for each leaf:
    programs have half as many kernels to compile.

    Returns: a ``Model`` whose params are ``[parameters]``, and ``unravel``: ``[parameters] -> params``.

    Example:
      >>> model, unravel = as_vector(logistic_regression(3))
      >>> vector = model.init(jax.random.key(0))
      >>> vector.shape, sorted(unravel(vector))
      ((4,), ['bias', 'kernel'])
    """
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    _, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes))

    def init(key):
        return ravel_pytree(model.init(key))[0]

    return Model(init, lambda vector, x: model.apply(unravel(vector), x), model.description), unravel
