"""``setup`` with stand-ins for git, pip and docker: the right words, resumed where it stopped."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.paths import profiles_dir
from gaudi_launch.core.engines.install.environment import in_venv
from gaudi_launch.core.engines.install.install_steps import SetupExtras, code_steps, dockerfile
from gaudi_launch.core.engines.known_versions import versions
from gaudi_launch.core.engines.needed_release import needed_release
from gaudi_launch.core.engines.releases import constraints_of, known, no_constraints, trial_of
from tests.support.cli import called, reading
from tests.support.refusals import failing
from tests.support.serve import machine, model
from tests.support.waiting import unused_port

__all__ = ["machine", "model"]

# records its words; says no to the call whose number stands in the file `fail`; makes environments
STAND_IN = """#!{python}
import json, pathlib, shutil, sys
home = pathlib.Path({home!r})
name = pathlib.Path(sys.argv[0]).name
packages = home / "packages"
if sys.argv[1:2] == ["-c"] and "gaudi-launch-answer:" in sys.argv[2]:
    # an environment has what is installed, the base has nothing
    made = packages.exists() and pathlib.Path(sys.argv[0]).parent.parent.name == "venv"
    answer = json.loads(packages.read_text()) if made else {{"packages": {{}}, "facts": {{}}}}
    print("gaudi-launch-answer:" + json.dumps(answer))
    sys.exit()
if sys.argv[1:2] == ["-c"]:
    sys.exit()
if sys.argv[1:3] == ["image", "inspect"]:
    sys.exit()
with (home / "calls").open("a") as calls:
    calls.write(json.dumps([name, *sys.argv[1:]]) + "\\n")
count = len((home / "calls").read_text().splitlines())
fail = home / "fail"
if fail.exists() and int(fail.read_text()) == count:
    sys.exit("the network is down")
if sys.argv[1:3] == ["-m", "venv"]:
    target = pathlib.Path(sys.argv[-1]) / "bin" / "python"
    target.parent.mkdir(parents=True)
    shutil.copy2(sys.argv[0], target)
"""


class User:
    """Runs the command with stand-ins on PATH."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.bin = home / "bin"
        self.bin.mkdir()
        for name in ("git", "docker", "base-python", "python3", "sed", "mkdir"):
            if name == "mkdir":
                (self.bin / name).symlink_to(shutil.which(name) or "/bin/mkdir")
                continue
            (self.bin / name).write_text(
                STAND_IN.format(python=sys.executable, home=str(home)), encoding="utf-8"
            )
            (self.bin / name).chmod(0o755)
        (self.bin / "env").symlink_to(shutil.which("env") or "/usr/bin/env")

    def launch(self, *words: str) -> tuple[int, str, str]:
        """Run a command as a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "gaudi_launch", *words],
            capture_output=True,
            text=True,
            check=False,
            env=self.environment(),
        )
        assert "Traceback" not in done.stdout + done.stderr
        return done.returncode, done.stdout, done.stderr

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run `setup` here: what it starts are processes all the same."""
        return called(self.environment(), "setup", *words)

    def environment(self) -> dict[str, str]:
        hidden = ("LC_", "LANG", "GAUDI_LAUNCH")
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(hidden)},
            "PATH": str(self.bin),
            "XDG_DATA_HOME": str(self.home / "data"),
            "XDG_STATE_HOME": str(self.home / "state"),
        }

    @property
    def calls(self) -> list[list[str]]:
        file = self.home / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def engines(self) -> Path:
        return self.home / "data/gaudi-launch/engines"


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


VENV = ("vllm-fork@1.21", "--python", "base-python")


def test_a_virtual_environment_at_the_pinned_commits(user: User) -> None:
    mirror = "https://mirror.example/simple"
    code, out, err = user.launch("setup", *VENV, "--vision", "--index-url", mirror)
    assert code == 0, err
    folder = user.engines / "vllm-fork-1.21"
    python, source = f"{folder}/venv/bin/python", f"{folder}/src/vllm-fork"
    pins = constraints_of(needed_release("vllm-fork@1.21"))
    pip = ["python", "-m", "pip", "install", "--index-url", mirror, "--constraint", pins]
    git = ["git", "-C", source]
    extension = "git+https://github.com/HabanaAI/vllm-hpu-extension.git@8afd253"
    assert user.calls == [
        ["base-python", "-m", "venv", "--system-site-packages", f"{folder}/venv"],
        ["git", "init", "--quiet", source],
        [*git, "fetch", "--tags", "https://github.com/HabanaAI/vllm-fork.git", "aice/v1.21.0"],
        [*git, "checkout", "--quiet", "--detach", "277a33cd9"],
        [*pip, "--requirement", f"{source}/requirements-hpu.txt"],
        [*pip, "--editable", source],
        [*pip, "--no-deps", "--force-reinstall", extension],
        ["python", "-m", "pip", "uninstall", "--yes", "pillow"],
        [*pip, "--upgrade", "--force-reinstall", "pillow-simd"],
    ]
    linked = f"{folder}.current/venv/bin/python"
    assert out == f"The engine is ready. Use it with: gaudi-launch serve --python {linked} ...\n"
    assert Path(linked).samefile(python)
    assert "[10/10] Building Pillow-SIMD with AVX2\n" in err
    assert "not tried on a server with cards" in err


ANSWERS = {
    "vllm-gaudi": ({"vllm": "0.26.0", "vllm-gaudi": "0.26.0"}, {}),
    "vllm-gaudi@0.24.0": ({"vllm": "0.24.0", "vllm-gaudi": "0.24.0"}, {}),
    "vllm-fork@1.22": ({"vllm": "0.9.0", "vllm-hpu-extension": "1.0"}, {"extension_kind": "1.22"}),
}
GAUDI = ("torch-plugin", "torch-dataloader", "pyhlml", "media-loader")
BELOW = {f"habana-{name}": "1.22.1.6" for name in GAUDI} | {"neural-compressor-pt": "3.4"}


@pytest.mark.parametrize("engine", ANSWERS)
def test_an_engine_that_setup_made_is_used_without_naming_its_interpreter(
    engine: str, user: User, machine: Path, model: Path
) -> None:
    packages, facts = ANSWERS[engine]
    answer = {"packages": {**BELOW, **packages}, "facts": facts}
    (user.home / "packages").write_text(json.dumps(answer))
    named = () if engine == "vllm-gaudi" else ("--engine", engine)
    asked = ("-w", str(model), "-n", "1", *named)

    def launch(*words: str) -> tuple[int, str, str]:
        return called({**user.environment(), "GAUDI_LAUNCH_ROOT": str(machine)}, *words)

    def plan() -> dict[str, Any]:
        code, out, err = launch("plan", *asked, "--json")
        assert code == 0, err
        return dict(json.loads(out))

    [step] = plan()["todo"]
    assert step["command"] == ["gaudi-launch", "setup", engine]
    code, _, err = launch("serve", *asked)
    assert code == 3 and shlex.join(step["command"]) in err
    # the command as it was printed; it installs over python3 on PATH
    code, _, err = launch(*step["command"][1:])
    assert code == 0, err

    made = plan()
    python = str(user.engines / engine.replace("@", "-") / "venv/bin/python")
    assert (made["verdict"], made["todo"], made["engine"]["python"]) == ("ready", [], python)
    # each command that looks for an engine finds the same one
    code, out, err = launch("doctor", "--only", "engine.present", "--json")
    assert code == 0, out
    code, out, err = launch("engines", "--json")
    assert python in out.replace(".current", ""), out
    calls = len(user.calls)
    code, _, err = launch("serve", *asked, "-p", str(unused_port()))
    # the stand-in ends at once, which is the engine's failure
    assert code == 4, err
    assert next(call for call in user.calls[calls:] if "-m" in call)[0] == "python"


def test_mirrors_reach_git_and_pip_of_a_dry_run(user: User) -> None:
    code, out, err = user.run(*VENV, "--dry-run", "--git-mirror", "https://git.site/gh")
    assert code == 0, err
    assert out.splitlines()[:3] == [
        "export GIT_CONFIG_COUNT=1",
        "export GIT_CONFIG_KEY_0=url.https://git.site/gh/.insteadOf",
        "export GIT_CONFIG_VALUE_0=https://github.com/",
    ]
    code, out, err = user.run(
        "cpu", "--dry-run", "--torch-index", "https://t.site/cpu", "--index-url", "https://p.site/s"
    )
    assert code == 0, err
    torch = [line for line in out.splitlines() if "torch==" in line]
    assert [line.partition(" install ")[2] for line in torch] == [
        "--index-url https://p.site/s --extra-index-url https://t.site/cpu"
        " --find-links https://t.site/cpu --quiet torch==2.13.0+cpu"
    ]


def test_an_image_is_pulled_from_the_mirror_and_keeps_its_name(user: User) -> None:
    code, _, err = user.run("tgi", "--in", "docker", "--registry", "reg.site:5000/hub")
    assert code == 0, err
    (pull, tag) = user.calls
    image = pull[2].removeprefix("reg.site:5000/hub/")
    assert (pull[:2], tag) == (["docker", "pull"], ["docker", "tag", pull[2], tag[3]])
    assert tag[3].endswith(f"/{image}")
    assert "[2/2] Naming the image as published" in err


def test_the_build_of_an_image_gets_mirrors_and_proxies_by_name(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://me:hunter2@proxy:3128")
    code, out, err = user.run(
        *("vllm-fork@1.21", "--in", "docker", "--git-mirror", "https://g.site"),
        *("--index-url", "https://p.site/s", "--registry", "reg.site"),
    )
    assert code == 0, err
    pull, build = user.calls
    assert pull[2].startswith("reg.site/gaudi-docker/")
    assert build[:4] == ["docker", "build", "--build-arg", "https_proxy"]
    lines = Path(build[-2]).read_text(encoding="utf-8").splitlines()
    assert lines[:4] == [
        f"FROM {pull[2]}",
        "ARG GIT_CONFIG_COUNT=1",
        "ARG GIT_CONFIG_KEY_0=url.https://g.site/.insteadOf",
        "ARG GIT_CONFIG_VALUE_0=https://github.com/",
    ]
    assert sum('"--index-url", "https://p.site/s"' in line for line in lines) == 3
    everything = out + err + json.dumps(user.calls) + "".join(lines)
    assert "hunter2" not in everything


@pytest.mark.parametrize(
    "words",
    [
        ("cpu", "--registry", "reg.site"),
        ("gateway", "--torch-index", "https://t.site/cpu"),
        ("vllm-fork@1.21", "--torch-index", "https://t.site/cpu"),
        ("tgi", "--in", "docker", "--git-mirror", "https://g.site"),
    ],
)
def test_a_mirror_that_an_engine_does_not_use_is_refused(
    user: User, words: tuple[str, ...]
) -> None:
    code, out, err = user.run(*words)
    assert (code, out, user.calls) == (2, "", [])
    assert "does not apply to the engine" in err


def test_it_goes_on_where_it_stopped(user: User) -> None:
    (user.home / "fail").write_text("5")
    code, out, err = user.run(*VENV)
    assert (code, out) == (1, "")
    assert (
        "Installing the engine's dependencies" in err
        and "the network is down" in err
        and "setup.log" in err
    )
    before = user.calls
    (user.home / "fail").unlink()
    assert user.run(*VENV)[0] == 0
    # the failed step again, then the rest
    assert user.calls[5] == before[4]
    assert len(user.calls) == 5 + 3
    code, out, err = user.run(*VENV)
    assert (code, err) == (0, "") and out.startswith("Everything is already installed.\n")
    assert len(user.calls) == 8
    # another mirror has the same packages
    assert user.run(*VENV, "--index-url", "https://mirror.example/simple")[0] == 0
    assert len(user.calls) == 8


def test_other_packages_are_installed_beside_and_replace_the_old_version(user: User) -> None:
    assert user.run(*VENV)[0] == 0
    first, second = user.engines / "vllm-fork-1.21", user.engines / "vllm-fork-1.21+2"
    linked = user.engines / "vllm-fork-1.21.current"
    before = len(user.calls)
    code, _, err = user.run(*VENV, "--vision")
    assert code == 0, err
    assert f"Trying the new version in {second}\n{second} is now in force. {first} is kept" in err
    assert user.calls[before][-1] == f"{second}/venv"
    assert linked.resolve() == second.resolve()
    # it has all that the first has, so it stays; rolled back, the first one does
    made = user.calls
    assert user.run(*VENV)[1].startswith("Everything is already installed.\n")
    assert linked.resolve() == second.resolve()
    assert user.run("--rollback")[0] == 0
    assert user.run(*VENV)[1].startswith("Everything is already installed.\n")
    assert linked.resolve() == first.resolve()
    # the second one is complete: it is put in force again without any step
    document = json.loads(user.run(*VENV, "--vision", "--json")[1])
    assert [document[each] for each in ("steps_run", "replaced", "services")] == [0, str(first), []]
    assert (linked.resolve(), user.calls) == (second.resolve(), made)


def test_a_rollback_returns_to_the_version_before(user: User) -> None:
    assert user.run(*VENV)[0] == 0
    assert user.run(*VENV, "--vision")[0] == 0
    first, second = user.engines / "vllm-fork-1.21", user.engines / "vllm-fork-1.21+2"
    linked = user.engines / "vllm-fork-1.21.current"
    code, out, err = user.run("--rollback", "--dry-run")
    assert (code, err) == (0, "")
    assert out == (
        f"vllm-fork-1.21: {first} would be in force again instead of {second}. Nothing was "
        "changed.\n"
    )
    assert linked.resolve() == second.resolve()
    code, out, err = user.run("vllm-fork@1.21", "--rollback", "--json")
    assert code == 0, err
    assert json.loads(out) == {
        "schema": 1,
        "engine": "vllm-fork-1.21",
        "folder": str(first),
        "python": f"{linked}/venv/bin/python",
        "dry_run": False,
        "replaced": str(second),
        "services": [],
    }
    assert linked.resolve() == first.resolve()
    code, out, err = user.run("vllm-fork@1.21", "--rollback")
    assert (code, out) == (2, "") and "has no earlier version on this machine" in err


def test_a_rollback_without_a_name_needs_one_engine_with_two_versions(user: User) -> None:
    code, out, err = user.run("--rollback")
    assert (code, out) == (2, "") and "No engine on this machine has an earlier version" in err
    assert not user.engines.exists()
    for engine in ("vllm-fork@1.21", "vllm-fork@1.22"):
        assert user.run(engine, "--python", "base-python")[0] == 0
        assert user.run(engine, "--python", "base-python", "--vision")[0] == 0
    code, out, err = user.run("--rollback")
    assert (code, out) == (2, "") and "vllm-fork-1.21, vllm-fork-1.22" in err
    shutil.rmtree(user.engines / "vllm-fork-1.22/venv")
    assert user.run("--rollback", "--lang", "zh")[1].startswith("vllm-fork-1.21：")


def test_a_failed_installation_leaves_the_old_version_in_force(user: User) -> None:
    assert user.run(*VENV)[0] == 0
    (user.home / "fail").write_text(str(len(user.calls) + 6))
    assert user.run(*VENV, "--vision")[0] == 1
    linked = user.engines / "vllm-fork-1.21.current"
    assert linked.resolve() == (user.engines / "vllm-fork-1.21").resolve()
    (user.home / "fail").unlink()
    assert user.run(*VENV, "--vision")[0] == 0
    assert linked.resolve() == (user.engines / "vllm-fork-1.21+2").resolve()


def test_an_image_with_the_engine_inside(user: User) -> None:
    code, out, err = user.run("vllm-fork@1.22", "--in", "docker", "--vision", "--json")
    assert code == 0, err
    file = user.engines / "vllm-fork@1.22".replace("@", "-") / "docker/Dockerfile"
    image = "gaudi-launch/vllm-fork:1.22-17a7946f4-vision"
    base = (
        "vault.habana.ai/gaudi-docker/1.22.0/ubuntu22.04/habanalabs/pytorch-installer-2.7.1:latest"
    )
    assert user.calls == [
        ["docker", "pull", base],
        ["docker", "build", "--tag", image, "--file", str(file), str(file.parent)],
    ]
    assert file.read_text() == dockerfile(
        needed_release("vllm-fork@1.22"), SetupExtras(vision=True)
    )
    document = json.loads(out)
    shown = [document[each] for each in ("schema", "image", "python", "steps_run")]
    assert shown == [1, image, None, 2]


@pytest.mark.parametrize(
    ("engine", "version"), [("tgi", "3.3.5"), ("tgi@3.2.3", "3.2.3"), ("tgi@3.3.7", "3.3.7")]
)
def test_tgi_is_its_makers_image(engine: str, version: str, user: User) -> None:
    code, out, err = user.run(engine)
    assert code == 0, err
    assert f"{version}-gaudi is ready" in out
    assert user.calls == [
        ["docker", "pull", f"ghcr.io/huggingface/text-generation-inference:{version}-gaudi"]
    ]


@pytest.mark.parametrize("engine", known())
def test_a_dry_run_prints_every_word_and_touches_nothing(engine: str, user: User) -> None:
    code, out, _ = user.run(engine, "--dry-run", "--json")
    assert code == 0
    document = json.loads(out)
    assert document["schema"] == 1 and all(step["argv"] for step in document["steps"])
    assert user.calls == [] and not user.engines.exists()


@pytest.mark.parametrize("engine", ["cpu", "ray"])
def test_the_embedded_engine_comes_from_a_mirror(engine: str, user: User) -> None:
    mirror = "https://mirror.example/simple"
    _, out, _ = user.run(engine, "--dry-run", "--json")
    _, mirrored, _ = user.run(engine, "--dry-run", "--json", "--index-url", mirror)
    plain, asked = (
        [step["argv"] for step in json.loads(text)["steps"]] for text in (out, mirrored)
    )
    asking = [
        words
        for words in plain
        if {"install", "download"} & set(words) and "--no-index" not in words
    ]
    assert len(asking) == (4 if engine == "cpu" else 5)
    for before, after in zip(plain, asked, strict=True):
        at = after.index("--index-url") if before in asking else len(after)
        assert after[:at] + after[at + 2 :] == before and after[at : at + 2] in (
            [],
            ["--index-url", mirror],
        )
    assert user.calls == [] and not user.engines.exists()


def test_a_release_without_a_line_is_refused_with_those_that_have_one() -> None:
    with failing("support.no_facts", ExitCode.USAGE) as caught:
        needed_release("vllm-gaudi@0.12")
    assert "0.11.2" in str(caught.value)


def plugin_releases() -> list[str]:
    """Return the plugin's releases in the shipped support data."""
    return sorted(
        each.version
        for each in versions()
        if each.engine == "vllm-gaudi" and each.version != "main"
    )


@pytest.mark.parametrize("version", plugin_releases())
def test_each_release_of_the_plugin_has_constraints_or_the_reason_why_not(version: str) -> None:
    try:
        release = needed_release(f"vllm-gaudi@{version}")
    except LaunchError as error:
        assert (error.id, error.exit_code) == ("setup.unresolved_moving", 2)
        assert f"vllm-gaudi {version} cannot be installed" in str(error)
        return
    facts = next(
        each for each in versions() if (each.engine, each.version) == ("vllm-gaudi", version)
    )
    assert facts.commit.startswith(release.code.commit)
    reason = no_constraints(release)
    assert (constraints_of(release) is None) == (reason is not None)
    assert reason is None or reason.render("en").startswith(
        f"vllm-gaudi {version} has no constraints file: vLLM "
    )


def test_older_releases_of_the_plugin_read_another_file_of_build_requirements() -> None:
    files = [
        step.argv[-1]
        for version in ("0.19.1", "0.21.0")
        for step in code_steps(needed_release(f"vllm-gaudi@{version}"), "py", "/s", SetupExtras())
        if step.id == "setup.without_torch"
    ]
    assert files == ["/s/vllm/requirements/build.txt", "/s/vllm/requirements/build/cuda.txt"]


def test_the_trial_of_the_versions_is_shown_with_what_was_left_out(user: User) -> None:
    err = user.run("vllm-fork@1.21", "--python", "base-python")[2]
    trial = trial_of(constraints_of(needed_release("vllm-fork@1.21")) or "")
    assert trial is not None and {"torch", "xgrammar"} <= set(trial.left_out)
    counts = f"{trial.installed} packages, of which {trial.imported} were imported"
    assert (
        f"These versions were installed on {trial.date} with Python {trial.python}: {counts}."
        in err
    )


def test_a_release_without_constraints_gives_the_reason(user: User) -> None:
    code, _, err = user.run("vllm-gaudi@0.13.0", "--python", "base-python")
    assert code == 0
    assert (
        "vLLM 0.13.0 needs transformers >=4.56.0,<5, vllm-gaudi 0.13.0 needs >=4.1,<4.56.0" in err
    )


def test_an_image_is_said_to_be_named_by_its_tag(user: User) -> None:
    assert (
        "pytorch-installer-2.6.0:latest is named by its tag; no source read here gives a digest"
        in (user.run("vllm-fork@1.21", "--in", "docker")[2])
    )


def test_the_recorded_trials_are_of_the_shipped_files_and_metrics_answered() -> None:
    folder = profiles_dir() / "engines" / "constraints"
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))["tried"]
    assert {"vllm-gaudi-0.26.0", "vllm-fork-1.21", "vllm-fork-1.22"} <= set(record)
    assert [name for name in record if trial_of(str(folder / f"{name}.txt")) is None] == []
    assert {each["metrics"] for each in record.values()} == {"[200, 200]"}
    assert [name for name, each in record.items() if each["conflicts"]] == []


def test_an_image_takes_the_resolved_versions(tmp_path: Path) -> None:
    release = needed_release("vllm-fork@1.22")
    steps = [
        json.loads(line.removeprefix("RUN "))
        for line in dockerfile(release, SetupExtras()).splitlines()[1:-1]
    ]
    path = "/opt/gaudi-launch/constraints.txt"
    installs = [
        words
        for words in steps
        if words[1:4] == ["-m", "pip", "install"] or "VLLM_TARGET_DEVICE=hpu" in words
    ]
    assert len(installs) == 3
    assert {words[words.index("--constraint") + 1] for words in installs} == {path}
    # what the step writes is the file, but for its head
    (write,) = [words for words in steps if path in words and "pip" not in words]
    file = tmp_path / "constraints.txt"
    subprocess.run([sys.executable, *write[1:3], str(file), *write[4:]], check=True)
    shipped = Path(constraints_of(release) or "").read_text(encoding="utf-8")
    assert file.read_text() == "".join(
        line for line in shipped.splitlines(True) if not line.startswith("#")
    )
    assert "constraints.txt" not in dockerfile(release, SetupExtras(unpinned=True))


def test_in_chinese(user: User) -> None:
    code, out, err = user.run("tgi", "--lang", "zh")
    assert code == 0 and "已就绪" in out and "拉取镜像" in err


def test_a_dry_run_leaves_out_what_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gaudi_launch.extensions.ray.install import RAY
    from gaudi_launch.extensions.vllm_cpu import install as cpu_install

    def steps() -> list[str]:
        return [step["id"] for step in reading(capsys, "setup", "ray", "--dry-run")["steps"]]

    for owner, name in (
        (cpu_install.EMBEDDED, "is_ready"),
        (cpu_install, "demo_is_ready"),
        (RAY, "is_ready"),
    ):
        monkeypatch.setattr(owner, name, lambda: False)
    everything = steps()
    monkeypatch.setattr(cpu_install.EMBEDDED, "is_ready", lambda: True)
    monkeypatch.setattr(cpu_install, "demo_is_ready", lambda: True)
    ray = [step.id for step in RAY.steps(RAY.environment())]
    assert steps() == ray
    folder = cpu_install.EMBEDDED.environment()
    assert everything == [
        *(step.id for step in cpu_install.EMBEDDED.steps(folder) + cpu_install.demo_steps()),
        *ray,
    ]
    monkeypatch.setattr(RAY, "is_ready", lambda: True)
    assert steps() == []
    assert run(["setup", "ray", "--dry-run"]) == 0
    assert capsys.readouterr().out != ""


@pytest.mark.parametrize(
    "engine", ["vllm-gaudi", "vllm-fork@1.21", "vllm-fork@1.22", "deepseek_r1"]
)
def test_every_pip_step_of_an_environment_takes_the_resolved_versions(engine: str) -> None:
    release = needed_release(engine)
    installs = [
        step.argv for step in in_venv(release, "py", SetupExtras()).steps if "install" in step.argv
    ]
    file = constraints_of(release)
    assert file is not None and installs
    assert {argv[argv.index("--constraint") + 1] for argv in installs} == {file}
    free = in_venv(release, "py", SetupExtras(unpinned=True))
    assert not any("--constraint" in step.argv for step in free.steps)


def test_constraints_are_versions_without_an_address_or_gaudis_own_packages() -> None:
    for name in ("vllm-gaudi", "vllm-fork@1.21", "vllm-fork@1.22", "deepseek_r1"):
        text = Path(constraints_of(needed_release(name)) or "").read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert "Not resolved here" in text and "://" not in text
        names = {line.partition("==")[0] for line in lines}
        assert len(lines) > 100 and all("==" in line for line in lines)
        assert names & {"torch", "triton", "habana-torch-plugin", "vllm", "vllm-gaudi"} == set()
    assert constraints_of(needed_release("vllm-gaudi@main")) is None


def test_the_gateway_is_pinned_by_hashes_and_takes_a_mirror(user: User) -> None:
    code, out, _ = user.run(
        "gateway", "--dry-run", "--json", "--index-url", "https://mirror.example/simple"
    )
    document = json.loads(out)
    assert code == 0
    (path, requirements), *others = document["files"].items()
    assert (Path(path).name, others) == ("requirements.txt", [])
    assert requirements.count("--hash=sha256:") == 2
    install = next(
        step["argv"] for step in document["steps"] if step["id"] == "gateway.setup_install"
    )
    at = install.index("--index-url")
    assert install[at + 1] == "https://mirror.example/simple"
    assert "--require-hashes" in install
    assert not user.engines.exists()
    assert user.run("gateway", "--vision")[:2] == (2, "")
