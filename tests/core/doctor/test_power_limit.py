"""Power limits: only documented ones, journalled before hl-smi is called, and restored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from gaudi_launch.commands.doctor import remedies
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.doctor import journal, power_limit
from gaudi_launch.core.doctor.power_limit import CapChange
from gaudi_launch.core.host import simulated, stub_hl_smi
from gaudi_launch.core.host.hl_smi import HlSmiOutput
from tests.support.refusals import failing

pytestmark = pytest.mark.usefixtures("own_folders")

ROOT = Path("/")


class Server:
    """A simulated server whose hl-smi sets limits."""

    def __init__(self, name: str = "gaudi3-oam") -> None:
        machine = simulated.build(name)
        assert machine.hl_smi is not None
        self.data = machine.hl_smi
        self.calls: list[list[str]] = []
        self.refuses = False
        self.ignores = False

    def __call__(self, arguments: Sequence[str]) -> HlSmiOutput:
        words = list(arguments)
        if words:
            self.calls.append(words)
            if self.refuses:
                return HlSmiOutput(problem="'hl-smi' ended with exit code 1: permission denied")
            if self.ignores:
                return HlSmiOutput("")
        text, code = stub_hl_smi.answer(self.data, words)
        return HlSmiOutput(text, "failed" if code else None)

    def caps(self) -> dict[int, int]:
        return {card["module_id"]: card["cap"] for card in self.data["cards"]}


@pytest.fixture
def server() -> Server:
    return Server()


HOST = simulated.make("gaudi3-oam")


def test_each_change_is_in_the_journal_before_it_is_made(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def watching(arguments: Sequence[str]) -> HlSmiOutput:
        if arguments:
            lines = [line for line in journal.journal_path().read_text().splitlines() if line]
            seen.append(len(lines))
        return server(arguments)

    power_limit.apply(ROOT, power_limit.planned(HOST, 500, [0, 1]), watching)
    assert seen == [1, 2]
    entry = json.loads(
        next(line for line in journal.journal_path().read_text().splitlines() if line)
    )
    card = {"module": 0, "index": entry["cap"]["index"]}
    assert entry["cap"] == {"bus": "0000:c1:00.0", "before_w": 900, "after_w": 500, **card}
    # the doctor's own undo changes files only, and leaves these entries to be restored
    assert remedies.undo(ROOT) == []
    assert len(power_limit.undo(ROOT, server)) == 2


def test_a_limit_that_is_right_already_is_not_set(server: Server) -> None:
    change = CapChange("0000:c1:00.0", 600, 600, 0, 3)
    assert [each.status for each in power_limit.apply(ROOT, [change], server)] == ["same"]
    assert server.calls == []


def test_a_refusal_is_reported_and_leaves_nothing_to_undo(server: Server) -> None:
    server.refuses = True
    (outcome,) = power_limit.apply(ROOT, power_limit.planned(HOST, 600, [0]), server)
    assert (outcome.status, outcome.now_w) == (
        "failed",
        900,
    ) and "permission denied" in outcome.reason
    server.refuses = False
    assert power_limit.undo(ROOT, server) == []


def test_an_hl_smi_that_changes_nothing_is_not_trusted(server: Server) -> None:
    server.ignores = True
    (outcome,) = power_limit.apply(ROOT, power_limit.planned(HOST, 600, [0]), server)
    assert (outcome.status, outcome.reason) == ("failed", "hl-smi shows a limit of 900 W")


@pytest.mark.parametrize(
    ("machine", "watts", "modules", "id", "code"),
    [
        ("hls2", 300, None, "power.not_documented", 3),
        ("gaudi2e-8", 300, None, "power.not_documented", 3),
        ("gaudi3-pcie", 500, None, "power.not_documented", 3),
        ("gaudi3-oam+no-driver", 500, None, "power.no_cards", 3),
        ("gaudi3-oam", 449, None, "power.range", 2),
        ("gaudi3-oam", 851, None, "power.range", 2),
        ("gaudi3-oam", 500, [9], "power.module", 2),
        ("gaudi3-oam+no-hl-smi", 500, None, "power.unknown_cap", 3),
    ],
)
def test_what_is_not_documented_or_not_reversible_is_refused(
    machine: str, watts: int, modules: list[int] | None, id: str, code: int
) -> None:
    with failing(id, ExitCode(code)):
        power_limit.planned(simulated.make(machine), watts, modules)
    assert not journal.journal_path().exists()
