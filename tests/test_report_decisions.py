"""Decisions in the report: means over the right rows, sections, pictures, and folders with and without them."""

import numpy as np
import pandas as pd
import pytest

from fedjax_fraud import report
from fedjax_fraud.report import banks, calibration, decisions, store
from tests.test_report import bare_reports, fake_result

NAN = float("nan")
BUDGETS = ("at_0.001", "at_0.01", "per_day")
NUM_BINS = 10


def fake_decisions(result, num_clients=3, amounts=True) -> pd.DataFrame:
    """Decisions of every setting but the banks alone, with the columns of a sweep's table."""
    rng = np.random.default_rng(1)
    final = result.rounds.drop_duplicates(["setting", "alpha"], keep="last")
    final = final[final["algorithm"] != "local_only"]
    keys = final[["setting", "algorithm", "alpha", "seed", "client_lr", "mu", "num_epochs"]]
    table = keys.loc[keys.index.repeat(1 + num_clients)].reset_index(drop=True)
    client = np.tile(np.arange(-1, num_clients), len(keys))
    columns = dict(num_clients=num_clients, client=client, num_test=1000, num_test_positives=10)
    columns |= {name: rng.uniform(0, 0.01, len(table)) for name in ("brier", "cost")}
    columns["cost_without_alerts"] = 0.02
    for kind in ("recall", "precision", *(("value_recall",) if amounts else ())):
        columns |= {f"{kind}_{budget}": rng.uniform(0.2, 0.8, len(table)) for budget in BUDGETS}
    columns |= dict(transfer_share=rng.uniform(0, 0.02, len(table)), transfer_recall=0.5, transfer_from=0)
    table = table.assign(**columns)
    pooled = client == -1
    for name in ("ece", "ece_equal_mass"):
        table[name] = np.where(pooled, rng.uniform(0, 0.01, len(table)), np.nan)
    probability = np.geomspace(1e-5, 0.08, NUM_BINS)
    for b in range(NUM_BINS):
        rate = np.maximum(probability[b] * rng.lognormal(0, 0.3, len(table)) - 1e-4, 0)
        table[f"bin_count_{b}"] = np.where(pooled, 100.0, np.nan)
        table[f"bin_probability_{b}"] = np.where(pooled, probability[b], np.nan)
        table[f"bin_rate_{b}"] = np.where(pooled, rate, np.nan)
    return table


def decided(amounts=True, defaults=(), **changes) -> store.StoredResult:
    """A made-up result with decisions."""
    result = fake_result(**changes)
    record = dict(
        budgets={"at_0.001": 0.001, "at_0.01": 0.01, "per_day": 0.004},
        alerts_per_day=10.0,
        transfer_budget=0.005,
        false_alarm=12.5,
        mean_missed_fraud=1250.0,
        missed_fraud="amount" if amounts else "a number",
        defaults=list(defaults),
    )
    manifest = result.manifest | {"decisions": record}
    table = fake_decisions(result, changes.get("num_clients", 3), amounts)
    return store.StoredResult(result.rounds, result.banks, result.partitions, manifest, decisions=table)


@pytest.fixture(scope="module")
def result():
    return decided(diverged={("scaffold", 0.1, 3)})


@pytest.fixture(scope="module")
def text(result):
    return report.dossier(result)


@pytest.mark.parametrize(
    "amounts, defaults, words",
    [
        (True, (), "a false alarm costs 12.5, a missed fraud its amount (mean over all test rows: 1,250). *Saved*"),
        (
            True,
            ("false_alarm", "missed_fraud"),
            "costs 12.5 (the default, a hundredth of the mean amount), a missed fraud its amount (the default; mean "
            "over all test rows: 1,250). Defaults are conventions, not your costs: give your own (`--false-alarm-cost`",
        ),
        (
            False,
            ("false_alarm", "missed_fraud"),
            "costs 12.5 (the default), a missed fraud 1,250 (the default, a hundred false alarms). Defaults are",
        ),
        (True, ("missed_fraud",), "costs 12.5, a missed fraud its amount (the default; mean over"),
    ],
)
def test_a_cost_that_nobody_gave_is_marked_as_the_default(amounts, defaults, words):
    assert words in report.dossier(decided(amounts, defaults, alphas=(0.5,), num_seeds=2)).replace("\n", " ")


def test_results_from_before_defaults_were_recorded_are_not_marked():
    result = decided(alphas=(0.5,), num_seeds=2)
    old = {name: value for name, value in result.manifest["decisions"].items() if name != "defaults"}
    assert "the default" not in report.dossier(result._replace(manifest=result.manifest | dict(decisions=old)))


# ---- tables -----------------------------------------------------------------------------------------------------


def test_means_are_over_the_rows_of_all_banks_together_without_diverged_settings(result):
    table = result.decisions
    summary = decisions.decision_summary(table, {int(table.setting.iloc[0])})
    row = summary[(summary.algorithm == "fedavg") & (summary.alpha == 0.1)].iloc[0]
    used = table[(table.algorithm == "fedavg") & (table.alpha == 0.1) & (table.client == -1)].iloc[1:]
    assert row.num_seeds == len(used) == 3
    np.testing.assert_allclose(row["recall_at_0.001"], used["recall_at_0.001"].mean())
    np.testing.assert_allclose(row.saved, (1 - used.cost / 0.02).mean())
    assert row.brier_low < row.brier < row.brier_high


def test_the_threshold_elsewhere_leaves_out_the_bank_that_chose_it(result):
    table = result.decisions.assign(num_test=np.where(result.decisions.client == 2, 0, 1000))
    summary = decisions.transfer_summary(table)
    row = summary[(summary.algorithm == "fedavg") & (summary.alpha == 0.5)].iloc[0]
    other = table[(table.algorithm == "fedavg") & (table.alpha == 0.5) & (table.client == 1)]
    np.testing.assert_allclose(row.transfer_share, other.transfer_share.mean())
    np.testing.assert_allclose([row.least, row.most], [other.transfer_share.min(), other.transfer_share.max()])


def test_a_partition_without_alpha_is_summarised():
    summary = decisions.decision_summary(decided(alphas=(NAN,), num_seeds=2).decisions)
    assert summary.alpha.isna().all() and summary.algorithm.tolist() == ["centralised", "fedavg", "fedprox", "scaffold"]


# ---- the dossier ------------------------------------------------------------------------------------------------


def section(text, title):
    return text.split(f"## {title}\n")[1].split("\n## ")[0]


def test_the_dossier_has_budgets_money_and_thresholds(text):
    words = section(text, "At an alert budget")
    for wanted in ("0.1 % of rows", "10 alerts a day (0.4 %)", "Share of the defrauded money", "its amount", "12.5"):
        assert wanted in words
    assert "flags at most 0.5 % of its own test rows" in words and "| FedProx (mu 0.01) |" in words


def test_the_dossier_has_calibration_and_joining(text):
    words = section(text, "Calibration")
    assert "![Predicted and observed fraud rates](calibration.png)" in words and "ECE, equal mass" in words
    joining = text.split("### What joining buys each bank")[1]
    header = next(line for line in joining.splitlines() if line.startswith("| alpha"))
    names = [name.strip() for name in header.split("|")[4:-1]]
    assert names == ["Prevalence", "Local only", "FedAvg", "FedProx (mu 0.01)", "SCAFFOLD", "Centralised"]
    assert "nan" not in text.lower()


def test_without_amounts_there_is_no_share_of_money():
    text = report.dossier(decided(amounts=False, alphas=(0.5,), num_seeds=2))
    assert "Share of the defrauded money" not in text and "a missed fraud 1,250" in text


def test_a_result_without_decisions_has_no_such_sections():
    text = report.dossier(fake_result(alphas=(0.5,), num_seeds=2))
    assert "At an alert budget" not in text and "calibration.png" not in text and "banks.png" in text


def test_a_single_bank_has_no_other_to_flood():
    text = report.dossier(decided(alphas=(0.5,), num_seeds=2, num_clients=1))
    assert "At an alert budget" in text and "One bank's threshold" not in text


def test_when_everything_diverged_no_decision_is_invented():
    names = ("fedavg", "fedprox", "scaffold", "centralised", "local_only")
    text = report.dossier(decided(alphas=(0.5,), num_seeds=1, diverged={(name, 0.5, 0) for name in names}))
    assert "Every setting diverged" in text and "nan" not in text.lower()


# ---- the folder -------------------------------------------------------------------------------------------------


def test_decisions_are_written_and_read_back_byte_for_byte(tmp_path):
    small = decided(alphas=(0.5,), num_seeds=2, num_rounds=2)
    paths = report.write(small, tmp_path / "a")
    names = [path.name for path in paths]
    assert {"decisions.parquet", "calibration.png", "banks.png"} <= set(names)
    loaded = report.load(tmp_path / "a")
    pd.testing.assert_frame_equal(loaded.decisions, small.decisions, check_exact=True)
    again = report.write(loaded, tmp_path / "b")
    assert [a.name for a, b in zip(paths, again, strict=True) if a.read_bytes() != b.read_bytes()] == []


def test_a_folder_without_decisions_is_read_and_a_lost_file_is_missed(tmp_path):
    with bare_reports():
        report.write(fake_result(alphas=(0.5,), num_seeds=2, num_rounds=2), tmp_path / "old")
        report.write(decided(alphas=(0.5,), num_seeds=2, num_rounds=2), tmp_path / "new")
    assert report.load(tmp_path / "old").decisions is None
    (tmp_path / "new" / "decisions.parquet").unlink()
    with pytest.raises(ValueError, match=r"decisions.parquet.* is missing"):
        report.load(tmp_path / "new")


# ---- pictures ---------------------------------------------------------------------------------------------------

SHAPES = [
    dict(),
    dict(num_seeds=1),
    dict(alphas=(NAN,)),
    dict(baselines=False, algorithms=("fedavg",)),
    dict(num_clients=1),
    dict(num_clients=12, alphas=(0.1,)),
    dict(diverged={(name, 0.5, s) for name in ("fedavg", "fedprox", "scaffold", "centralised") for s in range(2)}),
]


@pytest.mark.parametrize("changes", SHAPES, ids=lambda changes: " and ".join(changes) or "plain")
@pytest.mark.parametrize("draw", [calibration.calibration_figure, banks.banks_figure])
def test_every_shape_of_result_can_be_drawn(draw, changes):
    draw(decided(**(dict(alphas=(0.5,), num_seeds=2, num_rounds=2) | changes))).draw_without_rendering()


def test_pictures_have_a_panel_for_each_alpha_and_a_legend(result):
    for draw in (calibration.calibration_figure, banks.banks_figure):
        figure = draw(result)
        assert len(figure.axes) == 3 and figure.get_figwidth() * figure.dpi == 1440
        words = {text.get_text() for text in figure.legends[0].get_texts()}
        assert {"FedAvg", "FedProx (mu 0.01)", "SCAFFOLD"} <= words


def test_models_without_any_fraud_in_their_bins_can_be_drawn(result):
    rates = {f"bin_rate_{b}": result.decisions[f"bin_rate_{b}"] * 0 for b in range(NUM_BINS)}
    calibration.calibration_figure(result._replace(decisions=result.decisions.assign(**rates))).draw_without_rendering()


def test_banks_stand_in_their_order_with_the_mean_of_their_scores(result):
    figure = banks.banks_figure(result)
    line = figure.axes[0].containers[0][0]  # a bank's own model comes first
    table = report.bank_table(result.banks)
    own = table[(table.algorithm == "local_only") & (table.alpha == 0.1)].sort_values("bank_rank")
    own = own[own.average_precision.notna()]
    np.testing.assert_allclose(np.asarray(line.get_ydata(), float), own.average_precision)
    assert np.abs(np.asarray(line.get_xdata(), float) - own.bank_rank).max() < 0.5
