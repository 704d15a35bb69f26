"""The defaults, units and examples of docs/commands.md: complete, true and accepted."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import Any

import pytest

from gaudi_launch.cli import help
from gaudi_launch.core.base.fields import option_of
from gaudi_launch.core.doctor.findings import SERVER_PAGES
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.hosts.parts import RAY_PORT
from gaudi_launch.core.launch.launch_request import completed as request_of
from gaudi_launch.core.launch.traffic_options import TrafficOptions, targets_of
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning import parse, parse_ranges
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.recipes.size_limits import parse_age, parse_size
from gaudi_launch.core.services.process.supervise import LIMITS
from gaudi_launch.extensions.fp8 import case as calibrate
from gaudi_launch.extensions.kubernetes.objects.needs import HUGEPAGES_MIB
from gaudi_launch.extensions.kubernetes.objects.webui_objects import IMAGE as WEBUI_IMAGE
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions, completed
from gaudi_launch.extensions.recommend import case as recommend
from gaudi_launch.extensions.vllm_cpu.image import BASE
from tests.support.help_texts import FoundCommand, all_commands
from tests.support.scripts import script

STATED = re.compile(r"\bdefault:? ([^();]+)[);]")
# readers of values by the metavar of their option; other values are checked by the parser alone
READERS: Mapping[str, Callable[[str], object]] = {
    "TIME": lambda text: parse.seconds("--x", text, least=0),
    "PORT": lambda text: parse.port("--x", text),
    "TOKENS": lambda text: parse.tokens("--x", text),
    "RANGE": lambda text: parse_ranges.pair("--x", text),
    "200G": parse_size,
    "30d": parse_age,
}


@dataclass(frozen=True)
class Shown:
    """An option or argument with its row of the English page."""

    command: FoundCommand
    param: Any
    row: Any

    @property
    def id(self) -> str:
        return f"{self.command.path} {self.row.name}"

    @property
    def example(self) -> str:
        return str(self.row.example).strip("`")


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return script("reference")


@pytest.fixture(scope="module")
def shown(reference: ModuleType) -> list[Shown]:
    return list(rows_of(reference))


def rows_of(reference: ModuleType) -> Iterator[Shown]:
    for command in all_commands():
        for param in command.command.get_params(command.context):
            if param.hidden or not command.path or "--help" in param.opts:
                continue
            entry = help.entry_of(param)
            yield Shown(command, param, reference.option_row(command.path, entry, param, "en"))


def with_value(reference: ModuleType, shown: list[Shown]) -> list[Shown]:
    return [each for each in shown if reference.takes_value(each.param)]


def test_every_option_with_a_value_has_a_default(reference: ModuleType, shown: list[Shown]) -> None:
    found = with_value(reference, shown)
    assert len(found) > 500
    assert [each.id for each in found if not each.row.default] == []


def test_every_option_with_a_value_has_an_example(
    reference: ModuleType, shown: list[Shown]
) -> None:
    assert [each.id for each in with_value(reference, shown) if not each.example] == []


def test_a_switch_is_off_or_on(reference: ModuleType, shown: list[Shown]) -> None:
    switches = [each for each in shown if not reference.takes_value(each.param)]
    assert [each.id for each in switches if each.param.default not in (False, None)] == []
    rows = {(each.row.default, each.row.unit, each.row.example) for each in switches}
    assert rows == {("off", "", ""), ("on", "", "")}
    on = sorted(each.id for each in switches if each.row.default == "on")
    assert on == sorted(reference.read("options")["on_by_default"])
    stated = [each.id for each in switches if "default)" in help.entry_of(each.param).text]
    assert sorted(stated) == on


def test_every_fact_belongs_to_an_option(reference: ModuleType, shown: list[Shown]) -> None:
    known: dict[str, set[str]] = {}
    for each in with_value(reference, shown):
        known.setdefault(reference.option_key(each.param), set()).add(each.command.path)
    facts = reference.read("options")["options"]
    assert sorted(facts.keys() - known.keys()) == []
    strays = [
        f"{path} {key}"
        for key, each in facts.items()
        for paths in each.get("commands", {})
        for path in paths.split(", ")
        if path not in known[key]
    ]
    assert strays == []


def test_no_default_repeats_the_code_or_the_help(reference: ModuleType, shown: list[Shown]) -> None:
    used: dict[str, set[str]] = {}
    for each in with_value(reference, shown):
        _, stated = reference.without_default(help.entry_of(each.param).text)
        if not (each.param.required or reference.default_of(each.param) or stated):
            facts = reference.option_facts(each.command.path, each.param)
            used.setdefault(reference.option_key(each.param), set()).add(facts["default"])
    unused = [
        (key, facts["default"])
        for key, general in reference.read("options")["options"].items()
        for facts in (general, *general.get("commands", {}).values())
        if "default" in facts and facts["default"] not in used.get(key, ())
    ]
    assert unused == []


def test_the_words_of_defaults_and_units_have_chinese(reference: ModuleType) -> None:
    texts = set()
    for general in reference.read("options")["options"].values():
        for facts in (general, *general.get("commands", {}).values()):
            texts.update({facts.get("unit", "")} - {""})
            texts.update({each for each in (facts.get("default", ""),) if " " in each})
    assert sorted(texts - reference._chinese().keys()) == []


# two things of one name: lists of cards, a switch, pages and MiB, a folder
OTHER_KINDS = {
    "--accelerator": {"MACHINE", "NAME"},
    "--cards": {"LIST", "N"},
    "--hugepages": {"MIB", "N"},
    "--image": {"", "IMAGE"},
    "--in": {"docker|podman", "venv|docker|podman"},
    "--weights": {"MODEL", "a path"},
    "-n": {"LIST", "N"},
    "-p": {"", "PORT"},
    "-w": {"MODEL", "a path"},
}


def test_a_name_of_an_option_has_one_kind_of_value(
    reference: ModuleType, shown: list[Shown]
) -> None:
    kinds: dict[str, set[str]] = {}
    for each in shown:
        if help.is_argument(each.param):
            continue
        kind = str(each.param.metavar) if reference.takes_value(each.param) else ""
        for name in each.param.opts:
            is_path = re.search("FILE|DIR|FOLDER", kind)
            kinds.setdefault(name, set()).add("a path" if is_path else kind)
    assert {name: found for name, found in kinds.items() if len(found) > 1} == OTHER_KINDS
    # lengths are --output; a path that a command writes is --to
    assert (kinds["--output"], kinds["--to"]) == ({"RANGE"}, {"a path"})
    assert "--out" not in kinds


def test_the_parsers_defaults_are_shown(shown: list[Shown]) -> None:
    wrong = []
    for each in shown:
        default = each.param.default
        is_flag = getattr(each.param, "is_flag", False)
        if is_flag or default in (None, "", (), [], 0) or "Sentinel" in type(default).__name__:
            continue
        written = f"{default:g}" if isinstance(default, float) else str(default)
        if each.row.default != f"`{written}`":
            wrong.append((each.id, written, each.row.default))
    assert wrong == []


def test_a_default_in_a_help_is_the_one_of_the_column(shown: list[Shown]) -> None:
    wrong = []
    for each in shown:
        text = help.entry_of(each.param).text
        found = STATED.search(text)
        if found is not None and found[1] not in each.row.default:
            wrong.append((each.id, found[1], each.row.default))
        if "(default: " in each.row.meaning or "(default " in each.row.meaning:
            wrong.append((each.id, "shown twice", each.row.meaning))
    assert wrong == []


# --- examples -------------------------------------------------------------------------------------


def words_with(each: Shown, others: list[Shown]) -> list[str]:
    """Return the arguments of a command with one example, and what it requires in addition."""
    words = words_of(each)
    for other in others:
        same = other.command.path == each.command.path
        if same and other.param.required and other.param is not each.param:
            words += words_of(other)
    return words


def words_of(each: Shown) -> list[str]:
    if help.is_argument(each.param):
        several = each.param.nargs != 1 and " -- " not in each.example
        if each.row.name.startswith("`'"):
            return [each.example.strip("'")]
        return each.example.split() if several or " -- " in each.example else [each.example]
    return [max(each.param.opts, key=len), each.example]


def parsed(each: Shown, others: list[Shown]) -> Any:
    """Return the context of a command line with this example; nothing is run."""
    command, parent = each.command.command, each.command.context.parent
    words = words_with(each, others)
    # a required argument is in its place, whatever option comes first
    arguments = [
        word
        for other in others
        if other.command.path == each.command.path and help.is_argument(other.param)
        if other.param.required or other.param is each.param
        for word in words_of(other)
    ]
    options = [word for word in words if word not in arguments]
    if "--weights" in each.param.opts:  # in place of the first argument
        options = [*words[:2], *(word for word in words[2:] if word not in arguments)]
        arguments = arguments[1:]
    return command.make_context(each.command.path, [*options, *arguments], parent=parent)


def test_each_example_is_parsed(reference: ModuleType, shown: list[Shown]) -> None:
    found = with_value(reference, shown)
    wrong = []
    for each in found:
        try:
            parsed(each, found).close()
        except Exception as error:
            wrong.append((each.id, words_with(each, found), repr(error)))
    assert wrong == []


def test_each_example_of_a_choice_is_one_of_it(reference: ModuleType, shown: list[Shown]) -> None:
    wrong = []
    for each in with_value(reference, shown):
        choices = str(each.param.metavar or "").split("|")
        is_choice = len(choices) > 1 and all(re.fullmatch(r"[a-z0-9._-]+", one) for one in choices)
        if is_choice and each.example not in choices:
            wrong.append((each.id, each.example))
    assert wrong == []


def test_each_example_is_read_by_its_reader(reference: ModuleType, shown: list[Shown]) -> None:
    wrong, count = [], 0
    for each in with_value(reference, shown):
        reader = READERS.get(str(each.param.metavar))
        if reader is None:
            continue
        count += 1
        text = each.example
        try:
            assert reader(text)
        except Exception as error:
            wrong.append((each.id, text, repr(error)))
    assert wrong == [] and count > 50


def examples_by_option(reference: ModuleType, path: str, shown: list[Shown]) -> dict[str, str]:
    return {
        reference.option_key(each.param): each.example
        for each in with_value(reference, shown)
        if each.command.path == path
    }


def test_each_example_of_a_launch_makes_a_request(
    reference: ModuleType, shown: list[Shown]
) -> None:
    examples = examples_by_option(reference, "plan", shown)
    tried = []
    for field in fields(LaunchOptions):
        option = option_of(field)
        if option is None or option.switch or not option.names or field.name == "plan_file":
            continue
        example = examples[max(option.names, key=len)]
        given: dict[str, Any] = {field.name: (example,) if option.many else example}
        options = replace(LaunchOptions(model="m"), **given)
        request = request_of(options, environment={}, files_dir="", stamp="")
        if field.name != "machine":
            assert request != request_of(
                LaunchOptions(model="m"), environment={}, files_dir="", stamp=""
            )
        tried.append(field.name)
    assert len(tried) > 20


def test_each_example_of_kubernetes_makes_a_target(
    reference: ModuleType, shown: list[Shown]
) -> None:
    examples = examples_by_option(reference, "render kubernetes", shown)
    several = KubernetesOptions(kind="leaderworkerset")
    ray = KubernetesOptions(kind="rayservice", image="a/b:1")
    needed = {
        "nodes": several,
        "interface": several,
        "layout": several,
        "ray_version": ray,
        "autoscale": KubernetesOptions(max_replicas=4),
        "webui_image": KubernetesOptions(webui=True),
        "ingress_class": KubernetesOptions(ingress_host="a.example"),
    }
    count = 0
    for field in fields(KubernetesOptions):
        option = option_of(field)
        if option is None or option.switch:
            continue
        example = examples[max(option.names, key=len)]
        given: dict[str, Any] = {field.name: (example,) if option.many else example}
        options = replace(needed.get(field.name, KubernetesOptions()), **given)
        completed(options, "m", [])
        count += 1
    assert count == 22


@pytest.mark.parametrize("path", ["recommend"])
def test_each_example_of_traffic_is_read(
    reference: ModuleType, shown: list[Shown], path: str
) -> None:
    examples = examples_by_option(reference, path, shown)
    names = ("ttft", "tpot", "e2e", "percentile", "rate", "concurrency")
    texts: dict[str, Any] = {name: examples[f"--{name}"] for name in names}
    given = TrafficOptions(**texts)
    targets = targets_of(given)
    assert (targets.ttft, targets.tpot, targets.e2e, targets.percentile) == (1.5, 0.05, 20, 99)
    assert (given.rate, given.concurrency) == (50, 64)


# --- defaults that are computed -------------------------------------------------------------------

BIG = Model(path="m", name="m", max_position_embeddings=131072)


def limits_of(engine: str) -> Any:
    return find(engine).limits(Request("m"), make("hls2"), BIG)


def test_the_engines_numbers_are_those_of_their_limits(
    reference: ModuleType, shown: list[Shown]
) -> None:
    fork, plugin = limits_of("vllm-fork@1.21"), limits_of("vllm-gaudi")
    rows = {
        reference.option_key(each.param): each.row.default
        for each in shown
        if each.command.path == "plan"
    }
    assert rows["--max-model-len"] == (
        f"computed: {plugin.max_model_len} for vllm-gaudi, {fork.max_model_len} for "
        "vllm-fork@1.21, at most the model's"
    )
    assert rows["--max-num-seqs"] == (
        f"{plugin.max_num_seqs} for vllm-gaudi, {fork.max_num_seqs} for vllm-fork@1.21"
    )
    assert rows["--max-num-batched-tokens"] == (
        f"computed: {plugin.max_num_batched_tokens} for vllm-gaudi, --max-model-len for vllm-fork"
    )
    assert fork.max_num_batched_tokens == fork.max_model_len
    assert rows["--input"] == (
        f"{plugin.input_min} to --max-model-len; "
        f"vllm-fork@1.21: {fork.input_min} to {fork.input_max}"
    )
    assert rows["--output"] == (
        f"{plugin.output_min} to --max-model-len; "
        f"vllm-fork@1.21: {fork.output_min} to {fork.output_max}"
    )
    assert (plugin.input_max, plugin.output_max) == (plugin.max_model_len,) * 2


def test_numbers_of_constants_are_in_the_column(reference: ModuleType, shown: list[Shown]) -> None:
    rows = {
        (each.command.path, reference.option_key(each.param)): each.row.default for each in shown
    }
    shortest, longest = min(LIMITS.values()), max(LIMITS.values())
    expected = {
        ("recommend", "--input"): f"{recommend.DEFAULT_INPUT}, or those of --trace",
        ("recommend", "--output"): f"{recommend.DEFAULT_OUTPUT}, or those of --trace",
        ("fp8 calibrate", "--dataset"): f"`{calibrate.DATASET}`",
        ("fp8 calibrate", "--batch"): f"1; of a .pkl file: {calibrate._PICKLE_BATCH}",
        ("serve", "--phase-timeout"): (f"{shortest / 60:.0f}m to {longest / 3600:.0f}h, by phase"),
        ("cluster up", "--ray-port"): f"`{RAY_PORT}`",
        ("doctor", "--hugepages"): f"{SERVER_PAGES} for eight cards",
        ("render kubernetes", "--hugepages"): (
            f"computed: by the node's pages, at most {HUGEPAGES_MIB}"
        ),
        ("render kubernetes", "--webui-image"): f"`{WEBUI_IMAGE}`",
        ("setup", "--base-image"): f"GAUDI_LAUNCH_BASE_IMAGE, else {BASE}",
    }
    assert {key: rows[key] for key in expected} == expected
