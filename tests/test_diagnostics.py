"""Dissimilarity and inexactness against full gradients written out in NumPy, and closed forms."""

import jax
import numpy as np
import pytest

from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.testing.federations import COUNTS, LOGISTIC, UNEQUAL, federations, of_setting, program, run_engine
from tests import reference
from tests.test_reference import to_list

NUM_ROUNDS = 2


def norm(arrays):
    return np.sqrt(sum(np.sum(np.asarray(a, np.float64) ** 2) for a in arrays))


def diagnosed(name, feds):
    prog = program(ALGORITHMS[name].build)._replace(diagnostics=True)
    return run_engine(prog, feds, NUM_ROUNDS)


def full_gradients(feds, f, params):
    """Of every client with rows, at one model or at its own."""
    found = {}
    for k, count in enumerate(feds.counts[f]):
        if count:
            rows = feds.orders[feds.partition_id[f]][feds.start[f, k] : feds.start[f, k] + count]
            at = params[k] if isinstance(params, dict) else params
            found[k] = reference.gradient([np.float64(p) for p in at], np.float64(feds.x[rows]), feds.y[rows])
    return found


@pytest.mark.parametrize("name", ["fedavg", "scaffold"])
def test_dissimilarity_is_the_weighted_variance_of_the_clients_gradients(name):
    feds = federations(**UNEQUAL)
    states, histories = diagnosed(name, feds)
    for f in range(len(feds.seed)):
        model = to_list(of_setting(feds.params, f))
        for state, history in zip(states, histories, strict=True):
            grads = full_gradients(feds, f, model)
            share = {k: feds.counts[f, k] / feds.counts[f].sum() for k in grads}
            mean = [sum(share[k] * grads[k][i] for k in grads) for i in range(2)]
            wanted = sum(share[k] * norm([g - m for g, m in zip(grads[k], mean, strict=True)]) ** 2 for k in grads)
            np.testing.assert_allclose(history.dissimilarity[f], wanted, rtol=2e-5)
            model = to_list(of_setting(state, f).server.params)


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_inexactness_is_the_ratio_of_the_corrected_gradients(mu):
    """One client in a federation of one: its local model is the next global model, so both ends are known."""
    feds = federations(counts=(11,), mu=mu, client_lr=0.3, num_epochs=2, seed=[0, 1, 2, 3])
    states, histories = diagnosed("fedprox", feds)
    for f in range(4):
        start = to_list(of_setting(feds.params, f))
        for state, history in zip(states, histories, strict=True):
            end = to_list(of_setting(state, f).server.params)
            before = norm(full_gradients(feds, f, start)[0])
            gradient = full_gradients(feds, f, end)[0]
            after = norm([g + mu * (w - w_t) for g, w, w_t in zip(gradient, end, start, strict=True)])
            np.testing.assert_allclose(history.inexactness_mean[f], after / before, rtol=2e-4)
            assert history.inexactness_max[f] == history.inexactness_mean[f]
            np.testing.assert_allclose(history.dissimilarity[f], 0, atol=1e-12)
            start = end


def test_without_a_step_nothing_is_solved_and_without_clients_nothing_is_known():
    feds = federations(counts=COUNTS, client_lr=0.0)
    _, (history, _) = diagnosed("fedavg", feds)
    np.testing.assert_allclose(history.inexactness_mean, 1, rtol=1e-5)
    prog = program(ALGORITHMS["fedavg"].build)._replace(diagnostics=True)
    nobody = np.zeros((1, 4, len(COUNTS)))
    _, (history,) = run_engine(prog, feds, 1, work=nobody)
    assert np.isnan(history.inexactness_mean).all() and np.isfinite(history.dissimilarity).all()


def test_more_local_work_solves_the_local_problem_better():
    feds = federations(counts=COUNTS, client_lr=0.1, num_epochs=[1, 4, 16, 64], seed=7)
    _, (history, _) = diagnosed("fedavg", feds)
    assert (np.diff(history.inexactness_mean) < 0).all()
    assert jax.tree.map(np.shape, LOGISTIC.init(jax.random.key(0)))  # a model with a unique solution
