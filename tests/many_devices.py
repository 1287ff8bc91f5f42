"""Run by test_devices.py in a process of its own, because the number of devices is fixed when JAX starts.

Sweeps on one and on eight devices; writes scores and final parameters, and how the work was split.
"""

import sys

import jax
import numpy as np

from fedjax_fraud import models, pool
from fedjax_fraud.sweep import sweep
from fedjax_fraud.types import Transactions

CASES = {
    # Eight settings, one for each device.
    "settings": dict(alphas=[0.1, 1.0], seeds=4, algorithms=["scaffold"], participation=0.6),
    # Two settings of ten clients: the clients are dealt, so that some devices own one of them and others two.
    "clients": dict(alphas=[0.5], seeds=2, algorithms=["scaffold"], participation=0.7),
    "banks alone": dict(alphas=[0.5], seeds=1, algorithms=["fedavg"], num_clients=5, baselines=True),
}


def rows(seed, num_rows):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(num_rows, 3)).astype(np.float32)
    labels = (features.sum(axis=1) + rng.normal(size=num_rows) > 2).astype(np.int32)
    return Transactions(features, labels, ("a", "b", "c"))


def main(path):
    jax.config.update("jax_num_cpu_devices", 8)
    split, lower = [], pool.lower_pool

    def lower_and_note(made, *arguments):
        split.append(made.program.clients_axis is not None)
        return lower(made, *arguments)

    pool.lower_pool = lower_and_note
    found = {}
    for name, options in CASES.items():
        for devices in (1, 8):
            split.clear()
            options = dict(num_clients=10, baselines=False, num_rounds=3, batch_size=8, client_lr=0.2) | options
            result = sweep(
                rows(0, 600),
                rows(1, 300),
                model=models.logistic_regression(3),
                devices=jax.devices()[:devices],
                **options,
            )
            key = f"{name}, {devices}"
            found[f"{key}, split"] = np.array(split)
            for leaf_name, leaf in result.params.items():
                found[f"{key}, {leaf_name}"] = leaf
            for column in result.rounds.select_dtypes("number"):
                found[f"{key}, {column}"] = result.rounds[column].to_numpy()
            for column in ("log_loss", "average_precision"):
                found[f"{key}, bank {column}"] = result.banks[column].to_numpy()
    np.savez(path, **found)


if __name__ == "__main__":
    main(sys.argv[1])
