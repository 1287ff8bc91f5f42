"""Accounts: names -> 64-bit codes without a Python object per row, and who stands on both sides of a line."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

_OFFSET_BASIS = np.uint64(0xCBF29CE484222325)
_PRIME = np.uint64(0x100000001B3)


def account_codes(names: pa.StringArray) -> np.ndarray:
    """The same code for the same name, in any column of any file.

    A hash, so that blocks of a file can be coded one by one: for the 9 million names of the full PaySim file the
    chance that any two share a code is about 2e-6.

    Args:
      names: ``[rows]``, none of them null.
    Returns: ``[rows]`` int64.
    Reference: Fowler, Noll, Vo, FNV-1a, 64 bits, over the UTF-8 bytes.
    """
    _, offset_buffer, byte_buffer = names.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[names.offset : names.offset + len(names) + 1]
    text = np.frombuffer(byte_buffer or b"", np.uint8)
    start, length = offsets[:-1], np.diff(offsets)
    codes = np.full(len(names), _OFFSET_BASIS)
    for position in range(length.max(initial=0)):
        rows = np.flatnonzero(length > position)
        codes[rows] = (codes[rows] ^ text[start[rows] + position]) * _PRIME
    return codes.view(np.int64)


def split_overlap(train: Mapping[str, np.ndarray], test: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Accounts of the test rows that the training rows have in any role.

    Args:
      train: role -> ``[train rows]`` codes.
      test: role -> ``[test rows]`` codes.
    Returns: for each role, and for "any" of them: ``num_accounts_on_both_sides``, and ``share_of_test_rows`` that touch
      one. Empty without accounts.
    """
    if not train or not test:
        return {}
    seen = np.unique(np.concatenate(list(train.values())))
    known = {role: np.isin(codes, seen) for role, codes in test.items()}
    shared = {role: np.unique(codes[known[role]]) for role, codes in test.items()}
    overlap = {role: _overlap(shared[role], known[role]) for role in test}
    anyone = np.unique(np.concatenate(list(shared.values())))
    return overlap | {"any": _overlap(anyone, np.logical_or.reduce(list(known.values())))}


def _overlap(shared: np.ndarray, known: np.ndarray) -> dict[str, Any]:
    return {"num_accounts_on_both_sides": int(shared.size), "share_of_test_rows": float(known.mean())}


def silo_crossings(accounts: Mapping[str, np.ndarray], silo: np.ndarray | None) -> dict[str, Any]:
    """Accounts that two banks or more have rows of: a model of one bank then knows customers of another.

    Args:
      accounts: role -> ``[rows]`` codes.
      silo: ``[rows]`` the owner of each row, or None.
    Returns: for each role, and for "any" of them: ``num_accounts_in_two_silos``, and ``share_of_rows`` that touch one.
      Empty without accounts or silos.
    """
    if not accounts or silo is None:
        return {}
    owner = np.unique(silo, return_inverse=True)[1]
    found = {role: _crossing(_in_two_silos(codes, owner), [codes]) for role, codes in accounts.items()}
    anyone = _in_two_silos(np.concatenate(list(accounts.values())), np.tile(owner, len(accounts)))
    return found | {"any": _crossing(anyone, list(accounts.values()))}


def _crossing(crossing: np.ndarray, roles: list[np.ndarray]) -> dict[str, Any]:
    touched = np.logical_or.reduce([np.isin(codes, crossing) for codes in roles])
    return {"num_accounts_in_two_silos": int(crossing.size), "share_of_rows": float(touched.mean())}


def _in_two_silos(codes: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """The distinct codes whose rows have more than one owner."""
    order = np.lexsort((owner, codes))
    codes, owner = codes[order], owner[order]
    crosses = (codes[1:] == codes[:-1]) & (owner[1:] != owner[:-1])
    return np.unique(codes[1:][crosses])
