"""MimeLite: a momentum that stands still within a round."""

import chex
import jax.numpy as jnp
import numpy as np

from fedjax_fraud import algorithms
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.testing.federations import UNEQUAL, federations, program, run_engine
from fedjax_fraud.types import LocalWork
from tests.test_reference import QUAD, Quadratic, models_of, run_quadratics, uniform_fedavg

MIMELITE = ALGORITHMS["mimelite"].build


def without_momentum(hyper):
    return algorithms.mimelite(hyper["client_lr"], momentum=0.0)


def test_without_momentum_mimelite_is_uniform_fedavg():
    feds = federations(**UNEQUAL)
    mimed, _ = run_engine(program(without_momentum), feds, 3)
    plain, _ = run_engine(program(uniform_fedavg), feds, 3)
    for a, b in zip(mimed, plain, strict=True):
        chex.assert_trees_all_close(a.server.params, b.server.params, rtol=2e-6, atol=2e-6, strict=True)


def test_the_first_step_goes_a_tenth_of_the_way_and_the_momentum_stands_still():
    """(w - 10)^2 / 2 at rate 1, two steps a round, beta = 0.9.

    Round 1, m = 0: 0 + 1 = 1, then 1 + 0.9 = 1.9; m = 0.1 x -10 = -1.
    Round 2: 1.9 + 0.81 + 0.9 = 3.61, then 3.61 + 0.639 + 0.9 = 5.149; m = -0.81 - 0.9.
    """
    case = Quadratic((7, 0, 0), (1, 0, 0), 0.0, lr=1.0, num_epochs=2)
    states, _ = run_quadratics(MIMELITE, [case], 2)
    np.testing.assert_allclose(models_of(states)[:, 0], [1.9, 5.149], rtol=1e-6)
    np.testing.assert_allclose([s.server.momentum["w"][0] for s in states], [-1.0, -1.71], rtol=1e-6)


def test_one_step_a_round_is_central_momentum():
    """Every client's step is rate x ((1 - beta) g_k + beta m), and the mean of these is the next m."""
    states, _ = run_quadratics(MIMELITE, [QUAD._replace(num_epochs=1)], 30)
    h, b = np.array([1.0, 2, 4]), np.array([0.0, 3, -1])
    w, m = 1.0, 0.0
    for got in models_of(states)[:, 0]:
        m = 0.1 * np.mean(h * (w - b)) + 0.9 * m
        w = w - 0.05 * m
        np.testing.assert_allclose(got, w, rtol=1e-5)


def test_the_momentum_is_made_of_gradients_at_the_global_model():
    """However many steps: slopes 1, -4 and 8 at w = 1; a client that sits out adds none."""
    cases = [QUAD._replace(num_epochs=n, work=work) for n in (1, 5) for work in ((1, 1, 1), (1, 0, 1))]
    (state,), _ = run_quadratics(MIMELITE, cases)
    np.testing.assert_allclose(state.server.momentum["w"][:4], [0.5 / 3, 0.45, 0.5 / 3, 0.45], rtol=1e-5)


def test_rate_zero_and_rounds_without_clients_move_no_model():
    states, _ = run_quadratics(MIMELITE, [QUAD._replace(lr=0.0), QUAD._replace(work=(0, 0, 0))], 3)
    np.testing.assert_array_equal(models_of(states)[:, :2], 1)
    np.testing.assert_array_equal(states[-1].server.momentum["w"][1], 0)
    chex.assert_tree_all_finite(states)


def test_weights_are_equal_unless_rows_are_asked_for():
    for uniform, wanted in ((True, 1.0), (False, 9.0)):
        algorithm = algorithms.mimelite(0.1, uniform_weights=uniform)
        params = {"w": jnp.float32(0)}
        server = algorithm.init(params, 1).server
        assert algorithm.client_update(server, (), LocalWork(params, 4, 9, params)).weight == wanted
