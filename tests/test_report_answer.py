"""The answer: each verdict is that of its interval, and what limits it stands beside it."""

import pandas as pd
import pytest

from fedjax_fraud import report
from fedjax_fraud.report import answer, case
from tests.test_report import FakeResult, fake_result

NAN = float("nan")


def text_of(result: FakeResult) -> str:
    return answer.answer(case.case_of(result))


def with_scores(result: FakeResult, of_row) -> FakeResult:
    """Another average precision in every round: ``of_row`` of its setting."""
    rows = result.rounds.to_dict("records")
    return result._replace(rounds=result.rounds.assign(average_precision=[of_row(row) for row in rows]))


@pytest.fixture(scope="module")
def result():
    """FedProx ahead at 0.1 and behind at 1; SCAFFOLD once ahead, once behind."""
    made = fake_result(alphas=(0.1, 1.0))
    wobble = {0: 0.05, 1: -0.05, 2: 0.04, 3: -0.045}

    def of_row(row):
        base = 0.4 + 0.001 * row["seed"]
        if row["algorithm"] == "fedprox":
            return base + (0.1 if row["alpha"] < 0.5 else -0.1) + 0.001 * row["seed"]
        if row["algorithm"] == "scaffold":
            return base + wobble[row["seed"]]
        return base + {"fedavg": 0.0, "centralised": 0.2, "local_only": 0.2}[row["algorithm"]] + 0.0001 * row["setting"]

    return with_scores(made, of_row)


def test_the_first_sentence_sorts_cases_by_verdict_and_shows_what_is_decided(result):
    lead = text_of(result).split("\n\n")[1]
    first, second = lead.split(". ", 1)
    assert "FedProx is ahead of FedAvg at alpha 0.1 (+0.101 [" in first
    assert "and behind FedAvg at alpha 1 (-0.099 [" in first
    assert first.endswith("SCAFFOLD is not distinguishable from FedAvg at alpha 0.1 and 1")
    assert second.startswith("Against a bank's own model on the same rows, FedAvg is worse at alpha 0.1 (-0.2")


def test_the_table_holds_every_interval_also_those_that_decide_nothing(result):
    text = text_of(result)
    table = report.paired_differences(result.rounds)
    for row in table[~table["algorithm"].isin(["centralised", "local_only"])].to_dict("records"):
        bounds = f"[{row['difference_low']:+.3f}, {row['difference_high']:+.3f}]"
        assert f"{row['difference']:+.3f} {bounds}" in text
    assert "| alpha | FedProx minus FedAvg | SCAFFOLD minus FedAvg | FedAvg minus a bank's own model |" in text


def test_a_pair_that_diverged_is_counted_in_its_cell_and_named_first():
    diverged = {("scaffold", 0.1, 3), ("scaffold", 0.1, 1)}
    text = text_of(fake_result(alphas=(0.1,), diverged=diverged))
    assert "(2 of 4 seeds)" in text
    cautions = [line for line in text.splitlines() if line.startswith("- ")]
    assert cautions[0] == "- Diverged, and so in no mean and no pair: SCAFFOLD in 2 of 4 runs at alpha 0.1."


@pytest.mark.parametrize(("score", "said"), [(0.0099, True), (0.002, True), (0.3, False)])
def test_a_model_that_ranks_no_better_than_chance_is_called_so(score, said):
    """The made-up test rows have a prevalence of 0.01."""
    result = fake_result(alphas=(0.5,), baselines=False)
    result = with_scores(result, lambda row: score if row["algorithm"] == "scaffold" else 0.5 + 0.01 * row["seed"])
    text = text_of(result)
    words = "(PR-AUC with its interval not above the prevalence 0.0100): SCAFFOLD at alpha 0.5."
    assert (words in text) == said and ("random ranking" in text) == said
    printed = " ".join(report.summary_lines(result))
    assert ("not above the prevalence" in printed) == said


def test_a_single_seed_at_the_prevalence_is_no_better_than_chance_either():
    result = fake_result(alphas=(0.5,), num_seeds=1)
    assert "random ranking" in text_of(with_scores(result, lambda row: 0.0099))


def test_a_natural_partition_has_no_alpha_in_the_sentences():
    result = fake_result(alphas=(NAN,))
    lead = text_of(result).split("\n\n")[1]
    assert "alpha" not in lead and "none" not in lead and "FedProx is ahead of FedAvg (+" in lead


def test_cases_of_several_conditions_are_told_apart():
    result = fake_result(alphas=(0.5,), algorithms=("fedavg", "fedprox"), baselines=False)
    result = with_scores(result, lambda row: 0.3 + 0.1 * (row["algorithm"] == "fedprox") + 0.01 * row["seed"])
    slow = result.rounds.assign(stragglers=0.5, setting=result.rounds["setting"] + 1000)
    both = pd.concat([result.rounds.assign(stragglers=0.0), slow], ignore_index=True)
    lead = text_of(result._replace(rounds=both)).split("\n\n")[1]
    assert "at alpha 0.5, 0% stragglers (+0.100" in lead and "and alpha 0.5, 50% stragglers (+0.100" in lead


def test_one_federated_algorithm_is_ahead_of_nobody():
    text = text_of(fake_result(algorithms=("fedprox",)))
    assert "There is no FedAvg with another federated algorithm" in text
    assert "Against a bank's own model on the same rows, FedProx is" in text
