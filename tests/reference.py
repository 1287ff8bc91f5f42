"""A federated simulator in plain NumPy: float64, loops only, gradients by hand, written from the papers' equations.

It knows nothing about the engine that it checks. Who takes part, for how many steps, and which rows each step reads
comes from outside: ``batches[round][client][step]`` is an array of row numbers. A client with no steps sits out.

Reference: McMahan et al. 2017, algorithm 1; Li et al. 2020 (FedProx), algorithm 2; Karimireddy et al. 2020
(SCAFFOLD), algorithm 1.
"""

from typing import NamedTuple

import numpy as np


class Method(NamedTuple):
    """Which equations to use. FedAvg is ``mu = 0`` without controls.

    Attributes:
      mu: FedProx's pull towards the global model.
      option: 0 = no control variates; 1 or 2 = SCAFFOLD's options I and II.
      uniform_weights: average the models with equal weights instead of n_k.
    """

    mu: float = 0.0
    option: int = 0
    uniform_weights: bool = False


class State(NamedTuple):
    """After a round: the model, SCAFFOLD's c, and c_k of every client. Each is a list of arrays."""

    params: list
    control: list
    controls: list


def scores(params, x):
    """Logits of a ReLU network whose layers are ``[W1, b1, W2, b2, ...]``; two arrays are logistic regression."""
    hidden = x
    for i in range(0, len(params) - 2, 2):
        hidden = np.maximum(hidden @ params[i] + params[i + 1], 0.0)
    return (hidden @ params[-2] + params[-1])[:, 0]


def gradient(params, x, y):
    """Gradient of the mean binary cross-entropy over the rows ``x``, ``y``: back-propagation written out."""
    inputs = [x]
    for i in range(0, len(params) - 2, 2):
        inputs.append(np.maximum(inputs[-1] @ params[i] + params[i + 1], 0.0))
    probability = 1.0 / (1.0 + np.exp(-scores(params, x)))
    error = ((probability - y) / len(y))[:, None]
    grads = []
    for i in range(len(params) - 2, -1, -2):
        grads = [inputs[i // 2].T @ error, error.sum(axis=0), *grads]
        error = (error @ params[i].T) * (inputs[i // 2] > 0)
    return grads


def combine(a, x, b, y):
    """``a x + b y``, array by array."""
    return [a * p + b * q for p, q in zip(x, y, strict=True)]


def train_client(start, x, y, batches, control, client_control, *, lr, method):
    """One client's local steps; returns its model and its next control variate."""
    params = start
    for rows in batches:
        step = gradient(params, x[rows], y[rows])
        step = combine(1.0, step, method.mu, combine(1.0, params, -1.0, start))
        if method.option:
            step = combine(1.0, step, 1.0, combine(1.0, control, -1.0, client_control))
        params = combine(1.0, params, -lr, step)
    if method.option == 1:
        visited = np.concatenate(batches)
        return params, gradient(start, x[visited], y[visited])
    if method.option == 2:
        path = combine(1.0 / (len(batches) * lr), start, -1.0 / (len(batches) * lr), params)
        return params, combine(1.0, combine(1.0, client_control, -1.0, control), 1.0, path)
    return params, client_control


def run_rounds(params, x, y, batches, num_examples, *, lr, method):
    """All rounds, one after the other.

    Args:
      params: list of arrays, the first global model.
      x, y: the rows of all clients.
      batches: row numbers of each round, client and step.
      num_examples: n_k of each client; a client with n_k = 0 exists only in this list.

    Returns: the ``State`` after each round.
    """
    params = [np.asarray(p, np.float64) for p in params]
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    zeros = [np.zeros_like(p) for p in params]
    state = State(params, zeros, [zeros for _ in num_examples])
    num_with_rows = sum(n > 0 for n in num_examples)
    history = []
    for this_round in batches:
        cohort = [k for k, steps in enumerate(this_round) if len(steps) > 0]
        weights = {k: 1.0 if method.uniform_weights else float(num_examples[k]) for k in cohort}
        model, control, controls = state.params, state.control, list(state.controls)
        for k in cohort:
            local, controls[k] = train_client(
                state.params, x, y, this_round[k], state.control, state.controls[k], lr=lr, method=method
            )
            change = combine(1.0, local, -1.0, state.params)
            model = combine(1.0, model, weights[k] / sum(weights.values()), change)
            change = combine(1.0, controls[k], -1.0, state.controls[k])
            control = combine(1.0, control, 1.0 / num_with_rows, change)
        state = State(model, control, controls)
        history.append(state)
    return history
