"""The live view as complete screens, in both languages and on terminals of several kinds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

from gaudi_launch.core.base.messages import set_language
from gaudi_launch.extensions.watch.top.columns import BAD, WARN, Cell, card_state
from gaudi_launch.extensions.watch.top.state import Overlay, TopState
from gaudi_launch.extensions.watch.top.view import (
    _cut,
    _scrolled,
    lines,
    painted,
    printed_lines,
    shares,
    to_json,
)
from tests.support.cli import golden
from tests.support.clock import utc
from tests.support.watched import BARE, CARDS, HOST, SILENT, state_of

__all__ = ["utc"]
pytestmark = pytest.mark.usefixtures("utc")


def screen(state: TopState, width: int, height: int, *, ascii: bool = False) -> str:
    state.ascii = ascii
    shown = lines(state, width, height)
    texts = [painted(line, lambda style: "") for line in shown]
    assert len(texts) == height
    assert [text for text in texts if cell_len(text) > width] == []
    return "".join(text.rstrip() + "\n" for text in texts)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_one_host(language: str) -> None:
    set_language(language)
    screen(state_of(HOST), 60, 20)
    golden(f"top-{language}.txt", screen(state_of(HOST), 120, 40))


def test_several_hosts() -> None:
    state = state_of(HOST, SILENT, replace(HOST, host="gaudi-8"))
    golden("top-hosts.txt", screen(state, 80, 24))


def test_a_terminal_of_ascii_gets_ascii() -> None:
    shown = screen(state_of(HOST), 80, 24, ascii=True)
    assert shown.isascii()
    golden("top-ascii-80x24.txt", shown)


def test_a_machine_without_cards_and_one_that_is_still_read() -> None:
    golden("top-no-cards-80x12.txt", screen(state_of(BARE), 80, 12))
    assert screen(TopState(), 80, 6).startswith("gaudi-launch top  reading ...")


@pytest.mark.parametrize("section", ["cards", "services", "hosts"])
def test_one_section_has_the_complete_screen(section: str) -> None:
    state = state_of(HOST, SILENT)
    state.section = section
    golden(f"top-section-{section}.txt", screen(state, 80, 14))


def test_every_size_is_filled_and_nothing_is_wider() -> None:
    for width in (20, 33, 47, 80, 119, 200):
        for height in (6, 9, 17, 40):
            for language in ("en", "zh"):
                set_language(language)
                screen(state_of(HOST, SILENT), width, height)
                screen(state_of(HOST), width, height)


def test_a_log_is_shown_from_its_end_and_a_text_from_its_begin() -> None:
    state = state_of(HOST)
    content = [f"line {number}" for number in range(100)]
    state.overlay = Overlay("Log of qwen", content, at_end=True)
    assert screen(state, 80, 10).splitlines()[2:9] == content[93:]
    state.overlay.scroll = 5
    assert screen(state, 80, 10).splitlines()[2:9] == content[88:95]
    state.overlay = Overlay("Why", content)
    assert screen(state, 80, 10).splitlines()[1:4] == ["Why", "line 0", "line 1"]


def test_the_footer_is_the_question_the_filter_or_the_message() -> None:
    state = state_of(HOST)
    state.message = "qwen is stopped."
    assert screen(state, 80, 24).splitlines()[-1] == "qwen is stopped."
    state.is_typing, state.filter = True, "qw"
    assert screen(state, 80, 24).splitlines()[-1].startswith("filter: qw_")
    state.to_stop = "qwen"
    assert screen(state, 80, 24).splitlines()[-1].startswith("Stop qwen?")


def test_the_chosen_service_is_marked() -> None:
    state = state_of(HOST)
    state.selected = 1
    shown = lines(state, 80, 24)
    marked = [painted(line, lambda style: "7" if style == "chosen" else "") for line in shown]
    assert next(line for line in marked if "\x1b[7m" in line).startswith("\x1b[7mllama-70b")


@pytest.mark.parametrize(
    ("needs", "room", "given"),
    [
        ([5, 3], 20, [5, 3]),
        ([9, 4], 8, [4, 4]),
        ([2, 9, 9], 9, [2, 4, 3]),
        ([3], 0, [0]),
        ([0, 5], 3, [0, 3]),
    ],
)
def test_lines_are_shared_fairly(needs: list[int], room: int, given: list[int]) -> None:
    assert shares(needs, room) == given


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_pipe_gets_the_answer_and_all_tables(language: str) -> None:
    set_language(language)
    shown = "".join(f"{line}\n" for line in printed_lines([HOST, SILENT], 80))
    golden(f"top-printed-{language}.txt", shown)
    assert [line for line in shown.splitlines() if cell_len(line) > 80 or line.endswith(" ")] == []
    set_language("en")
    assert printed_lines([BARE], 80)[0] == "No Gaudi card was found."
    warm = replace(HOST, cards=(CARDS[4],), services=())
    assert printed_lines([warm], 80)[0] == "1 card, 0 free."


def test_a_wide_screen_has_the_energy_of_today() -> None:
    shown = [line.split() for line in screen(state_of(HOST), 140, 40).splitlines()]
    titles = next(line for line in shown if "TTFT" in line)
    busy = next(line for line in shown if "1.57" in line)
    assert (titles[-3:], busy[-3:]) == (["W", "J/tok", "kWh"], ["960", "1.57", "3.21"])


@pytest.mark.parametrize("width", [79, 120])
def test_simulated_cards_never_pass_for_cards(width: int) -> None:
    services = (replace(HOST.services[0], simulated=True), HOST.services[1])
    host = replace(HOST, simulated=True, services=services)
    shown = screen(state_of(host), width, 24).splitlines()
    assert shown[0].startswith("gaudi-launch top  gaudi-7 gaudi2 (simulated)")
    (titles,) = (line.split() for line in shown if line.startswith("service "))
    (row,) = (line.split() for line in shown if line.startswith("qwen "))
    assert titles[1] == row[1] == "sim"
    table = screen(state_of(host, SILENT), width, 24).splitlines()
    assert next(line for line in table if line.startswith("gaudi-7 ")).count("simulated: ") == 1


def test_a_filter_that_shows_nothing_is_named() -> None:
    state = state_of(HOST)
    state.filter = "zz"
    shown = screen(state, 80, 24).splitlines()
    assert "No card matches the filter zz." in shown
    assert "No service matches the filter zz." in shown


def test_the_json_has_every_field() -> None:
    document = to_json([HOST])
    assert (document["schema"], document["hosts"][0]["cards"][1]["throttled_by"]) == (
        1,
        ["thermal"],
    )


def test_texts_of_others_cannot_steer_the_terminal() -> None:
    hostile = "\x1b[2Jx\r\n\x07"
    card = replace(HOST.cards[0], owner=hostile, status=hostile)
    service = replace(HOST.services[0], name=hostile, phase=hostile)
    host = replace(HOST, host=hostile, problem=hostile, cards=(card,), services=(service,))
    state = state_of(host, replace(SILENT, problem=hostile))
    state.message = hostile
    assert "\x1b" not in screen(state, 80, 24) and "\x07" not in screen(state, 80, 24)
    state = state_of(host)
    state.overlay = Overlay(hostile, [hostile])
    assert "\x1b" not in screen(state, 80, 24) and "\r" not in screen(state, 80, 24)
    assert all(
        line.isprintable()
        for line in printed_lines([host, replace(SILENT, host=hostile, problem=hostile)], 80)
    )


def test_a_text_that_fits_keeps_its_blanks() -> None:
    state = state_of(HOST)
    state.overlay = Overlay("Help", ["s           sort", "word " * 30])
    shown = screen(state, 80, 10).splitlines()
    assert shown[2:5] == ["s           sort", ("word " * 16).strip(), ("word " * 14).strip()]


def part_of(rows: int) -> list[list[Cell]]:
    return [[Cell(name)] for name in ("title", *map(str, range(rows)))]


def shown_rows(part: list[list[Cell]]) -> list[str]:
    return [line[0].text for line in part]


@pytest.mark.parametrize(
    ("selected", "expected"),
    [(0, ["0", "1", "2"]), (2, ["0", "1", "2"]), (3, ["1", "2", "3"]), (9, ["7", "8", "9"])],
)
def test_a_cut_table_shows_the_selected_row(selected: int, expected: list[str]) -> None:
    title, *rows, more = shown_rows(_cut(part_of(10), 5, selected))
    assert (title, rows, "7" in more) == ("title", expected, True)


def test_a_table_that_fits_is_not_cut() -> None:
    assert shown_rows(_cut(part_of(4), 5, 3)) == ["title", "0", "1", "2", "3"]
    assert shown_rows(_cut(part_of(4), 2, 3)) == ["title", "0"]


def test_a_scrolled_section_ends_with_its_last_row() -> None:
    services = replace_state(section="services", selected=9)
    assert shown_rows(_scrolled(services, part_of(10), 4)) == ["title", "7", "8", "9"]
    services = replace_state(section="services", selected=1)
    assert shown_rows(_scrolled(services, part_of(10), 4)) == ["title", "0", "1", "2"]
    cards = replace_state(section="cards", scroll=50)
    assert shown_rows(_scrolled(cards, part_of(10), 4)) == ["title", "7", "8", "9"]
    assert cards.scroll == 7


def replace_state(**values: Any) -> TopState:
    """Return the state of one host with these values."""
    state = state_of(HOST)
    for name, value in values.items():
        setattr(state, name, value)
    return state


def test_cards_are_listed_by_module_and_unknown_ones_last() -> None:
    mixed = replace(HOST, cards=(CARDS[5], replace(CARDS[0], module=None), CARDS[2]))
    in_order = replace(HOST, cards=(CARDS[2], CARDS[5], replace(CARDS[0], module=None)))
    assert printed_lines([mixed], 80) == printed_lines([in_order], 80)


@pytest.mark.parametrize(
    ("changes", "shown", "style"),
    [
        ({"present": False}, "LOST", BAD),
        ({"status": "Disabled"}, "Disabled", BAD),
        ({"temperature_c": 0}, "FAILED", BAD),
        ({"throttled": True}, "throttled", WARN),
        ({"busy": None}, "-", "plain"),
    ],
)
def test_the_most_important_fact_of_a_card(changes: dict[str, Any], shown: str, style: str) -> None:
    assert card_state(replace(CARDS[5], **changes)) == Cell(shown, style)
