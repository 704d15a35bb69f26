"""Every signature is found, in the right order, in both languages; nothing is found where
nothing is wrong."""

from __future__ import annotations

import gzip
from dataclasses import replace
from typing import Any

import pytest

from gaudi_launch.core.base.messages import catalogue
from gaudi_launch.core.base.yaml_reader import parse_yaml
from gaudi_launch.core.services.diagnosis.diagnose import Cause, Diagnosis, diagnose
from gaudi_launch.core.services.diagnosis.signatures import (
    KILLED,
    QUIT,
    STUCK,
    TERMINATED,
    signatures,
)
from gaudi_launch.core.services.log.line import bare
from tests.support.places import DATA

KNOWN = parse_yaml((DATA / "diagnosis.yaml").read_text(encoding="utf-8"))
# the public texts of the failures, one a cause at least
TEXTS = [(cause, text) for each in KNOWN["texts"] for cause, text in each.items()]
# what fails nothing: a warning that most starts survive, what makes requests slow (vllm-fork#836)
SLOW = [(cause, text) for each in KNOWN["slow"] for cause, text in each.items()]
USUAL = {command for each in signatures() for command in each.commands}
UP = "INFO:     Application startup complete.\n"
OOM = "FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::1073741824 (1024)MB"
NO_BLOCKS = "ValueError: No available memory for the cache blocks."


def answer(found: Diagnosis, log: str) -> list[str]:
    """Return a diagnosis as tests/data/diagnosis.yaml has it."""
    states = [each for each in ("failed", "came_up", "permanent") if getattr(found, each)]
    progress = ["/".join(map(str, found.at))] if found.at != (0, 0) else []
    causes = [_written(each, log) for each in found.causes]
    findings = [f"{_written(each, log)} (finding)" for each in found.findings]
    return [" ".join([found.phase, *states, *progress]), *causes, *findings]


def _written(cause: Cause, log: str) -> str:
    lines = [str(number) if line in log else f"{number}: {line}" for number, line in cause.evidence]
    about = [
        each.id.removeprefix("diagnose.") for each in (cause.title, cause.remedy, *cause.notes)
    ]
    about += [each for each in cause.commands if each not in USUAL]
    found = " ".join([cause.id, *lines])
    return found if about == [cause.id, f"{cause.id}_fix"] else f"{found}: {', '.join(about)}"


@pytest.mark.parametrize("case", KNOWN["cases"], ids=lambda case: case["case"])
def test_what_a_log_shows(case: dict[str, Any]) -> None:
    for each in case["logs"]:
        found = diagnose(
            each["log"],
            exit_status=each.get("status"),
            outcome=each.get("outcome", ""),
            phase=each.get("phase", ""),
        )
        assert answer(found, each["log"]) == each["found"]
        for cause in found.causes:
            remedies = cause.to_json()["remedy"].split("\n")
            assert remedies == [said.render() for said in (cause.remedy, *cause.notes)]


def test_an_error_is_the_title_where_none_is_known_but_not_its_secrets() -> None:
    lines = ("Traceback (most recent call last):", "ValueError: bad api_key='S3cretValue'")
    title = diagnose("\n".join(lines), exit_status=1).causes[0].title.render()
    assert title.endswith("ValueError: bad api_key='[removed]'")


@pytest.mark.parametrize(("finding", "line"), SLOW)
def test_what_makes_requests_slow_is_a_finding_and_no_failure(finding: str, line: str) -> None:
    found = diagnose(f"{UP}{line}\n{line}\n")
    assert (found.failed, found.causes) == (False, ())
    assert [(each.id, len(each.evidence)) for each in found.findings] == [(finding, 2)]


@pytest.mark.parametrize(
    ("cause", "text"), TEXTS, ids=[f"{c}-{n}" for n, (c, _) in enumerate(TEXTS)]
)
def test_each_known_text(cause: str, text: str) -> None:
    found = diagnose(f"INFO 11-21 03:02:41 starting\n{text}\n")
    assert found.failed and found.causes[0].id == cause
    assert found.causes[0].evidence[0] == (2, bare(text))


# what HAProxy 2.8.25 wrote when it failed so
HAPROXY = [
    ("port-in-use", "gateway_address", "cannot bind socket (Address already in use)"),
    ("address-not-here", "gateway_address", "cannot bind socket (Cannot assign requested address)"),
    ("certificate-missing", "gateway_certificate", "unable to stat SSL certificate"),
    ("certificate-not-pem", "gateway_certificate", "unable to load certificate"),
    ("certificate-no-key", "gateway_certificate", "unable to load private key"),
    ("certificate-other-key", "gateway_certificate", "inconsistencies between private key"),
    ("config-rejected", "gateway_config", "unknown keyword 'nbthreads'"),
]


@pytest.mark.parametrize(("sample", "cause", "evidence"), HAPROXY)
def test_what_haproxy_wrote_names_its_cause(sample: str, cause: str, evidence: str) -> None:
    text = (DATA / "haproxy" / f"{sample}.txt").read_text(encoding="utf-8")
    found = diagnose(text, exit_status=1)
    assert found.failed and found.causes[0].id == cause
    assert evidence in found.causes[0].evidence[0][1]


def test_a_gateway_without_an_engine_has_not_failed() -> None:
    text = (DATA / "haproxy" / "no-server.txt").read_text(encoding="utf-8")
    found = diagnose(text)
    assert (found.failed, [each.id for each in found.findings]) == (False, ["gateway_no_server"])


def test_every_signature_has_a_text() -> None:
    threads = parse_yaml((DATA / "threads.yaml").read_text(encoding="utf-8"))
    known = {cause for cause, _ in TEXTS} | {each.get("cause", "exception") for each in threads}
    assert {each.id for each in signatures() if not each.slows} == known - {"exception"}
    assert {each.id for each in signatures() if each.slows} == {cause for cause, _ in SLOW}
    assert len(signatures()) >= 39


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_signature_has_its_words(language: str) -> None:
    known = catalogue(language)
    for signature in (*signatures(), KILLED, TERMINATED, STUCK, QUIT):
        assert known[f"diagnose.{signature.id}"] and known[f"diagnose.{signature.id}_fix"]


@pytest.mark.parametrize(
    ("log", "first"),
    [
        ("fakehpu-v1.22.0-fractional-bucket-limit-refused", "bucket_limit"),
        ("fakehpu-v1.21.0-wrong-model-path", "wrong_path"),
        ("fakehpu-v1.21.0-impossible-bucket", "bucket_config"),
        ("fakehpu-v1.21.0-port-in-use", "port_in_use"),
    ],
)
def test_recorded_failures(log: str, first: str) -> None:
    path = DATA / "logs" / f"{log}.txt.gz"
    found = diagnose(gzip.decompress(path.read_bytes()).decode(), exit_status=1, outcome="died")
    assert found.causes[0].id == first
    assert not {"low_nofile", "exception"}.intersection(cause.id for cause in found.causes)


@pytest.mark.parametrize(
    ("status", "outcome", "ids"),
    [
        (-9, "died", ["killed"]),
        (137, "", ["killed"]),
        (-7, "died", ["shared_memory"]),
        (-4, "died", ["crashed"]),
        (-6, "died", ["crashed"]),
        (134, "died", ["crashed"]),
        (-8, "died", ["crashed"]),
        (-11, "died", ["crashed"]),
        (-1, "died", ["terminated"]),
        (-2, "died", ["terminated"]),
        (129, "", ["terminated"]),
        (-15, "died", ["terminated"]),
        (0, "died", ["quit"]),
        (1, "died", []),
        (128, "died", []),
        # its supervisor sent the signal
        (-9, "stuck", ["stuck"]),
        (-9, "stopped", []),
    ],
)
def test_without_a_log_the_status_alone_explains_the_end(
    status: int, outcome: str, ids: list[str]
) -> None:
    found = diagnose("", exit_status=status, outcome=outcome)
    assert [cause.id for cause in found.causes] == ids
    assert found.failed is (outcome != "stopped")
    assert (found.came_up, found.at, found.findings) == (False, (0, 0), ())


def test_a_cause_is_written_with_its_evidence() -> None:
    (cause,) = diagnose(f"{NO_BLOCKS}\n" * 5, exit_status=1).causes
    assert cause.to_json() == {
        "id": "no_kv_blocks",
        "title": cause.title.render(),
        "remedy": cause.remedy.render(),
        "commands": list(cause.commands),
        # the first three are enough
        "evidence": [{"line": number, "text": NO_BLOCKS} for number in (1, 2, 3)],
        "permanent": cause.permanent,
        "source": cause.source,
    }


def test_the_commands_are_for_the_model_that_is_named() -> None:
    (cause,) = diagnose(OOM, exit_status=1).causes
    made = replace(cause, commands=("gaudi-launch inspect MODEL", "top"))
    assert made.for_model("/my models/m").commands == ("gaudi-launch inspect '/my models/m'", "top")


def test_a_line_is_read_up_to_two_thousand_characters_and_kept_up_to_three_hundred() -> None:
    text = f"{'x' * 1976} No space left on device"
    assert len(text) == 2000
    (cause,) = diagnose(text, exit_status=1).causes
    assert (cause.id, cause.evidence) == ("disk_full", ((1, "x" * 300),))
    assert diagnose(f"x{text}", exit_status=1).causes == ()
    # each redraw of a progress bar is a line of its own
    (cause,) = diagnose(f"{'x' * 1990}\r{text}\rend", exit_status=1).causes
    assert cause.evidence == ((1, "x" * 300),)
