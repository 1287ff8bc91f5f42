"""Hashed silos: stable, blind to how a value is stored, and about even."""

import chex
import numpy as np
import pandas as pd
import pytest

from fedjax_fraud.data.accounts import account_codes
from fedjax_fraud.data.silos import hashed_silos


def by_hand(text: str, num_buckets: int) -> int:
    """FNV-1a over the bytes and the finaliser of SplitMix64, one value at a time in Python's whole numbers."""
    code = 0xCBF29CE484222325
    for byte in text.encode():
        code = ((code ^ byte) * 0x100000001B3) % 2**64
    code = ((code ^ (code >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    code = ((code ^ (code >> 27)) * 0x94D049BB133111EB) % 2**64
    return (code ^ (code >> 31)) % num_buckets


@pytest.mark.parametrize("num_buckets", [2, 5, 64])
def test_buckets_are_those_of_the_published_hashes(num_buckets):
    names = [f"C{number}" for number in range(200)]
    expected = np.array([by_hand(name, num_buckets) for name in names])
    chex.assert_trees_all_equal(hashed_silos(pd.Series(names), num_buckets), expected, strict=True)


def test_a_value_has_one_bank_however_it_is_stored():
    numbers = pd.Series([3, 14, 3, 159])
    expected = hashed_silos(numbers, 7)
    assert expected[0] == expected[2]
    for other in (numbers.astype(float), numbers.astype(str), numbers[::-1]):
        chex.assert_trees_all_equal(hashed_silos(other, 7)[:: -1 if other.index[0] else 1], expected)


def test_neighbouring_numbers_are_dealt_evenly():
    """A chi-squared statistic of 15 degrees of freedom: 99.9 % lie below 37.7."""
    counts = np.bincount(hashed_silos(pd.Series(np.arange(16_000)), 16), minlength=16)
    assert ((counts - 1000) ** 2 / 1000).sum() < 37.7


def test_the_buckets_are_no_plain_remainder_of_the_account_codes():
    """The lowest bit of FNV-1a only sees the lowest bits of the bytes."""
    import pyarrow as pa

    names = [f"C{number}" for number in range(0, 2000, 2)]
    plain = account_codes(pa.array(names, pa.string())).view(np.uint64) % np.uint64(2)
    assert abs(np.corrcoef(hashed_silos(pd.Series(names), 2), plain)[0, 1]) < 0.15


@pytest.mark.parametrize("wrong", [0, 1, -3])
def test_fewer_than_two_banks_are_refused(wrong):
    with pytest.raises(ValueError, match=f"`silo_buckets`.*{wrong}"):
        hashed_silos(pd.Series([1, 2]), wrong)
