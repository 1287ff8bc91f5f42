r"""Ditto: FedAvg's global model, and a model of each client's own that is pulled towards it.

.. math::
   h_k(v; w_t) = F_k(v) + \frac{\mu}{2} \lVert v - w_t \rVert^2, \qquad
   v_k \leftarrow v_k - \eta_l (\nabla F_k(v_k; B) + \mu (v_k - w_t))

mu is the paper's lambda. The global model is FedAvg's: nothing of v_k is ever sent, so the bytes are FedAvg's too.
mu = 0 trains every client alone, from the common start and on its own rows; a large mu keeps v_k near w_t. A client
that sits a round out keeps its v_k.

Reference: Li, Hu, Beirami and Smith, Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021,
algorithm 1. Differs in: v_k takes one step on each batch that w_k takes one on, with the same optimizer.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_fraud.algorithms.fedavg import fedavg
from fedjax_fraud.types import FedAlgorithm


class ClientState(NamedTuple):
    """A client's own model v_k."""

    personal: Any


def ditto(
    client_opt: optax.GradientTransformation,
    server_opt: optax.GradientTransformation | None = None,
    *,
    mu=0.1,
    uniform_weights: bool = False,
) -> FedAlgorithm:
    """FedAvg with personal models.

    Args:
      client_opt: the optimizer of the local steps, of w_k and, with a state of its own, of v_k.
      server_opt, uniform_weights: as for ``fedavg``.
      mu: strength of the pull on v_k, at least 0; may be a tracer. With plain SGD ``client_lr * mu`` must stay below 2.
    """
    averaging = fedavg(client_opt, server_opt, uniform_weights=uniform_weights)

    def init(params, num_clients):
        start = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_clients, *leaf.shape)), params)
        return averaging.init(params, num_clients)._replace(clients=ClientState(start))

    def correct_personal(grads, personal, server, client):
        del client
        return jax.tree.map(lambda g, v, w_t: g + mu * (v - w_t), grads, personal, server.params)

    def client_update(server, client, local):
        result = averaging.client_update(server, client, local)
        return result._replace(client=ClientState(local.personal))

    return averaging._replace(init=init, client_update=client_update, correct_personal=correct_personal)
