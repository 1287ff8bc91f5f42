"""R3: FedProx on Synthetic(alpha, beta), with stragglers.

Thirty devices whose models and inputs differ. Device k holds floor(LogNormal(4, 2)) + 50 rows; u_k ~ N(0, alpha); W_k
and b_k ~ N(u_k, 1); B_k ~ N(0, beta); v_k ~ N(B_k, 1); x ~ N(v_k, diag(j^-1.2)); y = argmax(x W_k + b_k). alpha and
beta are standard deviations. IID: one W and b ~ N(0, 1) for all, v = 0. Nine rows of ten train, the rest tests.

Reference: Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, section 5 and figures 1 and 2; the
recipe as its published code has it.
"""

import itertools
import sys
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from benchmarks.reproductions import engine, softmax, style
from benchmarks.reproductions.outcome import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Line,
    Outcome,
    Table,
    show,
    show_factor,
    sign_verdict,
)
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.local import Objective
from fedjax_fraud.report.intervals import mean_interval

NUM_DEVICES, NUM_FEATURES, NUM_CLASSES = 30, 60, 10
VARIANTS = {"IID": (0.0, 0.0), "(0, 0)": (0.0, 0.0), "(0.5, 0.5)": (0.5, 0.5), "(1, 1)": (1.0, 1.0)}
VARIANCES = np.arange(1, NUM_FEATURES + 1) ** -1.2


class Device(NamedTuple):
    """One device: the model that labelled its rows, the mean of its inputs, and its rows."""

    weights: np.ndarray
    bias: np.ndarray
    center: np.ndarray
    features: np.ndarray
    labels: np.ndarray


def device_sizes(seed: int) -> np.ndarray:
    """Rows of each device, the same in every variant of a seed."""
    rng = np.random.default_rng([seed, 0])
    return np.floor(rng.lognormal(4, 2, NUM_DEVICES)).astype(np.int64) + 50


def make_devices(variant: str, seed: int) -> list[Device]:
    """The thirty devices of a variant."""
    alpha, beta = VARIANTS[variant]
    rng = np.random.default_rng([seed, 1 + list(VARIANTS).index(variant)])
    iid = variant == "IID"
    shared = rng.normal(0, 1, (NUM_FEATURES, NUM_CLASSES)), rng.normal(0, 1, NUM_CLASSES)
    devices = []
    for size in device_sizes(seed):
        u, B = rng.normal(0, alpha), rng.normal(0, beta)
        weights, bias = rng.normal(u, 1, (NUM_FEATURES, NUM_CLASSES)), rng.normal(u, 1, NUM_CLASSES)
        center = rng.normal(B, 1, NUM_FEATURES)
        if iid:
            (weights, bias), center = shared, np.zeros(NUM_FEATURES)
        features = center + rng.normal(size=(size, NUM_FEATURES)) * np.sqrt(VARIANCES)
        devices.append(Device(weights, bias, center, features, np.argmax(features @ weights + bias, axis=1)))
    return devices


# ---- the model --------------------------------------------------------------------------------------------------

LOGITS = softmax.make_logits(NUM_FEATURES, NUM_CLASSES)
OBJECTIVE = Objective(LOGITS, softmax.cross_entropy, batch_size=10)
BUILD = ALGORITHMS["fedprox"].build


class Scores(NamedTuple):
    """Of one global model: pooled = every row counts alike, by device = every device counts alike."""

    train_loss: jax.Array
    train_loss_by_device: jax.Array
    accuracy: jax.Array
    accuracy_by_device: jax.Array


def score(params, tables) -> Scores:
    """Scores on the model's own data set; ``tables``: training and test, each ``[seeds, rows, 2 + features]``."""
    train, test = (table[softmax.dataset_of(params)] for table in tables)

    def means(table, of_row):
        owner = table[:, 0].astype(jnp.int32)
        values = of_row(LOGITS(params, table[:, 2:]), table[:, 1])
        total = jax.ops.segment_sum(values, owner, NUM_DEVICES + 1)[:NUM_DEVICES]
        size = jax.ops.segment_sum(jnp.ones_like(values), owner, NUM_DEVICES + 1)[:NUM_DEVICES]
        return jnp.sum(total) / jnp.sum(size), jnp.mean(total / size)

    return Scores(*means(train, softmax.cross_entropy), *means(test, softmax.is_right))


# ---- data sets as tables ----------------------------------------------------------------------------------------


class Tables(NamedTuple):
    """A variant's data sets, one for each seed, padded to the same number of rows.

    Attributes:
      train, test: ``[seeds, rows, 2 + features]``, the device (30 = padding), the label, the features.
      count: ``[seeds, devices]`` training rows.
    """

    train: np.ndarray
    test: np.ndarray
    count: np.ndarray


def make_tables(variant: str, seeds: Sequence[int], num_rows: tuple[int, int]) -> Tables:
    """Data sets with room for ``num_rows`` training and test rows."""
    sides: tuple[list, list] = ([], [])
    counts = []
    for seed in seeds:
        found: tuple[list, list] = ([], [])
        for k, device in enumerate(make_devices(variant, seed)):
            rows = np.column_stack([np.full(len(device.labels), k), device.labels, device.features]).astype(np.float32)
            cut = num_train(len(rows))
            found[0].append(rows[:cut])
            found[1].append(rows[cut:])
        counts.append([len(rows) for rows in found[0]])
        for side, rows, room in zip(sides, found, num_rows, strict=True):
            joined = np.concatenate(rows)
            padding = np.zeros((room - len(joined), joined.shape[1]), np.float32)
            padding[:, 0] = NUM_DEVICES
            side.append(np.concatenate([joined, padding]))
    return Tables(*map(np.stack, sides), np.array(counts))


def num_train(size):
    """Nine rows of ten."""
    return size * 9 // 10


def rows_needed(seeds: Sequence[int]) -> tuple[int, int]:
    """Training and test rows of the largest data set."""
    sizes = [device_sizes(seed) for seed in seeds]
    return max(num_train(size).sum() for size in sizes), max((size - num_train(size)).sum() for size in sizes)


# ---- runs -------------------------------------------------------------------------------------------------------

LEVELS, MUS = (0.0, 0.5, 0.9), (0.0, 0.1, 1.0)
COHORT, NUM_EPOCHS, RATE = 10, 20, 0.01
DROP = "FedAvg"


class Plan(NamedTuple):
    """How much is run."""

    seeds: tuple[int, ...]
    num_rounds: int
    score_every: int


# The first eight seeds with at most 10,000 rows in all (of 0 to 11): sizes are heavy-tailed, and time is limited.
FULL, QUICK = Plan((0, 1, 2, 5, 7, 8, 10, 11), 60, 3), Plan((0, 1), 10, 2)


def local_work(seed: int, num_rounds: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Shares of local work ``[rounds, devices]`` with stragglers dropped, and with what they get done.

    The cohort is the same at every level; a straggler makes 1 to 19 of the 20 epochs.
    """
    rng = np.random.default_rng([seed, 77])
    dropped, partial = np.zeros((2, num_rounds, NUM_DEVICES))
    slow = round(level * COHORT)
    for t in range(num_rounds):
        cohort = rng.choice(NUM_DEVICES, COHORT, replace=False)
        epochs = rng.integers(1, NUM_EPOCHS, COHORT)
        dropped[t, cohort[slow:]] = partial[t, cohort[slow:]] = 1
        partial[t, cohort[:slow]] = epochs[:slow] / NUM_EPOCHS
    return dropped, partial


class Curve(NamedTuple):
    """One method on one data set: scores after the scored rounds, and the dissimilarity after every round."""

    scores: Scores
    dissimilarity: np.ndarray


def run_variant(variant: str, plan: Plan) -> dict[tuple[float, str, int], Curve]:
    """(straggler level, method, seed) -> ``Curve``; methods are "FedAvg" (drops stragglers) and "mu = ...".

    Without stragglers FedAvg is mu = 0. Dissimilarity is measured there only.
    """
    tables = make_tables(variant, plan.seeds, rows_needed(plan.seeds))
    num_seeds, room = tables.train.shape[:2]
    rounds = np.arange(1, plan.num_rounds + 1)
    scored = np.flatnonzero((rounds % plan.score_every == 0) | (rounds == plan.num_rounds))
    found = {}
    for measured in (True, False):
        cases = [
            (level, mu, s)
            for level in LEVELS
            if (level == 0) == measured
            for mu in (*MUS, *(() if measured else (None,)))
            for s in range(num_seeds)
        ]
        work = np.stack(
            [local_work(plan.seeds[s], plan.num_rounds, level)[0 if mu is None else 1] for level, mu, s in cases],
            axis=1,
        )
        which = [s for *_, s in cases]
        count = tables.count[which]
        feds = engine.Federations(
            features=tables.train[:, :, 2:].reshape(-1, NUM_FEATURES),
            labels=tables.train[:, :, 1].ravel(),
            count=count,
            start=np.cumsum(count, axis=1) - count + room * np.array(which)[:, None],
            hyper={"client_lr": RATE, "mu": [mu or 0.0 for _, mu, _ in cases]},
            params=softmax.start(NUM_FEATURES, NUM_CLASSES, which),
            seed=[plan.seeds[s] for s in which],
            num_epochs=NUM_EPOCHS,
        )
        _, history = engine.federate(
            BUILD,
            OBJECTIVE,
            feds,
            plan.num_rounds,
            work=work,
            score_fn=score,
            test_features=(tables.train, tables.test),
            score_every=plan.score_every,
            diagnostics=measured,
        )
        for i, (level, mu, s) in enumerate(cases):
            scores = Scores(*(field[scored, i].astype(np.float64) for field in history.extra))
            found[level, DROP if mu is None else method(mu), s] = Curve(scores, history.dissimilarity[:, i])
    return found


def method(mu: float) -> str:
    return f"mu = {mu:g}"


# ---- what came out ----------------------------------------------------------------------------------------------

METHODS = (DROP, *map(method, MUS))
TAIL = 4  # scored rounds that count as the end: single rounds jump about


class Results(NamedTuple):
    """All variants.

    Attributes:
      curves: variant -> what ``run_variant`` returns.
      plan: how much was run.
    """

    curves: dict[str, dict[tuple[float, str, int], Curve]]
    plan: Plan

    def over_seeds(self, variant: str, level: float, name: str, field: str) -> np.ndarray:
        """``[seeds, scored rounds]`` of a score, or ``[seeds, rounds]`` of the dissimilarity."""
        name = method(0) if (level, name) == (0, DROP) else name
        found = [self.curves[variant][level, name, s] for s in range(len(self.plan.seeds))]
        return np.stack(
            [one.dissimilarity if field == "dissimilarity" else getattr(one.scores, field) for one in found]
        )

    def end(self, variant: str, level: float, name: str, field: str = "train_loss") -> np.ndarray:
        """``[seeds]``: mean over the last scored rounds."""
        return self.over_seeds(variant, level, name, field)[:, -TAIL:].mean(axis=1)

    def whole(self, variant: str, level: float, name: str) -> np.ndarray:
        """``[seeds]``: mean training loss over all scored rounds, the area under the paper's curve."""
        return self.over_seeds(variant, level, name, "train_loss").mean(axis=1)

    def best_mu(self, variant: str, level: float) -> str:
        """The mu > 0 with the lowest loss."""
        return min(map(method, MUS[1:]), key=lambda name: self.whole(variant, level, name).mean())

    def scored(self) -> np.ndarray:
        """The scored rounds."""
        rounds = np.arange(1, self.plan.num_rounds + 1)
        return rounds[(rounds % self.plan.score_every == 0) | (rounds == self.plan.num_rounds)]


def run(quick: bool = False) -> Outcome:
    plan = QUICK if quick else FULL
    curves = {}
    for variant in VARIANTS:
        curves[variant] = run_variant(variant, plan)
        print(f"  R3: {variant} is done", file=sys.stderr, flush=True)
    results = Results(curves, plan)
    return Outcome(
        "R3",
        "FedProx on Synthetic(alpha, beta) with stragglers",
        "Li et al. 2020, section 5, figures 1 and 2 (curves, no table); the recipe of the data from litian96/FedProx",
        [
            f"{NUM_DEVICES} devices, softmax regression on {NUM_FEATURES} features and {NUM_CLASSES} classes, from "
            f"zero; {COHORT} devices a round, the same for every method, {NUM_EPOCHS} epochs in batches of 10, rate "
            f"{RATE:g}, weights n_k; {plan.num_rounds} rounds (the paper: 200), {len(plan.seeds)} seeds "
            f"({', '.join(map(str, plan.seeds))}), each with data, device sizes and cohorts of its own. Stragglers "
            "make 1 to 19 epochs: FedAvg drops them, FedProx (mu = 0 or above) takes what they have. mu above 0: "
            f"{', '.join(f'{mu:g}' for mu in MUS[1:])}, of which *best* is the one with the lowest loss.",
            "Sizes are heavy-tailed; the seeds are the first of which all devices together hold at most 10,000 "
            "rows. Losses are means over all training rows, the paper's f, averaged over all scored rounds (one "
            f"round of {plan.score_every}), as the curves are compared; *at the end*: over the last {TAIL} of them. "
            "Ratios are geometric means over seeds, paired. (A first run of five seeds was judged by the last "
            "rounds alone: there hardly anything can be told, as the values *at the end* still show; the measure "
            "was changed after that.)",
        ],
        [
            *order_lines(results),
            *steadiness_lines(results),
            *straggler_lines(results),
            *iid_lines(results),
            *dissimilarity_lines(results),
        ],
        [end_table(results)],
        {
            "reproduction-synthetic-loss": (
                "Training loss by round: data sets to the right, straggler levels downwards; mean and seeds",
                loss_picture(results),
            ),
            "reproduction-synthetic-dissimilarity": (
                "Without stragglers: training loss above, dissimilarity of the gradients below",
                dissimilarity_picture(results),
            ),
        },
        dict(
            scored=results.scored().tolist(),
            mean_train_loss={
                f"{variant} {level:g} {name}": results.over_seeds(variant, level, name, "train_loss")
                .mean(axis=0)
                .tolist()
                for variant in VARIANTS
                for level in LEVELS
                for name in METHODS
            },
        ),
    )


def ratio_line(what: str, above: np.ndarray, below: np.ndarray, why: str = "", theirs: str = "above 1") -> Line:
    """Whether the first is larger than the second, by the mean logarithm of their ratio over seeds."""
    found = mean_interval(np.log(above / below))
    return Line(what, theirs, show_factor(found), sign_verdict(found), why)


def order_lines(results: Results) -> list[Line]:
    """(i) mu = 0 gets worse from IID to (1, 1)."""
    return [
        ratio_line(
            f"(i) mu = 0: loss on {b} over loss on {a}",
            *(results.whole(variant, 0.0, method(0)) for variant in (b, a)),
            at_end(*(results.end(variant, 0.0, method(0)) for variant in (b, a))),
        )
        for a, b in itertools.pairwise(VARIANTS)
    ]


def at_end(above: np.ndarray, below: np.ndarray) -> str:
    """The same ratio over the last rounds only."""
    return f"at the end {show_factor(mean_interval(np.log(above / below)))}"


def jumps(curves: np.ndarray) -> np.ndarray:
    """Mean change of a curve from one scored round to the next: ``[seeds]``."""
    return abs(np.diff(curves, axis=1)).mean(axis=1)


def steadiness_lines(results: Results) -> list[Line]:
    """(ii) mu = 1 is steadier on (1, 1)."""
    lines = []
    for level in LEVELS:
        zero, one = (jumps(results.over_seeds("(1, 1)", level, method(mu), "train_loss")) for mu in (0.0, 1.0))
        what = f"(ii) (1, 1), {level:.0%} stragglers: jumps of the loss, mu = 0 over mu = 1"
        lines.append(ratio_line(what, zero, one, f"mean size of a jump {zero.mean():.3f} and {one.mean():.3f}"))
    return lines


def straggler_lines(results: Results) -> list[Line]:
    """(iii) FedAvg that drops <= FedProx with mu = 0 <= FedProx with mu > 0."""
    lines = []
    for variant, level in itertools.product([name for name in VARIANTS if name != "IID"], LEVELS[1:]):
        best = results.best_mu(variant, level)
        for pair in ((DROP, method(0)), (method(0), best)):
            what = f"(iii) {variant}, {level:.0%} stragglers: loss of {pair[0]} over loss of {pair[1]}"
            ends = [results.end(variant, level, name) for name in pair]
            whole = [results.whole(variant, level, name) for name in pair]
            accuracy = [results.end(variant, level, name, "accuracy") for name in pair]
            why = f"{at_end(*ends)}; accuracy there {show(accuracy[1] - accuracy[0], sign=True)}"
            lines.append(ratio_line(what, *whole, why, "at least 1"))
    return lines


def iid_lines(results: Results) -> list[Line]:
    """(iv) On IID data dropping hardly matters."""
    lines = []
    for level in LEVELS[1:]:
        cost = {v: results.whole(v, level, DROP) / results.whole(v, 0.0, DROP) for v in ("IID", "(1, 1)")}
        accuracy = results.end("IID", level, DROP, "accuracy") - results.end("IID", 0.0, DROP, "accuracy")
        what = f"(iv) {level:.0%} dropped: by what that multiplies the loss on (1, 1), over the same on IID"
        iid = show_factor(mean_interval(np.log(cost["IID"])))
        why = f"on IID {iid}, and at the end {show(accuracy, sign=True)} of accuracy"
        lines.append(ratio_line(what, cost["(1, 1)"], cost["IID"], why))
    return lines


def dissimilarity_lines(results: Results) -> list[Line]:
    """(v) A smaller dissimilarity goes with a better loss."""
    cells = [(variant, mu) for variant in VARIANTS for mu in MUS]
    ends = {
        field: np.stack([results.end(variant, 0.0, method(mu), field) for variant, mu in cells])
        for field in ("train_loss", "dissimilarity")
    }
    seeds = range(len(results.plan.seeds))
    ranks = mean_interval([spearmanr(ends["dissimilarity"][:, s], ends["train_loss"][:, s])[0] for s in seeds])
    lines = [
        Line(
            "(v) data sets x mu, no stragglers: rank correlation of dissimilarity and loss",
            "above 0",
            show(ranks, 2, sign=True),
            sign_verdict(ranks),
            "each seed's 12 pairs; sum p_k |grad F_k - grad f|^2, p_k = n_k / n",
        )
    ]
    for variant in VARIANTS:
        losses, spread = (
            np.stack([results.end(variant, 0.0, method(mu), field) for mu in MUS])
            for field in ("train_loss", "dissimilarity")
        )
        same = [np.argmin(losses[:, s]) == np.argmin(spread[:, s]) for s in seeds]
        what = f"(v) {variant}: seeds in which the mu of least dissimilarity has the least loss"
        lines.append(
            Line(
                what,
                "all",
                f"{sum(same)} of {len(same)}",
                HOLDS if all(same) else FAILS if not any(same) else UNDECIDED,
            )
        )
    return lines


def end_table(results: Results) -> Table:
    """Loss and accuracy, pooled and by device, at the end."""
    rows = [
        [f"{variant}, {level:.0%}", name, *(show(results.end(variant, level, name, field)) for field in Scores._fields)]
        for variant in VARIANTS
        for level in LEVELS
        for name in METHODS
        if (level, name) != (0, DROP)
    ]
    header = ["data, stragglers", "method", "training loss", "mean over devices", "test accuracy", "mean over devices"]
    caption = (
        "At the end, mean over seeds [95 % interval]; pooled (every row counts alike) and mean over devices (one "
        "device can hold most rows). FedAvg without stragglers is mu = 0."
    )
    return Table(caption, header, rows)


LOOKS = {
    DROP: dict(color=style.VERMILION, linestyle=(0, (5, 2)), label="FedAvg (drops stragglers)"),
    method(0): dict(color=style.BLUE, linestyle="-", label="FedProx, mu = 0"),
    "best": dict(color=style.GREEN, linestyle=(0, (2, 1.5)), label="FedProx, best mu > 0"),
}


def loss_picture(results: Results) -> Figure:
    """Panels by straggler level and data set."""
    figure, axes = style.panels(len(LEVELS), len(VARIANTS), height=2.3, width=3.1)
    rounds = results.scored()
    for (row, level), (column, variant) in itertools.product(enumerate(LEVELS), enumerate(VARIANTS)):
        panel, best = axes[row, column], results.best_mu(variant, level)
        for name, look in LOOKS.items():
            curves = results.over_seeds(variant, level, best if name == "best" else name, "train_loss")
            style.seeds(panel, rounds, curves, **look)
        panel.text(0.97, 0.95, f"best {best}", transform=panel.transAxes, ha="right", va="top", fontsize=8)
        style.by_round(panel, rounds[-1])
        panel.set_ylim(0, 3.2)
        if row == 0:
            panel.set_title("IID" if variant == "IID" else f"Synthetic{variant}")
        if row == len(LEVELS) - 1:
            panel.set_xlabel("round")
        if column == 0:
            panel.set_ylabel(f"{level:.0%} stragglers\ntraining loss")
    style.legend_above(figure, axes[0, 0])
    return figure


def dissimilarity_picture(results: Results) -> Figure:
    """Loss above, dissimilarity below; one line for each mu."""
    figure, axes = style.panels(2, len(VARIANTS), height=2.4, width=3.1)
    colours = dict(zip(MUS, (style.BLUE, style.ORANGE, style.GREEN), strict=True))
    dashes = dict(zip(MUS, ("-", (0, (5, 2)), (0, (2, 1.5))), strict=True))
    every = np.arange(1, results.plan.num_rounds + 1)
    for column, variant in enumerate(VARIANTS):
        for mu in MUS:
            look = dict(color=colours[mu], linestyle=dashes[mu], label=f"mu = {mu:g}")
            style.seeds(
                axes[0, column], results.scored(), results.over_seeds(variant, 0.0, method(mu), "train_loss"), **look
            )
            curves = results.over_seeds(variant, 0.0, method(mu), "dissimilarity")
            style.seeds(axes[1, column], every, np.maximum(curves, 1e-4), **look)
        axes[0, column].set_title("IID" if variant == "IID" else f"Synthetic{variant}")
        axes[1, column].set_xlabel("round")
        style.log_scale(axes[1, column], 1e-3, 1e3)
        for row in (0, 1):
            style.by_round(axes[row, column], results.plan.num_rounds)
    axes[0, 0].set_ylabel("training loss")
    axes[1, 0].set_ylabel("dissimilarity")
    style.legend_above(figure, axes[0, 0])
    return figure
