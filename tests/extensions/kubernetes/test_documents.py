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
from gaudi_launch.core.base.reader import standalone
from gaudi_launch.core.render.monitoring import dashboard
from gaudi_launch.extensions.kubernetes.objects.needs import JOIN_SECONDS
from gaudi_launch.extensions.kubernetes.objects.pod import HUB_HOME
from gaudi_launch.extensions.kubernetes.schema_check import problems, schemas
from gaudi_launch.extensions.ray.engine import IN_RAY
from tests.support.cli import golden, reading
from tests.support.kubernetes_documents import (
    CASES,
    CHAT,
    HOSTILE,
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
from tests.support.places import TOP
from tests.support.speed import run_within

__all__ = ["_plain"]

PODS = TOP / "gaudi_launch/extensions/kubernetes/pods"


def test_stdout_is_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    text = rendered(capsys, *CHAT)
    assert run(["render", "kubernetes", *CHAT]) == 0
    out, err = capsys.readouterr()
    assert out == text
    assert "Note: " in err


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--replicas", "2"), "kubernetes.many_nodes"), (("--monitor",), "kubernetes.monitor")],
)
def test_what_a_cluster_must_have_is_said(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def ids(*more: str) -> list[str]:
        return [note["id"] for note in notes(capsys, *CHAT, *more)]

    assert said in ids(*words)
    assert said not in ids("--replicas", "2", "--storage-class", "nfs")


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
    text = rendered(capsys, *CHAT[:5], "vllm-gaudi", *CHAT[6:])
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
    assert found == {name: standalone(sources[name]) for name in found}


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
def test_kubectl_reads_the_files(
    case: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """kubectl's reader is not ours: what it makes of the files must be what we meant."""
    plain = tmp_path / "plain.yaml"
    plain.write_text(rendered(capsys, *CASES[case]), encoding="utf-8")
    (tmp_path / "kustomization.yaml").write_text("resources: [plain.yaml]\n", encoding="utf-8")
    done = subprocess.run(
        ["kubectl", "kustomize", tmp_path], capture_output=True, text=True, check=True, timeout=60
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
    ] == ["mine", "mine"]


def test_secrets_come_from_the_secret(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf-secret-too")
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
    assert ("gaudi-launch fp8 convert" in capsys.readouterr().err) == (not model.endswith("-G2"))


def test_a_home_folder_behind_with_is_the_users(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shell expands what stands in quotes."""
    monkeypatch.setenv("HOME", "/home/me")
    text = rendered(capsys, *CHAT, "--with", "-w ~/bge-m3 -n 1 --engine vllm-gaudi")
    assert "/home/me/bge-m3" in text and "~" not in text


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
        *(sys.executable, "-m", "gaudi_launch", "render", "kubernetes", *CHAT),
        *("--replicas", "1000"),
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


@settings(max_examples=60, deadline=None)
@given(name=HOSTILE, words=st.lists(HOSTILE, max_size=3), value=HOSTILE)
def test_no_text_of_the_user_breaks_out(name: str, words: list[str], value: str) -> None:
    """Whatever a model is called and an engine is told: names are DNS labels, texts come back as
    they were."""
    from gaudi_launch.core.planning.container import Container
    from gaudi_launch.extensions.kubernetes.chart_values import Name
    from gaudi_launch.extensions.kubernetes.documents import render
    from gaudi_launch.extensions.kubernetes.objects.needs import PodResources
    from gaudi_launch.extensions.kubernetes.options import KubernetesOptions
    from gaudi_launch.extensions.kubernetes.served import keys_of, release_name
    from gaudi_launch.extensions.kubernetes.target import ServedModel

    release, key = release_name("", name), keys_of([name])[0]
    container = Container(
        "image", tuple(words), {"TEXT": value}, entrypoint="python3", ports=((8000, 8000),)
    )
    served = ServedModel(
        key, Name(release), "hub/model", container, PodResources(1, 2, 1024, 8, 2048, 600, 20), 8
    )
    text = render([served], KubernetesOptions(release=release)).files[f"{release}.yaml"]
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


STACK = (*QWEN, *WITH, "--name", "stack", "--webui")
TWO = (*R1, "--kind", "leaderworkerset", "--nodes", "2")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def affinities(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What each Deployment's pods say of other pods."""
    deployments = [each for each in found if each["kind"] == "Deployment"]
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        .get("affinity", {})
        .get("podAffinity")
        for each in deployments
    }


def test_claims_of_one_node_keep_them_there(capsys: pytest.CaptureFixture[str]) -> None:
    """A node's own disk is often all that there is, and three pods on it share its claims."""
    found = objects(rendered(capsys, *STACK, "--access-mode", "ReadWriteOnce"))
    claims = [
        each["spec"]["accessModes"] for each in found if each["kind"] == "PersistentVolumeClaim"
    ]
    assert claims == [["ReadWriteOnce"]] * 2
    engines = {name: each for name, each in affinities(found).items() if each}
    assert len(engines) == 3 and all(each.keys() == {REQUIRED} for each in engines.values())


@pytest.mark.parametrize(
    "words",
    [
        (*STACK, "--replicas", "2", "--access-mode", "ReadWriteOnce"),
        (*STACK, "--access-mode", "ReadWriteOncePod"),
        (*TWO, "--access-mode", "ReadWriteOncePod"),
    ],
)
def test_not_where_pods_would_wait_for_ever(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["render", "kubernetes", *words]) == 2
    err = capsys.readouterr().err
    assert words[-1] in err
    assert "ReadWriteMany" in err


def leader_of(text: str) -> dict[str, Any]:
    group = main_of(text)["spec"]["leaderWorkerTemplate"]
    container: dict[str, Any] = group["leaderTemplate"]["spec"]["containers"][0]
    return container


def notes(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = reading(capsys, "render", "kubernetes", *words)["notes"]
    return found


def measured(folder: Path, ranks: int) -> Path:
    """A QUANT_CONFIG with the measurements of so many ranks."""
    files = folder / "measured"
    files.mkdir()
    for rank in range(ranks):
        (files / f"inc_output_hooks_maxabs_{rank}_{ranks}.npz").touch()
    config = {
        "mode": "QUANTIZE",
        "observer": "maxabs",
        "dump_stats_path": str(files / "inc_output"),
    }
    path = folder / "quant.json"
    path.write_text(
        json.dumps({**config, "blocklist": {"types": ["VLLMKVCache"]}}), encoding="utf-8"
    )
    return path


@pytest.mark.parametrize(
    ("blocklist", "kept"), [({"types": ["VLLMKVCache"]}, "auto"), ({}, "fp8_inc")]
)
def test_the_cache_is_as_the_file_says(
    blocklist: dict[str, list[str]], kept: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """README.md of the scripts: bf16kv goes with auto, fp8kv with fp8_inc; what a file is called
    tells nothing."""
    config = measured(tmp_path, 16)
    config.write_text(
        json.dumps({**json.loads(config.read_text()), "blocklist": blocklist}), encoding="utf-8"
    )
    leader = leader_of(rendered(capsys, *TWO, "-q", "--quant-config", str(config)))
    assert following(leader["args"], "--kv-cache-dtype") == kept


@pytest.mark.parametrize(("ranks", "said"), [(16, []), (8, ["16"])])
def test_measurements_are_those_of_all_nodes(
    ranks: int, said: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """They hold for one number of cards: sixteen, of which a pod has eight."""
    config = measured(tmp_path, ranks)
    found = notes(capsys, *TWO, "-q", "--quant-config", str(config))
    lacking = [note["message"] for note in found if note["id"] == "quant.measurements_missing"]
    assert [next(word for word in text.split() if word.isdigit()) for text in lacking] == said
    held = [note["message"] for note in found if note["id"] == "kubernetes.weights"]
    assert [str(config) in text for text in held].count(True) == 1
    assert [str(tmp_path / "measured") in text for text in held].count(True) == 1
    leader = leader_of(rendered(capsys, *TWO, "-q", "--quant-config", str(config)))
    env = {entry["name"]: entry.get("value") for entry in leader["env"]}
    assert (env["QUANT_CONFIG"], env["VLLM_MOE_N_SLICE"]) == (str(config), "1")


def test_measurements_for_one_node_are_not_taken_for_two(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The profile knows published ones for eight cards; for sixteen there are none."""
    assert "QUANT_CONFIG" in {entry["name"] for entry in engine_env(rendered(capsys, *R1, "-q"))}
    assert "QUANT_CONFIG" not in {
        entry["name"] for entry in leader_of(rendered(capsys, *TWO, "-q"))["env"]
    }
    assert [note["id"] for note in notes(capsys, *TWO, "-q")].count("quant.none") == 1


def engine_env(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = main_of(text)["spec"]["template"]["spec"]["containers"][0]["env"]
    return found


def test_published_measurements_come_as_a_folder_also_before_they_are_here(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file mounted alone would name measurements that are in no pod."""
    engine = main_of(rendered(capsys, *R1, "-q"))["spec"]["template"]["spec"]["containers"][0]
    config = Path(
        next(entry["value"] for entry in engine["env"] if entry["name"] == "QUANT_CONFIG")
    )
    folder = str(config.parent)
    assert {"name": "weights", "mountPath": folder, "subPath": config.parent.name} in engine[
        "volumeMounts"
    ]
    held = [
        note["message"] for note in notes(capsys, *R1, "-q") if note["id"] == "kubernetes.weights"
    ]
    assert [folder in text for text in held].count(True) == 1


def test_a_made_up_node_is_called_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Its pool of huge pages is the one that the guide and the doctor ask for; a snapshot's node
    is real."""
    assert "kubernetes.assumed_node" in [note["id"] for note in notes(capsys, *R1)]
    resources = main_of(rendered(capsys, *R1))["spec"]["template"]["spec"]["containers"][0][
        "resources"
    ]
    assert resources["limits"]["hugepages-2Mi"] == f"{15000 * 2}Mi"
    assert (
        run(["devices", "snapshot", "--machine", "simulated:hls2", str(tmp_path / "node.json")])
        == 0
    )
    capsys.readouterr()
    of_mine = [
        *(word for word in R1 if word not in ("--accelerator", "gaudi2")),
        "--machine",
        "node.json",
    ]
    assert "kubernetes.assumed_node" not in [note["id"] for note in notes(capsys, *of_mine)]


def test_weights_of_unknown_size_are_counted_as_what_the_cards_hold(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A model of 800 GB would outgrow a small guess: its claim, its memory, and above all its
    start-up budget."""
    words = (
        *("-w", "someone/Unheard-405B", "-n", "8", "--engine", "vllm-fork@1.22"),
        *("--accelerator", "gaudi2"),
    )
    found = objects(rendered(capsys, *words))
    claim = next(each for each in found if each["metadata"]["name"].endswith("-weights"))
    assert (
        claim["spec"]["resources"]["requests"]["storage"] == "950Gi"
    )  # 1.2 x 8 x 96 GiB, and what is beside it
    engine = main_of(rendered(capsys, *words))["spec"]["template"]["spec"]["containers"][0]
    # no more than a whole node's share, or no node would ever take it
    assert engine["resources"]["limits"]["memory"] == f"{int(1024 * 1024 * 0.9)}Mi"
    probe = engine["startupProbe"]
    # 800 GB at 100 MB/s from the hub, and 250 MB/s from the claim
    assert probe["failureThreshold"] * probe["periodSeconds"] > 800e9 / 0.1e9 + 800e9 / 0.25e9
    assert "kubernetes.no_weights" in [note["id"] for note in notes(capsys, *words)]
    assert "kubernetes.memory" not in [note["id"] for note in notes(capsys, *words)]
