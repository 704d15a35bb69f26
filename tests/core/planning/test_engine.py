"""The seam between the program and its engines: each question is a declared member of one base
class."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence

import pytest

from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.engines import entries, registry
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import MemoryRules
from gaudi_launch.core.planning.engine import Context, Engine, Limits, OverHosts, Proposal, Spread
from gaudi_launch.core.planning.engine_args import NO_ARGS
from gaudi_launch.core.planning.option_table import GENERIC
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Plan, Setting
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.support_answer import ModelSupport
from tests.support.places import PACKAGE

DECLARED = {name for name in vars(Engine) if not name.startswith("_")}


@pytest.mark.parametrize("name", entries.ENGINES)
def test_each_engine_is_the_base_class_and_overrides_only_what_it_declares(name: str) -> None:
    engine = registry.find(name)
    assert isinstance(engine, Engine)
    for member in DECLARED & vars(type(engine)).keys():
        declared, own = vars(Engine)[member], vars(type(engine))[member]
        # a property may be an attribute of the class
        assert callable(own) == callable(declared), member
        if callable(declared):
            assert [*inspect.signature(own).parameters] == [
                *inspect.signature(declared).parameters
            ], member


# a member that code reaches by a text: getattr(engine, "place", None)
BY_NAME = re.compile(r'\b(?:get|has)attr\((?:[^()]|\([^()]*\))*?,\s*"(\w+)"')


def test_no_module_reaches_a_member_of_an_engine_by_its_name() -> None:
    found = {
        str(path.relative_to(PACKAGE)): DECLARED & {*BY_NAME.findall(path.read_text("utf-8"))}
        for path in PACKAGE.rglob("*.py")
    }
    assert {path: names for path, names in found.items() if names} == {}


class Bare(Engine):
    """An engine that defines only what each one must."""

    @property
    def identity(self) -> EngineIdentity:
        return EngineIdentity("bare", "1.0", word="bare@one")

    def limits(self, request: Request, host: Host, model: Model) -> Limits:
        return LIMITS

    def propose(self, context: Context) -> Proposal:
        return Proposal(())

    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        return Command(("bare",), {})


MODEL, REQUEST = Model("/m", "m"), Request("/m")
LIMITS = Limits(1, 2, 3, 4, 5, 6, 7, 8)


def test_an_engine_is_a_process_with_cards_and_without_a_warm_up_unless_it_states_more() -> None:
    bare = Bare()
    properties = {
        name: getattr(bare, name)
        for name, member in vars(Engine).items()
        if isinstance(member, property)
    }
    assert properties == {
        "identity": EngineIdentity("bare", "1.0", word="bare@one"),
        "needs_cards": True,
        "keeps_recipes": True,
        "in_container": False,
        "packages": (),
        "needs_interpreter": True,
        "image": None,
        "can": ("chat",),
        "lacks": (),
        "bucket_file": None,
        "config_file": "",
        "ended": None,
        "scheduling": "v0",
        "option_table": GENERIC,
        "environment": "bare@one",
        "inner": None,
        "innermost": bare,
        "needs_gaudi2_range": False,
        "takes_first_gaudi": False,
        "calibration": None,
        "profile_key": "bare",
        "over_hosts": None,
        "bucket_family": None,
    }


def test_the_questions_to_an_engine_have_the_answers_of_one_without_abilities() -> None:
    bare, host = Bare(), make("hls2")
    placement = Placement((0,))
    context = Context(REQUEST, host, MODEL, placement, LIMITS)
    command = bare.command((), context)
    plan = Plan(bare.identity, {}, placement, (), command, "http://127.0.0.1:8000")
    buckets = Buckets([[1, 128, 0]], [])
    assert not bare.caches_prefixes(REQUEST, MODEL)
    assert bare.cache_arguments(MODEL) == ()
    assert (bare.prefix_arguments(on=True), bare.prefix_arguments(on=False)) == (None, None)
    assert bare.first(REQUEST, placement, host) == (REQUEST, placement)
    assert bare.wrap(plan, REQUEST, placement, host, MODEL) is plan
    assert bare.suited(MODEL) is bare
    bare.refuse(REQUEST, host, MODEL)
    assert bare.support(MODEL) == ModelSupport("bare@1.0")
    assert bare.check_features(REQUEST, MODEL) == ()
    assert bare.needs_quant_file(REQUEST, MODEL) is False
    assert bare.runs_stages(MODEL) is False
    assert bare.script_differences(REQUEST, host, placement, command) == ()
    assert bare.spread(Spread((), 2, True, frozenset())) == ()
    assert bare.memory_rules({}) == MemoryRules()
    assert bare.silent_kv_dtype(MODEL, {}) == "auto"
    assert bare.bucket_question((), context, None) is None
    assert bare.buckets((), context, None) is None
    assert bare.asking(lambda asked: None) is bare
    assert bare.chooses_prompts(context) is False
    assert (bare.pools(MODEL, NO_ARGS), bare.generates(MODEL, NO_ARGS)) == (False, True)
    assert bare.warmed(buckets, (), context) is buckets
    assert bare.question((), context, None) is None


def test_over_several_hosts_an_engine_uses_ray_as_its_makers_tested_it() -> None:
    assert vars(OverHosts()) == {
        "ray": True,
        "validated": True,
        "tensor_guide": "",
        "old_ray": False,
    }
    spread = Spread((), 8, True, frozenset())
    assert (spread.source, spread.measured) == (None, False)
    assert LIMITS.block_size == 128
