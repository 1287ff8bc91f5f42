"""Ditto: an untouched global model, and personal ones between it and a client on its own."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_fraud import algorithms, local
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.testing.federations import (
    COUNTS,
    LOGISTIC,
    NUM_CLIENTS,
    NUM_SETTINGS,
    UNEQUAL,
    federations,
    logistic_params,
    of_setting,
    program,
    run_engine,
    table,
)
from tests.test_reference import AVERAGING, QUAD, QUICK, Quadratic, plain_fedavg, run_quadratics

DITTO = ALGORITHMS["ditto"].build


def test_the_global_model_is_fedavgs_bit_for_bit():
    feds = federations(**UNEQUAL)
    with_own, _ = run_engine(program(DITTO), feds, 4)
    plain, _ = run_engine(program(plain_fedavg), feds, 4)
    for a, b in zip(with_own, plain, strict=True):
        chex.assert_trees_all_equal(a.server, b.server, strict=True)


def test_without_a_pull_every_client_trains_alone():
    """Four clients' personal models are four federations of that client alone, over several rounds."""
    sizes = dict(seed=6, num_epochs=2, client_lr=0.2)
    together, _ = run_engine(program(DITTO), federations(counts=COUNTS, mu=0.0, **sizes), 4)
    start = np.broadcast_to(np.cumsum(COUNTS) - COUNTS, (NUM_SETTINGS, NUM_CLIENTS))
    alone, _ = run_engine(program(plain_fedavg), federations(counts=np.diag(COUNTS)[:4], start=start, **sizes), 4)
    for state, own in zip(together, alone, strict=True):
        personal = jax.tree.map(lambda leaf: leaf[0, :4], state.clients.personal)
        chex.assert_trees_all_close(personal, own.server.params, rtol=2e-6, atol=2e-6, strict=True)


@pytest.fixture(scope="module")
def settled():
    """QUAD under mu = 0, 1, 10 and 30, where nothing moves any more."""
    states, _ = run_quadratics(DITTO, [QUAD._replace(mu=mu) for mu in (0.0, 1.0, 10.0, 30.0)], 200)
    return states[-1]


def test_personal_models_settle_between_their_own_minimum_and_the_global_model(settled):
    """At (h b + mu w) / (h + mu), and w where FedAvg settles."""
    h, b, w = np.array([1.0, 2, 4]), np.array([0.0, 3, -1]), 0.4252210532
    np.testing.assert_allclose(settled.server.params["w"][:4], w, atol=1e-6)
    for f, mu in enumerate((0.0, 1.0, 10.0, 30.0)):
        np.testing.assert_allclose(settled.clients.personal["w"][f], (h * b + mu * w) / (h + mu), atol=2e-5)


def test_a_stronger_pull_keeps_personal_models_nearer(settled):
    distance = np.abs(settled.clients.personal["w"][:4] - settled.server.params["w"][:4, None])
    assert (np.diff(distance, axis=0) < 0).all()
    assert (distance[3] < 0.5).all()


def test_personal_models_start_at_the_global_one_and_rest_while_their_client_does():
    case = QUAD._replace(work=(1, 0, 1), mu=0.5)
    first, second = run_quadratics(DITTO, [case], 2)[0]
    for state in (first, second):
        assert state.clients.personal["w"][0, 1] == 1.0
    assert (first.clients.personal["w"][0, [0, 2]] != second.clients.personal["w"][0, [0, 2]]).all()


@pytest.mark.parametrize("row", [108, 110], ids=["NaN row", "overflow"])
def test_a_client_whose_update_is_not_finite_keeps_its_personal_model(row):
    bad = Quadratic((0, 1, row), (1, 1, 2), w0=1.0, lr=0.1, mu=0.5)
    states, histories = run_quadratics(DITTO, [bad], 2)
    for state, history in zip(states, histories, strict=True):
        chex.assert_tree_all_finite(state)
        assert state.clients.personal["w"][0, 2] == 1.0
        assert history.num_rejected[0] == 1


def test_each_model_has_an_optimizer_state_of_its_own():
    """Without a pull and from one start both models take the same steps, whatever the optimizer; a state in common
    would have counted each gradient twice."""
    x, y = table()
    data = jax.tree.map(jnp.asarray, local.make_training_data(x, y, np.arange(24)[None]))
    algorithm = algorithms.ditto(optax.adam(0.1), mu=0.0)
    state = algorithm.init(logistic_params(), 1)
    mine = of_setting(state.clients, 0)
    zero = jnp.int32(0)
    task = local.ClientTask(zero, zero, jnp.int32(9), jnp.int32(5), zero, zero, jnp.uint32(3))
    chunk = functools.partial(
        local.local_chunk, algorithm, local.Objective(LOGISTIC.apply, batch_size=4), data, chunk_length=6
    )
    start = local.start_local(algorithm, state.server.params, mine)
    after = jax.jit(chunk, compiler_options=QUICK)(task, state.server, mine, start)
    chex.assert_trees_all_close(after.personal, after.params, rtol=1e-6, strict=True)
    chex.assert_trees_all_close(after.personal_opt_state, after.opt_state, rtol=1e-6, strict=True)
    assert after.opt_state[0].count == 5


def test_the_pull_is_towards_the_global_model_of_the_round():
    algorithm = algorithms.ditto(optax.sgd(0.1), mu=2.0)
    server = algorithm.init({"w": jnp.float32(1.0)}, 1).server
    pulled = algorithm.correct_personal({"w": jnp.float32(0.5)}, {"w": jnp.float32(3.0)}, server, ())
    np.testing.assert_allclose(pulled["w"], 0.5 + 2.0 * 2.0)


def test_ditto_shares_averaging_with_no_other_build():
    assert DITTO != AVERAGING
