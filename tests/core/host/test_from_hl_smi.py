"""Facts of cards from hl-smi: which question is asked, and which answer fills which fact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock

from gaudi_launch.core.host.from_hl_smi import fill
from gaudi_launch.core.host.hl_smi import HlSmiOutput
from gaudi_launch.core.host.merge import Cards


class Program:
    """An hl-smi with fixed answers, asked by several threads."""

    def __init__(self, answers: Mapping[str, str]) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.lock = Lock()

    def __call__(self, arguments: Sequence[str]) -> HlSmiOutput:
        question = " ".join(arguments)
        with self.lock:
            self.asked.append(question)
        if question in self.answers:
            return HlSmiOutput(self.answers[question])
        return HlSmiOutput(problem=f"not known: {question}")


def test_a_value_that_is_no_address_name_or_number_is_left_out() -> None:
    rows = "index, module_id, bus_id, name\n1, 9999, odd, other\n"
    cards = Cards()
    fill(
        cards, Program({"-Q index,module_id,bus_id,name,memory.total,memory.used -f csv": rows}), {}
    )
    assert [card.values for card in cards] == [{"index": 1}]
