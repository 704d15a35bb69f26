"""A sample as JSON, as another host sends it."""

from __future__ import annotations

import json

import pytest

from gaudi_launch.core.base import codec
from gaudi_launch.extensions.watch.sample import CardSample, HostSample, NodeSample, ServiceSample
from gaudi_launch.extensions.watch.sampler import Sampler
from tests.support.records import known


def test_a_sample_survives_json() -> None:
    sample = Sampler("simulated:gaudi2e-8+busy=1", found=list).sample()
    assert len(sample.cards) == 8 and {card.group for card in sample.cards} == {0, 1}
    assert codec.read(HostSample, json.loads(json.dumps(codec.write(sample)))) == sample


@pytest.mark.parametrize(
    "document", [None, [], {}, {"host": 1}, {"host": "h"}, {"host": "h", "at": 1, "cards": [{}]}]
)
def test_anything_else_is_refused(document: object) -> None:
    with pytest.raises(ValueError):
        codec.read(HostSample, document)


def test_what_was_not_sampled_is_none() -> None:
    assert known(CardSample(1, 0)) == {"module": 1, "index": 0, "present": True, "throttled_by": ()}
    assert known(ServiceSample("a", "ready", True)) == {
        "name": "a",
        "phase": "ready",
        "alive": True,
        "modules": (),
        "simulated": False,
    }
    assert known(NodeSample(1)) == {"id": 1}
    assert known(HostSample("h", 1.0)) == {
        "host": "h",
        "at": 1.0,
        "answers": True,
        "cards_read": False,
        "cards": (),
        "services": (),
        "nodes": (),
        "disks": (),
        "simulated": False,
    }
