"""Scores on the test rows: scikit-learn's values, pooled and per bank, however the rows are cut into chunks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics

from fedjax_fraud import measures, score

# Jitted, since a score run operation by operation compiles each of them.
pooled_scores = jax.jit(score.pooled_scores, static_argnames=("num_samples", "num_positives"))
logits_of = jax.jit(score.test_logits, static_argnums=0)

# Sums of some hundred float32 terms.
CLOSE = dict(rtol=3e-6, atol=3e-6)


def wanted(labels, logits):
    """scikit-learn's loss, average precision and area; NaN for one class."""
    logits = np.asarray(logits, np.float64)
    if not len(labels):
        return [np.nan] * 3
    probability = 1 / (1 + np.exp(-logits))
    loss = sklearn.metrics.log_loss(labels, probability, labels=[0, 1])
    if len(set(labels.tolist())) < 2:
        return [loss, np.nan, np.nan]
    return [
        loss,
        sklearn.metrics.average_precision_score(labels, logits),
        sklearn.metrics.roc_auc_score(labels, logits),
    ]


def bank_scores(logits, bank, num_positives, num_banks):
    """Log loss, average precision and area of each bank, on the host."""
    return measures.bank_scores(logits, measures.divide(bank, num_positives, num_banks))


def random_rows(num_rows, num_positives, levels, seed):
    """Logits on few levels (many ties) or, with none, all different; positives first, junk behind the last row."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(num_rows) < num_positives).astype(np.int32)
    logits = rng.normal(size=num_rows) + labels
    if levels:
        logits = np.round(logits * levels) / levels
    padded = np.concatenate([logits, [1e30, np.nan, -7.0]]).astype(np.float32)
    return labels, padded[:num_rows], jnp.asarray(padded)


@pytest.mark.parametrize("levels", [0, 1, 4], ids=["no ties", "many ties", "some ties"])
@pytest.mark.parametrize("num_rows, num_positives", [(200, 20), (200, 199), (7, 1), (2, 1)])
def test_pooled_scores_are_those_of_scikit_learn(num_rows, num_positives, levels):
    labels, logits, padded = random_rows(num_rows, num_positives, levels, seed=num_rows + levels)
    found = pooled_scores(padded, num_samples=num_rows, num_positives=num_positives)
    np.testing.assert_allclose(found, wanted(labels, logits), **CLOSE)


def test_equal_logits_everywhere_score_the_prevalence_and_a_half():
    found = pooled_scores(jnp.zeros(40), num_samples=40, num_positives=10)
    np.testing.assert_allclose(found, [np.log(2), 0.25, 0.5], **CLOSE)


def test_without_positives_only_the_loss_is_defined():
    found = pooled_scores(jnp.arange(4.0), num_samples=4, num_positives=0)
    np.testing.assert_allclose(found, wanted(np.zeros(4, int), np.arange(4.0)), **CLOSE)


@pytest.mark.parametrize("levels", [0, 1, 4], ids=["no ties", "many ties", "some ties"])
def test_bank_scores_are_those_of_scikit_learn_on_each_bank_s_rows(levels):
    """Bank 4 has no rows, bank 5 no frauds, bank 6 nothing but frauds."""
    labels, logits, _ = random_rows(300, 40, levels, seed=levels)
    rng = np.random.default_rng(1)
    bank = np.where(labels == 1, rng.choice([0, 1, 2, 3, 6], 300), rng.choice([0, 1, 2, 3, 5], 300)).astype(np.int32)
    found = bank_scores(logits, bank, num_positives=40, num_banks=7)
    expected = np.transpose([wanted(labels[bank == b], logits[bank == b]) for b in range(7)])
    np.testing.assert_allclose(found, expected, **CLOSE)
    assert np.isnan(found[1][4:]).all() and np.isnan(found[2][4:]).all()
    assert np.isfinite(found[0]).tolist() == [True, True, True, True, False, True, True]


def test_a_model_of_which_one_logit_is_lost_has_no_scores_anywhere():
    logits = np.array([0.5, np.nan, 0.1, 0.2], np.float32)
    found = bank_scores(logits, np.array([0, 0, 1, 1]), num_positives=2, num_banks=2)
    assert np.isnan(found).all()


def test_two_banks_that_rank_perfectly_have_less_than_that_together():
    """Known fault: the mean of the banks' scores is not the score of the pooled rows."""
    logits = jnp.array([0.9, 0.2, 0.8, 0.1])  # A's fraud, B's fraud, A's other row, B's other row
    pooled = pooled_scores(logits, num_samples=4, num_positives=2)
    np.testing.assert_allclose(pooled[1:], [5 / 6, 0.75], **CLOSE)
    alone = bank_scores(np.asarray(logits), np.array([0, 1, 0, 1]), num_positives=2, num_banks=2)
    np.testing.assert_allclose(alone[1:], np.ones((2, 2)), **CLOSE)


@pytest.mark.parametrize("num_rows", [1, 3, 4, 5, 8, 9])
def test_logits_do_not_depend_on_the_chunks(monkeypatch, num_rows):
    rng = np.random.default_rng(num_rows)
    features, labels = rng.normal(size=(num_rows, 2)).astype(np.float32), rng.integers(0, 2, num_rows)
    whole = score.make_test_set(features, labels)
    assert whole.features.shape == (1, num_rows, 2)
    monkeypatch.setattr(score, "ROWS_PER_CHUNK", 4)
    cut = score.make_test_set(features, labels)
    assert cut.features.shape == (-(-num_rows // 4), min(num_rows, 4), 2)
    assert (cut.num_samples, cut.num_positives) == (num_rows, labels.sum())
    np.testing.assert_array_equal(cut.index, whole.index)

    def apply(params, x):
        return jnp.sum(x * params, axis=1) + 1.0

    params = jnp.array([[2.0, -1.0]])
    logits = logits_of(apply, params, jnp.asarray(cut.features))[:num_rows]
    np.testing.assert_allclose(logits, features[cut.index] @ [2.0, -1.0] + 1, **CLOSE)
    np.testing.assert_allclose(logits, logits_of(apply, params, jnp.asarray(whole.features)), **CLOSE)
    np.testing.assert_array_equal(labels[cut.index], np.sort(labels)[::-1])


def test_chunked_scores_are_those_of_one_chunk(monkeypatch):
    """Rows that fill a chunk up are zeros, and count for nothing."""
    rng = np.random.default_rng(2)
    features, labels = rng.normal(size=(30, 2)).astype(np.float32), np.arange(30) % 5 == 0
    params = jnp.array([[1.0, 2.0]])

    def scores(rows_per_chunk):
        monkeypatch.setattr(score, "ROWS_PER_CHUNK", rows_per_chunk)
        rows = score.make_test_set(features, labels.astype(np.int32))
        logits = logits_of(lambda params, x: jnp.sum(x * params, axis=1), params, jnp.asarray(rows.features))
        return pooled_scores(logits, num_samples=rows.num_samples, num_positives=rows.num_positives)

    np.testing.assert_allclose(scores(7), scores(30), **CLOSE)
    np.testing.assert_allclose(scores(1), wanted(labels.astype(int), features @ [1.0, 2.0]), **CLOSE)
