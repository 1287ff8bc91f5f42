"""Who does what: nothing is lost, nothing is done twice, and nobody waits long."""

import hypothesis
import hypothesis.extra.numpy as npst
import hypothesis.strategies as st
import numpy as np

from fedjax_fraud import dealing
from fedjax_fraud.program import Settings

COUNTS = npst.arrays(np.int32, st.tuples(st.integers(1, 6), st.integers(1, 12)), elements=st.integers(0, 900))


def settings(count):
    """Settings whose every number tells where it comes from."""
    num, clients = count.shape
    ids = np.arange(num, dtype=np.int32)
    return Settings(
        hyper=dict(mu=ids / np.float32(7)),
        seed=ids.astype(np.uint32),
        num_epochs=1 + ids % 3,
        participation=np.ones(num, np.float32),
        partition_id=ids,
        start=np.cumsum(count, axis=1, dtype=np.int32) - count,
        count=count,
        client_id=np.broadcast_to(np.arange(clients, dtype=np.int32), count.shape),
    )


@hypothesis.given(work=st.lists(st.integers(0, 1000), min_size=1, max_size=40), num_devices=st.integers(1, 9))
@hypothesis.example(work=[5], num_devices=4)
@hypothesis.example(work=[0] * 7, num_devices=3)
def test_settings_are_dealt_one_to_a_slot_and_work_evenly(work, num_devices):
    slot, num_slots = dealing._deal_settings(np.array(work), num_devices)
    assert num_slots % num_devices == 0
    assert num_slots - len(work) < num_devices
    assert len(set(slot.tolist())) == len(work)
    assert ((slot >= 0) & (slot < num_slots)).all()
    device = slot // (num_slots // num_devices)
    sizes = np.bincount(device, minlength=num_devices)
    assert sizes.max() - sizes.min() <= 1
    loads = np.bincount(device, work, num_devices)
    # Dealt in descending order, back and forth: what one device is ahead in a row, it gives back in the next.
    assert loads.max() - loads.min() <= max(work)


@hypothesis.given(count=COUNTS, num_devices=st.integers(1, 8))
def test_every_client_has_one_place_and_keeps_its_rows(count, num_devices):
    before = settings(count)
    dealt = dealing.deal(before, 8, num_devices)
    assert dealt.by_clients or dealt.num_slots % num_devices == 0
    for f in range(len(count)):
        slot = dealt.slot[f]
        for name in ("seed", "num_epochs", "partition_id"):
            assert getattr(dealt.settings, name)[slot] == getattr(before, name)[f]
        rows = zip(*(getattr(dealt.settings, name)[slot] for name in ("client_id", "start", "count")), strict=True)
        wanted = zip(before.client_id[f], before.start[f], before.count[f], strict=True)
        assert sorted(row for row in rows if row[2]) == sorted(row for row in wanted if row[2])
    assert dealt.settings.count.sum() == count.sum()


@hypothesis.given(count=COUNTS, num_devices=st.integers(1, 8))
def test_clients_are_dealt_only_where_that_gives_the_busiest_device_much_less(count, num_devices):
    before = settings(count)
    dealt = dealing.deal(before, 8, num_devices)
    steps = dealing.steps_of_devices(dealt.settings, 8, num_devices, dealt.by_clients)
    assert steps.sum() == dealing.full_steps(before, 8).sum()
    slot, num_slots = dealing._deal_settings(dealing.full_steps(before, 8).sum(axis=1), num_devices)
    whole = dealing.place_settings(before, slot, num_slots)
    busiest = dealing.steps_of_devices(whole, 8, num_devices, by_clients=False).sum(axis=1).max()
    if dealt.by_clients:
        assert steps.sum(axis=1).max() * dealing.MIN_GAIN < busiest
    else:
        assert steps.sum(axis=1).max() == busiest


def test_one_large_setting_keeps_all_devices_busy():
    dealt = dealing.deal(settings(np.full((1, 16), 100, np.int32)), 10, 4)
    assert dealt.by_clients
    np.testing.assert_array_equal(dealing.steps_of_devices(dealt.settings, 10, 4, True).sum(axis=1), [40] * 4)


def test_as_many_settings_as_devices_are_dealt_whole():
    equal = settings(np.full((4, 16), 100, np.int32))._replace(num_epochs=np.ones(4, np.int32))
    assert not dealing.deal(equal, 10, 4).by_clients
