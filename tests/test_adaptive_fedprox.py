"""FedProx's adaptive mu: the rule by hand, and its loss in the engine."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_fraud import algorithms
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.algorithms.adaptive_fedprox import ServerState, next_strength
from fedjax_fraud.testing.federations import UNEQUAL, federations, program, run_engine
from tests.test_reference import AVERAGING, QUAD, models_of, run_quadratics

ADAPTIVE = ALGORITHMS["fedprox_adaptive"].build


def strengths(losses, mu, step=0.1, patience=5):
    """mu after each round with these losses."""
    server = ServerState((), (), jnp.float32(mu), jnp.float32(0), jnp.int32(0), jnp.bool_(False))
    path = []
    for loss in losses:
        mu, falls = next_strength(server, jnp.float32(loss), step, patience)
        server = ServerState((), (), mu, jnp.float32(loss), falls, jnp.bool_(True))
        path.append(float(mu))
    return path


@pytest.mark.parametrize(
    "losses, mu, wanted",
    [
        ([3, 4, 5, 5, 6], 0.5, [0.5, 0.6, 0.7, 0.7, 0.8]),  # up with each rise; the first loss has no other to meet
        ([9, 8, 7, 6, 5, 4, 3], 0.5, [0.5, 0.5, 0.5, 0.5, 0.5, 0.4, 0.4]),  # five falls; then the count starts again
        ([9, 8, 7, 6, 5, 5, 4, 3], 0.5, [0.5] * 8),  # a tie breaks the row
        ([9, 8, 7, 6, 5, 6, 5, 4], 0.5, [0.5] * 5 + [0.6] * 3),  # and so does a rise
        (list(range(30, 13, -1)), 0.15, [0.15] * 5 + [0.05] * 5 + [0.0] * 7),  # never below zero
        ([-3, -2, -4], 0.0, [0.0, 0.1, 0.1]),  # losses may be negative
    ],
)
def test_mu_rises_with_the_loss_and_falls_after_five_falls(losses, mu, wanted):
    np.testing.assert_allclose(strengths(losses, mu), wanted, atol=1e-6)


def test_step_and_patience_may_be_tracers():
    losses = [9, 8, 7, 8]

    def last(step, patience):
        server = ServerState((), (), jnp.float32(1), jnp.float32(0), jnp.int32(0), jnp.bool_(False))
        for loss in losses:
            mu, falls = next_strength(server, jnp.float32(loss), step, patience)
            server = ServerState((), (), mu, jnp.float32(loss), falls, jnp.bool_(True))
        return server.mu

    np.testing.assert_allclose(jax.jit(last)(jnp.float32(0.25), jnp.int32(2)), 1 - 0.25 + 0.25)
    np.testing.assert_allclose(jax.jit(last)(jnp.float32(0.25), jnp.int32(3)), 1 + 0.25)


def test_the_loss_in_the_engine_is_the_cohorts_at_the_global_model():
    """QUAD's h w^2 / 2 - h b w at w = 1 is 0.5, -5 and 6; a client that sits out has no say."""
    cases = [QUAD._replace(work=work) for work in ((1, 1, 1), (1, 0, 1))]
    (state,), _ = run_quadratics(ADAPTIVE, cases)
    np.testing.assert_allclose(state.server.loss[:2], [0.5, 3.25], rtol=1e-6)


def test_a_loss_that_rises_every_round_raises_mu_and_a_falling_one_lowers_it():
    """Away from the minimum at a rate beyond 2 / h, one step a round; towards it at a small one."""
    away, towards = QUAD._replace(lr=1.2, num_epochs=1, mu=0.5), QUAD._replace(lr=0.01, num_epochs=1, mu=0.15)
    nobody = towards._replace(work=(0, 0, 0))
    states, _ = run_quadratics(ADAPTIVE, [away, towards, nobody], 12)
    mu = np.array([state.server.mu for state in states])
    np.testing.assert_allclose(mu[:, 0], 0.5 + 0.1 * np.arange(12), atol=1e-5)
    np.testing.assert_allclose(mu[:, 1], [0.15] * 5 + [0.05] * 5 + [0.0] * 2, atol=1e-6)
    np.testing.assert_allclose(mu[:, 2], 0.15)
    assert not states[-1].server.started[2]


def test_one_step_a_round_is_fedavg_whatever_mu_does():
    """The model still is the anchor."""
    case = QUAD._replace(lr=0.05, num_epochs=1, mu=3.0)
    adaptive, _ = run_quadratics(ADAPTIVE, [case], 5)
    plain, _ = run_quadratics(AVERAGING, [case._replace(mu=0.0)], 5)
    np.testing.assert_allclose(models_of(adaptive)[:, 0], models_of(plain)[:, 0], rtol=1e-6)


def test_while_mu_stands_still_the_model_is_fedproxs():
    """Up to the first change, which takes two rounds at least."""
    feds = federations(**UNEQUAL)
    adaptive, _ = run_engine(program(ADAPTIVE), feds, 2)
    fixed, _ = run_engine(program(AVERAGING), feds, 2)
    for a, b in zip(adaptive, fixed, strict=True):
        chex.assert_trees_all_close(a.server.params, b.server.params, rtol=2e-6, atol=2e-6, strict=True)


def test_mu_starts_at_zero_by_default():
    server = algorithms.adaptive_fedprox(optax.sgd(0.1)).init({"w": jnp.zeros(2)}, 1).server
    assert (server.mu, server.started) == (0, False)
