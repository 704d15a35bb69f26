"""The faults that simulated cards are asked for."""

from __future__ import annotations

import pytest

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.extensions.simulated.faults import CardFault, fault_document, read_fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("card-lost@120s", CardFault("card-lost", 120.0)),
        ("card-lost=5@2m", CardFault("card-lost", 120.0, 5)),
        ("slow-card=3", CardFault("slow-card", 0.0, 3)),
        ("hang", CardFault("hang", 60.0)),
        ("crash@0", CardFault("crash", 0.0)),
        (" compile@800ms ", CardFault("compile", 0.8)),
        ("oom", CardFault("oom", 60.0)),
    ],
)
def test_a_fault_is_read(text: str, fault: CardFault) -> None:
    assert read_fault(text) == fault


@pytest.mark.parametrize(
    ("text", "id"),
    [
        ("", "simulated.fault"),
        ("explode", "simulated.fault"),
        ("hang@", "simulated.fault"),
        ("slow-card=-1", "simulated.fault"),
        ("hang=3", "simulated.fault_no_card"),
        ("slow-card", "simulated.fault_needs_card"),
        ("hang@soon", "simulated.fault_time"),
        ("hang@25h", "simulated.fault_time"),
    ],
)
def test_what_is_no_fault_is_refused(text: str, id: str) -> None:
    with pytest.raises(LaunchError) as refused:
        read_fault(text)
    assert refused.value.id == id


def test_a_fault_concerns_the_copy_with_its_card() -> None:
    faults = [CardFault("slow-card", 0.0, 6), CardFault("oom", 60.0)]
    assert fault_document(faults, (0, 1, 6, 7), cards=2) == [
        {"kind": "slow-card", "after": 0.0, "module": 6, "rank": 1},
        {"kind": "oom", "after": 60.0, "module": None, "rank": 0},
    ]


def test_a_card_of_another_service_is_refused() -> None:
    with pytest.raises(LaunchError) as refused:
        fault_document([CardFault("slow-card", 0.0, 4)], (0, 1), cards=2)
    assert refused.value.id == "simulated.fault_card"
    assert refused.value.text.values == {"module": 4, "modules": "0,1"}
