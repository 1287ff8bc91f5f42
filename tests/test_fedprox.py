"""FedProx on problems that can be worked by hand: the pull's power, factor, sign and anchor."""

import chex
import numpy as np
import optax
import pytest

from fedjax_fraud import algorithms, models
from fedjax_fraud.simulate import simulate
from fedjax_fraud.testing.federations import program, run_engine, table
from fedjax_fraud.types import Partition, Transactions
from tests.test_reference import AVERAGING, Quadratic, ident, ident_rounds, rolling_batches, run_quadratics

IDENT_RIGHT = [(-0.18644088, -0.11911085), (-0.34358784, -0.21578098)]
IDENT_TWICE = [(-0.07708775, -0.05665457), (-0.14688878, -0.10543940)]
IDENT_HALF = [(-0.26585350, -0.19981108), (-0.47710346, -0.35167536)]


def test_fedprox_on_ident_pulls_with_mu_times_the_distance():
    """The published wrong rows are those of mu = 2 and mu = 1/2."""
    states, _ = run_engine(program(AVERAGING), ident(mu=[1.0, 2.0, 0.5, 0.0]), 2)
    for f, wanted in enumerate((IDENT_RIGHT, IDENT_TWICE, IDENT_HALF)):
        np.testing.assert_allclose(ident_rounds(states, f), wanted, atol=1e-6)
    for wrong in (IDENT_TWICE, IDENT_HALF):
        assert (np.abs(ident_rounds(states) - wrong).max(axis=1) > 0.01).all()


@pytest.mark.parametrize(
    "w0, wanted, wrong",
    [(0.0, [1.0, 1.8, 3.3616], []), (2.0, [2.8, 3.44, 4.68928], [2.6, 3.08, 4.01696])],
)
def test_the_pull_is_towards_the_model_at_the_start_of_the_round(w0, wanted, wrong):
    """(w - 10)^2 / 2 with rate 0.1 and mu = 1, after 1, 2 and 5 steps."""
    cases = [Quadratic((7, 0, 0), (1, 0, 0), w0, lr=0.1, mu=1.0, num_epochs=n) for n in (1, 2, 5)]
    (state,), _ = run_quadratics(AVERAGING, cases)
    got = np.asarray(state.server.params["w"])[:3]
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    for value in wrong:
        assert (np.abs(got - value) > 0.1).all()


def test_the_anchor_moves_on_with_the_global_model():
    """Two rounds of two steps: 1.8, then 1.8 + (10 - 1.8) x 0.18."""
    case = Quadratic((7, 0, 0), (1, 0, 0), 0.0, lr=0.1, mu=1.0, num_epochs=2)
    states, _ = run_quadratics(AVERAGING, [case], 2)
    np.testing.assert_allclose(states[1].server.params["w"][0], 1.8 + 8.2 * 0.18, rtol=1e-6)


def test_a_straggler_returns_what_it_has():
    """Two of five steps, and 1.8 instead of 3.3616; a share that is not whole is rounded up."""
    case = Quadratic((7, 0, 0), (1, 0, 0), 0.0, lr=0.1, mu=1.0, num_epochs=5)
    (state,), (history,) = run_quadratics(
        AVERAGING, [case._replace(work=(0.4, 0, 0)), case._replace(work=(0.3, 0, 0)), case._replace(work=(0.01, 0, 0))]
    )
    np.testing.assert_allclose(state.server.params["w"][:3], [1.8, 1.8, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(history.num_steps[:3], [2, 2, 1])


def test_mu_defaults_to_one_hundredth():
    default, explicit = algorithms.fedprox(optax.sgd(0.1)), algorithms.fedprox(optax.sgd(0.1), mu=0.01)
    params = {"w": np.float32(3.0)}
    server = default.init({"w": np.float32(1.0)}, 1).server
    grads = {"w": np.float32(0.5)}
    np.testing.assert_allclose(default.correct(grads, params, server, ())["w"], 0.5 + 0.01 * 2.0, rtol=1e-6)
    chex.assert_trees_all_equal(
        default.correct(grads, params, server, ()), explicit.correct(grads, params, server, ()), strict=True
    )


@pytest.mark.compiled
def test_simulated_fedprox_with_mu_zero_is_fedavg_bit_for_bit():
    """The same law as in ``test_laws``, for two programs that went through XLA's whole optimiser."""
    x, y = table()
    train = Transactions(x, y.astype(np.int32), ("a", "b", "c"))
    partition = Partition(np.arange(24), np.array([0, 11, 12, 17]), np.array([11, 1, 5, 7]))

    def run(algorithm):
        sizes = dict(num_rounds=3, num_epochs=2, batch_size=4)
        return simulate(algorithm, models.logistic_regression(3), train, partition, batch_fn=rolling_batches, **sizes)[
            0
        ]

    sgd = optax.sgd(0.3)
    prox, plain = run(algorithms.fedprox(sgd, mu=0.0)), run(algorithms.fedavg(sgd))
    chex.assert_trees_all_equal(prox, plain, strict=True)
