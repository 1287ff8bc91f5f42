"""Metrics equal scikit-learn's on every input, ties included; undefined ones are NaN."""

import chex
import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics as sk

from fedjax_fraud import metrics

# One size for every generated case, so that each function compiles once.
NUM_ROWS, NUM_POSITIVES, NUM_GROUPS = 40, 12, 4

# Few values for many ties; denormals, signed zeros and the ends of float32 among them.
TIED = [0.0, -0.0, 1e-40, -1e-42, 1.2e-38, 1e-7, 0.5, 0.70000005, 0.7, -3.0, 3.4e38, -3.4e38]
scores_32 = hnp.arrays(np.float32, NUM_ROWS, elements=st.sampled_from(np.float32(TIED).tolist()))
spread_32 = hnp.arrays(np.float32, NUM_ROWS, elements=st.floats(allow_nan=False, allow_infinity=False, width=32))
scores_64 = hnp.arrays(np.float64, NUM_ROWS, elements=st.sampled_from([1.0, 1 + 1e-12, 1 + 2e-12, 1e-300, 0.0, -1e300]))
integers = hnp.arrays(np.int64, NUM_ROWS, elements=st.sampled_from([2**60, 2**60 + 1, -5, 0]))
any_scores = st.one_of(scores_32, spread_32, scores_64, integers)
two_classes = hnp.arrays(np.int32, NUM_ROWS, elements=st.integers(0, 1)).filter(lambda y: 0 < y.sum() < NUM_ROWS)

pooled = jax.jit(metrics.ranking_scores)
order_key = jax.jit(metrics.order_key)
grouped = jax.jit(metrics.grouped_ranking_scores, static_argnums=4)


def as_ranks(scores):
    """For scikit-learn, whose own differences of huge scores overflow: the same order and the same ties."""
    return np.unique(scores, return_inverse=True)[1]


def reference(y_true, y_score):
    """Average precision and ROC-AUC by scikit-learn, with NaN where we define them so."""
    if not np.any(y_true):
        return np.nan, np.nan
    if np.all(y_true):
        return 1.0, np.nan
    ranks = as_ranks(y_score)
    return sk.average_precision_score(y_true, ranks), sk.roc_auc_score(y_true, ranks)


def assert_close(actual, expected, atol=1e-6):
    expected = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), expected, is_leaf=lambda x: isinstance(x, list))
    chex.assert_trees_all_close(actual, expected, atol=atol, rtol=0, strict=True)


def transpose(pairs):
    """A list of (average precision, ROC-AUC) as two lists."""
    return tuple(list(values) for values in zip(*pairs, strict=True))


def both(y_true, y_score):
    return metrics.average_precision_score(y_true, y_score), metrics.roc_auc_score(y_true, y_score)


# --- equal to scikit-learn ------------------------------------------------------------------------------------------


@hypothesis.given(two_classes, any_scores)
def test_average_precision_and_roc_auc_equal_scikit_learn(y_true, y_score):
    assert_close(both(y_true, y_score), reference(y_true, y_score))


@hypothesis.given(two_classes, st.one_of(scores_32, spread_32))
def test_under_jit_the_values_are_the_same(y_true, y_score):
    assert_close(jax.jit(both)(y_true, y_score), reference(y_true, y_score))


@hypothesis.given(st.one_of(scores_32, spread_32))
def test_scores_split_by_label_equal_scikit_learn(scores):
    y_true = np.arange(NUM_ROWS) < NUM_POSITIVES
    assert_close(pooled(scores[:NUM_POSITIVES], scores[NUM_POSITIVES:]), reference(y_true, scores))


@hypothesis.given(
    st.one_of(scores_32, spread_32),
    hnp.arrays(np.int32, NUM_ROWS, elements=st.integers(0, NUM_GROUPS - 1)),
)
def test_grouped_scores_equal_scikit_learn_in_each_group(scores, group):
    y_true = np.arange(NUM_ROWS) < NUM_POSITIVES
    actual = grouped(
        scores[:NUM_POSITIVES], group[:NUM_POSITIVES], scores[NUM_POSITIVES:], group[NUM_POSITIVES:], NUM_GROUPS
    )
    expected = [reference(y_true[group == k], scores[group == k]) for k in range(NUM_GROUPS)]
    assert_close(actual, transpose(expected))


def test_vmap_over_models_equals_one_by_one():
    rng = np.random.default_rng(0)
    y_true, scores = rng.integers(0, 2, NUM_ROWS), rng.choice(np.float32(TIED), (3, NUM_ROWS))
    expected = [reference(y_true, row) for row in scores]
    assert_close(jax.vmap(both, (None, 0))(y_true, scores), transpose(expected))


def test_vmap_of_grouped_scores_equals_one_by_one():
    rng = np.random.default_rng(1)
    scores, group = rng.choice(np.float32(TIED), (3, NUM_ROWS)), rng.integers(0, 3, NUM_ROWS).astype(np.int32)
    split = scores[:, :NUM_POSITIVES], group[:NUM_POSITIVES], scores[:, NUM_POSITIVES:], group[NUM_POSITIVES:]
    actual = jax.vmap(lambda p, pg, n, ng: grouped(p, pg, n, ng, 3), (0, None, 0, None))(*split)
    y_true = np.arange(NUM_ROWS) < NUM_POSITIVES
    for k in range(3):
        expected = [reference(y_true[group == k], row[group == k]) for row in scores]
        assert_close(jax.tree.map(lambda x, k=k: x[:, k], actual), transpose(expected))


def test_large_counts_keep_their_precision():
    rng = np.random.default_rng(2)
    positive = rng.normal(1.5, 1, 3_000).round(2).astype(np.float32)
    negative = rng.normal(0, 1, 2_000_000).round(2).astype(np.float32)
    y_true = np.arange(2_003_000) < 3_000
    assert_close(pooled(positive, negative), reference(y_true, np.concatenate([positive, negative])))


def test_the_order_of_the_rows_does_not_matter():
    rng = np.random.default_rng(3)
    y_true, scores, order = (
        rng.integers(0, 2, NUM_ROWS),
        rng.choice(np.float32(TIED), NUM_ROWS),
        rng.permutation(NUM_ROWS),
    )
    assert_close(both(y_true[order], scores[order]), reference(y_true, scores))


@hypothesis.given(two_classes, hnp.arrays(np.float32, NUM_ROWS, elements=st.floats(-12, 12, width=32)))
def test_log_loss_and_brier_equal_scikit_learn(y_true, logits):
    probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
    assert_close(metrics.log_loss(y_true, logits), sk.log_loss(y_true, probabilities), atol=1e-5)
    assert_close(metrics.brier_score_loss(y_true, probabilities), sk.brier_score_loss(y_true, probabilities))


def test_log_loss_of_confident_mistakes_is_not_clipped():
    assert_close(metrics.log_loss([0, 1], [40.0, -120.0]), 80.0)


def test_metrics_run_under_strict_dtype_promotion():
    y_true, scores = jnp.arange(NUM_ROWS) % 3 == 0, jnp.linspace(0.0, 1.0, NUM_ROWS)
    with jax.numpy_dtype_promotion("strict"):
        values = (
            both(y_true, scores),
            pooled(scores[:NUM_POSITIVES], scores[NUM_POSITIVES:]),
            metrics.log_loss(y_true, scores),
            metrics.brier_score_loss(y_true, scores),
            metrics.value_recall_at_budget(y_true, scores, scores, budget=0.1),
        )
    chex.assert_tree_all_finite(values)


def test_a_single_row_is_legal():
    assert_close(both([1], [0.5]), (1.0, np.nan))
    assert_close(metrics.recall_at_budget([1], [0.5], budget=1), 1.0)


# --- known faults ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label, expected", [(0, (np.nan, np.nan)), (1, (1.0, np.nan))])
def test_one_class_is_undefined_and_not_zero(label, expected):
    assert_close(both([label] * 4, [0.1, 0.4, 0.35, 0.8]), expected)


def test_split_scores_of_one_class_are_undefined_and_not_zero():
    some, none = jnp.array([0.1, 0.4]), jnp.zeros(0)
    assert_close(pooled(none, some), (np.nan, np.nan))
    assert_close(pooled(some, none), (1.0, np.nan))


def test_a_one_class_client_is_nan_and_leaves_the_mean_over_the_defined_ones_alone():
    scores, group = jnp.array([0.4, 0.8]), jnp.array([1, 1])
    other_scores, other_group = jnp.array([0.3, 0.2, 0.9, 0.1, 0.35]), jnp.array([0, 0, 0, 1, 1])
    _, roc_auc = grouped(scores, group, other_scores, other_group, 2)
    assert_close(roc_auc, [np.nan, 1.0])
    assert_close(jnp.nanmean(roc_auc), 1.0)


def test_a_constant_score_has_the_prevalence_as_average_precision_and_not_the_trapezoid():
    y_true, scores = np.arange(1000) == 0, np.zeros(1000, np.float32)
    assert_close(both(y_true, scores), (0.001, 0.5), atol=1e-9)
    assert_close(pooled(jnp.zeros(1), jnp.zeros(999)), (0.001, 0.5), atol=1e-9)


@pytest.mark.parametrize("scale", [1, 1e-7, 1e-9, 1e-30, 1e-38, 1e-200])
def test_the_scale_of_the_scores_does_not_matter(scale):
    scores = scale * np.array([0.1, 0.4, 0.35, 0.8])
    assert_close(both([0, 0, 1, 1], scores), (0.8333333, 0.75))
    if scale > 1e-40:
        scores = scores.astype(np.float32)
        assert_close(jax.jit(both)(np.array([0, 0, 1, 1]), scores), (0.8333333, 0.75))
        assert_close(pooled(scores[2:], scores[:2]), (0.8333333, 0.75))


def test_negative_scores_are_ranked_as_they_are():
    assert_close(both([0, 1, 1], [-1, 0, 1]), (1.0, 1.0))


def test_pooled_scores_are_not_the_mean_of_the_clients():
    positive, negative = jnp.array([0.9, 0.2]), jnp.array([0.8, 0.1])
    client = jnp.array([0, 1])
    assert_close(pooled(positive, negative), (0.8333333, 0.75))
    assert_close(grouped(positive, client, negative, client, 2), ([1.0, 1.0], [1.0, 1.0]))


# --- NaN, keys, bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nan", [np.nan, -np.nan])
@pytest.mark.parametrize("row", [0, NUM_POSITIVES - 1, NUM_POSITIVES, NUM_ROWS - 1])
def test_a_nan_score_makes_compiled_scores_nan_in_its_group_only(nan, row):
    scores = np.linspace(0, 1, NUM_ROWS, dtype=np.float32)
    scores[row] = nan
    y_true, group = np.arange(NUM_ROWS) < NUM_POSITIVES, np.arange(NUM_ROWS, dtype=np.int32) % NUM_GROUPS
    split = scores[:NUM_POSITIVES], group[:NUM_POSITIVES], scores[NUM_POSITIVES:], group[NUM_POSITIVES:]
    chex.assert_trees_all_equal(pooled(split[0], split[2]), (jnp.nan, jnp.nan))
    chex.assert_trees_all_equal(jax.jit(both)(y_true, scores), (jnp.nan, jnp.nan))
    for values in grouped(*split, NUM_GROUPS):
        chex.assert_trees_all_equal(np.flatnonzero(np.isnan(values)), np.array([row % NUM_GROUPS]), strict=True)


@pytest.mark.parametrize("as_array", [list, np.asarray, jnp.asarray])
def test_a_concrete_nan_score_raises(as_array):
    with pytest.raises(ValueError, match="`y_score` is NaN in row 1"):
        metrics.roc_auc_score([0, 1], as_array([0.5, float("nan")]))


@hypothesis.given(spread_32, scores_32)
def test_order_keys_have_the_order_of_the_scores(some, others):
    for scores in (np.concatenate([some, others]), np.float32([np.inf, -np.inf, *TIED])):
        chex.assert_trees_all_equal(as_ranks(np.asarray(order_key(scores))), as_ranks(scores), strict=True)


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.uint32, np.uint8, np.float16, np.bool_, jnp.bfloat16])
def test_order_keys_of_every_number_type_have_its_order(dtype):
    values = np.array([-7, -1, 0, 1, 5], dtype) if np.dtype(dtype).kind != "u" else np.array([0, 1, 5], dtype)
    key = np.asarray(order_key(values))
    assert key.dtype == np.uint32
    chex.assert_trees_all_equal(as_ranks(key), as_ranks(values.astype(np.float32)), strict=True)


def test_nan_has_the_largest_key():
    key = np.asarray(order_key(np.float32([np.nan, -np.nan, np.inf])))
    assert key[0] == key[1] == 2**32 - 1 > key[2]


@pytest.mark.parametrize(
    "y_true, y_score, message",
    [
        ([0, 1], [0.1, 0.2, 0.3], "one length"),
        ([], [], "at least one row"),
        ([0, 2], [0.1, 0.2], "`y_true` must be 0 .genuine. or 1 .fraud., got 2"),
        ([[0, 1]], [[0.1, 0.2]], "jax.vmap"),
        ([0, 1], ["a", "b"], "`y_score` must be numbers"),
    ],
)
def test_bad_input_raises_with_the_argument_named(y_true, y_score, message):
    with pytest.raises(ValueError, match=message):
        metrics.average_precision_score(y_true, y_score)


def test_logits_given_as_probabilities_raise():
    with pytest.raises(ValueError, match="`y_prob` must be in"):
        metrics.brier_score_loss([0, 1], [0.5, 1.5])


# --- alert budgets --------------------------------------------------------------------------------------------------


def expected_at_budget(y_true, y_score, amount, num_alerts):
    """Sorted by score and cut, in plain NumPy; distinct scores."""
    flagged = np.argsort(-y_score)[:num_alerts]
    caught = y_true[flagged].sum()
    value = (y_true * amount)[flagged].sum() / (y_true * amount).sum()
    return caught / num_alerts, caught / y_true.sum(), value


@pytest.mark.parametrize("num_alerts", [1, 4, 13, NUM_ROWS])
def test_budget_metrics_of_distinct_scores_are_those_of_the_top_rows(num_alerts):
    rng = np.random.default_rng(4)
    y_true, y_score, amount = rng.integers(0, 2, NUM_ROWS), rng.permutation(NUM_ROWS) / 7, rng.uniform(1, 1e6, NUM_ROWS)
    budget = num_alerts / NUM_ROWS
    actual = (
        metrics.precision_at_budget(y_true, y_score, budget=budget),
        metrics.recall_at_budget(y_true, y_score, budget=budget),
        metrics.value_recall_at_budget(y_true, y_score, amount, budget=budget),
    )
    assert_close(actual, expected_at_budget(y_true, y_score, amount, num_alerts))


def test_ties_at_the_cut_count_pro_rata():
    # Two alerts: the row of score 3, and one of the three rows of score 2, of which two are frauds.
    y_true, y_score, amount = [1, 1, 1, 0, 0, 1, 0, 0], [3, 2, 2, 2, 1, 1, 0, 0], [10, 20, 40, 80, 1, 30, 1, 1]
    assert_close(metrics.precision_at_budget(y_true, y_score, budget=0.25), (1 + 2 / 3) / 2)
    assert_close(metrics.recall_at_budget(y_true, y_score, budget=0.25), (1 + 2 / 3) / 4)
    assert_close(metrics.value_recall_at_budget(y_true, y_score, amount, budget=0.25), (10 + 60 / 3) / 100)


def test_a_constant_score_catches_the_budgets_share_and_has_the_prevalence_as_precision():
    y_true, scores = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0], [0.5] * 10
    assert_close(metrics.recall_at_budget(y_true, scores, budget=0.03), 0.03)
    assert_close(metrics.precision_at_budget(y_true, scores, budget=0.03), 0.2)


def test_budget_metrics_without_fraud():
    assert_close(metrics.precision_at_budget([0, 0], [1, 2], budget=0.5), 0.0)
    assert_close(metrics.recall_at_budget([0, 0], [1, 2], budget=0.5), np.nan)
    assert_close(metrics.value_recall_at_budget([0, 1], [1, 2], [5, 0], budget=0.5), np.nan)


def test_the_budget_may_be_traced_and_mapped():
    y_true, scores = jnp.array([1, 0, 1, 0]), jnp.array([4.0, 3.0, 2.0, 1.0])
    budgets = jnp.array([0.25, 0.5, 0.75, 1.0])
    recall = jax.jit(jax.vmap(lambda budget: metrics.recall_at_budget(y_true, scores, budget=budget)))(budgets)
    assert_close(recall, [0.5, 0.5, 1.0, 1.0])


@pytest.mark.parametrize("budget", [0, -0.1, 1.5, float("nan")])
def test_a_budget_out_of_range_raises(budget):
    with pytest.raises(ValueError, match="`budget`"):
        metrics.recall_at_budget([0, 1], [1, 2], budget=budget)


@pytest.mark.parametrize("amount", [[-1.0, 2.0], [float("inf"), 2.0]])
def test_an_amount_that_is_no_sum_of_money_raises(amount):
    with pytest.raises(ValueError, match="`amount`"):
        metrics.value_recall_at_budget([0, 1], [1, 2], amount, budget=0.5)
