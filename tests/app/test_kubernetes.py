"""render kubernetes: options inside a cluster, what is refused, containers and needs of pods."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gaudi_launch.app import kubernetes as cases
from gaudi_launch.app import model_needs
from gaudi_launch.app.kubernetes import NODES, KubernetesForm, PlannedModel, at_home, pages_of
from gaudi_launch.app.kubernetes_options import KubernetesOptions
from gaudi_launch.app.options import LaunchOptions
from gaudi_launch.app.prepare import Prepared
from gaudi_launch.engines.registry import find
from gaudi_launch.engines.releases import release_of
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.accelerators import instances
from gaudi_launch.host.host_config import load_config
from gaudi_launch.host.simulated import make
from gaudi_launch.kubernetes.objects import needs as pod_needs
from gaudi_launch.messages import message
from gaudi_launch.models.model import Model
from gaudi_launch.planning.container import Container
from gaudi_launch.planning.request import Request
from gaudi_launch.profiles import known_model
from tests.support.plans import planned
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")

OPTIONS = LaunchOptions(model="org/m", engine="vllm-fork@1.21", cards="2")
HLS2 = "simulated:hls2"


def form(**changes: Any) -> KubernetesForm:
    return KubernetesForm(lambda value: LaunchOptions(model=value), **changes)


def one(cards: int = 4, image: str = "image", **model: Any) -> PlannedModel:
    """Return a planned model on a simulated node."""
    plan, host = planned("vllm-fork@1.21", cards=cards)
    return PlannedModel(
        plan,
        Container(image, (), {"A": "b"}, start_seconds=77),
        host,
        load_config(HLS2),
        Model("/m", "m", **model),
        {},
    )


def cluster(kind: str = "deployment", **more: Any) -> Any:
    known = {"interface": "eth9", "nodes": 1, "release": "chat", "replicas": 1, "max_replicas": 1}
    return SimpleNamespace(kind=kind, **{**known, **more})


# --- options -------------------------------------------------------------------------------------


def test_hugepages_are_pages_of_two_mib() -> None:
    assert (pages_of(""), pages_of("0"), pages_of("9800")) == (None, 0, 9800)
    with refused("kubernetes.hugepages_odd", ExitCode.USAGE, found=9801, below=9800, above=9802):
        pages_of("9801")


def test_options_apply_inside_the_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = at_home(OPTIONS, None, "")
    assert plain == replace(OPTIONS, port="8000")
    assert at_home(replace(OPTIONS, port="9"), HLS2, "") == replace(OPTIONS, port="9", machine=HLS2)
    own = replace(OPTIONS, machine="snapshot.json")
    assert at_home(own, HLS2, "").machine == "snapshot.json"
    for product, machine in NODES.items():
        assert at_home(OPTIONS, None, product).machine == f"simulated:{machine}"
    known = ", ".join([*NODES, *instances()])
    values = {"option": "--accelerator", "found": "gaudi9", "known": known}
    with refused("kubernetes.one_of", ExitCode.USAGE, **values):
        at_home(OPTIONS, None, "gaudi9")
    with refused("kubernetes.not_with", ExitCode.USAGE, one="--accelerator", other="--machine"):
        at_home(own, None, "gaudi2")
    monkeypatch.chdir(tmp_path)
    folders = {"./small": str(tmp_path / "small"), "org/m": "org/m", "demo": "demo", "": ""}
    for given, inside in folders.items():
        assert at_home(replace(OPTIONS, model=given), None, "").model == inside
    assert at_home(LaunchOptions(), None, "").model is None


def test_an_instance_takes_no_options_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(iter(instances()))
    wanted = KubernetesOptions(accelerator=name, others=("x",), hugepages="2", no_recipes=True)
    options = LaunchOptions(model="org/m", cards="2", port="1", extra=("--seed", "1"))
    with pytest.raises(LaunchError) as raised:
        cases.neuron(options, wanted, cluster())
    values = raised.value.text.values
    assert (raised.value.id, raised.value.exit_code, values["other"]) == (
        "kubernetes.not_with",
        ExitCode.USAGE,
        f"--accelerator {name}",
    )
    assert str(values["one"]).split(", ")[-4:] == ["--with", "--hugepages", "--no-recipes", "--"]
    assert "-n" not in str(values["one"]).split(", ")
    made: list[Any] = []
    monkeypatch.setattr(
        "gaudi_launch.kubernetes.objects.inferentia.neuron_served",
        lambda *words: made.append(words),
    )
    plain = replace(wanted, others=(), hugepages="", no_recipes=False, image="i")
    cases.neuron(LaunchOptions(model="org/m", cards="2"), plain, cluster(max_replicas=3))
    [(model, instance, release, cards, image, replicas)] = made
    assert (model.name, instance, release, cards, image, replicas) == (
        "m",
        instances()[name],
        "chat",
        2,
        "i",
        (1, 3),
    )
    with refused("plan.no_model", ExitCode.USAGE):
        cases.render_kubernetes(LaunchOptions(), plain, form())


# --- refusals ------------------------------------------------------------------------------------


def prepared(engine: str) -> Prepared:
    model = Model("org/m", "m")
    return Prepared(
        Request("org/m", cards=8, engine=engine), make("hls2"), model, find(engine), None
    )


def test_engines_that_cannot_be_of_a_kind_are_refused() -> None:
    ray = find("ray-serve")
    assert ray.inner is not None
    with refused("kubernetes.ray_inside", ExitCode.USAGE, inner=ray.inner.identity.exact):
        cases._refuse_engine(prepared("ray-serve"), "deployment")
    for kind in ("leaderworkerset", "rayservice"):
        words = {"one": "--engine tgi", "other": f"--kind {kind}"}
        with refused("kubernetes.not_with", ExitCode.USAGE, **words):
            cases._refuse_engine(prepared("tgi@3.3.5"), kind)
    cases._refuse_engine(prepared("tgi@3.3.5"), "deployment")
    cases._refuse_engine(prepared("vllm-fork@1.21"), "rayservice")


def test_several_models_share_a_node_as_deployments_only() -> None:
    with refused("kubernetes.not_with", ExitCode.USAGE, one="--with", other="--kind rayservice"):
        cases._refuse([one(), one()], cluster("rayservice"))
    with refused("kubernetes.cards", ExitCode.MACHINE, wanted=12, there=8):
        cases._refuse([one(), one(8)], cluster())
    cases._refuse([one(), one()], cluster())
    cases._refuse([one(8)], cluster("rayservice"))


def test_an_engine_over_nodes_takes_all_their_cards() -> None:
    options = KubernetesOptions(kind="leaderworkerset")
    few = prepared("vllm-fork@1.21")
    few = replace(few, request=replace(few.request, cards=4))
    with refused("kubernetes.whole_nodes", ExitCode.USAGE, found=4, there=8):
        cases._over_nodes(few, options)


@pytest.mark.parametrize(("heads", "id"), [(8, "kubernetes.heads"), (12, "kubernetes.heads_node")])
def test_heads_that_cannot_be_divided_are_named(
    heads: int, id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def choose(*words: Any) -> None:
        raise LaunchError("cluster.heads", ExitCode.MODEL, heads=heads, size=16)

    monkeypatch.setattr("gaudi_launch.cluster.layout.choose", choose)
    base = prepared("vllm-fork@1.21")
    base = replace(base, model=Model("org/m", "m", heads=heads))
    with refused(id, ExitCode.MODEL, heads=heads, size=16, cards=8):
        cases._over_nodes(base, KubernetesOptions(kind="leaderworkerset"))


def test_measurements_are_those_of_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    found = SimpleNamespace(request_for=lambda request: replace(request, quant_config="/q"))

    def look(request: Request, *words: Any) -> Any:
        asked.append((request.cards, request.modules))
        return found

    monkeypatch.setattr(model_needs, "look", look)
    base = prepared("vllm-fork@1.21")
    made: Any = cases._measured_for(base, 16)
    assert asked == [(16, None)]
    assert (made.request.quant_config, made.request.cards, made.provision) == ("/q", 8, found)


# --- pods ----------------------------------------------------------------------------------------


def test_each_kind_has_its_container() -> None:
    each = one()
    assert cases._container(each, cluster()) == each.container
    ray = cases._container(each, cluster("rayservice"))
    assert (ray.ports, ray.health) == (((8000, 8000),), "/-/healthz")
    workers = cases._container(each, cluster("leaderworkerset"))
    assert workers.env == {"A": "b", "GLOO_SOCKET_IFNAME": "eth9", "HCCL_SOCKET_IFNAME": "eth9"}


def test_a_pods_needs_follow_from_the_plan_and_are_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    own = message("services.drain", found="own")

    def needs_of(cards: int, host: Any, config: Any, demand: Any) -> Any:
        asked.append((cards, demand))
        return replace(EMPTY, notes=(own,))

    monkeypatch.setattr(pod_needs, "needs_of", needs_of)
    each = one(4, weight_bytes=5)
    found = cases._needs(each, cluster(nodes=2), 9800)
    demand = pod_needs.PodDemand(
        weights=5, start_seconds=77, hugepages_mib=9800, nodes=2, fetched=False
    )
    assert asked == [(4, demand)]
    memory = (each.host.memory_total_mib or 0) // 1024
    assumed = message("kubernetes.assumed_node", node=HLS2, memory=memory)
    assert found.notes == (*each.plan.warnings, assumed, own)
    # a hub ID is fetched by the pod
    hub = replace(each, plan=replace(each.plan, model={**each.plan.model, "path": "org/m"}))
    cases._needs(hub, cluster(), None)
    assert asked[-1][1].fetched
    release = release_of(each.plan.engine.label, each.plan.engine.version)
    assert release is not None
    for image in (release.built_image, release.scale_out_image):
        built = cases._needs(one(8, image), cluster(), None)
        assert built.notes[-1] == message("kubernetes.build", image=image)
    # cards of two link groups may be given to a pod that has not all of them
    grouped = make("gaudi2e-8")
    assert len(grouped.groups) == 2
    two = cases._needs(replace(each, host=grouped), cluster(), None)
    assert two.notes[-1] == message("kubernetes.groups", cards=4)
    real = cases._needs(replace(each, host=replace(each.host, origin="live")), cluster(), None)
    assert real.notes == (*each.plan.warnings, own)


EMPTY: Any = pod_needs.needs_of(1, make("hls2"), load_config(HLS2), pod_needs.PodDemand(None, 1))


def test_the_size_of_the_weights_is_that_of_the_files_else_of_the_type() -> None:
    assert one(weight_bytes=9).weights == 9
    sized: dict[str, Any] = {"parameters": 1000, "layers": 1, "hidden_size": 8, "heads": 1}
    assert one(**sized).weights == 2000
    assert one(**sized, dtype="float32").weights == 4000
    assert one(**sized, dtype="float32", quantization="fp8").weights == 1000
    assert one().cards == 4


def test_names_of_a_model_in_a_cluster_are_those_that_the_nodes_have() -> None:
    plan, host = planned("vllm-fork@1.21")
    base = Prepared(Request("/here/m"), host, Model("/here/m", "m"), find("vllm-fork@1.21"), None)
    converts: Any = SimpleNamespace(facts=SimpleNamespace(converts=True))
    plan = replace(plan, command=replace(plan.command, argv=("serve", "/here/m", "--x")))

    def shown(found: Any) -> tuple[Any, Any, int]:
        return found.model["path"], found.command.argv[1], len(found.warnings) - len(plan.warnings)

    assert cases._in_cluster(plan, base, "/here/m") is plan
    # a hub ID also where this machine has a copy
    assert shown(cases._in_cluster(plan, base, "org/m")) == ("org/m", "org/m", 0)
    converted = replace(base, provision=converts)
    made = cases._in_cluster(plan, converted, "org/m")
    assert shown(made) == ("/models/m-G2", "/models/m-G2", 1)
    note = message("kubernetes.convert", model="org/m", path="/models/m-G2")
    assert made.warnings[-1] == note
    assert shown(cases._in_cluster(plan, converted, "/shared/m")) == (
        "/shared/m-G2",
        "/shared/m-G2",
        1,
    )
    done = cases._in_cluster(plan, converted, "/shared/m-G2")
    assert shown(done) == ("/shared/m-G2", "/shared/m-G2", 0)


def test_an_engine_over_nodes_is_planned_with_what_several_nodes_change() -> None:
    plain = Prepared(
        Request(
            "Qwen/Qwen2-72B-Instruct",
            engine="vllm-fork@1.22",
            max_num_seqs=8,
            environment={"VLLM_PROMPT_SEQ_BUCKET_MAX": "2048"},
        ),
        make("hls2"),
        known_model("Qwen/Qwen2-72B-Instruct", must_exist=False),
        find("vllm-fork@1.22"),
        None,
    )
    note = LaunchError("services.drain", ExitCode.MODEL, found=1)
    provided: Any = SimpleNamespace(notes=(note.text,))
    options = KubernetesOptions(kind="leaderworkerset", nodes="2", layout="pp")
    made = cases._over_nodes(replace(plain, provision=provided), options)
    settings = {each.name: (each.value, each.source) for each in made.settings}
    assert (
        settings["--tensor-parallel-size"][0],
        settings["--pipeline-parallel-size"][0],
    ) == ("8", "2")
    argv = made.command.argv
    assert argv[argv.index("--pipeline-parallel-size") + 1] == "2"
    # what the user gave stays
    assert settings["--max-num-seqs"] == ("8", "flag")
    assert settings["VLLM_PROMPT_SEQ_BUCKET_MAX"] == ("2048", "environment")
    assert made.warnings[-1] == note.text
    wide = cases._over_nodes(plain, replace(options, layout="tp"))
    assert {each.name: each.value for each in wide.settings}["--tensor-parallel-size"] == "16"
    assert note.text not in wide.warnings
