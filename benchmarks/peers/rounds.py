"""The rounds of FedAvg, FedProx and SCAFFOLD as a plain loop over clients, for the hand-written contenders.

A model is one float32 vector; all three algorithms are linear in it, so the order and the signs of its numbers are
the trainer's own affair.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from benchmarks.peers.work import CLIENT_LR, MU, Inputs, Scorer, Setting

RATE, PULL = np.float32(CLIENT_LR), np.float32(CLIENT_LR * MU)


class Trainer(Protocol):
    """One model in training. ``params``: its vector; the loop reads and overwrites it."""

    params: np.ndarray

    def pack(self, layers: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """The vector of a model given as (kernel, bias) pairs."""

    def train_epoch(self, which: np.ndarray, shrink=None, shift=None) -> int:
        """Trains on the rows ``which``, in that order; a step is ``params * shrink + shift - rate * gradient``.

        Returns: the number of steps. None as ``shrink`` or ``shift`` means without it.
        """

    def logits(self) -> np.ndarray:
        """Logits of the test rows."""


def train_client(
    trainer: Trainer, model: np.ndarray, rows: np.ndarray, rng: np.random.Generator, *, prox: bool = False
) -> None:
    """One client's epoch of FedAvg, or of FedProx, from ``model``; leaves the local model in ``trainer.params``."""
    trainer.params[:] = model
    pull = dict(shrink=1 - PULL, shift=PULL * model) if prox else {}
    trainer.train_epoch(rng.permutation(rows), **pull)


def averaging_round(trainer: Trainer, model, controls, clients, rng, *, prox: bool) -> np.ndarray:
    """FedAvg or FedProx: the next model, the mean weighted by rows."""
    del controls
    total, num_rows = np.zeros_like(model), sum(map(len, clients))
    for rows in clients:
        train_client(trainer, model, rows, rng, prox=prox)
        total += np.float32(len(rows) / num_rows) * trainer.params
    return total


def scaffold_round(trainer: Trainer, model, controls, clients, rng) -> np.ndarray:
    """SCAFFOLD, option II, equal weights: the next model. ``controls``: the c_k, then c; updated in place."""
    control, total, change = controls[-1], np.zeros_like(model), np.zeros_like(model)
    for own, rows in zip(controls[:-1], clients, strict=True):
        trainer.params[:] = model
        num_steps = trainer.train_epoch(rng.permutation(rows), shift=RATE * (own - control))
        update = (model - trainer.params) * np.float32(1 / (num_steps * CLIENT_LR)) - control
        own += update
        change += update
        total += trainer.params
    control += change / np.float32(len(clients))
    return total / np.float32(len(clients))


class Runner:
    """Federations, one after the other, with one trainer."""

    def __init__(self, trainer: Trainer, inputs: Inputs, num_rounds: int):
        self._trainer, self._inputs, self._num_rounds = trainer, inputs, num_rounds
        self._scorer = Scorer(inputs.test_labels)

    def run(self, settings: Sequence[Setting]) -> np.ndarray:
        """Scores after the last round, ``[settings, 3]``; scores after every round."""
        return np.array([self._run_setting(setting)[-1] for setting in settings])

    def _run_setting(self, setting: Setting) -> list[tuple[float, float, float]]:
        clients = [rows for rows in self._inputs.owned[setting.alpha, setting.seed] if len(rows)]
        rng = np.random.default_rng(setting.seed)
        model = self._trainer.pack(self._inputs.start[setting.seed])
        controls = np.zeros((len(clients) + 1, len(model)), np.float32)
        scores = []
        for _ in range(self._num_rounds):
            if setting.algorithm == "scaffold":
                model = scaffold_round(self._trainer, model, controls, clients, rng)
            else:
                prox = setting.algorithm == "fedprox"
                model = averaging_round(self._trainer, model, controls, clients, rng, prox=prox)
            scores.append(self.score(model))
        return scores

    def score(self, model: np.ndarray) -> tuple[float, float, float]:
        """Log loss, average precision and ROC-AUC on the test rows."""
        self._trainer.params[:] = model
        return self._scorer(self._trainer.logits())
