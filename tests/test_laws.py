"""Equalities that the methods' equations imply, whatever the data: oracles that need no second program."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_fraud import algorithms
from fedjax_fraud.algorithms.scaffold import Message, ServerState
from fedjax_fraud.testing.federations import (
    COUNTS,
    NUM_CLIENTS,
    NUM_SETTINGS,
    UNEQUAL,
    federations,
    of_setting,
    program,
    run_engine,
    table,
)
from tests import reference
from tests.test_reference import (
    AVERAGING,
    SCAFFOLD,
    SCAFFOLD_OPTION1,
    SCAFFOLD_WEIGHTED,
    TOLERANCE,
    close,
    plain_fedavg,
    to_list,
    uniform_fedavg,
)

# Two programs that compute the same numbers in another order: a few units in the last place per operation.
assert_close = functools.partial(chex.assert_trees_all_close, rtol=5e-6, atol=5e-6, strict=True)


def params_of(states):
    return [state.server.params for state in states]


# ---- FedAvg, FedProx --------------------------------------------------------------------------------------------


def test_fedprox_with_mu_zero_is_fedavg_bit_for_bit():
    feds = federations(**(UNEQUAL | {"mu": 0.0}))
    prox, _ = run_engine(program(AVERAGING), feds, 4)
    plain, _ = run_engine(program(plain_fedavg), feds, 4)
    for a, b in zip(prox, plain, strict=True):
        chex.assert_trees_all_equal(a, b, strict=True)


def test_one_local_step_is_fedavg_for_every_mu():
    """At the first step the model still is its anchor, so the pull is zero."""
    one_step = dict(counts=(2, 1, 2, 2, 0), seed=4, client_lr=0.3)
    pulled, _ = run_engine(program(AVERAGING), federations(mu=[0.0, 0.01, 1.0, 100.0], **one_step), 4)
    for params in params_of(pulled):
        for f in range(1, NUM_SETTINGS):
            chex.assert_trees_all_equal(of_setting(params, f), of_setting(params, 0), strict=True)


def test_the_first_fedprox_step_from_an_all_zero_model_is_finite():
    """The norm's gradient at zero is NaN; the pull is a difference, not a norm."""
    (state,), _ = run_engine(program(AVERAGING), federations(mu=[1e-3, 1.0, 10.0, 100.0]), 1)
    chex.assert_tree_all_finite(state)


def test_one_full_batch_step_on_all_clients_is_centralised_descent():
    """Seven rows, no client with more than one batch of them, weights n_k."""
    feds = federations(counts=[(2, 1, 2, 2, 0), (1, 1, 1, 2, 2), (2, 2, 2, 1, 0), (0, 2, 1, 2, 2)], client_lr=0.7)
    states, _ = run_engine(program(AVERAGING), feds, 4)
    x, y = feds.x[:7].astype(np.float64), feds.y[:7]
    params = to_list(of_setting(feds.params, 0))
    for state in states:
        params = [p - 0.7 * g for p, g in zip(params, reference.gradient(params, x, y), strict=True)]
        for f in range(NUM_SETTINGS):
            close(to_list(of_setting(state.server.params, f)), params, TOLERANCE)


def test_fedprox_keeps_clients_within_gradient_bound_over_mu():
    """norm(w_k - w_t) <= G / mu, if no gradient is longer than G and rate x mu <= 1.

    One logistic row's gradient is (p - y) (x, 1), so G is the length of the longest (x, 1).
    """
    x, _ = table()
    bound = np.sqrt((x**2).sum(axis=1) + 1).max()
    mu = np.array([0.5, 1.0, 2.0, 10.0], np.float32)
    feds = federations(
        mu=mu, client_lr=1 / mu, num_epochs=[1, 5, 20, 20], participation=[1.0, 0.5, 1.0, 0.5], seed=range(4)
    )
    _, histories = run_engine(program(AVERAGING), feds, 6)
    longest = np.array([history.delta_norm_max for history in histories])
    assert (longest <= bound / mu * (1 + 1e-6)).all()
    assert (longest > 0).all()


# ---- SCAFFOLD ---------------------------------------------------------------------------------------------------


def test_the_first_round_of_scaffold_is_uniform_fedavg():
    feds = federations(**UNEQUAL)
    (controlled,), _ = run_engine(program(SCAFFOLD), feds, 1)
    (averaged,), _ = run_engine(program(uniform_fedavg), feds, 1)
    assert_close(controlled.server.params, averaged.server.params)


def test_the_first_round_of_weighted_scaffold_is_fedavg():
    feds = federations(**(UNEQUAL | {"mu": 0.0}))
    (controlled,), _ = run_engine(program(SCAFFOLD_WEIGHTED), feds, 1)
    (averaged,), _ = run_engine(program(AVERAGING), feds, 1)
    assert_close(controlled.server.params, averaged.server.params)


@pytest.mark.parametrize("build", [SCAFFOLD, SCAFFOLD_OPTION1, SCAFFOLD_WEIGHTED])
def test_scaffold_with_one_client_is_fedavg(build):
    counts = [(24, 0, 0, 0, 0), (0, 0, 24, 0, 0), (0, 0, 0, 0, 9), (1, 0, 0, 0, 0)]
    feds = federations(counts=counts, num_epochs=[1, 1, 3, 2], seed=3, client_lr=0.2)
    controlled, _ = run_engine(program(build), feds, 5)
    averaged, _ = run_engine(program(AVERAGING), feds, 5)
    for a, b in zip(params_of(controlled), params_of(averaged), strict=True):
        # The controls cancel: (g - c_k) + c, where both have come from a difference over (steps x rate >= 0.2).
        chex.assert_trees_all_close(a, b, rtol=2e-5, atol=2e-5, strict=True)


@pytest.mark.parametrize("build", [SCAFFOLD, SCAFFOLD_OPTION1, SCAFFOLD_WEIGHTED])
def test_scaffold_with_identical_clients_is_fedavg(build):
    """The same four rows, and the same identity, hence the same batches."""
    x, y = table()
    rows = np.tile(np.arange(4), 6)
    feds = federations(
        x=x[rows], y=y[rows], counts=(4, 4, 4, 4, 4), client_id=(0, 0, 0, 0, 0), num_epochs=[1, 2, 3, 4], client_lr=0.2
    )
    controlled, _ = run_engine(program(build), feds, 5)
    averaged, _ = run_engine(program(AVERAGING), feds, 5)
    for a, b in zip(params_of(controlled), params_of(averaged), strict=True):
        chex.assert_trees_all_close(a, b, rtol=2e-5, atol=2e-5, strict=True)


@pytest.mark.parametrize("build", [SCAFFOLD, SCAFFOLD_OPTION1, SCAFFOLD_WEIGHTED])
def test_the_server_control_is_the_mean_of_the_client_controls_under_any_participation(build):
    """After every round of twenty seeds, over the clients that hold rows."""
    for first in range(0, 20, NUM_SETTINGS):
        feds = federations(
            counts=[COUNTS, (3, 0, 9, 0, 12), (1, 1, 1, 1, 20), (8, 8, 8, 0, 0)],
            seed=np.arange(first, first + NUM_SETTINGS),
            participation=[0.2, 0.5, 0.7, 0.4],
            client_lr=[0.5, 0.2, 0.1, 0.3],
        )
        states, histories = run_engine(program(build), feds, 6)
        has_rows = feds.counts > 0
        for state, history in zip(states, histories, strict=True):
            assert (np.asarray(history.num_participants) < has_rows.sum(axis=1)).all()
            for c, c_k in zip(
                jax.tree.leaves(state.server.control), jax.tree.leaves(state.clients.control), strict=True
            ):
                of_holders = np.where(has_rows.reshape(*has_rows.shape, *[1] * (c_k.ndim - 2)), c_k, 0)
                mean = of_holders.sum(axis=1) / has_rows.sum(axis=1).reshape(-1, *[1] * (c.ndim - 1))
                np.testing.assert_allclose(c, mean, rtol=2e-6, atol=2e-6)
                np.testing.assert_array_equal(np.asarray(c_k)[~has_rows], 0)


def test_scaffold_controls_start_at_zeros_of_the_parameters_structure():
    params = {"kernel": jnp.ones((3, 1)), "bias": jnp.ones(1)}
    state = algorithms.scaffold(0.1).init(params, 5)
    chex.assert_trees_all_equal(state.server.control, jax.tree.map(jnp.zeros_like, params), strict=True)
    stacked = jax.tree.map(lambda leaf: jnp.zeros((5, *leaf.shape)), params)
    chex.assert_trees_all_equal(state.clients.control, stacked, strict=True)


# ---- every method -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [AVERAGING, SCAFFOLD, SCAFFOLD_OPTION1, SCAFFOLD_WEIGHTED])
def test_the_order_of_the_clients_does_not_matter(build):
    """Clients move with their rows and their identity; only the summation order changes."""
    order = np.stack([np.arange(NUM_CLIENTS), [4, 3, 2, 1, 0], [2, 0, 4, 1, 3], [1, 4, 0, 3, 2]])
    start = np.cumsum(COUNTS) - COUNTS
    feds = federations(
        counts=np.asarray(COUNTS)[order],
        start=start[order],
        client_id=order,
        seed=11,
        participation=0.5,
        num_epochs=2,
        client_lr=0.2,
        mu=0.3,
    )
    states, _ = run_engine(program(build), feds, 4)
    for state in states:
        for f in range(1, NUM_SETTINGS):
            assert_close(of_setting(state.server, f), of_setting(state.server, 0))
            clients = jax.tree.map(lambda leaf, f=f: leaf[0][order[f]], state.clients)
            assert_close(of_setting(state.clients, f), clients)


FACTORIES = [
    lambda server_opt: algorithms.fedavg(optax.sgd(0.1), server_opt),
    lambda server_opt: algorithms.fedprox(optax.sgd(0.1), server_opt, mu=0.1),
    lambda server_opt: algorithms.scaffold(0.1, server_opt),
]


def recording_optimizer(seen):
    """An optimizer that keeps what it is fed and changes nothing."""

    def update(updates, state, params=None):
        seen.append((updates, params))
        return jax.tree.map(jnp.zeros_like, updates), state

    return optax.GradientTransformation(lambda params: (), update)


def server_step(factory, server_opt, params, delta):
    """The server's model after one step on a mean change ``delta``."""
    algorithm = factory(server_opt)
    server = algorithm.init(params, 2).server
    message = Message(delta, delta) if isinstance(server, ServerState) else delta
    return algorithm.server_update(server, message, jnp.float32(1.0)).params


@pytest.mark.parametrize("factory", FACTORIES)
def test_server_optimizers_are_fed_minus_the_mean_delta(factory):
    params, delta = {"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([0.5, -0.25])}
    seen = []
    server_step(factory, recording_optimizer(seen), params, delta)
    chex.assert_trees_all_equal(seen, [({"w": -delta["w"]}, params)], strict=True)


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize(
    "server_opt, wanted",
    [(None, [1.5, 1.75]), (optax.sgd(0.1), [1.05, 1.975]), (optax.adam(0.1), [1.1, 1.9])],
    ids=["default", "sgd", "adam"],
)
def test_server_optimizers_move_the_model_along_the_clients_change(factory, server_opt, wanted):
    params, delta = {"w": jnp.array([1.0, 2.0])}, {"w": jnp.array([0.5, -0.25])}
    np.testing.assert_allclose(server_step(factory, server_opt, params, delta)["w"], wanted, rtol=1e-6)
