"""The devices of a run: all of them by default, and how arrays get there and back."""

import contextlib
import os
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

AXIS = "settings"
ALIGNMENT = 64


def use_all_cores() -> None:
    """One XLA device for each CPU core, unless JAX has started or the number of devices has been chosen.

    A CPU device with one thread for its work is faster than one device with all threads; settings are dealt to them.
    """
    chosen = jax.config.jax_num_cpu_devices >= 0 or "device_count" in os.environ.get("XLA_FLAGS", "")
    if chosen:
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(RuntimeError):  # JAX has started already: it keeps the devices that it has.
        jax.config.update("jax_num_cpu_devices", cores)


def settings_mesh(devices: Sequence | None = None) -> Mesh:
    """The devices in a row, by default all: settings are dealt to them, and nothing crosses between them."""
    if devices is None:
        use_all_cores()
        devices = jax.devices()
    return Mesh(np.asarray(devices), (AXIS,))


def replicate(tree, mesh: Mesh):
    """Every leaf (NumPy) on every device. CPU devices share the host's memory if it is aligned."""
    return jax.device_put(jax.tree.map(aligned, tree), NamedSharding(mesh, P()))


def aligned(array: np.ndarray) -> np.ndarray:
    """The array, or a copy that starts at a multiple of 64 bytes, which XLA uses in place."""
    if array.ctypes.data % ALIGNMENT == 0 and array.flags.c_contiguous:
        return array
    space = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    first = -space.ctypes.data % ALIGNMENT
    copy = space[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def to_host(tree):
    """Every leaf as a NumPy array; waits for the devices."""
    return jax.tree.map(np.asarray, tree)
