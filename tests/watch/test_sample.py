"""A sample as JSON, as another host sends it."""

from __future__ import annotations

import json

import pytest

from gaudi_launch.watch.sample import HostSample, from_json
from gaudi_launch.watch.sampler import Sampler


def test_a_sample_survives_json() -> None:
    sample = Sampler("simulated:gaudi2e-8+busy=1", found=list).sample()
    assert len(sample.cards) == 8 and {card.group for card in sample.cards} == {0, 1}
    assert from_json(json.loads(json.dumps(sample.to_json()))) == sample


def test_fields_of_a_later_version_are_left_out() -> None:
    document = {"host": "h", "at": 1.0, "new": 1, "cards": [{"module": 1, "index": 0, "newer": 2}]}
    found = from_json(document)
    assert (found.host, found.cards[0].module) == ("h", 1)


@pytest.mark.parametrize(
    "document", [None, [], {}, {"host": 1}, {"host": "h"}, {"host": "h", "at": 1, "cards": [{}]}]
)
def test_anything_else_is_refused(document: object) -> None:
    with pytest.raises(ValueError):
        from_json(document)


def test_an_answer_without_host_samples_is_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    assert from_json({"host": "h", "at": 1}) == HostSample("h", 1)
