"""The engine in its interpreter: present, consistent versions, bucket options."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor.findings import (
    DoctorFacts,
    EngineFacts,
    Remedy,
    Verdict,
    check,
    dotted,
    release_of,
)
from gaudi_launch.core.doctor.installer import commands, software_release
from gaudi_launch.core.doctor.releases import Version, releases


def _engine(facts: DoctorFacts) -> EngineFacts:
    assert facts.engine is not None
    return facts.engine


@check("engine.present", "importlib.metadata of the interpreter", ("engine",))
def _present(facts: DoctorFacts) -> Verdict:
    engine = _engine(facts)
    if facts.wants.engine == "transformers":
        # the list of what is to do has it where it is missing
        return Verdict.ok(facts.wants.engine)
    remedy = Remedy(message("doctor.engine.present.remedy"), commands=("gaudi-launch engines",))
    if engine.problem:
        return Verdict.fail(
            "doctor.engine.present.fail", engine.problem, "vllm", remedy, python=engine.python
        )
    if engine.vllm is None:
        return Verdict.fail("doctor.engine.present.none", "-", "vllm", remedy, python=engine.python)
    return Verdict.ok(f"{engine.name or 'vllm'} {engine.vllm}", "vllm")


@check("engine.pair", "profiles/releases.yaml; HabanaAI/vllm-fork#776 (Gaudi1)", ("engine",))
def _pair(facts: DoctorFacts) -> Verdict:
    engine = _engine(facts)
    # the Gaudi release of the engine's environment, else the driver's
    software = release_of(engine.torch_plugin) or release_of(facts.host.driver_version)
    if facts.host.product == "gaudi1":
        return Verdict.fail("doctor.engine.pair.gaudi1", "gaudi1", "gaudi2, gaudi3")
    if software is None:
        return Verdict.skip("doctor.engine.pair.skip")
    table = releases()
    found = []
    if engine.plugin:
        found.append(_tested("vllm-gaudi", engine.plugin, software, table.plugin))
    elif engine.vllm:
        found.append(_tested("vllm", engine.vllm, software, table.fork))
    if engine.optimum:
        wanted = dotted(table.optimum_for(software))
        pip = shlex.join((engine.python, "-m", "pip", "install", f"optimum-habana~={wanted}.0"))
        found.append(_tested("optimum-habana", engine.optimum, software, table.optimum, pip))
    for status in ("warn", "unknown", "ok"):
        for verdict in found:
            if verdict.status == status:
                return verdict
    return Verdict.skip("doctor.engine.pair.skip")


def _tested(
    name: str,
    version: str,
    software: Version,
    known: Mapping[Version, tuple[Version, ...]],
    command: str = "gaudi-launch engines",
) -> Verdict:
    """Return the verdict on a package and the Gaudi release of its interpreter."""
    release = release_of(version)
    tested = known.get(release) if release else None
    shown = f"{name} {version}, Gaudi {dotted(software)}"
    if tested is None or software > releases().newest:
        return Verdict.unknown("doctor.engine.pair.unknown", shown)
    expected = ", ".join(map(dotted, tested))
    if software in tested:
        return Verdict.ok(shown, expected)
    remedy = Remedy(message("doctor.engine.pair.remedy"), commands=(command,))
    return Verdict.warn("doctor.engine.pair.warn", shown, expected, remedy)


@check("engine.torch", "docs: Support Matrix; profiles/releases.yaml", ("engine",))
def _torch(facts: DoctorFacts) -> Verdict:
    engine = _engine(facts)
    torch, plugin = release_of(engine.torch), release_of(engine.torch_plugin)
    if torch is None or plugin is None:
        return Verdict.skip("doctor.engine.torch.skip")
    wanted = releases().torch_of(engine.torch_plugin or "")
    shown = f"torch {engine.torch}, habana-torch-plugin {engine.torch_plugin}"
    if not wanted:
        return Verdict.unknown("doctor.engine.torch.unknown", shown)
    expected = ", ".join(map(dotted, wanted))
    if torch in wanted:
        return Verdict.ok(shown, expected)
    remedy = Remedy(message("doctor.engine.torch.remedy"))
    return Verdict.warn("doctor.engine.torch.warn", shown, expected, remedy)


@check("engine.bucket_limit", "HabanaAI/vllm-hpu-extension pull 371", ("engine",))
def _bucket_limit(facts: DoctorFacts) -> Verdict:
    engine = _engine(facts)
    if engine.bucket_limit is None:
        return Verdict.skip("doctor.engine.bucket_limit.skip")
    environment = facts.config.environment
    ratios = {
        n: v for n, v in environment.items() if n.endswith("_BUCKET_LIMIT") and not v.isdecimal()
    }
    shown = engine.extension or "vllm-hpu-extension"
    if engine.bucket_limit:
        return Verdict.ok(shown, id="doctor.engine.bucket_limit.knows")
    if ratios:
        # the older snapshot reads an integer and stops at 0.25
        found = " ".join(f"{name}={value}" for name, value in ratios.items())
        remedy = Remedy(
            message("doctor.engine.bucket_limit.remedy"), commands=(f"unset {' '.join(ratios)}",)
        )
        return Verdict.fail("doctor.engine.bucket_limit.fail", found, "-", remedy)
    return Verdict.ok(shown, id="doctor.engine.bucket_limit.older")


@check("engine.conditions", "profiles/engines/changes/conditions.yaml", ("engine",))
def _conditions(facts: DoctorFacts) -> Verdict:
    """Warn of what is known of the engine's release with the installed packages."""
    found = " ".join(each.render() for each in _engine(facts).conditions)
    if not found:
        return Verdict.ok("-", id="doctor.engine.conditions.ok")
    return Verdict.warn("doctor.engine.conditions.warn", found)


@check(
    "engine.gaudi_packages",
    "HabanaAI/vllm-fork@17a7946f:README_GAUDI.md; profiles/releases.yaml",
    ("engine",),
)
def _gaudi_packages(facts: DoctorFacts) -> Verdict:
    """Compare the environment with the packages that the engines' guides list."""
    engine = _engine(facts)
    for_cards = engine.plugin or engine.extension or engine.torch_plugin
    if engine.packages is None or engine.vllm is None or not for_cards:
        return Verdict.skip("doctor.engine.gaudi_packages.skip")
    rows = releases().python_packages
    absent = [row for row in rows if not engine.packages.intersection(row.names)]
    expected = ", ".join(row.names[0] for row in rows)
    if not absent:
        return Verdict.ok(expected, expected)
    missing = ", ".join(row.names[0] for row in absent)
    found = ", ".join(row.names[0] for row in rows if row not in absent) or "-"
    needed = ", ".join(row.names[0] for row in absent if row.needed)
    release = software_release(engine.torch_plugin) or software_release(facts.host.driver_version)
    steps = commands(release, "install", "pytorch") if release is not None else ()
    remedy = Remedy(message("doctor.engine.gaudi_packages.remedy"), commands=steps)
    values = {"missing": missing, "needed": needed, "python": engine.python}
    if needed:
        return Verdict.fail("doctor.engine.gaudi_packages.fail", found, expected, remedy, **values)
    return Verdict.warn("doctor.engine.gaudi_packages.warn", found, expected, remedy, **values)


@check("engine.pins", "profiles/engines/constraints, by the file's own head", ("engine",))
def _pins(facts: DoctorFacts) -> Verdict:
    """Warn of all packages that deviate, in one row."""
    engine = _engine(facts)
    if engine.pins is None:
        return Verdict.skip("doctor.engine.pins.skip")
    if not engine.pins.deviations:
        return Verdict.ok(engine.pins.file, id="doctor.engine.pins.ok")
    rows = engine.pins.deviations
    found = ", ".join(f"{each.package} {each.installed}" for each in rows)
    expected = ", ".join(f"{each.package} {each.pinned}" for each in rows)
    wanted = tuple(f"{each.package}=={each.pinned}" for each in rows if " " not in each.pinned)
    commands = []
    if wanted:
        commands.append(shlex.join((engine.python, "-m", "pip", "install", *wanted)))
    remedy = Remedy(message("doctor.engine.pins.remedy"), commands=tuple(commands))
    return Verdict.warn(
        "doctor.engine.pins.warn", found, expected, remedy, count=len(rows), file=engine.pins.file
    )


@check("gateway.program", "gaudi_launch/extensions/stack/gateway/program.py", ("gateway",))
def _program(facts: DoctorFacts) -> Verdict:
    gateway = facts.gateway
    if gateway is None:
        return Verdict.skip("doctor.gateway.program.skip")
    expected = f"HAProxy {gateway.expected}"
    if gateway.found and gateway.expected in gateway.found:
        return Verdict.ok(gateway.found, expected)
    again = ["gaudi-launch setup gateway"]
    if not gateway.found:
        again.insert(0, f"rm -r {gateway.folder}")
    remedy = Remedy(message("doctor.gateway.program.remedy"), commands=tuple(again))
    return Verdict.warn(
        "doctor.gateway.program.warn", gateway.found or "-", expected, remedy, path=gateway.folder
    )
