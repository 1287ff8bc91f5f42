"""Small federations to drive the engine with, and the engine compiled without XLA's optimisers."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_fraud import local, models
from fedjax_fraud.conditions import Clock, ConditionArrays, select
from fedjax_fraud.program import Program, RoundPlan, Settings
from fedjax_fraud.simulate import init_settings, run_rounds

NUM_SAMPLES, NUM_FEATURES, NUM_CLIENTS, NUM_SETTINGS = 24, 3, 5, 4
COUNTS = (11, 1, 5, 7, 0)
LOGISTIC = models.logistic_regression(NUM_FEATURES)

# Two partitions of the same rows; the second leaves its first client empty and gives the last a single row.
ORDERS = np.stack([np.arange(NUM_SAMPLES), np.random.default_rng(1).permutation(NUM_SAMPLES)])
UNEQUAL = dict(
    orders=ORDERS,
    partition_id=[0, 1, 1, 0],
    counts=[COUNTS, (0, 4, 6, 13, 1), (0, 4, 6, 13, 1), COUNTS],
    seed=[0, 1, 2, 3],
    num_epochs=[1, 2, 1, 3],
    participation=[1.0, 1.0, 0.5, 0.4],
    client_lr=[0.5, 0.1, 0.3, 0.2],
    mu=[0.0, 0.5, 1.0, 0.1],
)
"""Four settings that differ in everything: arguments of ``federations``."""

_HYPER = dict(client_lr=0.5, mu=0.0, server_lr=0.1, server_rule=0.0, beta1=0.9)


class Federations(NamedTuple):
    """``NUM_SETTINGS`` federations on one table, unless the counts say otherwise.

    Attributes:
      x, y, orders: the table and its partitions, ``[samples, features]``, ``[samples]``, ``[partitions, samples]``.
      counts: ``[settings, clients]``; client k's rows follow those of client k - 1.
      params: the first global models, leaves ``[settings, ...]``.
      hyper: name -> ``[settings]``.
    """

    x: np.ndarray
    y: np.ndarray
    orders: np.ndarray
    counts: np.ndarray
    params: dict
    hyper: dict
    seed: np.ndarray
    num_epochs: np.ndarray
    participation: np.ndarray
    partition_id: np.ndarray
    start: np.ndarray
    client_id: np.ndarray
    clock: Clock | None = None
    conditions: ConditionArrays | None = None

    def settings(self) -> Settings:
        """The engine's arrays."""
        return jax.tree.map(
            jnp.asarray,
            Settings(
                self.hyper,
                self.seed,
                self.num_epochs,
                self.participation,
                self.partition_id,
                self.start,
                self.counts,
                self.client_id,
                self.clock,
                self.conditions,
            ),
        )

    def data(self) -> local.TrainingData:
        """The engine's rows."""
        return jax.tree.map(jnp.asarray, local.make_training_data(self.x, self.y, self.orders))


def table(num_features=NUM_FEATURES, num_samples=NUM_SAMPLES):
    """Seeded rows and labels of about the size that standardised features have."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(num_samples, num_features)).astype(np.float32)
    return x, (x.sum(axis=1) + rng.normal(size=num_samples) > 0).astype(np.float32)


def federations(
    *,
    x=None,
    y=None,
    counts=COUNTS,
    orders=None,
    params=None,
    hyper: Mapping[str, Any] = {},
    seed=0,
    num_epochs=1,
    participation=1.0,
    partition_id=0,
    start=None,
    client_id=None,
    num_settings=NUM_SETTINGS,
    **usual_hyper,
) -> Federations:
    """Federations in which every argument is one value for all settings or a list with one for each.

    The usual hyperparameters (``client_lr``, ``mu``, ``server_lr``, ``server_rule``, ``beta1``) are arguments of their
    own; those of any name stand in ``hyper``.
    """
    unknown = sorted(set(usual_hyper) - set(_HYPER))
    if unknown:
        raise TypeError(f"`{unknown[0]}` is no argument of federations. Put hyperparameters of other names in `hyper`.")
    if x is None:
        x, y = table()
    counts = np.broadcast_to(np.asarray(counts, np.int32), (num_settings, np.shape(counts)[-1]))
    each = functools.partial(np.broadcast_to, shape=(num_settings,))
    if params is None:
        params = logistic_params()
    if client_id is None:
        client_id = np.arange(counts.shape[1], dtype=np.int32)
    if start is None:
        start = np.cumsum(counts, axis=1) - counts
    orders = np.arange(len(x), dtype=np.int32)[None] if orders is None else orders
    return Federations(
        np.asarray(x, np.float32),
        np.asarray(y, np.float32),
        np.asarray(orders, np.int32),
        counts,
        jax.tree.map(lambda leaf: np.broadcast_to(leaf, (num_settings, *np.shape(leaf))), params),
        {name: each(np.float32(value)) for name, value in (_HYPER | usual_hyper | dict(hyper)).items()},
        each(np.uint32(seed)),
        each(np.int32(num_epochs)),
        each(np.float32(participation)),
        each(np.int32(partition_id)),
        np.asarray(start, np.int32),
        np.broadcast_to(np.asarray(client_id, np.int32), counts.shape),
    )


def logistic_params(num_features=NUM_FEATURES):
    """A logistic model's parameters at zero, in Flax's layout."""
    return {"kernel": np.zeros((num_features, 1), np.float32), "bias": np.zeros(1, np.float32)}


def program(build, *, apply=LOGISTIC.apply, batch_size=2, num_lanes=3, chunk_length=2, **objective):
    """A program of the engine; equal arguments share one compiled function in the whole process."""
    return Program(build, local.Objective(apply, batch_size=batch_size, **objective), num_lanes, chunk_length)


@functools.cache
def quick_options() -> dict[str, Any]:
    """Compiler options under which a small program compiles in a quarter of the time; those that this XLA knows.

    What the optimisers would save here is microseconds.
    """
    wanted = {
        "xla_backend_optimization_level": 0,
        "xla_cpu_use_fusion_emitters": False,
        "xla_cpu_parallel_codegen_split_count": 1,
    }
    known = {}
    for name, value in wanted.items():
        try:
            jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options={name: value})
        except jax.errors.JaxRuntimeError:
            continue
        known[name] = value
    return known


@functools.cache
def quick_rounds() -> Callable:
    """``simulate.run_rounds``, compiled quickly."""
    return jax.jit(run_rounds, static_argnums=0, compiler_options=quick_options())


@functools.cache
def quick_select() -> Callable:
    """``conditions.select``, compiled quickly."""
    return jax.jit(select, static_argnums=2, compiler_options=quick_options())


def one_round(round_index, work=None, num_settings=NUM_SETTINGS):
    """The plan of a single round; ``work`` is ``[settings, clients]``. No leading axis yet."""
    work = None if work is None else np.asarray(work, np.float32)
    return RoundPlan(np.int32(round_index), np.bool_(True), np.ones(num_settings, bool), work)


def run_engine(prog, feds: Federations, num_rounds, *, work=None, state=None, run=None):
    """Round after round through one compiled function.

    Args:
      prog: see ``program``.
      feds: the federations.
      num_rounds: how many rounds.
      work: ``[rounds, settings, clients]`` or None.
      state: where to start; None = the first state.
      run: another compiled ``run_rounds``; default ``quick_rounds()``.

    Returns: the ``FedState`` and the ``History`` (fields ``[settings]``) after each round, as NumPy arrays.
    """
    run = quick_rounds() if run is None else run
    settings, data = feds.settings(), feds.data()
    state = init_state(prog.build, settings, feds.params) if state is None else state
    states, histories = [], []
    for r in range(num_rounds):
        plan = one_round(r + 1, None if work is None else work[r], len(feds.seed))
        plan = jax.tree.map(lambda leaf: np.asarray(leaf)[None], plan)
        state, history = run(prog, settings, data, None, state, plan)
        # On the host from here: each index of a device array would be one more small program to compile.
        states.append(jax.device_get(state))
        histories.append(jax.tree.map(lambda leaf: np.asarray(leaf)[0], history))
    return states, histories


def init_state(build, settings, params):
    """The state before the first round, in one compiled function."""
    start = jax.jit(init_settings, static_argnums=0, compiler_options=quick_options())
    return start(program(build), settings, params)


def of_setting(tree, f):
    """Setting ``f`` of leaves ``[settings, ...]``."""
    return jax.tree.map(lambda leaf: leaf[f], tree)
