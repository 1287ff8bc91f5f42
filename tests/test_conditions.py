"""What goes wrong: cohorts, stragglers, deadlines, drop-outs, faults, and the simulated clock."""

import math

import chex
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_fraud import conditions
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.conditions import FAULTS, IDEAL, POLICIES, Clock, Conditions, as_arrays, select
from fedjax_fraud.testing.federations import federations, of_setting, one_round, program, run_engine
from tests.reference import Method
from tests.test_reference import QUICK, assert_equals_reference, engine_batches, jit_select

COUNTS = np.array([40, 3, 120, 17, 0, 64])
ROWS = COUNTS > 0
BATCH = 2
FULL = -(-COUNTS // BATCH)


def feds_under(*each: Conditions, traced=None, clock=None, seeds=None, counts=COUNTS):
    """One federation for each of the conditions, all with the same banks; seed 0 unless told."""
    num = len(each)
    made = federations(
        counts=counts,
        x=np.zeros((sum(counts), 1), np.float32),
        y=np.zeros(sum(counts), np.float32),
        num_settings=num,
        seed=0 if seeds is None else list(seeds),
        participation=[one.participation for one in each],
    )
    arrays = as_arrays(each, [False] * num if traced is None else traced)
    if clock is not None:
        clock = Clock(*(np.broadcast_to(np.float32(value), (num, len(counts))) for value in clock))
    return made._replace(conditions=arrays, clock=clock)


def chosen_in(feds, rounds, **plan):
    """``select`` over rounds: leaves ``[rounds, settings, ...]``."""
    settings = feds.settings()
    found = [jit_select(settings, one_round(r, num_settings=len(feds.seed))._replace(**plan), BATCH) for r in rounds]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *found)


# ---- cohorts ----------------------------------------------------------------------------------------------------


def test_ideal_conditions_compile_to_nothing():
    assert as_arrays([IDEAL, Conditions(participation=0.3)], [False, False]) is None
    assert as_arrays([IDEAL], [True]) is not None


def test_a_uniform_cohort_is_the_same_with_and_without_other_conditions():
    """So that a setting's cohorts never depend on its neighbours in the sweep."""
    alone = feds_under(Conditions(participation=0.5))
    among = feds_under(Conditions(participation=0.5), Conditions(participation=0.5, fault="nan", fault_rate=0.5))
    assert alone.conditions is None
    first, second = chosen_in(alone, range(1, 30)), chosen_in(among, range(1, 30))
    np.testing.assert_array_equal(first.num_steps[:, 0], second.num_steps[:, 0])
    np.testing.assert_array_equal(first.keys[:, 0], second.keys[:, 0])
    np.testing.assert_array_equal(first.num_steps[:, 0], second.num_steps[:, 1])


def test_cohorts_by_size_have_their_size_and_the_probabilities_of_successive_draws():
    feds = feds_under(*[Conditions(participation=0.4, cohort="by_size")] * 500, seeds=range(500))
    started = chosen_in(feds, range(1, 21)).started.reshape(-1, len(COUNTS))
    assert (started.sum(axis=1) == 2).all()
    share = COUNTS / COUNTS.sum()
    # Two successive draws without replacement, in closed form.
    wanted = share + sum(share[j] * np.where(np.arange(6) == j, 0, share / (1 - share[j])) for j in range(6))
    error = 4 * np.sqrt(wanted * (1 - wanted) / len(started))
    assert (np.abs(started.mean(axis=0) - wanted) <= error + 1e-9).all()


def test_independent_coins_may_find_nobody_and_are_binomial():
    feds = feds_under(*[Conditions(participation=0.3, cohort="independent")] * 500, seeds=range(500))
    started = chosen_in(feds, range(1, 21)).started.reshape(-1, len(COUNTS))
    size = started.sum(axis=1)
    for k in range(6):
        wanted = math.comb(5, k) * 0.3**k * 0.7 ** (5 - k) if k < 6 else 0
        assert abs((size == k).mean() - wanted) < 4 * math.sqrt(max(wanted, 1e-3) / len(size))
    assert not started[:, 4].any()


# ---- stragglers and the clock -----------------------------------------------------------------------------------


def speeds_of(feds, round_index):
    """The fraction f of every straggler, 1 for the others, recomputed from the lots: ``[settings, clients]``."""
    ids, rows = [], []
    for f, seed in enumerate(feds.seed):
        key = conditions.round_key(jnp.uint32(seed), jnp.int32(round_index), conditions.SPEED)
        fraction = conditions.as_uniform(conditions.draw_lots(key, jnp.arange(len(COUNTS))))
        key = conditions.round_key(jnp.uint32(seed), jnp.int32(round_index), conditions.SLOW)
        lots = np.where(ROWS, conditions.draw_lots(key, jnp.arange(len(COUNTS))), 2**32 - 1)
        num = round(float(feds.conditions.stragglers[f]) * ROWS.sum())
        slow = np.zeros(len(COUNTS), bool)
        slow[np.argsort(lots)[:num]] = True
        low, high = feds.conditions.straggler_work[f]
        rows.append(np.where(slow, low + (high - low) * np.asarray(fraction), 1.0))
        ids.append(slow)
    return np.array(rows), np.array(ids)


@pytest.mark.parametrize("share", [0.2, 0.6, 1.0])
def test_each_policy_does_to_stragglers_what_it_says(share):
    each = [Conditions(stragglers=share, policy=policy) for policy in POLICIES]
    feds = feds_under(*each, clock=(0.5, 3.0))
    for r in (1, 2, 3):
        chosen = of_round(chosen_in(feds, [r]))
        speed, slow = speeds_of(feds, r)
        assert (slow.sum(axis=1) == round(share * 5)).all()
        wait, partial, drop = chosen.num_steps
        np.testing.assert_array_equal(wait, FULL)
        np.testing.assert_array_equal(partial, np.ceil(speed[1] * FULL - 1e-4).astype(int))
        np.testing.assert_array_equal(drop, np.where(slow[2], 0, FULL))
        np.testing.assert_array_equal(chosen.started, np.broadcast_to(ROWS, (3, 6)))
        nominal = 0.5 * FULL
        wanted = [(nominal / speed[0] + 3.0)[ROWS].max(), (nominal + 3.0)[ROWS].max(), (nominal + 3.0)[ROWS].max()]
        np.testing.assert_allclose(chosen.seconds, wanted, rtol=1e-6)


def of_round(selection):
    return jax.tree.map(lambda leaf: leaf[0], selection)


def test_a_deadline_in_seconds_cuts_whoever_is_late():
    deadline = 20.0
    each = [Conditions(policy=policy, deadline=deadline) for policy in POLICIES]
    step, link = np.array([0.5, 1, 0.25, 9, 1, 1]), np.array([3, 19.5, 1, 4, 0, 30])
    chosen = of_round(chosen_in(feds_under(*each, clock=(step, link)), [1]))
    needed = step * FULL + link
    allowed = np.maximum(deadline - link, 0)
    wait, partial, drop = chosen.num_steps
    np.testing.assert_array_equal(wait, FULL)
    share = np.minimum(allowed / np.where(FULL > 0, step * FULL, 1), 1)
    np.testing.assert_array_equal(partial, np.ceil(share * FULL * conditions.ROUND_OFF).astype(int))
    assert partial[5] == 0 and chosen.started[1, 5]  # its line alone takes longer than the round
    np.testing.assert_array_equal(drop, np.where(needed <= deadline, FULL, 0))
    np.testing.assert_allclose(chosen.seconds, [needed[ROWS].max(), deadline, deadline])


def test_a_round_ends_early_if_everybody_is_early():
    feds = feds_under(Conditions(policy="drop", deadline=1e6), clock=(0.5, 3.0))
    np.testing.assert_allclose(of_round(chosen_in(feds, [1])).seconds, (0.5 * FULL + 3.0)[ROWS].max())


def test_without_stragglers_the_clock_counts_the_slowest_of_the_cohort():
    feds = feds_under(Conditions(participation=0.4), clock=(0.5, 3.0))
    chosen = chosen_in(feds, range(1, 9))
    wanted = np.where(chosen.num_steps > 0, 0.5 * FULL + 3.0, 0).max(axis=-1)
    np.testing.assert_allclose(chosen.seconds, wanted)
    assert len(np.unique(wanted)) > 1
    assert np.isnan(chosen_in(feds._replace(clock=None), [1]).seconds).all()


# ---- drop-outs and traces ---------------------------------------------------------------------------------------


def test_who_drops_before_never_starts_and_who_drops_after_starts_in_vain():
    each = [Conditions(drop_before=0.3), Conditions(drop_after=0.3), Conditions(drop_before=1.0)]
    chosen = chosen_in(feds_under(*each), range(1, 401))
    before, after, nobody = (jax.tree.map(lambda leaf, f=f: leaf[:, f], chosen) for f in range(3))
    np.testing.assert_array_equal(before.num_steps > 0, before.started)
    assert abs(before.started[:, ROWS].mean() - 0.7) < 4 * math.sqrt(0.21 / 2000)
    assert after.started[:, ROWS].all()
    assert abs((after.num_steps[:, ROWS] > 0).mean() - 0.7) < 4 * math.sqrt(0.21 / 2000)
    assert not nobody.started.any() and not nobody.num_steps.any()


def test_a_trace_says_who_can_be_reached_by_identity():
    available = np.array([1, 0, 1, 1, 1, 0], bool)
    feds = feds_under(IDEAL, IDEAL, traced=[True, False])
    order = np.array([2, 0, 1, 3, 4, 5])
    moved = feds._replace(client_id=np.broadcast_to(order.astype(np.int32), (2, 6)))
    for made, wanted in ((feds, available), (moved, available[order])):
        chosen = of_round(chosen_in(made, [1], available=available))
        np.testing.assert_array_equal(chosen.started[0], wanted & ROWS)
        np.testing.assert_array_equal(chosen.started[1], ROWS)


# ---- faults -----------------------------------------------------------------------------------------------------

SMALL = (11, 1, 5, 7, 0)


def training_feds(each, seeds=0, **changes):
    """Federations that train a logistic model on a few rows under the given conditions."""
    num = len(each)
    return federations(
        counts=SMALL,
        num_settings=num,
        client_lr=0.1,
        seed=seeds,
        participation=[c.participation for c in each],
        **changes,
    )._replace(conditions=as_arrays(each, [False] * num))


@pytest.mark.parametrize("name", ["fedavg", "scaffold"])
def test_faulty_updates_are_kept_out_and_counted(name):
    """A faulty client is as good as absent; of a duplicate the first copy counts."""
    each = [Conditions(fault=fault, fault_rate=0.5) for fault in FAULTS[1:]]
    feds = training_feds(each)
    prog = program(ALGORITHMS[name].build)
    states, histories = run_engine(prog, feds, 4)
    clean, _ = run_engine(prog, training_feds([IDEAL._replace(drop_after=1e-9)] * len(each)), 4)
    for f, fault in enumerate(FAULTS[1:]):
        faulty = np.array([history.num_faulty[f] for history in histories])
        rejected = np.array([history.num_rejected[f] for history in histories])
        np.testing.assert_array_equal(faulty, rejected)
        assert faulty.sum() > 0, fault
        assert sum(history.num_silent[f] for history in histories) == 0
        chex.assert_tree_all_finite(of_setting(states[-1], f))
    duplicate = FAULTS.index("duplicate") - 1
    chex.assert_trees_all_equal(of_setting(states[-1], duplicate), of_setting(clean[-1], duplicate))


def test_a_huge_update_that_is_let_in_is_counted_as_silent():
    feds = training_feds([Conditions(fault="huge", fault_rate=1.0, max_update_norm=math.inf)])
    _, (history,) = run_engine(program(ALGORITHMS["fedavg"].build), feds, 1)
    assert history.num_silent[0] == history.num_faulty[0] == 4


@pytest.mark.parametrize("name, method", [("fedavg", Method()), ("scaffold", Method(option=2, uniform_weights=True))])
def test_the_engine_equals_the_reference_under_every_kind_of_misbehaviour(name, method):
    each = [
        Conditions(stragglers=0.5, policy="partial", straggler_work=(0.1, 0.9)),
        Conditions(stragglers=0.5, policy="drop"),
        Conditions(drop_before=0.3, drop_after=0.3),
        Conditions(participation=0.5, cohort="independent"),
        Conditions(fault="nan", fault_rate=0.4),
        Conditions(fault="stale", fault_rate=0.4, stragglers=1.0, policy="partial"),
        Conditions(participation=0.5, cohort="by_size"),
    ]
    methods = [method] * 6 + [method._replace(uniform_weights=True)]
    feds = training_feds(each, num_epochs=2)
    states, _ = run_engine(program(ALGORITHMS[name].build), feds, 4)
    batches = without_faulty(feds, engine_batches(feds, 4))
    assert_equals_reference(states, feds, batches, methods)


def without_faulty(feds, batches):
    """Batches without those of clients whose update the server rejects."""
    settings = feds.settings()
    for r in range(len(batches[0])):
        faulty = np.asarray(jit_select(settings, one_round(r + 1, num_settings=len(feds.seed)), BATCH).faulty)
        for f, k in zip(*np.nonzero(faulty), strict=True):
            batches[f][r][k] = []
    return batches


def random_conditions(rng):
    """A plan in which anything may go wrong, and often several things at once."""
    return Conditions(
        participation=rng.choice([0.2, 0.5, 1.0]),
        cohort=rng.choice(conditions.COHORTS),
        stragglers=rng.choice([0.0, 0.5, 0.9]),
        straggler_work=tuple(np.sort(rng.uniform(0.01, 1, 2))),
        policy=rng.choice(POLICIES),
        deadline=rng.choice([math.inf, 0.004, 0.02]),
        drop_before=rng.choice([0.0, 0.3, 1.0], p=[0.5, 0.45, 0.05]),
        drop_after=rng.choice([0.0, 0.3, 1.0], p=[0.5, 0.45, 0.05]),
        fault=rng.choice(FAULTS),
        fault_rate=rng.choice([0.1, 0.5, 1.0]),
    )


@pytest.mark.parametrize("name", ["fedprox", "scaffold"])
def test_a_thousand_fault_plans_end_finite_with_every_fault_accounted_for(name):
    rng = np.random.default_rng(3)
    each = [random_conditions(rng) for _ in range(1000)]
    feds = training_feds(each, seeds=np.arange(1000))
    feds = feds._replace(clock=Clock(*(np.full((1000, len(SMALL)), 0.001, np.float32) for _ in range(2))))
    states, histories = run_engine(program(ALGORITHMS[name].build), feds, 5)
    chex.assert_tree_all_finite(states[-1])
    total = jax.tree.map(lambda *leaves: np.sum(leaves, axis=0), *histories)
    assert total.num_faulty.sum() > 1000
    assert total.num_silent.sum() == 0
    np.testing.assert_array_equal(total.num_rejected, total.num_faulty)
    assert (total.num_participants <= total.num_started).all()
    assert np.isfinite(total.seconds).all()
    if name == "scaffold":
        assert max(history.state_error.max() for history in histories) < 1e-5


def test_a_corrupted_control_is_seen():
    feds = training_feds([IDEAL] * 2)
    prog = program(ALGORITHMS["scaffold"].build)
    states, (history,) = run_engine(prog, feds, 1)
    assert history.state_error.max() < 1e-6
    control = jax.tree.map(np.array, states[0].clients.control)
    control["kernel"][1, 2] += 0.5
    broken = states[0]._replace(clients=states[0].clients._replace(control=control))
    _, (history,) = run_engine(prog, feds, 1, state=broken)
    assert history.state_error[0] < 1e-6 < 1e-2 < history.state_error[1]


# ---- independence and checks ------------------------------------------------------------------------------------


@hypothesis.settings(max_examples=20, deadline=None)
@hypothesis.given(st.integers(0, 2**31), st.lists(st.integers(0, 2**31), min_size=3, max_size=3))
def test_a_setting_s_draws_do_not_depend_on_its_neighbours(own, others):
    mine = Conditions(participation=0.5, stragglers=0.5, policy="partial", drop_after=0.2, fault="nan", fault_rate=0.3)
    among = feds_under(*[mine] * 4, seeds=[own, *others], clock=(0.5, 3.0))
    alone = feds_under(*[mine] * 4, seeds=[own] * 4, clock=(0.5, 3.0))
    first, second = chosen_in(among, [1, 2]), chosen_in(alone, [1, 2])
    chex.assert_trees_all_equal(
        jax.tree.map(lambda leaf: leaf[:, 0], first), jax.tree.map(lambda leaf: leaf[:, 0], second)
    )


@pytest.mark.parametrize(
    "changes, name",
    [
        (dict(stragglers=1.5), "stragglers"),
        (dict(stragglers=math.nan), "stragglers"),
        (dict(policy="later"), "policy"),
        (dict(cohort="all"), "cohort"),
        (dict(deadline=0.0), "deadline"),
        (dict(drop_before=-0.1), "drop_before"),
        (dict(drop_after=True), "drop_after"),
        (dict(fault="worm"), "fault"),
        (dict(fault_rate=2), "fault_rate"),
        (dict(max_update_norm=0), "max_update_norm"),
        (dict(straggler_work=(0.0, 0.5)), "straggler_work"),
        (dict(straggler_work=(0.9, 0.5)), "straggler_work"),
        (dict(participation=0.0), "participation"),
    ],
)
def test_conditions_out_of_range_are_refused_by_name(changes, name):
    with pytest.raises(ValueError, match=f"`{name}`"):
        conditions.check_conditions(IDEAL._replace(**changes))


def test_select_compiles_once_for_all_conditions():
    run = jax.jit(chex.assert_max_traces(select, n=1), static_argnums=2, compiler_options=QUICK)
    for one in (Conditions(stragglers=0.5), Conditions(drop_after=0.5), Conditions(cohort="by_size", fault="nan")):
        run(feds_under(one).settings(), one_round(1, num_settings=1), BATCH)
