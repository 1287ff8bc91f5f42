"""A federated simulator in plain NumPy: float64, loops only, gradients by hand, written from the papers' equations.

It knows nothing about the engine that it checks. Who takes part, for how many steps, and which rows each step reads
comes from outside: ``batches[round][client][step]`` is an array of row numbers. A client with no steps sits out.

``run_rounds`` is FedAvg, FedProx and SCAFFOLD. The other methods are written out one by one below it; each returns,
for every round, what the engine's state must hold, by the name of the field.

Reference: McMahan et al. 2017, algorithm 1; Li et al. 2020 (FedProx), algorithm 2 and section 5.3.2; Karimireddy et
al. 2020 (SCAFFOLD), algorithm 1; Reddi et al. 2021 (FedOpt), algorithm 2; Hsu et al. 2019 (FedAvgM); Wang et al. 2020
(FedNova); Acar et al. 2021 (FedDyn), algorithm 1; Karimireddy et al. 2021 (MimeLite), algorithm 1; Li et
al. 2021 (Ditto), algorithm 1.
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


# ---- the other methods ------------------------------------------------------------------------------------------


def loss(params, x, y):
    """Mean binary cross-entropy."""
    z = scores(params, x)
    return np.mean(np.logaddexp(0, z) - y * z)


def minus(x, y):
    """``x - y``, array by array."""
    return combine(1.0, x, -1.0, y)


def zeros_like(params):
    return [np.zeros_like(p) for p in params]


def average(weights, lists):
    """The weighted mean of lists of arrays."""
    return [
        sum(w * a for w, a in zip(weights, arrays, strict=True)) / sum(weights) for arrays in zip(*lists, strict=True)
    ]


def descend(params, x, y, batches, lr, direction):
    """One step along minus ``direction(gradient, params)`` for each batch."""
    for rows in batches:
        params = combine(1.0, params, -lr, direction(gradient(params, x[rows], y[rows]), params))
    return params


def plain(grads, params):
    """The direction of SGD."""
    return grads


def cohorts(batches):
    """The clients of each round that make steps, and their batches: ``{client: [rows, ...]}``."""
    return [{k: steps for k, steps in enumerate(this_round) if len(steps) > 0} for this_round in batches]


def fedopt(params, x, y, batches, num_examples, *, lr, rule, server_lr, beta1, beta2=0.99, tau=1e-3):
    """``rule``: avgm, adagrad, adam or yogi."""
    m, v = zeros_like(params), [np.full_like(p, tau**2, np.float64) for p in params]
    history = []
    for cohort in cohorts(batches):
        deltas = [minus(descend(params, x, y, steps, lr, plain), params) for steps in cohort.values()]
        delta = average([num_examples[k] for k in cohort], deltas)
        if rule == "avgm":
            m = combine(beta1, m, 1.0, delta)
            params = combine(1.0, params, server_lr, m)
        else:
            m = combine(beta1, m, 1 - beta1, delta)
            square = [d**2 for d in delta]
            if rule == "adagrad":
                v = combine(1.0, v, 1.0, square)
            elif rule == "adam":
                v = combine(beta2, v, 1 - beta2, square)
            else:
                sign = [np.sign(a - b) for a, b in zip(v, square, strict=True)]
                v = [a - (1 - beta2) * b * s for a, b, s in zip(v, square, sign, strict=True)]
            params = [p + server_lr * a / (np.sqrt(b) + tau) for p, a, b in zip(params, m, v, strict=True)]
        history.append({"server.params": params})
    return history


def fednova(params, x, y, batches, num_examples, *, lr):
    """Plain SGD at the clients: ||a_k||_1 is the number of steps."""
    history = []
    for cohort in cohorts(batches):
        weights = [num_examples[k] for k in cohort]
        steps = [len(rows) for rows in cohort.values()]
        effective = sum(w * s for w, s in zip(weights, steps, strict=True)) / sum(weights)
        directions = [
            combine(1 / len(rows), descend(params, x, y, rows, lr, plain), -1 / len(rows), params)
            for rows in cohort.values()
        ]
        params = combine(1.0, params, effective, average(weights, directions))
        history.append({"server.params": params})
    return history


def feddyn(params, x, y, batches, num_examples, *, lr, mu):
    """mu = 0 is the plain mean of the models."""
    h, h_k = zeros_like(params), [zeros_like(params) for _ in num_examples]
    num_with_rows = sum(n > 0 for n in num_examples)
    history = []
    for cohort in cohorts(batches):
        models, start = [], params
        for k, steps in cohort.items():

            def bent(grads, w, memory=h_k[k], start=start):
                return combine(1.0, minus(grads, memory), mu, minus(w, start))

            models.append(descend(start, x, y, steps, lr, bent))
            h_k[k] = combine(1.0, h_k[k], -mu, minus(models[-1], start))
            h = combine(1.0, h, -mu / num_with_rows, minus(models[-1], start))
        params = average([1.0] * len(models), models)
        params = params if mu == 0 else combine(1.0, params, -1 / mu, h)
        history.append({"server.params": params, "server.gradient": h, "clients.gradient": list(h_k)})
    return history


def mimelite(params, x, y, batches, num_examples, *, lr, beta=0.9):
    """Equal weights."""
    m = zeros_like(params)
    history = []
    for cohort in cohorts(batches):
        uniform = [1.0] * len(cohort)
        frozen = m
        models = [
            descend(params, x, y, steps, lr, lambda grads, w, m=frozen: combine(1 - beta, grads, beta, m))
            for steps in cohort.values()
        ]
        at_server = [gradient(params, x[rows], y[rows]) for rows in map(np.concatenate, cohort.values())]
        m = combine(1 - beta, average(uniform, at_server), beta, m)
        params = average(uniform, models)
        history.append({"server.params": params, "server.momentum": m})
    return history


def ditto(params, x, y, batches, num_examples, *, lr, mu):
    """The global model is FedAvg's."""
    personal = [params for _ in num_examples]
    history = []
    for cohort in cohorts(batches):
        for k, steps in cohort.items():

            def pulled(grads, v, anchor=params):
                return combine(1.0, grads, mu, minus(v, anchor))

            personal[k] = descend(personal[k], x, y, steps, lr, pulled)
        models = [descend(params, x, y, steps, lr, plain) for steps in cohort.values()]
        params = average([num_examples[k] for k in cohort], models)
        history.append({"server.params": params, "clients.personal": list(personal)})
    return history


def adaptive_fedprox(params, x, y, batches, num_examples, *, lr, mu, step=0.1, patience=5):
    """mu follows the cohort's loss at the global model."""
    before, falls = None, 0
    history = []
    for cohort in cohorts(batches):
        weights = [num_examples[k] for k in cohort]

        def pulled(grads, w, anchor=params, mu=mu):
            return combine(1.0, grads, mu, minus(w, anchor))

        models = [descend(params, x, y, steps, lr, pulled) for steps in cohort.values()]
        losses = [loss(params, x[rows], y[rows]) for rows in map(np.concatenate, cohort.values())]
        now = np.average(losses, weights=weights)
        falls = falls + 1 if before is not None and now < before else 0
        if before is not None and now > before:
            mu = mu + step
        if falls == patience:
            mu, falls = max(mu - step, 0.0), 0
        before, params = now, average(weights, models)
        history.append({"server.params": params, "server.mu": [np.array(mu)], "server.loss": [np.array(now)]})
    return history
