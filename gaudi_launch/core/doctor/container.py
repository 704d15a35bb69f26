"""Containers: docker or podman, and the runtime that gives a container its cards."""

from __future__ import annotations

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor import guides
from gaudi_launch.core.doctor.findings import DoctorFacts, Remedy, Verdict, check
from gaudi_launch.core.host.config_files import RUNTIME


@check("container.engine", "docs: Docker Installation")
def _engine(facts: DoctorFacts) -> Verdict:
    found = [
        facts.config.programs[name]
        for name in ("docker", "podman")
        if name in facts.config.programs
    ]
    if found:
        return Verdict.ok(", ".join(found), "docker | podman")
    if facts.wants.container:
        remedy = Remedy(message("doctor.container.engine.remedy"))
        return Verdict.fail("doctor.container.engine.fail", "-", "docker | podman", remedy)
    if facts.host.in_container:
        return Verdict.skip("doctor.container.inside")
    return Verdict.skip("doctor.container.engine.skip")


@check(
    "container.runtime", "docs: Docker Installation; 'Unknown runtime specified habana'", ("gaudi",)
)
def _runtime(facts: DoctorFacts) -> Verdict:
    config = facts.config
    if facts.host.in_container:
        return Verdict.skip("doctor.container.inside")
    if "docker" not in config.programs and not config.docker_runtimes and not config.docker_problem:
        return Verdict.skip("doctor.container.runtime.skip")
    expected = f"runtimes.habana.path = {RUNTIME}"
    installer = "apt-get" if guides.family(facts) == "ubuntu" else "dnf"
    install = Remedy(
        message("doctor.container.runtime.remedy"),
        commands=(
            f"sudo {installer} install -y habanalabs-container-runtime",
            "sudo gaudi-launch doctor --fix --yes --only container.runtime",
        ),
        root=True,
    )
    if RUNTIME in config.runtime_programs and not config.docker_problem:
        install = Remedy(message("doctor.container.runtime.add"), root=True, fix="runtime")
    judge = Verdict.fail if facts.wants.container else Verdict.warn
    if config.docker_problem == "unreadable":
        return Verdict.unknown("doctor.unreadable", "", expected, path="/etc/docker/daemon.json")
    if config.docker_problem:
        return judge("doctor.container.runtime.broken", config.docker_problem, expected, install)
    path = (config.docker_runtimes or {}).get("habana")
    if path is None:
        found = ", ".join(config.docker_runtimes or ()) or "-"
        return judge("doctor.container.runtime.missing", found, expected, install)
    # docker itself looks up a program name without a path
    if path.startswith("/") and path not in config.runtime_programs:
        return judge("doctor.container.runtime.program", path, expected, install)
    return Verdict.ok(path, expected)
