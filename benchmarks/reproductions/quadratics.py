"""R1: SCAFFOLD, FedAvg and SGD on two quadratics that pull apart.

f1(x) = x^2 + G x and f2(x) = -G x, so f = (f1 + f2) / 2 = x^2 / 2 with its minimum at 0; the clients' gradients differ
by G. Both take part with K full-gradient steps of rate 0.1 a round, from x = 1, server rate 1, controls from zero.

Reference: Karimireddy et al., SCAFFOLD, ICML 2020, figure 3 (the numbers are those of this construction, in closed form
for FedAvg, by hand for SCAFFOLD).
"""

import itertools

import numpy as np
import optax
from matplotlib.figure import Figure

from benchmarks.reproductions import engine, style
from benchmarks.reproductions.outcome import Line, Outcome, Table, verdict
from fedjax_fraud import algorithms
from fedjax_fraud.algorithms import ALGORITHMS
from fedjax_fraud.local import Objective

RATE, START, NUM_ROUNDS = 0.1, 1.0, 200
STEPS, GAPS = (1, 2, 10), (0.0, 1.0, 10.0, 100.0)
SHOWN_GAPS = (1.0, 10.0, 100.0)
TOLERANCE = 2e-6  # relative to the largest number on the way, max(1, G): 17 float32 roundings

# (method, K, round) -> x at G = 1 and at G = 10.
PUBLISHED = {
    ("fedavg", 2, 1): (0.83, 0.92),
    ("fedavg", 10, 1): (0.8305306, 3.3221225),
    ("scaffold", 2, 1): (0.83, 0.92),
    ("scaffold", 10, 1): (0.8305306, 3.3221225),
    ("scaffold", 2, 5): (0.3547708, 0.3963385),
    ("scaffold", 10, 5): (-0.0482711, -0.0992092),
    ("scaffold", 2, 20): (0.0145263, 0.0162283),
    ("scaffold", 10, 20): (4.171e-06, 1.664e-05),
    ("scaffold", 2, 200): (0.0, 0.0),
    ("scaffold", 10, 200): (0.0, 0.0),
    ("fedavg", 2, 200): (0.0555556, 0.555556),
    ("fedavg", 10, 200): (0.6202902, 6.202902),
}
NAMES = {"fedavg": "FedAvg", "scaffold": "SCAFFOLD"}


def quadratic(params, x):
    """The objective itself: columns are half the curvature and the slope."""
    return x[:, 0] * params["w"] ** 2 + x[:, 1] * params["w"]


def passed_on(values, labels):
    """The model's output is the loss."""
    del labels
    return values


def fedavg(hyper):
    return algorithms.fedavg(optax.sgd(hyper["client_lr"]), uniform_weights=True)


BUILDS = {"fedavg": fedavg, "scaffold": ALGORITHMS["scaffold"].build}


def model_value(params, _):
    """x, for ``History.extra``."""
    return params["w"]


# Rounds to a target, with the best of many rates: what "slow" means where a fixed rate does not arrive at all.
TARGET, LONGEST, TARGET_GAPS = 0.01, 3000, (0.1, 1.0, 10.0)
GRID = tuple(np.geomspace(1e-4, RATE, 16))


def federations(cases: list[tuple[int, float, float]]) -> engine.Federations:
    """One setting for each (K, G, rate)."""
    gaps = sorted({gap for _, gap, _ in cases})
    first = [2 * gaps.index(gap) for _, gap, _ in cases]
    rows = np.array([row for gap in gaps for row in ((1, gap), (0, -gap))], np.float32)
    return engine.Federations(
        features=rows,
        labels=np.zeros(len(rows)),
        count=np.ones((len(cases), 2), np.int32),
        start=np.array([(i, i + 1) for i in first]),
        hyper={"client_lr": [rate for *_, rate in cases]},
        params={"w": np.full(len(cases), START)},
        num_epochs=[num_steps for num_steps, *_ in cases],
    )


def walk(cases: list[tuple[int, float, float]], num_rounds: int) -> dict[str, np.ndarray]:
    """method -> x ``[rounds + 1, cases]``."""
    objective = Objective(quadratic, passed_on, batch_size=1)
    found = {}
    for method, build in BUILDS.items():
        _, history = engine.federate(build, objective, federations(cases), num_rounds, score_fn=model_value)
        found[method] = np.concatenate([np.full((1, len(cases)), START), history.extra.astype(np.float64)])
    return found


def paths(num_rounds: int = NUM_ROUNDS) -> dict[tuple[str, int, float], np.ndarray]:
    """(method, K, G) -> x after each round, from round 0, at the rate of the published numbers."""
    cases = [(num_steps, gap, RATE) for num_steps in STEPS for gap in GAPS]
    walked = walk(cases, num_rounds)
    return {(m, k, gap): walked[m][:, i] for m in BUILDS for i, (k, gap, _) in enumerate(cases)}


def rounds_to_target() -> dict[tuple[str, int, float], float]:
    """(method, K, G) -> rounds until x stays within the target, with the best rate; infinite = not within LONGEST."""
    cases = [(k, gap, rate) for k in STEPS for gap in TARGET_GAPS for rate in GRID]
    found: dict[tuple[str, int, float], float] = {}
    for method, walked in walk(cases, LONGEST).items():
        for i, (k, gap, _) in enumerate(cases):
            outside = np.flatnonzero(~(abs(walked[:, i]) <= TARGET))
            reached = outside[-1] + 1 if outside[-1] < LONGEST else np.inf
            found[method, k, gap] = min(found.get((method, k, gap), np.inf), reached)
    return found


def contraction(path: np.ndarray, first: int = 5, last: int = 20) -> float:
    """The factor by which |x| shrinks in a round, from round ``first`` to ``last``."""
    return float(abs(path[last] / path[first]) ** (1 / (last - first)))


def gain(path: np.ndarray, first: int = 5, last: int = 20) -> float:
    """Rounds of SGD (factor 0.9) that one round is worth."""
    return float(np.log(contraction(path, first, last)) / np.log(1 - RATE))


def fixed_point(num_steps: int) -> float:
    """Where FedAvg comes to rest, over G."""
    rho = (1 - 2 * RATE) ** num_steps
    return (num_steps * RATE - (1 - rho) / 2) / (1 - rho)


def run(quick: bool = False) -> Outcome:
    """All of it takes seconds, so there is nothing to leave out."""
    del quick
    found, needed = paths(), rounds_to_target()
    numbers, largest = number_lines(found)
    return Outcome(
        "R1",
        "SCAFFOLD on simulated quadratics",
        "Karimireddy et al. 2020, figure 3; closed forms",
        [
            "Two clients with one row each, f1(x) = x^2 + G x and f2(x) = -G x, so that f = x^2 / 2, expressed as a "
            "model and a loss function of the engine. A batch is the whole client, so K epochs are K full-gradient "
            "steps. Rate 0.1, x = 1 at the start, both clients take part, server rate 1, controls from zero.",
            f"For the rounds to a target the rate is the best of {len(GRID)} from {GRID[0]:g} to {RATE:g}: at a fixed "
            "rate FedAvg with K > 1 comes to rest beside the minimum, at G (K eta - (1 - rho) / 2) / (1 - rho) with "
            "rho = (1 - 2 eta)^K, and never arrives.",
        ],
        numbers + trend_lines(found, needed),
        [target_table(needed)],
        {"reproduction-quadratics": ("f(x) by round at rate 0.1, in the form of the paper's figure 3", picture(found))},
        dict(
            paths={
                f"{m} K={k} G={gap:g}": path[[0, 1, 2, 5, 10, 20, 50, 100, 200]].tolist()
                for (m, k, gap), path in found.items()
            },
            rounds_to_target={f"{m} K={k} G={gap:g}": value for (m, k, gap), value in needed.items()},
            largest_error=largest,
        ),
    )


def tolerance(value: float, gap: float) -> float:
    """Half a unit of the last published digit, and the rounding of numbers as large as G."""
    return 0.5e-7 * max(1, abs(value)) + TOLERANCE * max(1, gap)


def number_lines(found: dict) -> tuple[list[Line], float]:
    """Every published number, and the largest difference from one, over max(1, G)."""
    lines, largest = [], 0.0
    for (method, num_steps, at), values in PUBLISHED.items():
        ours = [found[method, num_steps, gap][at] for gap in (1.0, 10.0)]
        errors = [abs(a - b) for a, b in zip(ours, values, strict=True)]
        good = all(e <= tolerance(b, gap) for e, b, gap in zip(errors, values, (1.0, 10.0), strict=True))
        largest = max(largest, errors[0], errors[1] / 10)
        lines.append(
            Line(
                f"{NAMES[method]}, K = {num_steps}: x after round {at}, G = 1; 10",
                "; ".join(f"{value:.7g}" for value in values),
                "; ".join(f"{value:.7g}" for value in ours),
                verdict(good),
                "the fixed point" if (method, at) == ("fedavg", 200) else "",
            )
        )
    exact = 0.9 ** np.arange(NUM_ROUNDS + 1)
    decay = max(abs(found[m, 1, gap] - exact).max() / max(1, gap) for m in BUILDS for gap in GAPS)
    what = "K = 1: x - 0.9^r over 200 rounds, both methods, every G"
    lines.append(Line(what, "0", f"{decay:.1e}", verdict(decay < TOLERANCE), "largest difference over max(1, G)"))
    return lines, max(largest, decay)


def trend_lines(found: dict, needed: dict) -> list[Line]:
    """The statements of the figure."""
    lines = []
    for num_steps, theirs in ((2, 2), (10, 5)):
        gains = [gain(found["scaffold", num_steps, gap]) for gap in (0.0, 1.0, 10.0)]
        lines.append(
            Line(
                f"SCAFFOLD, K = {num_steps}: rounds of SGD that one round is worth",
                f"about {theirs}",
                f"{min(gains):.2f} to {max(gains):.2f}",
                verdict(0.75 * theirs < min(gains) and max(gains) < 1.35 * theirs),
                "by how fast |x| shrinks from round 5 to 20, at G = 0, 1, 10",
            )
        )
    spread = {k: [contraction(found["scaffold", k, gap], 2, 12) for gap in (1.0, 10.0, 100.0)] for k in (2, 10)}
    widest = max(max(values) - min(values) for values in spread.values())
    lines.append(
        Line(
            "SCAFFOLD is unaffected by G (1, 10, 100)",
            "same rate",
            ", ".join(f"K = {k}: {min(v):.3f} to {max(v):.3f} a round" for k, v in spread.items()),
            verdict(widest < 0.1),
            "shrinking of |x| a round, rounds 2 to 12; G moves the start of the curve, not its slope",
        )
    )
    fedavg = {(k, gap): needed["fedavg", k, gap] for k in STEPS for gap in TARGET_GAPS}
    shown = "; ".join(f"K = {k}: " + ", ".join(count(fedavg[k, gap]) for gap in TARGET_GAPS) for k in (2, 10))
    why = f"rounds to |x| <= {TARGET:g} at G = " + ", ".join(f"{gap:g}" for gap in TARGET_GAPS) + ", best rate"
    grows = all(fedavg[k, a] < fedavg[k, b] for k in (2, 10) for a, b in itertools.pairwise(TARGET_GAPS))
    lines.append(Line("FedAvg slows with G", "slower", shown, verdict(grows), why))
    shown = "; ".join(f"G = {gap:g}: {count(fedavg[2, gap])}, {count(fedavg[10, gap])}" for gap in TARGET_GAPS)
    why = f"the same rounds for K = 2, 10; SGD needs {count(fedavg[1, 1.0])}, so at G = 0.1 steps still help"
    grows = all(fedavg[2, gap] < fedavg[10, gap] for gap in TARGET_GAPS)
    lines.append(Line("FedAvg slows with K", "slower", shown, verdict(grows), why))
    return lines


def count(rounds: float) -> str:
    """A number of rounds, or that there were not enough."""
    return f"{rounds:.0f}" if np.isfinite(rounds) else f"> {LONGEST}"


def target_table(needed: dict) -> Table:
    """Rounds to the target with the best rate."""
    rows = [
        [f"{name}, K = {k}", *(count(needed[method, k, gap]) for gap in TARGET_GAPS)]
        for method, name, steps in (
            ("fedavg", "SGD", (1,)),
            ("fedavg", "FedAvg", (2, 10)),
            ("scaffold", "SCAFFOLD", (2, 10)),
        )
        for k in steps
    ]
    return Table(
        f"Rounds until |x| stays within {TARGET:g}, with the best rate of the grid.",
        ["method", *(f"G = {gap:g}" for gap in TARGET_GAPS)],
        rows,
    )


def picture(found: dict) -> Figure:
    """FedAvg above, SCAFFOLD below, G to the right."""
    figure, axes = style.panels(2, len(SHOWN_GAPS), height=2.6)
    looks = {
        "fedavg": {2: dict(color=style.ORANGE), 10: dict(color=style.VERMILION, linestyle=(0, (5, 2)))},
        "scaffold": {2: dict(color=style.SKY), 10: dict(color=style.BLUE, linestyle=(0, (5, 2)))},
    }
    shown = np.arange(51)
    for row, method in enumerate(BUILDS):
        for panel, gap in zip(axes[row], SHOWN_GAPS, strict=True):
            for name, k, look in (
                ("SGD", 1, dict(color=style.BLACK, linestyle=":")),
                *((f"{NAMES[method]}, K = {k}", k, look) for k, look in looks[method].items()),
            ):
                path = found[method, k, gap][shown]
                panel.plot(shown, np.maximum(path**2 / 2, 1e-12), label=name, linewidth=1.8, **look)
            panel.set(yscale="log", ylim=(1e-9, 3e4), xlim=(0, 50))
            if row == 0:
                panel.set_title(f"G = {gap:g}")
            else:
                panel.set_xlabel("round")
        axes[row, 0].set_ylabel("f(x) = x² / 2")
        axes[row, -1].legend(frameon=False, fontsize=8, loc="upper right" if method == "scaffold" else "lower left")
    return figure
