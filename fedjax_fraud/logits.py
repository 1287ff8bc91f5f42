"""Finished models on the test rows: a small program gives their logits, some models at a time; the host does the rest.

Compiling every score of every bank would take longer than the scores of a hundred models do in NumPy.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from fedjax_fraud import score
from fedjax_fraud.devices import AXIS, taking_host_arrays, to_host
from fedjax_fraud.types import Model

LOGITS_BYTES = 1 << 26
"""Logits that are kept at a time, so that memory does not grow with models x rows."""


class LoweredLogits(NamedTuple):
    """The traced program, how many models it takes at a time, and the rows."""

    lowered: Any
    num_each: int
    num_samples: int
    test_features: Any

    def compile(self) -> Callable[[Any], Iterator[np.ndarray]]:
        """XLA's part: ``params [models, ...] -> logits [samples]`` of one model after the other."""
        compiled = taking_host_arrays(self.lowered.compile())

        def logits(params) -> Iterator[np.ndarray]:
            params = jax.tree.map(np.asarray, params)
            num_models = len(jax.tree.leaves(params)[0])
            for first in range(0, num_models, self.num_each):
                # The last call's surplus is the last model again.
                index = np.minimum(np.arange(first, first + self.num_each), num_models - 1)
                some = jax.tree.map(lambda leaf, index=index: leaf[index], params)
                yield from to_host(compiled(some, self.test_features))[: num_models - first, : self.num_samples]

        return logits


def lower_logits(
    model: Model, num_models: Sequence[int], test_set: score.TestSet, test_features, mesh: Mesh
) -> LoweredLogits:
    """Traces the program.

    Args:
      num_models: sizes of the groups of models that it will be called for; a call takes the smallest at most.
      test_features: those of the test set, on every device of the mesh; models are dealt to them.
    """
    num_padded = math.prod(test_features.shape[:2])
    num_each = max(1, min(LOGITS_BYTES // (4 * num_padded), *num_models))
    num_each += -num_each % mesh.devices.size

    def of_device(params, features):
        return jax.lax.map(lambda one: score.test_logits(model.apply, one, features), params)

    shapes = jax.eval_shape(model.init, jax.random.key(0))
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((num_each, *leaf.shape), leaf.dtype), shapes)
    run = jax.jit(jax.shard_map(of_device, mesh=mesh, in_specs=(P(AXIS), P()), out_specs=P(AXIS), check_vma=False))
    return LoweredLogits(run.lower(params, test_features), num_each, test_set.num_samples, test_features)
