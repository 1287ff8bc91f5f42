"""Who takes part in a round, how much of its work each client gets done, what goes wrong, and how long it takes.

All of it is drawn on the device from the setting's seed, the round and the client's identity, through an integer hash:
it costs no recompilation, varies between the settings of one program like any number, and is the same for every
algorithm. A client's draws never depend on its neighbours in the sweep.

A *straggler* of a round is slower by 1 / f, with f uniform in ``straggler_work``: in the time that it nominally needs
it gets the fraction f of its work done. What the server does about that is the ``policy``: *wait* for everybody,
*partial* (stop at the deadline and take what there is: FedProx), or *drop* (stop and leave out who is late: FedAvg).

Reference: Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, section 5.2 (stragglers and the two
deadline policies). Differs in: the fraction is of local steps, not of epochs.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from fedjax_fraud import shuffle
from fedjax_fraud.checks import (
    check_choice,
    check_noise,
    check_numbers,
    check_participation,
    check_positive,
    check_share,
)
from fedjax_fraud.local import steps_per_epoch

COHORTS = ("uniform", "by_size", "independent")
POLICIES = ("wait", "partial", "drop")
FAULTS = ("none", "nan", "inf", "huge", "stale", "duplicate")
MAX_UPDATE_NORM = 1e4  # of standardised features: far beyond any honest update
CLIP_NORM = 1.0  # of one row's gradient, where there is noise
HUGE = 1e20  # what a huge update holds in every place: finite, and its square is not

# What a round's keys are for: any constants.
COHORT, BATCH, SLOW, SPEED = 0x5851F42D, 0x14057B7E, 0x2545F491, 0x4F6CDD1D
LEAVE, LOSE, FAULT = 0x369DEA0F, 0x31A57BA5, 0x6C8E9CF5
# float32 holds 0.6 as a little more than 3/5; without this factor 0.6 of 25 steps would be 16. Exact up to 6,000 steps
# for shares of three decimals.
ROUND_OFF = 1 - 2.0**-23


class Conditions(NamedTuple):
    """Under which conditions a federation works. The default is the ideal one.

    Attributes:
      participation: share of the clients with rows that the server asks in a round, in (0, 1].
      cohort: how they are drawn. 'uniform': that many, each as likely as the other. 'by_size': that many, drawn one
        after the other with probabilities proportional to their rows, and then averaged with equal weights, which
        keeps the mean unbiased. 'independent': every client by its own coin, so that nobody may come.
      stragglers: share of the cohort that is slow, in [0, 1].
      straggler_work: least and largest fraction of its work that a straggler gets done in the time that it nominally
        needs; uniform between them, in (0, 1].
      policy: what the server does about who is late: 'wait', 'partial' or 'drop'.
      deadline: simulated seconds from the start of a round; infinite = every client's own nominal time.
      drop_before: probability that a selected client is gone before it starts, in [0, 1].
      drop_after: probability that it is gone after training: nothing is committed, on either side.
      fault: what is wrong with a faulty update: 'none', 'nan', 'inf', 'huge', 'stale' or 'duplicate'.
      fault_rate: probability that an update is faulty, in [0, 1].
      max_update_norm: updates of a larger norm are rejected. None: 10,000 where faults are injected, else no limit (a
        federation that diverges must be seen to diverge).
      noise_multiplier: noise of private local gradients over ``clip_norm`` (see ``privacy``); 0 = they are not private.
      clip_norm: the largest norm of one row's gradient, where there is noise.
    """

    participation: float = 1.0
    cohort: str = "uniform"
    stragglers: float = 0.0
    straggler_work: tuple[float, float] = (0.05, 0.95)
    policy: str = "wait"
    deadline: float = math.inf
    drop_before: float = 0.0
    drop_after: float = 0.0
    fault: str = "none"
    fault_rate: float = 0.0
    max_update_norm: float | None = None
    noise_multiplier: float = 0.0
    clip_norm: float = CLIP_NORM


IDEAL = Conditions()


class Clock(NamedTuple):
    """The simulated time of honest work: ``[settings, clients]`` float32.

    Attributes:
      step_seconds: of one local step.
      link_seconds: to receive and to send what a round needs.
    """

    step_seconds: Float[Array, "settings clients"]
    link_seconds: Float[Array, "settings clients"]


class ConditionArrays(NamedTuple):
    """``Conditions`` beyond participation as arrays ``[settings]``, or scalars for one setting.

    Names stand as their position in ``COHORTS``, ``POLICIES`` and ``FAULTS``; ``straggler_work`` is ``[settings, 2]``;
    ``has_trace``: whether ``RoundPlan.available`` holds for the setting.
    """

    cohort: Array
    stragglers: Array
    straggler_work: Array
    policy: Array
    deadline: Array
    drop_before: Array
    drop_after: Array
    fault: Array
    fault_rate: Array
    max_update_norm: Array
    has_trace: Array


def check_conditions(conditions: Conditions) -> None:
    """Raises ValueError for a value out of range."""
    check_participation(conditions.participation)
    for name, known in (("cohort", COHORTS), ("policy", POLICIES), ("fault", FAULTS)):
        check_choice(name, [getattr(conditions, name)], known)
    for name in ("stragglers", "drop_before", "drop_after", "fault_rate"):
        check_share(name, getattr(conditions, name))
    check_positive("deadline", conditions.deadline)
    check_noise(conditions.noise_multiplier)
    check_numbers("clip_norm", [conditions.clip_norm])
    if conditions.max_update_norm is not None:
        check_positive("max_update_norm", conditions.max_update_norm)
    work = conditions.straggler_work
    if len(work) != 2 or not 0 < work[0] <= work[1] <= 1:
        raise ValueError(
            f"`straggler_work` must be two fractions in (0, 1], the smaller first, got {work!r}. "
            "Pass for example (0.05, 0.95)."
        )


def is_ideal(conditions: Conditions, has_trace: bool = False) -> bool:
    """Whether nothing can go wrong, beyond a uniform cohort of fixed size; noise in the steps is not asked about."""
    known = dict(participation=1.0, noise_multiplier=0.0, clip_norm=CLIP_NORM)
    return conditions._replace(**known) == IDEAL and not has_trace


def is_private(conditions: Conditions) -> bool:
    """Whether the gradients of the local steps are clipped and noised."""
    return conditions.noise_multiplier > 0


def as_arrays(conditions: Sequence[Conditions], has_trace: Sequence[bool]) -> ConditionArrays | None:
    """The conditions of all settings on the host; None if all are ideal, so that nothing is compiled for them."""
    if all(map(is_ideal, conditions, has_trace)):
        return None

    def limit(one: Conditions) -> float:
        if one.max_update_norm is None:
            return math.inf if one.fault == "none" else MAX_UPDATE_NORM
        return one.max_update_norm

    def numbers(name: str) -> np.ndarray:
        return np.array([getattr(one, name) for one in conditions], np.float32)

    def positions(name: str, known: Sequence[str]) -> np.ndarray:
        return np.array([known.index(getattr(one, name)) for one in conditions], np.int32)

    return ConditionArrays(
        cohort=positions("cohort", COHORTS),
        stragglers=numbers("stragglers"),
        straggler_work=numbers("straggler_work"),
        policy=positions("policy", POLICIES),
        deadline=numbers("deadline"),
        drop_before=numbers("drop_before"),
        drop_after=numbers("drop_after"),
        fault=positions("fault", FAULTS),
        fault_rate=numbers("fault_rate"),
        max_update_norm=np.array([limit(one) for one in conditions], np.float32),
        has_trace=np.array(has_trace, bool),
    )


class Selection(NamedTuple):
    """One round of all settings.

    Attributes:
      num_steps: ``[settings, clients]`` local steps of the clients whose result reaches the server; 0 for all others.
      keys: ``[settings, clients]`` the key of each client's shuffles.
      started: ``[settings, clients]`` whether it received the model, and so whether the server counted on it.
      faulty: ``[settings, clients]`` whether its update is faulty, or None.
      seconds: ``[settings]`` how long the round takes; NaN without a clock.
    """

    num_steps: Int[Array, "settings clients"]
    keys: UInt32[Array, "settings clients"]
    started: Bool[Array, "settings clients"]
    faulty: Bool[Array, "settings clients"] | None
    seconds: Float[Array, " settings"]


# ---- draws ------------------------------------------------------------------------------------------------------


def round_key(seed: UInt32[Array, ""], round_index: Int[Array, ""], purpose: int) -> UInt32[Array, ""]:
    """The key of one purpose in one round of a seed; a chain of bijections, so rounds never share a key."""
    return shuffle.mix(jnp.asarray(round_index, jnp.uint32), shuffle.mix(seed, jnp.uint32(purpose)))


def draw_lots(key: UInt32[Array, ""], client_id: Int[Array, " clients"]) -> UInt32[Array, " clients"]:
    """Each client's own lot, from its identity alone; no two draw the same, because ``mix`` is a bijection."""
    return shuffle.mix(client_id.astype(jnp.uint32), key)


def as_uniform(lots: UInt32[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Lots as numbers in [0, 1)."""
    return (lots >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


def lowest(
    lots: UInt32[Array, " clients"], eligible: Bool[Array, " clients"], size: Float[Array, ""]
) -> Bool[Array, " clients"]:
    """The ``round(size)`` eligible clients with the lowest lots; equal lots win together."""
    lots = jnp.where(eligible, lots, jnp.uint32(2**32 - 1))
    size = jnp.round(size).astype(jnp.int32)
    return eligible & (size > 0) & (lots <= jnp.sort(lots)[jnp.maximum(size, 1) - 1])


def draw_cohort(
    key: UInt32[Array, ""],
    client_id: Int[Array, " clients"],
    has_rows: Bool[Array, " clients"],
    participation: Float[Array, ""],
) -> Bool[Array, " clients"]:
    """A uniform cohort of ``max(1, round(participation * n))`` of the n clients that have rows.

    The lowest lots win, so a client without rows changes nobody's luck.
    """
    return lowest(draw_lots(key, client_id), has_rows, jnp.maximum(participation * jnp.sum(has_rows), 1))


def draw_any_cohort(key, client_id, count, participation, cohort: Int[Array, ""]) -> Bool[Array, " clients"]:
    """A cohort of any of the ``COHORTS``; the uniform ones are those of ``draw_cohort``.

    By size: the lowest of -log(u) / n_k are a draw without replacement, with probabilities proportional to n_k.

    Reference: Efraimidis and Spirakis, Weighted random sampling with a reservoir, Information Processing Letters 2006.
    """
    lots, has_rows = draw_lots(key, client_id), count > 0
    uniform = as_uniform(lots)
    race = -jnp.log(jnp.maximum(uniform, 2.0**-25)) / jnp.maximum(count, 1)
    # Positive floats and their bits stand in the same order.
    by_size = jax.lax.bitcast_convert_type(race, jnp.uint32)
    chosen = lowest(
        jnp.where(cohort == COHORTS.index("by_size"), by_size, lots),
        has_rows,
        jnp.maximum(participation * jnp.sum(has_rows), 1),
    )
    return jnp.where(cohort == COHORTS.index("independent"), has_rows & (uniform < participation), chosen)


# ---- one round of one setting -----------------------------------------------------------------------------------


class Plan(NamedTuple):
    """What one setting's clients do in a round, before anything goes wrong: ``[clients]``.

    Attributes:
      full_steps: local steps of all their work.
      cohort: who is asked.
      step_seconds, link_seconds: see ``Clock``.
    """

    full_steps: Int[Array, " clients"]
    cohort: Bool[Array, " clients"]
    step_seconds: Float[Array, " clients"]
    link_seconds: Float[Array, " clients"]


class Effect(NamedTuple):
    """What became of it: ``[clients]``, and the seconds of the round. ``share`` is of the full local work."""

    share: Float[Array, " clients"]
    started: Bool[Array, " clients"]
    faulty: Bool[Array, " clients"]
    seconds: Float[Array, ""]


def ideal_seconds(plan: Plan) -> Float[Array, ""]:
    """Seconds until the slowest of the cohort is done with all its work; 0 without a cohort."""
    needed = plan.full_steps * plan.step_seconds + plan.link_seconds
    return jnp.max(jnp.where(plan.cohort, needed, 0))


def apply_conditions(conditions: ConditionArrays, plan: Plan, seed, round_index, client_id) -> Effect:
    """Lets go wrong what does, for one setting in one round."""

    def uniform(purpose):
        return as_uniform(draw_lots(round_key(seed, round_index, purpose), client_id))

    started = plan.cohort & (uniform(LEAVE) >= conditions.drop_before)
    slow_lots = draw_lots(round_key(seed, round_index, SLOW), client_id)
    slow = lowest(slow_lots, plan.cohort, conditions.stragglers * jnp.sum(plan.cohort))
    least, most = conditions.straggler_work[0], conditions.straggler_work[1]
    speed = jnp.where(slow, least + (most - least) * uniform(SPEED), 1.0)

    nominal = plan.full_steps * plan.step_seconds
    allowed = jnp.maximum(conditions.deadline - plan.link_seconds, 0)
    own_time = jnp.isinf(conditions.deadline)
    in_time = jnp.where(nominal > 0, allowed * speed / jnp.where(nominal > 0, nominal, 1), 1)
    in_time = jnp.where(own_time, speed, jnp.minimum(in_time, 1))
    needed = nominal / speed + plan.link_seconds
    at_deadline = jnp.where(own_time, nominal + plan.link_seconds, conditions.deadline)

    waits = conditions.policy == POLICIES.index("wait")
    drops = conditions.policy == POLICIES.index("drop")
    share = jnp.where(waits, 1.0, jnp.where(drops, (in_time >= 1).astype(jnp.float32), in_time))
    lost = uniform(LOSE) < conditions.drop_after
    time = jnp.where(waits, needed, jnp.minimum(needed, at_deadline))
    return Effect(
        share=jnp.where(started & ~lost, share, 0),
        started=started,
        faulty=started & (uniform(FAULT) < conditions.fault_rate) & (conditions.fault > 0),
        seconds=jnp.max(jnp.where(started, time, 0)),
    )


def steps_of_share(share: Float[Array, "*shape"], full_steps: Int[Array, "*shape"]) -> Int[Array, "*shape"]:
    """Local steps of a share of the full work, rounded up."""
    return jnp.where(share >= 1, full_steps, jnp.ceil(share * full_steps * ROUND_OFF).astype(jnp.int32))


def select(settings, plan, batch_size: int) -> Selection:
    """One round of all settings: steps, shuffle keys, who started, what is faulty, how long it takes.

    Args:
      settings, plan: ``simulate.Settings`` and one round of ``simulate.RoundPlan``.
      batch_size: rows of a batch.
    """
    ideal = settings.conditions is None
    zeros = jnp.zeros(settings.count.shape, jnp.float32)
    clock = Clock(zeros, zeros) if settings.clock is None else settings.clock
    full = settings.num_epochs[:, None] * steps_per_epoch(settings.count, batch_size)

    def of_setting(seed, client_id, count, participation, full_steps, clock, conditions, work):
        keys = draw_lots(round_key(seed, plan.round_index, BATCH), client_id)
        cohort_key = round_key(seed, plan.round_index, COHORT)
        if work is not None:
            cohort = (work > 0) & (count > 0)
        elif conditions is None:
            cohort = draw_cohort(cohort_key, client_id, count > 0, participation)
        else:
            cohort = draw_any_cohort(cohort_key, client_id, count, participation, conditions.cohort)
        if plan.available is not None:
            here = plan.available.at[client_id].get(mode="clip")
            cohort = cohort & (here | ~conditions.has_trace)
        if conditions is None:
            seconds = ideal_seconds(Plan(full_steps, cohort, *clock))
            effect = Effect(cohort.astype(jnp.float32), cohort, cohort, seconds)
        else:
            effect = apply_conditions(conditions, Plan(full_steps, cohort, *clock), seed, plan.round_index, client_id)
        share = effect.share if work is None else effect.share * work
        return Selection(steps_of_share(share, full_steps), keys, effect.started, effect.faulty, effect.seconds)

    chosen = jax.vmap(of_setting)(
        settings.seed,
        settings.client_id,
        settings.count,
        settings.participation,
        full,
        clock,
        settings.conditions,
        plan.work,
    )
    unknown = jnp.full(chosen.seconds.shape, jnp.nan)
    return chosen._replace(
        num_steps=jnp.where(plan.active, chosen.num_steps, 0),
        started=chosen.started & plan.active,
        faulty=None if ideal else chosen.faulty & plan.active,
        seconds=unknown if settings.clock is None else jnp.where(plan.active, chosen.seconds, 0),
    )
