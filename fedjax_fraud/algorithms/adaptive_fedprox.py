r"""FedProx whose mu follows the loss: up when the loss rises, down when it has fallen for a while.

.. math::
   \mu_{t+1} = \begin{cases}
     \mu_t + s & \text{if } F(w_t) > F(w_{t-1}) \\
     \max(\mu_t - s, 0) & \text{if } F \text{ has fallen in the last } p \text{ rounds without a break} \\
     \mu_t & \text{otherwise}
   \end{cases}

s is ``step``, p ``patience``; the count of falls starts again after each decrease of mu, each rise and each tie. F(w_t)
is the cohort's mean training loss at the global model, weighted by n_k, which the clients measure on the batches that
they visit and send as one more number. So mu lags the loss by a round, and under partial participation it also follows
the luck of the draw: another cohort has another loss at the same model.

Reference: Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, section 5.3.2.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_fraud.algorithms.fedavg import fedavg
from fedjax_fraud.types import FedAlgorithm


class ServerState(NamedTuple):
    """The global model and the server optimizer's state; mu, and what it depends on. Scalars.

    Attributes:
      params, opt_state: as FedAvg's.
      mu: the strength of the coming round's pull.
      loss: the cohort's mean loss in the last round that counted; 0 before there is one.
      num_falls: rounds in a row in which it fell.
      started: whether there was a round that counted.
    """

    params: Any
    opt_state: Any
    mu: Any
    loss: Any
    num_falls: Any
    started: Any


class Message(NamedTuple):
    """What a client sends: the change of its model and its mean loss at the global model."""

    delta: Any
    loss: Any


def next_strength(server: ServerState, loss, step, patience):
    """The rule: ``(mu, num_falls)`` after a round in which the cohort's mean loss was ``loss``. Scalars."""
    rose, fell = (server.started & moved for moved in (loss > server.loss, loss < server.loss))
    num_falls = jnp.where(fell, server.num_falls + 1, 0)
    enough = num_falls >= patience
    change = jnp.where(rose, step, jnp.where(enough, -step, 0))
    return jnp.maximum(server.mu + change, 0), jnp.where(enough, 0, num_falls)


def adaptive_fedprox(
    client_opt: optax.GradientTransformation,
    server_opt: optax.GradientTransformation | None = None,
    *,
    mu=0.0,
    step=0.1,
    patience=5,
    uniform_weights: bool = False,
) -> FedAlgorithm:
    """FedProx with an adaptive mu.

    Args:
      client_opt, server_opt, uniform_weights: as for ``fedavg``.
      mu: strength of the pull in the first two rounds, at least 0; may be a tracer, as ``step`` and ``patience``.
      step: what is added to mu or taken off it.
      patience: falls in a row before mu is lowered, at least 1.
    """
    averaging = fedavg(client_opt, server_opt, uniform_weights=uniform_weights)

    def init(params, num_clients):
        state = averaging.init(params, num_clients)
        none = jnp.zeros((), jnp.int32)
        server = ServerState(*state.server, jnp.asarray(mu, jnp.float32), jnp.zeros(()), none, jnp.zeros((), bool))
        return state._replace(server=server)

    def correct(grads, params, server, client):
        del client
        return jax.tree.map(lambda g, w, w_t: g + server.mu * (w - w_t), grads, params, server.params)

    def client_update(server, client, local):
        result = averaging.client_update(server, client, local)
        return result._replace(message=Message(result.message, local.server_loss))

    def server_update(server, mean_message, participation):
        after = averaging.server_update(server, mean_message.delta, participation)
        next_mu, num_falls = next_strength(server, mean_message.loss, step, patience)
        return ServerState(*after, next_mu, mean_message.loss, num_falls, jnp.ones((), bool))

    return averaging._replace(
        init=init,
        correct=correct,
        client_update=client_update,
        server_update=server_update,
        needs_server_gradient=True,
    )
