"""Flower's client: an epoch of the NumPy loop. A module of its own: Ray's actors import it and keep its data."""

import functools
import pathlib

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.peers import rounds, work
from benchmarks.peers.numpy_loop import NumpyTrainer

app = ClientApp()


@functools.lru_cache(maxsize=1)
def _prepare(inputs_path: str, case_name: str) -> tuple[work.Inputs, NumpyTrainer]:
    """Data and buffers, once an actor."""
    inputs = work.read_inputs(pathlib.Path(inputs_path), work.CASES[case_name])
    return inputs, NumpyTrainer(inputs)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Trains the client that the node stands for; answers with its model and its number of rows."""
    config = message.content["config"]
    inputs, trainer = _prepare(config["inputs"], config["case"])
    client = context.node_config["partition-id"]
    rows = inputs.owned[config["alpha"], config["seed"]][client]
    rng = np.random.default_rng([config["seed"], config["server-round"], client])
    (model,) = message.content["arrays"].to_numpy_ndarrays()
    rounds.train_client(trainer, model, rows, rng)
    metrics = MetricRecord({"num-examples": len(rows)})
    return Message(RecordDict({"arrays": ArrayRecord([trainer.params.copy()]), "metrics": metrics}), reply_to=message)
