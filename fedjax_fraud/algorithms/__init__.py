"""The algorithms, and the list of all of them that sweeps, tests and the command line read."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import optax

from fedjax_fraud.algorithms.fedavg import fedavg
from fedjax_fraud.algorithms.fedprox import fedprox
from fedjax_fraud.algorithms.scaffold import scaffold
from fedjax_fraud.types import CommunicationCost, FedAlgorithm

__all__ = ["ALGORITHMS", "Entry", "fedavg", "fedprox", "scaffold"]


class Entry(NamedTuple):
    """An algorithm as a sweep sees it.

    Attributes:
      build: ``hyper -> FedAlgorithm``; algorithms with the same ``build`` share one compiled program.
      tuned: the hyperparameters beside ``client_lr`` that a sweep may vary.
      fixed: hyperparameters that this entry sets.
      cost: vectors sent.
      defaults: values of ``tuned`` where a sweep gives none.
    """

    build: Callable[[Mapping], FedAlgorithm]
    tuned: tuple[str, ...] = ()
    fixed: Mapping[str, float] = {}
    cost: CommunicationCost = CommunicationCost(1, 1)
    defaults: Mapping[str, float] = {}


def _averaging(hyper):
    """FedAvg and FedProx in one program: mu = 0 is FedAvg bit for bit."""
    return fedprox(optax.sgd(hyper["client_lr"]), mu=hyper["mu"])


def _scaffold_path(hyper):
    return scaffold(hyper["client_lr"], option=2)


def _scaffold_gradient(hyper):
    return scaffold(hyper["client_lr"], option=1)


def _scaffold_weighted(hyper):
    return scaffold(hyper["client_lr"], option=2, uniform_weights=False)


ALGORITHMS: dict[str, Entry] = {
    "fedavg": Entry(_averaging, fixed={"mu": 0.0}),
    "fedprox": Entry(_averaging, tuned=("mu",)),
    "scaffold": Entry(_scaffold_path, cost=CommunicationCost(2, 2)),
    "scaffold_option1": Entry(_scaffold_gradient, cost=CommunicationCost(2, 2)),
    "scaffold_weighted": Entry(_scaffold_weighted, cost=CommunicationCost(2, 2)),
}


def build_with(name: str, client_optimizer: str) -> Callable[[Mapping], FedAlgorithm]:
    """Stand-in until the client optimizers are there."""
    if client_optimizer != "sgd":
        raise ValueError(f"`client_optimizer` must be 'sgd', got {client_optimizer!r}.")
    return ALGORITHMS[name].build
