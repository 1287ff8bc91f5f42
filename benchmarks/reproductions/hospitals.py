"""R4: FLamby's Fed-Heart-Disease, replayed batch by batch.

Four hospitals, logistic regression on 13 features, batches of 4, 15 rounds of 100 steps, weights n_k, seeds 42 to 46.
The initial weights and the rows of every mini-batch are given, so the final weights must come out up to
float32 rounding.

Reference: Ogier du Terrail et al., FLamby: Datasets and Benchmarks for Cross-Silo Federated Learning in Realistic
Healthcare Settings, NeurIPS 2022, and the result files of its repository (owkin/FLamby).
"""

import csv
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.reproductions import engine
from benchmarks.reproductions.outcome import NOT_TESTED, Line, Outcome, Table, show, verdict
from fedjax_fraud import algorithms, models
from fedjax_fraud.algorithms import ALGORITHMS, fedopt
from fedjax_fraud.local import Objective

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
SCALINGS = ("client", "global")
NUM_FEATURES, BATCH_SIZE, NUM_ROUNDS, NUM_STEPS = 13, 4, 15, 100
NO_ROW = 255
POOLED_TEST = "Pooled Test"
NUM_EPOCHS = 13  # the smallest hospital's 8 batches an epoch make more than 100 steps


class Strategy(NamedTuple):
    """One strategy of the benchmark.

    Attributes:
      name: in the stored weights, and with "100" in the published accuracies.
      build: its key in ``BUILDS``.
      client_lr, server_lr, mu, rule: hyperparameters.
      published: mean and standard deviation of its accuracy on the pooled test in percent, scaling 'client'.
      tolerance: of the final weights.
    """

    name: str
    build: str
    client_lr: float
    published: tuple[float, float]
    server_lr: float = 0.0
    mu: float = 0.0
    rule: int = 0
    tolerance: float = 5e-6


STRATEGIES = (
    Strategy("FedAvg", "averaging", 1e-3, (74.8, 2.4)),
    Strategy("FedProx", "averaging", 1e-3, (74.8, 2.4), mu=0.01),
    Strategy("Scaffold", "scaffold", 1e-3, (74.8, 2.4)),
    Strategy("FedAdam", "fedopt", 1e-2, (77.9, 1.3), 1e-2, rule=fedopt.ADAM, tolerance=2e-5),
    Strategy("FedYogi", "fedopt", 10**-2.5, (77.9, 1.4), 1e-2, rule=fedopt.YOGI, tolerance=2e-5),
    Strategy("FedAdagrad", "fedopt", 10**-2.5, (77.9, 1.4), 10**-0.5, rule=fedopt.ADAGRAD, tolerance=2e-5),
)
POOLED_TRAINING = (79.5, 0.2)


def flamby_server(hyper):
    """Betas 0.9 and 0.999 (FedAdagrad too keeps a first moment), tau 1e-8, v from 0, no bias correction."""
    server = fedopt.server_optimizer(
        hyper["rule"], hyper["server_lr"], beta1=0.9, beta2=0.999, tau=1e-8, initial_accumulator=0.0
    )
    return algorithms.fedavg(optax.sgd(hyper["client_lr"]), server)


def pooled_adam(hyper):
    """Training on all rows: one client, whose Adam lasts as long as the round."""
    return algorithms.fedavg(optax.adam(hyper["client_lr"]))


def fully_weighted_scaffold(hyper):
    """SCAFFOLD in which n_k weigh the models *and* the control variates, so that c = sum n_k c_k / n.

    The engine's own averages the controls with equal weights, as in the paper; then models weighted by n_k still settle
    at the minimum of the unweighted mean, where c = 0.
    """
    plain = algorithms.scaffold(hyper["client_lr"], option=2, uniform_weights=False)

    def client_update(server, client, local):
        result = plain.client_update(server, client, local)
        return result._replace(weight=result.weight.delta)

    return plain._replace(client_update=client_update, invariant=None)


BUILDS = {
    "averaging": ALGORITHMS["fedprox"].build,
    "scaffold": fully_weighted_scaffold,
    "fedopt": flamby_server,
}


# ---- data -------------------------------------------------------------------------------------------------------


class Hospital(NamedTuple):
    """The complete rows of one hospital: ``[rows, 13]``, ``[rows]`` and which of them train."""

    features: np.ndarray
    labels: np.ndarray
    is_train: np.ndarray


class Study(NamedTuple):
    """All that is stored.

    Attributes:
      hospitals: the four, raw.
      published: (scaling, seed, method, test) -> accuracy.
      runs: the stored initial weights, batches and final weights.
    """

    hospitals: list[Hospital]
    published: dict[tuple[str, int, str, str], float]
    runs: dict[str, np.ndarray]

    @property
    def seeds(self) -> list[int]:
        return self.runs["seeds"].tolist()


def load(folder: Path) -> Study:
    """Reads ``data/heart_disease``."""
    with open(folder / "split.csv", newline="") as file:
        split = list(csv.DictReader(file))
    with open(folder / "flamby_published_results.csv", newline="") as file:
        published = {
            (row["scaling"], int(row["seed"]), row["method"], row["test"]): float(row["accuracy"])
            for row in csv.DictReader(file)
        }
    hospitals = []
    for client, name in enumerate(HOSPITALS):
        lines = (folder / f"processed.{name}.data").read_text().splitlines()
        mine = [row for row in split if int(row["client"]) == client]
        rows = [lines[int(row["line"]) - 1].split(",") for row in mine]
        raw = np.array([[np.nan if cell == "?" else float(cell) for cell in row] for row in rows])
        hospitals.append(
            Hospital(
                _features(raw), (raw[:, 13] > 0).astype(float), np.array([row["split"] == "train" for row in mine])
            )
        )
    with np.load(folder / "reference_runs.npz") as runs:
        return Study(hospitals, published, dict(runs))


def _features(raw: np.ndarray) -> np.ndarray:
    """Eight numbers as they are; chest pain 2, 3, 4 and ECG 1, 2 as columns of 0 and 1."""
    numbers = raw[:, [0, 1, 3, 4, 5, 7, 8, 9]]
    return np.concatenate([numbers, raw[:, 2:3] == [2, 3, 4], raw[:, 6:7] == [1, 2]], axis=1)


def standardised(hospitals: list[Hospital], scaling: str) -> list[np.ndarray]:
    """Features of each hospital.

    'client': by its own training rows; 'pooled': by the training rows of all; 'global': by all rows of all. The scaling
    'client' of the published results takes 'pooled' for its pooled training and test sets.
    """
    pooled = np.concatenate([hospital.features[hospital.is_train] for hospital in hospitals])
    everything = np.concatenate([hospital.features for hospital in hospitals])
    found = []
    for hospital in hospitals:
        known = {"client": hospital.features[hospital.is_train], "pooled": pooled, "global": everything}[scaling]
        spread = known.std(axis=0, ddof=1)
        found.append((hospital.features - known.mean(axis=0)) / np.where(spread > 0, spread, 1))
    return found


# ---- runs -------------------------------------------------------------------------------------------------------


def replaying(batch_order: np.ndarray):
    """A ``batch_fn`` that reads given rows; client ``4 s + k`` is hospital k in the run of the s-th seed."""
    order = jnp.asarray(batch_order, jnp.int32)

    def batch_fn(task, step, batch_size):
        del batch_size  # The table knows.
        seed, hospital = task.client_id // len(HOSPITALS), task.client_id % len(HOSPITALS)
        # A lane without work reads past the last step.
        rows = order[seed, hospital, (task.round_index - 1) * NUM_STEPS + jnp.minimum(step, NUM_STEPS - 1)]
        return jnp.where(rows == NO_ROW, 0, rows), rows != NO_ROW

    return batch_fn


def replay(study: Study, strategies=STRATEGIES, scalings=SCALINGS, num_seeds: int = 5) -> dict[tuple, np.ndarray]:
    """(strategy, scaling, seed index) -> final weights ``[14]``: 13 coefficients, then the bias."""
    train = [_rows(study, scaling, train=True) for scaling in scalings]
    sizes = np.array([hospital.is_train.sum() for hospital in study.hospitals], np.int32)
    objective = Objective(
        models.logistic_regression(NUM_FEATURES).apply,
        batch_size=BATCH_SIZE,
        batch_fn=replaying(study.runs["batch_order"]),
    )
    found = {}
    for name, build in BUILDS.items():
        cases = [
            (strategy, scaling, seed)
            for strategy in strategies
            if strategy.build == name
            for scaling in range(len(scalings))
            for seed in range(num_seeds)
        ]
        if not cases:
            continue
        first = np.cumsum(sizes) - sizes
        feds = engine.Federations(
            features=np.concatenate([x for features, _ in train for x in features]),
            labels=np.concatenate([y for _, labels in train for y in labels]),
            count=sizes,
            start=np.array([first + scaling * sizes.sum() for _, scaling, _ in cases]),
            hyper={
                field: [getattr(case[0], field) for case in cases] for field in ("client_lr", "server_lr", "mu", "rule")
            },
            params=_as_params(np.stack([study.runs["init"][seed] for *_, seed in cases])),
            num_epochs=NUM_EPOCHS,
            client_id=np.array([np.arange(4) + 4 * seed for *_, seed in cases]),
        )
        work = np.broadcast_to(NUM_STEPS / (NUM_EPOCHS * -(-sizes // BATCH_SIZE)), (NUM_ROUNDS, len(cases), 4))
        state, history = engine.federate(build, objective, feds, NUM_ROUNDS, work=work)
        assert (history.num_steps == len(HOSPITALS) * NUM_STEPS).all()
        params = state.server.params
        for i, (strategy, scaling, seed) in enumerate(cases):
            found[strategy.name, scalings[scaling], seed] = np.append(params["kernel"][i, :, 0], params["bias"][i])
    return found


def _as_params(weights: np.ndarray) -> dict:
    return {"kernel": weights[:, :NUM_FEATURES, None], "bias": weights[:, NUM_FEATURES:]}


def train_pooled(study: Study, num_seeds: int = 5, num_epochs: int = 50) -> list[np.ndarray]:
    """Final weights of Adam on all training rows, for each seed; scaling 'client', the engine's own shuffles."""
    features, labels = _rows(study, "pooled", train=True)
    feds = engine.Federations(
        features=np.concatenate(features),
        labels=np.concatenate(labels),
        count=np.full((num_seeds, 1), sum(map(len, labels))),
        hyper={"client_lr": 1e-3},
        params=_as_params(study.runs["init"][:num_seeds]),
        seed=study.runs["seeds"][:num_seeds],
        num_epochs=num_epochs,
    )
    objective = Objective(models.logistic_regression(NUM_FEATURES).apply, batch_size=BATCH_SIZE)
    state, _ = engine.federate(pooled_adam, objective, feds, 1)
    params = state.server.params
    return [np.append(params["kernel"][i, :, 0], params["bias"][i]) for i in range(num_seeds)]


def _rows(study: Study, scaling: str, *, train: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Training or test rows of each hospital: features and labels."""
    features = standardised(study.hospitals, scaling)
    mine = [hospital.is_train == train for hospital in study.hospitals]
    labels = [hospital.labels[rows] for hospital, rows in zip(study.hospitals, mine, strict=True)]
    return [x[rows] for x, rows in zip(features, mine, strict=True)], labels


def accuracies(study: Study, weights: np.ndarray, scaling: str) -> dict[str, float]:
    """Share of right answers on each of the five test sets."""

    def right(scaling: str) -> list[np.ndarray]:
        return [
            (x @ weights[:NUM_FEATURES] + weights[NUM_FEATURES] > 0) == (y > 0)
            for x, y in zip(*_rows(study, scaling, train=False), strict=True)
        ]

    found = {f"client_test_{client}": float(np.mean(answers)) for client, answers in enumerate(right(scaling))}
    pooled = right("pooled" if scaling == "client" else scaling)
    return found | {POOLED_TEST: float(np.mean(np.concatenate(pooled)))}


# ---- what came out ----------------------------------------------------------------------------------------------


class Comparison(NamedTuple):
    """One strategy under one scaling, over seeds.

    Attributes:
      difference: largest difference of a final weight from the stored one.
      num_equal, num_published: accuracies equal to the published ones, of how many.
      pooled: accuracy on the pooled test for each seed.
    """

    difference: float
    num_equal: int
    num_published: int
    pooled: list[float]


def compare(study: Study, found: dict[tuple, np.ndarray], name: str, scaling: str, num_seeds: int = 5) -> Comparison:
    """Final weights and accuracies beside the stored ones."""
    difference, equal, pooled = 0.0, [], []
    for s in range(num_seeds):
        weights = found[name, scaling, s]
        difference = max(difference, float(abs(weights - study.runs[f"final_{scaling}_{name}"][s]).max()))
        ours = accuracies(study, weights, scaling)
        theirs = {test: study.published[scaling, study.seeds[s], f"{name}100", test] for test in ours}
        equal += [abs(ours[test] - theirs[test]) < 1e-9 for test in ours]
        pooled.append(ours[POOLED_TEST])
    return Comparison(difference, sum(equal), len(equal), pooled)


def run(folder: Path, quick: bool = False) -> Outcome:
    """All strategies, seeds and scalings; it takes seconds, so ``quick`` leaves nothing out."""
    del quick
    head = ("R4", "FLamby's Fed-Heart-Disease, an exact replay", "owkin/FLamby, results_benchmark_fed_heart_disease")
    if not (folder / "reference_runs.npz").is_file():
        why = "the data folder (four hospitals, stored batches and weights) is not beside this repository"
        line = Line("six strategies x five seeds x five test sets", "300 accuracies", "-", NOT_TESTED, why)
        return Outcome(*head, ["Skipped: " + why + "."], [line])
    study, num_seeds = load(folder), 5
    found = replay(study, num_seeds=num_seeds)
    compared = {
        (strategy.name, scaling): compare(study, found, strategy.name, scaling, num_seeds)
        for strategy in STRATEGIES
        for scaling in SCALINGS
    }
    lines = []
    for strategy in STRATEGIES:
        mine = [compared[strategy.name, scaling] for scaling in SCALINGS]
        difference = max(one.difference for one in mine)
        what = f"{strategy.name}: largest difference of a final weight"
        why = f"tolerance {strategy.tolerance:g}; {num_seeds} seeds x 2 scalings x 14 weights"
        lines.append(Line(what, "0", f"{difference:.1e}", verdict(difference <= strategy.tolerance), why))
        equal, total = sum(one.num_equal for one in mine), sum(one.num_published for one in mine)
        what = f"{strategy.name}: published accuracies that are equal"
        why = "pooled test and four hospitals, both scalings"
        lines.append(Line(what, str(total), str(equal), verdict(equal == total), why))
        pooled = 100 * np.array(mine[0].pooled)
        ours, (mean, spread) = (pooled.mean(), pooled.std()), strategy.published
        good = abs(ours[0] - mean) <= 0.05 + 1e-9 and abs(ours[1] - spread) <= 0.05 + 1e-9
        lines.append(
            _percent_line(f"{strategy.name}: accuracy on the pooled test, %", strategy.published, pooled, good)
        )
    equal = sum(one.num_equal for one in compared.values())
    total = sum(one.num_published for one in compared.values())
    lines.append(
        Line("all strategies: published accuracies that are equal", str(total), str(equal), verdict(equal == total))
    )
    lines.append(_same_rule_line(study, found, num_seeds))
    pooled = 100 * np.array(
        [accuracies(study, weights, "client")[POOLED_TEST] for weights in train_pooled(study, num_seeds)]
    )
    good = abs(pooled.mean() - POOLED_TRAINING[0]) <= 2 * POOLED_TRAINING[1]
    why = "our own mini-batches: theirs are not stored"
    lines.append(
        _percent_line("Pooled training, Adam: accuracy on the pooled test, %", POOLED_TRAINING, pooled, good, why)
    )
    return Outcome(
        *head,
        [
            "Four hospitals with 199, 172, 30 and 85 training rows, logistic regression on 13 features, batches of "
            "4, 15 rounds of 100 steps, weights n_k. Initial weights and the rows of every mini-batch are the "
            "stored ones: a `batch_fn` hands them to the engine, and `work` gives each hospital exactly 100 steps.",
            "Two details that the published tables do not say, found by comparing weights. (1) SCAFFOLD's control "
            "variates are averaged with n_k too; that replaces one function of the engine's SCAFFOLD. With equal "
            "weights for the controls, as in the paper, the final weights differ by up to 0.24. (2) Where each "
            "hospital is standardised by itself, the pooled test set is standardised by the pooled training rows.",
        ],
        lines,
        [_table(compared)],
        record={
            f"{name}, {scaling}": one._replace(pooled=[round(value, 6) for value in one.pooled])._asdict()
            for (name, scaling), one in compared.items()
        },
    )


def _same_rule_line(study: Study, found: dict[tuple, np.ndarray], num_seeds: int) -> Line:
    """Yogi is Adagrad at another rate, as long as every square exceeds Yogi's second moment."""
    runs = study.runs
    cases = [(scaling, s) for scaling in SCALINGS for s in range(num_seeds)]
    ours = max(abs(found["FedYogi", *case] - found["FedAdagrad", *case]).max() for case in cases)
    theirs = max(
        abs(runs[f"final_{scaling}_FedYogi"][s] - runs[f"final_{scaling}_FedAdagrad"][s]).max() for scaling, s in cases
    )
    return Line(
        "FedYogi and FedAdagrad: largest difference of a weight between them",
        f"{theirs:.1e}",
        f"{ours:.1e}",
        verdict(abs(ours - theirs) < 4e-5),
        "0.316228 = 0.01 / sqrt(0.001); not 0, because late squares fall below Yogi's v",
    )


def _percent_line(what: str, published: tuple[float, float], pooled: np.ndarray, good: bool, why: str = "") -> Line:
    """Mean and standard deviation over seeds, as the benchmark gives them."""
    ours = f"{pooled.mean():.1f} +- {pooled.std():.1f}"
    return Line(what, f"{published[0]} +- {published[1]}", ours, verdict(good), why)


def _table(compared: dict[tuple[str, str], Comparison]) -> Table:
    rows = [
        [name, scaling, f"{one.difference:.1e}", f"{one.num_equal} of {one.num_published}", show(one.pooled, 1, 100)]
        for (name, scaling), one in compared.items()
    ]
    header = ["strategy", "standardised by", "largest weight difference", "equal accuracies", "pooled test, % [95 %]"]
    return Table("Each strategy and scaling, over seeds.", header, rows)
