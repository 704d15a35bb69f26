"""A cluster as steps: commands that `up` runs and ``--dry-run`` shows. Pure.

Each is one command on one host. ``ray start --block`` stays in the foreground of a separate
session, so that ending it ends this cluster's Ray and no other: ``ray stop`` would end every Ray on
the host.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.hosts.differences import FolderFacts, Seen
from gaudi_launch.core.hosts.inventory import Member
from gaudi_launch.core.hosts.parts import Cluster, ClusterEngine, Node

STATE = "$HOME/.local/state/gaudi-launch/cluster"
SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "VLLM_API_KEY")
"""Variables that are passed through standard input, never as arguments."""
# BatchMode: a password prompt would wait forever
SSH = ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--")
# a host that is silent for 45 s is given up (ssh_config(5)); until then a busy one may answer
_ALIVE = ("-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=3")
# of the user's configuration: no master that outlives the command (an existing one is used), no
# forwarded ports, which two commands cannot have at once, and no other command
_ALONE = ("-o", "ControlMaster=no", "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none")
# ssh to a jump host does not get BatchMode; it must not open a window for a password either
_WINDOWS = ("DISPLAY", "WAYLAND_DISPLAY", "SSH_ASKPASS")
# ssh from one host to another, for a copy
_COPY_SSH = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", *_ALIVE)


@dataclass(frozen=True)
class HostStep:
    """One command on one host; with a ``name`` it continues in the background.

    ``secrets`` are names of variables that it also gets, ``files`` are texts by path that must
    exist before it starts.
    """

    member: Member
    argv: tuple[str, ...]
    why: Message
    env: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    secrets: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def background(self) -> bool:
        return bool(self.name)


def ssh_words(member: Member, words: Sequence[str]) -> list[str]:
    """Return the argument list that runs ``words`` on a host.

    ssh joins what follows the host, so they are quoted.
    """
    inside = [*member.enter, *words]
    if member.local:
        return inside
    return [*SSH[:-1], *_ALIVE, *_ALONE, SSH[-1], member.ssh, shlex.join(inside)]


def ssh_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of an ssh that never prompts for a password (ssh(1))."""
    kept = {name: value for name, value in environment.items() if name not in _WINDOWS}
    return {**kept, "SSH_ASKPASS_REQUIRE": "never"}


def ray_steps(cluster: Cluster, engine: ClusterEngine, heads: bool) -> list[HostStep]:
    """Return ``ray start`` of the head, or of the workers."""
    nodes, id = engine.nodes[1:], "cluster.step_worker"
    where = [f"--address={cluster.ray_address(engine)}"]
    if heads:
        nodes, id = engine.nodes[:1], "cluster.step_head"
        where = ["--head", f"--port={cluster.ray_port}", "--include-dashboard=false"]
    steps = []
    for node in nodes:
        resources = json.dumps({"HPU": len(node.modules)}, separators=(",", ":"))
        argv = (
            *(node.member.python, "-m", "ray.scripts.scripts", "start", *where),
            *(f"--node-ip-address={node.address}", f"--resources={resources}"),
            *("--disable-usage-stats", "--block"),
        )
        # RAY_ADDRESS is for users of a running Ray, not for those who start it
        env = {name: value for name, value in node.env.items() if name != "RAY_ADDRESS"}
        why = message(id, host=node.member.name)
        steps.append(HostStep(node.member, argv, why, env, "ray", (), engine.command.files))
    return steps


def service_step(engine: ClusterEngine, secrets: Sequence[str] = ()) -> HostStep:
    """Return the engine's command on its head."""
    member, command = engine.head.member, engine.command
    why, kept = message("cluster.step_service", host=member.name), tuple(secrets)
    return HostStep(member, command.argv, why, command.env, "service", kept, command.files)


def start_steps(cluster: Cluster) -> list[HostStep]:
    """Return everything that is started, in its order."""
    steps = []
    for engine in cluster.engines:
        if cluster.layout.ray:
            steps += [*ray_steps(cluster, engine, True), *ray_steps(cluster, engine, False)]
        steps.append(service_step(engine, ()))
    return steps


@dataclass(frozen=True)
class Copy:
    """A folder that one host lacks, with the command on the host that has it."""

    step: HostStep
    folder: str
    source: str
    target: str


def copies(cluster: Cluster, seen: Sequence[Seen]) -> tuple[list[Copy], list[Message]]:
    """Return the copies from the first host that has everything, and what is missing.

    A model must be the same everywhere, in its number of files and bytes; recipes are copied where
    there are none.
    """
    by_name = {one.member.name: one for one in seen}
    nodes = cluster.nodes
    found: list[Copy] = []
    missing: list[Message] = []
    for folder, must_match in ((cluster.model, True), (cluster.recipes, False)):
        if folder is None or not folder.startswith("/"):
            continue
        held = {
            node.member.name: by_name[node.member.name].folders.get(folder, FolderFacts())
            for node in nodes
        }
        # the host with most: an unfinished download must not be copied
        first = max(
            nodes, key=lambda node: (held[node.member.name].bytes, held[node.member.name].files)
        )
        if not held[first.member.name].files:
            # unknown for hosts that could not be queried
            if must_match and not any(one.trouble for one in seen):
                missing.append(message("cluster.no_model", path=folder))
            continue
        wanted = held[first.member.name]
        for node in nodes:
            have = held[node.member.name]
            if not have.files or (must_match and have != wanted):
                found.append(_copy(first, node, folder, by_name))
    return found, missing


def _copy(source: Node, target: Node, folder: str, seen: Mapping[str, Seen]) -> Copy:
    ends = (seen[source.member.name], seen[target.member.name])
    # as the inventory writes it: USER@, or nothing
    user = target.member.ssh.removesuffix(target.member.target)
    there = remote = f"{user}{target.address}"
    if ":" in target.address:
        remote = f"{user}[{target.address}]"
    plain = folder.rstrip("/")
    # scp creates no parent folders; the copy on the target is then identified by its size
    above = plain.rpartition("/")[0]
    to = ("--", plain, f"{remote}:{above}/")
    words: tuple[str, ...] = ("scp", "-r", "-p", "-q", *_COPY_SSH, *to)
    if all("rsync" in one.tools for one in ends):
        # the files themselves: those of a hub's folder are links to a folder next to it
        words = (
            *("rsync", "-a", "--copy-links", "--partial", "--mkpath"),
            *("-e", shlex.join(["ssh", *_COPY_SSH])),
            *("--", f"{plain}/", f"{remote}:{plain}/"),
        )
    why = message(
        "cluster.step_copy", folder=folder, source=source.member.name, target=target.member.name
    )
    # in the container too, if there is one: the engine sees the paths there
    step = HostStep(source.member, words, why)
    return Copy(step, folder, source.member.name, there)


def render(step: HostStep, cluster_name: str) -> str:
    """Return one line for a terminal with the effect of `up`.

    Secrets are named, never shown.
    """
    assignments = [f"{name}={value}" for name, value in sorted(step.env.items())]
    words = shlex.join(step.argv)
    if assignments:
        words = shlex.join(["env", *assignments, *step.argv])
    if step.background:
        folder = f"{STATE}/{cluster_name}/{step.member.name}"
        written = "".join(_write_words(path, text) for path, text in step.files.items())
        words = (
            f'{written}mkdir -p "{folder}" && cd / && {{ nohup setsid {words} >> '
            f'"{folder}/{step.name}.log" 2>&1 < /dev/null & echo $! > '
            f'"{folder}/{step.name}.pid"; }}'
        )
    return _on(step.member, words)


def _write_words(path: str, text: str) -> str:
    """Return a shell command that writes a file, in a folder of this user.

    Everybody can write in /tmp.
    """
    folder = shlex.quote(path.rpartition("/")[0])
    own = (
        f"[ ! -L {folder} ] && {{ [ -d {folder} ] || mkdir -p -m 700 {folder}; }} && [ -O "
        f"{folder} ]"
    )
    return f"{own} && chmod 700 {folder} && printf %s {shlex.quote(text)} > {shlex.quote(path)} && "


def render_stop(members: Sequence[Member], cluster_name: str) -> list[str]:
    """Return lines that end what `render` started.

    The order is services, Ray's workers, the head.
    """
    order = [
        *((member, "service") for member in members),
        *((member, "ray") for member in (*members[1:], members[0])),
    ]
    files = [(each, f"{STATE}/{cluster_name}/{each.name}/{name}.pid") for each, name in order]
    return [
        _on(member, f'[ ! -e "{path}" ] || kill -TERM "$(cat "{path}")"') for member, path in files
    ]


def _on(member: Member, text: str) -> str:
    """Return a shell command for a host, in its container if it has one."""
    if member.enter:
        text = f"{shlex.join(member.enter)} sh -c {shlex.quote(text)}"
    if member.local:
        # at a prompt, job control would make setsid fork, and $! would name the wrong process
        return f"sh -c {shlex.quote(text)}"
    return f"{shlex.join([*SSH, member.ssh])} {shlex.quote(text)}"
