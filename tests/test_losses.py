"""Losses: exact at saturated logits, and means that nothing masked can reach."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import log_loss

from fedjax_fraud import losses


@pytest.fixture(params=["unweighted", "weight 1"])
def loss_fn(request):
    if request.param == "unweighted":
        return losses.binary_cross_entropy
    return losses.weighted_binary_cross_entropy(1.0)


def test_saturated_logits_have_exact_losses_and_gradients(loss_fn):
    logits, labels = jnp.array([40.0, -120.0]), jnp.array([0.0, 1.0])
    chex.assert_trees_all_equal(loss_fn(logits, labels), jnp.array([40.0, 120.0]), strict=True)
    gradient = jax.grad(lambda z: jnp.sum(loss_fn(z, labels)))(logits)
    chex.assert_trees_all_equal(gradient, jnp.array([1.0, -1.0]), strict=True)


def test_a_confident_right_answer_keeps_its_small_loss_and_gradient():
    loss, gradient = jax.value_and_grad(losses.binary_cross_entropy)(jnp.float32(20), jnp.float32(1))
    chex.assert_trees_all_close(loss, jnp.float32(np.log1p(np.exp(-20.0))), rtol=1e-6, strict=True)
    chex.assert_trees_all_close(gradient, jnp.float32(-1 / (1 + np.exp(20.0))), rtol=1e-6, strict=True)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.int32, jnp.bool_])
def test_losses_equal_scikit_learn_for_every_label_type(dtype):
    logits, labels = np.linspace(-8, 8, 33), np.arange(33) % 2
    probabilities = 1 / (1 + np.exp(-logits))
    expected = [log_loss([y], [p], labels=[0, 1]) for y, p in zip(labels, probabilities, strict=True)]
    actual = losses.binary_cross_entropy(jnp.float32(logits), jnp.asarray(labels, dtype))
    chex.assert_trees_all_close(actual, jnp.float32(expected), rtol=1e-5, strict=True)


def test_losses_and_gradients_at_infinite_logits_are_not_nan():
    logits, labels = jnp.array([jnp.inf, -jnp.inf, jnp.inf]), jnp.array([1.0, 0.0, 0.0])
    gradient = jax.grad(lambda z: jnp.sum(losses.binary_cross_entropy(z, labels)))(logits)
    chex.assert_trees_all_equal(
        losses.binary_cross_entropy(logits, labels), jnp.array([0.0, 0.0, jnp.inf]), strict=True
    )
    chex.assert_trees_all_equal(gradient, jnp.array([0.0, 0.0, 1.0]), strict=True)


def test_positive_weight_multiplies_the_frauds_only():
    logits, labels = jnp.array([0.3, -2.0, 1.5]), jnp.array([1, 0, 1])
    plain = losses.binary_cross_entropy(logits, labels)
    weighted = losses.weighted_binary_cross_entropy(5.0)(logits, labels)
    chex.assert_trees_all_close(weighted, plain * jnp.array([5.0, 1.0, 5.0]), rtol=1e-7, strict=True)


def test_positive_weight_may_be_traced():
    logits, labels = jnp.array([0.3, -2.0]), jnp.array([1, 0])
    traced = jax.jit(lambda w: losses.weighted_binary_cross_entropy(w)(logits, labels))(2.0)
    eager = losses.weighted_binary_cross_entropy(2.0)(logits, labels)
    chex.assert_trees_all_close(traced, eager, rtol=1e-6, strict=True)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_positive_weight_out_of_range_raises(weight):
    with pytest.raises(ValueError, match="`positive_weight`"):
        losses.weighted_binary_cross_entropy(weight)


def test_masked_mean_is_the_mean_of_the_unmasked():
    mean = losses.masked_mean(jnp.array([1.0, 5.0, 3.0]), jnp.array([True, False, True]))
    chex.assert_trees_all_equal(mean, jnp.float32(2), strict=True)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_masked_nan_reaches_neither_value_nor_gradient(poison):
    mask = jnp.array([True, False, True])
    mean, gradient = jax.value_and_grad(losses.masked_mean)(jnp.array([1.0, poison, 3.0]), mask)
    chex.assert_trees_all_equal(mean, jnp.float32(2), strict=True)
    chex.assert_trees_all_equal(gradient, jnp.array([0.5, 0.0, 0.5]), strict=True)


def test_a_batch_that_is_all_padding_has_mean_and_gradient_zero():
    values = jnp.array([jnp.nan, 2.0])
    mean, gradient = jax.value_and_grad(losses.masked_mean)(values, jnp.zeros(2, bool))
    chex.assert_trees_all_equal((mean, gradient), (jnp.float32(0), jnp.zeros(2)), strict=True)


def test_losses_run_under_strict_dtype_promotion():
    with jax.numpy_dtype_promotion("strict"):
        values = losses.weighted_binary_cross_entropy(3.0)(jnp.zeros(2), jnp.array([0, 1]))
        chex.assert_tree_all_finite(losses.masked_mean(values, jnp.array([True, False])))
