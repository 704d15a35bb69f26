"""The user's engine options, judged by the facts of a release."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType

import pytest

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.engines.engine_version import Version
from gaudi_launch.core.engines.known_versions import newest, releases, versions
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.engines.user_options import enumerated, keyword_words, option_faults
from gaudi_launch.core.engines.version_facts import names_of
from gaudi_launch.core.host import simulated
from gaudi_launch.core.planning.engine_args import engine_args
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.option_table import option_table
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from tests.support.refusals import failing

NAME = "Qwen/Qwen3-8B"
LISTED = [each for each in versions() if names_of(each).options]


def plan(
    engine: str,
    *extra: str,
    force: bool = False,
    exported: Mapping[str, str] = MappingProxyType({}),
    tuning: str = "auto",
) -> Plan:
    request = Request(NAME, extra=extra, environment=exported, force=force, tuning=tuning)
    return make_plan(request, simulated.make("hls2"), known_model(NAME, False), find(engine))


def sentences(engine: str, *extra: str) -> list[tuple[str, bool]]:
    identity = find(engine).identity
    args = engine_args(table=option_table(identity.options), user=extra)
    return [(each.sentence.render("en"), each.certain) for each in option_faults(args, identity)]


@pytest.mark.parametrize(
    ("engine", "extra", "expected"),
    [
        ("vllm-gaudi@0.26.0", "--tensor-paralel-size 2", "name is --tensor-parallel-size."),
        ("vllm-gaudi@0.26.0", "--accelerator gaudi2", "gaudi-launch are written before --."),
        ("vllm-gaudi@0.26.0", "--swap-space 16", "that has it is vllm-gaudi@0.17.1."),
        ("vllm-gaudi@0.26.0", "--enable-reasoning", "Its replacement is --reasoning-parser."),
        ("vllm-gaudi@0.26.0", "--max-seq-len-to-capture 1", "it is vllm-gaudi@0.10.1."),
        ("vllm-gaudi@0.26.0", "--use-v2-block-manager", "that has it is vllm-fork@1.22."),
        ("vllm-gaudi@0.26.0", "--kv-cache-dtype fp8_e5m2", "auto, float16, bfloat16, fp8_inc."),
        ("vllm-gaudi@0.26.0", "--max-num-partial-prefills 2", "does not have. It has 1."),
        ("vllm-gaudi@0.26.0", "--tool-call-parser hermez", "xlam."),
        ("vllm-gaudi@0.26.0", "--enforce-eager=true", "--enforce-eager of {} takes no value."),
        (
            "vllm-gaudi@0.26.0",
            "--enforce-eager true",
            "true belongs to no option; {} does not take it.",
        ),
        ("vllm-gaudi@0.26.0", "--gpu-memory-utilization 1.5", "is 1.5; {} takes > 0, <= 1."),
        ("vllm-fork@1.22", "--gpu-memory-utilization 2", "is 2; {} takes <= 1."),
        ("vllm-gaudi@0.14.1", "--grpc", "that has it is vllm-gaudi@0.26.0."),
        ("vllm-fork@1.22", "--spec-method ngram", "that has it is vllm-gaudi@0.26.0."),
        ("cpu", "--accelerator gaudi2", "gaudi-launch are written before --."),
    ],
)
def test_an_option_that_ends_the_engine_is_refused_with_what_is_there_instead(
    engine: str, extra: str, expected: str
) -> None:
    ((found, certain),) = sentences(engine, *extra.split())
    assert (found.endswith(expected.format(engine)), certain) == (True, True), found
    with failing("options.refused", ExitCode.USAGE):
        # a start script passes the user's options on as they are
        plan(engine, *extra.split(), tuning="reference" if "fork" in engine else "auto")
    assert found in [
        each.render("en") for each in plan(engine, *extra.split(), force=True).warnings
    ]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--speculative-config", '{"method":"suffix","num_speculative_tokens":8}'),
        ("--speculative-config", '{"method":"medusa","num_speculative_tokens":3}'),
        ("--speculative-config.method", "suffix"),
        ("--kv-transfer-config", '{"kv_connector":"P2pNcclConnector","kv_role":"kv_producer"}'),
    ],
)
def test_values_within_a_json_option_are_judged(option: str, value: str) -> None:
    for each in releases("vllm-gaudi"):
        if enumerated(each.label):
            ((found, certain),) = sentences(each.label, option, value)
            assert (f"which {each.label} does not have" in found, certain) == (True, True)


@pytest.mark.parametrize(
    ("engine", "extra"),
    [
        ("vllm-gaudi@0.26.0", "--enable-lora --max_loras 4 --max-lora-rank=16"),
        ("vllm-gaudi@0.26.0", "-tp 1 --max-model-l 4096"),
        ("vllm-gaudi@0.26.0", "--no-enable-prefix-caching --compilation-config.mode 0"),
        ("vllm-gaudi@0.26.0", "--tool-call-parser mine --tool-parser-plugin /p.py"),
        (
            "vllm-gaudi@0.26.0",
            '--kv-transfer-config {"kv_connector":"Mine","kv_connector_module_path":"a.b"}',
        ),
        # vllm_gaudi/entrypoints/openai/tool_parsers: the plugin's own
        ("vllm-gaudi@0.26.0", "--tool-call-parser minimax_m3_py"),
        # HabanaAI/vllm-fork:internvl-scripts/server-internvl.sh; vLLM reads pairs up to 0.9
        ("vllm-fork@1.22", "--limit-mm-per-prompt image=13"),
        ("vllm-fork@1.21", "--limit-mm-per-prompt image=16,video=2"),
    ],
)
def test_what_the_parser_takes_in_any_spelling_has_no_fault(engine: str, extra: str) -> None:
    assert sentences(engine, *extra.split()) == []


def test_without_facts_of_exactly_this_release_a_fault_is_a_warning() -> None:
    ((found, certain),) = sentences("vllm-gaudi@main", "--swap-space", "4")
    assert (found.startswith("--swap-space is not an option"), certain) == (True, False)


@pytest.mark.parametrize("version", LISTED, ids=lambda each: each.label)
def test_each_listed_option_is_taken_and_each_changed_one_is_not(version: Version) -> None:
    chosen = random.Random(version.label)
    names = names_of(version)
    values = enumerated(version.label)
    for name in chosen.sample(sorted(names.options), 40):
        form = names.options[name].form
        if name not in values and not names.options[name].values and "parser" not in name:
            bounds = names.options[name].bounds
            # 0.5 is in every range that 1 is not in
            taken = ("0.5",) if bounds.get("lt", 2) <= 1 else form[1:]
            assert sentences(version.label, name, *taken) == []
            wrong = [()] * bool(form) + [("one-",)] * (form[1:] not in ((), ("text",)))
            wrong += [(f"{at:g}",) for bound, at in bounds.items() if bound in ("gt", "lt")]
            wrong += [(f"{at - 1:g}",) for bound, at in bounds.items() if bound == "ge"]
            wrong += [(f"{at + 1:g}",) for bound, at in bounds.items() if bound == "le"]
            assert all(sentences(version.label, name, *each) for each in wrong)
        ((found, certain),) = sentences(version.label, f"{name}x", "1")
        assert (f"{name}x is not an option of {version.label}." in found, certain) == (True, True)


def unread(engine: str, **exported: str) -> list[Message]:
    return [
        each for each in plan(engine, exported=exported).warnings if each.id == "options.unread"
    ]


def test_an_exported_variable_that_the_release_does_not_read_is_a_warning() -> None:
    newest_one = newest("vllm-gaudi").label
    told = message("options.unread", name="VLLM_FOO", engine=newest_one, hint="")
    assert unread(newest_one, VLLM_FOO="1", VLLM_SKIP_WARMUP="true", OTHER="1") == [told]


def test_the_keywords_of_a_ray_application_are_judged_as_options() -> None:
    keywords = {"tensor_paralel_size": 2, "kv_cache_dtype": "fp8_e5m2", "enable_lora": True}
    found = sentences("vllm-gaudi@0.26.0", *keyword_words(keywords))
    assert [text.split(" ", 1)[0] for text, _ in found] == [
        "--tensor-paralel-size",
        "--kv-cache-dtype",
    ]
