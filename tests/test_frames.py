"""Tidy tables from history arrays made by hand."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from fedjax_fraud import frames, grid, models
from fedjax_fraud.grid import CENTRALISED, LOCAL_ONLY, Federation
from fedjax_fraud.program import History
from fedjax_fraud.types import Model, Transactions

NAN = math.nan


def make_grid(alphas=(0.1, 1.0), kind="labels"):
    labels = (np.arange(40) % 4 == 0).astype(np.int32)
    table = Transactions(np.zeros((40, 1), np.float32), labels, ("a",))
    made = grid.make_grid(
        table,
        table,
        algorithms=["fedavg"],
        alphas=list(alphas),
        seeds=[0],
        num_clients=2,
        client_lrs=[0.1],
        mus=[0.0],
        num_epochs=[1],
        partition_kind=kind,
        partition_feature="amount",
        baselines=True,
    )
    return table, made


def history(num_rounds, num, **changes):
    """``log_loss[t, f] = t + f / 10`` and the like, for rounds 0 to ``num_rounds``."""
    values = np.arange(num_rounds + 1)[:, None] + np.arange(num) / 10
    made = History(*(values.copy() for _ in History._fields))
    counts = dict.fromkeys(("num_started", "num_participants"), np.full((num_rounds + 1, num), 2))
    counts |= dict.fromkeys(("num_faulty", "num_silent"), np.zeros((num_rounds + 1, num), int))
    return made._replace(**(counts | changes))


@pytest.mark.parametrize("hidden, num_params", [((), 6), ((4,), 4 * 5 + 4 + 4 + 1), ((4, 3), 24 + 15 + 4)])
def test_the_size_of_a_model_is_counted_from_its_shapes(hidden, num_params):
    model = models.mlp(5, hidden)
    assert frames.model_size(model) == (num_params, 4 * num_params)


def test_the_bytes_of_a_model_follow_its_dtype():
    model = Model(lambda key: {"a": jnp.zeros((3, 2), jnp.bfloat16), "b": jnp.zeros(5)}, lambda params, x: x[:, 0])
    assert frames.model_size(model) == (11, 6 * 2 + 5 * 4)


def test_a_run_has_diverged_if_a_loss_on_the_way_was_beyond_return():
    """As of a network whose units have all died: its last loss is a constant's. Rounds that are not scored are NaN."""
    nan, inf = np.nan, np.inf
    losses = np.array([[0.7, 0.7, 0.7, 0.7], [690.0, 710.0, inf, nan], [0.6, 0.6, 0.6, 0.6]])
    assert frames.has_diverged(losses).tolist() == [False, True, True, False]


def test_a_run_has_diverged_if_its_last_loss_is_lost_or_three_times_the_first():
    first = np.full(6, 0.5)
    last = np.array([0.1, 1.5, 1.6, np.nan, np.inf, -np.inf])
    losses = np.stack([first, np.full(6, np.nan), last])
    assert frames.has_diverged(losses).tolist() == [False, False, True, True, True, True]


def test_a_round_table_has_a_row_for_each_setting_and_round_and_knows_its_costs():
    _, made = make_grid()
    federations = [
        Federation("fedavg", 0.1, 0, 0.1, NAN, 1),
        Federation("scaffold", 1.0, 0, 0.1, NAN, 1),
        Federation(CENTRALISED, NAN, 0, 0.1, NAN, 1),
    ]
    table = frames.round_table(made, federations, history(3, 3), 3, 100, 7)
    assert len(table) == 3 * 4  # the centralised run once for each alpha
    assert not table.duplicated(["setting", "alpha", "round"]).any()
    for f, federation in enumerate(federations):
        rows = table[table.setting == 7 + f]
        assert set(rows.algorithm) == {federation.algorithm}
        np.testing.assert_allclose(rows.log_loss, rows["round"] + f / 10)
        wanted = {"fedavg": 200, "scaffold": 400, CENTRALISED: 0}[federation.algorithm]
        assert (rows.bytes_up == wanted).all() and (rows.bytes_down == wanted).all()
    assert set(table[table.algorithm == CENTRALISED].alpha) == {0.1, 1.0}
    assert "bank" not in table


def test_large_byte_counts_do_not_overflow():
    """Three clients and 2**30 bytes are beyond int32."""
    _, made = make_grid()
    federations = [Federation("scaffold", 0.1, 0, 0.1, NAN, 1)]
    many = np.full((2, 1), 3, np.int32)
    table = frames.round_table(made, federations, history(1, 1)._replace(num_participants=many), 1, 2**30, 0)
    assert table.bytes_up.item() == 6 * 2**30


def test_without_alpha_the_centralised_run_stands_once():
    _, made = make_grid(kind="iid")
    table = frames.round_table(made, made.centralised, history(2, 1), 2, 4, 0)
    assert len(table) == 2
    assert table.alpha.isna().all()


def test_banks_alone_are_averaged_over_those_with_rows():
    keys = dict(algorithm=LOCAL_ONLY, alpha=0.1, client_lr=0.1, mu=NAN, num_epochs=1)
    banks = [Federation(seed=seed, bank=bank, **keys) for seed in (0, 1) for bank in range(3)]
    made = history(2, 6)
    made.num_rows[-1] = [10, 0, 30, 5, 5, 5]
    made.log_loss[0], made.log_loss[-1] = 0.7, [1.0, 50.0, 2.0, 3.0, 4.0, 5.0]
    made.average_precision[-1] = [0.2, 0.9, 0.4, 0.1, 0.1, 0.7]
    table = frames.local_table(banks, made, 2, 11)
    assert table.setting.tolist() == [11, 12]
    assert table.seed.tolist() == [0, 1]
    np.testing.assert_allclose(table.log_loss, [1.5, 4.0])
    np.testing.assert_allclose(table.average_precision, [0.3, 0.3])
    assert table.num_rows.tolist() == [40, 15]
    assert table.num_participants.tolist() == [4, 6]
    assert table.diverged.tolist() == [False, True]  # all of its banks, not only some
    assert table["round"].tolist() == [2, 2]
    assert (table[["bytes_up", "bytes_down"]] == 0).all(axis=None)
    assert table.drift.isna().all()


def test_the_partition_table_accounts_for_every_row():
    table, made = make_grid()
    described = frames.partition_table(made, table)
    assert len(described) == 2 * 2
    sums = described.groupby(["alpha", "seed"])[["num_examples", "num_positives"]].sum()
    assert (sums.num_examples == 40).all() and (sums.num_positives == 10).all()


def test_a_run_whose_last_updates_were_all_rejected_has_stopped_and_one_without_participants_has_not():
    made = history(1, 3)
    made.num_rejected[-1] = [2, 1, 0]
    made.num_participants[-1] = [2, 2, 0]
    np.testing.assert_array_equal(frames.all_rejected(made), [True, False, False])


def test_rejected_faults_are_no_divergence_and_rejected_honest_updates_are():
    """Columns: all honest and rejected; all faulty; a duplicate of each; one honest accepted; nobody came."""
    made = history(1, 5)
    counts = dict(num_participants=[3, 3, 3, 3, 0], num_rejected=[3, 3, 3, 2, 0], num_faulty=[0, 3, 3, 1, 0])
    counts = {name: np.tile(values, (2, 1)) for name, values in counts.items()}
    made = made._replace(**counts, num_silent=np.zeros((2, 5), int))
    assert frames.all_rejected(made).tolist() == [True, False, False, False, False]
