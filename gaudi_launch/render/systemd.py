"""A plan as a systemd service, and a unit that tunes the machine before it.

The service is for the system or for one user.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.cpus import format_cpus
from gaudi_launch.messages import message
from gaudi_launch.planning.exported import SECRETS
from gaudi_launch.planning.plan import Plan
from gaudi_launch.render.plan_container import (
    no_container,
    refuse_secrets,
    required,
    secrets_of,
    start_seconds,
)
from gaudi_launch.render.rendered import Rendered
from gaudi_launch.render.script import folders_of
from gaudi_launch.render.systemd_quoting import command, description, environment
from gaudi_launch.render.text import check_words, comments, heading

# a user's name or number: dots and @ are in those of directories, which systemd accepts with a
# warning (docs: systemd.io, "User/Group Name Syntax")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
TUNING = "gaudi-launch-tuning.service"
# the ordered end of the engine, then its remaining processes are killed
_STOP_SECONDS = 60
_RESTART_SECONDS = 30
# active means "answers": the unit waits here, and gives up when the engine has ended (systemd would
# continue to wait)
_WAIT = (
    "import os, sys, time, urllib.request as r\n"
    "ask = r.build_opener(r.ProxyHandler({})).open\n"
    "while True:\n"
    "    try:\n"
    "        sys.exit(ask(sys.argv[1], timeout=5).close())\n"
    "    except Exception:\n"
    "        time.sleep(2)\n"
    "    if not os.path.exists('/proc/' + os.environ.get('MAINPID', 'self')):\n"
    "        sys.exit('the engine has ended')\n"
)


def render(
    plan: Plan,
    name: str,
    given: Mapping[str, str],
    *,
    user: bool = False,
    run_as: str | None = None,
    launcher: str | None = None,
) -> Rendered:
    """Return NAME.service.

    ``given`` are the user's exported variables, ``user`` makes a unit for ``systemctl --user``,
    ``run_as`` is the system unit's user, ``launcher`` is this program: with it a second unit tunes
    the machine first.

    Raises LaunchError (USAGE): arguments that systemd cannot represent, an interpreter that is not
    a path, a ``run_as`` that is not a user.
    """
    if run_as is not None and not _USER.fullmatch(run_as):
        raise LaunchError("render.run_as", ExitCode.USAGE, found=run_as)
    no_container(plan, "systemd")
    check_words(plan, for_systemd=True)
    refuse_secrets(plan.args)
    if not PurePosixPath(plan.command.argv[0]).is_absolute():
        raise LaunchError("render.no_path", ExitCode.USAGE, found=plan.command.argv[0])
    # only the system's units can be started as root before others
    tuned = launcher is not None and not user
    head = heading(plan)
    secrets = secrets_of(plan, given)
    place = secrets_file(name, user)
    lines = [
        *comments(head),
        "[Unit]",
        f"Description={description(head[0])}",
        *_order_lines(user=user, tuned=tuned),
        f"StartLimitIntervalSec={4 * start_seconds(plan)}",
        "StartLimitBurst=3",
        "",
        "[Service]",
        "Type=exec",
    ]
    if run_as is not None and not user:
        lines.append(f"User={run_as}")
    if plan.command.working_dir:
        lines.append(f"WorkingDirectory={description(plan.command.working_dir)}")
    env = {
        variable: value for variable, value in plan.command.env.items() if variable not in SECRETS
    }
    lines += environment(env)
    if secrets:
        optional = "" if required(secrets) else "-"
        lines.append(f"EnvironmentFile={optional}{place}")
    folders = folders_of(env)
    if folders:
        lines.append(f"ExecStartPre={command(('/bin/mkdir', '-p', '--', *folders))}")
    target = "default.target" if user else "multi-user.target"
    lines += [*_service_lines(plan), "", "[Install]", f"WantedBy={target}"]

    files = {f"{name}.service": "\n".join(lines) + "\n"}
    notes = [message("render.unit_user" if user else "render.unit_system", name=name)]
    if launcher is not None and user:
        notes.append(message("render.tuning_user"))
    if launcher is not None and not user:
        files[TUNING] = tuning(launcher, given)
        notes.append(message("render.tuning"))
    if secrets:
        notes.append(message("render.unit_secrets", names=", ".join(secrets), path=place))
    return Rendered(files, notes=tuple(notes))


def _order_lines(*, user: bool, tuned: bool) -> tuple[str, ...]:
    """Return what a system unit is started after; a user's manager knows none of it."""
    if user:
        return ()
    if not tuned:
        return ("Wants=network-online.target", "After=network-online.target")
    return (
        "Wants=network-online.target",
        f"Wants={TUNING}",
        f"After={TUNING} network-online.target",
    )


def _service_lines(plan: Plan) -> Iterator[str]:
    """Yield the engine's start and end, its limits, its CPUs and its memory's node."""
    argv = plan.command.argv
    yield f"ExecStart={command(argv)}"
    yield f"ExecStartPost={command((argv[0], '-I', '-c', _WAIT, f'{plan.url}/health'))}"
    yield f"TimeoutStartSec={start_seconds(plan)}"
    yield f"TimeoutStopSec={_STOP_SECONDS}"
    yield "KillMode=mixed"
    yield "Restart=on-failure"
    yield f"RestartSec={_RESTART_SECONDS}"
    yield "LimitMEMLOCK=infinity"
    yield "LimitNOFILE=65535"
    if plan.command.cpus:
        yield f"CPUAffinity={format_cpus(plan.command.cpus)}"
    if plan.command.memory_node is not None:
        yield "NUMAPolicy=preferred"
        yield f"NUMAMask={plan.command.memory_node}"


def secrets_file(name: str, user: bool) -> str:
    """Return the path of the unit's secrets.

    The user creates the file, readable by its owner only.
    """
    return f"%h/.config/gaudi-launch/{name}.env" if user else f"/etc/gaudi-launch/{name}.env"


def tuning(launcher: str, given: Mapping[str, str]) -> str:
    """Return the unit that tunes the machine at boot, with reversible changes only."""
    lines = [
        "[Unit]",
        f"Description={description(message('render.tuning_title').render())}",
        "After=systemd-modules-load.service systemd-sysctl.service",
        "",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        # 3 is "this machine cannot as it is": the engine's launch then reports what is missing
        "SuccessExitStatus=3",
        f"ExecStart={command((launcher, 'doctor', '--fix', '--yes'))}",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"
