r"""FedNova: average the clients' directions, not their distances, so that a client of many steps does not count twice.

.. math::
   d_k = \frac{w_k - w_t}{\lVert a_k \rVert_1}, \qquad
   w_{t+1} = w_t + \tau_\text{eff} \sum_{k \in S_t} p_k d_k, \qquad
   \tau_\text{eff} = \sum_{k \in S_t} p_k \lVert a_k \rVert_1, \qquad p_k = \frac{n_k}{\sum_{j \in S_t} n_j}

FedAvg with unequal local steps settles near the minimum of an objective that weighs client k by p_k times its steps.
The entries of a_k say how often each of the client's gradients entered its model:

.. math::
   \text{plain SGD} \quad \lVert a_k \rVert_1 = S_k, \qquad
   \text{momentum } \rho \quad \lVert a_k \rVert_1 =
   \frac{1}{1 - \rho} \left( S_k - \frac{\rho (1 - \rho^{S_k})}{1 - \rho} \right)

S_k counts the steps that the client really took. With equal steps this is FedAvg.

Reference: Wang et al., Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization, NeurIPS
2020, the general update rule with the weights p_k.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from fedjax_fraud.algorithms.fedavg import fedavg
from fedjax_fraud.checks import check_rate
from fedjax_fraud.types import FedAlgorithm


class Message(NamedTuple):
    """What a client sends: its change over ``effective_steps``, and these."""

    direction: Any
    effective_steps: Any


def effective_steps(num_steps, momentum=None):
    """The norm ||a||_1 of SGD: how many plain steps ``num_steps`` steps with heavy-ball momentum are worth.

    Args:
      num_steps: ``[*shape]``, at least 0; 0 steps are worth 0.
      momentum: None, or rho in [0, 1).

    Returns: ``[*shape]`` float32.
    """
    num_steps = jnp.asarray(num_steps, jnp.float32)
    if momentum is None:
        return num_steps
    return (num_steps - momentum * (1 - momentum**num_steps) / (1 - momentum)) / (1 - momentum)


def fednova(
    client_lr,
    server_opt: optax.GradientTransformation | None = None,
    *,
    momentum=None,
    uniform_weights: bool = False,
) -> FedAlgorithm:
    """Normalised averaging.

    Args:
      client_lr: rate of the local steps, at least 0; may be a tracer.
      server_opt: is fed ``-tau_eff * mean(direction)``; default ``optax.sgd(1.0)``, the equation above.
      momentum: the local steps' heavy-ball momentum in [0, 1), may be a tracer; None = plain SGD, which is what 0
        computes, without the vector that momentum keeps.
      uniform_weights: equal p_k instead of shares of the rows.

    Raises: TypeError if ``client_lr`` is an optimizer or a schedule.
    """
    check_rate(client_lr, "FedNova knows ||a||_1 of SGD with a constant rate: pass that rate, and `momentum`.")
    averaging = fedavg(optax.sgd(client_lr, momentum=momentum), server_opt, uniform_weights=uniform_weights)

    def client_update(server, client, local):
        result = averaging.client_update(server, client, local)
        steps = effective_steps(local.num_steps, momentum)
        inverse = jnp.where(steps > 0, 1 / jnp.where(steps > 0, steps, 1), 0)
        return result._replace(message=Message(optax.tree.scale(inverse, result.message), steps))

    def server_update(server, mean_message, participation):
        change = optax.tree.scale(mean_message.effective_steps, mean_message.direction)
        return averaging.server_update(server, change, participation)

    return averaging._replace(client_update=client_update, server_update=server_update)
