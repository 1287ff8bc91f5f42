r"""Hand-written NumPy: gradients by hand, everything in place, one BLAS thread a process.

A model is one vector, and the layers are views of it, so that a step's update, FedProx's pull and SCAFFOLD's
correction are one operation each on 3,201 numbers. Activations are ``[units, batch]``: every product is then written
to one block of memory. What makes a step shorter than the textbook's:

- Biases ride in the products, as the weights of a last input that is always -1.
- The first layer is held negated, so that a hidden layer comes out as -z, and ReLU keeps -z where its sign bit is
  set: an arithmetic shift of the bits makes the mask, an ``and`` applies it, and backward the same mask serves again.
  That takes half the time of ``maximum``, ``greater`` and a product with bools.
- With sigmoid(z) = 1/2 - tanh(-z / 2) / 2, the rate and 1 / B folded in, the error of a batch is four short
  operations, and a gradient is subtracted as it comes.
- An epoch's rows are gathered once, shuffled; batches are slices whose views are made beforehand.

    python -m benchmarks.peers.numpy_loop --case sweep27 --processes 2 --json out.json
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.peers import contender
from benchmarks.peers.work import BATCH_SIZE, CLIENT_LR, HIDDEN, NUM_FEATURES, Inputs

WIDE, NARROW = HIDDEN
NUM_INPUTS = NUM_FEATURES + 1
SHAPES = ((WIDE, NUM_INPUTS), (NARROW, WIDE + 1), (NARROW + 1,))
ROWS_PER_CHUNK = 2000


def pack_model(layers: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The vector of a model given as (kernel, bias) pairs; see the module's page for the signs."""
    first, second, last = (np.vstack([kernel, bias]).T for kernel, bias in layers)
    first[:, :-1] *= -1
    return np.concatenate([first.ravel(), second.ravel(), last.ravel()]).astype(np.float32)


def layers_of(vector: np.ndarray) -> list[np.ndarray]:
    """Views of the vector: ``[64, 17]``, ``[32, 65]``, ``[33]``."""
    ends = np.cumsum([math.prod(shape) for shape in SHAPES])
    parts = np.split(vector, ends[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, SHAPES, strict=True)]


def with_constant(features: np.ndarray) -> np.ndarray:
    """The rows with the constant input -1 behind them: ``[samples, 17]``."""
    return np.hstack([features, np.full((len(features), 1), -1, np.float32)])


def as_items(rows: np.ndarray) -> np.ndarray:
    """The rows as ``[samples]`` opaque items, which NumPy gathers in half the time."""
    return rows.view(f"V{rows.itemsize * rows.shape[1]}")[:, 0]


# ---- one batch --------------------------------------------------------------------------------------------------


def make_passes(params: np.ndarray, gradient: np.ndarray, batch_size: int) -> tuple[Callable, Callable]:
    """Forward and backward pass for one batch size, with their buffers.

    Returns: ``forward(columns [17, batch]) -> [batch]``, minus the logits in a buffer that the next call overwrites;
    and ``backward(rows [batch, 17], columns, target [batch])``, which fills ``gradient`` with the rate times the mean
    gradient. ``target``: rate / batch size times (y - 1/2).
    """
    dot, multiply, add, tanh = np.dot, np.multiply, np.add, np.tanh
    shift, both = np.right_shift, np.bitwise_and
    first, second, last = layers_of(params)
    first_gradient, second_gradient, last_gradient = layers_of(gradient)
    second_back, last_column = second[:, :-1].T, last[:-1, None]

    wide, narrow = (np.full((width + 1, batch_size), -1, np.float32) for width in HIDDEN)
    wide_active, narrow_active, wide_rows = wide[:-1], narrow[:-1], wide.T
    wide_mask, narrow_mask = (np.empty((width, batch_size), np.int32) for width in HIDDEN)
    wide_delta, narrow_delta = (np.empty((width, batch_size), np.float32) for width in HIDDEN)
    wide_bits, narrow_bits, wide_delta_bits, narrow_delta_bits = (
        array.view(np.int32) for array in (wide_active, narrow_active, wide_delta, narrow_delta)
    )
    error = np.empty(batch_size, np.float32)
    error_row = error[None]
    sign_bit, half = np.array(31, np.int32), np.array(0.5, np.float32)
    scale = np.array(0.5 * CLIENT_LR / batch_size, np.float32)

    def forward(columns):
        dot(first, columns, wide_active)
        shift(wide_bits, sign_bit, wide_mask)
        both(wide_bits, wide_mask, wide_bits)
        dot(second, wide, narrow_active)
        shift(narrow_bits, sign_bit, narrow_mask)
        both(narrow_bits, narrow_mask, narrow_bits)
        return dot(last, narrow, error)

    def backward(rows, columns, target):
        forward(columns)
        multiply(error, half, error)
        tanh(error, error)
        multiply(error, scale, error)
        add(error, target, error)
        dot(narrow, error, last_gradient)
        multiply(last_column, error_row, narrow_delta)
        both(narrow_delta_bits, narrow_mask, narrow_delta_bits)
        dot(narrow_delta, wide_rows, second_gradient)
        dot(second_back, narrow_delta, wide_delta)
        both(wide_delta_bits, wide_mask, wide_delta_bits)
        dot(wide_delta, rows, first_gradient)

    return forward, backward


class NumpyTrainer:
    """See ``rounds.Trainer``."""

    def __init__(self, inputs: Inputs):
        self.params, self._gradient = np.empty((2, sum(math.prod(shape) for shape in SHAPES)), np.float32)
        self._passes: dict[int, tuple[Callable, Callable]] = {}
        self._features = as_items(with_constant(inputs.features))
        self._errors = np.float32(CLIENT_LR) * (inputs.labels.astype(np.float32) - np.float32(0.5))
        columns = with_constant(inputs.test_features).T
        starts = range(0, columns.shape[1], ROWS_PER_CHUNK)
        self._test_chunks = [np.ascontiguousarray(columns[:, start : start + ROWS_PER_CHUNK]) for start in starts]
        largest = max(len(rows) for clients in inputs.owned.values() for rows in clients)
        self._rows = np.empty((largest, NUM_INPUTS), np.float32)
        self._row_items = as_items(self._rows)
        self._target = np.empty(largest, np.float32)
        self._batches = [self._batch(start, start + BATCH_SIZE) for start in range(0, largest, BATCH_SIZE)]

    def _batch(self, start: int, end: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = self._rows[start:end]
        return rows, rows.T, self._target[start:end]

    def _passes_for(self, batch_size: int) -> tuple[Callable, Callable]:
        """Forward and backward for a batch size, made once."""
        if batch_size not in self._passes:
            self._passes[batch_size] = make_passes(self.params, self._gradient, batch_size)
        return self._passes[batch_size]

    def pack(self, layers: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        return pack_model(layers)

    def train_epoch(self, which: np.ndarray, shrink=None, shift=None) -> int:
        num_full, rest = divmod(len(which), BATCH_SIZE)
        end = num_full * BATCH_SIZE
        np.take(self._features, which, out=self._row_items[: len(which)], mode="clip")
        np.take(self._errors, which, out=self._target[: len(which)], mode="clip")
        self._target[:end] /= BATCH_SIZE
        self._steps(self._passes_for(BATCH_SIZE)[1], self._batches[:num_full], shrink, shift)
        if rest:
            self._target[end : len(which)] /= rest
            self._steps(self._passes_for(rest)[1], [self._batch(end, len(which))], shrink, shift)
        return num_full + (rest > 0)

    def _steps(self, backward, batches, shrink, shift) -> None:
        """A step a batch."""
        params, gradient, multiply, add, subtract = self.params, self._gradient, np.multiply, np.add, np.subtract
        for rows, columns, target in batches:
            backward(rows, columns, target)
            if shrink is not None:
                multiply(params, shrink, params)
            if shift is not None:
                add(params, shift, params)
            subtract(params, gradient, params)

    def logits(self) -> np.ndarray:
        return np.concatenate([-self._passes_for(columns.shape[1])[0](columns) for columns in self._test_chunks])


def main() -> None:
    contender.run_loop(__doc__, NumpyTrainer, packages=["numpy"])


if __name__ == "__main__":
    main()
