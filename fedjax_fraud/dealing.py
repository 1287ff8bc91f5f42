"""Who does what: the work of a sweep dealt to the devices.

Settings are dealt whole, so that nothing crosses between devices; where that leaves devices idle, as few large settings
do, the clients of every setting are dealt instead, and each round ends with a sum over the devices.
"""

from typing import NamedTuple

import jax
import numpy as np

from fedjax_fraud.conditions import Clock
from fedjax_fraud.program import Settings

MIN_GAIN = 1.2  # how much less the busiest device must have to do for clients to be dealt instead of settings


class Deal(NamedTuple):
    """How the work is dealt.

    Attributes:
      by_clients: whether each device has some clients of every setting, instead of some settings.
      slot: ``[settings]``, where each setting stands in the order in which devices own them.
      num_slots: a multiple of the number of devices; without ``by_clients``, device d owns an equal run of slots.
      settings: the settings in their slots, empty ones in the slots that are left, and with ``by_clients`` their
        clients in the order in which devices own them, with empty clients in the places that are left.
    """

    by_clients: bool
    slot: np.ndarray
    num_slots: int
    settings: Settings


def deal(settings: Settings, batch_size: int, num_devices: int) -> Deal:
    """Deals settings or clients, whichever gives the busiest device less to do (host arrays)."""
    steps = full_steps(settings, batch_size)
    slot, num_slots = _deal_settings(steps.sum(axis=1), num_devices)
    with_settings = np.bincount(slot * num_devices // num_slots, steps.sum(axis=1), num_devices).max()
    # No deal of clients beats an even one, and most sweeps have settings enough to be near that: skip the slow loop.
    if steps.sum() / num_devices * MIN_GAIN < with_settings:
        place = _deal_clients(steps, num_devices)
        with_clients = np.bincount(place.ravel() % num_devices, steps.ravel(), num_devices).max()
        if with_clients * MIN_GAIN < with_settings:
            return Deal(True, np.arange(len(steps)), len(steps), _place_clients(settings, place, num_devices))
    return Deal(False, slot, num_slots, place_settings(settings, slot, num_slots))


def place_settings(tree, slot: np.ndarray, num_slots: int):
    """Every leaf ``[settings, ...]`` as ``[slots, ...]``, zeros in the slots that are left."""

    def place(values):
        placed = np.zeros((num_slots, *values.shape[1:]), values.dtype)
        placed[slot] = values
        return placed

    return jax.tree.map(place, tree)


def full_steps(settings: Settings, batch_size: int) -> np.ndarray:
    """``[settings, clients]`` local steps of a round in which everybody takes part."""
    return settings.num_epochs[:, None] * -(-settings.count // batch_size)


def steps_of_devices(settings: Settings, batch_size: int, num_devices: int, by_clients: bool) -> np.ndarray:
    """``[devices, pool]``: the same, by the device that makes them."""
    steps = full_steps(settings, batch_size)
    if by_clients:
        steps = steps.reshape(len(steps), num_devices, -1).swapaxes(0, 1)
    return steps.reshape(num_devices, -1)


def _deal_settings(work: np.ndarray, num_devices: int) -> tuple[np.ndarray, int]:
    """The slot of each setting, and the number of slots: device d owns an equal run of consecutive slots.

    The largest first, back and forth.
    """
    per_device = -(-len(work) // num_devices)
    slot = np.empty(len(work), np.int64)
    rank = np.arange(len(work))
    forth, back = rank % num_devices, num_devices - 1 - rank % num_devices
    device = np.where(rank // num_devices % 2 == 0, forth, back)
    slot[np.argsort(-work, kind="stable")] = device * per_device + rank // num_devices
    return slot, per_device * num_devices


def _deal_clients(steps: np.ndarray, num_devices: int) -> np.ndarray:
    """``[settings, clients]``: place p of a client stands for device ``p % devices``; no place is given twice.

    The largest clients of every setting first, each to the device that has least to do so far and still has room.
    """
    num_settings, num_clients = steps.shape
    rooms = -(-num_clients // num_devices)
    load, used = np.zeros(num_devices), np.zeros((num_settings, num_devices), np.int64)
    place = np.empty(steps.shape, np.int64)
    for index in np.argsort(-steps.ravel(), kind="stable"):
        setting, client = divmod(index, num_clients)
        device = np.argmin(np.where(used[setting] < rooms, load, np.inf))
        place[setting, client] = used[setting, device] * num_devices + device
        used[setting, device] += 1
        load[device] += steps[setting, client]
    return place


def _place_clients(settings: Settings, place: np.ndarray, num_devices: int) -> Settings:
    """The clients in the order in which devices own them, empty clients in the places that are left."""
    rooms = -(-place.shape[1] // num_devices)
    column = place % num_devices * rooms + place // num_devices

    def moved(values, fill):
        result = np.full((len(values), rooms * num_devices), fill, values.dtype)
        np.put_along_axis(result, column, values, axis=1)
        return result

    clock = settings.clock
    return settings._replace(
        start=moved(settings.start, 0),
        count=moved(settings.count, 0),
        client_id=moved(settings.client_id, -1),
        clock=None if clock is None else Clock(*(moved(seconds, 0) for seconds in clock)),
    )
