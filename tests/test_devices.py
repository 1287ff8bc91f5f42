"""One device or eight: the same results, whether settings or the clients of each setting are dealt to them."""

import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from fedjax_fraud import devices
from tests import many_devices


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the sweeps of ``many_devices`` gave."""
    path = tmp_path_factory.mktemp("devices") / "found.npz"
    script = pathlib.Path(many_devices.__file__)
    subprocess.run([sys.executable, script, path], check=True, timeout=600)
    with np.load(path) as arrays:
        return dict(arrays)


def pairs(found, case):
    """Name -> the same array on one and on eight devices."""
    first = f"{case}, 1, "
    names = [name.removeprefix(first) for name in found if name.startswith(first)]
    return {name: (found[first + name], found[f"{case}, 8, {name}"]) for name in names if name != "split"}


@pytest.mark.parametrize("case", many_devices.CASES)
def test_eight_devices_give_the_results_of_one(found, case):
    compared = pairs(found, case)
    assert len(compared) > 15
    for name, (one, eight) in compared.items():
        # Counts and bytes are equal; sums over clients may be taken in another order.
        np.testing.assert_allclose(eight, one, rtol=2e-5, atol=2e-6, err_msg=name)


def test_settings_are_dealt_where_there_are_many_and_clients_where_there_are_few(found):
    assert not found["settings, 8, split"].any()
    assert found["clients, 8, split"].all()
    for case in many_devices.CASES:
        assert not found[f"{case}, 1, split"].any()


def test_cohorts_and_steps_do_not_depend_on_the_devices(found):
    for case in many_devices.CASES:
        for name in ("num_participants", "num_steps", "num_rows", "bytes_up"):
            np.testing.assert_array_equal(*pairs(found, case)[name], err_msg=f"{case}: {name}")


def test_a_process_that_has_used_jax_keeps_its_devices():
    before = jax.devices()
    devices.use_all_cores()
    assert jax.devices() == before


@pytest.mark.parametrize("offset", [0, 4, 20])
def test_an_aligned_array_has_the_same_values(offset):
    values = np.arange(100, dtype=np.float32)[offset // 4 : 95 + offset // 4].reshape(-1, 5)
    result = devices.aligned(values)
    np.testing.assert_array_equal(result, values)
    assert result.ctypes.data % devices.ALIGNMENT == 0 and result.flags.c_contiguous
