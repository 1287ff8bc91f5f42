r"""MimeLite: all clients step with one momentum, the server's, which stands still during the round.

.. math::
   \text{local step} \quad & w \leftarrow w - \eta_l ((1 - \beta) \nabla F_k(w; B) + \beta m_t) \\
   \text{server} \quad & w_{t+1} = \operatorname{mean}_{k \in S} w_k, \qquad
                         m_{t+1} = (1 - \beta) \operatorname{mean}_{k \in S} \nabla F_k(w_t) + \beta m_t

A client's own momentum would carry its drift; m is made of gradients at the global model only, as a central optimizer
would make it. The clients keep nothing. beta = 0 is FedAvg.

Reference: Karimireddy et al., Breaking the Centralized Barrier for Cross-Device Federated Learning, NeurIPS 2021
(Mime), algorithm 1 with the base optimizer SGD with momentum, in its "lite" form without variance reduction. Differs
in: the gradient at w_t is taken over the batches that the client visits (all its rows in every full epoch), a second
gradient a step, instead of a pass of its own.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_fraud.checks import check_rate
from fedjax_fraud.types import ClientResult, CommunicationCost, FedAlgorithm, FedState


class ServerState(NamedTuple):
    """The global model and the momentum m."""

    params: Any
    momentum: Any


class Message(NamedTuple):
    """What a client sends: the change of its model and its gradient at the global model."""

    delta: Any
    gradient: Any


def mimelite(client_lr, *, momentum=0.9, uniform_weights: bool = True) -> FedAlgorithm:
    """Mime without variance reduction, for SGD with momentum.

    Args:
      client_lr: rate of the local steps, at least 0; may be a tracer.
      momentum: beta in [0, 1); may be a tracer. 0 is FedAvg.
      uniform_weights: average models and gradients with equal weights, as in the paper, or with n_k if False.

    Raises: TypeError if ``client_lr`` is an optimizer or a schedule: the server's momentum replaces the client's.
    """
    check_rate(client_lr, "MimeLite's clients step along the server's momentum: pass their rate, and `momentum`.")

    def init(params, num_clients):
        del num_clients
        return FedState(ServerState(params, optax.tree.zeros_like(params)), ())

    def blend(gradient, m):
        return jax.tree.map(lambda g, m: (1 - momentum) * g + momentum * m, gradient, m)

    def correct(grads, params, server, client):
        del params, client
        return blend(grads, server.momentum)

    def client_update(server, client, local):
        message = Message(optax.tree.sub(local.params, server.params), local.server_gradient)
        weight = jnp.ones(()) if uniform_weights else jnp.asarray(local.num_examples, jnp.float32)
        return ClientResult(message, weight, client)

    def server_update(server, mean_message, participation):
        del participation
        params = optax.tree.add(server.params, mean_message.delta)
        return ServerState(params, blend(mean_message.gradient, server.momentum))

    return FedAlgorithm(
        init,
        correct,
        client_update,
        server_update,
        optax.sgd(client_lr),
        CommunicationCost(2, 2),
        needs_server_gradient=True,
    )
