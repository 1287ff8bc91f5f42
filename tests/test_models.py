"""Models as init/apply pairs."""

import inspect

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_fraud import algorithms, models, partition, types
from fedjax_fraud.simulate import simulate
from fedjax_fraud.sweep import sweep
from tests import reference
from tests.test_reference import MLP, to_list

KEY = jax.random.key(0)


def shapes(model):
    """The shapes of the parameters, without computing them."""
    return jax.tree.map(jnp.shape, jax.eval_shape(model.init, KEY))


def test_logistic_regression_starts_at_zero_whatever_the_key():
    for key in (KEY, jax.random.key(1)):
        for leaf in jax.tree.leaves(models.logistic_regression(3).init(key)):
            np.testing.assert_array_equal(leaf, 0)


def test_logistic_regression_is_linear_in_the_features():
    params = {"kernel": jnp.array([[2.0], [-1.0]]), "bias": jnp.array([0.5])}
    logits = models.logistic_regression(2).apply(params, jnp.array([[1.0, 1.0], [0.0, 3.0], [0.0, 0.0]]))
    np.testing.assert_allclose(logits, [1.5, -2.5, 0.5])


def test_an_mlp_gives_the_logits_of_the_plain_network():
    params = jax.jit(MLP.init)(KEY)
    x = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    np.testing.assert_allclose(MLP.apply(params, x), reference.scores(to_list(params), x), rtol=1e-5, atol=1e-6)


def test_an_mlp_s_start_depends_on_the_key_and_has_the_right_widths():
    model = models.mlp(5, hidden=(4, 2))
    assert shapes(model) == {
        "Dense_0": {"kernel": (5, 4), "bias": (4,)},
        "Dense_1": {"kernel": (4, 2), "bias": (2,)},
        "Dense_2": {"kernel": (2, 1), "bias": (1,)},
    }
    init = jax.jit(model.init)
    a, b = init(KEY), init(jax.random.key(1))
    assert (a["Dense_0"]["kernel"] != b["Dense_0"]["kernel"]).any()


def test_an_mlp_without_hidden_layers_is_linear():
    assert shapes(models.mlp(3, hidden=())) == {"Dense_0": {"kernel": (3, 1), "bias": (1,)}}


class Flat(nn.Module):
    """A module whose logits are ``[batch]`` already."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(x)[:, 0]


@pytest.mark.parametrize("module", [nn.Dense(1), Flat()])
@pytest.mark.parametrize("batch", [1, 7])
def test_any_flax_module_gives_one_logit_a_row(module, batch):
    model = models.from_flax(module, 3)
    assert model.apply(model.init(KEY), jnp.ones((batch, 3))).shape == (batch,)


def test_a_module_with_two_logits_a_row_is_refused():
    model = models.from_flax(nn.Dense(2), 3)
    with pytest.raises((TypeError, ValueError)):
        model.apply(model.init(KEY), jnp.ones((4, 3)))


@pytest.mark.parametrize("num_features", [0, -1])
@pytest.mark.parametrize("make", [models.logistic_regression, models.mlp, lambda n: models.from_flax(nn.Dense(1), n)])
def test_a_model_of_no_features_is_refused(make, num_features):
    with pytest.raises(ValueError, match=rf"`num_features` must be at least 1, got {num_features}\. "):
        make(num_features)


def test_a_layer_without_units_is_refused():
    with pytest.raises(ValueError, match=r"`hidden` must hold widths of at least 1, got \(4, 0\)\. "):
        models.mlp(3, hidden=(4, 0))


WRONG = [
    (
        models.mlp(5, (4,)),
        "must take rows of 3 features, as the table has.*Build it with num_features=3 and one",
    ),
    (models.from_flax(nn.Dense(1), 5), "must take rows of 3 features"),
    (models.from_flax(nn.Dense(2), 3), "one logit for each.*cannot reshape.*and one output"),
    (types.Model(lambda key: jnp.zeros(3), lambda params, x: (x @ params)[:, None]), r"one logit .* got \(2, 1\)"),
]


@pytest.mark.parametrize(("model", "words"), WRONG)
def test_a_model_that_does_not_fit_the_table_is_refused_before_anything_is_compiled(model, words):
    table = types.Transactions(np.ones((8, 3), np.float32), np.arange(8) % 2, tuple("abc"))
    banks = partition.iid(8, 2, seed=0)
    with pytest.raises(ValueError, match=words):
        simulate(algorithms.scaffold(0.1), model, table, banks)
    with pytest.raises(ValueError, match=words):
        sweep(table, table, model=model, alphas=(1.0,), num_clients=2, seeds=1)


def test_a_loss_of_one_s_own_may_take_other_outputs():
    model = types.Model(lambda key: jnp.zeros((3, 2)), lambda params, x: x @ params)
    models.check_fits(model, None, 3, one_logit=False)


def test_a_flax_module_is_no_model_yet():
    check = inspect.unwrap(models.check_fits)  # without the tests' type checks, which users do not have
    with pytest.raises(ValueError, match=r"must be a Model.*got Dense.*from_flax\(module, 3\)"):
        check(nn.Dense(1), None, 3)
