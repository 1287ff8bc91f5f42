"""Hand-written PyTorch: autograd and nothing else between the rows and the update, one thread a process.

No modules, optimizers or data loaders: an epoch's rows are gathered once, shuffled, and batches are slices. The
parameters are views of one vector and autograd accumulates into views of another, so that an update is one operation.
The error at the logits is written by hand, which spares autograd the loss. On this model that is the fastest of the
variants tried: autograd of the loss and ``_foreach_add_`` take 10 % longer, ``nn.Sequential`` and ``optim.SGD`` 80 %.

    python -m benchmarks.peers.torch_loop --case sweep27 --processes 2 --json out.json
"""

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch.nn.functional import linear

from benchmarks.peers import contender
from benchmarks.peers.work import BATCH_SIZE, CLIENT_LR, HIDDEN, NUM_FEATURES, Inputs

WIDTHS = (NUM_FEATURES, *HIDDEN, 1)
ROWS_PER_CHUNK = 2000


def layer_views(vector: torch.Tensor) -> list[torch.Tensor]:
    """Views of the vector: weight ``[outputs, inputs]`` and bias of each layer."""
    shapes = []
    for num_inputs, num_outputs in itertools.pairwise(WIDTHS):
        shapes += [(num_outputs, num_inputs), (num_outputs,)]
    parts = vector.split([int(np.prod(shape)) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


class TorchTrainer:
    """See ``rounds.Trainer``."""

    def __init__(self, inputs: Inputs):
        torch.set_num_threads(1)
        num_params = sum((a + 1) * b for a, b in itertools.pairwise(WIDTHS))
        self._vector, self._gradient = torch.zeros(num_params), torch.zeros(num_params)
        self.params = self._vector.numpy()
        self._layers = layer_views(self._vector)
        for layer, gradient in zip(self._layers, layer_views(self._gradient), strict=True):
            layer.requires_grad_().grad = gradient
        self._features = torch.from_numpy(inputs.features)
        self._labels = torch.from_numpy(inputs.labels.astype(np.float32)[:, None])
        self._test_chunks = torch.from_numpy(inputs.test_features).split(ROWS_PER_CHUNK)

    def pack(self, layers: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        return np.concatenate([part.ravel() for kernel, bias in layers for part in (kernel.T, bias)])

    def _forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Logits ``[batch, 1]``."""
        first, first_bias, second, second_bias, last, last_bias = self._layers
        hidden = linear(rows, first, first_bias).relu_()
        hidden = linear(hidden, second, second_bias).relu_()
        return linear(hidden, last, last_bias)

    def train_epoch(self, which: np.ndarray, shrink=None, shift=None) -> int:
        which = torch.from_numpy(which)
        shift = None if shift is None else torch.from_numpy(shift)
        batches = self._features[which].split(BATCH_SIZE), self._labels[which].split(BATCH_SIZE)
        vector, gradient = self._vector, self._gradient
        for rows, labels in zip(*batches, strict=True):
            logits = self._forward(rows)
            error = logits.detach().sigmoid().sub_(labels).div_(len(labels))
            gradient.zero_()
            logits.backward(error)
            if shrink is not None:
                vector.mul_(float(shrink))
            if shift is not None:
                vector.add_(shift)
            vector.sub_(gradient, alpha=CLIENT_LR)
        return len(batches[0])

    @torch.no_grad()
    def logits(self) -> np.ndarray:
        return torch.cat([self._forward(rows) for rows in self._test_chunks]).numpy()[:, 0]


def main() -> None:
    contender.run_loop(__doc__, TorchTrainer, packages=["torch", "numpy"])


if __name__ == "__main__":
    main()
