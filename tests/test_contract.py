"""What every algorithm of the list promises, and that the checks of ``fedjax_fraud.testing`` see a broken promise."""

import jax
import jax.numpy as jnp
import optax
import pytest

from fedjax_fraud import algorithms, testing
from fedjax_fraud.algorithms import ALGORITHMS, build_with
from fedjax_fraud.testing.federations import LOGISTIC, of_setting
from fedjax_fraud.types import CommunicationCost, LocalWork

NAMES = list(ALGORITHMS)
# Entries with one build share one program, so what is expensive is done once for each build.
BUILDS = {entry.build: name for name, entry in ALGORITHMS.items()}
ONE_OF_EACH = list(BUILDS.values())
CHEAP = ("jit equals eager", "ledger", "state keeps its form")


def fixed(name):
    """The hyperparameters without which an entry would be another method."""
    entry = ALGORITHMS[name]
    return dict(entry.defaults) | dict(entry.fixed)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", CHEAP)
def test_every_entry_keeps_the_promise(name, check):
    testing.CHECKS[check](ALGORITHMS[name].build, fixed(name))


@pytest.mark.parametrize("name", ONE_OF_EACH)
@pytest.mark.parametrize("check", [check for check in testing.CHECKS if check not in CHEAP])
def test_every_build_keeps_the_promise_in_the_engine(name, check):
    testing.CHECKS[check](ALGORITHMS[name].build, fixed(name))


@pytest.mark.parametrize("name", NAMES)
def test_slots_run_under_strict_dtype_promotion(name):
    testing.check_strict_dtypes(ALGORITHMS[name].build, fixed(name))


@pytest.mark.parametrize(
    "name, client_optimizer", [("fedyogi", "momentum"), ("ditto", "adam"), ("fedprox_adaptive", "adam")]
)
def test_packed_lanes_equal_a_plain_loop_with_other_client_optimizers(name, client_optimizer):
    testing.check_packing(build_with(name, client_optimizer), fixed(name))


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_repeats_the_cost_of_its_algorithm(name):
    entry = ALGORITHMS[name]
    assert entry.cost == entry.build(hyper(name)).cost


def hyper(name):
    return {
        key: jnp.float32(value) for key, value in (dict(client_lr=0.1, mu=0.5, server_lr=1.0) | fixed(name)).items()
    }


@pytest.mark.parametrize("name", ["scaffold", "scaffold_option1", "scaffold_weighted"])
def test_a_control_that_lacks_a_leaf_is_refused(name):
    """Pairing leaves by position would drop the last one without a word."""
    algorithm = ALGORITHMS[name].build(hyper(name))
    params = LOGISTIC.init(jax.random.key(0))
    state = algorithm.init(params, 1)
    client = of_setting(state.clients, 0)
    short = client._replace(control={"kernel": client.control["kernel"]})
    with pytest.raises(ValueError):
        algorithm.correct(params, params, state.server, short)
    with pytest.raises(ValueError):
        algorithm.correct(params, params, state.server._replace(control=short.control), client)
    with pytest.raises(ValueError):
        algorithm.client_update(state.server, short, LocalWork(params, 1, 1, params))


# ---- broken promises --------------------------------------------------------------------------------------------


def plain(hyper):
    return algorithms.fedavg(optax.sgd(hyper["client_lr"]))


def branches_on_a_number(hyper):
    return algorithms.fedprox(optax.sgd(hyper["client_lr"]), mu=hyper["mu"]) if hyper["mu"] > 0 else plain(hyper)


def sends_more_than_it_says(hyper):
    return algorithms.scaffold(hyper["client_lr"])._replace(cost=CommunicationCost(1, 1))


def divides_by_zero(hyper):
    def correct(grads, params, server, client):
        change = optax.tree.sub(params, server.params)
        return optax.tree.add_scale(grads, 1 / optax.tree.norm(change), change)

    return plain(hyper)._replace(correct=correct)


def forgets_a_part_of_its_state(hyper):
    algorithm = algorithms.scaffold(hyper["client_lr"])

    def server_update(server, mean_message, participation):
        return algorithm.server_update(server, mean_message, participation)._replace(control=server.control["bias"])

    return algorithm._replace(server_update=server_update)


def counts_clients_that_sit_out(hyper):
    """SCAFFOLD that divides by the cohort and not by all clients."""
    algorithm = algorithms.scaffold(hyper["client_lr"])

    def server_update(server, mean_message, participation):
        return algorithm.server_update(server, mean_message, jnp.ones_like(participation))

    return algorithm._replace(server_update=server_update)


@pytest.mark.parametrize(
    "build, check, said",
    [
        (branches_on_a_number, "jit equals eager", "traced"),
        (sends_more_than_it_says, "ledger", "8 numbers"),
        (divides_by_zero, "state keeps its form", "left out"),
        (forgets_a_part_of_its_state, "state keeps its form", "structure"),
        (counts_clients_that_sit_out, "invariant", "invariant"),
    ],
)
def test_a_broken_promise_is_named(build, check, said, monkeypatch):
    monkeypatch.setattr(testing.contract, "CHECKS", {check: testing.CHECKS[check]})
    with pytest.raises(AssertionError, match=rf"^{check}: (.|\n)*{said}"):
        testing.check_algorithm(build)
