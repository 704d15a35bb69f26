"""The output of ``gaudi-launch cluster``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gaudi_launch.cli.console import console, emit_json, table
from gaudi_launch.cli.short_page import NotedRow, ShortPage
from gaudi_launch.core.base.messages import Message, rendered, text
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.hosts.differences import HostDifference, Seen
from gaudi_launch.core.hosts.inventory import Member
from gaudi_launch.core.hosts.parts import Node
from gaudi_launch.core.hosts.steps import SECRETS, render, render_stop, start_steps
from gaudi_launch.extensions.cluster.case import ClusterCase
from gaudi_launch.extensions.cluster.lifecycle import HostState, State
from gaudi_launch.extensions.cluster.state import RunningCluster

# problems at the top of the page
_SHOWN_BLOCKERS = 3


def to_json(case: ClusterCase) -> dict[str, Any]:
    """Return the object of --json of plan and up."""
    cluster, layout = case.cluster, case.cluster.layout
    steps = [copy.step for copy in case.copies] + start_steps(cluster)
    return {
        "schema": 1,
        "name": cluster.name,
        "engine": cluster.plan.engine.exact,
        "model": cluster.model,
        "layout": {
            "tensor": layout.tensor,
            "pipeline": layout.pipeline,
            "data": layout.data,
            "expert": layout.expert,
            "hosts": layout.hosts,
            "cards_per_host": layout.cards_per_host,
            "ray": layout.ray,
            "reason": layout.reason.render(),
            "origin": layout.origin,
        },
        "hosts": [_host_json(one) for one in case.seen],
        "differences": [
            {
                "level": difference.level,
                "what": difference.what,
                "values": dict(difference.values),
                "message": difference.message.render(),
            }
            for difference in case.differences
        ],
        "engines": [
            {
                "url": engine.url,
                "ray_address": cluster.ray_address(engine) if layout.ray else None,
                "argv": list(engine.command.argv),
                "env": dict(sorted(engine.command.env.items())),
                "nodes": [
                    {
                        "host": node.member.name,
                        "address": node.address,
                        "interface": node.interface,
                        "modules": list(node.modules),
                        "env": dict(sorted(node.env.items())),
                    }
                    for node in engine.nodes
                ],
            }
            for engine in cluster.engines
        ],
        "settings": [setting.to_json() for setting in cluster.settings],
        "memory": dict(cluster.plan.memory),
        "commands": [render(step, cluster.name) for step in steps],
        "stop": render_stop([node.member for node in cluster.nodes], cluster.name),
        "blockers": [blocker.to_json() for blocker in case.blockers],
        "warnings": [warning.to_json() for warning in (*cluster.plan.warnings, *cluster.warnings)],
    }


def _host_json(one: Seen) -> dict[str, Any]:
    return {
        "name": one.member.name,
        "ssh": one.member.ssh,
        "trouble": rendered(one.trouble),
        "product": mapped(lambda host: host.product, one.host),
        "cards": mapped(lambda host: len(host.cards), one.host),
        "driver": mapped(lambda host: host.driver_version, one.host),
        "engine": mapped(lambda found: found.engine, one.installed),
        "packages": mapped(lambda found: dict(found.packages), one.installed),
        "clock_seconds": mapped(lambda seconds: round(seconds, 3), one.clock),
        "findings": [
            finding.to_json() for finding in one.findings if finding.status in ("warn", "fail")
        ],
    }


def show(case: ClusterCase, *, complete: bool) -> None:
    """Print the verdict, what prevents a launch, hosts, layout and address."""
    from gaudi_launch.cli.views.memory_bar import memory_words

    cluster, layout = case.cluster, case.cluster.layout
    nodes = {node.member.name: node for node in cluster.nodes}
    id = "cluster.layout_experts" if layout.expert else "cluster.layout"
    sizes = text(
        id,
        tensor=layout.tensor,
        pipeline=layout.pipeline,
        data=layout.data,
        expert=layout.expert,
        why=layout.reason.render(),
    )
    tail = [sizes]
    if cluster.plan.memory:
        tail.append(text("cluster.memory", memory=memory_words(cluster.plan.memory)))
    for engine in cluster.engines:
        tail.append(text("cluster.url", url=engine.url, host=engine.head.member.name))
    tail += [copy.step.why.render() for copy in case.copies]
    page = ShortPage(
        [*_head(case)],
        text("cluster.columns").split("|"),
        [NotedRow(_row(one, nodes[one.member.name])) for one in case.seen],
        tail=tail,
        warnings=_warnings(case),
    )
    page.show(complete=complete)
    if complete:
        _show_changed(case)


def _head(case: ClusterCase) -> list[str]:
    cluster, layout = case.cluster, case.cluster.layout
    blockers = case.blockers
    if blockers:
        problems = [text("cluster.problem", what=each.render()) for each in blockers]
        verdict = text("cluster.cannot_start", model=cluster.model, n=len(blockers))
        failed = [
            one.member.name
            for one in case.seen
            if any(finding.status == "fail" for finding in one.findings)
        ]
        head = [verdict, *problems[:_SHOWN_BLOCKERS]]
        if failed:
            head.append(text("cluster.next_repair", hosts=", ".join(failed)))
        return head
    verdict = text(
        "cluster.title", model=cluster.model, engine=cluster.plan.engine.exact, n=layout.hosts
    )
    return [verdict, text("cluster.next_up")]


def _warnings(case: ClusterCase) -> list[str]:
    """Return the blockers that are not at the top, the differences and the warnings."""
    found = [
        text("cluster.problem", what=each.render()) for each in case.blockers[_SHOWN_BLOCKERS:]
    ]
    for difference in case.differences:
        word = text(f"cluster.word_{difference.level}")
        what, values = difference.message.render(), _values(difference)
        found.append(text("cluster.difference", word=word, what=what, values=values))
    warnings = (*case.cluster.warnings, *case.cluster.plan.warnings)
    return found + [
        text("plan.warning", what=each.render()) for each in warnings if each not in case.blockers
    ]


def _values(difference: HostDifference) -> str:
    return "; ".join(f"{host}: {value}" for host, value in difference.values.items())


def _show_changed(case: ClusterCase) -> None:
    rows = [
        (setting.name, setting.value or "", setting.reason.render())
        for setting in case.cluster.settings
        if setting.reason.id.startswith("cluster.")
    ]
    if rows:
        names = [text(f"plan.column_{name}") for name in ("name", "value", "reason")]
        console().print(table("", names, rows))


def _row(one: Seen, node: Node) -> tuple[str, ...]:
    product, driver, engine = "", "", ""
    if one.host is not None:
        product, driver = one.host.product or "", one.host.driver_version or ""
    if one.installed is not None:
        engine = one.installed.engine or ""
    return (
        one.member.name,
        f"{node.address} ({node.interface})",
        f"{len(node.modules)} {product}".strip(),
        driver or "-",
        engine or "-",
        _verdict(one),
    )


def _verdict(one: Seen) -> str:
    if one.trouble is not None:
        return one.trouble.render()
    if not one.findings:
        return "-"
    counts = {
        status: sum(1 for finding in one.findings if finding.status == status)
        for status in ("fail", "warn")
    }
    if counts["fail"]:
        return text("cluster.failures", n=counts["fail"])
    if counts["warn"]:
        return text("cluster.warnings", n=counts["warn"])
    return text("cluster.word_ok")


def dry(case: ClusterCase) -> None:
    """Print the commands, in order, for a terminal or a file; notes are comments."""
    cluster = case.cluster
    for blocker in case.blockers:
        print(f"# ! {blocker.render()}")
    for difference in case.differences:
        print(f"# {difference.level}: {difference.message.render()} ({_values(difference)})")
    for step in [*(copy.step for copy in case.copies), *start_steps(cluster)]:
        print(f"# {step.why.render()}")
        if step.name == "service":
            print(f"# {text('cluster.secrets', names=', '.join(SECRETS))}")
        print(render(step, cluster.name))
    print(f"# {text('cluster.to_end')}")
    for line in render_stop([node.member for node in cluster.nodes], cluster.name):
        print(line)


def dry_down(members: Sequence[Member], name: str, as_json: bool) -> None:
    """Print the commands that end what --dry-run's commands started."""
    lines = render_stop(members, name)
    if as_json:
        return emit_json(
            {"schema": 1, "hosts": [member.name for member in members], "commands": lines}
        )
    print("\n".join(lines))
    return None


def show_status(running: RunningCluster, state: State, as_json: bool) -> None:
    """Print the state of a running cluster."""
    if as_json:
        emit_json(_status_json(running, state))
        return
    out = console()
    columns = text("cluster.state_columns").split("|")
    rows = [(host.name, _processes(host), rendered(host.trouble) or "") for host in state.hosts]
    out.print(table("", columns, rows))
    for part, ready, detail, nodes in zip(
        running.parts, state.ready, state.details, state.ray, strict=True
    ):
        if nodes is not None:
            alive = [node for node in nodes if node["alive"]]
            cards = sum(node["hpu"] for node in alive)
            shown = text(
                "cluster.ray_view", nodes=len(alive), dead=len(nodes) - len(alive), cards=cards
            )
            out.print(shown)
        id = "cluster.silent"
        if ready:
            id = "cluster.ready"
        out.print(text(id, url=part.url, why=detail or "-"))


def _processes(host: HostState) -> str:
    """Return the processes of a host with their IDs; a dead one without."""
    dead = text("cluster.word_dead")
    return ", ".join(f"{what} {pid or dead}" for what, pid in host.alive.items()) or "-"


def _status_json(running: RunningCluster, state: State) -> dict[str, Any]:
    parts = zip(running.parts, state.ready, state.details, state.ray, strict=True)
    return {
        "schema": 1,
        "name": running.name,
        "whole": state.whole,
        "hosts": [
            {
                "name": host.name,
                "processes": dict(host.alive),
                "trouble": rendered(host.trouble),
            }
            for host in state.hosts
        ],
        "engines": [
            {"url": part.url, "ready": ready, "detail": detail, "ray_nodes": mapped(list, nodes)}
            for part, ready, detail, nodes in parts
        ],
    }


def show_down(
    ended: Mapping[tuple[str, str], Message | None], members: Sequence[Member], as_json: bool
) -> None:
    """Print what was ended, by host."""
    if as_json:
        rows = [
            {"host": host, "what": what, "trouble": rendered(trouble)}
            for (host, what), trouble in ended.items()
        ]
        return emit_json({"schema": 1, "hosts": [member.name for member in members], "ended": rows})
    for (host, what), trouble in ended.items():
        said = text("cluster.ended", host=host, what=what)
        if trouble:
            said = trouble.render()
        print(said)
    if not ended:
        print(text("cluster.nothing_runs"))
    return None


def tell(message: Message) -> None:
    """Print a step of the launch with its time, on stderr."""
    import time

    line = f"{time.strftime('%H:%M:%S')} {message.render()}"
    console(stderr=True).print(line)
