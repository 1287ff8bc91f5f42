"""The privacy section: the smallest and the largest epsilon of any bank, and nothing where nothing is private."""

import numpy as np

from fedjax_fraud.report import case, privacy
from tests.test_report import fake_result


def with_noise():
    result = fake_result(alphas=(0.1, 1.0), num_seeds=2)
    private = ~result.banks["algorithm"].isin(["centralised", "local_only"])
    noise = np.where(private, 1.5, 0.0)
    spent = np.where(private, 1000.0 / (1 + result.banks["num_train"]), np.nan)
    federated = ~result.rounds["algorithm"].isin(["centralised", "local_only"])
    rounds = result.rounds.assign(noise_multiplier=np.where(federated, 1.5, 0.0), clip_norm=0.5)
    banks = result.banks.assign(noise_multiplier=noise, clip_norm=0.5, epsilon=spent)
    return result._replace(rounds=rounds, banks=banks, manifest=result.manifest | {"privacy": {"delta": 1e-7}})


def test_the_table_holds_the_extremes_of_all_banks_and_seeds():
    result = with_noise()
    made = case.case_of(result)
    table = privacy.epsilon_table(made.banks)
    assert table["alpha"].tolist() == [0.1, 1.0]
    for row in table.to_dict("records"):
        banks = result.banks[(result.banks["alpha"] == row["alpha"]) & (result.banks["num_train"] > 0)]
        assert (row["least"], row["most"]) == (banks["epsilon"].min(), banks["epsilon"].max())
        largest = banks[banks["algorithm"] == "fedavg"].sort_values("num_train").groupby("seed")["epsilon"].last()
        assert np.isclose(row["largest_bank"], largest.mean())
    assert "At delta 1e-07" in privacy.privacy_section(made)


def test_there_is_no_section_where_nothing_is_private():
    assert privacy.privacy_section(case.case_of(fake_result(alphas=(0.5,), num_seeds=1))) == ""
