"""Common beginnings of past requests, from the columns of a trace."""

from gaudi_launch.core.buckets.shared_prefixes import columns_of


def test_hashes_and_measured_hits_are_read_in_every_form() -> None:
    assert columns_of({"hash_ids": [1, 2]}) == ((1, 2), 0)
    assert columns_of({"hash_ids": "[1, 2]"}) == ((1, 2), 0)
    assert columns_of({"cached_tokens": "256"}) == ((), 256)
    assert columns_of({"prompt_tokens_details": {"cached_tokens": 9}}) == ((), 9)
    assert columns_of({"hash_ids": None, "cached_tokens": "many"}) == ((), 0)
