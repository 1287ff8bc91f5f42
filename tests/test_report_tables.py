"""Tables: hand-worked values, and what is left out being counted."""

import numpy as np
import pandas as pd
import pytest

from fedjax_fraud.report import tables
from tests.test_report import fake_result

NAN = float("nan")


def rounds_of(*settings, num_rounds=1) -> pd.DataFrame:
    """Rounds with the given last scores; a setting is a dict of what differs from FedAvg at alpha 0.1, seed 0."""
    frames = []
    for number, changes in enumerate(settings):
        scores = np.broadcast_to(changes.get("scores", changes.get("average_precision", 0.5)), num_rounds)
        row = {
            **dict(setting=number, algorithm="fedavg", alpha=0.1, seed=0, client_lr=0.1, mu=NAN),
            **dict(num_epochs=1, roc_auc=0.9, log_loss=0.1, num_participants=2, num_rejected=0, skipped=False),
            **dict(bytes_down=1000, bytes_up=500, delta_norm_mean=1.0, delta_norm_max=2.0, drift=0.5, diverged=False),
        }
        row |= {name: value for name, value in changes.items() if name != "scores"}
        frame = pd.DataFrame([row] * num_rounds)
        frames.append(frame.assign(round=np.arange(1, num_rounds + 1), average_precision=scores))
    return pd.concat(frames, ignore_index=True)


# ---- summary ----------------------------------------------------------------------------------------------------


def test_summary_takes_the_last_round_and_adds_up_the_bytes():
    row = tables.summarise(rounds_of({"scores": [0.1, 0.2, 0.4]}, num_rounds=3)).iloc[0]
    assert (row.average_precision, row.num_rounds, row.num_seeds) == (0.4, 3, 1)
    assert (row.mb_down, row.mb_up, row.mb_total) == (0.003, 0.0015, 0.0045)
    assert np.isnan(row.average_precision_low)


def test_summary_does_not_depend_on_the_order_of_the_rows():
    rounds = fake_result(num_seeds=2).rounds
    shuffled = rounds.sample(frac=1, random_state=np.random.RandomState(3))
    pd.testing.assert_frame_equal(tables.summarise(rounds), tables.summarise(shuffled))


def test_summary_leaves_diverged_settings_out_and_counts_them():
    settings = [dict(seed=seed, average_precision=score) for seed, score in enumerate([0.2, 0.4, 0.0])]
    settings[2] |= dict(diverged=True, log_loss=np.inf)
    row = tables.summarise(rounds_of(*settings)).iloc[0]
    assert row.average_precision == pytest.approx(0.3) and row.log_loss == pytest.approx(0.1)
    assert (row.num_seeds, row.num_diverged, row.num_used) == (3, 1, 2)


def test_summary_of_nothing_but_divergence_is_undefined():
    row = tables.summarise(rounds_of(dict(diverged=True), dict(diverged=True, seed=1))).iloc[0]
    assert np.isnan(row.average_precision) and (row.num_diverged, row.num_used) == (2, 0)


def test_summary_keeps_settings_without_alpha_and_without_mu():
    table = tables.summarise(rounds_of(dict(alpha=NAN), dict(alpha=NAN, algorithm="fedprox", mu=0.01)))
    assert list(table.algorithm) == ["fedavg", "fedprox"] and table.alpha.isna().all()


def test_summary_has_a_row_for_each_choice_of_hyperparameters():
    rounds = rounds_of(dict(client_lr=0.1), dict(client_lr=0.2), dict(algorithm="fedprox", mu=0.0, num_epochs=2))
    assert len(tables.summarise(rounds)) == 3


def test_relative_megabytes_are_the_exact_ratio_of_bytes():
    twice = dict(algorithm="scaffold", bytes_down=2000, bytes_up=1000)
    table = tables.summarise(rounds_of({}, dict(seed=1), twice, twice | dict(seed=1), num_rounds=7))
    assert list(table.relative_mb) == [1.0, 2.0]


def test_relative_megabytes_without_fedavg_are_undefined():
    assert np.isnan(tables.summarise(rounds_of(dict(algorithm="scaffold"))).relative_mb[0])


def test_drift_leaves_skipped_rounds_out():
    rounds = rounds_of({}, num_rounds=2).assign(drift=[0.5, 0.0], skipped=[False, True])
    final = tables.final_rounds(rounds)
    assert (final.drift[0], final.num_skipped[0]) == (0.5, 1)


def test_algorithms_stand_in_the_usual_order_and_baselines_last():
    names = ["local_only", "centralised", "ditto", "scaffold", "fedprox", "fedavg"]
    table = tables.summarise(rounds_of(*(dict(algorithm=name) for name in names)))
    assert list(table.algorithm) == ["fedavg", "fedprox", "scaffold", "ditto", "centralised", "local_only"]


@pytest.mark.parametrize("alpha", [NAN, 0.1])
def test_a_centralised_setting_stands_for_every_alpha(alpha):
    """Whether the sweep repeats the setting for each alpha under one number, or gives it once without alpha."""
    federated = [dict(alpha=0.1), dict(alpha=0.5)]
    rounds = rounds_of(*federated, dict(algorithm="centralised", alpha=alpha, bytes_down=0, bytes_up=0), num_rounds=2)
    if alpha == 0.1:
        rounds = pd.concat([rounds, rounds[rounds.algorithm == "centralised"].assign(alpha=0.5)], ignore_index=True)
    table = tables.summarise(rounds)
    assert list(table[table.algorithm == "centralised"].alpha) == [0.1, 0.5]
    assert list(tables.paired_differences(rounds).num_pairs) == [1, 1]


def test_settings_that_nothing_tells_apart_are_refused():
    with pytest.raises(ValueError, match="count as further seeds"):
        tables.summarise(rounds_of({}, {}))


# ---- pairs ------------------------------------------------------------------------------------------------------


def paired_rounds(**changes) -> pd.DataFrame:
    """FedAvg 0.2, 0.4, 0.6 and FedProx 0.3, 0.6, 0.5 at seeds 0, 1, 2."""
    fedavg = [dict(seed=seed, average_precision=score) for seed, score in enumerate([0.2, 0.4, 0.6])]
    fedprox = [dict(seed=seed, average_precision=score) for seed, score in enumerate([0.3, 0.6, 0.5])]
    fedprox = [setting | dict(algorithm="fedprox", mu=0.01) for setting in fedprox]
    fedprox[2] |= changes
    return rounds_of(*fedavg, *fedprox)


def test_paired_difference_is_worked_by_hand():
    row = tables.paired_differences(paired_rounds()).iloc[0]
    # Differences 0.1, 0.2, -0.1: mean 1/15, s = 0.152753, half width 4.302653 * s / sqrt(3) = 0.379459.
    np.testing.assert_allclose(
        [row.difference, row.difference_low, row.difference_high], [1 / 15, -0.312792, 0.446126], rtol=1e-5
    )
    assert (row.num_pairs, row.wins, row.num_excluded, row.num_unpaired) == (3, 2, 0, 0)


@pytest.mark.parametrize("changes", [dict(diverged=True), dict(average_precision=NAN)])
def test_a_pair_with_a_diverged_or_undefined_side_is_left_out_and_counted(changes):
    row = tables.paired_differences(paired_rounds(**changes)).iloc[0]
    assert row.difference == pytest.approx(0.15) and (row.num_pairs, row.wins, row.num_excluded) == (2, 2, 1)


def test_a_pair_whose_reference_diverged_is_left_out():
    rounds = paired_rounds()
    rounds.loc[rounds.setting == 1, "diverged"] = True
    row = tables.paired_differences(rounds).iloc[0]
    assert row.difference == pytest.approx(0.0) and (row.num_pairs, row.num_excluded) == (2, 1)


def test_settings_without_a_partner_are_counted():
    row = tables.paired_differences(paired_rounds(client_lr=0.5)).query("client_lr == 0.5").iloc[0]
    assert np.isnan(row.difference) and (row.num_pairs, row.num_unpaired) == (0, 1)


def test_pairs_of_a_partition_without_alpha_are_found():
    row = tables.paired_differences(paired_rounds().assign(alpha=NAN)).iloc[0]
    assert row.num_pairs == 3 and np.isnan(row.alpha)


def test_a_lower_loss_wins():
    rounds = paired_rounds().assign(log_loss=[0.2, 0.2, 0.2, 0.1, 0.3, 0.1])
    assert tables.paired_differences(rounds, metric="log_loss").wins[0] == 2


def test_baselines_have_differences_and_may_be_the_reference():
    rounds = fake_result(num_seeds=3).rounds
    assert {"centralised", "local_only"} <= set(tables.paired_differences(rounds).algorithm)
    against_local = tables.paired_differences(rounds, reference="local_only")
    assert "local_only" not in set(against_local.algorithm) and (against_local.difference > 0).all()


def test_without_the_reference_there_are_no_differences():
    table = tables.paired_differences(rounds_of(dict(algorithm="scaffold")))
    assert table.empty and "difference" in table.columns


def test_an_ambiguous_reference_is_refused():
    rounds = rounds_of({}, dict(algorithm="fedprox", mu=0.1), dict(algorithm="fedprox", mu=0.2))
    with pytest.raises(ValueError, match="ambiguous"):
        tables.paired_differences(rounds, reference="fedprox")


def test_an_unknown_metric_is_refused():
    with pytest.raises(ValueError, match="`metric` must be one of"):
        tables.paired_differences(paired_rounds(), metric="f1")


# ---- best, target -----------------------------------------------------------------------------------------------


def test_best_settings_take_the_highest_mean():
    rounds = rounds_of(*(dict(client_lr=lr, average_precision=lr) for lr in (0.1, 0.3, 0.2)))
    assert list(tables.best_settings(rounds).client_lr) == [0.3]
    assert tables.num_choices(rounds) == {"fedavg": 3}


def test_a_choice_that_survives_one_seed_in_two_does_not_win():
    wild = [dict(client_lr=9.0, seed=seed, average_precision=0.9, diverged=seed > 0) for seed in range(2)]
    tame = [dict(client_lr=0.1, seed=seed, average_precision=0.5) for seed in range(2)]
    assert set(tables.best_settings(rounds_of(*wild, *tame)).client_lr) == {0.1}


def test_cost_to_target_is_worked_by_hand():
    scores = ([0.1, 0.5, 1.0], [0.96, 0.2, 1.0])  # final mean 1.0, target 0.95: reached in rounds 3 and 1
    fedavg = [dict(seed=seed, scores=score) for seed, score in enumerate(scores)]
    slow = [dict(algorithm="scaffold", seed=seed, scores=[0.1, 0.2, last]) for seed, last in enumerate([0.3, 0.97])]
    never = [dict(algorithm="ditto", seed=seed, scores=[0.1, 0.2, 0.3]) for seed in range(2)]
    table = tables.cost_to_target(rounds_of(*fedavg, *slow, *never, num_rounds=3)).set_index("algorithm")
    assert list(table.num_reached) == [2, 1, 0] and set(table.target) == {0.95}
    assert list(table.rounds_to_target) == [1.0, 3.0, np.inf]
    assert list(table.mb_to_target) == [0.0015, 0.0045, np.inf]


def test_a_diverged_setting_never_reaches_the_target():
    rounds = rounds_of({}, dict(seed=1, diverged=True), dict(seed=2, diverged=True))
    assert (tables.cost_to_target(rounds).num_reached[0], tables.cost_to_target(rounds).num_seeds[0]) == (1, 3)


def test_without_fedavg_there_is_no_target():
    assert tables.cost_to_target(rounds_of(dict(algorithm="scaffold"))).empty


# ---- settings that never trained --------------------------------------------------------------------------------


def test_an_idle_setting_is_counted_and_left_out_of_means_pairs_and_targets():
    """All of its rounds were skipped, so its scores are the untrained model's; one trained round is enough to count."""
    rounds = rounds_of(
        dict(seed=0, average_precision=0.4),
        dict(seed=1, average_precision=0.9, skipped=True),
        dict(algorithm="scaffold", seed=0, average_precision=0.5),
        dict(algorithm="scaffold", seed=1, average_precision=0.9, skipped=True),
        num_rounds=2,
    )
    table = tables.summarise(rounds).set_index("algorithm")
    assert list(table.num_idle) == [1, 1] and list(table.num_used) == [1, 1] and list(table.num_diverged) == [0, 0]
    assert list(table.average_precision) == [0.4, 0.5]
    pairs = tables.paired_differences(rounds)
    assert pairs.num_pairs.item() == 1 and pairs.num_excluded.item() == 1
    reached = tables.cost_to_target(rounds).set_index("algorithm")
    assert list(reached.num_reached) == [1, 1]
    late = rounds_of(dict(average_precision=0.4), num_rounds=3).assign(skipped=[True, True, False])
    assert tables.summarise(late).num_idle.item() == 0
    assert tables.cost_to_target(late).rounds_to_target.item() == 3


def test_diverged_settings_are_named():
    table = tables.diverged_settings(rounds_of({}, dict(algorithm="scaffold", diverged=True, seed=7), num_rounds=2))
    assert table[["setting", "algorithm", "seed"]].to_numpy().tolist() == [[1, "scaffold", 7]]
