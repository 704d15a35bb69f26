"""``render kubernetes``: each shape against its golden file, and against every checker that is not ours."""

from __future__ import annotations

import functools
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.cli.app import run
from gaudi_launch.engines.ray_serve import IN_RAY
from gaudi_launch.messages import set_language
from gaudi_launch.render import pods
from gaudi_launch.render.kubernetes_check import problems, schemas
from gaudi_launch.render.kubernetes_needs import JOIN_SECONDS
from gaudi_launch.render.kubernetes_pod import HUB_HOME
from tests.cli.test_devices import golden
from tests.speed import run_within

PODS = Path(pods.__file__).parent
QWEN = ("-w", "/models/Qwen2-72B-Instruct", "-n", "4", "--engine", "vllm-fork@1.22", "--accelerator", "gaudi2")
CHAT = ("-w", "Qwen/Qwen3-8B", "-n", "1", "--engine", "vllm-fork@1.22", "--accelerator", "gaudi3")
R1 = (
    "-w",
    "/models/DeepSeek-R1-G2",
    "-n",
    "8",
    "--engine",
    "deepseek_r1",
    "--accelerator",
    "gaudi2",
    "--trust-remote-code",
)
LLAMA = ("-w", "NousResearch/Llama-2-13b-chat-hf", "--accelerator", "inf2.48xlarge")
WITH = (
    "--with", "-w BAAI/bge-m3 -n 1 --engine vllm-gaudi -l 8192",
    "--with", "-w BAAI/bge-reranker-v2-m3 -n 1 --engine vllm-gaudi -l 8192",
)  # fmt: skip
TGI = ("-w", "meta-llama/Llama-3.1-8B-Instruct", "--engine", "tgi", "--accelerator", "gaudi2")
CASES = {
    "deployment-gaudi2": QWEN,
    "deployment-gaudi2e": ("-w", "/models/QwQ-32B", "-n", "8", "--engine", "vllm-fork@1.21",
                           "--accelerator", "gaudi2e",
                           "--no-recipes", "--runtime-class", "habana", "--weights-claim", "weights"),
    "deployment-gaudi3-hpa": (*CHAT, "--autoscale", "hpa", "--replicas", "2..4", "--monitor",
                              "--secret", "hub:HF_TOKEN,VLLM_API_KEY", "--namespace", "chat", "--webui",
                              "--ingress-host", "chat.example.com", "--ingress-class", "nginx"),
    "deployment-gaudi3-keda": (*CHAT, "--autoscale", "keda", "--replicas", "1..8", "--ongoing", "24",
                               "--storage-class", "nfs",
                               "--prometheus", "http://prometheus-operated.monitoring:9090",
                               "--node-selector", "node.kubernetes.io/instance-type=gaudi3",
                               "--tolerate", "example.com/ai"),
    "three-models-gaudi2": (*QWEN, *WITH, "--name", "stack"),
    "leaderworkerset-gaudi2": (*R1, "--kind", "leaderworkerset", "--nodes", "2"),
    "deployment-gaudi2-tgi": (*TGI, "-n", "1", "--secret", "hub"),
    "rayservice-gaudi3": (*CHAT, "--kind", "rayservice", "--image", "registry/ray-vllm:1", "--replicas", "1..4"),
    "rayservice-inf2.48xlarge": ("-w", "NousResearch/Llama-2-13b-chat-hf", "--accelerator", "inf2.48xlarge",
                                 "--name", "llama2", "--namespace", "llama2", "--webui", "--ingress-host",
                                 "chat.example.com", "--ingress-class", "nginx"),
    "leaderworkerset-gaudi2-pp": (*R1, "--kind", "leaderworkerset", "--nodes", "2", "--layout", "pp",
                                  "--interface", "net1", "--name", "r1"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "VLLM_API_KEY", "MODELSCOPE_API_TOKEN", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in [name for name in os.environ if name.startswith(("HABANA_", "PT_HPU_"))]:
        monkeypatch.delenv(name)
    for kind in ("STATE", "CACHE", "DATA", "CONFIG"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.setenv("GAUDI_LAUNCH_LANG", "en")
    monkeypatch.chdir(tmp_path)
    yield
    set_language(None)


def rendered(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The first file of what was rendered."""
    code = run(["render", "kubernetes", "--json", *words])
    out, err = capsys.readouterr()
    assert code == 0, out + err
    document = json.loads(out)
    assert document["schema"] == 1
    return str(document["files"][0]["text"])


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
    """The bucket list of today's plugin is a file: a ConfigMap here, and the engine is told its place."""
    text = rendered(capsys, "-w", "Qwen/Qwen3-8B", "-n", "1", "--engine", "vllm-gaudi", "--accelerator", "gaudi3")
    maps = {found["metadata"]["name"]: found for found in objects(text) if found["kind"] == "ConfigMap"}
    pod = main_of(text)["spec"]["template"]["spec"]
    engine = pod["containers"][0]
    env = {entry["name"]: entry.get("value") for entry in engine["env"]}
    folder, _, name = env["VLLM_BUCKETING_FROM_FILE"].rpartition("/")
    (mount,) = [mount for mount in engine["volumeMounts"] if mount["mountPath"] == folder]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == mount["name"]]
    assert maps[volume["configMap"]["name"]]["data"][name]


class _Reader(yaml.SafeLoader):
    """Reads a lone ``=`` as the text that it is to Helm and to Kubernetes; PyYAML knows no value for it
    (yaml/pyyaml#89)."""


_Reader.add_constructor("tag:yaml.org,2002:value", lambda _, node: str(node.value))


def objects(text: str) -> list[dict[str, Any]]:
    return [found for found in yaml.load_all(text, Loader=_Reader) if found]


def main_of(text: str) -> dict[str, Any]:
    kinds = ("Deployment", "LeaderWorkerSet", "RayService")
    return next(found for found in objects(text) if found["kind"] in kinds)


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    golden(f"kubernetes/{case}.yaml", steady(rendered(capsys, *CASES[case])))


def steady(text: str) -> str:
    """Without what other rooms decide: the texts of programs, their sums, and the key of a recipe cache."""
    sum_of = r"^( +checksum/(?:scripts|application|page)): \W?[0-9a-f]{64}\W?\n"
    text = re.sub(sum_of, r"\1: its-sum\n", text, flags=re.MULTILINE)
    text = re.sub(r'subPath: "?[0-9a-f]{16}"?\n', "subPath: key-of-the-recipes\n", text)
    return re.sub(r"^(  [\w.]+\.py: \|\n)(?:    .*\n|\n)+", r"\1    the program's text\n", text, flags=re.MULTILINE)


def test_programs_come_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    found: dict[str, str] = {}
    for case in ("leaderworkerset-gaudi2", "rayservice-gaudi3", "deployment-gaudi3-hpa"):
        for each in objects(rendered(capsys, *CASES[case])):
            found |= each.get("data", {})
    assert {"keep_recipes.py", "multi_node.py", "chat_page.py", "gaudi_ray_app.py"} <= found.keys()
    sources = {path.name: path for folder in (PODS, IN_RAY) for path in folder.glob("*.py")}
    assert found == {name: sources[name].read_text(encoding="utf-8") for name in found}


def goldens() -> list[Path]:
    folder = Path(__file__).parents[1] / "data" / "golden" / "kubernetes"
    return [folder / f"{case}.yaml" for case in CASES]


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
            theirs = any(error.validator == "additionalProperties" for error in other.iter_errors(broken))
            assert ours == theirs
            refused += ours
    assert refused > 50


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
def test_kubectl_reads_the_kustomization(case: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """kubectl's reader is not ours: what it makes of the files must be what we meant."""
    folder = tmp_path / "out"
    rendered(capsys, *CASES[case], "--kustomize", "--to", str(folder))
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True, timeout=60)
    plain = next(path for path in folder.glob("*.yaml") if path.name.startswith(("qwen", "deepseek")))

    def key(found: dict[str, Any]) -> tuple[str, str]:
        return found["kind"], found["metadata"]["name"]

    assert sorted(objects(done.stdout), key=key) == sorted(objects(plain.read_text()), key=key)


def test_a_long_warm_up_is_never_killed(capsys: pytest.CaptureFixture[str]) -> None:
    """The startup probe allows what the estimate says twice, and weights on top; a rollout is given longer."""
    spec = main_of(rendered(capsys, *QWEN))["spec"]
    engine = spec["template"]["spec"]["containers"][0]
    budget = engine["startupProbe"]["failureThreshold"] * engine["startupProbe"]["periodSeconds"]
    assert budget >= 1800
    assert spec["progressDeadlineSeconds"] > budget
    leader = main_of(rendered(capsys, *CASES["leaderworkerset-gaudi2"]))["spec"]["leaderWorkerTemplate"][
        "leaderTemplate"
    ]
    probe = leader["spec"]["containers"][0]["startupProbe"]
    # the first pod waits for the others before it starts the engine
    assert probe["failureThreshold"] * probe["periodSeconds"] >= 7200 + JOIN_SECONDS


def test_a_group_waits_as_long_as_its_probe_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MULTI_NODE_TIMEOUT", raising=False)
    assert runpy.run_path(str(PODS / "multi_node.py"), run_name="pod")["SECONDS"] == JOIN_SECONDS


def test_nothing_of_the_host_comes_along(capsys: pytest.CaptureFixture[str]) -> None:
    """The device plugin gives out cards, the cluster addresses: no word of ours may contradict them."""
    text = rendered(capsys, *QWEN)
    for word in ("HABANA_VISIBLE", "ens8f0", "10.20.30.40", "127.0.0.1:30001", "hostIPC", "privileged", "hostPath"):
        assert word not in text


def test_secrets_are_only_referred_to(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_never_written")
    text = rendered(capsys, *CHAT)
    assert "hf_never_written" not in text
    env = {entry["name"]: entry for entry in main_of(text)["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["HF_TOKEN"]["valueFrom"] == {"secretKeyRef": {"name": "qwen3-8b-secrets", "key": "HF_TOKEN"}}


def test_a_secret_of_the_user_beats_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """A variable has one value: two of a name would be refused by a server-side apply."""
    text = rendered(capsys, *CHAT, "--secret", "mine:HF_HOME,PT_HPU_LAZY_MODE")
    env = main_of(text)["spec"]["template"]["spec"]["containers"][0]["env"]
    names = [entry["name"] for entry in env]
    assert sorted(names) == sorted(set(names))
    assert [
        e["valueFrom"]["secretKeyRef"]["name"] for e in env if e["name"] in ("HF_HOME", "PT_HPU_LAZY_MODE")
    ] == [
        "mine",
        "mine",
    ]


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
    """TP 16 and EP 16 on 2 x 8, as the branch's own scripts have it; PP 2 keeps TP 8 inside a node."""
    group = main_of(rendered(capsys, *CASES["leaderworkerset-gaudi2"]))["spec"]["leaderWorkerTemplate"]
    leader = group["leaderTemplate"]["spec"]["containers"][0]
    assert group["size"] == 2
    assert following(leader["args"], "--tensor-parallel-size") == "16"
    assert {e["name"]: e.get("value") for e in leader["env"]}["VLLM_EP_SIZE"] == "16"
    pp = main_of(rendered(capsys, *CASES["leaderworkerset-gaudi2-pp"]))["spec"]["leaderWorkerTemplate"]
    words = pp["leaderTemplate"]["spec"]["containers"][0]["args"]
    assert following(words, "--tensor-parallel-size") == "8"
    assert following(words, "--pipeline-parallel-size") == "2"


def following(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_fetched_weights_are_kept_whatever_else_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "measured").mkdir()
    quant = tmp_path / "quant.json"
    quant.write_text(json.dumps({"mode": "QUANTIZE", "dump_stats_path": str(tmp_path / "measured" / "inc_output")}))
    words = ("-d", "fp8", "--quant-config", str(quant))
    pod = main_of(rendered(capsys, *CHAT, *words))["spec"]["template"]["spec"]
    engine = next(each for each in pod["containers"] if each["name"] == "engine")
    mounts = {mount["mountPath"] for mount in engine["volumeMounts"] if mount["name"] == "weights"}
    assert mounts == {HUB_HOME, str(quant), str(tmp_path / "measured")}
    assert {"name": "HF_HOME", "value": HUB_HOME} in engine["env"]


def test_a_thousand_replicas_in_two_seconds() -> None:
    words = [sys.executable, "-m", "gaudi_launch", "render", "kubernetes", *CHAT, "--replicas", "1000"]
    assert main_of(run_within(2, words))["spec"]["replicas"] == 1000


def test_a_thousand_replicas_are_one_number(capsys: pytest.CaptureFixture[str]) -> None:
    """Their rendering is that of two, so that it takes no longer."""
    two, thousand = (rendered(capsys, *CHAT, "--replicas", count) for count in ("2", "1000"))
    spec = main_of(thousand)["spec"]
    # one replica after the other would take an update of them weeks
    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]["maxUnavailable"]) == (1000, 100)
    number = re.compile(r"^( *(replicas|maxUnavailable): )\d+$", re.MULTILINE)
    assert number.sub(r"\1N", thousand) == number.sub(r"\1N", two)


def test_files_of_others_are_not_replaced(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
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


HOSTILE = st.text(
    alphabet=st.one_of(
        st.sampled_from("{}$()'\"`:#&*!|>%@\\\n\t -?,[]=~^"), st.characters(exclude_categories=["Cs", "Cc"])
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(name=HOSTILE, words=st.lists(HOSTILE, max_size=3), value=HOSTILE)
def test_no_text_of_the_user_breaks_out(name: str, words: list[str], value: str) -> None:
    """Whatever a model is called and an engine is told: names are DNS labels, texts come back as they were."""
    from gaudi_launch.planning.container import Container
    from gaudi_launch.render.knobs import Name
    from gaudi_launch.render.kubernetes import render
    from gaudi_launch.render.kubernetes_needs import Needs
    from gaudi_launch.render.kubernetes_records import Cluster, Served
    from gaudi_launch.render.kubernetes_served import keys_of, release_name

    release, key = release_name("", name), keys_of([name])[0]
    container = Container("image", tuple(words), {"TEXT": value}, entrypoint="python3", ports=((8000, 8000),))
    served = Served(key, Name(release), "hub/model", container, Needs(1, 2, 1024, 8, 2048, 600, 20), 8)
    text = render([served], Cluster(release)).files[f"{release}.yaml"]
    engine = main_of(text)["spec"]["template"]["spec"]["containers"][0]
    assert [expanded(word) for word in engine["args"]] == words
    assert expanded({e["name"]: e["value"] for e in engine["env"]}["TEXT"]) == value


def expanded(text: str) -> str:
    """What Kubernetes makes of a text when no variable is known (third_party/forked/golang/expansion/expand.go)."""
    out, at = "", 0
    while at < len(text):
        if text[at] == "$" and at + 1 < len(text):
            if text[at + 1] == "$":
                out, at = out + "$", at + 2
                continue
            assert text[at + 1] != "(", "a reference was left in"
        out, at = out + text[at], at + 1
    return out
