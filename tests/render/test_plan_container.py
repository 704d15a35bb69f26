"""A plan as a container: image, words, variables, cards by index, mounts, patience."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.engines.releases import needed_release, release_of
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.host.simulated import make
from gaudi_launch.messages import message
from gaudi_launch.planning.container import Container, Mount
from gaudi_launch.planning.engine_args import NO_ARGS, split_argv
from gaudi_launch.planning.plan import EngineIdentity, Estimate
from gaudi_launch.render.docker import health_words, run_words
from gaudi_launch.render.plan_container import container_of, mounts_of, start_seconds
from tests.support.plans import odd, planned, with_env
from tests.support.refusals import failing


def test_the_guides_case() -> None:
    plan, host = planned(
        cache_dir="/data/warm", modules=(0, 1, 2, 3), python="/opt/venv/bin/python3.10"
    )
    made = container_of(
        with_env(plan, PT_HPU_RECIPE_CACHE_CONFIG="/data/warm/key,false,8192"), host
    )
    assert made.image == "gaudi-launch/vllm-fork:1.21-277a33cd9"
    assert (made.entrypoint, made.argv) == ("python3", plan.command.argv[1:])
    # hls2: index 6 is module 0, and so on
    assert (made.modules, made.indices) == ((0, 1, 2, 3), (6, 4, 2, 0))
    assert made.cpus == "0-39,80-119"
    assert made.mounts == (
        Mount("/data/warm/key", "/data/warm/key", fill=True),
        Mount("/models/Qwen2-72B-Instruct", "/models/Qwen2-72B-Instruct", read_only=True),
    )
    own = {"HABANA_VISIBLE_MODULES": "0,1,2,3"}
    expected = {k: v for k, v in plan.command.env.items() if k not in own}
    expected["PT_HPU_RECIPE_CACHE_CONFIG"] = "/data/warm/key,false,8192"
    assert made.env == {**expected, "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}
    assert (made.ports, made.secrets, made.url) == ((), (), "http://127.0.0.1:30001")


def test_measurements_come_with_the_file_that_names_them(tmp_path: Path) -> None:
    config, measured = tmp_path / "maxabs.json", tmp_path / "measured"
    config.write_text(
        json.dumps({"mode": "QUANTIZE", "dump_stats_path": str(measured / "inc_output")})
    )
    both = (Mount(str(config), str(config), True), Mount(str(measured), str(measured)))
    assert mounts_of({"QUANT_CONFIG": str(config)}, NO_ARGS) == both
    # a relative one is below the prefix; without one it is in the image
    config.write_text(json.dumps({"dump_stats_path": "measured/inc_output"}))
    prefix = {"INC_MEASUREMENT_DUMP_PATH_PREFIX": str(tmp_path)}
    assert mounts_of({"QUANT_CONFIG": str(config), **prefix}, NO_ARGS) == both
    for content in ('{"dump_stats_path": "measured/inc_output"}', "{}", "[]", "no JSON"):
        config.write_text(content)
        assert mounts_of({"QUANT_CONFIG": str(config)}, NO_ARGS) == both[:1]
    config.unlink()
    assert mounts_of({"QUANT_CONFIG": str(config)}, NO_ARGS) == both[:1]


def test_weights_from_a_hub_are_fetched_once() -> None:
    plan, host = planned(model="Qwen/Qwen2-72B-Instruct")
    made = container_of(plan, host, environment={"HOME": "/home/u"})
    assert made.env["HF_HOME"] == "/home/u/.cache/huggingface"
    assert Mount(made.env["HF_HOME"], made.env["HF_HOME"], fill=True) in made.mounts
    # the user's own word, a cluster, nobody's home
    own = container_of(plan, host, environment={"HOME": "/home/u", "HF_HUB_CACHE": "/data/hub"})
    assert ("HF_HOME" in own.env, own.mounts) == (
        False,
        (Mount("/data/hub", "/data/hub", fill=True),),
    )
    assert (
        "HF_HOME"
        not in container_of(plan, host, environment={"HOME": "/home/u"}, own_network=True).env
    )
    assert container_of(plan, host).mounts == ()


def test_a_network_of_its_own() -> None:
    plan, host = planned(host="10.20.30.40", port=8000)
    made = container_of(plan, host, own_network=True)
    assert made.ports == ((8000, 8000),)
    assert made.url == "http://127.0.0.1:8000"
    at = made.argv.index("--host")
    assert made.argv[at + 1] == "0.0.0.0"
    assert "10.20.30.40" not in made.argv
    assert not {"GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "VLLM_HOST_IP"} & made.env.keys()


@pytest.mark.parametrize(
    ("engine", "image"),
    [
        ("vllm-fork@1.22", "gaudi-launch/vllm-fork:1.22-17a7946f4"),
        ("deepseek_r1", "gaudi-launch/deepseek-r1:deepseek-r1-016b6bd20"),
        ("tgi", "ghcr.io/huggingface/text-generation-inference:3.3.5-gaudi"),
    ],
)
def test_images(engine: str, image: str) -> None:
    assert needed_release(engine).image == image


@pytest.mark.parametrize("target", ["docker", "compose", "quadlet"])
@pytest.mark.parametrize("image", [(), ("--image", "x/y:1")])
def test_an_engine_around_another_has_no_container(
    target: str, image: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [
        "render",
        target,
        "-w",
        "Qwen/Qwen3-8B",
        "-n",
        "1",
        "--engine",
        "ray-serve:vllm-fork@1.21",
    ]
    code = run([*line, "--machine", "simulated:hls2", "--to", str(tmp_path / "files"), *image])
    assert code == ExitCode.USAGE
    refused = capsys.readouterr().err
    assert "no image contains all three" in refused
    assert "render kubernetes --kind rayservice --engine vllm-fork@1.21" in refused
    assert not (tmp_path / "files").exists()


def test_no_image() -> None:
    plan, host = planned()
    nameless = replace(plan, engine=EngineIdentity("none", "0"))
    with failing("render.no_image", ExitCode.USAGE):
        container_of(nameless, host)
    assert container_of(nameless, host, image="mine:1").image == "mine:1"
    for bad in ("", "a b", "--rm", "Upper:1", "a:1;rm"):
        with failing("kubernetes.image", ExitCode.USAGE):
            container_of(nameless, host, image=bad)
    assert release_of("none") is None


@pytest.mark.parametrize("words", [("--hf-token", "abc"), ("--hf_token=abc",), ("--api-key=abc",)])
def test_secrets_are_never_written(words: tuple[str, ...]) -> None:
    with pytest.raises(LaunchError) as error:
        container_of(odd(("python3", *words), {}), make("hls2"))
    assert error.value.id == "render.secret"
    assert "abc" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "names"), [("Qwen/Qwen3-8B", ("HTTPS_PROXY", "no_proxy")), ("/models/q", ())]
)
def test_an_engine_that_fetches_its_model_gets_the_proxies_by_name(
    model: str, names: tuple[str, ...]
) -> None:
    plan, host = planned(model=model)
    environment = {"HTTPS_PROXY": "http://me:hunter2@p:1", "no_proxy": "localhost"}
    made = container_of(plan, host, environment=environment)
    assert made.secrets == names
    assert not any("hunter2" in word for word in run_words(made, "n"))
    assert container_of(plan, host, environment=environment, own_network=True).secrets == ()


def test_secrets_by_name() -> None:
    plan = odd(("python3", "-m", "x"), {"VLLM_API_KEY": "s3cret"})
    made = container_of(plan, make("hls2"), environment={"HF_TOKEN": "hf_x", "OTHER": "y"})
    assert made.secrets == ("VLLM_API_KEY", "HF_TOKEN")
    words = run_words(made, "n")
    assert {"HF_TOKEN", "VLLM_API_KEY"} <= set(words)
    assert not any("s3cret" in word or "hf_x" in word for word in words)


def test_mounts() -> None:
    snapshot = "/h/hub/models--Qwen--Q/snapshots/0123"
    words = (
        "--model",
        snapshot,
        "--chat_template=/t/chat.jinja",
        "--host",
        "127.0.0.1",
        "--download-dir",
        "/h",
    )
    env = {
        "QUANT_CONFIG": "/q/c.json",
        "HF_HOME": "relative",
        "PT_HPU_RECIPE_CACHE_CONFIG": "/w,false,1",
    }
    assert mounts_of(env, split_argv(words)) == (
        Mount("/h", "/h", fill=True),
        Mount("/q/c.json", "/q/c.json", True),
        Mount("/t/chat.jinja", "/t/chat.jinja", True),
        Mount("/w", "/w", fill=True),
    )
    # a folder that is written to inside one that is only read needs a mount of its own
    assert mounts_of(
        {"PT_HPU_RECIPE_CACHE_CONFIG": "/m/w,false,1"}, split_argv(("--model", "/m"))
    ) == (
        Mount("/m", "/m", True),
        Mount("/m/w", "/m/w", fill=True),
    )
    assert mounts_of({}, split_argv(("--model", snapshot))) == (
        Mount("/h/hub/models--Qwen--Q", "/h/hub/models--Qwen--Q", True),
    )
    assert mounts_of({}, split_argv(("--model", "Qwen/Q"))) == ()


@pytest.mark.parametrize(
    ("parameters", "env", "cache", "high", "seconds"),
    [
        (72e9, {}, "", 300.2, 1800),
        (72e9, {}, "", 1000.2, 2001),
        (671e9, {}, "", 300, 7200),
        (72e9, {"QUANT_CONFIG": "/q"}, "miss", 300, 7200),
        (72e9, {"QUANT_CONFIG": "/q"}, "hit", 300, 1800),
        (671e9, {}, "hit", 5000, 10000),
        (None, {}, "", None, 1800),
    ],
)
def test_patience(
    parameters: float | None, env: dict[str, str], cache: str, high: float | None, seconds: int
) -> None:
    plan = replace(
        odd(("python3",), env),
        model={"parameters": parameters},
        cache={"state": cache},
        estimate=None if high is None else Estimate(1, high, message("x")),
    )
    assert start_seconds(plan) == seconds


def test_dockers_words() -> None:
    container = Container(
        "i:1", ("-m", "x"), entrypoint="python3", start_seconds=1800, url="http://127.0.0.1:1"
    )
    health = (
        "python3 -c 'import sys, urllib.request as r; "
        "r.build_opener(r.ProxyHandler({})).open(sys.argv[1], timeout=5).close()' "
        "http://127.0.0.1:1/health"
    )
    assert run_words(container, "small") == (
        *(
            "docker",
            "run",
            "--rm",
            "--init",
            "--name",
            "small",
            "--network=host",
            "--stop-timeout=30",
        ),
        *(f"--health-cmd={health}", "--health-start-period=1800s", "--health-retries=3"),
        *(
            "--health-interval=10s",
            "--health-timeout=10s",
            "--entrypoint",
            "python3",
            "i:1",
            "-m",
            "x",
        ),
    )


def test_the_health_command_tells_who_answers() -> None:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 503)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        container = Container("i", (), url=f"http://127.0.0.1:{server.server_port}")
        environment = {**os.environ, "http_proxy": "http://127.0.0.1:9"}

        def status(container: Container) -> int:
            words = (sys.executable, *health_words(container)[1:])
            return subprocess.run(
                words, capture_output=True, check=False, env=environment
            ).returncode

        assert status(container) == 0
        assert status(replace(container, health="/sick")) != 0
        server.shutdown()
    assert status(container) != 0
    assert health_words(Container("i", ())) == ()


def test_variables_of_the_runtime_and_of_this_machine_stay_outside() -> None:
    plan, host = planned()
    runtime = ("HABANA_VISIBLE_DEVICES", "HABANA_VISIBLE_MODULES", "HLS_MODULE_ID")
    network = ("GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "VLLM_HOST_IP")
    given = with_env(plan, **dict.fromkeys((*runtime, *network), "x"))
    shared = container_of(given, host, image="x:1").env
    assert [name for name in (*runtime, *network) if name in shared] == [*network]
    own = container_of(given, host, image="x:1", own_network=True).env
    assert [name for name in (*runtime, *network) if name in own] == []


@pytest.mark.parametrize(
    ("name", "writes"),
    [
        ("VLLM_TORCH_PROFILER_DIR", True),
        ("HF_HOME", True),
        ("HF_HUB_CACHE", True),
        ("HUGGINGFACE_HUB_CACHE", True),
        ("MODELSCOPE_CACHE", True),
        ("VLLM_CACHE_ROOT", True),
        ("QUANT_CONFIG", False),
        ("VLLM_BUCKETING_FROM_FILE", False),
    ],
)
def test_folders_that_variables_name_are_mounted(name: str, writes: bool) -> None:
    mount = Mount("/far/x", "/far/x", not writes, fill=writes)
    assert mounts_of({name: "/far/x"}, NO_ARGS) == (mount,)
    assert mounts_of({name: "near/x"}, NO_ARGS) == ()


@pytest.mark.parametrize(
    ("option", "writes"),
    [
        *((name, False) for name in (
            "--model", "--tokenizer", "--chat-template", "--speculative-model",
            "--tool-parser-plugin", "--config", "--ssl-keyfile", "--ssl-certfile",
            "--ssl-ca-certs",
        )),
        ("--download-dir", True),
    ],
)  # fmt: skip
def test_files_that_options_name_are_mounted(option: str, writes: bool) -> None:
    mount = Mount("/far/x", "/far/x", not writes, fill=writes)
    assert mounts_of({}, split_argv(("python3", "-m", "e", option, "/far/x"))) == (mount,)
