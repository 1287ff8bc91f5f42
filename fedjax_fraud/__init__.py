"""A JAX simulator of federated fraud detection: clients x settings x seeds in one compiled program."""

import importlib

from fedjax_fraud import algorithms, calibration, data, decisions, evaluate, losses, metrics, models, partition
from fedjax_fraud.conditions import Conditions
from fedjax_fraud.program import History
from fedjax_fraud.scorer import Scorer, load_scorer, make_scorer, save_scorer
from fedjax_fraud.simulate import simulate
from fedjax_fraud.sweep import SweepResult, sweep
from fedjax_fraud.types import (
    ClientResult,
    CommunicationCost,
    FedAlgorithm,
    FedState,
    LocalWork,
    Model,
    Partition,
    Transactions,
)

__all__ = [
    "ClientResult",
    "CommunicationCost",
    "Conditions",
    "FedAlgorithm",
    "FedState",
    "History",
    "LocalWork",
    "Model",
    "Partition",
    "Scorer",
    "SweepResult",
    "Transactions",
    "algorithms",
    "calibration",
    "data",
    "decisions",
    "evaluate",
    "load_scorer",
    "losses",
    "make_scorer",
    "metrics",
    "models",
    "partition",
    "report",
    "save_scorer",
    "simulate",
    "sweep",
]


def __getattr__(name: str):
    """Imports ``report`` when it is first asked for: its libraries take a quarter of a second."""
    if name == "report":
        return importlib.import_module("fedjax_fraud.report")
    raise AttributeError(f"module 'fedjax_fraud' has no attribute {name!r}")
