"""Ray Serve around another engine: replicas on sets of cards, one address.

A replica starts the planned engine as its subprocess, or generates with plain transformers.
`ray.serve.llm` is not used: it has no HPU backend (ray 2.60.0:
llm/_internal/serve/core/configs/accelerators.py knows cpu, gpu and tpu). Cards are planned in sets,
because Ray assigns IDs in arbitrary order and is unaware of link groups; so Ray is configured to
leave HABANA_VISIBLE_MODULES alone (exactly ``1``: releases before 2.60 treat any text, even 0, as
true), and a replica sets it (`runtime/gaudi_ray_slots.py`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import parse_json
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.engines.detect import Installed
from gaudi_launch.core.engines.entries import ENGINES, NO_PACKAGES, entry
from gaudi_launch.core.engines.facts.registry import installed_lists
from gaudi_launch.core.engines.registry import find
from gaudi_launch.core.host.cpus import format_cpus
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import (
    Context,
    Engine,
    InstalledAnswer,
    Limits,
    Proposal,
    Scaling,
    ServeConfig,
)
from gaudi_launch.core.planning.engine_args import EngineArgs, split_argv
from gaudi_launch.core.planning.placement import Placement, choose, parse_visible
from gaudi_launch.core.planning.plan import (
    Command,
    EngineIdentity,
    Overridden,
    Plan,
    Setting,
    Source,
)
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.predict.limits import CoverageQuestion
from gaudi_launch.extensions.ray import config
from gaudi_launch.extensions.ray.transformers import NAME as PLAIN
from gaudi_launch.extensions.ray.transformers import HuggingFace

_log = logging.getLogger(__name__)

NAME = "ray-serve"
# the release that this was run with; written into plans where none is installed
VERSION = "2.60.0"
SERVE = f"ray[serve]=={VERSION}"
IN_RAY = Path(__file__).with_name("runtime")
HEAD = IN_RAY / "gaudi_ray_head.py"
VISIBLE = "HABANA_VISIBLE_MODULES"
NOSET = "RAY_EXPERIMENTAL_NOSET_HABANA_VISIBLE_MODULES"
_BACKEND = "--distributed-executor-backend"
# a launch takes minutes: more replicas after one minute of need, fewer after half an hour without
# (assumed)
_UP_SECONDS, _DOWN_SECONDS = 60, 1800
_HPU_ORIGIN = "ray 2.60.0: python/ray/_private/accelerators/hpu.py"


def application_files() -> dict[str, str]:
    """Return what runs inside Ray, file by file; the head is of a single machine."""
    paths = [path for path in sorted(IN_RAY.glob("*.py")) if path != HEAD]
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


def config_of(plan: Plan) -> dict[str, Any]:
    """Return the Serve config that a plan of Ray Serve starts."""
    document: dict[str, Any] = parse_json(split_argv(plan.command.argv).last("--config") or "{}")
    return document


@dataclass(frozen=True)
class RayServe(Engine):
    """Ray Serve around the engine ``inside``, which decides all about the model.

    ``spare`` replaces an inner engine that the user did not name and that lacks the model
    (``knows`` are the model classes it has, None where unknown); ``lacked`` is the missing class.
    """

    inside: Engine
    python: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    spare: Engine | None = None
    knows: Collection[str] | None = None
    lacked: str = ""

    @property
    def inner(self) -> Engine:
        return self.inside

    @property
    def identity(self) -> EngineIdentity:
        inside = self.inner.identity
        facts = {**inside.facts, **self.facts, "inner": inside.exact}
        return EngineIdentity(
            NAME, self.facts.get("ray", VERSION), self.python, facts, options=inside.options
        )

    @property
    def packages(self) -> tuple[str, ...]:
        return (SERVE, *self.inner.packages)

    @property
    def needs_cards(self) -> bool:
        return self.inner.needs_cards

    @property
    def keeps_recipes(self) -> bool:
        return self.inner.keeps_recipes

    @property
    def can(self) -> tuple[str, ...]:
        return self.inner.can

    @property
    def lacks(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.inner.lacks, "--tuning reference")))

    def suited(self, model: Model) -> RayServe:
        """Return this engine for this model.

        It contains plain generation where the inner engine lacks the model's class.
        """
        lacks = (
            self.knows is not None and model.architecture and model.architecture not in self.knows
        )
        if self.spare is None or not lacks:
            return self
        return replace(self, inside=self.spare, spare=None, lacked=model.architecture or "")

    def cards(self, request: Request) -> int | None:
        """Return the number of cards of one replica."""
        if request.cards is None and request.modules is not None:
            return len(request.modules) // _most(request)
        return self.inner.cards(request)

    def limits(self, request: Request, host: Host, model: Model) -> Limits:
        return self.inner.limits(request, host, model)

    def refuse(self, request: Request, host: Host, model: Model) -> None:
        """Raise LaunchError for what Ray Serve, or the engine inside it, cannot do."""
        if request.tuning == "reference":
            raise LaunchError("ray.reference", ExitCode.USAGE)
        least, most = request.replicas or (1, 1)
        if request.target_ongoing is not None and least == most:
            raise LaunchError("ray.ongoing_alone", ExitCode.USAGE)
        self.inner.refuse(replace(request, replicas=None, target_ongoing=None), host, model)

    def propose(self, context: Context) -> Proposal:
        return self.inner.propose(context)

    def asking(self, answer: InstalledAnswer) -> Engine:
        return replace(self, inside=self.inside.asking(answer))

    def buckets(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> tuple[str, Buckets] | None:
        return self.inner.buckets(settings, context, num_blocks)

    def question(
        self, settings: Sequence[Setting], context: Context, num_blocks: int | None
    ) -> CoverageQuestion | None:
        return self.inner.question(settings, context, num_blocks)

    def command(self, settings: Sequence[Setting], context: Context) -> Command:
        return self.inner.command(settings, context)

    def place(self, request: Request, host: Host) -> Placement:
        """Return the cards of all replicas, set by set.

        Each set is placed as a separate deployment would be.
        """
        if not self.needs_cards:
            return Placement(modules=())
        most, count = _most(request), self.cards(request) or 1
        visible = parse_visible(request.environment.get(VISIBLE))
        if request.modules is not None:
            asked = _parts(request.modules, most, count)
            return _join([choose(host, count, each, visible) for each in asked])
        allowed = [m for m in host.free_modules if visible is None or m in visible]
        if most * count > len(allowed) or most == 1:
            return choose(host, most * count, None, visible)
        sets: list[Placement] = []
        for _ in range(most):
            left = tuple(m for m in allowed if not any(m in each.modules for each in sets))
            sets.append(choose(host, count, None, left))
        return _join(sets)

    def first(
        self, request: Request, placement: Placement, host: Host
    ) -> tuple[Request, Placement]:
        """Return the request and the cards of one replica, for the inner engine's plan."""
        sets = _sets(request, placement, host)
        count = len(sets[0].modules) or None
        own = sets[0].modules if request.modules is not None else None
        one = replace(request, cards=count, modules=own, replicas=None, target_ongoing=None)
        return one, sets[0]

    def wrap(
        self, plan: Plan, request: Request, placement: Placement, host: Host, model: Model
    ) -> Plan:
        """Return the deployment's plan, made from the inner engine's plan of one replica."""
        seqs = self.inner.limits(request, host, model).max_num_seqs
        sets = _sets(request, placement, host)
        decisions = Decisions(request.environment)
        plan = _without_own_ray(plan, request)
        words, address, port = config.without_address(plan.args)
        wanted = self._deployment(request, seqs, len(sets[0].modules), decisions)
        document = config.document(
            address=address,
            port=port,
            kind=PLAIN if self.inner.identity.name == PLAIN else "engine",
            words=words,
            sets=[
                {
                    "modules": list(s.modules),
                    "cpus": format_cpus(s.cpus),
                    "memory_node": s.memory_node,
                }
                for s in sets
            ],
            wanted=wanted,
        )
        modules = ",".join(map(str, placement.modules))
        for name, value in (("--host", address), ("--port", str(port))):
            decisions.option(
                name, value, message("ray.address"), origin="ray: serve/schema.py http_options"
            )
        if modules:
            decisions.force_env(VISIBLE, modules, message("ray.visible"), origin=_HPU_ORIGIN)
        decisions.force_env(NOSET, "1", message("ray.noset"), origin=_HPU_ORIGIN)
        for name, reason, origin in (
            ("RAY_USAGE_STATS_ENABLED", "plan.cpu_quiet", "usage"),
            ("RAY_DEDUP_LOGS", "ray.dedup", "ray_logging"),
            ("RAY_COLOR_PREFIX", "ray.dedup", "worker.py"),
        ):
            decisions.env(name, "0", message(reason), origin=f"ray: _private/{origin}")
        ours = decisions.settings()
        named = {(s.kind, s.name) for s in ours} | {("env", VISIBLE)}
        kept = tuple(s for s in plan.settings if (s.kind, s.name) not in named)
        env = {s.name: s.value or "" for s in (*kept, *ours) if s.kind == "env" and s.sent}
        head = (self.python or "python3", str(HEAD), "--host", address, "--port", str(port))
        hpus = str(len(sets) * (len(sets[0].modules) or 1))
        command = Command(
            argv=(*head, "--hpus", hpus, "--config", json.dumps(document, separators=(",", ":"))),
            env=env,
            unset=plan.command.unset if modules else (*plan.command.unset, VISIBLE),
            cpus=placement.cpus,
            memory_node=placement.memory_node,
            # the inner engine's, written before the head starts: replicas of this machine find them
            files=plan.command.files,
        )
        return replace(
            plan,
            engine=self.identity,
            placement=placement,
            settings=(*ours, *kept),
            command=command,
            warnings=(*placement.warnings, *self._warnings(request), *plan.warnings),
        )

    def serve_config(self, args: EngineArgs, scaling: Scaling) -> ServeConfig:
        """Return the config of replicas on the nodes of a cluster, and our application."""
        words, address, port = config.without_address(args)
        seqs = scaling.ongoing
        wanted = replace(
            scaling,
            hpus=scaling.hpus or 1,
            ongoing=seqs + config.RESERVE,
            target=scaling.target or max(1, seqs * 3 // 4),
            up=_UP_SECONDS,
            down=_DOWN_SECONDS,
        )
        document = config.document(
            address=address,
            port=port,
            kind="engine",
            words=words,
            sets=[{"modules": list(range(scaling.hpus))}],
            wanted=wanted,
        )
        return ServeConfig(document, application_files())

    def _deployment(self, request: Request, seqs: int, hpus: int, decisions: Decisions) -> Scaling:
        """Return the numbers of replicas and requests, as settings with reasons."""
        least, most = request.replicas or (1, 1)
        flag: Source = "computed" if request.replicas is None else "flag"
        if request.replicas is None:
            asked = message("ray.one_replica")
        else:
            asked = message("plan.flag", flag="--replicas")
        reserve = config.RESERVE
        ongoing = message("ray.ongoing", seqs=seqs, reserve=reserve)
        decisions.option("max_ongoing_requests", str(seqs + reserve), ongoing, origin="assumed")
        if self.needs_cards:
            decisions.option("resources.HPU", str(hpus), message("ray.hpu"), origin=_HPU_ORIGIN)
        wanted = Scaling(least, most, hpus, seqs + reserve)
        if least == most:
            decisions.option("num_replicas", str(most), asked, source=flag)
            return wanted
        decisions.option("min_replicas", str(least), asked, source="flag")
        decisions.option("max_replicas", str(most), asked, source="flag")
        target, name = request.target_ongoing or max(1, seqs * 3 // 4), "target_ongoing_requests"
        if request.target_ongoing is None:
            reason = message("ray.target", seqs=seqs)
            decisions.option(name, str(target), reason, origin="assumed")
        else:
            reason = message("plan.flag", flag="--ongoing")
            decisions.option(name, str(target), reason, source="flag")
        up, down = (_UP_SECONDS, _DOWN_SECONDS) if self.needs_cards else (5, 60)
        why = message("ray.delays") if self.needs_cards else message("ray.delays_cpu")
        decisions.option("upscale_delay_s", str(up), why, origin="assumed")
        decisions.option("downscale_delay_s", str(down), why, origin="assumed")
        return replace(wanted, target=target, up=up, down=down)

    def _warnings(self, request: Request) -> tuple[Message, ...]:
        found = []
        if request.environment.get("RAY_ADDRESS"):
            found.append(message("ray.own_cluster", address=request.environment["RAY_ADDRESS"]))
        if self.lacked:
            found.append(message("ray.lacked", architecture=self.lacked))
        if self.inner.identity.name == PLAIN:
            found.append(message("ray.plain_slow"))
        return tuple(found)


def _without_own_ray(plan: Plan, request: Request) -> Plan:
    """Return the plan with processes instead of Ray inside a replica.

    It runs on one machine.

    deepseek_r1's script uses ray; mp is what both engines' documents advise within one node
    (vllm-project/vllm-gaudi@091bbadd:docs/configuration/env_variables.md). The user's options are
    kept.
    """
    args = plan.args
    held = next(
        (s for s in plan.settings if args.canonical(s.name) == _BACKEND and s.value == "ray"), None
    )
    if held is None or request.args.has(_BACKEND):
        return plan
    source = "vllm-project/vllm-gaudi@091bbadd:docs/configuration/env_variables.md"
    changed = replace(
        held,
        value="mp",
        source="computed",
        reason=message("ray.no_second_ray"),
        origin=source,
        beaten=(Overridden("ray", held.source),),
    )
    settings = tuple(changed if setting is held else setting for setting in plan.settings)
    return replace(
        plan,
        settings=settings,
        command=replace(plan.command, argv=args.with_option(held.name, "mp").to_argv()),
    )


def _most(request: Request) -> int:
    return (request.replicas or (1, 1))[1]


def _parts(modules: tuple[int, ...], most: int, count: int) -> list[tuple[int, ...]]:
    """Return the given modules of each replica. Raises LaunchError (USAGE)."""
    if len(modules) != most * count:
        shown = ",".join(map(str, modules))
        raise LaunchError("ray.modules", ExitCode.USAGE, modules=shown, replicas=most, cards=count)
    return [modules[at * count : (at + 1) * count] for at in range(most)]


def _join(sets: Sequence[Placement]) -> Placement:
    """Return several placements as one, with the reasons of each."""
    shown = " | ".join(",".join(map(str, each.modules)) for each in sets)
    cpus = {cpu for each in sets for cpu in each.cpus}
    nodes = {node for each in sets for node in each.numa_nodes}
    return Placement(
        modules=tuple(module for each in sets for module in each.modules),
        cpus=tuple(sorted(cpus)),
        numa_nodes=tuple(sorted(nodes)),
        memory_node=sets[0].memory_node if len({each.memory_node for each in sets}) == 1 else None,
        cpus_by_module={
            module: share for each in sets for module, share in each.cpus_by_module.items()
        },
        reasons=(message("ray.sets", sets=shown),) if len(sets) > 1 else sets[0].reasons,
        warnings=tuple(dict.fromkeys(warning for each in sets for warning in each.warnings)),
    )


def _sets(request: Request, placement: Placement, host: Host) -> list[Placement]:
    """Return a placement's sets, one per replica, in its order."""
    most = _most(request)
    count = len(placement.modules) // most
    found = []
    for at in range(most):
        modules = placement.modules[at * count : (at + 1) * count]
        shares = {m: placement.cpus_by_module[m] for m in modules if m in placement.cpus_by_module}
        nodes = {card.numa_node if (card := host.card(m)) else None for m in modules}
        known = sorted(node for node in nodes if node is not None)
        found.append(
            Placement(
                modules=modules,
                cpus=tuple(sorted({cpu for share in shares.values() for cpu in share})),
                numa_nodes=tuple(known),
                memory_node=known[0] if len(nodes) == 1 and known else None,
                cpus_by_module=shares,
            )
        )
    return found


def around(inner: str, installed: Installed | None, python: str | None) -> RayServe:
    """Return Ray Serve around the engine ``inner``.

    "": the installed one, else plain generation, else the default.
    """
    known = installed or NO_PACKAGES
    packages, where = known.packages, python
    facts = _versions_of(packages, "ray")
    if facts:
        where = python or known.python
    plain = HuggingFace(where, _versions_of(packages, PLAIN))
    if packages:
        release, optimum = packages.get("habana-torch-plugin", ""), packages.get("optimum-habana")
        plain = replace(plain, optimum=optimum or "", release=release, on_cards=bool(release))
    if inner == PLAIN:
        return RayServe(plain, where, facts)
    _check_inner(inner)
    if inner or not {"ray", PLAIN} <= packages.keys():
        return RayServe(find(inner or "auto", installed, where), where, facts)
    if not known.engine:
        return RayServe(plain, where, facts)
    found = RayServe(find("auto", installed, where), where, facts)
    lists = installed_lists(known.facts, "")
    return replace(found, spare=plain, knows=None if lists is None else lists.classes)


def _versions_of(packages: Mapping[str, str], name: str) -> dict[str, str]:
    """Return a package with its version; empty where it is not installed."""
    return {each: version for each, version in packages.items() if each == name}


def _check_inner(inner: str) -> None:
    """Refuse what Ray Serve cannot have inside it. Raises LaunchError (USAGE)."""
    fitting = [
        name
        for name, each in ENGINES.items()
        if name != NAME and not each.in_container and not each.machine
    ]
    known = ", ".join(f"{NAME}:{name}" for name in (*fitting, PLAIN))
    if entry(inner).in_container:
        raise LaunchError("ray.container", ExitCode.USAGE, engine=inner, known=known)
    if entry(inner).machine or inner.partition(":")[0] == NAME:
        raise LaunchError("engines.unknown", ExitCode.USAGE, found=f"{NAME}:{inner}", known=known)
