r"""FedAvg: average the local models.

.. math:: w_{t+1} = w_t + \sum_{k \in S_t} \frac{n_k}{\sum_{j \in S_t} n_j} (w_k - w_t)

The server optimizer is fed minus the mean change, so plain SGD with rate 1 is the equation above and any other optax
optimizer gives the method's FedOpt relatives.

Reference: McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized Data, AISTATS 2017,
algorithm 1; the server optimizer: Reddi et al., Adaptive Federated Optimization, ICLR 2021, algorithm 1.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from fedjax_fraud.types import ClientResult, CommunicationCost, FedAlgorithm, FedState


class ServerState(NamedTuple):
    """The global model and the server optimizer's state."""

    params: Any
    opt_state: Any


def fedavg(
    client_opt: optax.GradientTransformation,
    server_opt: optax.GradientTransformation | None = None,
    *,
    uniform_weights: bool = False,
) -> FedAlgorithm:
    """Federated averaging.

    Args:
      client_opt: the optimizer of the local steps, usually ``optax.sgd(client_lr)``.
      server_opt: is fed ``-mean(delta)``; default ``optax.sgd(1.0)``, the plain average.
      uniform_weights: give every client of the cohort the same weight instead of its number of rows n_k.

    Example:
      >>> algorithm = fedavg(optax.sgd(0.1))
      >>> algorithm.cost
      CommunicationCost(down=1, up=1)
    """
    server_opt = optax.sgd(1.0) if server_opt is None else server_opt

    def init(params, num_clients):
        del num_clients  # FedAvg's clients keep nothing.
        return FedState(ServerState(params, server_opt.init(params)), ())

    def correct(grads, params, server, client):
        del params, server, client
        return grads

    def client_update(server, client, local):
        delta = optax.tree.sub(local.params, server.params)
        weight = jnp.ones(()) if uniform_weights else jnp.asarray(local.num_examples, jnp.float32)
        return ClientResult(delta, weight, client)

    def server_update(server, mean_message, participation):
        del participation
        step, opt_state = server_opt.update(optax.tree.scale(-1, mean_message), server.opt_state, server.params)
        return ServerState(optax.apply_updates(server.params, step), opt_state)

    return FedAlgorithm(init, correct, client_update, server_update, client_opt, CommunicationCost(1, 1))
