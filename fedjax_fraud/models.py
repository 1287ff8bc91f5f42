"""Binary classifiers as init/apply pairs: logistic regression, a multi-layer perceptron, any Flax module."""

import flax.linen as nn
import jax.numpy as jnp

from fedjax_fraud.types import Model


class _MLP(nn.Module):
    """Dense layers with ReLU between them and one logit at the end."""

    hidden: tuple[int, ...]

    @nn.compact
    def __call__(self, x):
        for width in self.hidden:
            x = nn.relu(nn.Dense(width, kernel_init=nn.initializers.he_normal())(x))
        return nn.Dense(1)(x)


def from_flax(module: nn.Module, num_features: int, description: str | None = None) -> Model:
    """Any Flax (linen) module as a ``Model``.

    Args:
      module: maps ``[batch, features]`` to logits ``[batch]`` or ``[batch, 1]``. It must keep no state but its
        parameters: no batch statistics, no dropout.
      num_features: columns of the feature matrix, at least 1.
      description: one line for the record; default the module's class name.

    Raises: ValueError if ``num_features`` is below 1.
    """
    if num_features < 1:
        raise ValueError(
            f"`num_features` must be at least 1, got {num_features}. Pass the width of the feature matrix."
        )

    def init(key):
        return module.init(key, jnp.zeros((1, num_features)))["params"]

    def apply(params, x):
        logits = module.apply({"params": params}, x)
        return logits.reshape(x.shape[0])

    return Model(init, apply, description or type(module).__name__)


def logistic_regression(num_features: int) -> Model:
    """One linear layer that starts at zero, so that a run does not depend on a random start."""
    module = nn.Dense(1, kernel_init=nn.initializers.zeros)
    return from_flax(module, num_features, f"logistic regression on {num_features} features")


def mlp(num_features: int, hidden: tuple[int, ...] = (64, 32)) -> Model:
    """A perceptron with ReLU layers of the widths ``hidden`` (He initialisation) and one logit.

    Raises: ValueError if a width is below 1.
    """
    if any(width < 1 for width in hidden):
        raise ValueError(f"`hidden` must hold widths of at least 1, got {tuple(hidden)}. Use () for no hidden layer.")
    widths = "-".join(map(str, (num_features, *hidden, 1)))
    return from_flax(_MLP(tuple(hidden)), num_features, f"multi-layer perceptron {widths}, ReLU")
