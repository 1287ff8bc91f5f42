"""FedAvg on problems that can be worked by hand."""

import numpy as np
import optax
import pytest

from fedjax_fraud import algorithms, models
from fedjax_fraud.simulate import simulate
from fedjax_fraud.testing.federations import program, run_engine
from fedjax_fraud.types import Partition, Transactions
from tests.test_reference import (
    AVERAGING,
    IDENT_X,
    IDENT_Y,
    QUAD,
    Quadratic,
    ident,
    ident_rounds,
    models_of,
    run_quadratics,
    uniform_fedavg,
)

IDENT_RIGHT = [(-0.37116857, -0.33231621), (-0.64185438, -0.55720377)]
IDENT_UNIFORM = [(-0.29022968, -0.06154259), (-0.49988910, -0.10966213)]
IDENT_WRONG = {
    "last partial batch dropped": [(-0.27032490, -0.26981647), (-0.47714762, -0.46567661)],
    "padded rows in the batch mean": [(-0.32074674, -0.30106634), (-0.56046917, -0.51208357)],
    "four steps for everybody": [(-0.35663696, -0.22609935), (-0.59649351, -0.35622882)],
}


def test_fedavg_on_ident_weighs_clients_by_rows():
    states, histories = run_engine(program(AVERAGING), ident(seed=range(4)), 2)
    for f in range(4):
        np.testing.assert_allclose(ident_rounds(states, f), IDENT_RIGHT, atol=1e-6)
    for wrong in IDENT_WRONG.values():
        assert (np.abs(ident_rounds(states) - wrong).max(axis=1) > 0.01).all()
    np.testing.assert_array_equal(histories[0].num_steps, 7)
    np.testing.assert_array_equal(histories[0].num_rows, 12)


def test_fedavg_on_ident_with_uniform_weights():
    states, _ = run_engine(program(uniform_fedavg), ident(), 2)
    np.testing.assert_allclose(ident_rounds(states), IDENT_UNIFORM, atol=1e-6)


def test_simulate_gives_the_ident_values_too():
    """The public entry, on the bare three clients."""
    train = Transactions(IDENT_X.astype(np.float32), IDENT_Y.astype(np.int32), ("x",))
    partition = Partition(np.arange(12), np.array([0, 2, 5]), np.array([2, 3, 7]))
    state, _ = simulate(
        algorithms.fedavg(optax.sgd(0.5)), models.logistic_regression(1), train, partition, num_rounds=2, batch_size=2
    )
    got = state.server.params["kernel"][0, 0], state.server.params["bias"][0]
    np.testing.assert_allclose(got, IDENT_RIGHT[1], atol=1e-6)


def test_fedavg_settles_off_the_minimum_on_quad():
    states, _ = run_quadratics(AVERAGING, [QUAD], 200)
    np.testing.assert_allclose(models_of(states)[-1, 0], 0.4252210532, atol=1e-6)


def fixed_point(num_steps, gradient_dissimilarity):
    """Where FedAvg settles on Karimireddy et al.'s pair with rate 0.1."""
    rho = (1 - 2 * 0.1) ** num_steps
    return gradient_dissimilarity * (num_steps * 0.1 - (1 - rho) / 2) / (1 - rho)


@pytest.fixture(scope="module")
def karimireddy_pair():
    """w ``[rounds, cases]`` for K = 1, 2, 10 steps, G = 1 and then G = 10."""
    cases = [
        Quadratic((start, start + 1, 0), (1, 1, 0), w0=1.0, lr=0.1, num_epochs=num_steps)
        for start in (3, 5)
        for num_steps in (1, 2, 10)
    ]
    return models_of(run_quadratics(AVERAGING, cases, 200)[0])


def test_fedavg_with_one_step_is_gradient_descent_on_the_published_pair(karimireddy_pair):
    rounds = np.arange(1, 51)
    for case in (0, 3):
        np.testing.assert_allclose(karimireddy_pair[:50, case], 0.9**rounds, rtol=1e-5, atol=2e-6)


def test_fedavg_reaches_the_published_first_round(karimireddy_pair):
    np.testing.assert_allclose(karimireddy_pair[0, [1, 4, 2, 5]], [0.83, 0.92, 0.8305306, 3.3221225], rtol=1e-6)


def test_fedavg_settles_at_the_published_fixed_point_that_grows_with_dissimilarity(karimireddy_pair):
    wanted = [0, 0.0555556, 0.6202902, 0, 0.555556, 6.202902]
    np.testing.assert_allclose(karimireddy_pair[-1, :6], wanted, rtol=1e-6, atol=2e-6)
    np.testing.assert_allclose([fixed_point(k, g) for g in (1, 10) for k in (1, 2, 10)], wanted, rtol=1e-6, atol=1e-9)


# Clients whose single step at rate 1 ends at 1, 3 and 11, with 10, 30 and 60 rows.
ONE_THREE_ELEVEN = Quadratic((8, 18, 48), (10, 30, 60), w0=2.0, lr=1.0)


def test_weights_are_the_row_counts_once():
    cases = [ONE_THREE_ELEVEN, ONE_THREE_ELEVEN._replace(w0=0.0)]
    (state,), _ = run_quadratics(AVERAGING, cases)
    # 5.0 would be no weights, 9.2174 rows squared.
    np.testing.assert_allclose(state.server.params["w"][:2], 7.6, rtol=1e-6)


def test_the_order_of_weighted_clients_does_not_matter():
    cases = [
        Quadratic((18, 48, 8), (30, 60, 10), w0=2.0, lr=1.0),
        Quadratic((48, 8, 18), (60, 10, 30), w0=2.0, lr=1.0),
    ]
    (state,), _ = run_quadratics(AVERAGING, cases)
    np.testing.assert_allclose(state.server.params["w"][:2], 7.6, rtol=1e-6)


def test_the_weights_of_clients_that_stay_are_renormalised():
    (state,), histories = run_quadratics(AVERAGING, [ONE_THREE_ELEVEN._replace(work=(1, 1, 0))])
    # 1.0 would shrink the model towards zero, 2.2 towards the old model.
    np.testing.assert_allclose(state.server.params["w"][0], 2.5, rtol=1e-6)
    assert histories[0].num_participants[0] == 2
    assert not histories[0].skipped[0]


def test_a_round_without_clients_leaves_the_model_and_says_so():
    nobody, no_rows = ONE_THREE_ELEVEN._replace(work=(0, 0, 0)), ONE_THREE_ELEVEN._replace(count=(0, 0, 0))
    states, histories = run_quadratics(AVERAGING, [nobody, no_rows], 2)
    np.testing.assert_array_equal(models_of(states)[:, :2], 2.0)
    for history in histories:
        assert history.skipped[:2].all()
        np.testing.assert_array_equal(history.num_participants[:2], 0)
        np.testing.assert_array_equal(history.num_steps[:2], 0)
        assert np.isnan(history.drift[:2]).all()


@pytest.mark.parametrize("row, work", [(108, (1, 1, 1)), (110, (1, 1, 1))], ids=["NaN row", "overflow"])
def test_an_update_that_is_not_finite_is_left_out_and_counted(row, work):
    case = Quadratic((8, 18, row), (10, 30, 2), w0=2.0, lr=1.0, work=work)
    states, histories = run_quadratics(AVERAGING, [case, case._replace(work=(0, 0, 1))], 2)
    np.testing.assert_allclose(models_of(states)[:, 0], 2.5, rtol=1e-6)
    np.testing.assert_array_equal(models_of(states)[:, 1], 2.0)
    for history in histories:
        np.testing.assert_array_equal(history.num_rejected[:2], [1, 1])
        np.testing.assert_array_equal(history.num_participants[:2], [3, 1])
        np.testing.assert_array_equal(history.skipped[:2], [False, True])
        assert np.isfinite(history.delta_norm_max[0]) and np.isfinite(history.drift[0])


def test_the_history_reports_the_norms_of_the_clients_changes():
    """From 2.0 the clients go to 1, 3 and 11: changes -1, 1 and 9 with mean 3."""
    _, (history,) = run_quadratics(AVERAGING, [ONE_THREE_ELEVEN])
    np.testing.assert_allclose(history.delta_norm_mean[0], 11 / 3, rtol=1e-6)
    np.testing.assert_allclose(history.delta_norm_max[0], 9, rtol=1e-6)
    np.testing.assert_allclose(history.drift[0], (4 + 2 + 6) / 3, rtol=1e-6)
