"""kubectl's arguments, answers and failures, with a script in its place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gaudi_launch.core.base import interrupt
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.extensions.kubernetes import kubectl
from gaudi_launch.extensions.kubernetes.kubectl import Kubectl, failure, find
from tests.support.refusals import refusal


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Kubectl]:
    def write(script: str) -> Kubectl:
        path = tmp_path / "kubectl"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return Kubectl("chat", program=str(path))

    return write


def test_an_answer_is_an_object(program: Callable[[str], Kubectl]) -> None:
    echo = program('printf \'{"arguments": "%s"}\' "$*"')
    assert echo.document("get", "pods") == {
        "arguments": "--namespace=chat get pods -o json --request-timeout=60s"
    }
    assert refusal(lambda: program("echo []").document("get", "pods")) == (
        "kube.answer",
        ExitCode.FAILED,
        {"command": "get pods"},
    )
    assert refusal(lambda: program("echo {").document("get"))[0] == "kube.answer"


@pytest.mark.parametrize(
    "said",
    [
        'error: the server doesn\'t have a resource type "leaderworkersets"',
        'error: No matches for kind "RayService" in version "ray.io/v1"',
    ],
)
def test_a_kind_that_a_cluster_lacks_is_none(
    said: str, program: Callable[[str], Kubectl], tmp_path: Path
) -> None:
    (tmp_path / "said").write_text(said)
    assert program(f"cat {tmp_path}/said >&2; exit 1").document("get", "x") is None


def test_a_failure_has_the_last_line_or_the_exit_code(program: Callable[[str], Kubectl]) -> None:
    talking = program("echo first >&2; echo ' last ' >&2; exit 3")
    expected = ("kube.failed", ExitCode.FAILED, {"why": "last"})
    assert refusal(lambda: talking.document("get")) == expected
    assert refusal(lambda: talking.show("logs")) == expected
    silent = ("kube.failed", ExitCode.FAILED, {"why": "exit status 3"})
    assert refusal(lambda: program("exit 3").document("get")) == silent
    assert refusal(lambda: program("exit 3").show("get")) == silent
    killed = refusal(lambda: program("kill -9 $$").document("get"))
    assert killed == ("kube.failed", ExitCode.FAILED, {"why": "exit status -9"})


def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    gone = Kubectl(program=str(tmp_path / "none"))
    expected = ("kube.no_kubectl", ExitCode.MACHINE, {"why": "No such file or directory"})
    assert refusal(lambda: gone.document("get")) == expected
    assert refusal(lambda: gone.show("get")) == expected


def test_a_server_that_never_answers_is_given_up(
    program: Callable[[str], Kubectl], monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    asked: list[tuple[list[str], float]] = []

    def run(command: list[str], *, seconds: float) -> None:
        asked.append((command, seconds))
        raise subprocess.TimeoutExpired(command, seconds)

    monkeypatch.setattr(interrupt, "run", run)
    slow = Kubectl(program="k", seconds=2.0)
    assert refusal(lambda: slow.document("get")) == (
        "kube.unreachable",
        ExitCode.FAILED,
        {"why": "2 s"},
    )
    assert asked == [(["k", "get", "-o", "json", "--request-timeout=2s"], 7.0)]


def test_output_is_shown_and_a_reader_may_go_away(
    program: Callable[[str], Kubectl], capfd: pytest.CaptureFixture[str]
) -> None:
    program('echo "$@"').show("logs", "-f")
    assert capfd.readouterr().out == "--namespace=chat logs -f\n"
    program("kill -PIPE $$").show("logs")
    program("echo 'write: broken pipe' >&2; exit 1").show("logs")


@pytest.mark.parametrize(
    ("said", "id", "code"),
    [
        ('error: context "x" does not exist', "context", ExitCode.USAGE),
        ("error: no context exists with the name", "context", ExitCode.USAGE),
        ("Error in configuration: context was not found", "context", ExitCode.USAGE),
        ("error: Error loading config file: yaml", "bad_file", ExitCode.USAGE),
        ("The connection to localhost:8080 was refused", "no_config", ExitCode.MACHINE),
        ("error: no configuration has been provided", "no_config", ExitCode.MACHINE),
        ("error: invalid configuration: x", "no_config", ExitCode.MACHINE),
        ("error: You must be logged in to the server (Unauthorized)", "forbidden", ExitCode.FAILED),
        ("Error from server (Forbidden): pods is forbidden", "forbidden", ExitCode.FAILED),
        ("x509: certificate has expired", "forbidden", ExitCode.FAILED),
        ("exec: executable aws not found", "forbidden", ExitCode.FAILED),
        ("getting credentials: exec", "forbidden", ExitCode.FAILED),
        ("Unable to connect to the server: EOF", "unreachable", ExitCode.FAILED),
        ("dial tcp: connection refused", "unreachable", ExitCode.FAILED),
        ("dial tcp: i/o timeout", "unreachable", ExitCode.FAILED),
        ("lookup x: no such host", "unreachable", ExitCode.FAILED),
        ("net/http: TLS handshake", "unreachable", ExitCode.FAILED),
        ("context deadline exceeded", "unreachable", ExitCode.FAILED),
        ("context canceled", "unreachable", ExitCode.FAILED),
        ("something else", "failed", ExitCode.FAILED),
        (" \n", "failed", ExitCode.FAILED),
    ],
)
def test_the_meaning_of_a_message(said: str, id: str, code: ExitCode) -> None:
    found = failure(f"{said}\n")
    assert (found.id, found.exit_code) == (f"kube.{id}", code)
    assert found.text.values == {"why": said.strip() or "-"}


def test_the_program_and_a_cluster_must_be_there(
    no_programs: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(kubectl, "_IN_CLUSTER", tmp_path / "token")
    assert refusal(find, Kubectl()) == ("kube.no_kubectl", ExitCode.MACHINE, {"why": "PATH"})
    program = tmp_path / "kubectl"
    program.write_text("")
    program.chmod(0o755)
    no_config = ("kube.no_config", ExitCode.MACHINE, {"why": "KUBECONFIG, ~/.kube/config"})
    assert refusal(find, Kubectl()) == no_config
    none = str(tmp_path / "none")
    assert refusal(lambda: find(Kubectl("", none))) == (
        "kube.no_file",
        ExitCode.USAGE,
        {"path": none},
    )
    (tmp_path / "token").write_text("")
    assert find(Kubectl("n", "", "c")) == Kubectl("n", "", "c", str(program))
    (tmp_path / "token").unlink()
    (tmp_path / ".kube").mkdir()
    config = tmp_path / ".kube" / "config"
    config.write_text("")
    assert find(Kubectl()) == Kubectl(program=str(program))
    assert find(Kubectl("", str(config))) == Kubectl("", str(config), program=str(program))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/other:")
    assert refusal(find, Kubectl()) == no_config
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/other:{config}")
    assert find(Kubectl()) == Kubectl(program=str(program))
