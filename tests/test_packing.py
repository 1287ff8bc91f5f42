"""Lanes: every chunk is served once, nobody is in two lanes at once, and no wave is wasted."""

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_fraud import packing

POOL = 12
STEPS = st.lists(st.integers(0, 60) | st.sampled_from([0, 1]), min_size=POOL, max_size=POOL)


@functools.partial(jax.jit, static_argnames=("num_lanes", "chunk_length"))
def plan_of(num_steps, *, num_lanes, chunk_length):
    """The plan, and the clients of all lanes in 1000 waves, of which the first ``num_waves`` count."""
    plan = packing.plan_lanes(num_steps, num_lanes=num_lanes, chunk_length=chunk_length)
    serve = functools.partial(packing.lane_clients, plan, num_lanes=num_lanes)
    return plan, jax.vmap(serve)(jnp.arange(1000, dtype=jnp.int32))


def check_plan(steps, num_lanes, chunk_length):
    chunks = [-(-s // chunk_length) for s in steps]
    plan, served = plan_of(jnp.asarray(steps, jnp.int32), num_lanes=num_lanes, chunk_length=chunk_length)
    assert int(plan.num_waves) == max(max(chunks), -(-sum(chunks) // num_lanes))
    served = np.asarray(served)[: int(plan.num_waves)]
    assert served.shape[1] == num_lanes
    assert np.bincount(served.ravel(), minlength=POOL + 1)[:POOL].tolist() == chunks
    for wave in served:
        busy = wave[wave < POOL]
        assert len(np.unique(busy)) == len(busy)
    assert (served <= POOL).all()


@pytest.mark.parametrize("num_lanes, chunk_length", [(1, 1), (3, 1), (5, 4), (8, 16), (20, 3)])
@hypothesis.given(steps=STEPS)
@hypothesis.example(steps=[0] * POOL)
@hypothesis.example(steps=[60] + [0] * (POOL - 1))
@hypothesis.example(steps=[0] * (POOL - 1) + [1])
def test_every_chunk_is_served_once_and_nobody_twice_in_a_wave(num_lanes, chunk_length, steps):
    check_plan(steps, num_lanes, chunk_length)


@hypothesis.given(steps=STEPS, num_lanes=st.integers(1, 40), chunk_length=st.integers(1, 16))
def test_the_counted_work_is_the_plan_s(steps, num_lanes, chunk_length):
    work = packing.count_work(np.array(steps), num_lanes=num_lanes, chunk_length=chunk_length)
    chunks = [-(-s // chunk_length) for s in steps]
    assert work.useful == sum(steps)
    assert work.executed == max(max(chunks), -(-sum(chunks) // num_lanes)) * num_lanes * chunk_length
    assert work.padded == max(steps) * POOL
    assert work.executed >= work.useful


def test_the_work_of_nobody_is_nothing():
    assert packing.count_work(np.zeros(0, int), num_lanes=4, chunk_length=8) == (0, 0, 0)
    assert packing.count_work(np.zeros(3, int), num_lanes=4, chunk_length=8) == (0, 0, 0)


@hypothesis.given(
    steps=st.lists(st.integers(0, 3000), min_size=1, max_size=60),
    max_lanes=st.integers(1, 64),
    max_waste=st.sampled_from([1.0, 1.1, 2.0]),
)
def test_the_chosen_packing_wastes_little(steps, max_lanes, max_waste):
    num_lanes, chunk_length = packing.choose_packing(np.array(steps), max_lanes=max_lanes, max_waste=max_waste)
    assert 1 <= num_lanes <= max_lanes
    assert chunk_length in (1, 2, 4, 8, 16)
    executed = packing.count_work(np.array(steps), num_lanes=num_lanes, chunk_length=chunk_length).executed
    best = packing.count_work(np.array(steps), num_lanes=num_lanes, chunk_length=1).executed
    assert executed <= max_waste * max(best, 1) or chunk_length == 1
    # As many lanes as the longest client fills: each is busy for at least half of the time.
    assert best < 2 * max(sum(steps), 1) + num_lanes


def test_the_chosen_packing_of_a_skewed_pool_executes_a_tenth_more_than_is_useful():
    """Ninety clients with a tail: a padded map over clients would do ten times the work."""
    steps = np.random.default_rng(0).pareto(1.0, 90).astype(int) * 10 + 1
    num_lanes, chunk_length = packing.choose_packing(steps, max_lanes=8)
    work = packing.count_work(steps, num_lanes=num_lanes, chunk_length=chunk_length)
    assert work.padded > 10 * work.useful
    assert work.executed <= 1.1 * (work.useful + num_lanes * chunk_length) * 1.1


def test_a_pool_without_work_still_gets_a_packing():
    assert packing.choose_packing(np.zeros(3, int), max_lanes=8)[0] >= 1
    assert packing.choose_packing(np.zeros(0, int), max_lanes=8)[0] >= 1


@pytest.mark.parametrize(
    "batch_size, lanes, chunk", [(1, 8, 512), (64, 8, 8), (256, 4, 4), (1024, 1, 4), (10_000, 1, 1)]
)
def test_large_batches_get_fewer_lanes_of_a_cpu(batch_size, lanes, chunk):
    assert packing.packing_limits("cpu", batch_size) == dict(max_lanes=lanes, max_chunk_length=chunk)
