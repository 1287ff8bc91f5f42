"""Scores by bank: every model on the test rows of each bank, a bank's own model on its own rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics

from fedjax_fraud import banks, devices, grid, logits, partition, score
from fedjax_fraud.types import Model, Transactions

NUM_BANKS, WIDTH = 3, 2


def _init(key):
    return {"w": jax.random.normal(key, (WIDTH,))}


LINEAR = Model(_init, lambda params, x: x @ params["w"])


def table(num_rows, seed):
    rng = np.random.default_rng(seed)
    labels = (rng.random(num_rows) < 0.3).astype(np.int32)
    features = np.round(rng.normal(size=(num_rows, WIDTH)), 1).astype(np.float32)  # some ties
    return Transactions(features, labels, ("a", "b"))


TRAIN, TEST = table(60, 0), table(50, 1)


def make_grid(**changes):
    options = dict(
        algorithms=["fedavg"],
        alphas=[0.5, 2.0],
        seeds=[4, 5],
        num_clients=NUM_BANKS,
        client_lrs=[0.1],
        mus=[0.0],
        num_epochs=[1],
        partition_kind="labels",
        partition_feature="amount",
        baselines=True,
    )
    return grid.make_grid(TRAIN, TEST, **(options | changes))


GRID = make_grid()


@pytest.fixture
def test_set(monkeypatch):
    monkeypatch.setattr(score, "ROWS_PER_CHUNK", 16)
    return score.make_test_set(TEST.features, TEST.labels)


def run(jobs, test_set, params):
    features, mesh = jnp.asarray(test_set.features), devices.settings_mesh(jax.devices()[:1])
    of_models = logits.lower_logits(LINEAR, [3], test_set, features, mesh).compile()
    return banks.score_jobs(jobs, of_models(params), test_set.num_positives)


def check(found, job, bank, weights, owner):
    """A job's scores of a bank are scikit-learn's on the bank's rows."""
    mine = owner == bank
    labels, scored = TEST.labels[mine], TEST.features[mine] @ weights
    probability = 1 / (1 + np.exp(-scored.astype(np.float64)))
    scores = [leaf[job, bank] for leaf in found]
    if not mine.any():
        assert np.isnan(scores).all()
        return
    np.testing.assert_allclose(scores[0], sklearn.metrics.log_loss(labels, probability, labels=[0, 1]), rtol=1e-5)
    if len(set(labels.tolist())) < 2:
        assert np.isnan(scores[1:]).all()
        return
    np.testing.assert_allclose(scores[1], sklearn.metrics.average_precision_score(labels, scored), rtol=1e-5)
    np.testing.assert_allclose(scores[2], sklearn.metrics.roc_auc_score(labels, scored), rtol=1e-5)


def owner_of(federation):
    return partition.client_of(GRID.owners[federation.alpha, federation.seed].test)


def test_shared_models_are_scored_on_every_bank_and_the_centralised_ones_for_each_alpha(test_set):
    federations = GRID.federations + GRID.centralised
    jobs = banks.make_jobs(GRID, federations, test_set)
    assert len(jobs.federations) == 4 + 2 * 2
    weights = np.random.default_rng(2).normal(size=(len(federations), WIDTH)).astype(np.float32)
    found = run(jobs, test_set, {"w": weights})
    assert found.log_loss.shape == (8, NUM_BANKS)
    for job, (index, federation) in enumerate(zip(jobs.model_index, jobs.federations, strict=True)):
        assert (federations[index].seed, federations[index].algorithm) == (federation.seed, federation.algorithm)
        for bank in range(NUM_BANKS):
            check(found, job, bank, weights[index], owner_of(federation))


def test_banks_alone_are_each_scored_by_their_own_model(test_set):
    jobs = banks.make_jobs(GRID, GRID.local_only, test_set, alone=True)
    assert len(jobs.federations) == 4
    weights = np.random.default_rng(3).normal(size=(len(GRID.local_only), WIDTH)).astype(np.float32)
    found = run(jobs, test_set, {"w": weights})
    for job, federation in enumerate(jobs.federations):
        for bank in range(NUM_BANKS):
            model = GRID.local_only.index(
                next(
                    f for f in GRID.local_only if (f.alpha, f.seed, f.bank) == (federation.alpha, federation.seed, bank)
                )
            )
            check(found, job, bank, weights[model], owner_of(federation))


def test_the_bank_table_has_a_row_for_each_job_and_bank(test_set):
    jobs = banks.make_jobs(GRID, GRID.federations + GRID.centralised, test_set)
    values = np.arange(len(jobs.federations) * NUM_BANKS, dtype=np.float32).reshape(-1, NUM_BANKS)
    made = banks.bank_table(GRID, jobs, score.Scores(values, values + 100, values + 200), TRAIN, TEST, 5)
    assert len(made) == 8 * NUM_BANKS
    assert "bank" not in made
    assert made.client.tolist() == [0, 1, 2] * 8
    assert made.setting.tolist() == np.repeat(5 + jobs.model_index, NUM_BANKS).tolist()
    np.testing.assert_array_equal(made.average_precision, values.ravel() + 100)
    for row in made.itertuples():
        owned = GRID.owners[row.alpha, row.seed]
        for side, rows, labels in (("train", owned.train, TRAIN.labels), ("test", owned.test, TEST.labels)):
            mine = partition.client_of(rows) == row.client
            assert getattr(row, f"num_{side}") == mine.sum()
            assert getattr(row, f"num_{side}_positives") == labels[mine].sum()


def test_a_grid_without_alpha_has_one_job_for_each_model_of_its_seed(test_set):
    plain = make_grid(partition_kind="iid")
    jobs = banks.make_jobs(plain, plain.federations + plain.centralised, test_set)
    assert jobs.model_index.tolist() == [0, 1, 2, 3]
    made = banks.bank_table(plain, jobs, score.Scores(*np.zeros((3, 4, NUM_BANKS))), TRAIN, TEST, 0)
    assert made.alpha.isna().all()
    assert made.groupby("setting").num_test.sum().tolist() == [50] * 4
