"""The server optimizers by hand, without bias correction, and FLamby's published runs."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest

from fedjax_fraud import algorithms
from fedjax_fraud.algorithms import ALGORITHMS, fedopt
from fedjax_fraud.algorithms.fedopt import ADAGRAD, ADAM, AVGM, YOGI, server_optimizer
from fedjax_fraud.testing.federations import federations, of_setting, program, run_engine
from tests.test_contract import hyper

SGD = optax.sgd(0.1)


def walk(server_opt, deltas, start=0.0):
    """The model after each of the given mean changes, as the server of FedAvg moves it."""
    algorithm = algorithms.fedavg(SGD, server_opt)
    server = algorithm.init({"w": jnp.float32(start)}, 1).server
    path = []
    for delta in deltas:
        server = algorithm.server_update(server, {"w": jnp.float32(delta)}, jnp.float32(1.0))
        path.append(float(server.params["w"]))
    return np.array(path)


@pytest.mark.parametrize(
    "rule, steps",
    [
        (AVGM, [1.0, 0.5]),  # m = 1, 0.5
        (ADAGRAD, [0.5 / 1.5, 0.25 / 1.5]),  # v = 1, 1
        (ADAM, [0.5 / 1.0, 0.25 / (0.1875**0.5 + 0.5)]),  # v = 0.25, 0.1875
        (YOGI, [0.5 / 1.0, 0.25 / 1.0]),  # v = 0.25, 0.25
    ],
)
def test_two_rounds_worked_by_hand(rule, steps):
    """Changes 1 and 0; beta1 = 1/2, hence m = 1/2, 1/4; beta2 = 3/4, tau = 1/2, v from 0."""
    opt = server_optimizer(rule, 2.0, beta1=0.5, beta2=0.75, tau=0.5, initial_accumulator=0.0)
    np.testing.assert_allclose(walk(opt, [1.0, 0.0]), 2 * np.cumsum(steps), rtol=1e-6)
    np.testing.assert_allclose(walk(opt, [-1.0, 0.0]), -2 * np.cumsum(steps), rtol=1e-6)


def test_yogi_lowers_its_second_moment_by_at_most_the_last_square():
    """v = 4 and a change of 1: Adam's v falls to 3.25, Yogi's to 3.75."""
    for rule, v in ((ADAM, 3.25), (YOGI, 3.75)):
        opt = server_optimizer(rule, 1.0, beta2=0.75, initial_accumulator=4.0)
        params = {"w": jnp.float32(0)}
        _, state = opt.update({"w": jnp.float32(-1.0)}, opt.init(params), params)
        np.testing.assert_allclose(state.second["w"], v, rtol=1e-6)


@pytest.mark.parametrize("factory", [algorithms.fedadam, algorithms.fedyogi])
def test_the_first_step_is_not_corrected_for_bias(factory):
    """m = 0.1 delta and v = delta^2 / 1000, where Adam would have delta and delta^2."""
    algorithm = factory(SGD, 0.01, beta2=0.999, tau=1e-8, initial_accumulator=0.0)
    server = algorithm.init({"w": jnp.float32(0)}, 1).server
    after = algorithm.server_update(server, {"w": jnp.float32(0.5)}, jnp.float32(1.0))
    np.testing.assert_allclose(after.params["w"], 0.01 * 0.1 / 0.001**0.5, rtol=1e-5)
    np.testing.assert_allclose(walk(optax.adam(0.01), [0.5]), [0.01], rtol=1e-5)


@pytest.mark.parametrize(
    "factory, tau, wanted",
    [
        (algorithms.fedadagrad, 1e-3, 1e-6),
        (algorithms.fedadam, 0.1, 0.01),
        (algorithms.fedyogi, 0.5, 0.25),
    ],
)
def test_the_second_moment_starts_at_tau_squared_or_where_it_is_told(factory, tau, wanted):
    params = {"w": jnp.ones((2, 3))}
    for more, value in (({}, wanted), ({"initial_accumulator": 0.0}, 0.0)):
        state = factory(SGD, tau=tau, **more).init(params, 1).server.opt_state
        chex.assert_trees_all_close(state.second, {"w": jnp.full((2, 3), value)}, rtol=1e-6, strict=True)


@pytest.mark.parametrize("name", ["fedavgm", "fedadagrad", "fedadam", "fedyogi"])
def test_the_shared_build_is_the_public_function(name):
    """Also FedAvgM, which the public function makes of ``optax.sgd``."""
    changes = np.random.default_rng(0).normal(size=20)
    entry = ALGORITHMS[name]
    shared, public = entry.build(hyper(name)), getattr(algorithms, name)(optax.sgd(0.1))
    servers = [algorithm.init({"w": jnp.float32(1.0)}, 1).server for algorithm in (shared, public)]
    for change in changes:
        delta = {"w": jnp.float32(change)}
        servers = [a.server_update(s, delta, jnp.float32(1)) for a, s in zip((shared, public), servers, strict=True)]
        chex.assert_trees_all_close(servers[0].params, servers[1].params, rtol=1e-5, atol=1e-6, strict=True)


def test_fedavgm_without_momentum_is_fedavg():
    changes = [0.5, -0.25, 1.0]
    plain = walk(None, changes)
    np.testing.assert_array_equal(walk(optax.sgd(1.0, momentum=0.0), changes), plain)
    np.testing.assert_allclose(walk(server_optimizer(AVGM, 1.0, beta1=0.0), changes), plain, rtol=1e-6)


def test_yogi_is_adagrad_at_another_rate_while_the_squares_exceed_its_moment():
    """From v = 0 Yogi adds (1 - beta2) delta^2 as long as delta^2 > v: Adagrad's v times 1 - beta2."""
    rate, both = 0.3, dict(beta1=0.9, tau=1e-9, initial_accumulator=0.0)
    growing, fading = [0.1, -0.2, 0.3, 0.5], [1.0, 0.01, 0.01, 0.01]
    yogi = functools.partial(walk, server_optimizer(YOGI, rate, beta2=0.99, **both))
    adagrad = functools.partial(walk, server_optimizer(ADAGRAD, rate / 0.01**0.5, **both))
    np.testing.assert_allclose(yogi(growing), adagrad(growing), rtol=1e-5)
    assert abs(yogi(fading)[-1] / adagrad(fading)[-1] - 1) > 1e-6


def test_nothing_that_moved_is_no_step_and_no_nan():
    """A parameter whose change is always zero, as of a feature that is constant."""
    for rule in (AVGM, ADAGRAD, ADAM, YOGI):
        np.testing.assert_array_equal(walk(server_optimizer(rule, 0.1), [0.0, 0.0], start=2.0), 2.0)


# ---- FLamby -----------------------------------------------------------------------------------------------------

SILOS = ("cleveland", "hungarian", "switzerland", "va")
NUM_SEEDS, ROUND_STEPS, HEART_ROUNDS = 5, 100, 15
STRATEGIES = {  # FLamby's name: rule, client rate, server rate
    "FedAdam": (ADAM, 10**-2.0, 10**-2.0),
    "FedYogi": (YOGI, 10**-2.5, 10**-2.0),
    "FedAdagrad": (ADAGRAD, 10**-2.5, 10**-0.5),
}


def heart_rows(folder):
    """Complete training rows of every hospital, ``[rows, 13]`` standardised by hospital and their labels."""
    split = pd.read_csv(folder / "split.csv")
    features, labels = [], []
    for silo, name in enumerate(SILOS):
        raw = pd.read_csv(folder / f"processed.{name}.data", header=None, na_values="?")
        mine = split[split.client == silo]
        raw = raw.iloc[mine[mine.split == "train"].line.to_numpy() - 1]
        columns = (
            [raw[i] for i in (0, 1, 3, 4, 5, 7, 8, 9)]
            + [raw[2] == c for c in (2, 3, 4)]
            + [raw[6] == c for c in (1, 2)]
        )
        x = np.stack([np.asarray(c, np.float64) for c in columns], axis=1)
        spread = x.std(axis=0, ddof=1)
        features.append((x - x.mean(axis=0)) / np.where(spread > 0, spread, 1))
        labels.append((raw[13] > 0).to_numpy(np.float32))
    return features, labels


def flamby_server(hyper):
    """Betas 0.9 and 0.999, tau 1e-8, v from 0."""
    server = server_optimizer(
        hyper["server_rule"], hyper["server_lr"], beta1=0.9, beta2=0.999, tau=1e-8, initial_accumulator=0.0
    )
    return algorithms.fedavg(optax.sgd(hyper["client_lr"]), server)


@pytest.mark.shared
def test_fedopt_reproduces_flambys_published_weights(shared_data):
    """Three strategies x five seeds, 1,500 steps of every hospital: the weights after the last round.

    Tolerance as the data's README states it: 2e-5, since a small delta stands under the root.
    """
    folder = shared_data / "heart_disease"
    runs = np.load(folder / "reference_runs.npz")
    features, labels = heart_rows(folder)
    counts = np.array([len(y) for y in labels], np.int32)
    order = jnp.asarray(runs["batch_order"].astype(np.int32))

    def replay(task, step, batch_size):
        seed, silo = task.client_id // 4, task.client_id % 4
        rows = order[seed, silo, (task.round_index - 1) * ROUND_STEPS + step]
        return jnp.where(rows < 255, rows, 0), rows < 255

    num_settings = len(STRATEGIES) * NUM_SEEDS
    rule, client_lr, server_lr = (np.repeat(column, NUM_SEEDS) for column in zip(*STRATEGIES.values(), strict=True))
    start = np.tile(runs["init"], (len(STRATEGIES), 1))
    num_epochs = -(-ROUND_STEPS // -(-counts.min() // 4))
    work = ROUND_STEPS / (num_epochs * -(-counts // 4))
    feds = federations(
        x=np.concatenate(features),
        y=np.concatenate(labels),
        counts=counts,
        client_lr=client_lr,
        server_lr=server_lr,
        server_rule=rule,
        num_epochs=num_epochs,
        client_id=np.tile(np.arange(NUM_SEEDS * 4).reshape(NUM_SEEDS, 4), (len(STRATEGIES), 1)),
        num_settings=num_settings,
    )._replace(params={"kernel": start[:, :13, None], "bias": start[:, 13:]})
    prog = program(flamby_server, batch_size=4, num_lanes=60, chunk_length=25, batch_fn=replay)
    states, histories = run_engine(prog, feds, HEART_ROUNDS, work=np.broadcast_to(work, (15, num_settings, 4)))
    np.testing.assert_array_equal(histories[-1].num_steps, 4 * ROUND_STEPS)
    for s, name in enumerate(STRATEGIES):
        for seed in range(NUM_SEEDS):
            params = of_setting(states[-1].server.params, s * NUM_SEEDS + seed)
            got = np.append(params["kernel"][:, 0], params["bias"])
            np.testing.assert_allclose(got, runs[f"final_client_{name}"][seed], rtol=0, atol=2e-5, err_msg=name)


def test_the_rules_have_distinct_numbers():
    assert {fedopt.AVGM, fedopt.ADAGRAD, fedopt.ADAM, fedopt.YOGI} == {0, 1, 2, 3}
    assert jax.tree.leaves(ALGORITHMS["fedavgm"].fixed["server_rule"]) == [0.0]
