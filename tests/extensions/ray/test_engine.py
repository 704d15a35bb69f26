"""Ray Serve around an engine: plans of the guide's examples, sets of cards, replicas, what is
refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.engines.detect import Installed
from gaudi_launch.core.engines.entries import has
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host import simulated
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.plan import Overridden, Plan
from gaudi_launch.core.planning.planner import make_plan, place
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.recipes.key import parts_of
from gaudi_launch.extensions.ray.config import without_address
from gaudi_launch.extensions.ray.engine import IN_RAY, config_of
from gaudi_launch.extensions.ray.schema import check
from tests.support.cli import golden
from tests.support.places import PACKAGE
from tests.support.refusals import raising
from tests.support.whole_plans import Case, by_engine, whole_plans

pytestmark = pytest.mark.usefixtures("plain_english")

MODEL = Model(
    "/m/Qwen2-7B", "Qwen2-7B", "config.json", moe=False, heads=28, kv_heads=4, remote_code=False
)
GAUDI = Installed(
    "/e/python", "vllm-fork@1.21", {"ray": "2.40.0", "habana-torch-plugin": "1.21.0"}, {}
)
FORK = "ray-serve:vllm-fork@1.21"
ONGOING = {"target_ongoing": 5}
OWN_RAY = ("--distributed-executor-backend", "ray")
PLAIN_CPU = Installed("/e/python", "", {"ray": "2.60.0", "transformers": "5.19.0"}, {})


def plan(
    engine: str = "ray-serve", machine: str = "hls2", model: Model = MODEL, **wishes: Any
) -> Plan:
    return make_plan(
        Request(model=model.path, **wishes), simulated.make(machine), model, find(engine)
    )


def refused(**wishes: Any) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        plan(**wishes)
    assert str(caught.value)
    return caught.value


def setting(made: Plan, name: str) -> tuple[str | None, str]:
    return next((s.value, s.source) for s in made.settings if s.name == name)


def compare(name: str, document: Any) -> None:
    """Against a golden file, whole."""
    golden(
        name,
        json.dumps(document, indent=1, ensure_ascii=False).replace(str(IN_RAY), "IN_RAY") + "\n",
    )


@pytest.mark.parametrize(
    ("name", "model", "engine", "wishes"),
    [
        # Ray's guide "Serve Llama2-7b/70b on a single or multiple Intel Gaudi Accelerator": one
        # card, then eight
        ("one-card", "meta-llama/Llama-2-7b-chat-hf", FORK, {"cards": 1, "port": 8000}),
        (
            "one-card-plain",
            "meta-llama/Llama-2-7b-chat-hf",
            "ray-serve:transformers",
            {"cards": 1, "port": 8000},
        ),
        ("eight-cards", "meta-llama/Llama-2-70b-chat-hf", FORK, {"cards": 8, "port": 8000}),
    ],
)
def test_the_guides_examples(name: str, model: str, engine: str, wishes: dict[str, Any]) -> None:
    made = plan(engine, "hls2", known_model(model, False), **wishes)
    compare(f"ray-serve-{name}.json", {**made.to_json(), "argv": list(made.command.argv[:-1])})
    compare(f"ray-serve-{name}-config.json", config_of(made))


def test_the_inner_engine_keeps_what_it_would_have_alone() -> None:
    alone = plan("vllm-fork@1.21", cards=4)
    inside = plan("ray-serve:vllm-fork@1.21", cards=4)
    args = config_of(inside)["applications"][0]["args"]
    words, _, _ = without_address(alone.args)
    assert args["argv"] == [*words, "--host", "127.0.0.1", "--port", "{port}"]
    changed = {k: v for k, v in inside.command.env.items() if alone.command.env.get(k) != v}
    assert changed == {
        "RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DEDUP_LOGS": "0",
        "RAY_COLOR_PREFIX": "0",
    }
    assert set(alone.command.env) - set(inside.command.env) == set()
    assert (inside.buckets, inside.memory, inside.estimate) == (
        alone.buckets,
        alone.memory,
        alone.estimate,
    )
    assert (inside.url, inside.placement.modules) == (alone.url, alone.placement.modules)


def test_no_second_ray_starts_inside_a_replica() -> None:
    deepseek = replace(MODEL, heads=128, kv_heads=128)
    made = plan("ray-serve:deepseek_r1", model=deepseek)
    words = config_of(made)["applications"][0]["args"]["argv"]
    assert words[words.index("--distributed_executor_backend") + 1] == "mp"
    assert setting(made, "--distributed_executor_backend") == ("mp", "computed")
    (backend,) = [each for each in made.settings if each.name == "--distributed_executor_backend"]
    assert backend.beaten == (Overridden("ray", "computed"),)
    assert backend.reason == message("ray.no_second_ray")
    # who asks for it behind the dashes gets it
    own = plan(
        "ray-serve:deepseek_r1", model=deepseek, extra=("--distributed-executor-backend", "ray")
    )
    words = config_of(own)["applications"][0]["args"]["argv"]
    assert words[words.index("--distributed-executor-backend") + 1] == "ray"


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-gaudi"])
def test_compiled_graphs_are_shared_with_the_engine_alone(engine: str) -> None:
    host = simulated.make("hls2")
    alone, inside = plan(engine, cards=4), plan(f"ray-serve:{engine}", cards=4, replicas=(2, 2))
    assert parts_of(inside, host) == parts_of(alone, host)
    assert parts_of(plan(f"ray-serve:{engine}", cards=2, replicas=(2, 2)), host) != parts_of(
        alone, host
    )


@pytest.mark.parametrize(
    "engine", ["vllm-fork@1.22", "vllm-gaudi", "deepseek_r1", "cpu", "transformers"]
)
def test_every_engine_goes_inside_with_its_words_sound(engine: str) -> None:
    made = plan(f"ray-serve:{engine}", model=replace(MODEL, heads=128, kv_heads=128))
    config = config_of(made)
    assert check(config) == []
    if engine != "transformers":
        assert config["applications"][0]["args"]["argv"][-4:] == [
            "--host",
            "127.0.0.1",
            "--port",
            "{port}",
        ]


@pytest.mark.parametrize("machine", ["gaudi2e-8", "gaudi3-pcie", "hls2"])
def test_no_set_of_two_or_four_crosses_a_link_group(machine: str) -> None:
    host = simulated.make(machine)
    groups = host.groups or (host.modules,)
    for cards in (1, 2, 4):
        for most in range(1, len(host.modules) // cards + 1):
            made = plan(machine=machine, cards=cards, replicas=(1, most))
            sets = config_of(made)["applications"][0]["args"]["sets"]
            taken = [module for each in sets for module in each["modules"]]
            assert len(taken) == len(set(taken)) == cards * most
            assert all(any(set(each["modules"]) <= set(group) for group in groups) for each in sets)


def test_busy_cards_are_left_out_and_too_few_are_refused() -> None:
    made = plan(machine="hls2+busy=0,5", cards=2, replicas=(3, 3))
    taken = [
        m for each in config_of(made)["applications"][0]["args"]["sets"] for m in each["modules"]
    ]
    assert not {0, 5} & set(taken) and len(taken) == 6
    error = refused(machine="hls2+busy=0,5", cards=2, replicas=(1, 4))
    assert (error.id, error.exit_code) == ("placement.too_few", ExitCode.MACHINE)


def test_cards_held_already_are_planned_as_they_are() -> None:
    engine, request = find("ray-serve"), Request(model=MODEL.path, cards=2, replicas=(2, 2))
    held = place(request, simulated.make("hls2"), engine)
    # the machine as it was read before they were held: others' cards were busy then
    made = make_plan(request, simulated.make("hls2+busy=0,1"), MODEL, engine, held)
    assert made.placement.modules == held.modules == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("wishes", "id"),
    [
        ({"engine": "vllm-fork@1.21", "replicas": (2, 2)}, "ray.only"),
        ({"engine": "vllm-fork@1.21", "target_ongoing": 2}, "ray.only"),
        ({"engine": "ray-serve:transformers", "cards": 2}, "ray.plain_cards"),
        ({"engine": "ray-serve:transformers", "max_num_seqs": 2}, "ray.plain_option"),
        ({"engine": "ray-serve:transformers", "extra": ("--x",)}, "ray.plain_option"),
        ({"engine": "ray-serve:transformers", "dtype": "fp8"}, "ray.plain_option"),
        ({"engine": "ray-serve:tgi"}, "ray.container"),
        ({"engine": "ray-serve:tgi@3.2.3"}, "ray.container"),
    ],
)
def test_refused(wishes: dict[str, Any], id: str) -> None:
    error = refused(**wishes)
    assert (error.id, error.exit_code) == (id, ExitCode.USAGE)


@pytest.mark.parametrize(
    "name", ["ray-serve:ray-serve", "ray-serve:nonsense", "ray-serve:ray-serve:cpu"]
)
def test_unknown_inner_engines(name: str) -> None:
    with raising("engines.unknown"):
        find(name)


def test_what_is_inside_follows_what_is_installed() -> None:
    assert find("ray-serve").identity.facts["inner"] == "vllm-gaudi@0.26.0"
    assert find("ray-serve:deepseek_r1").identity.facts["inner"] == "vllm-fork@deepseek_r1"
    gaudi = find("ray-serve", GAUDI)
    assert (gaudi.identity.version, gaudi.identity.python, gaudi.needs_cards) == (
        "2.40.0",
        "/e/python",
        True,
    )
    plain = find("ray-serve", PLAIN_CPU)
    assert (plain.identity.facts["inner"], plain.needs_cards) == ("transformers@5.19.0", False)
    cards = replace(PLAIN_CPU, packages={**PLAIN_CPU.packages, "habana-torch-plugin": "1.21.0"})
    assert find("ray-serve", cards).needs_cards
    # an interpreter without Ray says nothing about this engine
    assert find("ray-serve", replace(GAUDI, packages={})).identity.python is None
    assert has(GAUDI, "ray-serve") and not has(replace(GAUDI, packages={}), "ray-serve")


def test_a_model_that_the_installed_engine_lacks_is_generated_plainly(tmp_path: Path) -> None:
    table = tmp_path / "vllm/model_executor/models/registry.py"
    table.parent.mkdir(parents=True)
    entries = '{"LlamaForCausalLM": ("llama", "LlamaForCausalLM")}'
    group = "_TEXT_GENERATION_MODELS"
    table.write_text(f"{group} = {entries}\n_VLLM_MODELS = {{**{group}}}\n")
    has_all = replace(
        GAUDI,
        packages={**GAUDI.packages, "transformers": "4.51.3"},
        facts={"source": str(tmp_path)},
    )
    rare, usual = (
        Model("/m/x", "x", architecture="RareForCausalLM"),
        Model("/m/y", "y", architecture="LlamaForCausalLM"),
    )
    inner = {
        model.architecture: [
            engine.suited(model).innermost.identity.name
            for engine in (
                find("ray-serve", has_all),
                find("ray-serve:vllm-fork@1.21", has_all),
                find("ray-serve"),
            )
        ]
        for model in (rare, usual)
    }
    # only where nobody named the engine and its own table says no
    assert inner == {
        "RareForCausalLM": ["transformers", "vllm-fork", "vllm-gaudi"],
        "LlamaForCausalLM": ["vllm-fork", "vllm-fork", "vllm-gaudi"],
    }
    engine = find("ray-serve", has_all).suited(rare)
    made = make_plan(Request(model=rare.path), simulated.make("hls2"), rare, engine)
    found = [warning.id for warning in made.warnings if warning.id.startswith("ray.")]
    assert found == ["ray.lacked", "ray.plain_slow", "ray.no_optimum"]


@pytest.mark.parametrize(
    ("packages", "install"),
    [
        ({"habana-torch-plugin": "1.21.0.555"}, "optimum-habana"),
        ({"habana-torch-plugin": "1.20.0.543", "optimum-habana": "1.18.0"}, ""),
        (
            {"habana-torch-plugin": "1.24.1.482", "optimum-habana": "1.15.0"},
            "optimum-habana~=1.20.0",
        ),
        (
            {"habana-torch-plugin": "1.22.0.740", "optimum-habana": "1.15.0"},
            "optimum-habana~=1.19.0",
        ),
        ({"habana-torch-plugin": "1.22.0.740", "optimum-habana": "9.9.0"}, ""),  # not in the table
        ({}, ""),  # not a card's interpreter
    ],
)
def test_plain_generation_on_a_card_wants_its_optimum_habana(
    packages: dict[str, str], install: str
) -> None:
    installed = Installed(
        "/p/python", "", {"ray": "2.60.0", "transformers": "4.52.4", **packages}, {}
    )
    model = Model("/m/x", "x")
    engine = find("ray-serve:transformers", installed)
    made = make_plan(Request(model=model.path), simulated.make("hls2"), model, engine)
    found = [
        each.render("en") for each in made.warnings if each.id.endswith(("no_optimum", "r_optimum"))
    ]
    assert len(found) == bool(install)
    for each in found:
        assert "/p/python -m pip install " in each
        assert each.endswith(install)


def test_without_cards_ray_is_asked_for_none() -> None:
    """A Ray that has no HPU resource would wait for one without end."""
    made = plan("ray-serve:cpu", model=Model("/m/x", "x"), replicas=(1, 2))
    (deployment,) = config_of(made)["applications"][0]["deployments"]
    assert deployment["ray_actor_options"] == {"num_cpus": 0}
    assert [setting for setting in made.settings if setting.name == "resources.HPU"] == []
    # on the CPU, HPUs are counted and no card is named
    assert made.command.argv[made.command.argv.index("--hpus") + 1] == "2"
    assert "HABANA_VISIBLE_MODULES" in {*made.command.unset} - {*made.command.env}
    scaling = deployment["autoscaling_config"]
    assert (scaling["upscale_delay_s"], scaling["downscale_delay_s"]) == (5, 60)


PLUGIN, SHORT = "ray-serve:vllm-gaudi", {"max_model_len": 2048, "max_num_seqs": 8}
NOT_SET = "RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES"
THREE = {"modules": (0, 1, 2), "replicas": (2, 2)}
WHOLE = [
    Case("one replica", FORK, MODEL, SHORT),
    Case("a named one", FORK, MODEL, {**SHORT, "modules": (5,), "host": "0.0.0.0", "port": 90}),
    Case("two replicas", PLUGIN, MODEL, {**SHORT, "cards": 2, "replicas": (2, 2)}),
    Case("from one to three", PLUGIN, MODEL, {**SHORT, "replicas": (1, 3)}),
    Case("over both nodes", PLUGIN, MODEL, {**SHORT, "cards": 4, "replicas": (1, 2)}),
    Case("requests of a replica", PLUGIN, MODEL, {**SHORT, "replicas": (1, 2), **ONGOING}),
    Case("too many", PLUGIN, MODEL, {**SHORT, "cards": 4, "replicas": (1, 3)}),
    Case("on two nodes", PLUGIN, MODEL, {**SHORT, "modules": (3, 4), "replicas": (2, 2)}),
    Case("own cluster", PLUGIN, MODEL, SHORT, {"RAY_ADDRESS": "10.0.0.1:6379"}),
    Case("own executor", FORK, MODEL, {**SHORT, "cards": 2, "extra": OWN_RAY}),
    Case("a half each", PLUGIN, MODEL, {**SHORT, "cards": 4, "replicas": (2, 2)}),
    Case("named ones", PLUGIN, MODEL, {**SHORT, "modules": (6, 7, 2, 3), "replicas": (2, 2)}),
    *(Case(f"three for two {n}", PLUGIN, MODEL, {**THREE, "cards": n}) for n in (None, 2)),
    Case("autoscaled", PLUGIN, MODEL, {**SHORT, "cards": 2, "replicas": (1, 4)}),
    Case("eight of one", PLUGIN, MODEL, {**SHORT, "cards": 1, "replicas": (8, 8)}),
    Case("requests of one", PLUGIN, MODEL, ONGOING),
    Case("requests of a fixed number", PLUGIN, MODEL, {**ONGOING, "replicas": (2, 2)}),
    Case("reference", PLUGIN, MODEL, {"tuning": "reference"}),
    Case("nine", PLUGIN, MODEL, {"cards": 9}),
    Case("inc", PLUGIN, MODEL, {"inc_fp8": True}),
    Case("inc of a fork", FORK, MODEL, {"inc_fp8": True}),
    Case("seen by Ray", PLUGIN, MODEL, SHORT, {NOT_SET: "0"}),
    Case("own address", PLUGIN, MODEL, {**SHORT, "extra": ("--port=9000", "--host", "0.0.0.0")}),
    Case("key", PLUGIN, MODEL, SHORT, {"VLLM_API_KEY": "sesame-opens"}),
]


@pytest.mark.parametrize(("file", "cases"), by_engine(WHOLE))
def test_each_request_has_its_recorded_plan(file: str, cases: list[Case]) -> None:
    text = whole_plans(cases, simulated.make("hls2"))
    assert "sesame-opens" not in text
    golden(file, text.replace(str(PACKAGE), "PACKAGE"))
