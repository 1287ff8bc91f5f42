"""The devices of a run: all of them by default, and how arrays get there and back.

They may belong to several processes. Every process then holds the same host arrays and makes the same calls.
"""

import contextlib
import functools
import hashlib
import os
from collections.abc import Callable, Sequence

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
    with contextlib.suppress(RuntimeError):  # JAX has started already: it keeps the devices that it has.
        jax.config.update("jax_num_cpu_devices", num_cores())


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def settings_mesh(devices: Sequence | None = None) -> Mesh:
    """The devices in a row, by default all: settings are dealt to them, and nothing crosses between them."""
    if devices is None:
        use_all_cores()
        devices = jax.devices()
    return Mesh(np.asarray(devices), (AXIS,))


def replicate(tree, mesh: Mesh):
    """Every leaf (NumPy) on every device. CPU devices share the host's memory if it is aligned."""
    return shard(jax.tree.map(aligned, tree), mesh, P())


def shard(tree, mesh: Mesh, spec: P = P(AXIS)):  # noqa: B008 (it is immutable)
    """Every leaf (NumPy) cut along its first axis, or as ``spec`` says, over all devices."""
    return _place(tree, NamedSharding(mesh, spec))


def _place(tree, sharding: jax.sharding.Sharding):
    """Host arrays as arrays of all processes; ``device_put`` would first compare them between the processes."""
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)
    return jax.tree.map(lambda leaf: jax.make_array_from_callback(leaf.shape, sharding, leaf.__getitem__), tree)


def taking_host_arrays(compiled: jax.stages.Compiled) -> Callable:
    """The executable, with NumPy arguments put where it wants them, as must be if devices belong to others too."""
    shardings, _ = compiled.input_shardings

    def place(leaf, sharding):
        return _place(leaf, sharding) if isinstance(leaf, np.ndarray) else leaf

    return lambda *args: compiled(*jax.tree.map(place, args, shardings))


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
    """Every leaf as a NumPy array, whole on every process; waits for the devices."""
    leaves, structure = jax.tree.flatten(tree)
    spread = [i for i, leaf in enumerate(leaves) if not getattr(leaf, "is_fully_addressable", True)]
    if spread:
        mesh = leaves[spread[0]].sharding.mesh
        for i, leaf in zip(spread, _gatherer(mesh)([leaves[i] for i in spread]), strict=True):
            leaves[i] = leaf
    return jax.tree.unflatten(structure, [np.asarray(leaf) for leaf in leaves])


@functools.cache
def _gatherer(mesh: Mesh) -> Callable:
    """One program for a whole tree, where ``process_allgather`` compiles one for each shape of a leaf."""
    return jax.jit(lambda leaves: leaves, out_shardings=NamedSharding(mesh, P()))


# ---- several processes ------------------------------------------------------------------------------------------


def join(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    """Waits for the other processes, before JAX starts; without arguments, for those that a cluster's manager names.

    Raises: ValueError if there is no such manager, or the others cannot be reached.
    """
    try:
        jax.distributed.initialize(coordinator, num_processes, process_id)
    except ValueError as error:
        raise ValueError(f"JAX finds no other processes by itself: {error} Use `coordinator`.") from None
    except RuntimeError as error:
        raise ValueError(f"The other processes cannot be reached: {error}") from None


def check_same(what: str, content: bytes) -> None:
    """Raises ValueError on every process if one of them was given something else than the first."""
    mesh = settings_mesh()
    row = np.frombuffer(hashlib.sha256(content).digest(), np.uint32)[None]
    shape, sharding = (mesh.devices.size, row.shape[1]), NamedSharding(mesh, P(AXIS))
    rows = to_host(jax.make_array_from_callback(shape, sharding, lambda index: row))
    differ = (rows != rows[0]).any(axis=1)
    if differ.any():
        others = sorted({device.process_index for device in mesh.devices[differ]})
        raise ValueError(
            f"{what} must be the same on every process, but those of process {', '.join(map(str, others))} differ from "
            "process 0's. Start all with one command and the same files and versions."
        )
