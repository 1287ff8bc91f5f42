"""Binary classifiers as init/apply pairs: logistic regression, a multi-layer perceptron, any Flax module."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from jaxtyping import Float

from fedjax_fraud.types import Model

if TYPE_CHECKING:  # Flax takes half a second to import, and only its users need it.
    import flax.linen as nn


def _dense(params: dict, x: Float[ArrayLike, "rows width"], tap: None = None) -> Float[jax.Array, "rows outputs"]:
    del tap
    return x @ params["kernel"] + params["bias"][None]


@jax.custom_vjp
def _tapped_dense(
    params: dict, x: Float[ArrayLike, "rows width"], tap: Float[ArrayLike, " rows"]
) -> Float[jax.Array, "rows outputs"]:
    r"""``_dense`` whose derivative with respect to ``tap`` is the squared norm of each row's own gradient.

    Row i's gradient of the kernel is the outer product of its input x_i and the cotangent g_i of its output, that of
    the bias is g_i, so that together they have the norm (|x_i|^2 + 1) |g_i|^2.

    Reference: Goodfellow, Efficient Per-Example Gradient Computations, 2015.
    """
    del tap
    return _dense(params, x)


def _tapped_forward(params, x, tap):
    return _dense(params, x), (params, x)


def _tapped_backward(residuals, g):
    params, x = residuals
    norms = (jnp.sum(x * x, axis=1) + 1) * jnp.sum(g * g, axis=1)
    return {"kernel": x.T @ g, "bias": jnp.sum(g, axis=0)}, g @ params["kernel"].T, norms


_tapped_dense.defvjp(_tapped_forward, _tapped_backward)


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

    return Model(
        init,
        lambda params, x: _dense(params, x)[:, 0],
        f"logistic regression on {num_features} features",
        lambda params, x, tap: _tapped_dense(params, x, tap)[:, 0],
    )


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

    def through(dense, params, x, tap=None):
        for name in names[:-1]:
            x = jax.nn.relu(dense(params[name], x, tap))
        return dense(params[names[-1]], x, tap)[:, 0]

    description = f"multi-layer perceptron {'-'.join(map(str, widths))}, ReLU"
    return Model(init, functools.partial(through, _dense), description, functools.partial(through, _tapped_dense))


def perceptron(num_features: int, hidden: tuple[int, ...]) -> Model:
    """``mlp`` with these widths, or ``logistic_regression``, which starts at zero, for ()."""
    return mlp(num_features, hidden) if hidden else logistic_regression(num_features)


def _check_width(num_features: int) -> None:
    if num_features < 1:
        raise ValueError(
            f"`num_features` must be at least 1, got {num_features}. Pass the width of the feature matrix."
        )


def check_fits(model: Model, params: Any, num_features: int, *, one_logit: bool = True) -> None:
    """Refuses a model that does not fit a table, before anything is compiled.

    Args:
      model: any model.
      params: its parameters; None takes the shapes of those it starts from.
      num_features: columns of the table.
      one_logit: whether it must give one number for each row, as the binary losses need.

    Raises: ValueError if the model cannot take such rows, or gives something else than ``[rows]``.
    """
    if not isinstance(model, Model):
        raise ValueError(
            f"`model` must be a Model, a pair of init and apply, got {type(model).__name__}. "
            f"A Flax module becomes one by `models.from_flax(module, {num_features})`."
        )
    rows = jax.ShapeDtypeStruct((2, num_features), jnp.float32)
    try:
        params = jax.eval_shape(model.init, jax.random.key(0)) if params is None else params
        found = jax.eval_shape(model.apply, params, rows)
    except Exception as error:  # the model is the caller's code: JAX, Flax and it have errors of their own
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"`model` must take rows of {num_features} features, as the table has, and give one logit for each, got "
            f"one that fails ({type(error).__name__}: {reason}). Build it with num_features={num_features} and one "
            "output."
        ) from error
    shape = getattr(found, "shape", type(found).__name__)
    if one_logit and shape != (2,):
        raise ValueError(
            f"`model` must give one logit for each row, shape (2,) for 2 rows, got {shape}. "
            "Reshape what `apply` returns to x.shape[:1]."
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

    tapped = None if model.tapped is None else lambda vector, x, tap: model.tapped(unravel(vector), x, tap)
    return Model(init, lambda vector, x: model.apply(unravel(vector), x), model.description, tapped), unravel
