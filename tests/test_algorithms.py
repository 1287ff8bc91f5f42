"""The list of algorithms: one program for equal builds, client optimizers, refusals."""

import chex
import jax
import jax.numpy as jnp
import optax
import pytest

from fedjax_fraud import algorithms
from fedjax_fraud.algorithms import ALGORITHMS, CLIENT_OPTIMIZERS, build_with
from tests.test_contract import hyper

ANY = [name for name, entry in ALGORITHMS.items() if entry.any_client_optimizer]
PLAIN = [name for name, entry in ALGORITHMS.items() if not entry.any_client_optimizer]


def test_relatives_share_one_program():
    for group in (("fedavg", "fedprox"), ("fedavgm", "fedadagrad", "fedadam", "fedyogi")):
        for optimizer in CLIENT_OPTIMIZERS:
            assert len({build_with(name, optimizer) for name in group}) == 1
    assert len({entry.build for entry in ALGORITHMS.values()}) == len(ALGORITHMS) - 4


@pytest.mark.parametrize("name", ALGORITHMS)
def test_plain_sgd_is_the_entrys_own_build(name):
    build = build_with(name, "sgd")
    assert build == ALGORITHMS[name].build == build_with(name)
    assert hash(build) == hash(ALGORITHMS[name].build)


@pytest.mark.parametrize("name", ANY)
def test_another_client_optimizer_is_another_program_with_that_optimizer(name):
    assert len({build_with(name, optimizer) for optimizer in CLIENT_OPTIMIZERS}) == 3
    params = {"w": jnp.array([1.0, -2.0])}
    wanted = {"sgd": optax.sgd(0.1), "momentum": optax.sgd(0.1, momentum=0.9), "adam": optax.adam(0.1)}
    for optimizer, opt in wanted.items():
        got = build_with(name, optimizer)(hyper(name)).client_opt
        for client_opt in (got, opt):
            state = client_opt.init(params)
            for _ in range(2):
                updates, state = client_opt.update(params, state, params)
            if client_opt is got:
                first = updates
        chex.assert_trees_all_close(first, updates, rtol=1e-6)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
def test_a_method_that_needs_plain_sgd_refuses_another_optimizer(name, optimizer):
    with pytest.raises(ValueError, match=rf"`client_optimizer` must be 'sgd' for {name}, got '{optimizer}'.*Use 'sgd'"):
        build_with(name, optimizer)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"`client_optimizer` knows sgd, momentum, adam; got 'lion'"):
        build_with("fedavg", "lion")
    with pytest.raises(ValueError, match=r"`name` knows .*; got 'fedsgd'"):
        build_with("fedsgd", "sgd")


@pytest.mark.parametrize("factory", [algorithms.fednova, algorithms.feddyn, algorithms.mimelite, algorithms.scaffold])
@pytest.mark.parametrize(
    "client_lr",
    [optax.sgd(0.1, momentum=0.9), optax.adam(0.1), optax.exponential_decay(0.1, 1, 0.5)],
    ids=["momentum", "adam", "rate that halves every step"],
)
def test_a_factory_that_takes_a_rate_refuses_an_optimizer_or_a_schedule(factory, client_lr):
    with pytest.raises(TypeError, match=r"`client_lr` must be a number, got (a schedule|an optax optimizer)\. .*pass"):
        factory(client_lr)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_entry_names_hyperparameters_that_its_build_reads(name):
    """A key that is fixed or tuned but never read would be a setting without an effect."""
    entry = ALGORITHMS[name]
    read = set()

    class Recorder(dict):
        def __getitem__(self, key):
            read.add(key)
            return super().__getitem__(key)

    entry.build(Recorder(hyper(name)))
    assert {*entry.tuned, *entry.fixed} <= read
    assert set(entry.defaults) <= set(entry.tuned)
    assert read <= {"client_lr", *entry.tuned, *entry.fixed}
    assert not set(entry.tuned) & set(entry.fixed)
    jax.eval_shape(lambda h: entry.build(h).init({"w": jnp.zeros(2)}, 3), hyper(name))
