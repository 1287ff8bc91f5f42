"""The engine: select, train, aggregate, score; all clients of all settings as one pool, all rounds in one scan.

A *setting* is one federation. The settings stand along a leading axis, each with the same number of clients; client
k of setting f is client ``f * clients + k`` of the pool. This file is the only place that maps an algorithm, which
is written for one client and one setting, over either.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, UInt32

from fedjax_fraud import aggregate, losses, packing, score, shuffle
from fedjax_fraud.checks import (
    check_count,
    check_participation,
    check_partition,
    check_rows,
    check_seed,
    check_width,
    check_work,
)
from fedjax_fraud.local import (
    ClientTask,
    LocalState,
    Objective,
    TrainingData,
    local_chunk,
    make_training_data,
    shuffled_epochs,
    start_local,
    steps_per_epoch,
)
from fedjax_fraud.types import FedAlgorithm, FedState, LocalWork, Model, Partition, Transactions

COHORT, BATCH = 0x5851F42D, 0x14057B7E  # what a round's keys are for: any two constants
# float32 holds 0.6 as a little more than 3/5; without this factor 0.6 of 25 steps would be 16. Exact up to 6,000 steps
# for shares of three decimals.
ROUND_OFF = 1 - 2.0**-23


class Settings(NamedTuple):
    """The federations of one program.

    Attributes:
      hyper: name -> ``[settings]``, the traced hyperparameters that ``Program.build`` takes.
      seed: ``[settings]`` uint32; decides cohorts and batches, whatever the algorithm.
      num_epochs: ``[settings]`` int32.
      participation: ``[settings]`` share of the clients with rows that take part in a round, in (0, 1].
      partition_id: ``[settings]`` int32, the row of ``TrainingData.orders``.
      start, count: ``[settings, clients]`` int32, each client's slice of that order.
      client_id: ``[settings, clients]`` int32, the identity that a client's random draws depend on.
    """

    hyper: Mapping[str, Array]
    seed: UInt32[Array, " settings"]
    num_epochs: Int[Array, " settings"]
    participation: Float[Array, " settings"]
    partition_id: Int[Array, " settings"]
    start: Int[Array, "settings clients"]
    count: Int[Array, "settings clients"]
    client_id: Int[Array, "settings clients"]


class Program(NamedTuple):
    """What is static: one compiled program for each value.

    Attributes:
      build: ``hyper -> FedAlgorithm``, called inside the mapped functions: every number in ``hyper`` is a tracer.
      objective: the loss, the model and the batches.
      num_lanes, chunk_length: the packing, see ``packing``.
      num_test, num_test_positives: rows of the test set, positives first; 0 = no scores.
      clients_axis: the mesh axis that the clients of every setting are split over; None = every client is here.
    """

    build: Callable
    objective: Objective
    num_lanes: int
    chunk_length: int
    num_test: int = 0
    num_test_positives: int = 0
    clients_axis: str | None = None


class RoundPlan(NamedTuple):
    """What happens in each round; leaves have a leading rounds axis.

    Attributes:
      round_index: int32, from 1; decides cohorts and batches.
      active: whether anybody trains. An inactive round only scores.
      scored: ``[rounds, settings]``, whether a setting's global model is scored after the round (NaN if not).
      work: None, then cohorts are drawn; or ``[rounds, settings, clients]``, the share in [0, 1] of its full local
        work that each client does: 0 = absent, 0.5 = a straggler that makes half of its steps, rounded up.
    """

    round_index: Array
    active: Array
    scored: Array
    work: Array | None = None


class History(NamedTuple):
    """What a reader wants to know of each round: ``[rounds]``, or ``[rounds, settings]`` in a sweep.

    Attributes:
      log_loss, average_precision, roc_auc: the global model on the pooled test rows; NaN without a test set.
      num_participants: clients that trained.
      num_rejected: those left out of the mean because their update was not finite.
      skipped: nobody was left: model and control variates stayed as they were.
      num_steps, num_rows: local steps made and rows visited, over all clients.
      delta_norm_mean, delta_norm_max: norm of w_k - w_t over the cohort that counted; NaN if none did.
      drift: mean over that cohort of the norm of (w_k - w_t) minus its mean: how much the clients disagree.
    """

    log_loss: Array
    average_precision: Array
    roc_auc: Array
    num_participants: Array
    num_rejected: Array
    skipped: Array
    num_steps: Array
    num_rows: Array
    delta_norm_mean: Array
    delta_norm_max: Array
    drift: Array


# ---- select -----------------------------------------------------------------------------------------------------


def draw_cohort(
    key: UInt32[Array, ""],
    client_id: Int[Array, " clients"],
    has_rows: Bool[Array, " clients"],
    participation: Float[Array, ""],
) -> Bool[Array, " clients"]:
    """A uniform cohort of ``max(1, round(participation * n))`` of the n clients that have rows.

    Each client draws its own lot from ``key`` and its identity, and the lowest lots win, so a client without rows
    changes nobody's luck. (No two clients draw the same lot, because ``mix`` is a bijection.)
    """
    lots = jnp.where(has_rows, shuffle.mix(client_id.astype(jnp.uint32), key), jnp.uint32(2**32 - 1))
    size = jnp.maximum(jnp.round(participation * jnp.sum(has_rows)), 1).astype(jnp.int32)
    return has_rows & (lots <= jnp.sort(lots)[size - 1])


def round_key(seed: UInt32[Array, ""], round_index: Int[Array, ""], purpose: int) -> UInt32[Array, ""]:
    """The key of one purpose in one round of a seed; a chain of bijections, so rounds never share a key."""
    return shuffle.mix(jnp.asarray(round_index, jnp.uint32), shuffle.mix(seed, jnp.uint32(purpose)))


def select(
    settings: Settings, plan: RoundPlan, batch_size: int
) -> tuple[Int[Array, "settings clients"], UInt32[Array, "settings clients"]]:
    """The local steps and the shuffle key of every client in one round.

    A round's two keys come from the setting's seed and the round alone, a client's own from these and its identity,
    through an integer hash (threefry would be a fifth of all kernels to compile).
    """

    def of_setting(seed, client_id, has_rows, participation):
        cohort_key, batch_key = (round_key(seed, plan.round_index, purpose) for purpose in (COHORT, BATCH))
        cohort = draw_cohort(cohort_key, client_id, has_rows, participation)
        return cohort, shuffle.mix(client_id.astype(jnp.uint32), batch_key)

    cohort, keys = jax.vmap(of_setting)(settings.seed, settings.client_id, settings.count > 0, settings.participation)
    full = settings.num_epochs[:, None] * steps_per_epoch(settings.count, batch_size)
    share = cohort.astype(jnp.float32) if plan.work is None else plan.work
    num_steps = jnp.where(share >= 1, full, jnp.ceil(share * full * ROUND_OFF).astype(jnp.int32))
    return jnp.where(plan.active, num_steps, 0), keys


# ---- train ------------------------------------------------------------------------------------------------------


def train_pool(
    program: Program,
    settings: Settings,
    data: TrainingData,
    state: FedState,
    num_steps: Int[Array, "settings clients"],
    keys: UInt32[Array, "settings clients"],
    round_index: Array,
) -> LocalState:
    """All local steps of all clients of all settings, packed into lanes. Leaves ``[settings, clients, ...]``."""
    num_settings, num_clients = num_steps.shape
    pool = num_settings * num_clients
    setting_of = jnp.repeat(jnp.arange(num_settings, dtype=jnp.int32), num_clients)

    def flat(tree):
        return jax.tree.map(lambda leaf: leaf.reshape(pool, *leaf.shape[2:]), tree)

    tasks = ClientTask(
        settings.partition_id[setting_of],
        settings.start.reshape(pool),
        settings.count.reshape(pool),
        num_steps.reshape(pool),
        settings.client_id.reshape(pool),
        jnp.broadcast_to(round_index, (pool,)),
        keys.reshape(pool),
    )
    clients = flat(state.clients)
    plan = packing.plan_lanes(tasks.num_steps, num_lanes=program.num_lanes, chunk_length=program.chunk_length)

    def start(hyper, params, client):
        return start_local(program.build(hyper), params, client)

    def run_lane(hyper, task, server, client, local):
        return local_chunk(
            program.build(hyper),
            program.objective,
            data,
            task,
            server,
            client,
            local,
            chunk_length=program.chunk_length,
        )

    def wave(index, store):
        ids = packing.lane_clients(plan, index, num_lanes=program.num_lanes)
        busy = ids < pool
        # An idle lane reads some client, makes no step that counts, and its write falls outside the pool.
        read = jnp.minimum(ids, pool - 1)
        of = setting_of[read]
        task = _take(tasks, read)
        task = task._replace(num_steps=jnp.where(busy, task.num_steps, 0))
        after = jax.vmap(run_lane)(
            _take(settings.hyper, of), task, _take(state.server, of), _take(clients, read), _take(store, read)
        )
        return jax.tree.map(lambda a, b: a.at[ids].set(b, mode="drop"), store, after)

    store = jax.vmap(start)(_take(settings.hyper, setting_of), _take(state.server.params, setting_of), clients)
    store = jax.lax.fori_loop(0, plan.num_waves, wave, store)
    return jax.tree.map(lambda leaf: leaf.reshape(num_settings, num_clients, *leaf.shape[1:]), store)


def _take(tree, index):
    """Rows ``index`` of every leaf."""
    return jax.tree.map(lambda leaf: leaf.at[index].get(mode="promise_in_bounds"), tree)


# ---- aggregate --------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """How a setting's round went: scalars, see ``History``."""

    num_participants: Array
    num_rejected: Array
    skipped: Array
    delta_norm_mean: Array
    delta_norm_max: Array
    drift: Array


def finish_setting(program: Program, hyper, state: FedState, local: LocalState, num_steps, count):
    """One setting's end of round: messages, their mean, the server's step, the clients' new state.

    Args:
      state: the setting's state; client leaves ``[clients, ...]``.
      local: the trained clients, leaves ``[clients, ...]``.
      num_steps, count: ``[clients]`` steps really made, and rows held.

    Returns: ``(FedState, Outcome)``. A client whose message is not finite counts for nothing and keeps its state;
    with no client left the whole state stays as it was.
    """
    algorithm = program.build(hyper)
    work = LocalWork(local.params, num_steps, count)
    if algorithm.needs_server_gradient:
        num_rows = jnp.maximum(local.num_rows, 1)
        gradient = jax.tree.map(lambda total: total / aggregate.spread(num_rows, total), local.gradient_sum)
        work = work._replace(server_gradient=gradient, server_loss=local.loss_sum / num_rows)
    if algorithm.correct_personal is not None:
        work = work._replace(personal=local.personal)
    result = jax.vmap(algorithm.client_update, in_axes=(None, 0, 0))(state.server, state.clients, work)

    trained = num_steps > 0
    counts = trained & aggregate.all_finite(result.message)
    axis = program.clients_axis
    mean = aggregate.weighted_mean(result.message, result.weight, counts, axis)
    num_counted, num_with_rows = aggregate.total(counts, axis), aggregate.total(count > 0, axis)
    participation = num_counted / jnp.maximum(num_with_rows, 1)
    anybody = num_counted > 0
    server = optax.tree.where(anybody, algorithm.server_update(state.server, mean, participation), state.server)
    clients = aggregate.where_clients(counts, result.client, state.clients)
    outcome = Outcome(
        aggregate.total(trained, axis),
        aggregate.total(trained & ~counts, axis),
        ~anybody,
        *client_drift(state.server.params, local.params, counts, axis),
    )
    return FedState(server, clients), outcome


def client_drift(params, local_params, counts: Bool[Array, " clients"], axis: str | None) -> tuple[Array, Array, Array]:
    """Mean and largest norm of the client changes, and the mean norm of their deviation from their mean."""
    delta = jax.tree.map(lambda w_k, w_t: w_k - w_t[None], local_params, params)
    delta = aggregate.where_clients(counts, delta, jax.tree.map(jnp.zeros_like, delta))
    num_counted = aggregate.total(counts, axis)
    mean = jax.tree.map(lambda d: aggregate.total(d, axis) / jnp.maximum(num_counted, 1), delta)
    deviation = jax.tree.map(lambda d, m: d - m[None], delta, mean)

    def norms(tree):
        squares = [jnp.sum(leaf**2, axis=tuple(range(1, leaf.ndim))) for leaf in jax.tree.leaves(tree)]
        return jnp.where(counts, jnp.sqrt(sum(squares)), 0.0)

    def mean_or_nan(values):
        return jnp.where(num_counted > 0, aggregate.total(values, axis) / jnp.maximum(num_counted, 1), jnp.nan)

    largest = jnp.where(num_counted > 0, aggregate.largest(norms(delta), axis), jnp.nan)
    return mean_or_nan(norms(delta)), largest, mean_or_nan(norms(deviation))


# ---- score ------------------------------------------------------------------------------------------------------


def score_settings(program: Program, params, test_features, scored: Bool[Array, " settings"]) -> score.Scores:
    """Scores of every setting's global model, one model at a time; NaN for those that are not scored."""
    unknown = score.Scores(*(jnp.asarray(jnp.nan, jnp.float32) for _ in score.Scores._fields))
    if program.num_test == 0:
        return jax.tree.map(lambda nan: jnp.full(scored.shape, nan), unknown)

    def of_setting(params):
        logits = score.test_logits(program.objective.apply, params, test_features)
        return score.pooled_scores(logits, num_samples=program.num_test, num_positives=program.num_test_positives)

    # The map is sequential, so a model that is not scored costs nothing.
    return jax.lax.map(lambda one: jax.lax.cond(one[1], of_setting, lambda _: unknown, one[0]), (params, scored))


# ---- rounds -----------------------------------------------------------------------------------------------------


def init_settings(program: Program, settings: Settings, params) -> FedState:
    """The state before the first round; ``params`` leaves ``[settings, ...]``."""
    num_clients = settings.count.shape[1]
    state = jax.vmap(lambda hyper, params: program.build(hyper).init(params, num_clients))(settings.hyper, params)
    return state._replace(clients=own_clients(program, state.clients))


def own_clients(program: Program, tree):
    """This device's share of the clients; leaves ``[settings, clients, ...]``."""
    axis = program.clients_axis
    if axis is None:
        return tree

    def share(leaf):
        size = leaf.shape[1] // jax.lax.psum(1, axis)
        return jax.lax.dynamic_slice_in_dim(leaf, jax.lax.axis_index(axis) * size, size, axis=1)

    return jax.tree.map(share, tree)


def count_rows(settings: Settings, num_steps: Int[Array, "settings clients"], batch_size: int) -> Array:
    """Rows visited by each setting's clients in ``num_steps`` steps each (a last batch may be partial)."""
    in_epoch = jnp.maximum(steps_per_epoch(settings.count, batch_size), 1)
    rest = jnp.minimum(num_steps % in_epoch * batch_size, settings.count)
    return jnp.sum(num_steps // in_epoch * settings.count + rest, axis=1)


def run_rounds(
    program: Program,
    settings: Settings,
    data: TrainingData,
    test_features: Array | None,
    state: FedState,
    plan: RoundPlan,
) -> tuple[FedState, History]:
    """Rounds of all settings, as one scan. History leaves ``[rounds, settings]``.

    ``settings`` and ``plan.work`` name all clients; client leaves of ``state`` are this device's.
    """
    here = own_clients(program, dict(start=settings.start, count=settings.count, client_id=settings.client_id))
    settings_here = settings._replace(**here)

    def round_step(state, plan):
        num_steps, keys = select(settings, plan, program.objective.batch_size)
        steps_here, keys_here = own_clients(program, (num_steps, keys))
        local = train_pool(program, settings_here, data, state, steps_here, keys_here, plan.round_index)
        finish = functools.partial(finish_setting, program)
        state, outcome = jax.vmap(finish)(settings.hyper, state, local, steps_here, settings_here.count)
        scores = score_settings(program, state.server.params, test_features, plan.scored)
        rows = count_rows(settings, num_steps, program.objective.batch_size)
        history = History(**scores._asdict(), **outcome._asdict(), num_steps=jnp.sum(num_steps, 1), num_rows=rows)
        return state, history

    return jax.lax.scan(round_step, state, plan)


# ---- one setting ------------------------------------------------------------------------------------------------


class Constant(NamedTuple):
    """A ``build`` that ignores its hyperparameters; equal for equal algorithms, so that nothing recompiles."""

    algorithm: FedAlgorithm

    def __call__(self, hyper) -> FedAlgorithm:
        del hyper
        return self.algorithm


_run_rounds = jax.jit(run_rounds, static_argnums=0)


def simulate(
    algorithm: FedAlgorithm,
    model: Model,
    train: Transactions,
    partition: Partition,
    *,
    test: Transactions | None = None,
    num_rounds: int = 10,
    num_epochs: int = 1,
    batch_size: int = 64,
    seed: int = 0,
    participation: float = 1.0,
    work: np.ndarray | None = None,
    params: Any = None,
    loss_fn: Callable = losses.binary_cross_entropy,
    batch_fn: Callable = shuffled_epochs,
    num_lanes: int | None = None,
    chunk_length: int | None = None,
) -> tuple[FedState, History]:
    """One federation: the sweep's engine with a single setting.

    Args:
      algorithm: for example ``algorithms.fedavg(optax.sgd(0.05))``.
      model: the classifier.
      train: the training rows (standardise them first: ``data.split``).
      partition: which client owns which row of ``train``.
      test: rows to score the global model on after every round; None = NaN scores.
      num_rounds, num_epochs, batch_size: communication rounds, local epochs a round, rows of a batch.
      seed: decides the start (unless ``params``), the cohorts and the batches.
      participation: share of the clients with rows that take part in a round, in (0, 1].
      work: ``[rounds, clients]`` in [0, 1], each client's share of its local work, instead of drawn cohorts.
      params: the first global model, instead of ``model.init``.
      loss_fn: ``(logits, labels) -> losses``, per row.
      batch_fn: ``(task, step, batch_size) -> (positions, valid)``, instead of shuffled epochs.
      num_lanes, chunk_length: the packing; chosen from the clients' sizes by default.

    Returns: the final ``FedState`` (client leaves ``[clients, ...]``) and the ``History``, arrays ``[rounds]``.

    Raises: ValueError for sizes below 1, a table with bad values, or a partition of another table.
    """
    for name, value in (("num_rounds", num_rounds), ("num_epochs", num_epochs), ("batch_size", batch_size)):
        check_count(name, value)
    for name, value in (("num_lanes", num_lanes), ("chunk_length", chunk_length)):
        if value is not None:
            check_count(name, value)
    check_seed(seed)
    check_participation(participation)
    check_rows("train", train.features, train.labels)
    check_partition(partition, len(train.labels))
    num_clients = len(partition.count)

    settings = Settings(
        hyper={},
        seed=np.full(1, seed, np.uint32),
        num_epochs=np.full(1, num_epochs, np.int32),
        participation=np.full(1, participation, np.float32),
        partition_id=np.zeros(1, np.int32),
        start=np.asarray(partition.start, np.int32)[None],
        count=np.asarray(partition.count, np.int32)[None],
        client_id=np.arange(num_clients, dtype=np.int32)[None],
    )
    settings = jax.tree.map(jnp.asarray, settings)
    full_steps = num_epochs * -(-np.asarray(partition.count) // batch_size)
    limits = packing.packing_limits(jax.default_backend(), batch_size)
    lanes, chunk = packing.choose_packing(full_steps, **limits)
    program = Program(
        Constant(algorithm),
        Objective(model.apply, loss_fn, batch_size, batch_fn),
        num_lanes or lanes,
        chunk_length or chunk,
    )
    test_features = None
    if test is not None:
        check_rows("test", test.features, test.labels)
        check_width(train.features.shape[1], test.features.shape[1])
        test_set = score.make_test_set(test.features, test.labels)
        test_features = jnp.asarray(test_set.features)
        program = program._replace(num_test=test_set.num_samples, num_test_positives=test_set.num_positives)
    plan = RoundPlan(jnp.arange(1, num_rounds + 1), jnp.ones(num_rounds, bool), jnp.ones((num_rounds, 1), bool))
    if work is not None:
        work = np.asarray(work, np.float32)
        check_work(work, (num_rounds, num_clients))
        plan = plan._replace(work=jnp.asarray(work)[:, None])
    data = make_training_data(train.features, train.labels, np.asarray(partition.order)[None])
    params = model.init(jax.random.key(seed)) if params is None else params
    state = init_settings(program, settings, jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], params))
    state, history = _run_rounds(program, settings, data, test_features, state, plan)
    return jax.tree.map(lambda leaf: leaf[0], state), jax.tree.map(lambda leaf: leaf[:, 0], history)
