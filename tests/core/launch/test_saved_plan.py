"""Plans in files: written, read, planned again, differences listed."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.launch import route, saved_plan
from gaudi_launch.core.launch.saved_plan import SavedTraffic
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.extensions.bench.case import prepare as prepare_bench
from gaudi_launch.extensions.bench.options import BenchOptions
from tests.support.cli import document, reading
from tests.support.machines import link_tree, use
from tests.support.refusals import failing, raising
from tests.support.scripts import script
from tests.support.waiting import unused_port

pytestmark = pytest.mark.usefixtures("plain_english")

MODEL, MACHINE = "Qwen/Qwen3-32B", "simulated:hls2"
Save = Callable[[str], tuple[Path, list[str]]]
OPTIONS = LaunchOptions(model=MODEL, machine=MACHINE, max_num_seqs=64, extra=("--seed", "7"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "best.yaml"
    made, _ = route.plan(OPTIONS)
    saved_plan.write(
        path,
        OPTIONS,
        made,
        goal="balanced",
        traffic=SavedTraffic("512,1024", "128", concurrency="8"),
    )
    return path


@pytest.fixture(scope="module")
def save(tmp_path_factory: pytest.TempPathFactory) -> Save:
    """Return what saves a plan for a machine, once; it returns the file and the option."""
    folder = tmp_path_factory.mktemp("plans")

    @cache
    def made(machine: str) -> tuple[Path, list[str]]:
        file, given = folder / f"{machine or 'own'}.yaml", ["--machine", machine] if machine else []
        if machine == "snapshot":
            given = ["--machine", str(folder / "pcie.json")]
            assert run(["devices", "snapshot", given[1], "--machine", "simulated:gaudi3-pcie"]) == 0
        # another test may use the usual port between two runs
        words = ["Qwen/Qwen3-8B", "-p", str(unused_port()), *given, "--save", str(file)]
        assert run(["plan", *words]) in (0, 3)
        return file, given

    return made


def saved(path: Path, **others: Any) -> LaunchOptions:
    """Return what --plan and other options are as typed."""
    return LaunchOptions(plan_file=str(path), **others)


def said(options: LaunchOptions) -> list[str]:
    made, _ = route.plan(options)
    return [each.render() for each in made.warnings if each.id.startswith("saved.")]


def change(path: Path, *names: str, to: Any) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    node = document
    for name in names[:-1]:
        node = node[name]
    node[names[-1]] = to
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def test_a_saved_plan_is_the_same_when_it_is_planned_again(file: Path) -> None:
    found = saved_plan.read(file)
    first, again = route.plan(OPTIONS)[0], route.plan(saved(file))[0]
    assert (found.goal, found.engine, found.url) == ("balanced", first.engine.exact, first.url)
    assert again.command == first.command
    assert saved_plan.hash_of(again) == found.hash == saved_plan.hash_of(first)
    assert said(saved(file)) == []


def test_the_file_has_the_options_and_the_chosen_number_of_cards(file: Path) -> None:
    options = yaml.safe_load(file.read_text(encoding="utf-8"))["options"]
    assert options == {
        "model": MODEL,
        "max-num-seqs": "64",
        "cards": str(len(saved_plan.read(file).cards)),
        "engine-arguments": ["--seed", "7"],
    }


def test_given_options_win_and_are_listed(file: Path) -> None:
    found = said(saved(file, max_num_seqs="32", max_model_len="8k", extra=("--enforce-eager",)))
    assert found[:3] == [
        "--max-model-len 8000 is given in addition to best.yaml",
        "--max-num-seqs 32 is given and replaces 64 of best.yaml",
        "given in addition to best.yaml: -- --enforce-eager",
    ]
    assert "--max-num-seqs 64 -> 32" in found[-1] and "--enforce-eager - -> on" in found[-1]
    made, _ = route.plan(saved(file, max_num_seqs="32", extra=("--enforce-eager",)))
    assert made.args.last("--max-num-seqs") == "32"
    assert made.command.user == ("--seed", "7", "--enforce-eager")


def test_another_engine_version_is_listed(file: Path) -> None:
    change(file, "engine", to="vllm-gaudi@0.11.0")
    now = saved_plan.hash_of(route.plan(OPTIONS)[0])
    assert now == saved_plan.read(file).hash
    (line,) = said(saved(file))
    assert line.startswith(
        "best.yaml was planned for vllm-gaudi@0.11.0; this plan is for vllm-gaudi@"
    )


def test_cards_that_are_not_free_are_listed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert saved_plan.read(file).cards == (0,)
    monkeypatch.setenv("HABANA_VISIBLE_MODULES", "4,5,6,7")
    words = "which are not all free here; this plan takes 4"
    assert said(saved(file)) == [f"best.yaml was planned for cards 0, {words}"]


def test_modules_that_are_given_replace_the_saved_number(file: Path) -> None:
    made, _ = route.plan(saved(file, modules="4,5"))
    assert made.placement.modules == (4, 5)


def test_options_are_merged_once(file: Path) -> None:
    once = saved_plan.merged(saved(file, extra=("--enforce-eager",)))
    assert saved_plan.merged(once) == once
    assert once.extra == ("--seed", "7", "--enforce-eager")
    assert saved_plan.own_part(once) == saved(file, extra=("--enforce-eager",))


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("", 1, "must be object"),
        ("schema: 1\nkind: [\n", 3, "did not find expected node content"),
        ("schema: 2\n", 1, "/schema"),
        ("{good}\nnew: 1\n", None, "unknown entry new"),
    ],
)
def test_a_bad_file_is_reported_with_its_line(
    text: str, line: int | None, why: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = file.read_text(encoding="utf-8")
    file.write_text(text.replace("{good}", good), encoding="utf-8")
    line = line or good.count("\n") + 2
    code, shown = document(capsys, "plan", "--plan", str(file))
    error = shown["error"]
    assert (code, error["id"]) == (2, "saved.bad")
    assert error["message"].startswith(f"{file}, line {line}: ") and why in error["message"], error


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("force-it", "1"),
        ("trust-remote-code", "yes"),
        ("max-num-seqs", ["4"]),
        ("max-num-seqs", True),
    ],
)
def test_an_option_of_another_form_is_reported_with_its_line(
    key: str, value: Any, file: Path
) -> None:
    change(file, "options", key, to=value)
    with pytest.raises(LaunchError) as error:
        saved_plan.read(file)
    lines = file.read_text(encoding="utf-8").splitlines()
    line = next(
        number for number, text in enumerate(lines, 1) if text.strip().startswith(f"{key}:")
    )
    assert (error.value.id, error.value.text.values["line"]) == ("saved.bad", line)


def test_a_bad_value_of_an_option_is_that_options_error(file: Path) -> None:
    change(file, "options", "max-num-seqs", to="many")
    with raising("plan.number"):
        route.plan(saved(file))


def test_a_secret_is_not_saved(tmp_path: Path) -> None:
    options = replace(OPTIONS, extra=("--api-key", "s3cret-value"))
    made, _ = route.plan(OPTIONS)
    with raising("plan.secret_several"):
        saved_plan.write(tmp_path / "x.yaml", options, made, goal="", traffic=SavedTraffic())
    assert not (tmp_path / "x.yaml").exists()


def test_another_file_is_not_replaced(file: Path, tmp_path: Path) -> None:
    made, _ = route.plan(OPTIONS)
    other = tmp_path / "notes.txt"
    other.write_text("mine\n")
    with raising("saved.other_file"):
        saved_plan.write(other, OPTIONS, made, goal="", traffic=SavedTraffic())
    assert other.read_text() == "mine\n"
    # opened, it would wait for a reader
    os.mkfifo(tmp_path / "pipe")
    with raising("saved.other_file"):
        saved_plan.write(tmp_path / "pipe", OPTIONS, made, goal="", traffic=SavedTraffic())
    saved_plan.write(file, OPTIONS, made, goal="latency", traffic=SavedTraffic())
    assert saved_plan.read(file).goal == "latency"


def test_a_path_is_checked_before_a_search(file: Path, tmp_path: Path) -> None:
    saved_plan.check_path(file)
    saved_plan.check_path(tmp_path / "new.yaml")
    with failing("saved.not_written", ExitCode.FAILED):
        saved_plan.check_path(tmp_path / "missing" / "new.yaml")


# what each command that takes --plan needs besides
COMMANDS = {
    "cache adopt": "--cache cache",
    "cluster plan": "--hosts a=simulated:hls2",
    "cluster up": "--hosts a=simulated:hls2 --yes",
    "engines diff": "vllm-gaudi@0.24 vllm-gaudi@0.26",
    "estimate": "--json",
    "plan": "--json",
    "recommend": "--json -i 64 -o 64 -n 1",
    "render compose": "",
    "render docker": "",
    "render kubernetes": "",
    "render quadlet": "",
    "render ray-serve": "",
    "render script": "",
    "render systemd": "",
    "serve": "",
    "tune": "",
    "warmup": "--json",
}
# they start engines: the first two on this machine, the last on others
STARTING = ("serve", "tune", "cluster up")


@pytest.fixture
def gaudi2_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, tmp_path / "here", link_tree("hls2", tmp_path / "here"))
    # other tests fill the disk between two runs
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1 << 50))


@pytest.mark.usefixtures("gaudi2_here")
@pytest.mark.parametrize("machine", ["", "simulated:hls2", "simulated:gaudi3-oam", "snapshot"])
@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_plans_for_the_machine_of_the_file(
    command: str, machine: str, save: Save, capsys: pytest.CaptureFixture[str]
) -> None:
    file, given = save(machine)
    capsys.readouterr()
    words = [*command.split(), *shlex.split(COMMANDS[command]), "--plan", str(file)]
    code = run(words)
    shown = capsys.readouterr()
    if command not in STARTING:
        # as if the machine had been stated
        assert (run([*words, *given]), capsys.readouterr().out) == (code, shown.out), shown.err
        return
    refused = "was planned for" in shown.err and "cards is gaudi2" in shown.err
    other = machine not in ("", "simulated:hls2") and command != "cluster up"
    assert (refused, code == ExitCode.MACHINE or not other) == (other, True), shown.err
    assert "--machine" not in shown.err


def test_every_command_with_a_plan_is_tried() -> None:
    with_plan = {
        path.removeprefix("gaudi-launch ")
        for path, entry in script("interface").commands().items()
        if "--plan" in str(entry["options"])
    }
    assert with_plan == {*COMMANDS, "bench"}


def test_the_answers_of_recommend_have_their_machine(tmp_path: Path) -> None:
    folder = tmp_path / "plans"
    load = ["-i", "64", "-o", "64", "--save", str(folder)]
    words = ["recommend", "Qwen/Qwen3-8B", "--accelerator", "gaudi3", "-n", "1", "-d", "bf16"]
    assert run([*words, *load]) == 0
    files = sorted(folder.iterdir())
    assert [each.name[:13] for each in files] == [f"{n}-n1-bfloat16" for n in (1, 2, 3)]
    assert {saved_plan.read(each).options.machine for each in files} == {"simulated:gaudi3-oam"}
    # another product replaces the machine of the file, and its plans those of the first search
    words = ["recommend", "--plan", str(files[0]), "--accelerator", "gaudi2"]
    assert run([*words, *load]) == 0
    assert {saved_plan.read(each).options.machine for each in folder.iterdir()} == {
        "simulated:hls2"
    }
    # nothing else is replaced
    (folder / "notes.yaml").write_text("mine: 1\n")
    assert run([*words, *load]) == 2
    assert run([*words, "--save", str(tmp_path / "best.yaml")]) == 2
    assert [each.name for each in tmp_path.glob("*.yaml")] == []


def test_render_takes_a_saved_plan(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = file.parent / "out"
    assert run(["render", "script", "--plan", str(file), "--to", str(target)]) == 0
    script = target.read_text(encoding="utf-8")
    assert "--max-num-seqs 64" in " ".join(script.split())


def test_the_plan_command_saves_and_names_the_command(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = file.parent / "mine.yaml"
    assert run(["plan", MODEL, "--machine", MACHINE, "-b", "16", "--save", str(target)]) == 0
    assert f"gaudi-launch serve --plan {target}" in capsys.readouterr().err
    assert saved_plan.read(target).options == LaunchOptions(
        model=MODEL, max_num_seqs=16, cards=len(saved_plan.read(target).cards), machine=MACHINE
    )
    assert run(["plan", "--plan", str(target)]) == 0
    assert f"next: gaudi-launch serve --plan {target}" in capsys.readouterr().out


def test_bench_takes_the_saved_load_and_address(file: Path) -> None:
    case = prepare_bench((), BenchOptions(plan_file=str(file)))
    assert case.found.url == "http://127.0.0.1:30001"
    assert (case.options.input, case.options.output, case.options.concurrency) == (
        (512, 1024),
        (128, 128),
        8,
    )
    assert case.differences == ()


def test_the_load_that_is_given_to_bench_wins(file: Path) -> None:
    given: dict[str, Any] = {"rate": "2", "output": "64"}
    case = prepare_bench(("127.0.0.1:9",), BenchOptions(plan_file=str(file), **given))
    assert (case.found.url, case.options.rate, case.options.concurrency) == (
        "http://127.0.0.1:9",
        2.0,
        None,
    )
    assert (case.options.input, case.options.output) == ((512, 1024), (64, 64))
    assert [each.render() for each in case.differences] == [
        "--output 64 is given and replaces 128 of best.yaml"
    ]


def test_a_plan_without_a_load_is_refused_by_bench(file: Path) -> None:
    change(file, "traffic", to={})
    with raising("saved.no_traffic"):
        prepare_bench((), BenchOptions(plan_file=str(file)))


def test_recommend_saves_its_answer_for_one_replica(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = file.parent / "plans"
    words = f"recommend Qwen/Qwen3-8B --machine {MACHINE} -i 512 -o 128 --for cost"
    more = ("--concurrency", "256", "-d", "bfloat16", "--save", str(target))
    answer = reading(capsys, *words.split(), *more)
    [first] = target.glob("1-*.yaml")
    found = saved_plan.read(first)
    replicas = answer["winner"]["served"]["replicas"]
    assert (found.goal, found.traffic) == (
        "cost",
        SavedTraffic("512", "128", concurrency=str(-(-256 // replicas))),
    )
    assert said(saved(first)) == []
