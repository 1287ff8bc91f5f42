"""Account codes: equal for equal names only."""

import chex
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fedjax_fraud.data.accounts import account_codes, silo_crossings


def fnv1a(name: str) -> int:
    """The published definition, one byte at a time."""
    code = 0xCBF29CE484222325
    for byte in name.encode():
        code = ((code ^ byte) * 0x100000001B3) % 2**64
    return code


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=20))
def test_codes_are_those_of_the_published_hash(names):
    expected = np.array([fnv1a(name) for name in names], np.uint64).view(np.int64)
    chex.assert_trees_all_equal(account_codes(pa.array(names, pa.string())), expected, strict=True)


def test_a_slice_of_names_has_the_codes_of_its_rows():
    names = pa.array(["C1", "M22", "C333", "M1"])
    chex.assert_trees_all_equal(account_codes(names[1:3]), account_codes(names)[1:3], strict=True)


def test_a_million_neighbouring_names_have_different_codes():
    names = pa.array(np.arange(1_000_000)).cast(pa.string())
    assert np.unique(account_codes(names)).size == 1_000_000


def test_accounts_of_two_banks_are_counted_per_role_and_for_any_role():
    accounts = {"origin": np.array([1, 1, 2, 7, 7]), "receiver": np.array([5, 6, 5, 5, 2])}
    found = silo_crossings(accounts, np.array(["A", "B", "A", "A", "A"]))
    assert found["origin"] == {"num_accounts_in_two_silos": 1, "share_of_rows": 0.4}
    assert found["receiver"] == {"num_accounts_in_two_silos": 0, "share_of_rows": 0.0}
    assert found["any"] == {"num_accounts_in_two_silos": 1, "share_of_rows": 0.4}
    crossed = silo_crossings(accounts, np.array(["A", "A", "A", "A", "B"]))["any"]
    assert crossed == {"num_accounts_in_two_silos": 2, "share_of_rows": 0.6}


def test_without_banks_or_accounts_nothing_is_counted():
    assert silo_crossings({}, np.array([1, 2])) == {}
    assert silo_crossings({"origin": np.array([1, 2])}, None) == {}
