"""The report as a whole, on a small made-up result; the tables, the files and the pictures have their own tests."""

import contextlib
import hashlib
import json
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from fedjax_fraud import report
from fedjax_fraud.report import bundle, figures, page

ALGORITHMS = ("fedavg", "fedprox", "scaffold")
GAINS = {"fedavg": 0.0, "fedprox": 0.02, "scaffold": -0.01, "centralised": 0.1, "local_only": -0.15}
MODEL_BYTES = 11_524


class FakeResult(NamedTuple):
    """The attributes of a sweep's result that a report reads."""

    rounds: pd.DataFrame
    banks: pd.DataFrame
    partitions: pd.DataFrame
    manifest: dict


@contextlib.contextmanager
def bare_reports():
    """Reports without page and pictures, for tests that write them for their tables: both take seconds to draw."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundle, "_pictures", lambda result: iter(()))
        patch.setattr(page, "page", lambda case, texts: "")
        yield


def fake_result(
    *,
    alphas=(0.1, 0.5, 1.0),
    algorithms=ALGORITHMS,
    mus=(0.01,),
    num_seeds=4,
    num_clients=3,
    num_rounds=5,
    baselines=True,
    diverged=(),
    features="known_before",
) -> FakeResult:
    """A made-up result with the columns of a sweep. ``diverged`` names (algorithm, alpha, seed)."""
    rng = np.random.default_rng(0)
    names = [*algorithms, *(("centralised", "local_only") if baselines else ())]
    settings = [
        (algorithm, alpha, seed, mu)
        for algorithm in names
        for mu in (mus if algorithm == "fedprox" else (np.nan,))
        for alpha in alphas
        for seed in range(num_seeds)
    ]
    partitions = pd.concat([_partition(rng, alpha, seed, num_clients) for alpha in alphas for seed in range(num_seeds)])
    rounds = [_rounds(rng, i, *setting, num_clients, num_rounds, diverged) for i, setting in enumerate(settings)]
    banks = [_banks(rng, i, *setting, partitions) for i, setting in enumerate(settings)]
    return FakeResult(
        pd.concat(rounds, ignore_index=True),
        pd.concat(banks, ignore_index=True),
        partitions.reset_index(drop=True),
        fake_manifest(alphas, names, num_seeds, num_clients, num_rounds, features),
    )


def fake_manifest(alphas, algorithms, num_seeds, num_clients, num_rounds, features) -> dict:
    """A manifest as a sweep makes it, NumPy scalars, tuples and NaN included."""
    return {
        "config": {
            "algorithms": tuple(name for name in algorithms if name in ALGORITHMS),
            "alphas": np.array(alphas),
            "seeds": list(range(num_seeds)),
            "num_clients": num_clients,
            "num_rounds": np.int64(num_rounds),
            "num_epochs": [1],
            "batch_size": 64,
            "client_lr": [0.05],
            "mu": [0.01],
            "participation": 1.0,
            "partition_kind": "natural" if np.isnan(alphas).any() else "labels",
            "features": features,
        },
        "data": {
            "source": "paysim_like(60000, seed=0)",
            "sha256": "ab" * 32,
            "train": {"num_rows": 48_000, "num_positives": 384, "prevalence": 0.008, "time_range": [1, 600]},
            "test": {"num_rows": 12_000, "num_positives": 120, "prevalence": np.float32(0.01), "time_range": None},
            "num_features": 3,
            "features": ("amount_log", "hour_sin", "type=TRANSFER"),
            "account_overlap": {
                "origin": {"num_accounts_on_both_sides": 3, "share_of_test_rows": 0.0021},
                "any": {"num_accounts_on_both_sides": 812, "share_of_test_rows": 0.31},
            },
            "one_rule": {"recall": 0.9744, "precision": float("nan")},
        },
        "versions": {"jax": "0.7.2", "numpy": "2.4.6", "python": "3.12.1"},
        "timings": {"compile_seconds": 1.61, "run_seconds": 3.52, "total_seconds": 6.04},
        "work": {"useful_steps": 100_000, "executed_steps": 104_000, "padded_steps": 4000, "rows_trained": 6_400_000},
        "devices": ["TFRT_CPU_0", "TFRT_CPU_1"],
        "model": {"num_params": MODEL_BYTES // 4, "description": "MLP 16-64-32-1"},
    }


def _partition(rng, alpha, seed, num_clients) -> pd.DataFrame:
    """One partition of 48,000 rows and 384 frauds."""
    strength = 5.0 if np.isnan(alpha) else alpha
    examples, positives = (
        rng.multinomial(total, rng.dirichlet(np.full(num_clients, strength) + 0.05)) for total in (48_000, 384)
    )
    examples = np.maximum(examples, positives)
    skew = rng.uniform(0, 0.3, num_clients)
    return pd.DataFrame(
        {
            "alpha": float(alpha),
            "seed": seed,
            "client": np.arange(num_clients),
            "num_examples": examples,
            "num_positives": positives,
            "prevalence": positives / np.maximum(examples, 1),
            "kl": skew,
            "tvd": skew / 2,
        }
    )


def _rounds(rng, setting, algorithm, alpha, seed, mu, num_clients, num_rounds, diverged) -> pd.DataFrame:
    """One setting's rounds: a curve that rises to a level which depends on alpha, algorithm and seed."""
    seed_effect = np.random.default_rng(seed).normal(0, 0.03)
    level = 0.35 + 0.08 * np.log10(1.0 if np.isnan(alpha) else alpha) + GAINS.get(algorithm, 0.0)
    level += seed_effect + rng.normal(0, 0.008)
    number = np.arange(1, num_rounds + 1) if algorithm != "local_only" else np.array([num_rounds])
    score = level * (1 - np.exp(-number / 2.5)) + rng.normal(0, 0.004, len(number))
    federated = algorithm in ALGORITHMS
    sent = np.int64(num_clients * MODEL_BYTES * (2 if algorithm == "scaffold" else 1) * federated)
    return pd.DataFrame(
        {
            "setting": setting,
            "algorithm": algorithm,
            "alpha": float(alpha),
            "seed": seed,
            "client_lr": 0.05,
            "mu": mu,
            "num_epochs": 1,
            "round": number,
            "average_precision": np.clip(score, 0.01, 1),
            "roc_auc": np.clip(0.8 + 0.3 * score, 0, 1),
            "log_loss": 0.15 - 0.15 * score,
            "num_participants": num_clients,
            "num_rejected": 0,
            "skipped": False,
            "bytes_down": sent,
            "bytes_up": sent,
            "delta_norm_mean": np.exp(-number / 4),
            "delta_norm_max": 1.5 * np.exp(-number / 4),
            "drift": 0.8 * np.exp(-number / 4) if federated else np.nan,
            "diverged": (algorithm, alpha, seed) in diverged,
        }
    )


def _banks(rng, setting, algorithm, alpha, seed, mu, partitions) -> pd.DataFrame:
    """One setting's banks; a bank without test frauds has no scores."""
    same = partitions["alpha"].eq(alpha) | (partitions["alpha"].isna() & np.isnan(alpha))
    owned = partitions[same & (partitions["seed"] == seed)]
    positives = owned["num_positives"].to_numpy() // 4
    score = np.clip(0.3 + GAINS.get(algorithm, 0.0) + rng.normal(0, 0.05, len(owned)), 0, 1)
    score[positives == 0] = np.nan
    return pd.DataFrame(
        {
            "setting": setting,
            "algorithm": algorithm,
            "alpha": float(alpha),
            "seed": seed,
            "client_lr": 0.05,
            "mu": mu,
            "num_epochs": 1,
            "client": owned["client"].to_numpy(),
            "num_train": owned["num_examples"].to_numpy(),
            "num_train_positives": owned["num_positives"].to_numpy(),
            "num_test": owned["num_examples"].to_numpy() // 4,
            "num_test_positives": positives,
            "average_precision": score,
            "roc_auc": 0.5 + score / 2,
            "log_loss": 0.1,
        }
    )


# ---- the folder -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result():
    """Three alphas, two values of mu, one diverged setting."""
    return fake_result(mus=(0.01, 0.1), diverged={("scaffold", 0.1, 3)})


@pytest.fixture(scope="module")
def text(result):
    """Its dossier."""
    return report.dossier(result)


@pytest.fixture(scope="module")
def small():
    """One alpha, two seeds."""
    return fake_result(alphas=(0.5,), num_seeds=2, num_rounds=2)


@pytest.fixture(scope="module")
def written(small, tmp_path_factory):
    """The paths of a report of it."""
    return report.write(small, tmp_path_factory.mktemp("written"))


def test_a_report_of_a_loaded_folder_is_the_same_byte_for_byte(written, tmp_path):
    again = report.write(report.load(written[0].parent), tmp_path)
    assert [path.name for path in again] == [path.name for path in written]
    assert [old.name for old, new in zip(written, again, strict=True) if old.read_bytes() != new.read_bytes()] == []


def test_the_manifest_is_strict_json_and_holds_the_digest_of_every_other_file(written):
    def fail(constant):
        raise AssertionError(constant)

    assert written[-1].name == "manifest.json"
    manifest = json.loads(written[-1].read_text(), parse_constant=fail)
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in written[:-1]}
    assert manifest["files"] == digests and manifest["data"]["one_rule"]["precision"] is None


def test_a_failure_on_the_way_leaves_the_tables_and_no_manifest(result, tmp_path):
    broken = result._replace(rounds=result.rounds.drop(columns="drift"))
    with pytest.raises(KeyError, match="drift"):
        report.write(broken, tmp_path)
    assert (tmp_path / "results.parquet").exists() and not (tmp_path / "manifest.json").exists()


def test_partitions_alone_are_written_from_one_table_or_several(result, tmp_path):
    parts = [part for _, part in result.partitions.groupby("alpha")]
    paths = report.write_partitions(parts, tmp_path)
    assert [path.name for path in paths] == ["partitions.csv", "partition.png"]
    assert len(pd.read_csv(paths[0])) == len(result.partitions)


# ---- the dossier ------------------------------------------------------------------------------------------------


def test_the_dossier_answers_with_intervals_and_says_what_they_cover(text):
    assert "FedProx is ahead of FedAvg at alpha 0.1 (+" in text and "Against a bank's own model" in text
    assert "do **not** cover the choice of the test rows" in text
    assert "step sum" in text and "not a trapezoid area" in text
    assert "For FedProx several hyperparameters were run" in text


def test_the_dossier_shows_prevalence_and_baselines_beside_the_scores(text):
    for table in text.split("### ")[1:4]:
        for row in ("| Centralised |", "| Local only |", "| Prevalence | 0.0100 |", "| 2x |"):
            assert row in table


def test_the_dossier_names_what_diverged(text):
    assert "1 of 72" in text and "SCAFFOLD at alpha 0.1, seed 3" in text


def test_the_dossier_reports_data_rule_and_overlap(text):
    assert "recall 0.9744" in text and "in 31.00 % of the test rows" in text and "ab" * 32 in text
    assert "`type=TRANSFER`" in text and '"participation": 1.0' in text


def test_a_paired_interval_that_holds_zero_is_called_not_distinguishable():
    rng = np.random.default_rng(5)
    result = fake_result(algorithms=("fedavg", "fedprox"))
    noise = rng.normal(0.3, 0.1, len(result.rounds))
    text = report.dossier(result._replace(rounds=result.rounds.assign(average_precision=noise)))
    assert "is not distinguishable from FedAvg" in text


@pytest.mark.parametrize("features", ["known_before", "all"])
def test_leaking_features_are_said_loudly_and_only_then(features):
    text = report.dossier(fake_result(alphas=(0.5,), num_seeds=2, features=features))
    assert ("WARNING" in text) == (features == "all")


def test_balances_among_the_features_are_said_loudly_by_name(small):
    data = small.manifest["data"] | {"features": ["log_newbalanceOrig"]}
    assert "WARNING" in report.dossier(small._replace(manifest=small.manifest | {"data": data}))


def test_one_seed_has_no_intervals():
    text = report.dossier(fake_result(alphas=(0.5,), num_seeds=1))
    assert "one seed, no interval" in text and "nan" not in text.lower()


def test_a_natural_partition_is_reported_without_alpha():
    text = report.dossier(fake_result(alphas=(float("nan"),)))
    assert "Partition without alpha" in text and "| none | FedProx (mu 0.01) |" in text and "nan" not in text


def test_without_baselines_the_dossier_says_so():
    text = report.dossier(fake_result(alphas=(0.5,), baselines=False))
    assert "Banks alone were not run" in text and "| Centralised |" not in text


def test_when_everything_diverged_no_score_is_invented():
    everything = {(name, 0.5, seed) for name in GAINS for seed in range(2)}
    result = fake_result(alphas=(0.5,), num_seeds=2, diverged=everything)
    text = report.dossier(result)
    assert "10 of 10" in text and "no usable pair" in text and "| FedAvg | — | — | — |" in text
    assert "-" in "".join(report.summary_lines(result))


def test_the_dossier_names_leaks_gaps_and_accounts_of_two_banks(small):
    leak = dict(column="chargeback", rule="chargeback = 1", recall=0.98, precision=1.0, is_feature=True)
    found = dict(
        suspected_leaks=[leak, leak | dict(rule="origin begins with CC", is_feature=False)],
        filled={"age": dict(train=1053, test=6, fill=39.5), "kind": dict(train=2, test=0, fill=None)},
        unseen_categories={"kind": 17},
        silo_crossings={"customer": {"num_accounts_in_two_silos": 42, "share_of_rows": 0.125}},
    )
    text = report.dossier(small._replace(manifest=small.manifest | {"data": small.manifest["data"] | found}))
    assert "`chargeback = 1` finds 98.0 % of the training frauds, and 100.0 % of what it finds is fraud.\n" in text
    assert "`origin begins with CC` finds 98.0 %" in text and "fraud. The column is no feature." in text
    assert "`age` 1,053 and 6, by 39.5; `kind` 2 and 0, a category of their own." in text
    assert "a category that no training row has: `kind` in 17 rows." in text
    assert "customer: 42 accounts, in 12.50 % of the rows." in text


def test_an_empty_manifest_does_not_stop_the_report(small):
    empty = small._replace(manifest={})
    assert "not recorded" in report.dossier(empty)
    figures.convergence(empty)


# ---- the terminal -----------------------------------------------------------------------------------------------


def test_the_terminal_table_fits_100_columns_in_ascii(result):
    lines = report.summary_lines(result)
    assert max(map(len, lines)) <= 100 and "\n".join(lines).isascii()
    rows = [line for line in lines if line.split("|")[0].strip() in ("", "0.1", "0.5", "1")]
    assert len(rows) == 3 * 7


def test_the_terminal_table_holds_intervals_differences_and_divergence(result):
    text = "\n".join(report.summary_lines(result))
    scaffold = next(line for line in text.splitlines() if "SCAFFOLD" in line)
    assert scaffold.endswith("1/4") and "[" in scaffold and "0.0100" in text and "[95 % interval]" in text


def test_the_terminal_shows_partitions(result):
    lines = report.partition_lines(result.partitions)
    assert max(map(len, lines)) <= 100 and "KL [nats]" in "\n".join(lines)


def test_lines_are_lines_in_a_notebook_too(result, monkeypatch):
    """There rich would show the table beside and write nothing."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert "FedAvg" in "\n".join(report.summary_lines(result))


def test_tables_are_printed(result, capsys):
    report.print_summary(result)
    report.print_partitions([result.partitions])
    assert "FedAvg" in capsys.readouterr().out


def test_a_target_that_a_random_ranking_reaches_is_called_so():
    result = fake_result(alphas=(0.5,), num_seeds=2)
    poor = result._replace(rounds=result.rounds.assign(average_precision=0.005))  # the prevalence is 0.01
    assert "no better than chance" in report.dossier(poor) and "no better than chance" not in report.dossier(result)
