"""Pictures: every shape of result draws without a warning, and the same result gives the same bytes."""

import sys

import numpy as np
import pandas as pd
import pytest

from fedjax_fraud.report import figures, styles
from tests.test_report import GAINS, fake_result

NAN = float("nan")


def texts(figure) -> set[str]:
    """All the words of a figure's legend and titles."""
    found = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
    return found | {axis.get_title() for axis in figure.axes}


def test_convergence_has_a_panel_for_each_alpha_by_round_and_by_megabyte():
    figure = figures.convergence(fake_result(num_seeds=2))
    labels = [axis.get_xlabel() for axis in figure.axes]
    assert labels[:3] == ["communication round"] * 3 and all("MB" in label for label in labels[3:])
    assert {"FedAvg", "FedProx (mu 0.01)", "SCAFFOLD", "Dirichlet \N{GREEK SMALL LETTER ALPHA} = 0.5"} <= texts(figure)


def test_convergence_is_1440_pixels_wide_and_leaves_pyplot_alone():
    figure = figures.convergence(fake_result(num_seeds=2, num_rounds=2))
    assert figure.get_figwidth() * figure.dpi == 1440
    assert "matplotlib.pyplot" not in sys.modules


def test_lines_are_the_means_of_the_settings_that_did_not_diverge():
    result = fake_result(alphas=(0.5,), algorithms=("fedavg",), baselines=False, diverged={("fedavg", 0.5, 1)})
    line = figures.convergence(result).axes[0].lines[0]
    kept = result.rounds[~result.rounds.diverged]
    np.testing.assert_allclose(line.get_ydata(), kept.groupby("round").average_precision.mean())


def test_the_legend_says_when_a_line_is_the_best_of_several():
    assert any(
        ", best of 2" in text for text in texts(figures.convergence(fake_result(alphas=(0.5,), mus=(0.01, 0.1))))
    )


def test_the_legend_fits_when_every_line_is_the_best_of_several():
    result = fake_result(alphas=(0.5, 1.0), num_seeds=2)
    others = result.rounds.assign(client_lr=0.3, setting=result.rounds.setting + 1000)
    figure = figures.convergence(result._replace(rounds=pd.concat([result.rounds, others], ignore_index=True)))
    figures.png_bytes(figure)
    legend = figure.legends[0].get_window_extent()
    assert figure.bbox.x0 <= legend.x0 and legend.x1 <= figure.bbox.x1


def test_algorithms_differ_in_colour_and_in_dashes():
    names = ("fedavg", "fedprox", "scaffold")
    assert len({styles.STYLES[name][0] for name in names}) == len({str(styles.STYLES[name][1]) for name in names})


@pytest.mark.parametrize(
    "changes",
    [
        dict(num_seeds=1),
        dict(alphas=(NAN,)),
        dict(alphas=(0.1, NAN), num_rounds=1),
        dict(baselines=False, algorithms=("fedavg",)),
        dict(diverged={("fedprox", 0.5, 0), ("fedprox", 0.5, 1)}),
        dict(diverged={(name, 0.5, seed) for name in GAINS for seed in range(2)}),
    ],
    ids=["one seed", "no alpha", "mixed alphas, one round", "one algorithm", "one diverged", "all diverged"],
)
def test_every_shape_of_result_can_be_drawn(changes):
    changes = dict(alphas=(0.5,), num_seeds=2, num_rounds=2) | changes
    figures.convergence(fake_result(**changes)).draw_without_rendering()


def test_scores_over_orders_of_magnitude_get_a_logarithmic_axis():
    result = fake_result(alphas=(0.5,), num_seeds=2)
    low = result.rounds["round"] == 1
    rounds = result.rounds.assign(average_precision=result.rounds.average_precision.where(~low, 1e-3))
    figure = figures.convergence(result._replace(rounds=rounds))
    figure.draw_without_rendering()
    axis = figure.axes[0]
    assert axis.get_yscale() == "log"
    assert {"0.002", "0.005", "0.01", "0.1"} <= {label.get_text() for label in axis.get_yticklabels(which="both")}
    assert figures.convergence(result).axes[0].get_yscale() == "linear"


def test_traffic_over_orders_of_magnitude_gets_a_logarithmic_axis():
    result = fake_result(alphas=(0.5,), num_seeds=2)
    dear = result.rounds.algorithm == "scaffold"
    rounds = result.rounds.assign(bytes_up=result.rounds.bytes_up.where(~dear, result.rounds.bytes_up * 50))
    axes = figures.convergence(result._replace(rounds=rounds)).axes
    assert axes[-1].get_xscale() == "log" and axes[0].get_xscale() == "linear"


def test_unknown_algorithms_get_styles_of_their_own():
    result = fake_result(alphas=(0.5,), num_seeds=2)
    names = {"fedprox": "fednova", "scaffold": "mine"}
    figure = figures.convergence(result._replace(rounds=result.rounds.replace({"algorithm": names})))
    assert {"FedNova (mu 0.01)", "mine"} <= texts(figure)


def test_the_same_result_gives_the_same_svg_without_a_date():
    first, second = (figures.svg_bytes(figures.convergence(fake_result(alphas=(0.5,), num_seeds=2))) for _ in range(2))
    assert first == second and b"dc:date" not in first


def test_a_partition_picture_shows_each_seed_from_the_largest_bank_on():
    partitions = pd.DataFrame(
        dict(
            alpha=0.1, seed=[0, 0, 1, 1], client=[0, 1, 0, 1], num_examples=[10, 30, 75, 25], num_positives=[4, 0, 1, 3]
        )
    )
    figure = figures.partition_heatmap(partitions)
    rows, frauds = (axis.images[0].get_array() for axis in figure.axes[:2])
    np.testing.assert_allclose(rows, [[0.75, 0.25], [0.75, 0.25]])
    np.testing.assert_allclose(frauds, [[0, 1], [0.25, 0.75]])
    assert figure.axes[1].collections[0].get_offsets().tolist() == [[0, 0]]


@pytest.mark.parametrize(
    "changes",
    [dict(alphas=(NAN,)), dict(num_clients=40, num_seeds=25), dict(num_seeds=1), dict(num_clients=1)],
    ids=str,
)
def test_every_shape_of_partition_can_be_drawn(changes):
    changes = dict(alphas=(0.1,), algorithms=("fedavg",), baselines=False, num_rounds=1) | changes
    figures.partition_heatmap(fake_result(**changes).partitions).draw_without_rendering()


def test_a_seed_without_any_fraud_can_be_drawn():
    partitions = fake_result(num_seeds=2, alphas=(0.1,)).partitions.assign(num_positives=0)
    figures.partition_heatmap(partitions).draw_without_rendering()
