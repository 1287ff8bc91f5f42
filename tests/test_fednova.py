"""FedNova: what a step is worth, and where unequal steps settle."""

import chex
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_fraud import algorithms
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.algorithms.fednova import effective_steps
from fedjax_fraud.testing.federations import federations, program, run_engine
from fedjax_fraud.types import LocalWork
from tests.test_reference import AVERAGING, QUAD, Quadratic, models_of, run_quadratics

FEDNOVA = ALGORITHMS["fednova"].build


def test_three_steps_with_momentum_are_worth_five_and_a_half_plain_ones():
    """(1 - 0.9^3) / 0.1 + (1 - 0.9^2) / 0.1 + 1."""
    np.testing.assert_allclose(effective_steps(3, 0.9), 5.61, rtol=1e-5)


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_effective_steps_are_the_sum_of_the_geometric_weights(momentum):
    steps = np.arange(30)
    wanted = [sum((1 - momentum**i) / (1 - momentum) for i in range(1, n + 1)) for n in steps]
    np.testing.assert_allclose(effective_steps(steps, momentum), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(effective_steps(steps), steps)


@pytest.mark.parametrize("momentum", [None, 0.9])
def test_a_client_sends_the_mean_of_its_path_in_units_of_plain_steps(momentum):
    """Along given gradients; with a constant gradient g the direction is -rate g, however many steps and whatever
    momentum."""
    rate = 0.1
    algorithm = algorithms.fednova(rate, momentum=momentum)
    server = algorithm.init({"w": jnp.float32(5.0)}, 1).server
    for num_steps in (1, 2, 7):
        params, state = server.params, algorithm.client_opt.init(server.params)
        for _ in range(num_steps):
            updates, state = algorithm.client_opt.update({"w": jnp.float32(3.0)}, state, params)
            params = optax.apply_updates(params, updates)
        result = algorithm.client_update(server, (), LocalWork(params, num_steps, 9))
        np.testing.assert_allclose(result.message.direction["w"], -rate * 3.0, rtol=1e-5)
        np.testing.assert_allclose(result.message.effective_steps, effective_steps(num_steps, momentum), rtol=1e-6)
        assert result.weight == 9.0


def test_no_steps_send_zeros_and_no_nan():
    algorithm = algorithms.fednova(0.1, momentum=0.9)
    server = algorithm.init({"w": jnp.float32(5.0)}, 1).server
    message = algorithm.client_update(server, (), LocalWork(server.params, 0, 9)).message
    chex.assert_trees_all_equal(message.direction, {"w": jnp.float32(0)})
    assert message.effective_steps == 0


def test_with_equal_steps_fednova_is_fedavg():
    """Two steps for everybody, on unequal rows."""
    feds = federations(counts=(3, 4, 4, 3, 0), seed=range(4), client_lr=[0.5, 0.1, 0.3, 0.2], num_epochs=[1, 2, 3, 4])
    nova, _ = run_engine(program(FEDNOVA), feds, 4)
    plain, _ = run_engine(program(AVERAGING), feds, 4)
    for a, b in zip(nova, plain, strict=True):
        chex.assert_trees_all_close(a.server, b.server, rtol=2e-6, atol=2e-6, strict=True)


def test_a_client_with_four_times_the_steps_does_not_count_four_times():
    """Linear objectives with slopes -1 (four steps) and -10 (one): 2.5 mean steps along the mean slope 5.5."""
    case = Quadratic((4, 6, 0), (1, 1, 0), 0.0, lr=0.1, num_epochs=4, work=(1, 0.25, 0))
    (nova,), _ = run_quadratics(FEDNOVA, [case])
    (plain,), _ = run_quadratics(AVERAGING, [case])
    np.testing.assert_allclose(nova.server.params["w"][0], 0.1 * 2.5 * 5.5, rtol=1e-6)
    np.testing.assert_allclose(plain.server.params["w"][0], 0.1 * (4 * 1 + 1 * 10) / 2, rtol=1e-6)


def test_fednova_settles_near_the_minimum_where_fedavg_settles_elsewhere():
    """(w - b)^2 / 2 with b = 1, 3, 11 and 10, 30, 60 rows, a step for each: 10, 30 and 60 steps.

    S steps from w go (1 - rate)^S of the way to b, so the rounds settle at a mean of b with weights n (1 - rate)^S,
    over S for FedNova; these tend to n as the rate falls, and 7.6 is the minimum.
    """
    b, steps = np.array([1.0, 3.0, 11.0]), np.array([10, 30, 60])
    case = Quadratic((8, 18, 48), (10, 30, 60), w0=2.0, lr=0.01)
    reached = 1 - 0.99**steps
    for build, weights in ((FEDNOVA, steps * reached / steps), (AVERAGING, steps * reached)):
        states, _ = run_quadratics(build, [case], 100)
        np.testing.assert_allclose(models_of(states)[-1, 0], np.average(b, weights=weights), rtol=1e-5)
    nova, plain = (np.average(b, weights=w) for w in (reached, steps * reached))
    assert abs(nova - 7.6) < abs(plain - 7.6) / 2


def test_rate_zero_moves_nothing_and_gives_no_nan():
    states, _ = run_quadratics(FEDNOVA, [QUAD._replace(lr=0.0)], 3)
    np.testing.assert_array_equal(models_of(states)[:, 0], 1)
    chex.assert_tree_all_finite(states)
