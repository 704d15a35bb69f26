"""The program in front of several models: it is optional, but it must start."""

from __future__ import annotations

from gaudi_launch.doctor.findings import (
    Check,
    DoctorFacts,
    GatewayFacts,
    Remedy,
    Verdict,
    ok,
    skip,
    warn,
)
from gaudi_launch.messages import message


def _program(facts: DoctorFacts) -> Verdict:
    gateway = facts.gateway
    if gateway is None:
        return skip("doctor.gateway.program.skip")
    expected = f"HAProxy {gateway.expected}"
    if gateway.found and gateway.expected in gateway.found:
        return ok(gateway.found, expected)
    remedy = Remedy(message("doctor.gateway.program.remedy"), commands=_again(gateway))
    return warn(
        "doctor.gateway.program.warn", gateway.found or "-", expected, remedy, path=gateway.folder
    )


def _again(gateway: GatewayFacts) -> tuple[str, ...]:
    """Return the commands that install it.

    One that does not start is removed first.
    """
    if gateway.found:
        return ("gaudi-launch setup gateway",)
    return (f"rm -r {gateway.folder}", "gaudi-launch setup gateway")


CHECKS = (Check("gateway.program", _program, "gaudi_launch/gateway/program.py", ("gateway",)),)
