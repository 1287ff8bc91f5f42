"""Ragged clients packed into lanes, so that a large bank does not make every other bank wait.

Each client's local steps are cut into chunks of C steps. The chunks of the whole pool stand end to end on a line,
and the line is folded into L lanes of W chunks. In wave t, lane l works on the client that owns position
``l * W + t`` of the line. Because no client has more than W chunks, a client that is cut between two lanes is never
in both at once.

Reference: McNaughton, Scheduling with Deadlines and Loss Functions, Management Science 1959 (the wrap-around rule,
optimal for preemptive jobs on identical machines).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

CPU_LANES, GPU_LANES = 8, 1024
STEP_ROWS = 1024  # of all lanes in one step; the activations of more leave a core's cache
MAX_CHUNK_LENGTH = 16
CACHED_ROWS = 4096  # of a wave; the rows of a longer one leave a core's cache before they are used
COMPARE_ALL = 4096


class LanePlan(NamedTuple):
    """One round's packing.

    Attributes:
      line: ``[pool]`` int32, the running total of the clients' chunks.
      num_waves: int32, W, a traced number: who takes part may change every round without a recompile.
    """

    line: Int[Array, " pool"]
    num_waves: Int[Array, ""]


def plan_lanes(num_steps: Int[Array, " pool"], *, num_lanes: int, chunk_length: int) -> LanePlan:
    """Packs clients with ``num_steps`` local steps each into ``num_lanes`` lanes of ``num_waves`` chunks."""
    chunks = -(-num_steps // chunk_length)
    line = jnp.cumsum(chunks)
    return LanePlan(line, jnp.maximum(jnp.max(chunks), -(-line[-1] // num_lanes)))


def lane_clients(plan: LanePlan, wave: Int[Array, ""], *, num_lanes: int) -> Int[Array, " lanes"]:
    """The client of each lane in one wave; ``pool`` (one past the last) for a lane that has nothing to do."""
    position = jnp.arange(num_lanes, dtype=jnp.int32) * plan.num_waves + wave
    # A small pool is compared at once; a binary search is a loop of its own, to compile and to run in every wave.
    method = "compare_all" if plan.line.size <= COMPARE_ALL else "scan"
    return jnp.searchsorted(plan.line, position, side="right", method=method).astype(jnp.int32)


class Work(NamedTuple):
    """Lane-steps of one round: needed, done in packed form, and what a padded ``vmap`` over clients would do."""

    useful: int
    executed: int
    padded: int


def count_work(num_steps: np.ndarray, *, num_lanes: int, chunk_length: int) -> Work:
    """The work of one round on one device, on the host. ``num_steps``: ``[pool]`` (NumPy)."""
    steps = np.asarray(num_steps, np.int64).ravel()
    chunks = -(-steps // chunk_length)
    num_waves = max(chunks.max(initial=0), -(-chunks.sum() // num_lanes))
    return Work(
        useful=int(steps.sum()),
        executed=int(num_waves * num_lanes * chunk_length),
        padded=int(steps.max(initial=0) * steps.size),
    )


def packing_limits(platform: str, batch_size: int) -> dict[str, int]:
    """The most lanes and the longest chunk that suit a device, for ``choose_packing``."""
    if platform != "cpu":
        return dict(max_lanes=GPU_LANES, max_chunk_length=MAX_CHUNK_LENGTH)
    max_lanes = min(max(STEP_ROWS // batch_size, 1), CPU_LANES)
    return dict(max_lanes=max_lanes, max_chunk_length=max(CACHED_ROWS // (max_lanes * batch_size), 1))


def choose_packing(
    num_steps: np.ndarray, *, max_lanes: int, max_chunk_length: int = MAX_CHUNK_LENGTH, max_waste: float = 1.1
) -> tuple[int, int]:
    """The number of lanes and the chunk length of a pool: long chunks, unless they waste steps.

    A wave costs a gather and a scatter of L models, so long chunks are cheaper; but the last chunk of a client is
    partly empty, and clients of one to three steps are common under skew. Takes no more lanes than every device can
    keep busy beside its longest client, and the longest power of two whose executed steps stay within ``max_waste``
    of those of single-step chunks.

    Args:
      num_steps: ``[pool]`` or ``[devices, pool]`` local steps of a round in which everybody takes part.
      max_lanes, max_chunk_length: what suits the device, see ``packing_limits``.
      max_waste: executed steps, over those with chunks of one step.

    Returns: ``(num_lanes, chunk_length)``, both at least 1, the same for all devices.
    """
    steps = np.atleast_2d(np.asarray(num_steps, np.int64))
    steps = steps[steps.sum(axis=1) > 0]
    if not steps.size:
        return 1, 1
    num_lanes = int(np.clip((steps.sum(axis=1) // steps.max(axis=1)).min(), 1, max_lanes))

    def executed(chunk_length):
        return sum(count_work(row, num_lanes=num_lanes, chunk_length=chunk_length).executed for row in steps)

    chunk_length = min(2 ** (max_chunk_length.bit_length() - 1), MAX_CHUNK_LENGTH)
    while chunk_length > 1 and executed(chunk_length) > max_waste * executed(1):
        chunk_length //= 2
    return num_lanes, chunk_length
