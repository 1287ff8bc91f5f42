"""FedDyn on problems that can be worked by hand."""

import chex
import numpy as np
import pytest

from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.testing.federations import UNEQUAL, federations, program, run_engine
from tests.test_reference import QUAD, Quadratic, models_of, run_quadratics, uniform_fedavg

FEDDYN = ALGORITHMS["feddyn"].build


def test_a_first_round_worked_by_hand():
    """One step at rate 0.1 from 1, slopes 1, -4 and 8: models 0.9, 1.4 and 0.2, mean change -1/6; h_k is -mu times
    the change, h their mean, and h / mu moves the model once more by -1/6."""
    (state,), _ = run_quadratics(FEDDYN, [QUAD._replace(num_epochs=1, lr=0.1, mu=mu) for mu in (0.5, 0.01)])
    np.testing.assert_allclose(state.server.params["w"][:2], 1 - 2 / 6, rtol=1e-5)
    np.testing.assert_allclose(state.clients.gradient["w"][0], [0.05, -0.2, 0.4], rtol=1e-5)
    np.testing.assert_allclose(state.server.gradient["w"][0], 0.25 / 3, rtol=1e-5)


def test_a_second_step_is_pulled_back_and_bent():
    """(w - 10)^2 / 2 from 0 at rate 0.1: the second step's slope is -9 + mu 1."""
    case = Quadratic((7, 0, 0), (1, 0, 0), 0.0, lr=0.1, mu=2.0, num_epochs=2)
    states, _ = run_quadratics(FEDDYN, [case], 2)
    # Round 1: 1.0, then 1 + 0.1 (9 - 2) = 1.7; h_k = -3.4 = h, and the server adds 3.4 / 2.
    np.testing.assert_allclose(states[0].server.params["w"][0], 3.4, rtol=1e-5)
    # Round 2: the slope w - 10 gains +3.4: 3.4 + 0.32 = 3.72, then + 0.1 (10 - 3.72 - 3.4 - 2 x 0.32) = 3.944.
    # h = -3.4 - 2 x 0.544 = -4.488, and 3.944 + 2.244 = 6.188.
    np.testing.assert_allclose(states[1].server.params["w"][0], 6.188, rtol=1e-5)


@pytest.mark.parametrize("mu", [1.0, 4.0])
def test_feddyn_settles_at_the_minimum_on_quad(mu):
    """FedAvg settles at 0.425; five steps are far from an exact local minimum."""
    states, _ = run_quadratics(FEDDYN, [QUAD._replace(mu=mu)], 400)
    np.testing.assert_allclose(models_of(states)[-1, 0], 2 / 7, atol=2e-6)
    np.testing.assert_allclose(states[-1].server.gradient["w"][0], 0, atol=1e-5)
    np.testing.assert_allclose(states[-1].clients.gradient["w"][0], [2 / 7, -38 / 7, 36 / 7], atol=2e-5)


def test_an_exact_local_solution_leaves_the_gradient_there():
    """QUAD's clients after 300 steps: h_k is the slope h (w_k - b) at the client's own model."""
    h, b, mu = np.array([1.0, 2, 4]), np.array([0.0, 3, -1]), 1.0
    (state,), _ = run_quadratics(FEDDYN, [QUAD._replace(mu=mu, num_epochs=300)])
    local = (h * b + mu * 1.0) / (h + mu)
    np.testing.assert_allclose(state.clients.gradient["w"][0], h * (local - b), rtol=1e-4)


def test_without_a_pull_feddyn_is_uniform_fedavg_and_finite():
    feds = federations(**(UNEQUAL | {"mu": 0.0}))
    bent, _ = run_engine(program(FEDDYN), feds, 4)
    plain, _ = run_engine(program(uniform_fedavg), feds, 4)
    for a, b in zip(bent, plain, strict=True):
        chex.assert_tree_all_finite(a)
        chex.assert_trees_all_close(a.server.params, b.server.params, rtol=2e-6, atol=2e-6, strict=True)


def test_a_drop_out_keeps_its_memory_and_the_server_counts_all_clients():
    """Two of three clients, one step at rate 0.1: changes -0.1 and -0.8; h = mu (0.1 + 0.8) / 3."""
    (state,), _ = run_quadratics(FEDDYN, [QUAD._replace(work=(1, 0, 1), num_epochs=1, lr=0.1, mu=1.0)])
    np.testing.assert_allclose(state.clients.gradient["w"][0], [0.1, 0, 0.8], rtol=1e-5)
    np.testing.assert_allclose(state.server.gradient["w"][0], 0.3, rtol=1e-5)
    np.testing.assert_allclose(state.server.params["w"][0], 1 - 0.45 - 0.3, rtol=1e-5)


def test_rate_zero_and_rounds_without_clients_move_nothing():
    cases = [QUAD._replace(lr=0.0, mu=1.0), QUAD._replace(mu=1.0, work=(0, 0, 0))]
    states, _ = run_quadratics(FEDDYN, cases, 3)
    np.testing.assert_array_equal(models_of(states)[:, :2], 1)
    chex.assert_tree_all_finite(states)


@pytest.mark.parametrize("row", [108, 110], ids=["NaN row", "overflow"])
def test_a_client_whose_update_is_not_finite_keeps_its_memory(row):
    bad = Quadratic((0, 1, row), (1, 1, 2), w0=1.0, lr=0.1, mu=0.5)
    states, histories = run_quadratics(FEDDYN, [bad, bad._replace(work=(1, 1, 0))], 3)
    for state, history in zip(states, histories, strict=True):
        chex.assert_tree_all_finite(state)
        np.testing.assert_array_equal(state.server.params["w"][0], state.server.params["w"][1])
        assert state.clients.gradient["w"][0, 2] == 0
        np.testing.assert_array_equal(history.num_rejected[:2], [1, 0])
