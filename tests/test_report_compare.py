"""Runs side by side: hand-worked pairs, what is not paired and why, and folders that are refused."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from fedjax_fraud import report
from fedjax_fraud.report.compare import OTHER_ROWS, OTHER_SEEDS, UNKNOWN_ROWS
from tests.test_report import FakeResult, bare_reports, fake_result
from tests.test_report_tables import rounds_of

NAN = float("nan")


def run_of(*settings, sha="aa", **config):
    """A run with these settings (see ``rounds_of``) and facts."""
    manifest = dict(config=dict(num_rounds=1, seeds=[0, 1]) | config, data=dict(sha256=sha, test=dict(prevalence=0.1)))
    return FakeResult(rounds_of(*settings), pd.DataFrame(), pd.DataFrame(), manifest)


def seeds(*scores, **changes):
    """FedAvg with these scores of seeds 0, 1, ..."""
    return [dict(seed=seed, average_precision=score, **changes) for seed, score in enumerate(scores)]


def row_of(table, **wanted):
    for name, value in wanted.items():
        table = table[table[name] == value]
    (row,) = table.to_dict("records")
    return row


# ---- pairs ------------------------------------------------------------------------------------------------------


def test_a_paired_difference_is_the_mean_over_shared_seeds_by_hand():
    one, other = run_of(*seeds(0.2, 0.4, 0.6)), run_of(*seeds(0.3, 0.7, 0.7))
    table = report.compare({"a": one, "b": other})
    first, second = (row_of(table, run=name) for name in "ab")
    assert first["reference"] == "" and np.isnan(first["difference"]) and first["num_pairs"] == 0
    # differences 0.1, 0.3, 0.1: mean 1/6, s = 0.11547, t(0.975, 2) = 4.302653
    assert second["difference"] == pytest.approx(1 / 6)
    assert second["difference_high"] - second["difference"] == pytest.approx(4.302653 * 0.1154701 / 3**0.5, rel=1e-6)
    assert (second["reference"], second["num_pairs"], second["wins"], second["not_paired"]) == ("a", 3, 3, "")
    assert second["average_precision"] == pytest.approx(17 / 30)


def test_a_run_is_at_no_distance_from_itself():
    one = fake_result(num_seeds=3)
    table = report.compare([one, one])
    others = table[table["run"] == "2"]
    assert len(others) == len(report.summarise(one.rounds)) == len(table) / 2
    assert (others["difference"] == 0).all() and (others["num_pairs"] == 3).all() and (others["wins"] == 0).all()


def test_other_rows_are_not_paired_and_it_is_said_why():
    one, other, silent = (run_of(*seeds(0.2, 0.4), sha=sha) for sha in ("aa", "bb", None))
    table = report.compare([one, other, silent])
    for name, reason in (("2", OTHER_ROWS), ("3", UNKNOWN_ROWS)):
        row = row_of(table, run=name)
        assert row["not_paired"] == reason and np.isnan(row["difference"]) and row["num_pairs"] == 0
        assert row["average_precision"] == pytest.approx(0.3)


def test_only_shared_seeds_pair_and_what_diverged_is_counted():
    one = run_of(*seeds(0.2, 0.4, 0.6))
    shifted = [dict(setting, seed=setting["seed"] + 1) for setting in seeds(0.5, 0.9, 0.1)]
    shifted[0]["diverged"] = True
    row = row_of(report.compare([one, run_of(*shifted)]), run="2")
    assert (row["num_pairs"], row["num_excluded"], row["num_unpaired"]) == (1, 1, 2)
    assert row["difference"] == pytest.approx(0.9 - 0.6) and np.isnan(row["difference_low"])
    assert (row["num_diverged"], row["num_seeds"]) == (1, 3)
    alien = run_of(dict(seed=7, average_precision=0.5))
    assert row_of(report.compare([one, alien]), run="2")["not_paired"] == OTHER_SEEDS


# ---- what meets what --------------------------------------------------------------------------------------------


def test_a_hyperparameter_with_one_value_in_each_run_belongs_to_the_run():
    one = run_of(*seeds(0.2, 0.4, client_lr=0.1), client_lr=[0.1])
    other = run_of(*seeds(0.3, 0.5, client_lr=0.05), client_lr=[0.05])
    row = row_of(report.compare([one, other]), run="2")
    assert (row["client_lr"], row["num_pairs"]) == (0.05, 2)
    facts = report.differences([one, other])
    assert facts["fact"].tolist() == ["config.client_lr"]
    assert facts.iloc[0]["1"] == [0.1] and facts.iloc[0]["2"] == [0.05]


def test_a_hyperparameter_that_a_run_varies_has_to_be_equal():
    one = run_of(*seeds(0.2, 0.4, client_lr=0.1))
    grid = run_of(*seeds(0.3, 0.5, client_lr=0.1), *seeds(0.8, 0.9, client_lr=0.2))
    table = report.compare([one, grid])
    assert table["client_lr"].tolist() == [0.1, 0.1]
    assert row_of(table, run="2")["average_precision"] == pytest.approx(0.4)


def test_what_one_run_alone_has_is_left_out_and_the_first_that_has_it_is_the_reference():
    one = run_of(*seeds(0.2, 0.3), *seeds(0.5, algorithm="scaffold"))
    two = run_of(*seeds(0.2, 0.3), *seeds(0.4, 0.5, alpha=NAN), *seeds(0.6, algorithm="fedprox", mu=0.1))
    three = run_of(*seeds(0.2, 0.3, alpha=NAN), *seeds(0.7, algorithm="fedprox", mu=0.1))
    table = report.compare([one, two, three])
    assert "scaffold" not in set(table["algorithm"])
    prox = table[table["algorithm"] == "fedprox"]
    assert prox["run"].tolist() == ["2", "3"] and prox["reference"].tolist() == ["", "2"]
    assert prox["difference"].iloc[1] == pytest.approx(0.1)
    assert table[table["alpha"].isna()]["run"].tolist() == ["2", "3"]


def test_runs_with_nothing_in_common_and_too_few_runs_are_refused():
    one, other = run_of(*seeds(0.2, alpha=0.1)), run_of(*seeds(0.2, alpha=0.5))
    with pytest.raises(ValueError, match="share no case"):
        report.compare([one, other])
    with pytest.raises(ValueError, match="at least two runs, got 1"):
        report.compare([one])


# ---- what is said -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs():
    """Two runs that differ in rows, rounds and versions."""
    one = fake_result(num_seeds=3, diverged={("scaffold", 0.1, 2)})
    other = fake_result(num_seeds=2, num_rounds=3, mus=(0.01, 0.1))
    data = other.manifest["data"] | dict(sha256="cd" * 32)
    return {"runs/one": one, "runs/other": other._replace(manifest=other.manifest | dict(data=data))}


def test_the_facts_that_differ_are_named_and_those_that_agree_are_not(runs):
    facts = report.differences(runs).set_index("fact")
    assert facts.loc["config.num_rounds"].tolist() == [5, 3]
    assert facts.loc["data.sha256"].tolist() == ["ab" * 32, "cd" * 32]
    assert "config.batch_size" not in facts.index and not any(name.startswith("timings") for name in facts.index)
    assert report.differences([runs["runs/one"]] * 2).empty


def test_the_terminal_gets_two_tables_of_at_most_100_columns(runs):
    lines = report.comparison_lines(runs)
    text = "\n".join(lines)
    assert lines[:2] == ["A = runs/one", "B = runs/other"] and text.isascii()
    assert max(map(len, lines[:-2])) <= 100
    assert "num_rounds" in text and "1/3" in text and OTHER_ROWS in text
    assert "not paired, because the runs saw other rows" in text


def test_the_page_and_the_table_hold_every_row(runs, tmp_path):
    table = report.compare(runs)
    page = report.write_comparison(runs, tmp_path / "both.md").read_text()
    assert page.count("\n| ") >= len(table) and "runs/one" in page
    again = pd.read_csv(report.write_comparison(runs, tmp_path / "both.csv"))
    np.testing.assert_allclose(again["average_precision"], table["average_precision"])
    for path, words in (("both.txt", "must end in .md or .csv"), ("nowhere/both.md", "does not exist")):
        with pytest.raises(ValueError, match=words):
            report.write_comparison(runs, tmp_path / path)


def test_the_json_is_strict_and_says_the_same(runs):
    answer = json.loads(report.as_json(runs), parse_constant=pytest.fail)
    table = report.compare(runs)
    assert answer["runs"] == list(runs) and len(answer["comparison"]) == len(table)
    assert answer["comparison"][0]["average_precision"] == pytest.approx(table["average_precision"].iloc[0])
    assert answer["comparison"][0]["difference"] is None
    assert {row["fact"] for row in answer["differences"]} == set(report.differences(runs)["fact"])


# ---- folders ----------------------------------------------------------------------------------------------------


def test_folders_are_loaded_in_order_and_refused_by_name(tmp_path):
    with bare_reports():
        report.write(fake_result(num_seeds=2, alphas=(0.5,), num_rounds=2), tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    found = report.load_runs([tmp_path / "b", tmp_path / "a"])
    assert list(found) == [str(tmp_path / "b"), str(tmp_path / "a")]
    assert (report.compare(found)["difference"].dropna() == 0).all()
    with pytest.raises(ValueError, match="at least two"):
        report.load_runs([tmp_path / "a"])
    with pytest.raises(ValueError, match="the same folder"):
        report.load_runs([tmp_path / "a", tmp_path / "b" / ".." / "a"])
    with pytest.raises(ValueError, match=r"nowhere.*no such folder"):
        report.load_runs([tmp_path / "a", tmp_path / "nowhere"])
    (tmp_path / "b" / "banks.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"banks\.parquet in .*b.* is damaged"):
        report.load_runs([tmp_path / "a", tmp_path / "b"])
