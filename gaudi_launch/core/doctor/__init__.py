"""Checks as records over Host and HostConfig.

Remedies can be reverted; a bundle is for a support case.
"""

from gaudi_launch.core.doctor.findings import DoctorFacts, EngineFacts, Finding, Wants, Weights
from gaudi_launch.core.doctor.runner import exit_code, quick, stop_on_failures, summary

__all__ = [
    "DoctorFacts",
    "EngineFacts",
    "Finding",
    "Wants",
    "Weights",
    "exit_code",
    "quick",
    "stop_on_failures",
    "summary",
]
