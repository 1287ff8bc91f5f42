r"""FedProx: FedAvg whose local objective pulls towards the global model.

.. math:: h_k(w; w_t) = F_k(w) + \frac{\mu}{2} \lVert w - w_t \rVert^2, \qquad
          g = \nabla F_k(w; B) + \mu (w - w_t)

The anchor w_t is the global model at the start of the round. A straggler returns what it has after fewer steps; the
engine's ``num_steps`` says how many. mu = 0 is FedAvg bit for bit, and so is a single local step.

Reference: Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, algorithm 2 and equation 2.
"""

import jax
import optax

from fedjax_fraud.algorithms.fedavg import fedavg
from fedjax_fraud.types import FedAlgorithm


def fedprox(
    client_opt: optax.GradientTransformation,
    server_opt: optax.GradientTransformation | None = None,
    *,
    mu=0.01,
    uniform_weights: bool = False,
) -> FedAlgorithm:
    """FedAvg with a proximal term.

    Args:
      client_opt, server_opt, uniform_weights: as for ``fedavg``.
      mu: strength of the pull, at least 0; may be a tracer. Too large a value stops local learning.

    Example: at distance 1 from the global model the gradient grows by mu.
      >>> algorithm = fedprox(optax.sgd(0.1), mu=0.5)
      >>> state = algorithm.init({"w": 1.0}, num_clients=2)
      >>> algorithm.correct({"w": 3.0}, {"w": 2.0}, state.server, ())
      {'w': 3.5}
    """

    def correct(grads, params, server, client):
        del client
        return jax.tree.map(lambda g, w, w_t: g + mu * (w - w_t), grads, params, server.params)

    return fedavg(client_opt, server_opt, uniform_weights=uniform_weights)._replace(correct=correct)
