"""A JAX simulator of federated fraud detection: clients x settings x seeds in one compiled program."""

from fedjax_fraud import algorithms, data, losses, metrics, models, partition, report
from fedjax_fraud.simulate import History, simulate
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
    "FedAlgorithm",
    "FedState",
    "History",
    "LocalWork",
    "Model",
    "Partition",
    "SweepResult",
    "Transactions",
    "algorithms",
    "data",
    "losses",
    "metrics",
    "models",
    "partition",
    "report",
    "simulate",
    "sweep",
]
