"""The engine in its interpreter: present, consistent versions, bucket options."""

from __future__ import annotations

import shlex

from gaudi_launch.doctor.findings import (
    Check,
    DoctorFacts,
    EngineFacts,
    Remedy,
    Verdict,
    dotted,
    fail,
    ok,
    release_of,
    skip,
    unknown,
    warn,
)
from gaudi_launch.doctor.installer import commands, software_release
from gaudi_launch.doctor.releases import Version, releases
from gaudi_launch.messages import message


def _engine(facts: DoctorFacts) -> EngineFacts:
    assert facts.engine is not None
    return facts.engine


def _present(facts: DoctorFacts) -> Verdict:
    engine = _engine(facts)
    if engine.problem:
        remedy = Remedy(message("doctor.engine.present.remedy"), commands=("gaudi-launch engines",))
        return fail(
            "doctor.engine.present.fail", engine.problem, "vllm", remedy, python=engine.python
        )
    if engine.vllm is None:
        remedy = Remedy(message("doctor.engine.present.remedy"), commands=("gaudi-launch engines",))
        return fail("doctor.engine.present.none", "-", "vllm", remedy, python=engine.python)
    return ok(f"{engine.name or 'vllm'} {engine.vllm}", "vllm")


def _software(facts: DoctorFacts) -> Version | None:
    """Return the Gaudi release of the engine's environment, else the driver's."""
    return release_of(_engine(facts).torch_plugin) or release_of(facts.host.driver_version)


def _pair(facts: DoctorFacts) -> Verdict:
    engine, software = _engine(facts), _software(facts)
    if facts.host.product == "gaudi1":
        return fail("doctor.engine.pair.gaudi1", "gaudi1", "gaudi2, gaudi3")
    if engine.vllm is None or software is None:
        return skip("doctor.engine.pair.skip")
    table = releases()
    name, version, known = ("vllm", release_of(engine.vllm), table.fork)
    if engine.plugin:
        name, version, known = ("vllm-gaudi", release_of(engine.plugin), table.plugin)
    shown = f"{name} {engine.plugin or engine.vllm}, Gaudi {dotted(software)}"
    tested = known.get(version) if version else None
    if tested is None or software > table.newest:
        return unknown("doctor.engine.pair.unknown", shown)
    expected = ", ".join(map(dotted, tested))
    if software in tested:
        return ok(shown, expected)
    remedy = Remedy(message("doctor.engine.pair.remedy"), commands=("gaudi-launch engines",))
    return warn("doctor.engine.pair.warn", shown, expected, remedy)


def _torch(facts: DoctorFacts) -> Verdict:
    engine = _engine(facts)
    torch, plugin = release_of(engine.torch), release_of(engine.torch_plugin)
    if torch is None or plugin is None:
        return skip("doctor.engine.torch.skip")
    wanted = releases().torch_of(engine.torch_plugin or "")
    shown = f"torch {engine.torch}, habana-torch-plugin {engine.torch_plugin}"
    if not wanted:
        return unknown("doctor.engine.torch.unknown", shown)
    expected = ", ".join(map(dotted, wanted))
    if torch in wanted:
        return ok(shown, expected)
    remedy = Remedy(message("doctor.engine.torch.remedy"))
    return warn("doctor.engine.torch.warn", shown, expected, remedy)


def _bucket_limit(facts: DoctorFacts) -> Verdict:
    engine = _engine(facts)
    if engine.bucket_limit is None:
        return skip("doctor.engine.bucket_limit.skip")
    environment = facts.config.environment
    ratios = {
        n: v for n, v in environment.items() if n.endswith("_BUCKET_LIMIT") and not v.isdecimal()
    }
    shown = engine.extension or "vllm-hpu-extension"
    if engine.bucket_limit:
        return ok(shown, id="doctor.engine.bucket_limit.knows")
    if ratios:
        # the older snapshot reads an integer and stops at 0.25
        found = " ".join(f"{name}={value}" for name, value in ratios.items())
        remedy = Remedy(
            message("doctor.engine.bucket_limit.remedy"), commands=(f"unset {' '.join(ratios)}",)
        )
        return fail("doctor.engine.bucket_limit.fail", found, "-", remedy)
    return ok(shown, id="doctor.engine.bucket_limit.older")


def _pins(facts: DoctorFacts) -> Verdict:
    """Warn of all packages that deviate, in one row."""
    engine = _engine(facts)
    if engine.pins is None:
        return skip("doctor.engine.pins.skip")
    if not engine.pins.deviations:
        return ok(engine.pins.file, id="doctor.engine.pins.ok")
    rows = engine.pins.deviations
    found = ", ".join(f"{name} {installed}" for name, installed, _ in rows)
    expected = ", ".join(f"{name} {pinned}" for name, _, pinned in rows)
    wanted = tuple(f"{name}=={pinned}" for name, _, pinned in rows if " " not in pinned)
    commands = []
    if wanted:
        commands.append(shlex.join((engine.python, "-m", "pip", "install", *wanted)))
    remedy = Remedy(message("doctor.engine.pins.remedy"), commands=tuple(commands))
    return warn(
        "doctor.engine.pins.warn", found, expected, remedy, count=len(rows), file=engine.pins.file
    )


def _gaudi_packages(facts: DoctorFacts) -> Verdict:
    """Compare the environment with the packages that the engines' guides list."""
    engine = _engine(facts)
    if engine.packages is None or not _is_for_cards(engine):
        return skip("doctor.engine.gaudi_packages.skip")
    rows = releases().python_packages
    absent = [row for row in rows if not engine.packages.intersection(row.names)]
    expected = ", ".join(row.names[0] for row in rows)
    if not absent:
        return ok(expected, expected)
    missing = ", ".join(row.names[0] for row in absent)
    found = ", ".join(row.names[0] for row in rows if row not in absent) or "-"
    needed = ", ".join(row.names[0] for row in absent if row.needed)
    release = software_release(engine.torch_plugin) or software_release(facts.host.driver_version)
    steps = commands(release, "install", "pytorch") if release is not None else ()
    remedy = Remedy(message("doctor.engine.gaudi_packages.remedy"), commands=steps)
    values = {"missing": missing, "needed": needed, "python": engine.python}
    if needed:
        return fail("doctor.engine.gaudi_packages.fail", found, expected, remedy, **values)
    return warn("doctor.engine.gaudi_packages.warn", found, expected, remedy, **values)


def _is_for_cards(engine: EngineFacts) -> bool:
    """Return True for an engine that needs cards, by its packages."""
    return engine.vllm is not None and bool(
        engine.plugin or engine.extension or engine.torch_plugin
    )


CHECKS = (
    Check("engine.present", _present, "importlib.metadata of the interpreter", ("engine",)),
    Check(
        "engine.pair", _pair, "profiles/releases.yaml; HabanaAI/vllm-fork#776 (Gaudi1)", ("engine",)
    ),
    Check("engine.torch", _torch, "docs: Support Matrix; profiles/releases.yaml", ("engine",)),
    Check(
        "engine.bucket_limit", _bucket_limit, "HabanaAI/vllm-hpu-extension pull 371", ("engine",)
    ),
    Check(
        "engine.gaudi_packages",
        _gaudi_packages,
        "HabanaAI/vllm-fork@17a7946f:README_GAUDI.md; profiles/releases.yaml",
        ("engine",),
    ),
    Check(
        "engine.pins", _pins, "profiles/engines/constraints, by the file's own head", ("engine",)
    ),
)
