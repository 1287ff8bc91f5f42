"""SCAFFOLD on problems that can be worked by hand: step counts, controls, drop-outs, refusals."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_fraud import algorithms, models
from fedjax_fraud.simulate import simulate
from fedjax_fraud.testing.federations import program, run_engine
from fedjax_fraud.types import LocalWork, Partition, Transactions
from tests.test_reference import (
    IDENT_X,
    IDENT_Y,
    QUAD,
    SCAFFOLD,
    SCAFFOLD_OPTION1,
    SCAFFOLD_WEIGHTED,
    Quadratic,
    ident,
    ident_rounds,
    models_of,
    run_quadratics,
)

IDENT_UNIFORM = [(-0.29022968, -0.06154259), (-0.44697211, 0.09175318), (-0.53542874, 0.23421312)]
IDENT_WEIGHTED = [(-0.37116857, -0.33231621), (-0.56516556, -0.07899967), (-0.66928744, 0.16521017)]
IDENT_CONTROL = (0.14056487, -0.15445372)
QUAD_MINIMUM, QUAD_CONTROLS = 0.2857142857, (0.285714, -5.428571, 5.142857)


@pytest.mark.parametrize("build, wanted", [(SCAFFOLD, IDENT_UNIFORM), (SCAFFOLD_WEIGHTED, IDENT_WEIGHTED)])
def test_scaffold_on_ident_divides_by_the_steps_that_each_client_made(build, wanted):
    states, _ = run_engine(program(build), ident(seed=range(4)), 3)
    for f in range(4):
        np.testing.assert_allclose(ident_rounds(states, f), wanted, atol=1e-6)
        np.testing.assert_allclose(ident_rounds(states, f, "control")[0], IDENT_CONTROL, atol=1e-6)


def test_option_one_on_ident_takes_the_gradient_at_the_global_model():
    """At zero each client's gradient is (1/2 - y) (x, 1)."""
    (state,), _ = run_engine(program(SCAFFOLD_OPTION1), ident(), 1)
    control = jax.tree.map(lambda leaf: np.asarray(leaf[0]), state.clients.control)
    np.testing.assert_allclose(control["kernel"][:3, 0, 0], [-0.5, 1.0, 0.25], atol=1e-6)
    np.testing.assert_allclose(control["bias"][:3, 0], [-0.5, -0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(ident_rounds([state])[0], IDENT_UNIFORM[0], atol=1e-6)


def test_simulate_gives_the_ident_values_of_scaffold_too():
    """The public entry, on the bare three clients."""
    train = Transactions(IDENT_X.astype(np.float32), IDENT_Y.astype(np.int32), ("x",))
    partition = Partition(np.arange(12), np.array([0, 2, 5]), np.array([2, 3, 7]))
    state, _ = simulate(
        algorithms.scaffold(0.5), models.logistic_regression(1), train, partition, num_rounds=3, batch_size=2
    )
    got = state.server.params["kernel"][0, 0], state.server.params["bias"][0]
    np.testing.assert_allclose(got, IDENT_UNIFORM[2], atol=1e-6)


@pytest.mark.parametrize("build", [SCAFFOLD, SCAFFOLD_OPTION1])
def test_scaffold_settles_at_the_minimum_on_quad(build):
    states, _ = run_quadratics(build, [QUAD], 200)
    np.testing.assert_allclose(models_of(states)[-1, 0], QUAD_MINIMUM, atol=1e-6)
    np.testing.assert_allclose(states[-1].server.control["w"][0], 0, atol=1e-5)
    np.testing.assert_allclose(states[-1].clients.control["w"][0], QUAD_CONTROLS, atol=1e-5)


@pytest.mark.parametrize("build", [SCAFFOLD, SCAFFOLD_OPTION1])
def test_scaffold_stays_at_its_fixed_point_on_quad(build):
    controls = (0.0, np.array([2 / 7, -38 / 7, 36 / 7]))
    states, _ = run_quadratics(build, [QUAD._replace(w0=2 / 7)], 5, controls)
    np.testing.assert_allclose(models_of(states)[:, 0], 2 / 7, atol=1e-6)
    for state in states:
        np.testing.assert_allclose(state.server.control["w"][0], 0, atol=1e-5)
        np.testing.assert_allclose(state.clients.control["w"][0], QUAD_CONTROLS, atol=1e-5)


@pytest.fixture(scope="module")
def karimireddy_pair():
    """w ``[rounds, cases]`` for K = 1, 2, 10 steps, G = 1 and then G = 10."""
    cases = [
        Quadratic((start, start + 1, 0), (1, 1, 0), w0=1.0, lr=0.1, num_epochs=num_steps)
        for start in (3, 5)
        for num_steps in (1, 2, 10)
    ]
    return models_of(run_quadratics(SCAFFOLD, cases, 200)[0])


def test_scaffold_with_one_step_is_gradient_descent_on_the_published_pair(karimireddy_pair):
    rounds = np.arange(1, 51)
    for case in (0, 3):
        np.testing.assert_allclose(karimireddy_pair[:50, case], 0.9**rounds, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    "after, wanted, atol",
    [
        (1, [0.83, 0.92, 0.8305306, 3.3221225], 1e-6),
        (5, [0.3547708, 0.3963385, -0.0482711, -0.0992092], 5e-6),
        (20, [0.0145263, 0.0162283, 4.171e-06, 1.664e-05], 5e-6),
        (200, [0, 0, 0, 0], 5e-6),
    ],
)
def test_scaffold_follows_the_published_pair(karimireddy_pair, after, wanted, atol):
    """Absolute tolerance: gradients of up to G = 10 cancel in float32, 10 x 6e-8 a step."""
    np.testing.assert_allclose(karimireddy_pair[after - 1, [1, 4, 2, 5]], wanted, atol=atol)


def test_a_drop_out_commits_nothing():
    """It keeps its control, and the server takes only the others' changes, over all clients."""
    two_of_three = QUAD._replace(work=(1, 0, 1), num_epochs=1, lr=0.1)
    (state,), _ = run_quadratics(SCAFFOLD, [two_of_three])
    # One step from 1.0: gradients 1 and 8, hence controls 1 and 8, and c = (1 + 8) / 3.
    np.testing.assert_allclose(state.clients.control["w"][0], [1, 0, 8], rtol=1e-5)
    np.testing.assert_allclose(state.server.control["w"][0], 3, rtol=1e-5)
    np.testing.assert_allclose(state.server.params["w"][0], 1 - 0.45, rtol=1e-6)


@pytest.mark.parametrize("build", [SCAFFOLD, SCAFFOLD_OPTION1])
def test_a_round_without_clients_leaves_model_and_controls(build):
    nobody = QUAD._replace(work=(0, 0, 0))
    states, histories = run_quadratics(build, [nobody, nobody._replace(count=(0, 0, 0))], 2, (1.0, np.arange(3)))
    for state, history in zip(states, histories, strict=True):
        np.testing.assert_array_equal(state.server.params["w"][:2], 1)
        np.testing.assert_array_equal(state.server.control["w"][:2], 1)
        np.testing.assert_array_equal(state.clients.control["w"][:2], [[0, 1, 2]] * 2)
        assert history.skipped[:2].all()


@pytest.mark.parametrize("build", [SCAFFOLD, SCAFFOLD_OPTION1])
@pytest.mark.parametrize("row", [108, 110], ids=["NaN row", "overflow"])
def test_a_client_whose_update_is_not_finite_keeps_its_control(build, row):
    bad = Quadratic((0, 1, row), (1, 1, 2), w0=1.0, lr=0.1)
    good = bad._replace(work=(1, 1, 0))
    states, histories = run_quadratics(build, [bad, good], 3)
    for state, history in zip(states, histories, strict=True):
        chex.assert_tree_all_finite(state)
        chex.assert_trees_all_equal(*(jax.tree.map(lambda leaf, f=f: leaf[f], state) for f in (0, 1)), strict=True)
        assert state.clients.control["w"][0, 2] == 0
        np.testing.assert_array_equal(history.num_rejected[:2], [1, 0])


@pytest.mark.parametrize("build", [SCAFFOLD, SCAFFOLD_OPTION1])
def test_rate_zero_gives_no_nan_and_no_movement(build):
    states, histories = run_quadratics(build, [QUAD._replace(lr=0.0)], 3)
    np.testing.assert_array_equal(models_of(states)[:, 0], 1)
    chex.assert_tree_all_finite(states)
    assert not histories[0].skipped[0]
    if build is SCAFFOLD:
        np.testing.assert_array_equal(states[-1].clients.control["w"][0], 0)


@pytest.mark.parametrize(
    "client_lr",
    [optax.sgd(0.1, momentum=0.9), optax.adam(0.1), optax.sgd(0.1), optax.exponential_decay(0.1, 1, 0.5)],
    ids=["momentum", "adam", "sgd", "rate that halves every step"],
)
@pytest.mark.parametrize("option", [1, 2])
def test_an_optimizer_or_a_schedule_is_refused(client_lr, option):
    with pytest.raises(TypeError, match=r"`client_lr` must be a number"):
        algorithms.scaffold(client_lr, option=option)


@pytest.mark.parametrize("option", [0, 3, -1])
def test_an_unknown_option_is_refused(option):
    with pytest.raises(ValueError, match=r"`option` must be 1 or 2, got"):
        algorithms.scaffold(0.1, option=option)


def test_the_control_is_the_mean_gradient_of_the_path():
    """S steps of plain SGD along given raw gradients, corrected by c - c_k: option II gives back their mean."""
    rate, gradients, c_k, c = 0.1, np.array([3.0, -1.0, 4.0, 0.5], np.float32), 2.0, -1.0
    algorithm = algorithms.scaffold(rate)
    state = algorithm.init({"w": jnp.float32(5.0)}, 1)
    server = state.server._replace(control={"w": jnp.float32(c)})
    client = jax.tree.map(lambda leaf: jnp.full_like(leaf[0], c_k), state.clients)
    w = 5.0
    for g in gradients:
        w = w - rate * algorithm.correct({"w": g}, None, server, client)["w"]
    np.testing.assert_allclose(w, 5.0 - rate * (gradients - c_k + c).sum(), rtol=1e-6)
    result = algorithm.client_update(server, client, LocalWork({"w": w}, 4, 9))
    np.testing.assert_allclose(result.client.control["w"], gradients.mean(), rtol=1e-5)
    np.testing.assert_allclose(result.message.control_delta["w"], gradients.mean() - c_k, rtol=1e-5)
    np.testing.assert_allclose(result.message.delta["w"], w - 5.0, rtol=1e-6)


def test_controls_are_averaged_evenly_even_if_models_are_weighted():
    algorithm = algorithms.scaffold(0.1, uniform_weights=False)
    state = algorithm.init({"w": jnp.float32(0.0)}, 1)
    client = jax.tree.map(lambda leaf: leaf[0], state.clients)
    weight = algorithm.client_update(state.server, client, LocalWork({"w": jnp.float32(1.0)}, 4, 9)).weight
    assert (float(weight.delta), float(weight.control_delta)) == (9.0, 1.0)
