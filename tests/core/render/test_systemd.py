"""Units: systemd's checker accepts them, its parser reads back every word."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.base.messages import message
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.render.gateway import GatewayFiles
from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.core.render.systemd import (
    _WAIT,
    TUNING,
    UnitEngine,
    UnitOptions,
    command,
    description,
    environment,
    quoted,
    render,
    render_several,
    run_folder,
)
from tests.support.cli import golden
from tests.support.plans import odd, planned
from tests.support.processes import free_port
from tests.support.refusals import failing
from tests.support.render_tools import NAMES, ODD, loaded, no_control, tool
from tests.support.waiting import GENEROUS

__all__ = ["free_port"]


def whole(plan: Plan) -> Plan:
    return replace(
        plan, command=replace(plan.command, argv=(sys.executable, *plan.command.argv[1:]))
    )


def verify(folder: Path, rendered: Rendered, *words: str) -> None:
    for name, content in rendered.files.items():
        (folder / name).write_text(content, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", *words, "verify", *(str(folder / name) for name in rendered.files)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
    )
    # an unknown key only warns
    assert (done.returncode, "gnoring" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("engine", ["vllm-fork@1.21", "vllm-fork@1.22"])
def test_systemd_accepts_a_system_unit(engine: str, tmp_path: Path) -> None:
    plan, _ = planned(engine)
    launcher = tool("true")
    rendered = render(
        whole(plan), "small", {"HF_TOKEN": "x"}, UnitOptions(run_as="nobody", launcher=launcher)
    )
    assert list(rendered.files) == ["small.service", TUNING]
    assert "User=nobody\n" in rendered.files["small.service"]
    assert f"After={TUNING} network-online.target\n" in rendered.files["small.service"]
    assert f"ExecStart={launcher} doctor --fix --yes\n" in rendered.files[TUNING]
    verify(tmp_path, rendered)


def test_systemd_accepts_a_users_unit(tmp_path: Path) -> None:
    plan, _ = planned()
    rendered = render(
        whole(plan), "small", {}, UnitOptions(user=True, run_as="nobody", launcher=tool("true"))
    )
    assert list(rendered.files) == ["small.service"]
    text = rendered.files["small.service"]
    assert "User=" not in text and TUNING not in text and "WantedBy=default.target" in text
    assert [note.id for note in rendered.notes] == ["render.unit_user", "render.tuning_user"]
    verify(tmp_path, rendered, "--user")


@settings(max_examples=10, deadline=None)
@given(
    words=st.lists(ODD.filter(no_control), max_size=12),
    env=st.dictionaries(NAMES, ODD.filter(no_control), max_size=5),
)
def test_systemd_reads_back_every_word(words: list[str], env: dict[str, str]) -> None:
    plan = odd(("/usr/bin/env", *words), env)
    unit = render(plan, "odd", {}).files["odd.service"]
    read = loaded(unit)
    assert read.commands["ExecStart"] == [["/usr/bin/env", *words]]
    assert read.environment == env


def test_odd_folders_are_made() -> None:
    folder = '/w $HOME %h "q" \\ 中'
    plan = odd(("/usr/bin/env",), {"PT_HPU_RECIPE_CACHE_CONFIG": f"{folder},false,1"})
    read = loaded(render(plan, "odd", {}).files["odd.service"])
    assert read.commands["ExecStartPre"] == [["/bin/mkdir", "-p", "--", folder]]


@pytest.mark.parametrize(
    ("argv", "env", "id"),
    [
        (("/bin/x", "a\rb"), {}, "render.not_text"),
        (("/bin/x",), {"A": "\x1b"}, "render.not_text"),
        (("/bin/x", "\udcff"), {}, "render.not_text"),
        (("python3",), {}, "render.no_path"),
        (("/bin/x", "--hf-token", "abc"), {}, "render.secret"),
    ],
)
def test_what_a_unit_cannot_say(argv: tuple[str, ...], env: dict[str, str], id: str) -> None:
    with failing(id, ExitCode.USAGE):
        render(odd(argv, env), "odd", {})


def test_secrets_come_from_a_file() -> None:
    plan = odd(("/bin/x",), {"VLLM_API_KEY": "s3cret"})
    system = render(plan, "odd", {"HF_TOKEN": "hf_x"})
    assert "EnvironmentFile=/etc/gaudi-launch/odd.env\n" in system.files["odd.service"]
    assert "s3cret" not in system.files["odd.service"] and "hf_x" not in system.files["odd.service"]
    # a model's token may be missing, the server's key may not
    mine = render(odd(("/bin/x",), {}), "odd", {"HF_TOKEN": "hf_x"}, UnitOptions(user=True))
    assert "EnvironmentFile=-%h/.config/gaudi-launch/odd.env\n" in mine.files["odd.service"]


def test_the_unit_waits_for_the_engine(free_port: int) -> None:
    """What ExecStartPost runs: it ends with 0 when the engine answers, and with 1 when the
    engine has ended."""
    server = (
        "import sys, time, http.server as h\n"
        "time.sleep(1)\n"
        "class A(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200); self.end_headers()\n"
        "h.HTTPServer(('127.0.0.1', int(sys.argv[1])), A).serve_forever()\n"
    )
    words = [sys.executable, "-I", "-c", _WAIT, f"http://127.0.0.1:{free_port}/health"]
    engine = subprocess.Popen(
        [sys.executable, "-c", server, str(free_port)], stderr=subprocess.DEVNULL
    )
    try:
        environment = {**os.environ, "MAINPID": str(engine.pid), "http_proxy": "http://127.0.0.1:9"}
        assert subprocess.run(words, env=environment, check=False, timeout=GENEROUS).returncode == 0
    finally:
        engine.kill()
        engine.wait()
    done = subprocess.run(
        words, env=environment, check=False, timeout=GENEROUS, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (1, "the engine has ended\n")


@pytest.mark.parametrize("user", ["", "a b", "x\nExecStartPre=/bin/false", "%i", "-x", "中"])
def test_what_is_no_user_is_no_line_of_a_unit(user: str) -> None:
    plan, _ = planned(python="/opt/v/bin/python3")
    with failing("render.run_as", ExitCode.USAGE):
        render(plan, "small", {}, UnitOptions(run_as=user))


@pytest.mark.parametrize("user", ["gaudi", "_x-1", "1000", "jo.do@corp"])
def test_a_unit_runs_as_a_user_by_name_or_number(user: str) -> None:
    plan, _ = planned(python="/opt/v/bin/python3")
    assert (
        f"\nUser={user}\n"
        in render(plan, "small", {}, UnitOptions(run_as=user)).files["small.service"]
    )


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("/usr/bin/vllm_1-2+x=y:z,w.@^A9", "/usr/bin/vllm_1-2+x=y:z,w.@^A9"),
        ("", '""'),
        ("a b", '"a b"'),
        ("100%", '"100%%"'),
        ('say "a\\b"', '"say \\"a\\\\b\\""'),
        ("a\nb\tc", '"a\\nb\\tc"'),
        ("\x00\x1f \x7f~", '"\\x00\\x1f \\x7f~"'),
        ("模型", '"模型"'),
        ("$HOME", '"$HOME"'),
    ],
)
def test_one_value(word: str, written: str) -> None:
    assert quoted(word) == written


def test_a_command_has_its_variables_doubled() -> None:
    assert command(("/bin/vllm", "--x", "$HOME %h", "")) == '/bin/vllm --x "$$HOME %%h" ""'


def test_variables_are_sorted_and_quoted_with_their_names() -> None:
    assert environment({"B": "1", "A": "a b"}) == ['Environment="A=a b"', "Environment=B=1"]


@pytest.mark.parametrize(
    ("words", "line"), [("100% of a\nb", "100%% of a?b"), ("ends \\\\", "ends "), ("", "")]
)
def test_a_description_is_one_line_of_text(words: str, line: str) -> None:
    assert description(words) == line


GATEWAY = GatewayFiles(("/opt/haproxy", "-f", "100%", "%t/site-gateway"), {"haproxy.cfg": "x"})
PLAN = odd(("/opt/python3", "-m", "e"), {"A": "b"})
ENGINES = (
    UnitEngine("site-one", PLAN, {}, ()),
    UnitEngine("site-two", PLAN, {"HF_TOKEN": "x"}, ("site-one", "site-zero")),
)
SECRETS = {True: "%h/.config/gaudi-launch/site-two.env", False: "/etc/gaudi-launch/site-two.env"}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("user", UnitOptions(user=True, launcher="/opt/gaudi-launch", run_as="me")),
        ("system", UnitOptions(run_as="me", launcher="/opt/gaudi-launch")),
        ("root", UnitOptions()),
    ],
)
def test_the_units_of_a_stack(name: str, options: UnitOptions, plain_english: None) -> None:
    found = render_several("site", ["head %1", "more"], ENGINES, GATEWAY, options)
    text = "".join(f"==> {path}\n{content}" for path, content in found.files.items())
    golden(f"render-parts/stack-units-{name}.txt", text)
    installed = "render.stack_units_user" if name == "user" else "render.stack_units"
    tuning = {"user": "render.tuning_user", "system": "render.tuning"}.get(name)
    assert found.notes == (
        message(installed, name="site"),
        *([message(tuning)] if tuning else []),
        message("render.unit_secrets", names="HF_TOKEN", path=SECRETS[options.user]),
        message("render.stack_program", program="/opt/haproxy"),
    )


def test_the_folder_of_the_gateway() -> None:
    assert run_folder("site") == "%t/site-gateway"
