"""Tables of banks: hand-worked values, and what is left out being counted."""

import pandas as pd
import pytest

from fedjax_fraud.report import bank_tables

NAN = float("nan")


def banks_of(scores: dict[str, list], num_train=(10, 30)) -> pd.DataFrame:
    """Two banks in one seed, with a score for each algorithm and bank; the second bank is the larger."""
    rows = [
        {
            **dict(setting=number, algorithm=algorithm, alpha=0.1, seed=0, client_lr=0.1, mu=NAN, num_epochs=1),
            **dict(client=client, num_train=num_train[client], num_train_positives=client, num_test=5),
            **dict(num_test_positives=1, average_precision=score, roc_auc=0.5, log_loss=0.1),
        }
        for number, (algorithm, each) in enumerate(scores.items())
        for client, score in enumerate(each)
    ]
    return pd.DataFrame(rows)


def test_banks_are_ranked_by_size_and_compared_with_their_own_model():
    table = bank_tables.bank_table(banks_of({"fedavg": [0.5, 0.25], "local_only": [0.25, 0.5]}))
    fedavg = table[table.algorithm == "fedavg"]
    assert list(fedavg.bank_rank) == [1, 2] and list(fedavg.num_train) == [30, 10]
    assert list(fedavg.difference) == [-0.25, 0.25] and list(fedavg.wins) == [0, 1]


def test_banks_without_a_score_are_counted_and_not_zero():
    row = bank_tables.bank_summary(banks_of({"fedavg": [NAN, 1.0], "local_only": [NAN, 0.5]})).iloc[0]
    assert row.average_precision == 1.0 and (row.num_defined, row.num_banks) == (1, 2)
    assert (row.num_better, row.num_compared) == (1, 1)


def test_a_bank_whose_test_rows_are_all_frauds_has_no_score():
    banks = banks_of({"fedavg": [1.0, 0.5]}).assign(num_test_positives=[5, 1])
    row = bank_tables.bank_summary(banks).iloc[0]
    assert row.average_precision == 0.5 and (row.num_defined, row.num_banks) == (1, 2)


def test_banks_of_diverged_settings_are_left_out():
    table = bank_tables.bank_summary(banks_of({"fedavg": [0.5, 0.5], "scaffold": [0.1, 0.1]}), diverged=[1])
    assert list(table.algorithm) == ["fedavg"] and table.num_compared[0] == 0


def test_partition_table_counts_banks_without_fraud_and_without_rows():
    frame = pd.DataFrame(dict(alpha=NAN, seed=0, client=[0, 1, 2], num_examples=[10, 5, 0], num_positives=[3, 0, 0]))
    row = bank_tables.partition_table(frame.assign(prevalence=0.1, kl=[0.1, 0.2, 0.3], tvd=0.0)).iloc[0]
    assert (row.num_without_fraud, row.num_empty, row.num_banks) == (1, 1, 3)
    assert (row.num_examples, row.num_examples_min, row.num_examples_max) == (5.0, 0, 10)
    assert row.kl == pytest.approx(0.2)
