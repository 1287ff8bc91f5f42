"""The page's charts: specifications are Vega-Lite, and their numbers are those of the tables."""

import math

import altair as alt
import numpy as np
import pandas as pd
import pytest

from fedjax_fraud.report import charts, specs, tables
from fedjax_fraud.report.case import case_of
from tests.test_report import GAINS, fake_result
from tests.test_report_decisions import decided

NAN = float("nan")


def view_of(result) -> charts.View:
    return charts.view_of(case_of(result))


def crossed(**changes):
    """A result under two shares of stragglers, which cost a fifth of the precision, with a simulated clock."""
    result = decided(**changes)
    parts = []
    for place, share in enumerate((0.0, 0.5)):
        shift = dict(stragglers=share, policy="wait")
        for name, worth in tables.CONDITIONS.items():
            shift.setdefault(name, worth)
        kept = [
            frame[~frame["algorithm"].isin(tables.BASELINES)] if place else frame
            for frame in (result.rounds, result.banks, result.decisions)
        ]
        parts.append([frame.assign(setting=frame["setting"] + 10_000 * place, **shift) for frame in kept])
    rounds, banks, decisions = (pd.concat(pair, ignore_index=True) for pair in zip(*parts, strict=True))
    precision = rounds["average_precision"] * (1 - 0.4 * rounds["stragglers"])
    rounds = rounds.assign(seconds=1.5 + rounds["stragglers"], average_precision=precision)
    return result._replace(rounds=rounds, banks=banks, decisions=decisions)


@pytest.fixture(scope="module")
def view():
    return view_of(decided(mus=(0.01, 0.1), diverged={("scaffold", 0.1, 3)}))


@pytest.fixture(scope="module")
def made(view):
    return charts.charts(view)


SHAPES = [
    dict(num_seeds=1),
    dict(alphas=(NAN,)),
    dict(alphas=(0.1, NAN), num_rounds=1),
    dict(baselines=False, algorithms=("fedavg",)),
    dict(num_clients=1),
    dict(num_clients=40, alphas=(0.1,)),
    dict(algorithms=("scaffold", "fednova", "mine")),
    dict(diverged={(name, 0.5, seed) for name in GAINS for seed in range(2)}),
]


def check_specification(variant: charts.Variant) -> None:
    """Against Vega-Lite's schema, which takes a third of a second."""
    alt.LayerChart.from_dict(variant.spec, validate=True)


@pytest.mark.parametrize("changes", SHAPES, ids=lambda changes: " and ".join(changes) or "plain")
def test_every_shape_of_result_gives_valid_specifications(changes):
    for chart in charts.charts(view_of(decided(**(dict(alphas=(0.5,), num_seeds=2, num_rounds=2) | changes)))).values():
        variants = list(chart.variants.values())
        assert len(variants) and len(chart.alphas)
        check_specification(variants[SHAPES.index(changes) % len(variants)])


def test_every_variant_of_every_chart_is_a_valid_specification(made):
    for chart in made.values():
        for variant in chart.variants.values():
            check_specification(variant)


def test_a_chart_has_a_variant_for_everything_that_can_be_chosen(made):
    assert set(made["curves"].variants) == {f"{score} {axis}" for score in tables.SCORES for axis in ("round", "mb")}
    assert set(made["differences"].variants) == set(tables.SCORES)
    assert set(made) == {"curves", "joining", "partitions", "drift", "differences", "budgets", "calibration"}


def test_a_result_without_decisions_or_banks_has_fewer_charts():
    result = fake_result(alphas=(0.5,), num_seeds=2, num_rounds=2)
    found = charts.charts(view_of(result._replace(banks=result.banks.iloc[:0])))
    assert set(found) == {"curves", "partitions", "drift", "differences"}


def test_simulated_time_is_an_axis_where_it_is_known():
    made = charts.charts(view_of(crossed(alphas=(0.5,), num_seeds=2)))
    assert "average_precision time" in made["curves"].variants
    assert made["curves"].options[0].values == {"round": "Round", "mb": "MB", "time": "Simulated time"}


def test_curves_are_the_table_s_means_and_end_at_the_summary(view, made):
    rows = made["curves"].rows["rows"]
    table = tables.curves(view.case.best)
    for name in ("round", "mb", "average_precision", "log_loss_low", "roc_auc_high"):
        np.testing.assert_array_equal(rows[name], table[name])
    summary = tables.summarise(view.case.best)
    last = rows[rows["round"] == rows["round"].max()].set_index(["algorithm", "alpha"])["average_precision"]
    for row in summary[~summary["algorithm"].isin(tables.BASELINES)].to_dict("records"):
        assert last[row["algorithm"], f"{row['alpha']:g}"] == pytest.approx(row["average_precision"], rel=1e-12)


def test_levels_are_the_baselines_and_the_prevalence(view, made):
    levels = made["curves"].rows["levels"].set_index(["algorithm", "alpha"])
    summary = tables.summarise(view.case.best).set_index(["algorithm", "alpha"])
    for name in tables.BASELINES:
        assert levels.loc[(name, "0.5"), "roc_auc"] == summary.loc[(name, 0.5), "roc_auc"]
    assert levels.loc[("prevalence", "0.1"), "average_precision"] == view.case.prevalence
    assert levels.loc[("prevalence", "0.1"), "roc_auc"] == 0.5 and math.isnan(
        levels.loc[("prevalence", "0.1"), "log_loss"]
    )


def test_banks_differences_and_conditions_are_the_tables(view, made):
    banks, table = made["joining"].rows["rows"], view.case.by_rank
    np.testing.assert_array_equal(banks["average_precision"], table["average_precision"])
    np.testing.assert_array_equal(banks["prevalence"], table["prevalence"])
    shown = made["differences"].rows["rows"]
    for metric in tables.SCORES:
        expected = tables.paired_differences(view.case.rounds, metric=metric)
        np.testing.assert_array_equal(shown[f"{metric}_high"], expected["difference_high"])
    result = crossed(num_seeds=2)
    rows = charts.charts(view_of(result))["conditions"].rows["rows"]
    summary = tables.summarise(result.rounds)
    summary = summary[~summary["algorithm"].isin(tables.BASELINES)]
    np.testing.assert_array_equal(rows["average_precision"], summary["average_precision"])
    assert set(rows["category"]) == {"0% stragglers", "50% stragglers"} and "conditions" not in rows


def test_budgets_and_bins_are_those_of_the_best_hyperparameters(view, made):
    table = view.case.decided.table
    rows = made["budgets"].rows["rows"]
    one = rows[(rows["algorithm"] == "fedavg") & (rows["alpha"] == "0.5") & (rows["category"] == "1 % of rows")]
    expected = table[(table["algorithm"] == "fedavg") & (table["alpha"] == 0.5)]
    assert one["recall"].tolist() == expected["recall_at_0.01"].tolist()
    assert rows.groupby(["algorithm", "alpha", "category"]).size().eq(1).all()
    assert made["calibration"].rows["rows"].groupby(["algorithm", "alpha", "bin"]).size().eq(1).all()


def test_long_runs_are_thinned_and_keep_their_last_round():
    chart = charts.charts(view_of(fake_result(alphas=(0.5,), num_seeds=1, num_rounds=300)))["curves"]
    rounds = chart.rows["rows"]["round"]
    assert rounds.nunique() <= 40 and rounds.min() == 1 and rounds.max() == 300


def test_the_frame_is_common_to_all_panels_and_keeps_wide_intervals_from_flattening_the_means():
    table = pd.DataFrame({"x": [0.2, 0.3, 0.1], "x_low": [0.1, -5.0, 0.1], "x_high": [0.25, 9.0, 0.1]})
    low, high = specs._frame(table, "x", (0.0, 1.0))
    assert low == 0.0 and 0.3 < high < 0.5


def test_an_algorithm_has_the_matplotlib_figure_s_colour_and_another_in_the_dark(view):
    light, dark = specs.colours(view.looks)
    assert light[specs.colour(view.looks, "fedavg")[4:-1]] == "#0072B2" and set(light) == set(dark)
    assert all(light[name] != dark[name] for name in light)
    assert len({tuple(specs.dashes(view.looks, name)) for name in view.looks}) == len(view.looks)


def test_a_natural_partition_shows_its_banks_by_name_once():
    result = decided(alphas=(NAN,), num_seeds=3)
    names = {0: "north", 1: "south", 2: "east"}
    result = result._replace(partitions=result.partitions.assign(bank=result.partitions["client"].map(names)))
    rows = charts.charts(view_of(result))["partitions"].rows["rows"]
    assert sorted(rows["bank"]) == sorted(names.values())
