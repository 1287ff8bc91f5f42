"""Models as safetensors: trees come back as they were, and other readers find the arrays."""

from typing import NamedTuple

import chex
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from fedjax_fraud.report.params import params_bytes, params_from_bytes

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


class Layer(NamedTuple):
    w: np.ndarray


@pytest.mark.parametrize(
    "tree",
    [
        {"Dense_0": {"kernel": VALUES, "bias": np.array([np.nan, -0.0])}},
        {1: VALUES, 0: VALUES + 1},
        [VALUES, (np.int32([1]), {}), []],
        VALUES,
        {"a/b": VALUES, "a": {"b": VALUES + 1}, "a]['b": VALUES},
        {"none": np.zeros((0, 3)), "scalar": np.float64(2)},
    ],
)
def test_a_tree_comes_back_as_it_was(tree):
    again = params_from_bytes(params_bytes(tree))
    chex.assert_trees_all_equal(again, tree, strict=True)
    assert params_bytes(again) == params_bytes(tree)


def test_named_tuples_and_device_arrays_come_back_as_dicts_and_numpy():
    again = params_from_bytes(params_bytes(Layer(jnp.ones(3))))
    assert isinstance(again["w"], np.ndarray)
    np.testing.assert_array_equal(again["w"], np.ones(3))


def test_other_readers_find_each_array_under_its_path():
    found = safetensors.numpy.load(params_bytes({"Dense_0": {"kernel": VALUES}}))
    np.testing.assert_array_equal(found["['Dense_0']['kernel']"], VALUES)


@pytest.mark.parametrize("content", [b"", b"no models at all", safetensors.numpy.save({"w": VALUES})])
def test_what_holds_no_models_is_refused(content):
    with pytest.raises(ValueError, match="no models can be read"):
        params_from_bytes(content)
