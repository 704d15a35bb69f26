"""A plan as a container: image, words, variables, cards by index, mounts, patience."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.errors import ExitCode
from gaudi_launch.core.engines.releases import release_of
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.planning.container import Container, Mount
from gaudi_launch.core.planning.engine_args import NO_ARGS, split_argv
from gaudi_launch.core.planning.plan import EngineIdentity
from gaudi_launch.core.render.docker import health_words, run_words
from gaudi_launch.core.render.plan_container import container_of, mounts_of
from tests.support.http_answers import server
from tests.support.plans import odd, planned
from tests.support.refusals import failing, raising


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
    with raising("render.secret") as error:
        container_of(odd(("python3", *words), {}), make("hls2"))
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
    ) == (Mount("/m", "/m", True), Mount("/m/w", "/m/w", fill=True))
    assert mounts_of({}, split_argv(("--model", snapshot))) == (
        Mount("/h/hub/models--Qwen--Q", "/h/hub/models--Qwen--Q", True),
    )
    assert mounts_of({}, split_argv(("--model", "Qwen/Q"))) == ()


def test_the_health_command_tells_who_answers() -> None:
    with server({"/health": (200, b""), "/sick": (503, b"")}) as (url, _):
        container = Container("i", (), url=url)
        environment = {**os.environ, "http_proxy": "http://127.0.0.1:9"}

        def status(container: Container) -> int:
            words = (sys.executable, *health_words(container)[1:])
            return subprocess.run(
                words, capture_output=True, check=False, env=environment
            ).returncode

        assert status(container) == 0
        assert status(replace(container, health="/sick")) != 0
    assert status(container) != 0
    assert health_words(Container("i", ())) == ()
