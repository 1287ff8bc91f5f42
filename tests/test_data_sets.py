"""Published sets of several kinds load and split with the options that a user would write, and leak what they leak."""

import functools
import json
import warnings

import chex
import numpy as np
import pytest

from fedjax_fraud.data import describe_split, load_paysim, load_table, split

HEART = [
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach"),
    *("exang", "oldpeak", "slope", "ca", "thal", "num"),
]
HOSPITALS = tuple(f"heart_disease/processed.{name}.data" for name in ("cleveland", "hungarian", "switzerland", "va"))
paysim_all = functools.partial(load_paysim, features="all")
paysim_2 = functools.partial(
    load_table, label="isFraud", silo="bankOrig", time="step", hours_per_unit=1, amount="amount"
)
ulb = functools.partial(load_table, label="Class", time="Time", hours_per_unit=1 / 3600, amount="Amount")
handbook = functools.partial(
    load_table, label="TX_FRAUD", silo="TERMINAL_ID", silo_buckets=5, time="TX_DATETIME", amount="TX_AMOUNT"
)
COPIES_OF_TIME = ("TRANSACTION_ID", "TX_TIME_SECONDS", "TX_TIME_DAYS")
credit = functools.partial(
    load_table,
    label="default.payment.next.month",
    drop=["ID"],
    categories={"SEX": None, "EDUCATION": None, "MARRIAGE": None},
)
claims = functools.partial(load_table, label="FraudFound_P", drop=["PolicyNumber"])
heart = functools.partial(load_table, label="num", positive=[1, 2, 3, 4], columns=HEART)

# name -> files, how to load them, rows, frauds, banks, inputs after the split
CLEAN = {
    "PaySim 1": ("paysim_v1_sim_s1.csv.gz", load_paysim, 298_429, 403, 0, 12),
    "PaySim 1, all": ("paysim_v1_sim_s1.csv.gz", paysim_all, 298_429, 403, 0, 18),
    "PaySim, sample": ("paysim_kaggle_natural86k.csv.gz", load_paysim, 86_213, 111, 0, 12),
    "PaySim, types": ("paysim_kaggle_transfer_cashout_head.csv.gz", load_paysim, 37_586, 114, 0, 12),
    "cards of ULB": ("ulb_creditcard_sample.parquet", ulb, 8585, 492, 0, 31),
    "handbook": (
        "card_handbook_35d.parquet",
        functools.partial(handbook, drop=[*COPIES_OF_TIME, "TX_FRAUD_SCENARIO"], entity=["CUSTOMER_ID", "TERMINAL_ID"]),
        *(335_047, 2961, 5, 10),
    ),
    "credit default": ("credit_default_uci_30k.csv.gz", credit, 30_000, 6636, 0, 33),
    "claims": ("vehicle_claims_fraud_15k.csv.gz", claims, 15_420, 923, 0, None),
    "heart": (HOSPITALS, heart, 920, 509, 4, 23),
}


def read(shared_data, files, load):
    paths = shared_data / files if isinstance(files, str) else [shared_data / name for name in files]
    return load(paths)


@pytest.mark.shared
@pytest.mark.parametrize("name", CLEAN)
def test_a_published_set_loads_and_splits_without_a_warning(shared_data, name):
    files, load, num_rows, num_frauds, num_banks, num_inputs = CLEAN[name]
    table = read(shared_data, files, load)
    assert (table.labels.size, int(table.labels.sum())) == (num_rows, num_frauds)
    assert (0 if table.silo is None else np.unique(table.silo).size) == num_banks
    assert all(column.name in table.encoding.describe() for column in table.encoding.columns)
    train, test = split(table, "random" if table.time is None else "time")
    chex.assert_tree_all_finite((train.features, test.features))
    assert num_inputs in (None, train.features.shape[1]), train.names
    described = describe_split(train, test)
    assert described["suspected_leaks"] == []
    assert json.loads(json.dumps(described, allow_nan=False)) == described


@pytest.mark.shared
def test_the_gaps_of_the_hospitals_are_counted_and_get_inputs(shared_data):
    """The counts of `?` in the four files, as published."""
    table = read(shared_data, HOSPITALS, heart)
    missing = {column.name: column.missing for column in table.encoding.columns}
    expected = [0, 0, 0, 59, 30, 90, 2, 55, 55, 62, 309, 611, 486, 0]
    assert [missing[name] for name in HEART] == expected
    train, test = split(table, "random")
    filled = describe_split(train, test)["filled"]
    assert {name: one["train"] + one["test"] for name, one in filled.items()} == {
        name: count for name, count in missing.items() if count
    }
    assert {"ca is missing", "thal is missing"} <= set(train.names)
    assert sorted(np.unique(table.silo)) == [
        f"processed.{name}.data" for name in ("cleveland", "hungarian", "switzerland", "va")
    ]


@pytest.mark.shared
def test_paysim_2_gives_itself_away_by_its_balances_and_by_the_names_of_its_mules(shared_data):
    table = paysim_2(shared_data / "paysim_v2_accounts_s1.csv.gz", entity=["nameOrig", "nameDest"])
    assert (np.unique(table.silo).size, int(table.labels.sum())) == (5, 444)
    with pytest.warns(UserWarning, match="amount = oldBalanceOrig"):
        train, test = split(table)
    described = describe_split(train, test)
    leaks = {leak["rule"]: leak for leak in described["suspected_leaks"]}
    assert "nameOrig begins with CC" in leaks
    assert not leaks["nameOrig begins with CC"]["is_feature"]
    assert described["account_overlap"]["nameOrig"]["num_accounts_on_both_sides"] > 1000
    assert described["silo_crossings"]["nameOrig"]["num_accounts_in_two_silos"] == 0


@pytest.mark.shared
def test_the_scenario_of_the_handbook_is_found(shared_data):
    table = handbook(
        shared_data / "card_handbook_35d.parquet", drop=COPIES_OF_TIME, entity=["CUSTOMER_ID", "TERMINAL_ID"]
    )
    with pytest.warns(UserWarning, match=r"TX_FRAUD_SCENARIO = 1 or 2 or 3 \(recall 1.000, precision 1.000\)"):
        train, test = split(table)
    assert [leak["column"] for leak in describe_split(train, test)["suspected_leaks"]] == ["TX_FRAUD_SCENARIO"]


@pytest.mark.shared
def test_the_handbook_is_told_which_columns_are_numbers_of_rows_or_copies_of_time(shared_data):
    with pytest.warns(UserWarning) as caught:
        handbook(shared_data / "card_handbook_35d.parquet")
    said = " ".join(str(one.message) for one in caught)
    assert all(f"`{name}`" in said for name in (*COPIES_OF_TIME, "CUSTOMER_ID"))
    assert "`TX_AMOUNT`" not in said


@pytest.mark.shared
def test_the_balances_of_paysim_leak_as_a_table(shared_data):
    """The published rule: amount = oldbalanceOrg finds 97.6 % of the frauds of the whole file and nothing else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        table = load_table(
            shared_data / "paysim_kaggle_natural86k.csv.gz", "isFraud", time="step", entity=["nameOrig", "nameDest"]
        )
        train, test = split(table, "random")
    leaks = {leak["rule"]: leak for leak in describe_split(train, test)["suspected_leaks"]}
    rule = leaks["amount = oldbalanceOrg, not 0"]
    assert rule["recall"] > 0.95 and rule["precision"] == 1.0
