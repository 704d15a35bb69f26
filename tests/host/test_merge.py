"""Facts of cards from several sources: the first with a fact wins."""

from __future__ import annotations

from gaudi_launch.host.hardware import Card
from gaudi_launch.host.merge import CardFacts, Cards


def test_the_first_source_of_a_fact_wins_and_a_hint_fills_a_gap() -> None:
    facts = CardFacts()
    facts.hint("module", 7, "driver name")
    facts.hint("module", 8, "a later hint")
    facts.hint("bus", "0000:99:00.0", "guess")
    assert facts.put("bus", "0000:19:00.0", "sysfs")
    assert facts.put("bus", "0000:19:00.0", "hl-smi")
    assert not facts.put("bus", "0000:20:00.0", "hl-smi")
    assert facts.put("bus", None, "hl-smi") and facts.put("bus", (), "hl-smi")
    assert facts.get("module") is None
    facts.settle()
    assert (facts.values, facts.sources) == (
        {"bus": "0000:19:00.0", "module": 7},
        {"bus": "sysfs", "module": "driver name"},
    )
    assert facts.card() == Card(
        index=None,
        module=7,
        bus="0000:19:00.0",
        sources={"bus": "sysfs", "module": "driver name"},
    )


def test_a_card_is_found_by_its_address_before_its_index() -> None:
    cards = Cards()
    first = cards.find(index=0, bus="a")
    first.put("bus", "a", "sysfs")
    first.put("index", 0, "sysfs")
    second = cards.find(index=1, bus="b")
    second.put("bus", "b", "sysfs")
    assert cards.find(index=0, bus="b") is second
    assert cards.find(index=0) is first
    assert cards.find(bus="a") is first
    assert cards.find(index=0, bus="unknown") is first
    # neither is known: a card of its own each time
    third, fourth = cards.find(), cards.find(index=5)
    assert [*cards] == cards.all
    assert [id(each) for each in cards] == [id(each) for each in (first, second, third, fourth)]
    assert cards.missing("index")
    for number, facts in enumerate(cards):
        facts.put("index", number, "sysfs")
    assert not cards.missing("index")


def test_sources_that_disagree_are_named_with_the_card() -> None:
    cards = Cards()
    facts = cards.find(bus="a")
    cards.put(facts, "bus", "a", "sysfs")
    cards.put(facts, "module", 3, "sysfs")
    cards.put(facts, "module", 3, "hl-smi")
    assert cards.quarrels == []
    cards.put(facts, "module", 4, "hl-smi")
    cards.put(facts, "index", 0, "sysfs")
    cards.put(facts, "module", 5, "hl-smi")
    assert cards.quarrels == [
        "a: module is 3 by sysfs and 4 by hl-smi",
        "accel0: module is 3 by sysfs and 5 by hl-smi",
    ]
