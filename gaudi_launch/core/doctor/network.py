"""Network checks, as far as this launch needs them.

One group of cards needs nothing from the host's network.
"""

from __future__ import annotations

import re

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.doctor.findings import DoctorFacts, Remedy, Verdict, check, release_of

_LIBFABRIC = (1, 20)
_LOCAL = ("127.0.0.1", "localhost")


def _scale_out(facts: DoctorFacts) -> bool:
    """Return whether this launch uses host NICs.

    It does over several nodes, or with more cards than one group has.
    """
    largest = max((len(group) for group in facts.host.groups), default=8)
    cards = max(facts.wants.cards or 0, len(facts.wants.modules))
    return facts.wants.nodes > 1 or cards > largest


def _scale_out_remedy(facts: DoctorFacts, text: str) -> Remedy:
    """Return how the libraries are built: by setup, for this launch's engine."""
    engine = facts.wants.engine or "ENGINE"
    if facts.wants.container:
        words = f"gaudi-launch setup {engine} --in docker"
    else:
        words = f"sudo gaudi-launch setup {engine}"
    return Remedy(message(text), commands=(f"{words} --scale-out",), root=not facts.wants.container)


@check("network.interfaces", "docs: Scale-out via Host NIC", ("gaudi",))
def _interfaces(facts: DoctorFacts) -> Verdict:
    up = [i for i in facts.host.interfaces if i.up and i.addresses]
    shown = ", ".join(i.name for i in up) or "-"
    if not _scale_out(facts):
        return Verdict.ok(shown, id="doctor.network.not_needed")
    if up:
        return Verdict.ok(shown, ">= 1")
    remedy = Remedy(message("doctor.network.interfaces.remedy"), commands=("ip -br address",))
    return Verdict.fail("doctor.network.interfaces.fail", shown, ">= 1", remedy)


@check("network.libfabric", "docs: Scale-out via Host NIC (libfabric 1.20.0)", ("gaudi",))
def _libfabric(facts: DoctorFacts) -> Verdict:
    path = facts.config.libfabric
    if not _scale_out(facts):
        return Verdict.ok(path or "-", id="doctor.network.not_needed")
    expected = "libfabric >= 1.20"
    remedy = _scale_out_remedy(facts, "doctor.network.libfabric.remedy")
    if path is None:
        return Verdict.warn("doctor.network.libfabric.warn", "-", expected, remedy)
    # libfabric.so.1.22.0 is API 1, library 1.22; a bare libfabric.so.1 does not show it
    version = re.search(r"\.so\.(\d+\.\d+)", path)
    if version is None:
        return Verdict.unknown("doctor.network.libfabric.unknown", path, expected)
    # the file's number is libtool's, which libfabric keeps equal only since 1.20: an older one is a
    # hint
    found = release_of(version[1]) or (0, 0)
    if found >= _LIBFABRIC:
        return Verdict.ok(path, expected)
    return Verdict.warn("doctor.network.libfabric.old", path, expected, remedy)


@check("network.ofi_wrapper", "Gaudi2E 1.23.0 manual 3.3", ("gaudi",))
def _wrapper(facts: DoctorFacts) -> Verdict:
    path = facts.config.ofi_wrapper
    if not _scale_out(facts):
        return Verdict.ok(path or "-", id="doctor.network.not_needed")
    if path:
        return Verdict.ok(path, "libhccl_ofi_wrapper.so")
    remedy = _scale_out_remedy(facts, "doctor.network.ofi_wrapper.remedy")
    return Verdict.warn("doctor.network.ofi_wrapper.warn", "-", "libhccl_ofi_wrapper.so", remedy)


@check("network.socket_interface", "HabanaAI/HCL: No network interfaces found")
def _socket_interface(facts: DoctorFacts) -> Verdict:
    names = ("HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
    asked = {
        name: facts.config.environment[name] for name in names if name in facts.config.environment
    }
    known = {i.name: i.up for i in facts.host.interfaces} | {"lo": True}
    shown = " ".join(f"{name}={value}" for name, value in asked.items()) or "-"
    expected = ", ".join(name for name, up in known.items() if up)
    for name, value in asked.items():
        # a leading ^ excludes, a leading = needs the complete name; otherwise HCCL matches the
        # beginning of names
        if value.startswith("^"):
            continue
        words = [word.strip() for word in value.removeprefix("=").split(",") if word.strip()]
        if not any(
            up for word in words for known_name, up in known.items() if known_name.startswith(word)
        ):
            remedy = Remedy(
                message("doctor.network.socket_interface.remedy"), commands=("ip -br address",)
            )
            return Verdict.fail(
                "doctor.network.socket_interface.fail", shown, expected, remedy, name=name
            )
    return Verdict.ok(shown, expected if asked else "")


@check("network.port", "linux proc/net/tcp", ("port",))
def _port(facts: DoctorFacts) -> Verdict:
    port, listening = facts.wants.port, facts.config.ports
    if listening is None:
        return Verdict.unreadable("/proc/net/tcp", str(port))
    if port not in listening:
        return Verdict.ok(str(port), str(port))
    remedy = Remedy(
        message("doctor.network.port.remedy"), commands=(f"ss -ltnp 'sport = :{port}'",)
    )
    return Verdict.fail("doctor.network.port.fail", str(port), "free", remedy, port=port)


@check("network.proxy", "assumed: clients read *_proxy and no_proxy as curl does")
def _proxy(facts: DoctorFacts) -> Verdict:
    environment = facts.config.environment
    proxies = [name for name in ("http_proxy", "all_proxy", "https_proxy") if name in environment]
    if not proxies:
        return Verdict.ok("-")
    shown = " ".join(
        f"{name}={environment[name]}" for name in (*proxies, "no_proxy") if name in environment
    )
    exceptions = [word.strip() for word in environment.get("no_proxy", "").split(",")]
    expected = f"no_proxy={','.join(_LOCAL)}"
    if "*" in exceptions or all(word in exceptions for word in _LOCAL):
        return Verdict.ok(shown, expected)
    both = ",".join(dict.fromkeys((*filter(None, exceptions), *_LOCAL)))
    commands = (f"export no_proxy={both} NO_PROXY={both}",)
    return Verdict.warn(
        "doctor.network.proxy.warn",
        shown,
        expected,
        Remedy(message("doctor.network.proxy.remedy"), commands),
    )
