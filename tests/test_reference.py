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
from fedjax_fraud.simulate import init_settings
from fedjax_fraud.testing.federations import (
    NUM_CLIENTS,
    NUM_FEATURES,
    NUM_SAMPLES,
    NUM_SETTINGS,
    UNEQUAL,
    Federations,
    federations,
    init_state,
    of_setting,
    one_round,
    program,
    quick_options,
    quick_select,
    run_engine,
    table,
)
from fedjax_fraud.train import train_pool
from tests import reference

TOLERANCE, CONTROL_TOLERANCE = 2e-5, 1e-4


MLP = models.mlp(NUM_FEATURES, hidden=(4,))
QUICK = quick_options()
jit_select = quick_select()

# ---- federations that can be worked by hand ----------------------------------------------------------------------


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
