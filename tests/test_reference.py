"""The engine against ``reference.py``, and the small federations on which the other test files drive the engine.

Tolerance: a round is at most a few hundred float32 operations on numbers of size one, each off by at most 6e-8, and
nothing cancels; ten rounds stay within 2e-5 (relative, or absolute near zero). SCAFFOLD's controls divide a model
difference by (steps x rate >= 0.05), which multiplies its rounding by up to 20: 1e-4.
"""

import functools
import itertools
import operator
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from fedjax_fraud import algorithms, local, models
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.conditions import Clock, ConditionArrays, select
from fedjax_fraud.program import Program, RoundPlan, Settings
from fedjax_fraud.simulate import init_settings, run_rounds
from fedjax_fraud.train import train_pool
from tests import reference

NUM_SAMPLES, NUM_FEATURES, NUM_CLIENTS, NUM_SETTINGS = 24, 3, 5, 4
COUNTS = (11, 1, 5, 7, 0)
TOLERANCE, CONTROL_TOLERANCE = 2e-5, 1e-4


# ---- driving the engine -----------------------------------------------------------------------------------------


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
    client_lr=0.5,
    mu=0.0,
    server_lr=0.1,
    server_rule=0.0,
    beta1=0.9,
    seed=0,
    num_epochs=1,
    participation=1.0,
    partition_id=0,
    start=None,
    client_id=None,
    num_settings=NUM_SETTINGS,
) -> Federations:
    """Federations in which every argument is one value for all settings or a list with one for each."""
    if x is None:
        x, y = table()
    counts = np.broadcast_to(np.asarray(counts, np.int32), (num_settings, np.shape(counts)[-1]))
    each = functools.partial(np.broadcast_to, shape=(num_settings,))
    hyper = dict(client_lr=client_lr, mu=mu, server_lr=server_lr, server_rule=server_rule, beta1=beta1)
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
        {name: each(np.float32(value)) for name, value in hyper.items()},
        each(np.uint32(seed)),
        each(np.int32(num_epochs)),
        each(np.float32(participation)),
        each(np.int32(partition_id)),
        np.asarray(start, np.int32),
        np.broadcast_to(np.asarray(client_id, np.int32), counts.shape),
    )


LOGISTIC = models.logistic_regression(NUM_FEATURES)
MLP = models.mlp(NUM_FEATURES, hidden=(4,))


def logistic_params(num_features=NUM_FEATURES):
    """A logistic model's parameters at zero, in Flax's layout."""
    return {"kernel": np.zeros((num_features, 1), np.float32), "bias": np.zeros(1, np.float32)}


def program(build, *, apply=LOGISTIC.apply, batch_size=2, num_lanes=3, chunk_length=2, **objective):
    """A program of the engine; equal arguments share one compiled function in the whole test session."""
    return Program(build, local.Objective(apply, batch_size=batch_size, **objective), num_lanes, chunk_length)


def accepted(options):
    """Those compiler options that this version of XLA knows."""
    known = {}
    for name, value in options.items():
        try:
            jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options={name: value})
        except jax.errors.JaxRuntimeError:
            continue
        known[name] = value
    return known


# Compiling is what these tests cost. Without these optimisers it takes a quarter of the time, and what they would save
# here is microseconds. Tests that go through ``simulate.simulate`` run the optimised program.
QUICK = accepted(
    {
        "xla_backend_optimization_level": 0,
        "xla_cpu_use_fusion_emitters": False,
        "xla_cpu_parallel_codegen_split_count": 1,
    }
)

jit_rounds = jax.jit(run_rounds, static_argnums=0, compiler_options=QUICK)


def one_round(round_index, work=None, num_settings=NUM_SETTINGS):
    """The plan of a single round; ``work`` is ``[settings, clients]``. No leading axis yet."""
    work = None if work is None else np.asarray(work, np.float32)
    return RoundPlan(np.int32(round_index), np.bool_(True), np.ones(num_settings, bool), work)


def run_engine(prog, feds: Federations, num_rounds, *, work=None, state=None, run=jit_rounds):
    """Round after round through one compiled function.

    Args:
      work: ``[rounds, settings, clients]`` or None.

    Returns: the ``FedState`` and the ``History`` (fields ``[settings]``) after each round, as NumPy arrays.
    """
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
    start = jax.jit(init_settings, static_argnums=0, compiler_options=QUICK)
    return start(program(build), settings, params)


def of_setting(tree, f):
    """Setting ``f`` of leaves ``[settings, ...]``."""
    return jax.tree.map(lambda leaf: leaf[f], tree)


IDENT_X = np.repeat([1.0, -2.0, 0.5], [2, 3, 7])[:, None]
IDENT_Y = np.repeat([1.0, 1.0, 0.0], [2, 3, 7])


def ident(**settings) -> Federations:
    """IDENT: three clients whose own rows are all alike, so that neither shuffles nor batches matter.

    Two empty clients, two columns of zeros and twelve rows of 1e30 that nobody owns fill it up to the common shapes.
    """
    x, y = np.zeros((NUM_SAMPLES, NUM_FEATURES)), np.ones(NUM_SAMPLES)
    x[12:] = 1e30
    x[:12, :1], y[:12] = IDENT_X, IDENT_Y
    return federations(x=x, y=y, counts=(2, 3, 7, 0, 0), client_lr=0.5, **settings)


def ident_rounds(states, f=0, field="params"):
    """(w, b) of setting ``f`` after each round."""
    trees = [of_setting(getattr(state.server, field), f) for state in states]
    return np.array([(tree["kernel"][0, 0], tree["bias"][0]) for tree in trees])


class Quadratic(NamedTuple):
    """A federation of one-dimensional quadratics h w^2 / 2 + g w, on whose rows everything can be worked by hand.

    Attributes:
      start, count: ``[3]`` each client's rows of ``QUADRATIC_ROWS``; all rows of a client are alike, and a batch is
        one row, so an epoch is ``count`` full-gradient steps.
      w0: the first global model.
      lr, mu, num_epochs: as ever.
      work: ``[3]`` the share of its work that each client does, in every round.
    """

    start: tuple[int, ...]
    count: tuple[int, ...]
    w0: float
    lr: float
    mu: float = 0.0
    num_epochs: int = 1
    work: tuple[float, ...] = (1.0, 1.0, 1.0)


NUM_QUADRATICS = 8
QUADRATIC_ROWS = np.array(
    [(1, 0), (2, -6), (4, 4)]  # 0: QUAD, h = (1, 2, 4), b = (0, 3, -1), g = -h b
    + [(2, 1), (0, -1), (2, 10), (0, -10)]  # 3: Karimireddy et al.'s pair with G = 1, and 5: with G = 10
    + [(1, -10)]  # 7: (w - 10)^2 / 2
    + 10 * [(1, -1)]
    + 30 * [(1, -3)]
    + 60 * [(1, -11)]  # 8: 10, 30 and 60 rows with minima 1, 3 and 11
    + 2 * [(np.nan, 0)]  # 108: never finite
    + 2 * [(1e30, 0)],  # 110: overflows in the second step
    np.float32,
)
QUAD = Quadratic((0, 1, 2), (1, 1, 1), w0=1.0, lr=0.05, num_epochs=5)


def quadratic_logits(params, x):
    """The objective itself; the loss passes it on."""
    return x[:, 0] * params["w"] ** 2 / 2 + x[:, 1] * params["w"]


def quadratic_loss(logits, labels):
    del labels
    return logits


def run_quadratics(build, cases, num_rounds=1, controls=None):
    """The model w and the controls of each case after each round.

    Args:
      controls: ``(c, (c_1, c_2, c_3))`` to start from, the same for all cases; None = zeros.

    Returns: the states and histories of ``run_engine``, leaves ``[NUM_QUADRATICS, ...]``, the cases first.
    """
    cases = [*cases, *[cases[-1]] * (NUM_QUADRATICS - len(cases))]
    feds = federations(
        x=QUADRATIC_ROWS,
        y=np.zeros(len(QUADRATIC_ROWS)),
        start=[case.start for case in cases],
        counts=[case.count for case in cases],
        client_lr=[case.lr for case in cases],
        mu=[case.mu for case in cases],
        num_epochs=[case.num_epochs for case in cases],
        params={"w": np.float32(0)},
        num_settings=NUM_QUADRATICS,
    )._replace(params={"w": np.array([case.w0 for case in cases], np.float32)})
    prog = program(build, apply=quadratic_logits, loss_fn=quadratic_loss, batch_size=1)
    state = init_state(build, feds.settings(), feds.params)
    if controls is not None:
        c, c_k = ({"w": np.broadcast_to(np.float32(c), (NUM_QUADRATICS, *np.shape(c)))} for c in controls)
        state = state._replace(server=state.server._replace(control=c), clients=state.clients._replace(control=c_k))
    work = np.broadcast_to([case.work for case in cases], (num_rounds, NUM_QUADRATICS, 3))
    return run_engine(prog, feds, num_rounds, work=work, state=state)


def models_of(states):
    """w ``[rounds, cases]`` of quadratic federations."""
    return np.array([state.server.params["w"] for state in states])


def plain_fedavg(hyper):
    return algorithms.fedavg(optax.sgd(hyper["client_lr"]))


def uniform_fedavg(hyper):
    return algorithms.fedavg(optax.sgd(hyper["client_lr"]), uniform_weights=True)


AVERAGING = ALGORITHMS["fedprox"].build
SCAFFOLD = ALGORITHMS["scaffold"].build
SCAFFOLD_OPTION1 = ALGORITHMS["scaffold_option1"].build
SCAFFOLD_WEIGHTED = ALGORITHMS["scaffold_weighted"].build


# ---- what the reference takes from the engine: who takes part, and which rows each step reads --------------------


@functools.partial(jax.jit, static_argnames=("batch_size", "num_steps"), compiler_options=QUICK)
def _positions(count, keys, *, batch_size, num_steps):
    """Rows of every client's first steps: positions in its slice and whether they count."""

    def of_client(count, key):
        zero = jnp.zeros((), jnp.int32)
        task = local.ClientTask(zero, zero, count, zero, zero, zero, key)
        return jax.vmap(lambda s: local.shuffled_epochs(task, s, batch_size))(jnp.arange(num_steps, dtype=jnp.int32))

    return jax.vmap(jax.vmap(of_client))(count, keys)


jit_select = jax.jit(select, static_argnums=2, compiler_options=QUICK)


def engine_batches(feds: Federations, num_rounds, *, batch_size=2, work=None):
    """Row numbers of each setting, round, client and step: nested lists of arrays."""
    settings = feds.settings()
    most = int(np.max(feds.num_epochs[:, None] * -(-feds.counts // batch_size)))
    result = [[] for _ in feds.seed]
    for r in range(num_rounds):
        plan = one_round(r + 1, None if work is None else work[r])
        num_steps, keys = jax.device_get(jit_select(settings, plan, batch_size)[:2])
        position, valid = jax.tree.map(
            np.asarray, _positions(settings.count, keys, batch_size=batch_size, num_steps=most)
        )
        for f in range(len(feds.seed)):
            order = feds.orders[feds.partition_id[f]]
            result[f].append(
                [
                    [order[feds.start[f, k] + position[f, k, s][valid[f, k, s]]] for s in range(num_steps[f, k])]
                    for k in range(feds.counts.shape[1])
                ]
            )
    return result


def to_list(params):
    """Flax parameters as the reference's list ``[W1, b1, ...]``."""
    if "kernel" in params:
        return [np.asarray(params["kernel"]), np.asarray(params["bias"])]
    return [np.asarray(layer[name]) for _, layer in sorted(params.items()) for name in ("kernel", "bias")]


def assert_equals_reference(states, feds, batches, methods):
    """Every setting, every round: model, c and all c_k."""
    for f, method in enumerate(methods):
        expected = reference.run_rounds(
            to_list(of_setting(feds.params, f)),
            feds.x,
            feds.y,
            batches[f],
            feds.counts[f],
            lr=float(feds.hyper["client_lr"][f]),
            method=method,
        )
        for state, want in zip(states, expected, strict=True):
            state = of_setting(state, f)
            close(to_list(state.server.params), want.params, TOLERANCE)
            if method.option:
                close(to_list(state.server.control), want.control, CONTROL_TOLERANCE)
                for k in range(feds.counts.shape[1]):
                    close(to_list(of_setting(state.clients.control, k)), want.controls[k], CONTROL_TOLERANCE)


def close(actual, wanted, tolerance):
    """Equal shapes, and equal numbers up to ``tolerance``, relative or absolute."""
    wanted = [w.astype(np.float32) for w in wanted]
    chex.assert_trees_all_close(actual, wanted, rtol=tolerance, atol=tolerance, strict=True)
    chex.assert_tree_all_finite(actual)


# ---- the reference itself ---------------------------------------------------------------------------------------


def difference_quotients(params, x, y):
    """Central differences of the mean cross-entropy."""

    def loss(arrays):
        z = reference.scores(arrays, x)
        return np.mean(np.logaddexp(0, z) - y * z)

    result = []
    for i, array in enumerate(params):
        slope = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [p.copy() for p in params]
                moved[i][index] += step
                ends.append(loss(moved))
            slope[index] = (ends[0] - ends[1]) / 2e-6
        result.append(slope)
    return result


@pytest.mark.parametrize("widths", [(3, 1), (3, 4, 1), (3, 4, 2, 1)])
def test_the_reference_gradient_equals_difference_quotients(widths):
    rng = np.random.default_rng(3)
    params = []
    for a, b in itertools.pairwise(widths):
        params += [rng.normal(size=(a, b)), rng.normal(size=b)]
    x, y = table()
    got = reference.gradient(params, x.astype(np.float64), y)
    for g, want in zip(got, difference_quotients(params, x.astype(np.float64), y), strict=True):
        np.testing.assert_allclose(g, want, atol=1e-8)


IDENT_ROWS = [
    [np.array([0, 1])],
    [np.array([2, 3]), np.array([4])],
    [np.array([5, 6]), np.array([7, 8]), np.array([9, 10]), np.array([11])],
]
FOUR_STEPS = [steps * (4 // len(steps)) for steps in IDENT_ROWS]
NO_PARTIAL_BATCH = [[rows for rows in steps if len(rows) == 2] for steps in IDENT_ROWS]


@pytest.mark.parametrize(
    "rows, method, rounds",
    [
        (IDENT_ROWS, reference.Method(), [(-0.37116857, -0.33231621), (-0.64185438, -0.55720377)]),
        (IDENT_ROWS, reference.Method(uniform_weights=True), [(-0.29022968, -0.06154259), (-0.4998891, -0.10966213)]),
        (NO_PARTIAL_BATCH, reference.Method(), [(-0.2703249, -0.26981647), (-0.47714762, -0.46567661)]),
        (FOUR_STEPS, reference.Method(), [(-0.35663696, -0.22609935), (-0.59649351, -0.35622882)]),
        (IDENT_ROWS, reference.Method(mu=1.0), [(-0.18644088, -0.11911085), (-0.34358784, -0.21578098)]),
        (IDENT_ROWS, reference.Method(mu=2.0), [(-0.07708775, -0.05665457), (-0.14688878, -0.1054394)]),
        (IDENT_ROWS, reference.Method(mu=0.5), [(-0.2658535, -0.19981108), (-0.47710346, -0.35167536)]),
        (
            IDENT_ROWS,
            reference.Method(option=2, uniform_weights=True),
            [(-0.29022968, -0.06154259), (-0.44697211, 0.09175318), (-0.53542874, 0.23421312)],
        ),
        (
            IDENT_ROWS,
            reference.Method(option=2),
            [(-0.37116857, -0.33231621), (-0.56516556, -0.07899967), (-0.66928744, 0.16521017)],
        ),
    ],
)
def test_the_reference_reproduces_the_published_ident_rows(rows, method, rounds):
    start = [np.zeros((1, 1)), np.zeros(1)]
    states = reference.run_rounds(start, IDENT_X, IDENT_Y, [rows] * len(rounds), (2, 3, 7), lr=0.5, method=method)
    got = [(s.params[0][0, 0], s.params[1][0]) for s in states]
    np.testing.assert_allclose(got, rounds, atol=2e-8)
    if method.option:
        control = states[0].control
        np.testing.assert_allclose([control[0][0, 0], control[1][0]], (0.14056487, -0.15445372), atol=1e-8)


# ---- engine against reference -----------------------------------------------------------------------------------

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


def mlp_params():
    """One start for each setting, away from ReLU's corners."""
    rng = np.random.default_rng(5)

    def array(*shape):
        return rng.normal(size=(NUM_SETTINGS, *shape)).astype(np.float32)

    return {
        "Dense_0": {"kernel": array(NUM_FEATURES, 4), "bias": array(4)},
        "Dense_1": {"kernel": array(4, 1), "bias": array(1)},
    }


METHODS = {
    "fedprox": (AVERAGING, [reference.Method(mu=float(np.float32(mu))) for mu in UNEQUAL["mu"]]),
    "uniform fedavg": (uniform_fedavg, [reference.Method(uniform_weights=True)] * 4),
    "scaffold": (SCAFFOLD, [reference.Method(option=2, uniform_weights=True)] * 4),
    "scaffold option 1": (SCAFFOLD_OPTION1, [reference.Method(option=1, uniform_weights=True)] * 4),
    "scaffold with weights n_k": (SCAFFOLD_WEIGHTED, [reference.Method(option=2)] * 4),
}


@pytest.mark.parametrize("name", METHODS)
def test_the_engine_equals_the_reference_with_drawn_cohorts(name):
    build, methods = METHODS[name]
    feds = federations(**UNEQUAL)
    batches = engine_batches(feds, 6)
    cohort_sizes = {sum(len(steps) > 0 for steps in this_round) for this_round in batches[2]}
    assert cohort_sizes == {2}, "half of four clients with rows"
    states, _ = run_engine(program(build), feds, 6)
    assert_equals_reference(states, feds, batches, methods)


@pytest.mark.parametrize("name", ["fedprox", "scaffold"])
def test_the_engine_equals_the_reference_with_given_work(name):
    build, methods = METHODS[name]
    feds = federations(**UNEQUAL)
    work = np.random.default_rng(9).choice([0, 0.25, 0.5, 1], size=(6, NUM_SETTINGS, NUM_CLIENTS))
    batches = engine_batches(feds, 6, work=work)
    states, _ = run_engine(program(build), feds, 6, work=work)
    assert_equals_reference(states, feds, batches, methods)


@pytest.mark.parametrize("name", ["fedprox", "scaffold"])
def test_the_engine_equals_the_reference_on_an_mlp(name):
    build, methods = METHODS[name]
    feds = federations(**UNEQUAL)._replace(params=mlp_params())
    batches = engine_batches(feds, 4, batch_size=4)
    states, _ = run_engine(program(build, apply=MLP.apply, batch_size=4), feds, 4)
    assert_equals_reference(states, feds, batches, methods)


# The methods that ``reference`` writes out: what of a setting's hyperparameters each takes.
WRITTEN_OUT = {
    "fedavgm": (functools.partial(reference.fedopt, rule="avgm"), ("server_lr", "beta1")),
    "fedadagrad": (functools.partial(reference.fedopt, rule="adagrad"), ("server_lr", "beta1")),
    "fedadam": (functools.partial(reference.fedopt, rule="adam"), ("server_lr", "beta1")),
    "fedyogi": (functools.partial(reference.fedopt, rule="yogi"), ("server_lr", "beta1")),
    "fednova": (reference.fednova, ()),
    "feddyn": (reference.feddyn, ("mu",)),
    "mimelite": (reference.mimelite, ()),
    "ditto": (reference.ditto, ("mu",)),
    "fedprox_adaptive": (reference.adaptive_fedprox, ("mu",)),
}


def entry_federations(name, **changes):
    """``UNEQUAL`` with the hyperparameters that the entry fixes or has a default for."""
    entry = ALGORITHMS[name]
    return federations(**(UNEQUAL | dict(entry.defaults) | dict(entry.fixed) | changes))


def expected_fields(name, feds, batches, f):
    """What the state of setting ``f`` must hold after each round."""
    run, taken = WRITTEN_OUT[name]
    hyper = {key: float(value[f]) for key, value in feds.hyper.items()}
    return run(
        [p.astype(np.float64) for p in to_list(of_setting(feds.params, f))],
        feds.x.astype(np.float64),
        feds.y.astype(np.float64),
        batches[f],
        feds.counts[f],
        lr=hyper["client_lr"],
        **{key: hyper[key] for key in taken},
    )


def assert_field(state, field, want):
    """One field of one setting's state, client by client if it is theirs; a scalar stands for its list."""
    got = operator.attrgetter(field)(state)
    if field.startswith("clients."):
        for k, of_client in enumerate(want):
            close(to_list(of_setting(got, k)), of_client, CONTROL_TOLERANCE)
    else:
        close(to_list(got) if isinstance(got, dict) else [np.asarray(got)], want, CONTROL_TOLERANCE)


@pytest.mark.parametrize("name", WRITTEN_OUT)
def test_the_engine_equals_what_the_papers_say_with_given_work(name):
    """Absences, stragglers and unequal steps; in one setting all is done, so that its loss falls round after round.

    FedOpt's root divides by at least tau + |delta| / 10, hence ``CONTROL_TOLERANCE``.
    """
    feds = entry_federations(name)
    work = np.random.default_rng(9).choice([0, 0.25, 0.5, 1], size=(8, NUM_SETTINGS, NUM_CLIENTS))
    work[:, 1] = 1
    batches = engine_batches(feds, 8, work=work)
    states, _ = run_engine(program(ALGORITHMS[name].build), feds, 8, work=work)
    for f in range(NUM_SETTINGS):
        for state, fields in zip(states, expected_fields(name, feds, batches, f), strict=True):
            for field, want in fields.items():
                assert_field(of_setting(state, f), field, want)


# ---- packing changes nothing ------------------------------------------------------------------------------------


def rolling_batches(task, step, batch_size):
    """A ``batch_fn`` that depends on who, when and which step, and on no key: cheap to compile, easy to repeat."""
    position = (task.client_id + 2 * task.round_index + 3 * step + jnp.arange(batch_size)) % task.num_examples
    return position, jnp.arange(batch_size) < 1 + (step + task.client_id) % batch_size


def trained(feds, *, num_lanes, chunk_length):
    """The local models of a round with the given packing."""
    prog = program(SCAFFOLD, num_lanes=num_lanes, chunk_length=chunk_length, batch_fn=rolling_batches)

    @functools.partial(jax.jit, compiler_options=QUICK)
    def train(settings, data, params):
        state = init_settings(prog, settings, params)
        # Controls that differ between clients, so that a lane which served the wrong client would show.
        shift = jax.random.normal(jax.random.key(1), (NUM_SETTINGS, NUM_CLIENTS, NUM_FEATURES, 1))
        control = state.clients.control | {"kernel": shift}
        state = state._replace(clients=state.clients._replace(control=control))
        num_steps = settings.num_epochs[:, None] * -(-settings.count // 2)
        keys = jnp.arange(NUM_SETTINGS * NUM_CLIENTS, dtype=jnp.uint32).reshape(num_steps.shape)
        return train_pool(prog, settings, data, state, num_steps, keys, jnp.asarray(1)).params

    return train(feds.settings(), feds.data(), feds.params)


@pytest.fixture(scope="module")
def one_lane():
    return trained(federations(**UNEQUAL), num_lanes=1, chunk_length=1)


@pytest.mark.parametrize("num_lanes, chunk_length", [(2, 1), (3, 2), (20, 3), (4, 4), (8, 5), (7, 6), (5, 7), (1, 8)])
def test_packed_lanes_train_the_same_models_as_one_lane(one_lane, num_lanes, chunk_length):
    packed = trained(federations(**UNEQUAL), num_lanes=num_lanes, chunk_length=chunk_length)
    chex.assert_trees_all_close(packed, one_lane, rtol=2e-6, atol=2e-6, strict=True)
