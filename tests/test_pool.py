"""A pool of settings: dealt to the devices, cut into segments of rounds, and its work counted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_fraud import devices, packing, pool, score
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.algorithms.fedavg import ServerState
from fedjax_fraud.local import Objective
from fedjax_fraud.program import History, Settings
from fedjax_fraud.types import FedState

BATCH = 4
COUNT = np.array([[8, 0, 3], [40, 9, 1], [1, 1, 1], [0, 0, 17], [30, 30, 30]], np.int32)


def make_pool(score_every_round=None):
    num = len(COUNT)
    settings = Settings(
        hyper=dict(client_lr=np.arange(num, dtype=np.float32), mu=np.zeros(num, np.float32)),
        seed=np.arange(num, dtype=np.uint32) + 10,
        num_epochs=np.array([1, 2, 1, 3, 1], np.int32),
        participation=np.ones(num, np.float32),
        partition_id=np.zeros(num, np.int32),
        start=np.cumsum(COUNT, axis=1, dtype=np.int32) - COUNT,
        count=COUNT,
        client_id=np.tile(np.arange(3, dtype=np.int32), (num, 1)),
    )
    test_set = score.make_test_set(np.zeros((6, 2), np.float32), np.array([1, 0, 0, 1, 0, 0]))
    every = np.ones(num, bool) if score_every_round is None else score_every_round
    params = {"w": np.arange(num, dtype=np.float32)[:, None]}
    objective = Objective(lambda params, x: x[:, 0], batch_size=BATCH)
    mesh = devices.settings_mesh(jax.devices()[:1])
    return settings, pool.make_pool(ALGORITHMS["fedavg"].build, objective, settings, params, test_set, mesh, every)


# ---- dealing ----------------------------------------------------------------------------------------------------


def test_a_pool_holds_each_setting_at_its_slot():
    settings, made = make_pool()
    for name in ("seed", "count", "start", "client_id", "num_epochs"):
        np.testing.assert_array_equal(getattr(made.settings, name)[made.slot], getattr(settings, name))
    np.testing.assert_array_equal(made.settings.hyper["client_lr"][made.slot], settings.hyper["client_lr"])
    np.testing.assert_array_equal(made.params["w"][made.slot, 0], np.arange(len(COUNT)))
    assert (made.program.num_test, made.program.num_test_positives) == (6, 2)


def test_a_mesh_is_a_row_of_devices():
    assert devices.settings_mesh().devices.tolist() == jax.devices()
    assert devices.settings_mesh(jax.devices()[:1]).axis_names == (devices.AXIS,)


# ---- work -------------------------------------------------------------------------------------------------------


def test_the_useful_work_is_epochs_times_batches_of_all_clients():
    settings, made = make_pool()
    steps = settings.num_epochs[:, None] * np.ceil(COUNT / BATCH).astype(int)
    work = pool.pool_work(made, 7, 1)
    assert work.useful == 7 * steps.sum()
    assert work.padded == 7 * steps.max() * steps.size
    packed = dict(num_lanes=made.program.num_lanes, chunk_length=made.program.chunk_length)
    assert work.executed == 7 * packing.count_work(steps, **packed).executed
    assert work.useful <= work.executed


def test_the_work_of_two_devices_is_the_sum_of_theirs():
    _, made = make_pool()
    empty = jax.tree.map(lambda leaf: np.concatenate([leaf, np.zeros_like(leaf[:1])]), made.settings)
    made = made._replace(settings=empty)
    packed = dict(num_lanes=made.program.num_lanes, chunk_length=made.program.chunk_length)
    steps = empty.num_epochs[:, None] * np.ceil(empty.count / BATCH).astype(int)
    work = pool.pool_work(made, 2, 2)
    assert work.executed == 2 * sum(packing.count_work(half, **packed).executed for half in (steps[:3], steps[3:]))
    assert (work.useful, work.padded) == (pool.pool_work(make_pool()[1], 2, 1).useful, 2 * steps.max() * COUNT.size)


# ---- rounds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_rounds", [1, 2, 10, 24, 25, 26, 60, 250, 251])
def test_segments_cover_every_round_once_and_train_nobody_else(num_rounds):
    every = np.array([True, False, True, False, True])
    _, made = make_pool(every)
    segment = -(-(num_rounds + 1) // pool.PROGRESS_UPDATES)
    plans = [pool.segment_plan(made, num_rounds, first, segment) for first in range(0, num_rounds + 1, segment)]
    assert len(plans) <= pool.PROGRESS_UPDATES
    assert {len(plan.active) for plan in plans} == {segment}
    index, active, scored = (
        np.concatenate([getattr(plan, name) for plan in plans]) for name in ("round_index", "active", "scored")
    )
    np.testing.assert_array_equal(index, np.arange(len(index)))
    np.testing.assert_array_equal(index[active], np.arange(1, num_rounds + 1))
    for is_every, column in zip(every, scored[:, made.slot].T, strict=True):
        wanted = np.arange(num_rounds + 1) if is_every else [0, num_rounds]
        np.testing.assert_array_equal(index[column], wanted)


@pytest.mark.parametrize("num_rounds", [1, 24, 25, 60])
def test_a_run_reports_every_round_and_orders_its_history(num_rounds):
    """With stand-ins for the compiled programs: the value of a history is its round plus a tenth of its slot."""
    _, made = make_pool()
    num_slots = len(made.settings.seed)

    def rounds(settings, data, test_features, state, plan):
        del settings, data, test_features
        values = plan.round_index[:, None] + np.arange(num_slots) / 10
        return state, History(*(values for _ in History._fields))

    server = ServerState({"w": np.arange(num_slots)}, ())
    compiled = pool.Compiled(
        lambda settings, params: FedState(server, ()),
        rounds,
        made.settings,
        made.params,
        -(-(num_rounds + 1) // pool.PROGRESS_UPDATES),
    )
    data = pool.TrainingData(jnp.zeros((1, 2)), jnp.zeros((1, 1), jnp.int32))
    calls = []
    outcome = pool.run_pool(made, compiled, data, jnp.zeros((1, 1, 1)), num_rounds, lambda *call: calls.append(call))
    finished, rows, seconds = zip(*calls, strict=True)
    wanted = np.arange(num_rounds + 1)[:, None] + made.slot / 10
    assert sum(finished) == num_rounds
    assert sum(rows) >= wanted.astype(np.int64).sum()  # the stand-in also "trains" in rounds past the end
    assert list(seconds) == sorted(seconds) and seconds[-1] <= outcome.run_seconds
    for leaf in outcome.history:
        np.testing.assert_array_equal(leaf, wanted)
    np.testing.assert_array_equal(outcome.params["w"], made.slot)
    part = pool.take_federations(outcome, slice(1, 3))
    np.testing.assert_array_equal(part.history.log_loss, wanted[:, 1:3])
    np.testing.assert_array_equal(part.params["w"], made.slot[1:3])
