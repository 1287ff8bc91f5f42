"""The work that every contender does: data, partitions, first models, cases, scores, and the operations it needs.

All of it is in one .npz, so that contenders that know no JAX train on the same rows from the same start:

    python -m benchmarks.peers.work --inputs work.npz
"""

import argparse
import itertools
import pathlib
import tempfile
from typing import NamedTuple

import numpy as np

from benchmarks import workload
from benchmarks.workload import NUM_FEATURES

NUM_TRAIN, NUM_TEST = 60_000, 20_000
HIDDEN = (64, 32)
BATCH_SIZE, CLIENT_LR, MU = 64, 0.05, 0.01
ALGORITHMS = ("fedavg", "fedprox", "scaffold")
SCORES = ("log_loss", "average_precision", "roc_auc")
DEFAULT_INPUTS = pathlib.Path(tempfile.gettempdir()) / "fl_benchmark_work.npz"


class Setting(NamedTuple):
    """One federation."""

    algorithm: str
    alpha: float
    seed: int


class Case(NamedTuple):
    """Federations that are run together: algorithms x alphas x seeds."""

    num_clients: int
    algorithms: tuple[str, ...]
    alphas: tuple[float, ...]
    seeds: tuple[int, ...]
    num_rounds: int = 10

    @property
    def settings(self) -> list[Setting]:
        return [Setting(name, alpha, seed) for alpha in self.alphas for seed in self.seeds for name in self.algorithms]


CASES = {
    f"k{num_clients}-{algorithm}": Case(num_clients, (algorithm,), (0.5,), (0,))
    for num_clients in (3, 10, 100)
    for algorithm in ALGORITHMS
} | {
    "sweep27": Case(10, ALGORITHMS, (0.1, 0.5, 1.0), tuple(range(3))),
    "sweep270": Case(10, ALGORITHMS, (0.1, 0.5, 1.0), tuple(range(30))),
    "skewed9": Case(10, ("fedavg",), (0.1,), tuple(range(9))),
}


class Inputs(NamedTuple):
    """A case's inputs.

    Attributes:
      features, test_features: ``[samples, features]`` float32.
      labels, test_labels: ``[samples]`` int32, about 1 % ones.
      owned: (alpha, seed) -> the rows of each client, ``[clients]`` arrays of row numbers; some are empty.
      start: seed -> the first global model, a list of (kernel ``[inputs, outputs]``, bias) for each layer.
    """

    features: np.ndarray
    labels: np.ndarray
    test_features: np.ndarray
    test_labels: np.ndarray
    owned: dict[tuple[float, int], list[np.ndarray]]
    start: dict[int, list[tuple[np.ndarray, np.ndarray]]]


def write_inputs(path: pathlib.Path) -> None:
    """Data, and the partitions and first models that the package makes for these seeds."""
    import jax

    from fedjax_fraud import models, partition

    features, labels = workload.make_arrays(NUM_TRAIN + NUM_TEST)
    arrays = dict(features=features, labels=labels)
    for case in CASES.values():
        for alpha in case.alphas:
            for seed in case.seeds:
                owners = partition.dirichlet_labels(labels[:NUM_TRAIN], case.num_clients, alpha, seed)
                key = f"{case.num_clients}/{alpha}/{seed}"
                arrays[f"order/{key}"] = owners.order.astype(np.int32)
                arrays[f"count/{key}"] = owners.count
    model = models.mlp(NUM_FEATURES, HIDDEN)
    for seed in sorted({seed for case in CASES.values() for seed in case.seeds}):
        layers = model.init(jax.random.key(seed))
        for i, name in enumerate(sorted(layers)):
            for part in ("kernel", "bias"):
                arrays[f"start/{seed}/{i}/{part}"] = np.asarray(layers[name][part])
    np.savez(path, **arrays)


def read_inputs(path: pathlib.Path, case: Case) -> Inputs:
    """Only what the case needs."""
    if not path.exists():
        raise FileNotFoundError(f"No such file: {path}. Write it: python -m benchmarks.peers.work --inputs {path}")
    with np.load(path) as stored:
        owned = {}
        for alpha in case.alphas:
            for seed in case.seeds:
                key = f"{case.num_clients}/{alpha}/{seed}"
                order, count = stored[f"order/{key}"].astype(np.int64), stored[f"count/{key}"]
                owned[alpha, seed] = np.split(order, np.cumsum(count)[:-1])
        start = {
            seed: [(stored[f"start/{seed}/{i}/kernel"], stored[f"start/{seed}/{i}/bias"]) for i in range(3)]
            for seed in case.seeds
        }
        features, labels = stored["features"], stored["labels"]
    train, test = slice(None, NUM_TRAIN), slice(NUM_TRAIN, None)
    return Inputs(features[train], labels[train], features[test], labels[test], owned, start)


# ---- scores -----------------------------------------------------------------------------------------------------


class Scorer:
    """Scores of logits on the test rows, exact with ties as scikit-learn's; sorts each class by itself."""

    def __init__(self, labels: np.ndarray):
        self._positive = np.flatnonzero(labels)
        self._negative = np.flatnonzero(labels == 0)
        self._sign = np.where(labels, -1, 1).astype(np.float32)

    def __call__(self, logits: np.ndarray) -> tuple[float, float, float]:
        """Log loss, average precision and ROC-AUC of ``logits [samples]`` float32, NaN if any is NaN."""
        if np.isnan(logits.sum()):
            return np.nan, np.nan, np.nan
        margin = logits * self._sign
        losses = np.maximum(margin, 0) + np.log(1 + np.exp(-np.abs(margin)))
        positive, negative = np.sort(logits[self._positive]), np.sort(logits[self._negative])
        below = np.searchsorted(negative, positive, "left")
        below_or_tied = np.searchsorted(negative, positive, "right")
        frauds_from = len(positive) - np.searchsorted(positive, positive, "left")
        precision = frauds_from / (frauds_from + len(negative) - below)
        won = 0.5 * (below + below_or_tied) / len(negative)
        return float(losses.mean(dtype=np.float64)), float(precision.mean()), float(won.mean())


# ---- the floor --------------------------------------------------------------------------------------------------


def flops_per_row() -> tuple[int, int]:
    """Floating-point operations of the matrix products for a row that is trained on, and for one that is scored.

    Forward, the weights' gradients, and the gradients of the hidden layers; not those of the features.
    """
    widths = (NUM_FEATURES, *HIDDEN, 1)
    products = [2 * a * b for a, b in itertools.pairwise(widths)]
    return 2 * sum(products) + sum(products[1:]), sum(products)


def flops(num_settings: int, num_rounds: int) -> int:
    """Federations in which every client trains on its rows once a round, scored after every round."""
    train, score = flops_per_row()
    return num_settings * num_rounds * (NUM_TRAIN * train + NUM_TEST * score)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=pathlib.Path, default=DEFAULT_INPUTS, help="the .npz to write")
    write_inputs(parser.parse_args().inputs)


if __name__ == "__main__":
    main()
