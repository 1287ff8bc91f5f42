"""Flower's simulation engine (Ray), FedAvg: an actor for each core, whose clients are the NumPy loop.

    python -m benchmarks.peers.flower --case k10-fedavg --json out.json

The first round, in which Ray's actors start and load the data, counts as warm-up; "run" is the mean of the other
rounds, times their number.
"""

import logging
import os
import time

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, MetricRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers import contender, flower_client
from benchmarks.peers.numpy_loop import NumpyTrainer
from benchmarks.peers.rounds import Runner
from benchmarks.peers.work import SCORES, read_inputs

OBJECT_STORE_BYTES = 128 * 2**20


def main() -> None:
    arguments = contender.options(__doc__).parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    clock = contender.Clock()
    clock.lap("import")
    case = contender.chosen_case(arguments)
    setting = contender.the_fedavg_setting(arguments, case)
    inputs = read_inputs(arguments.inputs, case)
    trainer = NumpyTrainer(inputs)
    runner = Runner(trainer, inputs, case.num_rounds)
    scores, round_ends = [], []
    clock.lap("setup")

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if server_round == 0:
            return None
        scores.append(runner.score(arrays.to_numpy_ndarrays()[0]))
        round_ends.append(time.perf_counter())
        return MetricRecord(dict(zip(SCORES, scores[-1], strict=True)))

    server_app = ServerApp()

    @server_app.main()
    def serve(grid, context) -> None:
        del context
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=case.num_clients, min_available_nodes=case.num_clients)
        config = dict(inputs=str(arguments.inputs), case=arguments.case, alpha=setting.alpha, seed=setting.seed)
        strategy.start(
            grid,
            ArrayRecord([trainer.pack(inputs.start[setting.seed])]),
            num_rounds=case.num_rounds,
            train_config=ConfigRecord(config),
            evaluate_fn=evaluate,
        )

    run_simulation(
        server_app,
        flower_client.app,
        num_supernodes=case.num_clients,
        backend_config={
            "init_args": {"num_cpus": os.cpu_count(), "object_store_memory": OBJECT_STORE_BYTES},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    clock.lap("warm_up")
    rounds_seconds = np.mean(np.diff(round_ends)) * case.num_rounds
    clock.seconds["run"] = float(rounds_seconds)
    clock.seconds["warm_up"] -= float(rounds_seconds)
    contender.write_record(arguments, case, clock, np.array(scores[-1:]), ["flwr", "ray", "numpy"])


if __name__ == "__main__":
    main()
