"""The algorithms, and the list of all of them that sweeps, tests and the command line read."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import optax

from fedjax_fraud import checks
from fedjax_fraud.algorithms import fedopt
from fedjax_fraud.algorithms.adaptive_fedprox import adaptive_fedprox
from fedjax_fraud.algorithms.ditto import ditto
from fedjax_fraud.algorithms.fedavg import fedavg
from fedjax_fraud.algorithms.feddyn import feddyn
from fedjax_fraud.algorithms.fednova import fednova
from fedjax_fraud.algorithms.fedopt import fedadagrad, fedadam, fedavgm, fedyogi
from fedjax_fraud.algorithms.fedprox import fedprox
from fedjax_fraud.algorithms.mimelite import mimelite
from fedjax_fraud.algorithms.scaffold import scaffold
from fedjax_fraud.privacy import make_private
from fedjax_fraud.types import CommunicationCost, FedAlgorithm

__all__ = [
    "ALGORITHMS",
    "CLIENT_OPTIMIZERS",
    "Build",
    "Entry",
    "adaptive_fedprox",
    "build_with",
    "ditto",
    "fedadagrad",
    "fedadam",
    "fedavg",
    "fedavgm",
    "feddyn",
    "fednova",
    "fedprox",
    "fedyogi",
    "mimelite",
    "scaffold",
]

CLIENT_OPTIMIZERS: dict[str, Callable] = {
    "sgd": optax.sgd,
    "momentum": lambda client_lr: optax.sgd(client_lr, momentum=0.9),
    "adam": optax.adam,
}


class Build(NamedTuple):
    """``hyper -> FedAlgorithm`` with one kind of client optimizer; equal pairs share one compiled program.

    Attributes:
      make: ``(hyper, client_opt) -> FedAlgorithm``; one that needs plain SGD reads ``hyper["client_lr"]`` instead.
      client_optimizer: a name of ``CLIENT_OPTIMIZERS``; its rate is ``hyper["client_lr"]``.
      private: whether the local gradients are clipped to ``hyper["clip_norm"]`` and noised (see ``privacy``).
    """

    make: Callable[[Mapping, optax.GradientTransformation], FedAlgorithm]
    client_optimizer: str = "sgd"
    private: bool = False

    def __call__(self, hyper: Mapping) -> FedAlgorithm:
        algorithm = self.make(hyper, CLIENT_OPTIMIZERS[self.client_optimizer](hyper["client_lr"]))
        if not self.private:
            return algorithm
        return make_private(algorithm, hyper["clip_norm"], hyper["noise_multiplier"])


class Entry(NamedTuple):
    """An algorithm as a sweep sees it.

    Attributes:
      build: ``hyper -> FedAlgorithm`` with plain SGD at the clients; algorithms with an equal ``build`` share one
        compiled program. ``build_with`` gives it another client optimizer.
      tuned: the hyperparameters beside ``client_lr`` that a sweep may vary.
      fixed: hyperparameters that this entry sets.
      cost: vectors sent.
      any_client_optimizer: whether the method holds for client optimizers other than plain SGD.
      can_be_private: whether clients look at their rows in the local steps alone (see ``privacy``).
      defaults: values of ``tuned`` hyperparameters where this entry's differ from the sweep's.
    """

    build: Build
    tuned: tuple[str, ...] = ()
    fixed: Mapping[str, float] = {}
    cost: CommunicationCost = CommunicationCost(1, 1)
    any_client_optimizer: bool = False
    can_be_private: bool = True
    defaults: Mapping[str, float] = {}


def _averaging(hyper, client_opt):
    """FedAvg and FedProx in one program: mu = 0 is FedAvg bit for bit."""
    return fedprox(client_opt, mu=hyper["mu"])


def _fedopt(hyper, client_opt):
    """FedAvgM, FedAdagrad, FedAdam and FedYogi in one program."""
    server_opt = fedopt.server_optimizer(hyper["server_rule"], hyper["server_lr"], beta1=hyper["beta1"])
    return fedavg(client_opt, server_opt)


def _ditto(hyper, client_opt):
    return ditto(client_opt, mu=hyper["mu"])


def _fedprox_adaptive(hyper, client_opt):
    return adaptive_fedprox(client_opt, mu=hyper["mu"])


def _scaffold_path(hyper, _):
    return scaffold(hyper["client_lr"], option=2)


def _scaffold_gradient(hyper, _):
    return scaffold(hyper["client_lr"], option=1)


def _scaffold_weighted(hyper, _):
    return scaffold(hyper["client_lr"], option=2, uniform_weights=False)


def _fednova(hyper, _):
    return fednova(hyper["client_lr"])


def _feddyn(hyper, _):
    return feddyn(hyper["client_lr"], mu=hyper["mu"])


def _mimelite(hyper, _):
    return mimelite(hyper["client_lr"])


def _fedopt_entry(rule: int, beta1: float, server_lr: float) -> Entry:
    return Entry(
        Build(_fedopt),
        tuned=("server_lr",),
        fixed={"server_rule": float(rule), "beta1": beta1},
        any_client_optimizer=True,
        defaults={"server_lr": server_lr},
    )


_TWICE = CommunicationCost(2, 2)

ALGORITHMS: dict[str, Entry] = {
    "fedavg": Entry(Build(_averaging), fixed={"mu": 0.0}, any_client_optimizer=True),
    "fedprox": Entry(Build(_averaging), tuned=("mu",), any_client_optimizer=True),
    "fedprox_adaptive": Entry(Build(_fedprox_adaptive), tuned=("mu",), any_client_optimizer=True, can_be_private=False),
    "scaffold": Entry(Build(_scaffold_path), cost=_TWICE),
    "scaffold_option1": Entry(Build(_scaffold_gradient), cost=_TWICE, can_be_private=False),
    "scaffold_weighted": Entry(Build(_scaffold_weighted), cost=_TWICE),
    "fedavgm": _fedopt_entry(fedopt.AVGM, beta1=0.9, server_lr=1.0),
    "fedadagrad": _fedopt_entry(fedopt.ADAGRAD, beta1=0.0, server_lr=0.1),
    "fedadam": _fedopt_entry(fedopt.ADAM, beta1=0.9, server_lr=0.1),
    "fedyogi": _fedopt_entry(fedopt.YOGI, beta1=0.9, server_lr=0.1),
    "fednova": Entry(Build(_fednova)),
    "feddyn": Entry(Build(_feddyn), tuned=("mu",)),
    "mimelite": Entry(Build(_mimelite), cost=_TWICE, can_be_private=False),
    "ditto": Entry(Build(_ditto), tuned=("mu",), any_client_optimizer=True, can_be_private=False),
}


def build_with(name: str, client_optimizer: str = "sgd", private: bool = False) -> Build:
    """An algorithm's ``build`` with another client optimizer, or with private gradients.

    Args:
      name: a key of ``ALGORITHMS``.
      client_optimizer: "sgd", "momentum" (heavy ball, 0.9) or "adam"; started afresh in every round, its rate is
        ``hyper["client_lr"]``.
      private: clip and noise the local gradients (see ``privacy``).

    Returns: a ``Build``, equal for equal methods and optimizers: that of "sgd" is the entry's own.

    Raises: ValueError for an unknown name, for an optimizer that the method's equations exclude, or for a method that
      cannot be private.
    """
    checks.check_choice("name", [name], list(ALGORITHMS))
    checks.check_choice("client_optimizer", [client_optimizer], list(CLIENT_OPTIMIZERS))
    entry = ALGORITHMS[name]
    if client_optimizer != "sgd" and not entry.any_client_optimizer:
        others = ", ".join(other for other, candidate in ALGORITHMS.items() if candidate.any_client_optimizer)
        raise ValueError(
            f"`client_optimizer` must be 'sgd' for {name}, got {client_optimizer!r}: its equations hold for plain SGD "
            f"at a constant rate. Use 'sgd', or one of {others}."
        )
    if private and not entry.can_be_private:
        others = ", ".join(other for other, candidate in ALGORITHMS.items() if candidate.can_be_private)
        raise ValueError(
            f"`noise_multiplier` must be 0 for {name}, which takes more gradients than those of its local steps. "
            f"Leave it out, or use {others}."
        )
    return entry.build._replace(client_optimizer=client_optimizer, private=private)
