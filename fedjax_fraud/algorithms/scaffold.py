r"""SCAFFOLD: control variates take each client's drift out of its local steps.

.. math::
   \text{local step} \quad & w \leftarrow w - \eta_l (\nabla F_k(w; B) - c_k + c) \\
   \text{option I} \quad & c_k^+ = \nabla F_k(w_t) \\
   \text{option II} \quad & c_k^+ = c_k - c + \frac{1}{S_k \eta_l} (w_t - w_k) \\
   \text{server} \quad & w_{t+1} = w_t + \eta_g \operatorname{mean}_{k \in S} (w_k - w_t), \qquad
                         c_{t+1} = c_t + \frac{1}{N} \sum_{k \in S} (c_k^+ - c_k)

S_k counts the optimizer steps that the client really took, and N *all* clients that hold rows, so c stays the mean of
their c_k under any participation. With plain SGD, option II's c_k^+ is the mean of the raw gradients on the client's
path; that needs a constant rate and no momentum, hence the argument ``client_lr`` instead of an optimizer.

A client of one or two steps a round has a noisy c_k: under strong skew option II can then diverge. Option I, weights
n_k, or a smaller rate are the remedies.

Reference: Karimireddy et al., SCAFFOLD: Stochastic Controlled Averaging for Federated Learning, ICML 2020,
algorithm 1, equations 3 to 5. Differs in: option I takes the gradient at w_t over the batches that the client visits
(all its rows in every full epoch), a second gradient a step, instead of a pass of its own.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fedjax_fraud.checks import check_rate
from fedjax_fraud.types import ClientResult, CommunicationCost, FedAlgorithm, FedState


class ServerState(NamedTuple):
    """The global model, the server optimizer's state and the global control variate c."""

    params: Any
    opt_state: Any
    control: Any


class ClientState(NamedTuple):
    """A client's control variate c_k."""

    control: Any


class Message(NamedTuple):
    """What a client sends: the changes of its model and of its control variate."""

    delta: Any
    control_delta: Any


def scaffold(
    client_lr,
    server_opt: optax.GradientTransformation | None = None,
    *,
    option: int = 2,
    uniform_weights: bool = True,
) -> FedAlgorithm:
    """Stochastic controlled averaging.

    Args:
      client_lr: rate eta_l of the plain SGD steps, at least 0; may be a tracer. At 0 the controls stay as they are.
      server_opt: is fed ``-mean(delta)``; default ``optax.sgd(1.0)``, eta_g = 1.
      option: 1 (gradient at the global model) or 2 (mean gradient of the client's path; one gradient a step).
      uniform_weights: average the models with equal weights, as in the paper, or with n_k if False. The control
        variates are always averaged with equal weights.

    Raises: TypeError if ``client_lr`` is an optimizer or a schedule: momentum or a changing rate would break
      equation 4. ValueError if ``option`` is neither 1 nor 2.

    Example: twice FedAvg's bytes, and a control variate for each client, zero at first.
      >>> algorithm = scaffold(0.1)
      >>> algorithm.cost
      CommunicationCost(down=2, up=2)
      >>> algorithm.init({"w": jnp.ones(2)}, num_clients=3).clients.control["w"].shape
      (3, 2)
    """
    check_rate(client_lr, "SCAFFOLD's control variates hold for plain SGD with a constant rate only: pass that rate.")
    if option not in (1, 2):
        raise ValueError(f"`option` must be 1 or 2, got {option!r}. Option 2 is the paper's usual choice.")
    server_opt = optax.sgd(1.0) if server_opt is None else server_opt

    def init(params, num_clients):
        zeros = jax.tree.map(jnp.zeros_like, params)
        stacked = jax.tree.map(lambda leaf: jnp.zeros((num_clients, *leaf.shape), leaf.dtype), params)
        return FedState(ServerState(params, server_opt.init(params), zeros), ClientState(stacked))

    def correct(grads, params, server, client):
        del params
        return jax.tree.map(lambda g, c_k, c: g - c_k + c, grads, client.control, server.control)

    def mean_path_gradient(server, client, local):
        rate_sum = jnp.asarray(local.num_steps, jnp.float32) * client_lr
        inverse = jnp.where(rate_sum > 0, 1 / jnp.where(rate_sum > 0, rate_sum, 1), 0)

        def of_leaf(c_k, c, w_t, w_k):
            return jnp.where(rate_sum > 0, c_k - c + inverse * (w_t - w_k), c_k)

        return jax.tree.map(of_leaf, client.control, server.control, server.params, local.params)

    def client_update(server, client, local):
        control = local.server_gradient if option == 1 else mean_path_gradient(server, client, local)
        message = Message(optax.tree.sub(local.params, server.params), optax.tree.sub(control, client.control))
        num_examples = jnp.asarray(local.num_examples, jnp.float32)
        weight = Message(jnp.ones(()) if uniform_weights else num_examples, jnp.ones(()))
        return ClientResult(message, weight, ClientState(control))

    def server_update(server, mean_message, participation):
        step, opt_state = server_opt.update(optax.tree.scale(-1, mean_message.delta), server.opt_state, server.params)
        # The cohort's mean times |S| / N is the sum over the cohort divided by N.
        control = optax.tree.add_scale(server.control, participation, mean_message.control_delta)
        return ServerState(optax.apply_updates(server.params, step), opt_state, control)

    def invariant(server, client_mean):
        return optax.tree.sub(server.control, client_mean.control)

    return FedAlgorithm(
        init,
        correct,
        client_update,
        server_update,
        optax.sgd(client_lr),
        CommunicationCost(2, 2),
        needs_server_gradient=option == 1,
        invariant=invariant,
    )
