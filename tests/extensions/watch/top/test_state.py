"""What each key does to the live view."""

from __future__ import annotations

import pytest

from gaudi_launch.extensions.watch.top.state import TopState, card_name, press
from tests.support.watched import HOST, SILENT, state_of


class Recorded:
    """Actions that keep what was requested."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def log(self, service: str) -> list[str]:
        self.calls.append(("log", service))
        return ["a line"]

    def why(self, service: str) -> list[str]:
        self.calls.append(("why", service))
        return ["a reason"]

    def stop(self, service: str) -> None:
        self.calls.append(("stop", service))


@pytest.fixture
def actions() -> Recorded:
    return Recorded()


def typed(state: TopState, actions: Recorded, *keys: str) -> list[bool]:
    return [press(state, key, actions) for key in keys]


def modules(state: TopState) -> list[int | None]:
    return [card.module for _, card in state.cards()]


def test_q_leaves_and_closes_a_text_first(actions: Recorded) -> None:
    assert typed(state_of(HOST), actions, "q") == [False]
    assert typed(state_of(HOST), actions, "h", "q", "q") == [True, True, False]


def test_s_sorts_by_the_next_value_and_unknown_ones_are_last(actions: Recorded) -> None:
    state = state_of(HOST)
    assert modules(state) == list(range(8))
    typed(state, actions, "s")
    assert (state.sort, modules(state)[:2], modules(state)[-2:]) == ("use", [0, 1], [4, 7])
    typed(state, actions, "s", "s", "s")
    assert (state.sort, modules(state)[0]) == ("temperature", 1)
    typed(state, actions, "s")
    assert state.sort == "module"


def test_the_filter_is_typed_kept_and_cleared(actions: Recorded) -> None:
    state = state_of(HOST)
    typed(state, actions, "/", "t", "r", "q", "backspace", "a", "i")
    assert (state.filter, state.is_typing, modules(state)) == ("trai", True, [6])
    typed(state, actions, "enter")
    assert (state.filter, state.is_typing) == ("trai", False)
    typed(state, actions, "/", "esc")
    assert (state.filter, len(modules(state))) == ("", 8)


def test_stopped_services_are_shown_on_request(actions: Recorded) -> None:
    state = state_of(HOST)
    assert [service.name for _, service in state.services()] == ["qwen", "llama-70b", "mixtral"]
    typed(state, actions, "a")
    assert [service.name for _, service in state.services()][-1] == "old"


def test_the_keys_act_on_the_chosen_service(actions: Recorded) -> None:
    state = state_of(HOST)
    typed(state, actions, "l", "esc", "down", "down", "down", "w")
    assert actions.calls == [("log", "qwen"), ("why", "mixtral")]
    assert state.overlay is not None and state.overlay.lines == ["a reason"]


@pytest.mark.parametrize(
    ("answer", "calls"), [("y", [("stop", "qwen")]), ("n", []), ("q", []), ("esc", [])]
)
def test_a_stop_needs_the_answer_y(
    actions: Recorded, answer: str, calls: list[tuple[str, str]]
) -> None:
    state = state_of(HOST)
    assert typed(state, actions, "x", answer) == [True, True]
    assert (actions.calls, state.to_stop) == (calls, "")
    assert state.message == ("Stopping qwen ..." if calls else "qwen keeps running.")


def test_a_service_that_ended_is_not_stopped(actions: Recorded) -> None:
    state = state_of(HOST)
    typed(state, actions, "down", "down", "x")
    assert (state.to_stop, state.message) == ("", "mixtral is not running.")


def test_services_of_other_hosts_are_left_alone(actions: Recorded) -> None:
    state = state_of(HOST, SILENT)
    state.local = False
    typed(state, actions, "x", "l", "w")
    assert actions.calls == [] and state.overlay is None and "this machine" in state.message


def test_tab_shows_one_section_after_the_other(actions: Recorded) -> None:
    state = state_of(HOST, SILENT)
    seen = []
    for _ in range(4):
        typed(state, actions, "tab")
        seen.append(state.section)
    assert seen == ["cards", "services", "hosts", "all"]
    typed(state, actions, "tab", "down", "down", "up")
    assert state.scroll == 1
    one = state_of(HOST)
    typed(one, actions, "tab", "tab", "tab")
    assert one.section == "all"


def test_keys_without_services_say_so(actions: Recorded) -> None:
    state = TopState()
    assert typed(state, actions, "x", "down", "z") == [True, True, True]
    typed(state, actions, "l")
    assert state.message == "There is no service."


def test_the_past_of_a_silent_host_gets_no_values() -> None:
    state = TopState()
    state.update([HOST, SILENT])
    assert state.trails.of("gaudi-7", "use", "0") == (87,)
    assert state.trails.of("gaudi-7", "use", "4") == (None,)
    assert state.trails.of("gaudi-9", "use", "0") == ()


def test_the_name_of_a_card() -> None:
    assert [card_name(3, 0), card_name(None, 4), card_name(None, None)] == ["3", "i4", "?"]
