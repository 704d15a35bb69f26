"""Request, host and model make the plan; nothing else does."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.buckets.bucket_list import BucketError, Buckets
from gaudi_launch.core.buckets.warmup_time import Estimate, Measured
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host import simulated
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.planning.engine import Context
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command, Overridden, Plan, Setting
from gaudi_launch.core.planning.planner import draft, make_plan, place
from gaudi_launch.core.planning.request import Request
from tests.support.refusals import failing, refused
from tests.support.toy_engine import Toy
from tests.support.vllm_gaudi_plans import HLS2, LLAMA

ENGINES = ("vllm-fork@1.21", "vllm-fork@1.22", "deepseek_r1", "vllm-gaudi")
MODEL = Model(
    "/m/Qwen3-30B-A3B", "Qwen3-30B-A3B", "config.json", moe=True, experts=128, heads=32, kv_heads=4
)


def plan(engine: str, request: Request, placement: Placement | None = None) -> Plan:
    return make_plan(request, simulated.make("hls2"), MODEL, find(engine), placement)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_input_gives_the_same_plan(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(model=MODEL.path, cards=8)
    first = plan(engine, request)
    monkeypatch.chdir(tmp_path)
    for name in ("HABANA_VISIBLE_MODULES", "PT_HPU_LAZY_MODE", "VLLM_PROMPT_BS_BUCKET_MAX"):
        monkeypatch.setenv(name, "7")
    monkeypatch.delenv("PATH")
    assert plan(engine, request).to_json() == first.to_json()


def test_planning_leaves_the_environment_alone() -> None:
    before = dict(os.environ)
    plan("vllm-fork@1.22", Request(model=MODEL.path, cards=2))
    assert dict(os.environ) == before


@pytest.mark.parametrize("engine", ENGINES)
def test_options_after_the_dashes_win_and_stand_last(engine: str) -> None:
    own = ("--max-num-seqs", "17")
    made = plan(engine, Request(model=MODEL.path, cards=8, max_num_seqs=32, extra=own))
    assert made.command.argv[-2:] == own
    (setting,) = [each for each in made.settings if each.name.replace("_", "-") == "--max-num-seqs"]
    assert (setting.value, setting.source) == ("17", "flag")
    assert Overridden("32", "flag") in setting.beaten


def test_cards_that_are_held_already_are_not_chosen_again() -> None:
    request = Request(model=MODEL.path, cards=2)
    host, engine = simulated.make("hls2"), find("vllm-fork@1.22")
    held = place(Request(model=MODEL.path, modules=(6, 7)), host, engine)
    assert make_plan(request, host, MODEL, engine, held).placement.modules == (6, 7)
    assert make_plan(request, host, MODEL, engine).placement.modules != (6, 7)


def test_more_cards_than_the_server_has_are_refused() -> None:
    with pytest.raises(LaunchError) as caught:
        plan("vllm-fork@1.22", Request(model=MODEL.path, cards=9))
    assert caught.value.exit_code == ExitCode.MACHINE


def test_replicas_are_refused_where_no_engine_serves_several() -> None:
    with failing("ray.only", ExitCode.USAGE):
        plan("vllm-fork@1.22", Request(model=MODEL.path, replicas=(2, 2)))


@dataclass(frozen=True)
class Told(Toy):
    """The toy engine with the answers of a test."""

    made: Command | None = None
    end: str | None = None
    compared: list[tuple[Any, ...]] = field(default_factory=list)
    broken: str = ""

    @property
    def ended(self) -> str | None:
        return self.end

    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        if self.made is not None:
            return self.made
        return super().command(settings, context)

    def script_differences(
        self, request: Request, host: Host, placement: Placement, command: Command
    ) -> tuple[Message, ...]:
        self.compared.append((request, host, placement, command))
        return (message("plan.dense"),)

    def buckets(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> tuple[str, Buckets] | None:
        if self.broken:
            raise BucketError(self.broken)
        return super().buckets(settings, context, num_blocks)


def told(engine: Told, **given: Any) -> Plan:
    return make_plan(Request(LLAMA.path, **given), HLS2, LLAMA, engine)


def published(*ports: tuple[int, int], address: str = "") -> Command:
    argv = ("engine", "--host", "10.0.0.1", "--port", "77")
    return Command(argv, {}, container=Container("i", argv[1:], ports=ports, address=address))


@pytest.mark.parametrize(
    ("command", "url"),
    [
        (Command(("engine",), {}), "http://127.0.0.1:8000"),
        (Command(("engine", "--host", "node1", "--port", "9"), {}), "http://node1:9"),
        (Command(("engine", "--host", "0.0.0.0"), {}), "http://127.0.0.1:8000"),
        (Command(("engine", "--host", "::"), {}), "http://127.0.0.1:8000"),
        (Command(("engine", "--host", "[::]"), {}), "http://127.0.0.1:8000"),
        (Command(("engine", "--host", "::1"), {}), "http://[::1]:8000"),
        # the published port of this machine, not the one inside
        (published((80, 8080), (81, 8081)), "http://127.0.0.1:80"),
        (published((80, 8080), address="10.0.0.5"), "http://10.0.0.5:80"),
        (published((80, 8080), address="0.0.0.0"), "http://127.0.0.1:80"),
        (published((80, 8080), address="::1"), "http://[::1]:80"),
        # the host's network: the engine's own address
        (published(), "http://10.0.0.1:77"),
    ],
)
def test_requests_go_to_the_address_that_the_engine_or_its_container_has(
    command: Command, url: str
) -> None:
    assert told(Told(made=command)).url == url


def test_reference_tuning_binds_as_the_scripts_and_states_the_differences() -> None:
    command = Command(("engine",), {}, cpus=(5, 6), memory_node=1)
    one_node, two_nodes = (0, 1), (3, 4)
    for modules, bound in ((one_node, True), (two_nodes, False), (None, False)):
        engine = Told(made=command)
        made = told(engine, modules=modules, cards=2, tuning="reference")
        ((request, host, placement, compared),) = engine.compared
        expected = replace(command, cpus=(), memory_node=None)
        if bound:
            expected = replace(command, cpus=placement.cpus)
        assert (made.command, made.placement.cpus) == (expected, expected.cpus), modules
        assert (compared, host, request.modules) == (expected, HLS2, modules)
        assert made.placement.modules == placement.modules
        assert made.reference_differences == (message("plan.dense"),)
        assert placement.cpus


def test_no_script_is_compared_with_auto_tuning_or_a_container() -> None:
    command = Command(("engine",), {}, cpus=(5, 6))
    for engine, tuning in (
        (Told(made=command), "auto"),
        (Told(made=replace(command, container=Container("i", ()))), "reference"),
    ):
        made = told(engine, tuning=tuning)
        assert (made.reference_differences, engine.compared) == ((), [])
        assert made.command == engine.made
        assert made.placement.cpus == (5, 6)


def test_cards_without_a_binding_give_no_reason_for_their_cpus() -> None:
    def reasons(made: Plan) -> list[str]:
        return [reason.id for reason in made.placement.reasons]

    bound, free = told(Told()), told(Told(made=Command(("engine",), {})))
    assert bound.placement.cpus == bound.command.cpus != ()
    assert free.placement.cpus == ()
    assert "placement.cpus" in reasons(bound)
    assert reasons(free) == [each for each in reasons(bound) if each != "placement.cpus"]


def test_an_engine_that_has_ended_is_reported_first() -> None:
    made = told(Told(end="2026-01-31"), port=80, host="0.0.0.0")
    assert made.warnings[0] == message("plan.engine_ended", engine="toy@1.0", date="2026-01-31")
    assert made.warnings[-1] == message("plan.open_address", address="0.0.0.0")
    assert told(Told()).warnings == ()


@pytest.mark.parametrize(
    ("given", "flag"),
    [({"time_scale": 2.0}, "--time-scale"), ({"faults": ("slow-card",)}, "--fault")],
)
def test_options_of_simulated_cards_are_refused_with_real_ones(
    given: dict[str, Any], flag: str
) -> None:
    with refused("simulated.only", ExitCode.USAGE, flag=flag, engine="toy"):
        told(Told(), **given)


def test_buckets_that_the_engine_fails_on_are_refused_and_reported_for_a_script() -> None:
    engine = Told(broken="min > max")
    with pytest.raises(LaunchError) as caught:
        told(engine)
    why = {"why": "min > max"}
    assert (caught.value.exit_code, caught.value.text) == (
        ExitCode.USAGE,
        message("plan.buckets_fail", **why, names="VLLM_*_BUCKET_*"),
    )
    script = told(engine, tuning="reference")
    assert (script.buckets, script.bucket_strategy, script.estimate) == (None, "", None)
    assert script.warnings == (message("plan.buckets_fail_script", **why, names=""),)
    named = "VLLM_PROMPT_BS_BUCKET_MIN"
    exported = told(engine, tuning="reference", environment={named: "9"})
    assert message("plan.buckets_fail", **why, names=named) in exported.warnings


PUBLISHED = message("warmup.basis_published", low="0.7", high="2.2")


def test_the_estimate_is_of_the_graphs_and_what_was_measured_here() -> None:
    def estimate(*measured: Measured, **given: Any) -> Estimate | None:
        request = Request(LLAMA.path, **given)
        return make_plan(request, HLS2, LLAMA, Told(), measured=measured).estimate

    # prompts of 128 to 1024 tokens, decode of 1 to 4 requests
    assert estimate() == Estimate(7 * 0.7, 7 * 2.2, PUBLISHED)
    here = Measured("toy@1.0", LLAMA.name, 1, "bfloat16", graphs=10, seconds=40.0)
    found = estimate(here)
    assert found is not None and found.basis == message("warmup.basis_measured", count=1)
    assert found.low_seconds == pytest.approx(7 * 4.0 / 1.15)
    assert found.high_seconds == pytest.approx(7 * 4.0 * 1.15)
    for other in ({"cards": 2}, {"model": "other"}):
        found = estimate(replace(here, **other))
        assert found is not None
        assert found.basis == message("warmup.basis_similar", count=1), other
    assert estimate(replace(here, engine="toy@2.0")) == estimate()
    assert estimate(skip_warmup=True) is None


def test_a_warm_up_that_is_skipped_is_stated() -> None:
    assert told(Told()).skips_warmup is False
    assert told(Told(), skip_warmup=True).skips_warmup is True
    skipped = plan("vllm-gaudi", Request(model=MODEL.path, environment={"VLLM_SKIP_WARMUP": "1"}))
    assert (skipped.skips_warmup, skipped.estimate) == (True, None)


def test_the_reason_for_a_number_of_cards_comes_first() -> None:
    because = message("placement.fewest", cards=2)
    request = Request(LLAMA.path, chosen=(2, because))
    found = place(request, HLS2, Told())
    plain = place(replace(request, chosen=(2, None)), HLS2, Told())
    assert found == replace(plain, reasons=(because, *plain.reasons))
    assert place(request, HLS2, find("cpu")) == Placement(())


def test_what_the_users_arguments_replace_is_named_once() -> None:
    request = Request(
        LLAMA.path, overruled=("-b",), unread_file="/c.yaml", extra=("--max-num-seqs", "9")
    )
    drawn = draft(request, HLS2, LLAMA, Told(), Placement((0,)))
    assert drawn.warnings == (
        message("plan.overruled", flags="-b"),
        message("plan.config_unknown", path="/c.yaml"),
    )
    by_name = {each.name: (each.value, each.source) for each in drawn.settings}
    assert by_name["--max-num-seqs"] == ("9", "flag")
    assert {each.name: each.value for each in drawn.proposed}["--max-num-seqs"] == "4"
