"""How well are ragged clients packed? Steps needed, executed and padded, by skew and number of clients.

A padded ``vmap`` makes every client take the largest client's number of steps. Counts steps, trains nothing:

    python benchmarks/packing.py            # 60,000 rows, 9 settings, one device and two
"""

import argparse

import numpy as np

from fedjax_fraud import packing, partition

ROWS, POSITIVES, BATCH_SIZE, SEEDS = 60_000, 600, 64, 9


def steps_of_settings(alpha: float, num_clients: int) -> np.ndarray:
    """``[settings, clients]`` local steps of one epoch, a setting for each seed."""
    labels = np.zeros(ROWS, np.int32)
    labels[:POSITIVES] = 1
    counts = [partition.dirichlet_labels(labels, num_clients, alpha, seed).count for seed in range(SEEDS)]
    return -(-np.stack(counts) // BATCH_SIZE)


def count(steps: np.ndarray, num_devices: int) -> tuple[packing.Work, int, int]:
    """The work of all devices, the lanes and the chunk length; settings are dealt to devices in turn."""
    parts = [steps[device::num_devices] for device in range(num_devices)]
    length = max(part.size for part in parts)
    per_device = np.stack([np.pad(part.ravel(), (0, length - part.size)) for part in parts])
    lanes, chunk = packing.choose_packing(per_device, **packing.packing_limits("cpu", BATCH_SIZE))
    works = [packing.count_work(part, num_lanes=lanes, chunk_length=chunk) for part in parts]
    padded = packing.count_work(steps, num_lanes=lanes, chunk_length=chunk).padded
    useful, executed = (sum(getattr(work, field) for work in works) for field in ("useful", "executed"))
    return packing.Work(useful, executed, padded), lanes, chunk


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2], help="devices that share the settings")
    options = parser.parse_args()
    print("devices clients alpha lanes chunk   useful executed   padded executed/useful padded/useful")
    for num_devices in options.devices:
        for num_clients in (3, 10, 100):
            for alpha in (0.1, 0.5, 1.0):
                work, lanes, chunk = count(steps_of_settings(alpha, num_clients), num_devices)
                print(
                    f"{num_devices:7d} {num_clients:7d} {alpha:5.1f} {lanes:5d} {chunk:5d} {work.useful:8d} "
                    f"{work.executed:8d} {work.padded:8d} {work.executed / work.useful:15.2f} "
                    f"{work.padded / work.useful:13.1f}"
                )


if __name__ == "__main__":
    main()
