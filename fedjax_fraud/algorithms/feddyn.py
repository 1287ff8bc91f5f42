r"""FedDyn: each client's objective is bent until its minimum is the federation's.

.. math::
   \text{local step} \quad & w \leftarrow w - \eta_l (\nabla F_k(w; B) - h_k + \mu (w - w_t)) \\
   \text{client} \quad & h_k \leftarrow h_k - \mu (w_k - w_t) \\
   \text{server} \quad & h \leftarrow h - \frac{\mu}{N} \sum_{k \in S} (w_k - w_t), \qquad
                         w_{t+1} = \frac{1}{|S|} \sum_{k \in S} w_k - \frac{h}{\mu}

mu is the paper's alpha (here alpha is the Dirichlet skew), and N counts all clients that hold rows, so h stays the
mean of their h_k under any participation. Where the local problem is solved exactly, h_k is the gradient of F_k at
w_k. With fewer steps it is not, yet wherever the rounds settle nobody moves, hence h = 0 and h_k is the gradient
there: the minimum of the unweighted mean of the F_k.

h / mu is the sum of all past mean changes, each times its participation, whatever mu is: the server overshoots while
the clients still agree, and a small mu does not soften that. mu = 0 has no h: the plain mean of the models, uniform
FedAvg.

Reference: Acar et al., Federated Learning Based on Dynamic Regularization, ICLR 2021, algorithm 1. Differs in: a
fixed number of SGD steps stands for the exact local minimum, as in the paper's experiments.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_fraud.checks import check_rate
from fedjax_fraud.types import ClientResult, CommunicationCost, FedAlgorithm, FedState


class ServerState(NamedTuple):
    """The global model and h."""

    params: Any
    gradient: Any


class ClientState(NamedTuple):
    """A client's h_k."""

    gradient: Any


def feddyn(client_lr, *, mu=0.1) -> FedAlgorithm:
    """Federated learning with dynamic regularisation.

    Args:
      client_lr: rate of the plain SGD steps, at least 0; may be a tracer. ``client_lr * mu`` should stay below 1.
      mu: strength of the pull and of the clients' memory, at least 0; may be a tracer. 0 is uniform FedAvg.

    Raises: TypeError if ``client_lr`` is an optimizer or a schedule.
    """
    check_rate(client_lr, "FedDyn's h_k stands for a gradient, which plain SGD at a constant rate settles at: pass it.")

    def init(params, num_clients):
        stacked = jax.tree.map(lambda leaf: jnp.zeros((num_clients, *leaf.shape), leaf.dtype), params)
        return FedState(ServerState(params, optax.tree.zeros_like(params)), ClientState(stacked))

    def correct(grads, params, server, client):
        return jax.tree.map(
            lambda g, h_k, w, w_t: g - h_k + mu * (w - w_t), grads, client.gradient, params, server.params
        )

    def client_update(server, client, local):
        delta = optax.tree.sub(local.params, server.params)
        return ClientResult(delta, jnp.ones(()), ClientState(optax.tree.add_scale(client.gradient, -mu, delta)))

    def server_update(server, mean_message, participation):
        # The cohort's mean times |S| / N is the sum over the cohort divided by N.
        gradient = optax.tree.add_scale(server.gradient, -mu * participation, mean_message)
        inverse = jnp.where(mu > 0, 1 / jnp.where(mu > 0, mu, 1), 0)
        params = jax.tree.map(lambda w, d, h: w + d - inverse * h, server.params, mean_message, gradient)
        return ServerState(params, gradient)

    def invariant(server, client_mean):
        return optax.tree.sub(server.gradient, client_mean.gradient)

    return FedAlgorithm(
        init,
        correct,
        client_update,
        server_update,
        optax.sgd(client_lr),
        CommunicationCost(1, 1),
        invariant=invariant,
    )
