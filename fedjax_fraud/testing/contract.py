"""The promises of an algorithm, each a function that raises AssertionError where one is broken.

Every check takes ``build`` (hyperparameters -> ``FedAlgorithm``) and ``hyper``, the hyperparameters that have to have a
certain value for the method to make sense. The others vary between the four small federations that the checks run:
``client_lr`` from 0.1 to 0.5, ``mu`` from 0 to 1, cohorts from two clients to all, one to three epochs, a client of a
single row and one without any.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from fedjax_fraud import local
from fedjax_fraud.server import finish_setting
from fedjax_fraud.simulate import run_rounds
from fedjax_fraud.testing import federations as small
from fedjax_fraud.types import FedAlgorithm, LocalWork

# Two programs that compute the same numbers in another order: a few units in the last place per operation.
_EAGER, _PACKED, _POOLED = 1e-6, 2e-6, 5e-6
_INVARIANT = 2e-6

Build = Callable[[Mapping[str, Any]], FedAlgorithm]


def check_algorithm(build: Build, **hyper: float) -> None:
    """Runs every check of ``CHECKS``; takes about ten seconds, most of them to compile.

    Args:
      build: hyperparameters -> ``FedAlgorithm``; called with traced numbers. It must be the same function each time.
      hyper: name -> value of the hyperparameters that ``build`` reads beside ``client_lr`` and ``mu``, or that must
        have a certain value.

    Raises: AssertionError that begins with the name of the promise that is broken.

    Example:
      >>> import optax
      >>> from fedjax_fraud import algorithms
      >>> check_ledger(lambda hyper: algorithms.fedavg(optax.sgd(hyper["client_lr"])))  # one of the checks
    """
    for name, check in CHECKS.items():
        try:
            check(build, hyper)
        except jax.errors.ConcretizationTypeError as error:
            raise AssertionError(
                f"{name}: hyperparameters are traced inside compiled code, so no `if`, `float()` or `max()` on them "
                f"(use jnp.where, jnp.maximum): {str(error).splitlines()[0]}"
            ) from error
        except AssertionError as error:
            raise AssertionError(f"{name}: {str(error).strip()}") from error


# ---- the slots alone --------------------------------------------------------------------------------------------

_PARAMS = {"kernel": jnp.array([[0.5], [-1.0]]), "bias": jnp.array([2.0])}


def check_jit_equals_eager(build: Build, hyper: Mapping[str, float] = {}) -> None:
    """Every slot gives the same numbers with traced hyperparameters as without, and finite ones."""

    def run(hyper):
        return _slots(build(hyper), _PARAMS)

    eager = run(_traced(hyper))
    _assert_close(jax.jit(run)(_traced(hyper)), eager, _EAGER, "under jit and eagerly")
    _assert_finite(eager, "what the slots return")


def check_strict_dtypes(build: Build, hyper: Mapping[str, float] = {}) -> None:
    """Every slot runs where JAX refuses to mix number types. (Not in ``CHECKS``: optax's Adam does not.)"""
    with jax.numpy_dtype_promotion("strict"):
        jax.eval_shape(lambda h: _slots(build(h), _PARAMS), _traced(hyper))


def check_ledger(build: Build, hyper: Mapping[str, float] = {}) -> None:
    """``cost.up`` is what the message holds, in models, scalars aside."""
    algorithm = build(_traced(hyper))
    params = small.LOGISTIC.init(jax.random.key(0))
    state = algorithm.init(params, 1)
    client = small.of_setting(state.clients, 0)
    work = LocalWork(params, jnp.int32(1), jnp.int32(1), params, jnp.float32(1), params)
    message = algorithm.client_update(state.server, client, work).message
    sent = optax.tree.size([leaf for leaf in jax.tree.leaves(message) if jnp.ndim(leaf) > 0])
    told = algorithm.cost.up * optax.tree.size(params)
    if sent != told:
        raise AssertionError(f"the message holds {sent} numbers, `cost.up` = {algorithm.cost.up} says {told}")


def _traced(hyper: Mapping[str, float]) -> dict[str, jax.Array]:
    """All hyperparameters as arrays."""
    return {name: jnp.float32(value) for name, value in (dict(client_lr=0.1, mu=0.5, server_lr=1.0) | hyper).items()}


def _slots(algorithm: FedAlgorithm, params):
    """Every slot of the contract once, for one client that made three steps on seven rows."""
    state = algorithm.init(params, 2)
    server, client = state.server, small.of_setting(state.clients, 0)
    grads = jax.tree.map(lambda p: 0.3 + jnp.cos(p), params)
    corrected = algorithm.correct(grads, optax.tree.scale(1.5, params), server, client)
    own = params
    if algorithm.correct_personal is not None:
        own = algorithm.correct_personal(grads, optax.tree.scale(1.5, client.personal), server, client)
    work = LocalWork(optax.tree.scale(0.5, params), jnp.int32(3), jnp.int32(7), grads, jnp.float32(0.7), own)
    result = algorithm.client_update(server, client, work)
    # The weights' prefix tree must fit the message, as the engine's mean requires.
    jax.tree.map(lambda w, part: jax.tree.map(lambda leaf: w * leaf, part), result.weight, result.message)
    return state, corrected, result, algorithm.server_update(server, result.message, jnp.float32(0.5))


# ---- in the engine ----------------------------------------------------------------------------------------------


def _same_rows(hyper: Mapping[str, Any], **changes) -> small.Federations:
    """Settings that differ in seed, rate, mu, epochs and cohort, but not in who owns which rows."""
    varied = {name: small.UNEQUAL[name] for name in ("client_lr", "mu")}
    others = {name: value for name, value in small.UNEQUAL.items() if name not in varied}
    arguments = others | dict(hyper=varied | dict(hyper), partition_id=0, counts=small.COUNTS) | changes
    return small.federations(**arguments)


def check_state_keeps_its_form(build: Build, hyper: Mapping[str, float] = {}) -> None:
    """Over three rounds the state keeps structure, shapes and number types and stays finite; no update is left out."""
    state, _, result, server = jax.eval_shape(lambda h: _slots(build(h), _PARAMS), _traced(hyper))
    _assert_same_form(server, state.server, "what `server_update` returns and `init`'s server")
    client = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), state.clients)
    _assert_same_form(result.client, client, "what `client_update` keeps and `init`'s client")
    feds = _same_rows(hyper)
    prog = small.program(build)
    first = small.init_state(prog.build, feds.settings(), feds.params)
    for leaf in jax.tree.leaves(first.clients):
        if leaf.shape[:2] != (small.NUM_SETTINGS, small.NUM_CLIENTS):
            raise AssertionError(f"`init` must stack client state [clients, ...], got a leaf of shape {leaf.shape[1:]}")
    for state, history in zip(*small.run_engine(prog, feds, 3), strict=True):
        _assert_same_form(state, first, "the state after a round and before it")
        _assert_finite(state, "the state")
        if np.any(history.num_rejected):
            raise AssertionError(f"the server left out {np.sum(history.num_rejected)} updates that were not finite")


def check_packing(build: Build, hyper: Mapping[str, float] = {}) -> None:
    """A round of packed lanes equals every client on its own, step after step, through the same functions."""
    feds = _same_rows(hyper)
    prog = small.program(build)
    (state,), _ = small.run_engine(prog, feds, 1)
    settings, data = jax.device_get(feds.settings()), feds.data()
    start = jax.device_get(small.init_state(prog.build, settings, feds.params))
    selected = small.quick_select()(feds.settings(), small.one_round(1), prog.objective.batch_size)
    num_steps, keys = jax.device_get(selected[:2])

    @functools.partial(jax.jit, compiler_options=small.quick_options())
    def step(hyper, task, server, client, carried):
        batches = local.plan_batches(prog.objective, data, task, carried.num_done, 1)
        batch = jax.tree.map(lambda leaf: leaf[0], batches)
        after = local.local_step(prog.build(hyper), prog.objective, data, batch, server, client, carried)
        return after._replace(num_done=carried.num_done + 1)

    finish = jax.jit(functools.partial(finish_setting, prog), compiler_options=small.quick_options())
    for f in (0, small.NUM_SETTINGS - 1):
        hyper_f, before = small.of_setting(settings.hyper, f), small.of_setting(start, f)
        trained = []
        for k in range(small.NUM_CLIENTS):
            client = small.of_setting(before.clients, k)
            carried = local.start_local(prog.build(hyper_f), before.server.params, client)
            task = local.ClientTask(
                settings.partition_id[f],
                settings.start[f, k],
                settings.count[f, k],
                num_steps[f, k],
                np.int32(k),
                np.int32(1),
                keys[f, k],
            )
            for _ in range(int(num_steps[f, k])):
                carried = step(hyper_f, task, before.server, client, carried)
            trained.append(carried)
        trained = jax.tree.map(lambda *leaves: np.stack(leaves), *trained)
        after, _ = finish(hyper_f, before, trained, num_steps[f], settings.count[f])
        _assert_close(small.of_setting(state, f), after, _PACKED, "in packed lanes and in a plain loop")


def check_empty_clients_and_neighbours(build: Build, hyper: Mapping[str, float] = {}) -> None:
    """Settings in one pool equal their separate runs, and a client without rows changes nothing and keeps its state."""
    feds = _same_rows(hyper)
    prog = small.program(build)
    first = small.init_state(prog.build, feds.settings(), feds.params)
    together = small.run_engine(prog, feds, 3)[0][-1]
    for f in range(small.NUM_SETTINGS):
        alone = small.federations(
            counts=small.COUNTS[:-1],
            orders=feds.orders,
            num_settings=1,
            hyper={name: value[f] for name, value in feds.hyper.items()},
            **{name: small.UNEQUAL[name][f] for name in ("seed", "num_epochs", "participation")},
        )
        apart = small.of_setting(small.run_engine(prog, alone, 3)[0][-1], 0)
        server = small.of_setting(together.server, f)
        _assert_close(apart.server, server, _POOLED, "alone and among other settings")
        if small.UNEQUAL["participation"][f] < 1:
            continue
        clients = small.of_setting(together.clients, f)
        others = jax.tree.map(lambda leaf: leaf[:-1], clients)
        _assert_close(apart.clients, others, _POOLED, "without a client that has no rows, and with one")
        untouched = jax.tree.map(lambda leaf, f=f: np.asarray(leaf)[f, -1], first.clients)
        without_rows = jax.tree.map(lambda leaf: leaf[-1], clients)
        _assert_close(without_rows, untouched, 0.0, "after and before, in a client without rows")


def check_one_trace(build: Build, hyper: Mapping[str, float] = {}) -> None:
    """Other cohorts, seeds, epochs and hyperparameters need no new compilation."""
    prog = small.program(build)
    feds = _same_rows(hyper)
    num_traces = 0

    def counted(*arguments):
        nonlocal num_traces
        num_traces += 1
        return run_rounds(*arguments)

    run = jax.jit(counted, static_argnums=0, compiler_options=small.quick_options())
    _, first = small.run_engine(prog, feds, 2, run=run)
    changed = feds._replace(
        seed=feds.seed + np.uint32(9),
        participation=np.full(small.NUM_SETTINGS, 0.5, np.float32),
        num_epochs=np.full(small.NUM_SETTINGS, 4, np.int32),
        hyper={name: value + np.float32(0.25) for name, value in feds.hyper.items()},
        counts=feds.counts[:, ::-1],
        start=np.cumsum(feds.counts[:, ::-1], axis=1) - feds.counts[:, ::-1],
    )
    _, second = small.run_engine(prog, changed, 2, run=run)
    if num_traces != 1:
        raise AssertionError(f"the same program was traced {num_traces} times: something static depends on a number")
    cohorts = [set(np.asarray(history[0].num_participants).tolist()) for history in (first, second)]
    if cohorts != [{4, 2}, {2}]:
        raise AssertionError(f"cohorts must hold 4 or 2 clients, then 2, got {cohorts}")


def check_invariant(build: Build, hyper: Mapping[str, float] = {}) -> None:
    """What the algorithm calls its ``invariant`` is zero after every round under any participation, if it has one."""
    algorithm = build(_traced(hyper))
    if algorithm.invariant is None:
        return
    feds = _same_rows(hyper, participation=[0.25, 0.5, 0.75, 1.0])
    has_rows = feds.counts > 0
    for state in small.run_engine(small.program(build), feds, 6)[0]:
        for f in range(small.NUM_SETTINGS):
            mean = jax.tree.map(lambda leaf, f=f: leaf[f][has_rows[f]].mean(axis=0), state.clients)
            for leaf in jax.tree.leaves(algorithm.invariant(small.of_setting(state.server, f), mean)):
                np.testing.assert_allclose(leaf, 0, atol=_INVARIANT, err_msg="the invariant is off")


CHECKS: dict[str, Callable] = {
    "jit equals eager": check_jit_equals_eager,
    "ledger": check_ledger,
    "state keeps its form": check_state_keeps_its_form,
    "packing": check_packing,
    "empty clients and neighbours": check_empty_clients_and_neighbours,
    "one trace": check_one_trace,
    "invariant": check_invariant,
}
"""What ``check_algorithm`` runs, by name."""


# ---- comparing --------------------------------------------------------------------------------------------------


def _assert_same_form(actual, wanted, between: str) -> None:
    """One structure, and one shape and number type for each leaf."""
    structures = jax.tree.structure(actual), jax.tree.structure(wanted)
    if structures[0] != structures[1]:
        raise AssertionError(f"{between}: the structure differs, {structures[0]} and {structures[1]}")
    for (path, leaf), other in zip(jax.tree.leaves_with_path(actual), jax.tree.leaves(wanted), strict=True):
        forms = [f"{one.dtype}{list(one.shape)}" for one in (leaf, other)]
        if forms[0] != forms[1]:
            raise AssertionError(f"{between}: {jax.tree_util.keystr(path)} is {forms[0]} and {forms[1]}")


def _assert_close(actual, wanted, tolerance: float, between: str) -> None:
    """One form, and equal numbers up to a tolerance, relative or absolute."""
    _assert_same_form(actual, wanted, between)
    for (path, leaf), other in zip(jax.tree.leaves_with_path(actual), jax.tree.leaves(wanted), strict=True):
        where = f"{between}: {jax.tree_util.keystr(path)} differs"
        np.testing.assert_allclose(np.asarray(leaf), np.asarray(other), rtol=tolerance, atol=tolerance, err_msg=where)


def _assert_finite(tree, what: str) -> None:
    """No NaN and no infinity."""
    for path, leaf in jax.tree.leaves_with_path(tree):
        if not np.all(np.isfinite(np.asarray(leaf))):
            raise AssertionError(f"{what}: {jax.tree_util.keystr(path)} is not finite")
