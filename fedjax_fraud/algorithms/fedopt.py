r"""FedOpt: an optimizer at the server, for which the clients' mean change is the gradient.

.. math::
   \Delta_t &= \sum_{k \in S_t} \frac{n_k}{\sum_{j \in S_t} n_j} (w_k - w_t), \qquad
   m_t = \beta_1 m_{t-1} + (1 - \beta_1) \Delta_t \\
   \text{FedAdagrad} \quad v_t &= v_{t-1} + \Delta_t^2 \\
   \text{FedAdam} \quad v_t &= \beta_2 v_{t-1} + (1 - \beta_2) \Delta_t^2 \\
   \text{FedYogi} \quad v_t &= v_{t-1} - (1 - \beta_2) \Delta_t^2 \operatorname{sign}(v_{t-1} - \Delta_t^2) \\
   w_{t+1} &= w_t + \eta_g \frac{m_t}{\sqrt{v_t} + \tau} \\
   \text{FedAvgM} \quad m_t &= \beta m_{t-1} + \Delta_t, \qquad w_{t+1} = w_t + \eta_g m_t

Symbols: eta_g is ``server_lr``, beta ``momentum``. The clients run FedAvg's local steps with any optimizer.

``optax.adam`` and ``optax.yogi`` would be other methods: they divide both moments by 1 - beta^t, which the paper does
not, and with 0.9 and 0.999 that alone makes the first step three times smaller. ``optax.adagrad`` has no first moment
and adds its small number under the root.

Reference: Reddi et al., Adaptive Federated Optimization, ICLR 2021, algorithm 2, with the constants of its
experiments; FedAvgM: Hsu, Qi and Brown, Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification, 2019. Differs in: the mean is weighted by n_k, as in the paper's experiments.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_fraud.algorithms.fedavg import fedavg
from fedjax_fraud.types import FedAlgorithm

AVGM, ADAGRAD, ADAM, YOGI = range(4)


class Moments(NamedTuple):
    """What the server optimizer keeps: m and v, each like the model."""

    first: Any
    second: Any


def server_optimizer(
    rule, server_lr, *, beta1=0.9, beta2=0.99, tau=1e-3, initial_accumulator=None
) -> optax.GradientTransformation:
    """The server's side of all four methods; every argument may be a tracer, so that they can share a program.

    Args:
      rule: which v: ``AVGM``, ``ADAGRAD``, ``ADAM`` or ``YOGI``. FedAvgM is ``1 - beta1`` instead of
        ``sqrt(v) + tau``; its v stays as it was.
      server_lr: rate eta_g, at least 0.
      beta1: memory of the mean change, in [0, 1).
      beta2: memory of its square, in [0, 1); unused by FedAvgM and FedAdagrad.
      tau: added to the root, above 0: the smaller, the more adaptive.
      initial_accumulator: v before the first round, at least 0. Default ``tau**2``, the least that the paper's theory
        allows; FLamby's published results start at 0.

    Returns: an optax transformation, which is fed minus the mean change as any server optimizer here.
    """
    start = tau**2 if initial_accumulator is None else initial_accumulator

    def init(params):
        second = jax.tree.map(lambda leaf: jnp.full_like(leaf, start), params)
        return Moments(optax.tree.zeros_like(params), second)

    def of_leaf(m, v):
        return -server_lr * m / jnp.where(rule == AVGM, 1 - beta1, jnp.sqrt(v) + tau)

    def update(updates, state, params=None):
        del params
        first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state.first, updates)
        second = jax.tree.map(lambda v, g: _second_moment(rule, v, g**2, beta2), state.second, updates)
        return jax.tree.map(of_leaf, first, second), Moments(first, second)

    return optax.GradientTransformation(init, update)


def _second_moment(rule, v, square, beta2):
    """v_t of one leaf."""
    adam = beta2 * v + (1 - beta2) * square
    yogi = v - (1 - beta2) * square * jnp.sign(v - square)
    adaptive = jnp.where(rule == ADAGRAD, v + square, jnp.where(rule == ADAM, adam, yogi))
    return jnp.where(rule == AVGM, v, adaptive)


def fedavgm(client_opt: optax.GradientTransformation, server_lr=1.0, *, momentum=0.9) -> FedAlgorithm:
    """FedAvg with heavy-ball momentum at the server.

    Args:
      client_opt: the optimizer of the local steps.
      server_lr: rate eta_g, at least 0; may be a tracer.
      momentum: beta in [0, 1); 0 is FedAvg with that server rate.
    """
    return fedavg(client_opt, optax.sgd(server_lr, momentum=momentum))


def fedadagrad(
    client_opt: optax.GradientTransformation, server_lr=0.1, *, beta1=0.0, tau=1e-3, initial_accumulator=None
) -> FedAlgorithm:
    """FedAvg with Adagrad at the server: rates that only ever fall.

    Args:
      client_opt: the optimizer of the local steps.
      server_lr, tau, initial_accumulator: see ``server_optimizer``.
      beta1: memory of the mean change. The paper's algorithm has it, its experiments set it to 0; FLamby's use 0.9.
    """
    server = server_optimizer(ADAGRAD, server_lr, beta1=beta1, tau=tau, initial_accumulator=initial_accumulator)
    return fedavg(client_opt, server)


def fedadam(
    client_opt: optax.GradientTransformation,
    server_lr=0.1,
    *,
    beta1=0.9,
    beta2=0.99,
    tau=1e-3,
    initial_accumulator=None,
) -> FedAlgorithm:
    """FedAvg with Adam without bias correction at the server; arguments as for ``server_optimizer``."""
    return fedavg(
        client_opt,
        server_optimizer(ADAM, server_lr, beta1=beta1, beta2=beta2, tau=tau, initial_accumulator=initial_accumulator),
    )


def fedyogi(
    client_opt: optax.GradientTransformation,
    server_lr=0.1,
    *,
    beta1=0.9,
    beta2=0.99,
    tau=1e-3,
    initial_accumulator=None,
) -> FedAlgorithm:
    """FedAvg with Yogi at the server, whose v moves by at most the last square; arguments as ``server_optimizer``."""
    return fedavg(
        client_opt,
        server_optimizer(YOGI, server_lr, beta1=beta1, beta2=beta2, tau=tau, initial_accumulator=initial_accumulator),
    )
