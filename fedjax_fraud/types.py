"""The NamedTuples that several files share: data, partitions, models, and the algorithm contract."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import optax


class Transactions(NamedTuple):
    """A table of labelled transactions on the host (NumPy).

    Attributes:
      features: ``[samples, features]`` float32.
      labels: ``[samples]`` int32, 1 = fraud, 0 = genuine.
      names: the feature names, one per column of ``features``.
      amount: ``[samples]`` float64 in the account's currency, or None.
      time: ``[samples]``, any sortable number (PaySim: the hour since the start, from 1), or None.
      silo: ``[samples]`` the owner of each row (a bank, a hospital), or None where there is no such column.
      accounts: role -> ``[samples]`` int64 codes of the account in that role; equal codes in any two roles mean
        the same account. Used to count account overlap, never as features.
      rule_alarm: ``[samples]`` bool, the alarm of a known hand-written rule that gives the label away, or None.
      source: what the table was made from, for the record.
      hours_per_unit: what one unit of ``time`` is in hours, or None where that is not known.
      encoding: what was made of each column, a ``data.encoding.Encoding``, or None.
      preprocessing: what ``split`` fitted on the training rows, a ``data.Preprocessing``; None before.
      beginnings: account column -> ``[samples]`` how each name begins: looked at for leaks, never features.
      findings: what ``split`` found, as plain values for the record: gaps filled, unseen categories, suspected leaks.
    """

    features: np.ndarray
    labels: np.ndarray
    names: tuple[str, ...]
    amount: np.ndarray | None = None
    time: np.ndarray | None = None
    silo: np.ndarray | None = None
    accounts: Mapping[str, np.ndarray] = {}
    rule_alarm: np.ndarray | None = None
    source: str = "memory"
    hours_per_unit: float | None = None
    encoding: Any = None
    preprocessing: Any = None
    beginnings: Mapping[str, np.ndarray] = {}
    findings: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        labels = np.asarray(self.labels)
        counts = f"{labels.size:,} rows, {np.count_nonzero(labels == 1):,} frauds, {len(self.names)} features"
        return f"Transactions({counts}, source={self.source!r})"


class Partition(NamedTuple):
    """Which client owns which row, in three index arrays whose shapes do not depend on the skew.

    Client k owns the rows ``order[start[k] : start[k] + count[k]]``.

    Attributes:
      order: ``[samples]`` int32, a permutation of the row numbers.
      start: ``[clients]`` int32.
      count: ``[clients]`` int32; 0 is legal.
    """

    order: np.ndarray
    start: np.ndarray
    count: np.ndarray


class Model(NamedTuple):
    """A binary classifier as two pure functions.

    Attributes:
      init: ``key -> params``, a pytree.
      apply: ``(params, x [batch, features]) -> logits [batch]``.
      description: one line for the record.
      tapped: None, or ``(params, x, tap [batch]) -> logits [batch]``, equal to ``apply``, through which the derivative
        of a loss with respect to ``tap`` is the squared norm of each row's gradient: what clipping row by row needs
        (``privacy``), at the cost of one more backward pass instead of a gradient for each row.
    """

    init: Callable
    apply: Callable
    description: str = "custom model"
    tapped: Callable | None = None


class FedState(NamedTuple):
    """What a federation keeps between rounds.

    Attributes:
      server: a NamedTuple with at least the field ``params``, the global model.
      clients: a pytree; leaves ``[clients, ...]``. ``()`` for algorithms without client state.
    """

    server: Any
    clients: Any


class LocalWork(NamedTuple):
    """What one client did in one round, handed to ``FedAlgorithm.client_update``.

    Attributes:
      params: the local model after the client's last step.
      num_steps: int, the optimiser steps that the client really took.
      num_examples: int, the rows that the client holds (n_k).
      server_gradient, server_loss: the mean gradient and the mean loss at the *global* model over the rows that the
        client visited, or None unless the algorithm sets ``needs_server_gradient``.
      personal: the client's own model after its last step, or None unless the algorithm has ``correct_personal``.
    """

    params: Any
    num_steps: Any
    num_examples: Any
    server_gradient: Any = None
    server_loss: Any = None
    personal: Any = None


class ClientResult(NamedTuple):
    """What one client sends, and what it keeps.

    Attributes:
      message: a pytree, averaged over the cohort.
      weight: the weight of that average: a scalar, or a prefix tree of ``message`` with a scalar for each part.
      client: the client's state for its next round.
      info: what only a reader needs.
    """

    message: Any
    weight: Any
    client: Any
    info: Any = ()


class CommunicationCost(NamedTuple):
    """Model-sized vectors that one participating client receives (``down``) and sends (``up``) in a round."""

    down: int
    up: int


class Privacy(NamedTuple):
    """Record-level differential privacy of the local steps, see ``privacy``.

    Attributes:
      clip_norm: C, the largest norm of the gradient of one row.
      noise_multiplier: z, the standard deviation of the noise over C.
    """

    clip_norm: Any
    noise_multiplier: Any


class FedAlgorithm(NamedTuple):
    """A federated algorithm: pure functions for **one client** and **one setting**; the engine maps them.

    Attributes:
      init: ``(params, num_clients) -> FedState``.
      correct: ``(grads, params, server, client) -> grads``, applied in every local step.
      client_update: ``(server, client, local: LocalWork) -> ClientResult``, once after the local steps.
      server_update: ``(server, mean_message, participation) -> server``; ``participation`` is the share of the
        clients with rows whose result counts this round, in (0, 1].
      client_opt: the optax transformation of the local steps, started afresh in every round.
      cost: what a participating client receives and sends.
      needs_server_gradient: whether ``LocalWork.server_gradient`` is wanted (it costs a second gradient a step).
      correct_personal: None, or ``(grads, personal, server, client) -> grads`` for an algorithm that also trains a
        model of each client's own: the client state then has a field ``personal``, from which the round starts, and
        every local step also steps the personal model, on the same batch (a second gradient a step).
      invariant: None, or ``(server, client_mean) -> difference``, a pytree that is zero after every round, where
        ``client_mean`` is the mean client state over all clients with rows. The engine records its size.
      privacy: None, or how the gradients of the local steps are clipped and noised (``privacy.make_private``).
    """

    init: Callable
    correct: Callable
    client_update: Callable
    server_update: Callable
    client_opt: optax.GradientTransformation
    cost: CommunicationCost
    needs_server_gradient: bool = False
    correct_personal: Callable | None = None
    invariant: Callable | None = None
    privacy: Privacy | None = None
