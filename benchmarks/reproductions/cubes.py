"""R5: FCUBE, four clients who agree on the labels and see different corners of a cube.

Region r of four has a thousand points U(0, 1)^3, the second coordinate negated in regions 2 and 3, the third in odd
regions. Even points keep label 0; odd points are reflected through the origin and have label 1. So label 0 means x1 > 0
everywhere and labels are equally shared, but each client knows two of the eight octants.

Reference: Li, Diao, Chen and He, Federated Learning on Non-IID Data Silos, ICDE 2022; the recipe as its code
(Xtra-Computing/NIID-Bench) has it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.reproductions import engine, softmax
from benchmarks.reproductions.outcome import NOT_TESTED, Line, Outcome, Table, show, verdict
from fedjax_fraud import models
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.local import Objective

NUM_REGIONS, NUM_EACH, NUM_TEST = 4, 1000, 1000
HIDDEN, BATCH_SIZE, NUM_EPOCHS, RATE, MU = (32, 16, 8), 64, 10, 0.1, 0.01


class Cube(NamedTuple):
    """``[regions, points, 3]`` and labels ``[regions, points]``; test points and labels."""

    features: np.ndarray
    labels: np.ndarray
    test_features: np.ndarray
    test_labels: np.ndarray


def make_cube(seed: int) -> Cube:
    """One draw of the points."""
    rng = np.random.default_rng([seed, 5])
    region = np.arange(NUM_REGIONS)
    signs = np.stack([np.ones(NUM_REGIONS), np.where(region > 1, -1, 1), np.where(region % 2 == 1, -1, 1)], axis=1)
    labels = np.arange(NUM_EACH) % 2
    features = rng.random((NUM_REGIONS, NUM_EACH, 3)) * signs[:, None] * np.where(labels == 1, -1, 1)[None, :, None]
    test = rng.uniform(-1, 1, (NUM_TEST, 3))
    return Cube(features, np.broadcast_to(labels, (NUM_REGIONS, NUM_EACH)), test, np.where(test[:, 0] > 0, 0, 1))


def octants(points: np.ndarray) -> np.ndarray:
    """The octant of each point, 0 to 7."""
    return (points > 0) @ np.array([4, 2, 1])


# ---- runs -------------------------------------------------------------------------------------------------------

PERCEPTRON, _ = models.as_vector(models.mlp(3, HIDDEN))


def logits(params, x):
    """The perceptron's; the last parameter says which data set it is scored on."""
    return PERCEPTRON.apply(params[:-1], x)


def accuracy(params, tables):
    """Share of right answers on the test points of the model's own seed; ``tables``: ``[seeds, points, 4]``."""
    table = tables[softmax.dataset_of(params)]
    return jnp.mean((logits(params, table[:, 1:]) > 0) == (table[:, 0] > 0))


METHODS = {"FedAvg": ("fedavg", 0.0), "FedProx, mu = 0.01": ("fedavg", MU), "SCAFFOLD": ("scaffold", 0.0)}
DEALS = ("four regions", "dealt at random", *(f"region {r} alone" for r in range(NUM_REGIONS)))


class Plan(NamedTuple):
    """How much is run."""

    num_seeds: int
    num_rounds: int


FULL, QUICK = Plan(10, 50), Plan(3, 10)


def run_all(cubes: list[Cube], num_rounds: int) -> dict[tuple[str, str], np.ndarray]:
    """(method, deal) -> test accuracy after each round ``[rounds, seeds]``; a region alone only with FedAvg."""
    num_seeds, rows_each = len(cubes), NUM_REGIONS * NUM_EACH
    tests = np.stack([np.column_stack([one.test_labels, one.test_features]) for one in cubes]).astype(np.float32)
    plain = np.arange(num_seeds * rows_each)
    dealt = np.concatenate(
        [np.random.default_rng([s, 6]).permutation(rows_each) + rows_each * s for s in range(num_seeds)]
    )
    start = jax.vmap(lambda seed: PERCEPTRON.init(jax.random.key(seed)))(np.arange(num_seeds))
    found = {}
    for entry in ("fedavg", "scaffold"):
        cases = [
            (name, mu, deal, s)
            for name, (of, mu) in METHODS.items()
            if of == entry
            for deal in (DEALS if name == "FedAvg" else DEALS[:2])
            for s in range(num_seeds)
        ]
        which = np.array([s for *_, s in cases])
        count = np.full((len(cases), NUM_REGIONS), NUM_EACH)
        for i, (_, _, deal, _) in enumerate(cases):
            if deal in DEALS[2:]:
                count[i, np.arange(NUM_REGIONS) != DEALS[2:].index(deal)] = 0
        feds = engine.Federations(
            features=np.concatenate([one.features.reshape(-1, 3) for one in cubes]),
            labels=np.concatenate([one.labels.ravel() for one in cubes]),
            count=count,
            start=NUM_EACH * np.arange(NUM_REGIONS) + rows_each * which[:, None],
            hyper={"client_lr": RATE, "mu": [mu for _, mu, _, _ in cases]},
            params=np.column_stack([np.asarray(start)[which], which]),
            orders=np.stack([plain, dealt]),
            partition_id=[int(deal == DEALS[1]) for _, _, deal, _ in cases],
            seed=which,
            num_epochs=NUM_EPOCHS,
        )
        _, history = engine.federate(
            ALGORITHMS[entry].build,
            Objective(logits, batch_size=BATCH_SIZE),
            feds,
            num_rounds,
            score_fn=accuracy,
            test_features=tests,
        )
        for i, (name, _, deal, _) in enumerate(cases):
            found.setdefault((name, deal), []).append(history.extra[:, i])
    return {key: np.stack(curves, axis=1) for key, curves in found.items()}


# ---- what came out ----------------------------------------------------------------------------------------------


def run(quick: bool = False) -> Outcome:
    plan = QUICK if quick else FULL
    cubes = [make_cube(seed) for seed in range(plan.num_seeds)]
    found = run_all(cubes, plan.num_rounds)
    lines = law_lines(cubes)
    why = "the facts that this page is checked against give no accuracy for FCUBE"
    for name in METHODS:
        ours = show(found[name, DEALS[0]][-1], 2, 100)
        lines.append(Line(f"{name}: test accuracy, %", "no number", ours, NOT_TESTED, why))
    return Outcome(
        "R5",
        "FCUBE, feature skew with equal label shares",
        "Xtra-Computing/NIID-Bench (Li et al. 2022)",
        [
            f"Four clients with a thousand points each; a perceptron {'-'.join(map(str, (3, *HIDDEN, 1)))}, "
            f"{NUM_EPOCHS} epochs in batches of {BATCH_SIZE}, rate {RATE:g}, {plan.num_rounds} rounds, everybody "
            f"takes part; {plan.num_seeds} seeds (points, start and batches). For comparison the same points dealt "
            "at random, and each region on its own (FedAvg with one client)."
        ],
        lines,
        [accuracy_table(found)],
        record={f"{name}, {deal}": np.round(curves[-1], 4).tolist() for (name, deal), curves in found.items()},
    )


def law_lines(cubes: list[Cube]) -> list[Line]:
    """What the recipe promises."""
    shares = {float(one.labels[r].mean()) for one in cubes for r in range(NUM_REGIONS)}
    signs = all(((one.features[..., 0] > 0) == (one.labels == 0)).all() for one in cubes)
    seen = [[set(octants(one.features[r]).tolist()) for r in range(NUM_REGIONS)] for one in cubes]
    apart = all(len(set.union(*of_seed)) == 8 and all(len(one) == 2 for one in of_seed) for of_seed in seen)
    shown = ", ".join(f"{share:g}" for share in sorted(shares))
    return [
        Line("share of label 1 at each client", "0.5", shown, verdict(shares == {0.5})),
        Line("label 0 is x1 > 0 for every training point", "yes", "yes" if signs else "no", verdict(signs)),
        Line(
            "octants that a client sees; of them shared with another client",
            "2; 0",
            "2; 0" if apart else "other",
            verdict(apart),
        ),
    ]


def accuracy_table(found: dict[tuple[str, str], np.ndarray]) -> Table:
    """Accuracy after the last round."""
    alone = np.mean([found["FedAvg", deal][-1] for deal in DEALS[2:]], axis=0)
    rows = [[name, *(show(found[name, deal][-1], 2, 100) for deal in DEALS[:2])] for name in METHODS]
    rows.append(["one region alone, mean of four", show(alone, 2, 100), "-"])
    return Table("Test accuracy after the last round, %, mean over seeds [95 % interval].", ["", *DEALS[:2]], rows)
