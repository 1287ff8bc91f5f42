"""The federations of a sweep: algorithms x skew x hyperparameters x seeds, and who owns which rows in each."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedjax_fraud import checks, partition
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.conditions import IDEAL, Conditions, check_conditions
from fedjax_fraud.types import Partition, Transactions

CONDITION_KEYS = (
    *("participation", "cohort", "stragglers", "policy", "deadline"),
    *("drop_before", "drop_after", "fault", "fault_rate", "noise_multiplier", "clip_norm"),
)
"""The conditions that a sweep may cross, in the order of the tables' columns."""

PARTITIONS = ("labels", "feature", "quantity", "iid", "natural", "controlled")
SKEWED = ("labels", "feature", "quantity")
CENTRALISED, LOCAL_ONLY = "centralised", "local_only"
MAX_CLIENTS = 1_000_000
"""Clients of all compared settings of a sweep together: with the default model and 80,000 rows, 150 GiB."""


class Federation(NamedTuple):
    """One setting. ``alpha`` is NaN where the partition has none, ``mu`` or ``server_lr`` where the algorithm has none.

    ``bank`` is the only client of a local-only federation, -1 for all clients.
    """

    algorithm: str
    alpha: float
    seed: int
    client_lr: float
    mu: float
    num_epochs: int
    bank: int = -1
    server_lr: float = math.nan
    conditions: Conditions = IDEAL


class Owners(NamedTuple):
    """Who owns the training rows and the test rows, for one alpha and seed."""

    train: Partition
    test: Partition


class Grid(NamedTuple):
    """All federations of a sweep.

    Attributes:
      federations: those that are compared.
      centralised: for each seed and rate, one bank that holds every row. Empty without baselines.
      local_only: for each alpha, seed, rate and bank, that bank on its own. Empty without baselines.
      owners: (alpha, seed) -> who owns which rows; shared by all algorithms.
      names: of the banks that the data name, by client; None for any other partition.
    """

    federations: list[Federation]
    centralised: list[Federation]
    local_only: list[Federation]
    owners: dict[tuple[float, int], Owners]
    names: list | None = None

    @property
    def num_clients(self) -> int:
        """Banks of a federation."""
        return len(next(iter(self.owners.values())).train.count)


def as_list(value) -> list:
    """A list of a scalar or of a sequence."""
    return list(value) if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str) else [value]


def settings_per_seed(
    algorithms: Sequence[str],
    alphas: Sequence[float],
    client_lr: Sequence[float],
    mu: Sequence[float],
    num_epochs: Sequence[int],
    server_lr: Sequence[float] | None,
    num_conditions: int,
) -> int:
    """How many federations of a sweep share a seed."""
    of_algorithms = (
        (len(mu) if "mu" in ALGORITHMS[name].tuned else 1) * len(_server_lrs(name, server_lr)) for name in algorithms
    )
    return sum(of_algorithms) * len(alphas) * len(client_lr) * len(num_epochs) * num_conditions


def check_size(num_settings: int, num_clients: int, values: Mapping[str, int]) -> None:
    """Raises ValueError for a sweep that no machine holds, before anything is made for each setting.

    Args:
      num_settings, num_clients: federations that are compared, and banks of each.
      values: argument -> how many values it has, of those that the settings are crossed from.
    """
    total = num_settings * num_clients
    if total <= MAX_CLIENTS:
        return
    sizes = dict(values) | dict(num_clients=num_clients)
    largest = max(sizes, key=sizes.get)
    most = sizes[largest] * MAX_CLIENTS // total
    crossed = " x ".join(f"{count:,} {name}" for name, count in values.items() if count > 1)
    remedy = f"Lower it to {most:,}, or run several sweeps." if most else "Lower it and others, or run several sweeps."
    raise ValueError(
        f"`{largest}` makes this sweep too large, got {sizes[largest]:,}: {num_settings:,} settings"
        f"{crossed and f' ({crossed})'} of {num_clients:,} clients are {total:,} clients, and at most {MAX_CLIENTS:,} "
        f"fit. {remedy}"
    )


class Banks(NamedTuple):
    """What is asked of the banks beside their number.

    Attributes:
      min_positives: for 'labels': training frauds that every bank must hold.
      sizes, prevalences: for 'controlled': shares of the rows, and fraud rates of which the ratios count.
    """

    min_positives: int = 0
    sizes: Sequence[float] | None = None
    prevalences: Sequence[float] | None = None


UNCONTROLLED = Banks()


def partition_rows(
    kind: str,
    transactions: Transactions,
    reference: Transactions,
    num_clients: int,
    alpha: float,
    seed: int,
    feature,
    banks: Banks = UNCONTROLLED,
) -> Partition:
    """The partition of one table; ``reference`` is the training table, which bins and bank names come from."""
    labels = transactions.labels
    if kind == "labels":
        least = _least_positives(banks.min_positives, labels, reference.labels, num_clients)
        return partition.dirichlet_labels(labels, num_clients, alpha, seed, min_positives=least)
    if kind == "controlled":
        return partition.controlled(labels, banks.sizes, banks.prevalences, seed)
    if kind == "feature":
        values, known = feature_values(transactions, feature), feature_values(reference, feature)
        return partition.dirichlet_feature(values, num_clients, alpha, seed, reference=known)
    if kind == "quantity":
        return partition.dirichlet_quantity(len(labels), num_clients, alpha, seed)
    if kind == "iid":
        return partition.iid(len(labels), num_clients, seed)
    return partition.natural(transactions.silo, names=bank_names(reference))


def check_banks(kind: str, banks: Banks) -> None:
    """Raises ValueError for requests that no table could meet, or that this kind of partition would ignore."""
    checks.check_count("min_positives", banks.min_positives, 0)
    if banks.min_positives and kind != "labels":
        raise ValueError(f"`min_positives` is for partition 'labels', got {kind!r}. Leave it out, or use 'labels'.")
    given = [name for name in ("sizes", "prevalences") if getattr(banks, name) is not None]
    if kind == "controlled":
        missing = [f"`bank_{name}`" for name in ("sizes", "prevalences") if name not in given]
        if missing:
            raise ValueError(f"`partition` 'controlled' needs {' and '.join(missing)}. Pass one number for each bank.")
        partition.check_controlled(banks.sizes, banks.prevalences)
    elif given:
        raise ValueError(f"`bank_{given[0]}` is for partition 'controlled', got {kind!r}. Leave it out, or use that.")


def _least_positives(least: int, labels: np.ndarray, train_labels: np.ndarray, num_clients: int) -> int:
    """The minimum for this table: as asked for the training rows; for fewer frauds in proportion, at least one."""
    num_positives, num_train = int(np.sum(labels)), int(np.sum(train_labels))
    if not least or labels is train_labels:
        return least
    return min(max(1, least * num_positives // num_train), num_positives // num_clients)


def with_bank_names(table: pd.DataFrame, names: list | None) -> pd.DataFrame:
    """A table with a column ``client``, and with ``bank``, the client's name, where banks have names."""
    return table if names is None else table.assign(bank=table["client"].map(dict(enumerate(names))))


def bank_names(train: Transactions) -> list:
    """The owners named in the training table, sorted."""
    if train.silo is None:
        raise ValueError(
            "`partition` 'natural' needs a silo column, and this table has none. Name it when loading (`silo=...`), or "
            "use 'labels'."
        )
    return sorted(set(np.asarray(train.silo).tolist()))


def feature_values(transactions: Transactions, feature: str) -> np.ndarray:
    """The column to bin: ``amount``, ``hour``, a feature's name, or the common prefix of one-hot columns."""
    if feature == "amount" and transactions.amount is not None:
        return transactions.amount
    if feature == "hour" and transactions.time is not None:
        return np.asarray(transactions.time).astype(np.int64) % 24
    if feature in transactions.names:
        return transactions.features[:, transactions.names.index(feature)]
    columns = [i for i, name in enumerate(transactions.names) if name.startswith((f"{feature}=", f"{feature}_"))]
    if len(columns) > 1:
        return np.array(transactions.names)[columns][np.argmax(transactions.features[:, columns], axis=1)]
    raise ValueError(
        f"`partition_feature` {feature!r} is not in this table. Choose amount, hour, or one of: "
        f"{', '.join(transactions.names)}."
    )


def cross_conditions(straggler_work: tuple[float, float], max_update_norm: float | None, **crossed) -> list[Conditions]:
    """Every combination of the conditions in ``crossed``, name -> values, each once.

    Without anybody late the policy makes no difference, without a fault its rate does not, and gradients are clipped
    only to be noised: such combinations are one, with 'wait', with 'none', with the first norm.

    Raises: ValueError for a value out of range, also where it would make no difference.
    """
    fixed = Conditions(straggler_work=tuple(straggler_work), max_update_norm=max_update_norm)
    found = []
    for values in itertools.product(*crossed.values()):
        one = fixed._replace(**dict(zip(crossed, values, strict=True)))
        check_conditions(one)
        if one.stragglers == 0 and one.deadline == math.inf:
            one = one._replace(policy="wait")
        if one.fault == "none" or one.fault_rate == 0:
            one = one._replace(fault="none", fault_rate=0.0)
        if one.noise_multiplier == 0:
            one = one._replace(clip_norm=crossed["clip_norm"][0])
        found.append(one)
    return list(dict.fromkeys(found))


def federation_keys(federations: Sequence[Federation]) -> pd.DataFrame:
    """What tells federations apart, one row each, conditions spread over columns of their own."""
    table = pd.DataFrame([federation._asdict() for federation in federations], columns=Federation._fields)
    spread = [{name: getattr(one.conditions, name) for name in CONDITION_KEYS} for one in federations]
    spread = pd.DataFrame(spread, columns=CONDITION_KEYS, index=table.index)
    return pd.concat([table.drop(columns="conditions"), spread], axis=1)


def make_grid(
    train: Transactions,
    test: Transactions,
    *,
    algorithms: Sequence[str],
    alphas: Sequence[float],
    seeds: Sequence[int],
    num_clients: int,
    client_lrs: Sequence[float],
    mus: Sequence[float],
    num_epochs: Sequence[int],
    partition_kind: str,
    partition_feature: str,
    baselines: bool,
    server_lrs: Sequence[float] | None = None,
    conditions: Sequence[Conditions] = (IDEAL,),
    banks: Banks = UNCONTROLLED,
) -> Grid:
    """Crosses what is compared; a hyperparameter is crossed only with the algorithms that have it.

    ``server_lrs``: None = each algorithm's own. Baselines know no conditions: nobody waits for anybody.
    """
    if partition_kind not in SKEWED:
        alphas = [math.nan]
    if partition_kind == "controlled":
        num_clients = len(banks.sizes)
    for name, rows in (("train", train), ("test", test)):
        if partition_kind != "natural" and num_clients > len(rows.labels):
            raise ValueError(
                f"`num_clients` must be at most the {len(rows.labels)} rows of `{name}`, got {num_clients}. "
                "Lower it, or use more rows."
            )
    if partition_kind == "natural":
        num_clients = len(bank_names(train))
    per_seed = settings_per_seed(algorithms, alphas, client_lrs, mus, num_epochs, server_lrs, len(conditions))
    check_size(per_seed * len(seeds), num_clients, dict(seeds=len(seeds), alphas=len(alphas)))
    owners = {
        (alpha, seed): Owners(
            *(
                partition_rows(partition_kind, rows, train, num_clients, alpha, seed, partition_feature, banks)
                for rows in (train, test)
            )
        )
        for alpha, seed in itertools.product(alphas, seeds)
    }
    rates = list(itertools.product(client_lrs, num_epochs))
    federations = [
        Federation(algorithm, alpha, seed, client_lr, mu, epochs, server_lr=server_lr, conditions=one)
        for algorithm in algorithms
        for mu in (mus if "mu" in ALGORITHMS[algorithm].tuned else [math.nan])
        for server_lr in _server_lrs(algorithm, server_lrs)
        for one in conditions
        for (alpha, seed), (client_lr, epochs) in itertools.product(owners, rates)
    ]
    centralised, local_only = [], []
    if baselines:
        centralised = [
            Federation(CENTRALISED, math.nan, seed, client_lr, math.nan, epochs)
            for seed, (client_lr, epochs) in itertools.product(seeds, rates)
        ]
        numbers = range(len(next(iter(owners.values())).train.count))
        local_only = [
            Federation(LOCAL_ONLY, alpha, seed, client_lr, math.nan, epochs, bank)
            for (alpha, seed), (client_lr, epochs), bank in itertools.product(owners, rates, numbers)
        ]
    names = bank_names(train) if partition_kind == "natural" else None
    return Grid(federations, centralised, local_only, owners, names)


def _server_lrs(algorithm: str, given: Sequence[float] | None) -> Sequence[float]:
    """The server rates of an algorithm: NaN if it has none, its own if none are given."""
    entry = ALGORITHMS[algorithm]
    if "server_lr" not in entry.tuned:
        return [math.nan]
    return [entry.defaults["server_lr"]] if given is None else given
