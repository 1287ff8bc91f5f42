"""Unfinished runs are kept whole, refused when damaged or foreign, and go on to the same bits."""

import json

import chex
import jax
import numpy as np
import pandas as pd
import pytest

from fedjax_fraud import checkpoint
from fedjax_fraud.checkpoint import Checkpoint, Progress
from tests.test_sweep import LINEAR, RATE, run_sweep

IDENTITY = dict(seeds=[0, 1], alphas=[0.1], rows_sha256="ab")
STATE = {"server": (np.arange(3, dtype=np.float32), np.zeros((2, 0))), "clients": np.array([[np.nan, 1]])}
HISTORY = {"loss": np.arange(4.0).reshape(2, 2), "skipped": np.array([True, False])}
KEPT = Progress(7, STATE, HISTORY, 1.25)
LIKE = Progress(0, {"server": (0, 0), "clients": 0}, {"loss": 0, "skipped": 0}, 0.0)


@pytest.fixture
def kept(tmp_path):
    folder = tmp_path / "kept"
    made = Checkpoint(folder, IDENTITY, resume=False)
    made.save("one", KEPT)
    return made


def again(kept, **changes):
    return Checkpoint(kept.folder, IDENTITY | changes, resume=True)


def test_what_was_saved_comes_back_to_the_bit(kept):
    found = again(kept).load("one", LIKE)
    assert found.next_round == 7 and found.run_seconds == 1.25
    chex.assert_trees_all_equal(found.state, STATE, strict=True)
    chex.assert_trees_all_equal(found.history, HISTORY, strict=True)
    assert again(kept).load("other", LIKE) is None


def test_a_later_save_replaces_the_earlier_one_and_leaves_nothing_else(kept):
    kept.save("one", KEPT._replace(next_round=9))
    assert again(kept).load("one", LIKE).next_round == 9
    assert sorted(path.name for path in kept.folder.iterdir()) == ["identity.json", "one.safetensors"]


def test_saving_waits_for_its_time(kept, monkeypatch):
    now = kept._last_save
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now + 1.9)
    assert not kept.is_due()
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now + 2.1)
    assert kept.is_due()
    kept._cost = 0.2
    assert not kept.is_due()  # 0.2 s is more than a twentieth of 2.1 s


def test_another_run_is_refused_and_what_differs_is_said(kept):
    with pytest.raises(ValueError, match=r"`resume`.*alphas: \[0.1\] then, \[0.5\] now; mu: null then, \[1\] now"):
        again(kept, alphas=[0.5], mu=[1])
    with pytest.raises(ValueError, match=r"rows_sha256.*The data are other rows than the unfinished run's: give"):
        again(kept, rows_sha256="cd")
    with pytest.raises(ValueError) as caught:
        again(kept, alphas=[0.5])
    assert "other rows" not in str(caught.value)


def test_what_a_killed_process_left_half_written_is_removed_on_resume(kept):
    left = kept.folder / ".one.safetensors.0123abcd.tmp"
    left.write_bytes(b"half")
    with pytest.raises(ValueError, match="different"):
        again(kept, alphas=[0.5])
    assert left.exists()  # a run that is refused touches nothing
    assert again(kept).load("one", LIKE).next_round == 7
    assert not left.exists()


def test_a_folder_in_which_a_process_was_killed_at_once_holds_no_run(kept, tmp_path):
    folder = tmp_path / "new"
    assert not checkpoint.holds_run(folder) and not checkpoint.is_stillborn(folder)
    folder.mkdir()
    (folder / ".identity.json.0123abcd.tmp").write_bytes(b"{")
    assert not checkpoint.holds_run(folder) and checkpoint.is_stillborn(folder)
    Checkpoint(folder, IDENTITY, resume=False)
    assert [path.name for path in folder.iterdir()] == ["identity.json"]
    assert checkpoint.holds_run(kept.folder) and not checkpoint.is_stillborn(kept.folder)


def test_nothing_is_overwritten_and_nothing_is_resumed_from_nothing(kept, tmp_path):
    with pytest.raises(ValueError, match="holds an unfinished run"):
        Checkpoint(kept.folder, IDENTITY, resume=False)
    with pytest.raises(ValueError, match="nothing to resume"):
        Checkpoint(tmp_path / "none", IDENTITY, resume=True)


@pytest.mark.parametrize("place", [10, -3])
def test_a_damaged_file_is_refused_by_name(kept, place):
    path = kept.folder / "one.safetensors"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"one\.safetensors.*damaged"):
        again(kept).load("one", LIKE)
    path.write_bytes(content[:-20])
    with pytest.raises(ValueError, match=r"one\.safetensors.*damaged"):
        again(kept).load("one", LIKE)


def test_a_file_of_another_structure_is_refused(kept):
    with pytest.raises(ValueError, match="another kind of state"):
        again(kept).load("one", LIKE._replace(state={"server": 0}))
    (kept.folder / "identity.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read"):
        again(kept)


class StoppedError(Exception):
    """An interruption."""


@pytest.mark.compiled
@pytest.mark.parametrize("calls", [3, 8])
def test_an_interrupted_sweep_goes_on_to_the_same_bits(tmp_path, monkeypatch, calls):
    """Interrupted in the first and in the second program; each save is as of the rounds just before."""
    options = dict(
        algorithms=["fedavg", "scaffold"],
        client_lr=RATE,
        mu=0.0,
        num_rounds=5,
        drop_after=0.3,
        num_lanes=2,
        chunk_length=4,
    )
    whole = run_sweep(**options)
    monkeypatch.setattr(Checkpoint, "is_due", lambda self: True)
    left = calls

    def stop(what, done, total):
        nonlocal left
        left -= what == "rounds"
        if left == 0:
            raise StoppedError

    folder = tmp_path / "kept"
    with pytest.raises(StoppedError):
        run_sweep(**options, checkpoint=folder, progress=stop)
    assert (folder / "program-0.safetensors").exists() == (calls > 1)
    rounds_seen = []
    resumed = run_sweep(
        **options, checkpoint=folder, resume=True, progress=lambda what, done, total: rounds_seen.append((what, done))
    )
    for name in ("rounds", "banks", "partitions", "decisions"):
        pd.testing.assert_frame_equal(getattr(resumed, name), getattr(whole, name), check_exact=True)
    chex.assert_trees_all_equal(resumed.params, whole.params, strict=True)
    assert max(done for what, done in rounds_seen if what == "rounds") == resumed.manifest["work"][
        "num_federations"
    ] * (5) + (len(whole.rounds.setting.unique()) and sum_of_baselines(resumed) * 5)
    with pytest.raises(ValueError, match=r"num_rounds: 5 then, 6 now"):
        run_sweep(**(options | dict(num_rounds=6)), checkpoint=folder, resume=True)
    assert json.loads((folder / "identity.json").read_text())["num_rounds"] == 5


def sum_of_baselines(result):
    """Centralised runs and banks alone, which the count of rounds includes."""
    config = result.manifest["config"]
    seeds, alphas = len(config["seeds"]), len(config["alphas"])
    return seeds + seeds * alphas * config["num_clients"]


def test_another_model_of_the_same_description_is_refused(tmp_path):
    """Such as a perceptron that starts elsewhere: its description says no more than its widths."""
    options = dict(algorithms=["fedavg"], alphas=[1.0], client_lr=RATE, baselines=False, num_lanes=2, chunk_length=4)
    run_sweep(**options, checkpoint=tmp_path / "kept")
    shifted = LINEAR._replace(init=lambda key: jax.tree.map(lambda leaf: leaf + 1, LINEAR.init(key)))
    with pytest.raises(ValueError, match="start_sha256"):
        run_sweep(**options, model=shifted, checkpoint=tmp_path / "kept", resume=True)


def test_what_was_asked_for_is_named_before_what_follows_from_it(tmp_path):
    path = tmp_path / "identity.json"
    path.write_text(json.dumps(dict(packing=[[5, 8]], seeds=[0, 1], rows_sha256="a")))
    with pytest.raises(ValueError, match=r"different are seeds: .*; packing: "):
        checkpoint._check_identity(path, dict(packing=[[8, 8]], seeds=[0], rows_sha256="a"))
