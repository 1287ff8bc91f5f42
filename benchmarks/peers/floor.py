"""What this machine multiplies: float32 matrix products a second and core, with all cores busy at once.

python -m benchmarks.peers.floor --json out.json
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import time

import numpy as np

SIZES = (256, 512, 1024, 2048)
SECONDS_PER_SIZE = 0.4


def _best_rates(barrier) -> list[float]:
    """GFLOP/s by size: the fastest product of this process, all processes working on the same size."""
    rates = []
    for size in SIZES:
        left, right, product = np.random.default_rng(0).random((3, size, size), np.float32)
        np.dot(left, right, out=product)
        best = np.inf
        barrier.wait()
        end = time.perf_counter() + SECONDS_PER_SIZE
        while (began := time.perf_counter()) < end:
            np.dot(left, right, out=product)
            best = min(best, time.perf_counter() - began)
        rates.append(2e-9 * size**3 / best)
    return rates


def _send_rates(barrier, connection) -> None:
    connection.send(_best_rates(barrier))


def measure() -> dict[int, float]:
    """Size -> GFLOP/s per core, the mean over the cores."""
    context = multiprocessing.get_context("fork")
    cores = os.cpu_count()
    barrier = context.Barrier(cores)
    pipes = [context.Pipe(duplex=False) for _ in range(cores)]
    processes = [context.Process(target=_send_rates, args=(barrier, sender)) for _, sender in pipes]
    for process, (_, sender) in zip(processes, pipes, strict=True):
        process.start()
        sender.close()
    rates = np.mean([receiver.recv() for receiver, _ in pipes], axis=0)
    for process in processes:
        process.join()
    return dict(zip(SIZES, map(float, rates), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=pathlib.Path, help="the record to write (default: standard output)")
    arguments = parser.parse_args()
    text = json.dumps(dict(cores=os.cpu_count(), gflops_per_core=measure()), indent=1)
    if arguments.json:
        arguments.json.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
