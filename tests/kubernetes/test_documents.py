"""``render kubernetes``: each shape against its golden file, and against every checker that is
not ours."""

from __future__ import annotations

import functools
import json
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.cli.main import run
from gaudi_launch.engines.ray_serve.engine import IN_RAY
from gaudi_launch.kubernetes import pods
from gaudi_launch.kubernetes.objects.needs import JOIN_SECONDS
from gaudi_launch.kubernetes.objects.pod import HUB_HOME
from gaudi_launch.kubernetes.schema_check import problems, schemas
from gaudi_launch.watch.dashboard import dashboard
from tests.support.cli import golden
from tests.support.kubernetes_documents import (
    CASES,
    CHAT,
    HOSTILE,
    LLAMA,
    QWEN,
    R1,
    WITH,
    _plain,
    following,
    goldens,
    main_of,
    objects,
    rendered,
    steady,
)
from tests.support.speed import run_within

__all__ = ["_plain"]

PODS = Path(pods.__file__).parent


def test_stdout_is_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    text = rendered(capsys, *CHAT)
    assert run(["render", "kubernetes", *CHAT]) == 0
    out, err = capsys.readouterr()
    assert out == text
    assert "Note: " in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--replicas", "2"), "kubernetes.many_nodes"),
        (("--monitor",), "kubernetes.monitor"),
    ],
)
def test_what_a_cluster_must_have_is_said(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def ids(*more: str) -> list[str]:
        assert run(["render", "kubernetes", "--json", *CHAT, *more]) == 0
        return [note["id"] for note in json.loads(capsys.readouterr().out)["notes"]]

    assert said in ids(*words)
    assert said not in ids("--replicas", "2", "--storage-class", "nfs")


@pytest.mark.parametrize(("words", "how"), [((), "-f FILE"), (("--kustomize",), "-k FOLDER")])
def test_the_first_line_says_how_to_apply(
    words: tuple[str, ...], how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`kubectl apply -f` of a folder with a kustomization fails."""
    assert rendered(capsys, *LLAMA, *words).splitlines()[0].endswith(f"kubectl apply {how}")


def test_several_files_want_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["render", "kubernetes", *CASES["deployment-gaudi3-hpa"]]) == 2
    assert "--to" in capsys.readouterr().err
    assert run(["render", "kubernetes", *CASES["deployment-gaudi3-hpa"], "--to", "out"]) == 0
    names = ["out/prometheus-adapter-values.yaml", "out/qwen3-8b.yaml"]
    assert sorted(capsys.readouterr().out.split()) == names
    golden("kubernetes/prometheus-adapter-values.yaml", (tmp_path / names[0]).read_text())


def test_files_of_the_plan_come_along(capsys: pytest.CaptureFixture[str]) -> None:
    """The bucket list of today's plugin is a file: a ConfigMap here, and the engine is told its
    place."""
    text = rendered(
        capsys,
        "-w",
        "Qwen/Qwen3-8B",
        "-n",
        "1",
        "--engine",
        "vllm-gaudi",
        "--accelerator",
        "gaudi3",
    )
    maps = {
        found["metadata"]["name"]: found for found in objects(text) if found["kind"] == "ConfigMap"
    }
    pod = main_of(text)["spec"]["template"]["spec"]
    engine = pod["containers"][0]
    env = {entry["name"]: entry.get("value") for entry in engine["env"]}
    folder, _, name = env["VLLM_BUCKETING_FROM_FILE"].rpartition("/")
    (mount,) = [mount for mount in engine["volumeMounts"] if mount["mountPath"] == folder]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == mount["name"]]
    assert maps[volume["configMap"]["name"]]["data"][name]


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    golden(f"kubernetes/{case}.yaml", steady(rendered(capsys, *CASES[case])))


def test_programs_come_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, str] = {}
    for case in ("leaderworkerset-gaudi2", "rayservice-gaudi3", "deployment-gaudi3-hpa"):
        for each in objects(rendered(capsys, *CASES[case])):
            found |= each.get("data", {})
    # the dashboard is not a program
    assert json.loads(found.pop("gaudi-launch.json")) == dashboard()
    assert {"keep_recipes.py", "multi_node.py", "chat_page.py", "gaudi_ray_app.py"} <= found.keys()
    sources = {path.name: path for folder in (PODS, IN_RAY) for path in folder.glob("*.py")}
    assert found == {name: sources[name].read_text(encoding="utf-8") for name in found}


@functools.cache
def validator() -> Any:
    return pytest.importorskip("kubernetes_validate", reason="pip install '.[dev]'")


@pytest.mark.parametrize("version", ["1.28", "1.32", "1.37"])
@pytest.mark.parametrize("path", goldens(), ids=lambda path: path.stem)
def test_core_kinds_are_accepted(path: Path, version: str) -> None:
    accepted = []
    for found in objects(path.read_text(encoding="utf-8")):
        if "." not in found["apiVersion"] or found["apiVersion"].startswith("networking.k8s.io"):
            accepted.append(validator().validate(found, version, strict=True))
    assert accepted


@pytest.mark.parametrize("path", goldens(), ids=lambda path: path.stem)
def test_every_kind_is_accepted_by_its_schema(path: Path) -> None:
    import jsonschema

    for found in objects(path.read_text(encoding="utf-8")):
        schema = schemas()["kinds"][f"{found['apiVersion']} {found['kind']}"]
        jsonschema.Draft202012Validator({**schema, "$defs": schemas()["$defs"]}).validate(found)
        assert list(problems(found)) == []


@pytest.mark.parametrize("path", goldens(), ids=lambda path: path.stem)
def test_our_check_and_jsonschema_refuse_the_same(path: Path) -> None:
    """A key misspelled at any depth is refused by both."""
    import jsonschema

    refused = 0
    for found in objects(path.read_text(encoding="utf-8")):
        schema = schemas()["kinds"][f"{found['apiVersion']} {found['kind']}"]
        other = jsonschema.Draft202012Validator({**schema, "$defs": schemas()["$defs"]})
        for broken in misspelled(found):
            ours = any(what == "unknown key" for _, what in problems(broken))
            theirs = any(
                error.validator == "additionalProperties" for error in other.iter_errors(broken)
            )
            assert ours == theirs
            refused += ours
    assert refused > 50


@pytest.mark.parametrize(("name", "wrong"), [("for", "5 minutes"), ("alert", 3), ("expr", [])])
def test_a_rule_that_the_operator_refuses_is_refused(name: str, wrong: object) -> None:
    (path,) = [each for each in goldens() if each.stem == "deployment-gaudi3-hpa"]
    documents = objects(path.read_text(encoding="utf-8"))
    (found,) = [each for each in documents if each["kind"] == "PrometheusRule"]
    assert list(problems(found)) == []
    found["spec"]["groups"][0]["rules"][0][name] = wrong
    assert [where for where, _ in problems(found)] == [f".spec.groups[0].rules[0].{name}"]


def misspelled(part: Any) -> Iterator[Any]:
    """The same thing with one key spelled wrong, once for each key."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name not in ("apiVersion", "kind", "metadata"):
                yield {**{k: v for k, v in part.items() if k != name}, f"{name}Typo": value}
            for inner in misspelled(value):
                yield {**part, name: inner}
    elif isinstance(part, list):
        for at, value in enumerate(part[:2]):
            for inner in misspelled(value):
                yield [*part[:at], inner, *part[at + 1 :]]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not here")
@pytest.mark.parametrize("case", ["deployment-gaudi3-hpa", "leaderworkerset-gaudi2"])
def test_kubectl_reads_the_kustomization(
    case: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """kubectl's reader is not ours: what it makes of the files must be what we meant."""
    folder = tmp_path / "out"
    rendered(capsys, *CASES[case], "--kustomize", "--to", str(folder))
    done = subprocess.run(
        ["kubectl", "kustomize", folder], capture_output=True, text=True, check=True, timeout=60
    )
    plain = next(
        path for path in folder.glob("*.yaml") if path.name.startswith(("qwen", "deepseek"))
    )

    def key(found: dict[str, Any]) -> tuple[str, str]:
        return found["kind"], found["metadata"]["name"]

    assert sorted(objects(done.stdout), key=key) == sorted(objects(plain.read_text()), key=key)


def test_a_long_warm_up_is_never_killed(capsys: pytest.CaptureFixture[str]) -> None:
    """The startup probe allows what the estimate says twice, and weights on top; a rollout is
    given longer."""
    spec = main_of(rendered(capsys, *QWEN))["spec"]
    engine = spec["template"]["spec"]["containers"][0]
    budget = engine["startupProbe"]["failureThreshold"] * engine["startupProbe"]["periodSeconds"]
    assert budget >= 1800
    assert spec["progressDeadlineSeconds"] > budget
    leader = main_of(rendered(capsys, *CASES["leaderworkerset-gaudi2"]))["spec"][
        "leaderWorkerTemplate"
    ]["leaderTemplate"]
    probe = leader["spec"]["containers"][0]["startupProbe"]
    # the first pod waits for the others before it starts the engine
    assert probe["failureThreshold"] * probe["periodSeconds"] >= 7200 + JOIN_SECONDS


def test_a_group_waits_as_long_as_its_probe_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MULTI_NODE_TIMEOUT", raising=False)
    assert runpy.run_path(str(PODS / "multi_node.py"), run_name="pod")["SECONDS"] == JOIN_SECONDS


def test_nothing_of_the_host_comes_along(capsys: pytest.CaptureFixture[str]) -> None:
    """The device plugin gives out cards, the cluster addresses: no word of ours may contradict
    them."""
    text = rendered(capsys, *QWEN)
    for word in (
        "HABANA_VISIBLE",
        "ens8f0",
        "10.20.30.40",
        "127.0.0.1:30001",
        "hostIPC",
        "privileged",
        "hostPath",
    ):
        assert word not in text


def test_secrets_are_only_referred_to(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_never_written")
    text = rendered(capsys, *CHAT)
    assert "hf_never_written" not in text
    env = {
        entry["name"]: entry
        for entry in main_of(text)["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert env["HF_TOKEN"]["valueFrom"] == {
        "secretKeyRef": {"name": "qwen3-8b-secrets", "key": "HF_TOKEN"}
    }


def test_a_secret_of_the_user_beats_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """A variable has one value: two of a name would be refused by a server-side apply."""
    text = rendered(capsys, *CHAT, "--secret", "mine:HF_HOME,PT_HPU_LAZY_MODE")
    env = main_of(text)["spec"]["template"]["spec"]["containers"][0]["env"]
    names = [entry["name"] for entry in env]
    assert sorted(names) == sorted(set(names))
    assert [
        e["valueFrom"]["secretKeyRef"]["name"]
        for e in env
        if e["name"] in ("HF_HOME", "PT_HPU_LAZY_MODE")
    ] == [
        "mine",
        "mine",
    ]


def test_secrets_after_the_dashes_come_from_the_secret(capsys: pytest.CaptureFixture[str]) -> None:
    text = rendered(capsys, *CHAT, "--", "--api-key", "sk-secret", "--hf-token=hf-secret")
    assert "sk-secret" not in text
    assert "hf-secret" not in text
    container = main_of(text)["spec"]["template"]["spec"]["containers"][0]
    references = {entry["name"]: entry.get("valueFrom") for entry in container["env"]}
    for name in ("VLLM_API_KEY", "HF_TOKEN"):
        assert references[name] == {"secretKeyRef": {"name": "qwen3-8b-secrets", "key": name}}
    assert not {"--api-key", "--hf-token"} & set(container["args"])


@pytest.mark.parametrize("model", ["deepseek-ai/DeepSeek-R1", "/models/DeepSeek-R1-G2"])
def test_gaudi2_gets_converted_weights(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("-w", model, *R1[2:])
    pod = main_of(rendered(capsys, *words))["spec"]["template"]["spec"]
    assert following(pod["containers"][0]["args"], "--model") == "/models/DeepSeek-R1-G2"
    mount = {
        "name": "weights",
        "mountPath": "/models/DeepSeek-R1-G2",
        "subPath": "DeepSeek-R1-G2",
        "readOnly": True,
    }
    assert mount in pod["containers"][0]["volumeMounts"]
    run(["render", "kubernetes", *words])
    assert ("gaudi-launch convert" in capsys.readouterr().err) == (not model.endswith("-G2"))


def test_a_home_folder_behind_with_is_the_users(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shell expands what stands in quotes."""
    monkeypatch.setenv("HOME", "/home/me")
    text = rendered(capsys, *CHAT, "--with", "-w ~/bge-m3 -n 1 --engine vllm-gaudi")
    assert "/home/me/bge-m3" in text and "~" not in text


def test_two_nodes_of_deepseek(capsys: pytest.CaptureFixture[str]) -> None:
    """TP 16 and EP 16 on 2 x 8, as the branch's own scripts have it; PP 2 keeps TP 8 inside a
    node."""
    group = main_of(rendered(capsys, *CASES["leaderworkerset-gaudi2"]))["spec"][
        "leaderWorkerTemplate"
    ]
    leader = group["leaderTemplate"]["spec"]["containers"][0]
    assert group["size"] == 2
    assert following(leader["args"], "--tensor-parallel-size") == "16"
    assert {e["name"]: e.get("value") for e in leader["env"]}["VLLM_EP_SIZE"] == "16"
    pp = main_of(rendered(capsys, *CASES["leaderworkerset-gaudi2-pp"]))["spec"][
        "leaderWorkerTemplate"
    ]
    words = pp["leaderTemplate"]["spec"]["containers"][0]["args"]
    assert following(words, "--tensor-parallel-size") == "8"
    assert following(words, "--pipeline-parallel-size") == "2"


def test_fetched_weights_are_kept_whatever_else_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "measured").mkdir()
    quant = tmp_path / "quant.json"
    quant.write_text(
        json.dumps(
            {"mode": "QUANTIZE", "dump_stats_path": str(tmp_path / "measured" / "inc_output")}
        )
    )
    words = ("-d", "fp8", "--quant-config", str(quant))
    pod = main_of(rendered(capsys, *CHAT, *words))["spec"]["template"]["spec"]
    engine = next(each for each in pod["containers"] if each["name"] == "engine")
    mounts = {mount["mountPath"] for mount in engine["volumeMounts"] if mount["name"] == "weights"}
    assert mounts == {HUB_HOME, str(quant), str(tmp_path / "measured")}
    assert {"name": "HF_HOME", "value": HUB_HOME} in engine["env"]


def test_a_thousand_replicas_in_two_seconds() -> None:
    words = [
        sys.executable,
        "-m",
        "gaudi_launch",
        "render",
        "kubernetes",
        *CHAT,
        "--replicas",
        "1000",
    ]
    assert main_of(run_within(2, words))["spec"]["replicas"] == 1000


def test_a_thousand_replicas_are_one_number(capsys: pytest.CaptureFixture[str]) -> None:
    """Their rendering is that of two, so that it takes no longer."""
    two, thousand = (rendered(capsys, *CHAT, "--replicas", count) for count in ("2", "1000"))
    spec = main_of(thousand)["spec"]
    # one replica after the other would take an update of them weeks
    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]["maxUnavailable"]) == (1000, 100)
    number = re.compile(r"^( *(replicas|maxUnavailable): )\d+$", re.MULTILINE)
    assert number.sub(r"\1N", thousand) == number.sub(r"\1N", two)


def test_files_of_others_are_not_replaced(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    there = tmp_path / "out" / "templates" / "service-qwen3-8b.yaml"
    there.parent.mkdir(parents=True)
    there.write_text("mine")
    assert run(["render", "kubernetes", *CHAT, "--helm", "out"]) == 2
    assert there.read_text() == "mine"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["templates"]
    assert run(["render", "kubernetes", *CHAT, "--helm", "out", "--force"]) == 0
    assert "kind: Service" in there.read_text()
    capsys.readouterr()


def test_the_same_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert rendered(capsys, *QWEN, *WITH) == rendered(capsys, *QWEN, *WITH)


@settings(max_examples=60, deadline=None)
@given(name=HOSTILE, words=st.lists(HOSTILE, max_size=3), value=HOSTILE)
def test_no_text_of_the_user_breaks_out(name: str, words: list[str], value: str) -> None:
    """Whatever a model is called and an engine is told: names are DNS labels, texts come back as
    they were."""
    from gaudi_launch.kubernetes.chart_values import Name
    from gaudi_launch.kubernetes.documents import render
    from gaudi_launch.kubernetes.objects.needs import PodResources
    from gaudi_launch.kubernetes.served import keys_of, release_name
    from gaudi_launch.kubernetes.target import KubernetesTarget, ServedModel
    from gaudi_launch.planning.container import Container

    release, key = release_name("", name), keys_of([name])[0]
    container = Container(
        "image", tuple(words), {"TEXT": value}, entrypoint="python3", ports=((8000, 8000),)
    )
    served = ServedModel(
        key, Name(release), "hub/model", container, PodResources(1, 2, 1024, 8, 2048, 600, 20), 8
    )
    text = render([served], KubernetesTarget(release)).files[f"{release}.yaml"]
    engine = main_of(text)["spec"]["template"]["spec"]["containers"][0]
    assert [expanded(word) for word in engine["args"]] == words
    assert expanded({e["name"]: e["value"] for e in engine["env"]}["TEXT"]) == value


def expanded(text: str) -> str:
    """What Kubernetes makes of a text when no variable is known
    (third_party/forked/golang/expansion/expand.go)."""
    out, at = "", 0
    while at < len(text):
        if text[at] == "$" and at + 1 < len(text):
            if text[at + 1] == "$":
                out, at = out + "$", at + 2
                continue
            assert text[at + 1] != "(", "a reference was left in"
        out, at = out + text[at], at + 1
    return out
