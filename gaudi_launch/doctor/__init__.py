"""Checks as records over Host and HostConfig; remedies that can be undone; a bundle for a support case."""

from gaudi_launch.doctor.findings import DoctorFacts, EngineFacts, Finding, Wants, Weights
from gaudi_launch.doctor.runner import exit_code, quick, stop_on_failures, summary

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
