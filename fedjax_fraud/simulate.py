"""The engine: select, train, aggregate, score; all clients of all settings as one pool, all rounds in one scan.

The four phases of a round have a file each: ``conditions`` (select), ``train``, ``server`` (aggregate) and ``score``.
They are the only places that map an algorithm, which is written for one client and one setting, over either.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from fedjax_fraud import losses, packing, score
from fedjax_fraud.checks import (
    check_available,
    check_clock,
    check_count,
    check_partition,
    check_rows,
    check_seed,
    check_width,
    check_work,
)
from fedjax_fraud.conditions import IDEAL, Clock, Conditions, as_arrays, check_conditions, select
from fedjax_fraud.diagnostics import Diagnosis, diagnose
from fedjax_fraud.local import Objective, TrainingData, make_training_data, shuffled_epochs, steps_per_epoch
from fedjax_fraud.models import check_fits
from fedjax_fraud.program import History, Program, RoundPlan, Settings, own_clients
from fedjax_fraud.server import finish_setting
from fedjax_fraud.train import train_pool
from fedjax_fraud.types import FedAlgorithm, FedState, Model, Partition, Transactions

# ---- score ------------------------------------------------------------------------------------------------------


def score_settings(
    program: Program, params, test_features, scored: Bool[Array, " settings"]
) -> tuple[score.Scores, Any]:
    """Scores of every setting's global model, one model at a time; NaN for those that are not scored.

    Returns: ``(Scores, extra)``, fields ``[settings]``.
    """

    def of_setting(params):
        found = _unknown(score.Scores, ())
        if program.num_test:
            logits = score.test_logits(program.objective.apply, params, test_features)
            found = score.pooled_scores(logits, num_samples=program.num_test, num_positives=program.num_test_positives)
        return found, () if program.score_fn is None else program.score_fn(params, test_features)

    if not program.num_test and program.score_fn is None:
        return _unknown(score.Scores, scored.shape), ()
    nothing = jax.tree.map(
        lambda leaf: jnp.full(leaf.shape, jnp.nan, leaf.dtype),
        jax.eval_shape(of_setting, jax.tree.map(lambda leaf: leaf[0], params)),
    )
    # The map is sequential, so a model that is not scored costs nothing.
    return jax.lax.map(lambda one: jax.lax.cond(one[1], of_setting, lambda _: nothing, one[0]), (params, scored))


def _unknown(kind: type, shape: Sequence[int]):
    """A NamedTuple of NaN."""
    return kind(*(jnp.full(shape, jnp.nan, jnp.float32) for _ in kind._fields))


# ---- rounds -----------------------------------------------------------------------------------------------------


def init_settings(program: Program, settings: Settings, params) -> FedState:
    """The state before the first round; ``params`` leaves ``[settings, ...]``."""
    num_clients = settings.count.shape[1]
    state = jax.vmap(lambda hyper, params: program.build(hyper).init(params, num_clients))(settings.hyper, params)
    return state._replace(clients=own_clients(program, state.clients))


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
        chosen = select(settings, plan, program.objective.batch_size)
        num_steps, keys, faulty = own_clients(program, (chosen.num_steps, chosen.keys, chosen.faulty))
        here = (program, settings_here, data, state)
        local = train_pool(*here, num_steps, keys, plan.round_index)
        diagnosis = _unknown(Diagnosis, num_steps.shape[:1])
        if program.diagnostics:
            diagnosis = diagnose(*here, local, num_steps, keys, plan.round_index)
        finish = functools.partial(finish_setting, program)
        state, outcome = jax.vmap(finish)(
            settings.hyper, state, local, num_steps, settings_here.count, settings.conditions, faulty
        )
        scores, extra = score_settings(program, state.server.params, test_features, plan.scored)
        history = History(
            **scores._asdict(),
            **outcome._asdict(),
            **diagnosis._asdict(),
            num_started=jnp.sum(chosen.started, axis=1),
            num_steps=jnp.sum(chosen.num_steps, axis=1),
            num_rows=count_rows(settings, chosen.num_steps, program.objective.batch_size),
            seconds=chosen.seconds,
            extra=extra,
        )
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
    conditions: Conditions = IDEAL,
    work: np.ndarray | None = None,
    available: np.ndarray | None = None,
    step_seconds: Any = None,
    link_seconds: Any = 0.0,
    params: Any = None,
    loss_fn: Callable = losses.binary_cross_entropy,
    batch_fn: Callable = shuffled_epochs,
    score_fn: Callable | None = None,
    diagnostics: bool = False,
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
      conditions: stragglers, drop-outs, faults and what the server does about them; its ``participation`` counts
        unless ``participation`` is given.
      work: ``[rounds, clients]`` in [0, 1], each client's share of its local work, instead of drawn cohorts.
      available: ``[rounds, clients]`` bool, who can be reached in which round; cohorts are drawn first, so a round
        may have fewer clients than asked for, or none.
      step_seconds, link_seconds: simulated seconds of a local step, and to receive and send what a round needs:
        a number, or ``[clients]``. Without ``step_seconds`` rounds have no duration.
      params: the first global model, instead of ``model.init``.
      loss_fn: ``(logits, labels) -> losses``, per row.
      batch_fn: ``(task, step, batch_size) -> (positions, valid)``, instead of shuffled epochs.
      score_fn: ``(params, test_features) -> pytree`` of scalars for ``History.extra``, after every round.
      diagnostics: also measure the gradients of ``diagnostics``, at about two more passes over the rows a round.
      num_lanes, chunk_length: the packing; chosen from the clients' sizes by default.

    Returns: the final ``FedState`` (client leaves ``[clients, ...]``) and the ``History``, arrays ``[rounds]``.

    With a ``loss_fn`` of your own, labels may be any finite numbers, and the model's output of any shape that the loss
    takes; ``test`` then needs labels 0 and 1, so leave it out and pass a ``score_fn``.

    Raises: ValueError for an argument out of range, a table with bad values, or a partition of another table.

    Example: SCAFFOLD on three banks, two rounds.
      >>> from fedjax_fraud import algorithms, data, models, partition
      >>> train, test = data.split(data.paysim_like(500, seed=0, fraud_rate=0.1))
      >>> banks = partition.dirichlet_labels(train.labels, num_clients=3, alpha=0.5, seed=0)
      >>> model = models.logistic_regression(train.features.shape[1])
      >>> state, history = simulate(algorithms.scaffold(0.1), model, train, banks, test=test, num_rounds=2)
      >>> history.average_precision.shape, state.clients.control["kernel"].shape
      ((2,), (3, 12, 1))
    """
    for name, value in (("num_rounds", num_rounds), ("num_epochs", num_epochs), ("batch_size", batch_size)):
        check_count(name, value)
    for name, value in (("num_lanes", num_lanes), ("chunk_length", chunk_length)):
        if value is not None:
            check_count(name, value)
    check_seed(seed)
    if participation != 1.0:
        conditions = conditions._replace(participation=participation)
    check_conditions(conditions)
    if algorithm.privacy is not None and batch_fn is not shuffled_epochs:
        raise ValueError("`batch_fn` must be left out for an algorithm with noise: its rows are drawn by coins.")
    binary = loss_fn is losses.binary_cross_entropy
    check_rows("train", train.features, train.labels, binary=binary)
    check_partition(partition, len(train.labels))
    num_clients = len(partition.count)

    settings = Settings(
        hyper={},
        seed=np.full(1, seed, np.uint32),
        num_epochs=np.full(1, num_epochs, np.int32),
        participation=np.full(1, conditions.participation, np.float32),
        partition_id=np.zeros(1, np.int32),
        start=np.asarray(partition.start, np.int32)[None],
        count=np.asarray(partition.count, np.int32)[None],
        client_id=np.arange(num_clients, dtype=np.int32)[None],
        clock=_make_clock(step_seconds, link_seconds, num_clients),
        conditions=as_arrays([conditions], [available is not None]),
    )
    settings = jax.tree.map(jnp.asarray, settings)
    full_steps = num_epochs * -(-np.asarray(partition.count) // batch_size)
    limits = packing.packing_limits(jax.default_backend(), batch_size)
    lanes, chunk = packing.choose_packing(full_steps, **limits)
    program = Program(
        Constant(algorithm),
        Objective(model.apply, loss_fn, batch_size, batch_fn, model.tapped),
        num_lanes or lanes,
        chunk_length or chunk,
        score_fn=score_fn,
        diagnostics=diagnostics,
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
    if available is not None:
        check_available(np.asarray(available), (num_rounds, num_clients))
        plan = plan._replace(available=jnp.asarray(available, bool))
    data = make_training_data(train.features, train.labels, np.asarray(partition.order)[None])
    params = model.init(jax.random.key(seed)) if params is None else params
    check_fits(model, params, train.features.shape[1], one_logit=binary)
    state = init_settings(program, settings, jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], params))
    state, history = _run_rounds(program, settings, data, test_features, state, plan)
    return jax.tree.map(lambda leaf: leaf[0], state), jax.tree.map(lambda leaf: leaf[:, 0], history)


def _make_clock(step_seconds, link_seconds, num_clients: int) -> Clock | None:
    """One setting's clock from numbers or one for each client."""
    if step_seconds is None:
        return None
    check_clock("step_seconds", step_seconds, num_clients)
    check_clock("link_seconds", link_seconds, num_clients)
    return Clock(*(np.full((1, num_clients), value, np.float32) for value in (step_seconds, link_seconds)))
