"""The public entry and the engine's four phases: cohorts, given work, poison rows, seeds, and what is refused."""

import pathlib
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_fraud import algorithms, models
from fedjax_fraud.conditions import draw_cohort
from fedjax_fraud.simulate import check_count, simulate
from fedjax_fraud.testing.federations import federations, of_setting, one_round, program, run_engine, table
from fedjax_fraud.types import Partition, Transactions
from tests.test_reference import (
    ALGORITHMS,
    TOLERANCE,
    close,
    engine_batches,
    jit_select,
    reference,
    rolling_batches,
    to_list,
)

# ---- cohorts ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cohorts():
    """``[rounds, settings, clients]`` for 200 rounds of 3 of 10 clients; settings 0 and 1 share their seed."""
    settings = federations(counts=[(2,) * 10] * 4, seed=[5, 5, 6, 7], participation=0.3).settings()
    plans = [one_round(r + 1) for r in range(200)]
    return np.array([jit_select(settings, plan, 2)[0] > 0 for plan in plans])


def test_every_cohort_has_its_size(cohorts):
    np.testing.assert_array_equal(cohorts.sum(axis=2), 3)


def test_one_seed_gives_one_sequence_of_cohorts_and_another_seed_another(cohorts):
    np.testing.assert_array_equal(cohorts[:, 0], cohorts[:, 1])
    for other in (2, 3):
        # By chance 200 / 120 rounds agree.
        assert (cohorts[:, 0] == cohorts[:, other]).all(axis=1).sum() < 10


def test_cohorts_differ_between_rounds(cohorts):
    """120 cohorts are possible; 200 draws meet about 97 of them."""
    for f in range(4):
        assert len({tuple(cohort) for cohort in cohorts[:, f]}) > 80


def test_every_client_is_drawn_about_equally_often(cohorts):
    assert (np.abs(cohorts.sum(axis=0) - 60) <= 20).all()


def test_every_client_and_every_pair_is_equally_likely():
    """20,000 keys: within five binomial deviations of 3/10, and of 3/10 x 2/9."""
    keys = jnp.asarray(np.random.default_rng(1).integers(0, 2**32, 20_000, dtype=np.uint32))
    ids, everybody = jnp.arange(10, dtype=jnp.int32), jnp.ones(10, bool)
    drawn = np.asarray(
        jax.jit(jax.vmap(lambda key: draw_cohort(key, ids, everybody, jnp.float32(0.3))))(keys), np.float64
    )
    together = drawn.T @ drawn / len(keys)
    for share, seen in ((0.3, np.diag(together)), (0.3 * 2 / 9, together[np.triu_indices(10, 1)])):
        assert np.abs(seen - share).max() < 5 * np.sqrt(share * (1 - share) / len(keys))


def test_clients_without_rows_are_never_drawn_and_change_nobody_s_luck():
    with_empty = federations(counts=(2, 0, 2, 2, 0), client_id=(0, 8, 1, 2, 9), seed=range(4), participation=0.4)
    without = federations(counts=(2, 2, 2), client_id=(0, 1, 2), seed=range(4), participation=0.4)
    for r in range(1, 20):
        plan = one_round(r)
        steps, keys = jit_select(with_empty.settings(), plan, 2)[:2]
        fewer_steps, fewer_keys = jit_select(without.settings(), plan, 2)[:2]
        np.testing.assert_array_equal(np.asarray(steps)[:, [1, 4]], 0)
        np.testing.assert_array_equal(np.asarray(steps)[:, [0, 2, 3]], fewer_steps)
        np.testing.assert_array_equal(np.asarray(keys)[:, [0, 2, 3]], fewer_keys)


@pytest.mark.parametrize("participation, wanted", [(1e-3, 1), (0.2, 1), (0.4, 2), (0.5, 2), (0.7, 4), (1.0, 5)])
def test_the_cohort_is_the_rounded_share_of_clients_and_never_empty(participation, wanted):
    """Half of five is rounded to the even number."""
    feds = federations(counts=(2, 2, 2, 2, 2), participation=participation, seed=range(4))
    plan = one_round(1)
    np.testing.assert_array_equal((np.asarray(jit_select(feds.settings(), plan, 2)[0]) > 0).sum(axis=1), wanted)


def test_a_share_of_work_is_rounded_up_exactly():
    """0.6 of 25 steps is 15, although 0.6 in float32 is a little more than 3/5."""
    for parts in (3, 5, 7, 10):
        share = np.arange(5) / parts % 1
        feds = federations(counts=(25 * 2,) * 5, num_epochs=[1, 2, 3, 7])
        plan = one_round(1, np.tile(share, (4, 1)))
        steps = jit_select(feds.settings(), plan, 2).num_steps
        full = 25 * feds.num_epochs[:, None]
        wanted = -(-full * (np.arange(5) % parts) // parts)
        np.testing.assert_array_equal(steps, wanted, err_msg=f"{share} of {full}")


# ---- rows that are nobody's -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fedprox", "scaffold", "scaffold_option1"])
@pytest.mark.parametrize("poison", [1e30, np.nan])
def test_a_row_that_belongs_to_no_client_is_never_read(name, poison):
    """Last in the table and in the order, where an index that is out of range would end up."""
    x, y = table()
    y[-1] = 1
    x[-1] = 0
    bad = x.copy()
    bad[-1] = poison
    counts = [(11, 1, 5, 6, 0), (0, 0, 0, 0, 23), (23, 0, 0, 0, 0), (3, 3, 3, 3, 11)]
    prog = program(ALGORITHMS[name].build)
    feds = federations(x=x, y=y, counts=counts, mu=0.1, num_epochs=2, seed=range(4))
    clean, _ = run_engine(prog, feds, 3)
    dirty, histories = run_engine(prog, feds._replace(x=bad), 3)
    chex.assert_trees_all_equal(dirty, clean, strict=True)
    for history in histories:
        np.testing.assert_array_equal(history.num_rejected, 0)


# ---- the public entry -------------------------------------------------------------------------------------------

MODEL = models.logistic_regression(3)
FEDAVG = algorithms.fedavg(optax.sgd(0.3))
SCAFFOLD = algorithms.scaffold(0.3)
COUNT = np.array([5, 1, 3, 4, 2, 2, 1, 2, 2, 2])


def make_table():
    x, y = table()
    return Transactions(x, y.astype(np.int32), ("a", "b", "c"))


def make_partition():
    return Partition(np.random.default_rng(2).permutation(24), np.cumsum(COUNT) - COUNT, COUNT)


def run(train=None, partition=None, algorithm=FEDAVG, **changes):
    """Six rounds of three of ten clients, scored on the first rows of the table."""
    whole = make_table()
    test = whole._replace(features=whole.features[:9], labels=whole.labels[:9])
    arguments = dict(test=test, num_rounds=6, num_epochs=2, batch_size=4, seed=1, participation=0.3) | changes
    return simulate(algorithm, MODEL, train or whole, partition or make_partition(), **arguments)


@pytest.fixture(scope="module")
def first_run():
    return run()


def test_one_seed_gives_the_same_bits_and_another_seed_does_not(first_run):
    again, other = run(), run(seed=2)
    chex.assert_trees_all_equal(again, first_run, strict=True)
    assert (other[0].server.params["kernel"] != first_run[0].server.params["kernel"]).any()


GENERATORS = """
import random
import numpy as np
from tests.test_simulate import run
run()
before = random.getstate(), np.random.get_state()[1:]
run()
after = random.getstate(), np.random.get_state()[1:]
assert before[0] == after[0]
assert all(np.array_equal(a, b) for a, b in zip(before[1], after[1]))
"""


def test_the_global_random_generators_are_left_alone():
    """In a process of its own: the type checker that the tests install draws from them."""
    subprocess.run([sys.executable, "-c", GENERATORS], check=True, cwd=pathlib.Path(__file__).parent.parent)


def test_the_history_counts_participants_steps_and_rows(first_run):
    _, history = first_run
    np.testing.assert_array_equal(history.num_participants, 3)
    np.testing.assert_array_equal(history.num_rejected, 0)
    assert not history.skipped.any()
    feds = federations(counts=[COUNT], seed=1, participation=0.3, num_epochs=2, num_settings=1)
    (batches,) = engine_batches(feds, 6, batch_size=4)
    np.testing.assert_array_equal(history.num_steps, [sum(len(c) for c in r) for r in batches])
    np.testing.assert_array_equal(history.num_rows, [sum(len(b) for c in r for b in c) for r in batches])


def test_the_last_scores_are_those_of_the_returned_model(first_run):
    state, history = first_run
    data = make_table()
    x, y = data.features[:9].astype(np.float64), data.labels[:9]
    logits = reference.scores(to_list(state.server.params), x)
    np.testing.assert_allclose(history.log_loss[-1], np.mean(np.logaddexp(0, logits) - y * logits), rtol=1e-5)
    pairs = logits[y == 1][:, None] - logits[y == 0][None]
    np.testing.assert_allclose(history.roc_auc[-1], np.mean(pairs > 0), rtol=1e-6)


def test_simulate_equals_the_reference(first_run):
    order = make_partition().order
    feds = federations(counts=[COUNT], orders=order[None], seed=1, participation=0.3, num_epochs=2, num_settings=1)
    (batches,) = engine_batches(feds, 6, batch_size=4)
    expected = reference.run_rounds(
        to_list(of_setting(feds.params, 0)), feds.x, feds.y, batches, COUNT, lr=0.3, method=reference.Method()
    )
    close(to_list(first_run[0].server.params), expected[-1].params, TOLERANCE)


def replay(train=None, **changes):
    """SCAFFOLD on given batches and work: one program for all of its tests."""
    return run(train, algorithm=SCAFFOLD, batch_fn=rolling_batches, test=None, **changes)


def test_given_batches_work_and_start_are_replayed():
    """A ``batch_fn``, a ``work`` table with stragglers, and first ``params``, against the reference."""
    data, partition = make_table(), make_partition()
    work = np.random.default_rng(3).choice([0, 0.5, 1], size=(6, 10))
    params = {"kernel": np.array([[0.5], [-1.0], [2.0]], np.float32), "bias": np.array([-0.5], np.float32)}
    state, history = replay(work=work, params=params)
    batches = []
    for r in range(6):
        this_round = []
        for k in range(10):
            full = 2 * -(-COUNT[k] // 4)
            steps = []
            for s in range(int(np.ceil(work[r, k] * full))):
                position = (k + 2 * (r + 1) + 3 * s + np.arange(1 + (s + k) % 4)) % COUNT[k]
                steps.append(partition.order[partition.start[k] + position])
            this_round.append(steps)
        batches.append(this_round)
    method = reference.Method(option=2, uniform_weights=True)
    expected = reference.run_rounds(to_list(params), data.features, data.labels, batches, COUNT, lr=0.3, method=method)
    close(to_list(state.server.params), expected[-1].params, TOLERANCE)
    close(to_list(state.server.control), expected[-1].control, 1e-4)
    assert np.isnan(history.log_loss).all()
    np.testing.assert_array_equal(history.num_participants, (work > 0).sum(axis=1))


def test_an_idle_bank_with_poisoned_rows_changes_nothing():
    """Its rows are finite, so the table is accepted; it never takes part."""
    data = make_table()
    work = np.ones((6, 10))
    work[:, 4] = 0
    mine = make_partition().order[13:15]
    poisoned = data.features.copy()
    poisoned[mine] = 1e30
    clean, dirty = replay(work=work), replay(data._replace(features=poisoned), work=work)
    chex.assert_trees_all_equal(dirty, clean, strict=True)


def test_a_round_that_nobody_works_in_is_skipped():
    work = np.ones((6, 10))
    work[2] = 0
    _, history = replay(work=work)
    np.testing.assert_array_equal(history.skipped, [False, False, True, False, False, False])
    np.testing.assert_array_equal(history.num_participants, [10, 10, 0, 10, 10, 10])


# ---- what is refused --------------------------------------------------------------------------------------------


def changed_table(**changes):
    return make_table()._replace(**changes)


def with_cell(value):
    features = make_table().features.copy()
    features[3, 1] = value
    return changed_table(features=features)


def changed_labels(value, dtype):
    labels = make_table().labels.astype(dtype)
    labels[5] = value
    return changed_table(labels=labels)


def changed_partition(order=None, start=None, count=None):
    good = make_partition()
    return Partition(
        good.order if order is None else order,
        good.start if start is None else start,
        good.count if count is None else count,
    )


FULL = np.ones((6, 10))
REFUSED = {
    # name: (keyword arguments, the argument as the message names it, the value as it shows it)
    "no rounds": (dict(num_rounds=0), "num_rounds", "0"),
    "negative epochs": (dict(num_epochs=-1), "num_epochs", "-1"),
    "a boolean batch size": (dict(batch_size=True), "batch_size", "True"),
    "no participation": (dict(participation=0.0), "participation", "0.0"),
    "too much participation": (dict(participation=1.5), "participation", "1.5"),
    "NaN participation": (dict(participation=float("nan")), "participation", "nan"),
    "no lanes": (dict(num_lanes=0), "num_lanes", "0"),
    "a negative chunk": (dict(chunk_length=-1), "chunk_length", "-1"),
    "a negative seed": (dict(seed=-1), "seed", "-1"),
    "a NaN feature": (dict(train=with_cell(np.nan)), "train.features", "NaN or infinity in 1 rows (first: row 3)"),
    "an infinite feature": (dict(train=with_cell(np.inf)), "train.features", "row 3"),
    "a label of 2": (dict(train=changed_labels(2, int)), "train.labels", "2"),
    "a missing label": (dict(train=changed_labels(np.nan, float)), "train.labels", "nan"),
    "a label too few": (dict(train=changed_table(labels=np.zeros(23, int))), "train", "(23,)"),
    "flat features": (dict(train=changed_table(features=np.zeros(24))), "train", "(24,)"),
    "a bad test label": (dict(test=changed_labels(-1, int)), "test.labels", "-1"),
    "a bad test feature": (dict(test=with_cell(np.nan)), "test.features", "row 3"),
    "test rows of another width": (dict(test=changed_table(features=np.zeros((24, 2)))), "test", "2"),
    "a row assigned twice": (dict(partition=changed_partition(order=np.arange(24) // 2 * 2)), "partition", "row 1"),
    "a partition of another table": (dict(partition=changed_partition(order=np.arange(20))), "partition", "20"),
    "a client too small": (dict(partition=changed_partition(count=COUNT - (np.arange(10) == 0))), "partition", "23"),
    "a client of less than nothing": (
        dict(partition=changed_partition(count=COUNT - 6 * (np.arange(10) == 0) + 6 * (np.arange(10) == 1))),
        "partition",
        "-1",
    ),
    "no clients": (dict(partition=changed_partition(start=np.zeros(0, int), count=np.zeros(0, int))), "partition", "0"),
    "overlapping clients": (dict(partition=changed_partition(start=np.zeros(10, int))), "partition", "start"),
    "work of another shape": (dict(work=FULL[:, :9]), "work", "(6, 9)"),
    "too much work": (dict(work=FULL * 1.5), "work", "1.5"),
    "negative work": (dict(work=FULL * -0.5), "work", "-0.5"),
    "missing work": (dict(work=FULL * np.nan), "work", "nan"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_argument_is_refused_in_one_line_that_names_it_its_value_and_the_remedy(case):
    arguments, name, value = REFUSED[case]
    with pytest.raises((ValueError, TypeError)) as caught:
        run(**arguments)
    message = str(caught.value)
    assert message.startswith(f"`{name}` must "), message
    assert "\n" not in message
    _, _, got = message.partition("got")
    assert value in got, message
    what, _, remedy = got.rpartition(". ")
    assert what and remedy.endswith("."), message


@pytest.mark.parametrize("value", [0, -3, 1.5, "64", None, True, np.int32(0)])
def test_a_count_that_is_no_positive_integer_is_refused(value):
    with pytest.raises(ValueError, match=r"^`num_rounds` must be an integer of at least 1, got .*\. .*\.$"):
        check_count("num_rounds", value)


@pytest.mark.parametrize("value", [1, np.int64(7)])
def test_a_positive_integer_of_numpy_or_python_is_accepted(value):
    check_count("num_rounds", value)


def test_an_empty_table_is_refused_or_skipped():
    """No rows at all: a clear error, never a NaN model."""
    empty = Transactions(np.zeros((0, 3), np.float32), np.zeros(0, np.int32), ("a", "b", "c"))
    partition = Partition(np.zeros(0, int), np.zeros(10, int), np.zeros(10, int))
    try:
        state, history = run(empty, partition, test=None)
    except ValueError as error:
        assert str(error).startswith("`train` must ")
    else:
        chex.assert_tree_all_finite(state)
        assert history.skipped.all()


def test_another_seed_and_participation_compile_nothing_new():
    """The model is asked for its logits only while a program is traced."""
    traced = []

    def apply(params, x):
        traced.append(x.shape)
        return MODEL.apply(params, x)

    counted = models.Model(MODEL.init, apply)
    train, partition = make_table(), make_partition()
    for changes in (dict(seed=1), dict(seed=9, participation=0.5), dict(num_epochs=3)):
        sizes = dict(num_rounds=6, batch_size=4, num_lanes=2, chunk_length=2, batch_fn=rolling_batches)
        simulate(FEDAVG, counted, train, partition, **sizes, **changes)
        if changes == dict(seed=1):
            once = len(traced)
    assert len(traced) == once
