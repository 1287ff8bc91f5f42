"""What every algorithm of the list promises, whatever it computes."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_fraud import local
from fedjax_fraud.algorithms import ALGORITHMS, build_with
from fedjax_fraud.server import finish_setting
from fedjax_fraud.simulate import run_rounds
from fedjax_fraud.types import LocalWork
from tests.test_reference import (
    COUNTS,
    LOGISTIC,
    NUM_CLIENTS,
    NUM_SETTINGS,
    QUICK,
    UNEQUAL,
    entry_federations,
    federations,
    init_state,
    jit_select,
    of_setting,
    one_round,
    program,
    run_engine,
)

NAMES = list(ALGORITHMS)
# Entries with one build share one program, so what is expensive is done once for each build.
BUILDS = {entry.build: name for name, entry in ALGORITHMS.items()}
ONE_OF_EACH = list(BUILDS.values())


def same_rows(name, **changes):
    """Settings that differ in seed, rate, mu, epochs and cohort, but not in who owns which rows."""
    return entry_federations(name, partition_id=0, counts=COUNTS, **changes)


def hyper(name):
    entry = ALGORITHMS[name]
    values = dict(client_lr=0.1, mu=0.5, server_lr=1.0) | dict(entry.defaults) | dict(entry.fixed)
    return {key: jnp.float32(value) for key, value in values.items()}


@pytest.mark.parametrize("name", NAMES)
def test_state_keeps_structure_shape_and_dtype_over_rounds(name):
    feds = same_rows(name)
    prog = program(ALGORITHMS[name].build)
    first = init_state(prog.build, feds.settings(), feds.params)
    states, histories = run_engine(prog, feds, 3)
    for state, history in zip(states, histories, strict=True):
        chex.assert_trees_all_equal_structs(state, first)
        chex.assert_trees_all_equal_shapes_and_dtypes(state, first)
        chex.assert_tree_shape_prefix(state.clients, (NUM_SETTINGS, NUM_CLIENTS))
        chex.assert_tree_shape_prefix(tuple(history), (NUM_SETTINGS,))
        chex.assert_tree_all_finite(state)


def slots(algorithm, params):
    """Every slot of the contract once, for one client that made three steps on seven rows."""
    state = algorithm.init(params, 2)
    server, client = state.server, of_setting(state.clients, 0)
    grads = jax.tree.map(lambda p: 0.3 + jnp.cos(p), params)
    corrected = algorithm.correct(grads, optax.tree.scale(1.5, params), server, client)
    own = params
    if algorithm.correct_personal is not None:
        own = algorithm.correct_personal(grads, optax.tree.scale(1.5, client.personal), server, client)
    work = LocalWork(optax.tree.scale(0.5, params), jnp.int32(3), jnp.int32(7), grads, jnp.float32(0.7), own)
    result = algorithm.client_update(server, client, work)
    # The weights' prefix tree must fit the message, as the engine's mean requires.
    jax.tree.map(lambda w, part: jax.tree.map(lambda leaf: w * leaf, part), result.weight, result.message)
    return state, corrected, result, algorithm.server_update(server, result.message, jnp.float32(0.5))


@pytest.mark.parametrize("name", NAMES)
def test_jitted_slots_equal_eager_slots(name):
    build = ALGORITHMS[name].build
    params = {"kernel": jnp.array([[0.5], [-1.0]]), "bias": jnp.array([2.0])}

    def run(hyper):
        return slots(build(hyper), params)

    eager = run(hyper(name))
    chex.assert_trees_all_close(jax.jit(run)(hyper(name)), eager, rtol=1e-6, strict=True)
    chex.assert_tree_all_finite(eager)


@pytest.mark.parametrize("name", NAMES)
def test_slots_run_under_strict_dtype_promotion(name):
    params = {"kernel": jnp.array([[0.5], [-1.0]]), "bias": jnp.array([2.0])}
    with jax.numpy_dtype_promotion("strict"):
        jax.eval_shape(lambda h: slots(ALGORITHMS[name].build(h), params), hyper(name))


@pytest.mark.parametrize(
    "name, client_optimizer",
    [
        *((name, "sgd") for name in ONE_OF_EACH),
        ("fedyogi", "momentum"),
        ("ditto", "adam"),
        ("fedprox_adaptive", "adam"),
    ],
)
def test_packed_lanes_equal_a_plain_loop(name, client_optimizer):
    """One round by hand: every client on its own, step after step, through the same one-client functions."""
    feds = same_rows(name)
    prog = program(build_with(name, client_optimizer))
    (state,), _ = run_engine(prog, feds, 1)
    settings, data = jax.device_get(feds.settings()), feds.data()
    start = jax.device_get(init_state(prog.build, settings, feds.params))
    num_steps, keys = jax.device_get(jit_select(feds.settings(), one_round(1), 2)[:2])

    @functools.partial(jax.jit, compiler_options=QUICK)
    def step(hyper, task, server, client, carried):
        batches = local.plan_batches(prog.objective, data, task, carried.num_done, 1)
        batch = jax.tree.map(lambda leaf: leaf[0], batches)
        after = local.local_step(prog.build(hyper), prog.objective, data, batch, server, client, carried)
        return after._replace(num_done=carried.num_done + 1)

    for f in (0, 3):
        hyper_f, before = of_setting(settings.hyper, f), of_setting(start, f)
        trained = []
        for k in range(NUM_CLIENTS):
            task = local.ClientTask(
                settings.partition_id[f],
                settings.start[f, k],
                settings.count[f, k],
                num_steps[f, k],
                np.int32(k),
                np.int32(1),
                keys[f, k],
            )
            carried = local.start_local(prog.build(hyper_f), before.server.params, of_setting(before.clients, k))
            for _ in range(int(num_steps[f, k])):
                carried = step(hyper_f, task, before.server, of_setting(before.clients, k), carried)
            trained.append(carried)
        trained = jax.tree.map(lambda *leaves: np.stack(leaves), *trained)
        finish = functools.partial(finish_setting, prog)
        after, _ = jax.jit(finish, compiler_options=QUICK)(hyper_f, before, trained, num_steps[f], settings.count[f])
        chex.assert_trees_all_close(of_setting(state, f), after, rtol=2e-6, atol=2e-6, strict=True)


@pytest.fixture(scope="module", params=ONE_OF_EACH)
def together_and_apart(request):
    """Four settings in one pool with an empty client each, and the same four one by one without that client."""
    feds = same_rows(request.param)
    prog = program(ALGORITHMS[request.param].build)
    together, _ = run_engine(prog, feds, 3)
    apart = []
    for f in range(NUM_SETTINGS):
        alone = federations(
            counts=COUNTS[:-1],
            orders=UNEQUAL["orders"],
            num_settings=1,
            **{key: value[f] for key, value in feds.hyper.items()},
            **{key: UNEQUAL[key][f] for key in ("seed", "num_epochs", "participation")},
        )
        apart.append(run_engine(prog, alone, 3)[0][-1])
    return together[-1], apart


def test_settings_in_one_pool_equal_their_separate_runs(together_and_apart):
    together, apart = together_and_apart
    for f, alone in enumerate(apart):
        server = of_setting(together.server, f)
        chex.assert_trees_all_close(of_setting(alone.server, 0), server, rtol=5e-6, atol=5e-6, strict=True)


def test_an_empty_client_changes_nothing_at_full_participation(together_and_apart):
    together, apart = together_and_apart
    with_empty, without = of_setting(together, 0), of_setting(apart[0], 0)
    chex.assert_trees_all_close(without.server, with_empty.server, rtol=5e-6, atol=5e-6, strict=True)
    others = jax.tree.map(lambda leaf: leaf[:-1], with_empty.clients)
    chex.assert_trees_all_close(without.clients, others, rtol=5e-6, atol=5e-6, strict=True)
    for leaf in jax.tree.leaves(with_empty.clients):
        np.testing.assert_array_equal(leaf[-1], 0)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_one_trace_serves_all_cohorts_seeds_and_hyperparameters(name):
    prog = program(ALGORITHMS[name].build)
    run = jax.jit(chex.assert_max_traces(run_rounds, n=1), static_argnums=0, compiler_options=QUICK)
    feds = same_rows(name)
    _, first = run_engine(prog, feds, 2, run=run)
    changed = feds._replace(
        seed=feds.seed + np.uint32(9),
        participation=np.full(NUM_SETTINGS, 0.5, np.float32),
        num_epochs=np.full(NUM_SETTINGS, 4, np.int32),
        hyper={key: value + np.float32(0.25) for key, value in feds.hyper.items()},
        counts=feds.counts[:, ::-1],
        start=np.cumsum(feds.counts[:, ::-1], axis=1) - feds.counts[:, ::-1],
    )
    _, second = run_engine(prog, changed, 2, run=run)
    assert set(np.asarray(first[0].num_participants)) == {4, 2}
    assert set(np.asarray(second[0].num_participants)) == {2}


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


@pytest.mark.parametrize("name", NAMES)
def test_the_ledger_counts_the_vectors_of_the_message(name):
    """``cost.up`` is what the message holds, in models, scalars aside; the entry repeats what the algorithm says."""
    entry = ALGORITHMS[name]
    algorithm = entry.build(hyper(name))
    params = LOGISTIC.init(jax.random.key(0))
    state = algorithm.init(params, 1)
    work = LocalWork(params, jnp.int32(1), jnp.int32(1), params, jnp.float32(1), params)
    message = algorithm.client_update(state.server, of_setting(state.clients, 0), work).message
    vectors = [leaf for leaf in jax.tree.leaves(message) if jnp.ndim(leaf) > 0]
    assert optax.tree.size(vectors) == algorithm.cost.up * optax.tree.size(params)
    assert entry.cost == algorithm.cost


@pytest.mark.parametrize("name", [name for name in ONE_OF_EACH if ALGORITHMS[name].build(hyper(name)).invariant])
def test_the_invariant_is_zero_after_every_round_under_any_participation(name):
    feds = same_rows(name, participation=[0.25, 0.5, 0.75, 1.0])
    algorithm = ALGORITHMS[name].build(hyper(name))
    has_rows = feds.counts > 0
    for state in run_engine(program(ALGORITHMS[name].build), feds, 6)[0]:
        for f in range(NUM_SETTINGS):
            mean = jax.tree.map(lambda leaf, f=f: leaf[f][has_rows[f]].mean(axis=0), state.clients)
            for leaf in jax.tree.leaves(algorithm.invariant(of_setting(state.server, f), mean)):
                np.testing.assert_allclose(leaf, 0, atol=2e-6)
