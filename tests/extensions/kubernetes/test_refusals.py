"""What ``render kubernetes`` refuses, in words that say what to do; nothing is written then."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaudi_launch.cli.main import run
from tests.support.kubernetes_documents import CHAT, LLAMA, QWEN, R1, TGI, _plain

__all__ = ["_plain"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((*CHAT, "--replicas", "2", "--access-mode", "ReadWriteOnce"), 2, "ReadWriteMany"),
        ((*CHAT, "--replicas", "0"), 2, "--replicas"),
        ((*CHAT, "--replicas", "many"), 2, "many"),
        ((*CHAT, "--replicas", "1..4"), 2, "--autoscale"),
        ((*CHAT, "--ongoing", "4"), 2, "--ongoing"),
        ((*CHAT, "--autoscale", "hpa", "--replicas", "4..2"), 2, "--replicas"),
        ((*CHAT, "--autoscale", "vpa", "--replicas", "1..2"), 2, "vpa"),
        ((*CHAT, "--kind", "statefulset"), 2, "statefulset"),
        ((*CHAT, "--nodes", "2"), 2, "leaderworkerset"),
        ((*CHAT, "--kind", "leaderworkerset"), 2, "-n 8"),
        ((*CHAT, "--name", "Upper"), 2, "Upper"),
        ((*CHAT, "--name", "x" * 34), 2, "x" * 34),
        ((*CHAT, "--node-selector", "a b=c"), 2, "a b"),
        ((*CHAT, "--node-selector", "gaudi3"), 2, "'gaudi3'"),
        ((*CHAT, "--tolerate", "-"), 2, "--tolerate"),
        ((*CHAT, "--namespace", "A"), 2, "--namespace"),
        ((*CHAT, "--namespace", "a.b"), 2, "--namespace"),
        ((*CHAT, "--hugepages", "9801"), 2, "9800 or 9802"),
        ((*CHAT, "--image", "my image"), 2, "--image"),
        ((*CHAT, "--image", "registry/Name:1"), 2, "registry/Name:1"),
        ((*CHAT, "--webui", "--webui-image", "x:"), 2, "--webui-image"),
        ((*CHAT, "--webui-image", "x"), 2, "--webui"),
        ((*CHAT, "--ingress-class", "nginx"), 2, "--ingress-host"),
        ((*CHAT, "--ingress-host", "*.*"), 2, "--ingress-host"),
        ((*CHAT, "--interface", "net1"), 2, "--kind leaderworkerset"),
        ((*CHAT, "--ray-version", "2.60.0"), 2, "--kind rayservice"),
        ((*CHAT, "--kind", "rayservice", "--image", "i", "--ray-version", "new"), 2, "2.60.0"),
        ((*R1, "--kind", "leaderworkerset", "--interface", "i" * 16), 2, "15"),
        ((*TGI, "-n", "8", "--kind", "leaderworkerset"), 2, "--engine tgi"),
        ((*TGI, "--kind", "rayservice", "--image", "i"), 2, "--engine tgi"),
        ((*CHAT[:-4], "--engine", "ray-serve", *CHAT[-2:], "--image", "i"), 2, "--kind rayservice"),
        ((*CHAT, "--secret", "hub:a b"), 2, "a b"),
        ((*CHAT, "--with", "-w 'open"), 2, "--with"),
        ((*CHAT, "--with", "-w BAAI/bge-m3 --bad"), 2, "--bad"),
        ((*CHAT, "--with", "-n 1"), 2, "-w"),
        ((*QWEN, "--with", "-w /models/Qwen2-72B-Instruct -n 8 --engine vllm-fork@1.22"), 3, "12"),
        ((*CHAT, "--machine", "simulated:hls2"), 2, "--machine"),
        (("-w", "m", "--accelerator", "gpu"), 2, "gpu"),
        (("--accelerator", "gaudi2"), 2, "-w"),
        (("-w", "/models/a:b", "-n", "1", *CHAT[-4:]), 2, "a:b"),
        ((*CHAT, "--", "--ssl-keyfile-password", "sk-secret"), 2, "--ssl-keyfile-password"),
        ((*CHAT, "--helm", "a", "--to", "b"), 2, "--helm"),
        ((*R1, "--kind", "leaderworkerset", "--nodes", "3"), 5, "24"),
        ((*R1, "--kind", "leaderworkerset", "--layout", "dp"), 2, "dp"),
        (("-w", "/models/QwQ-32B", *R1[2:], "--kind", "leaderworkerset"), 5, "use --layout pp"),
        (
            ("-w", "Qwen/Qwen2-7B-Instruct", *QWEN[4:], "--kind", "leaderworkerset"),
            5,
            "--kind deployment",
        ),
        ((*CHAT, "--layout", "pp"), 2, "--layout"),
        ((*CHAT, "--kind", "rayservice"), 2, "ray[serve]"),
        ((*CHAT, "--kind", "rayservice", "--image", "i", "--monitor"), 2, "--monitor"),
        (
            (
                *(*CHAT, "--kind", "rayservice", "--image", "i", "--autoscale", "hpa"),
                *("--replicas", "1..2"),
            ),
            2,
            "--autoscale",
        ),
        ((*LLAMA, "--kind", "deployment"), 2, "--kind deployment"),
        ((*LLAMA, "-l", "4096", "-b", "8"), 2, "-l"),
        ((*LLAMA, "--hugepages", "8", "--no-recipes"), 2, "--hugepages, --no-recipes"),
        ((*LLAMA, "-n", "1"), 3, "need 2"),
        ((*LLAMA, "-n", "25"), 3, "the instance has 24"),
        (("-w", "Qwen/Qwen3-8B", "--accelerator", "inf2.48xlarge"), 5, "Qwen3ForCausalLM"),
        (("-w", "meta-llama/Llama-2-70b-chat-hf", "--accelerator", "inf2.8xlarge"), 3, "need 9"),
        (("--accelerator", "inf2.48xlarge"), 2, "-w"),
    ],
)
def test_what_cannot_be_is_refused_before_a_file_is_written(
    words: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    extra = () if "--to" in words or "--helm" in words else ("--to", "made/")
    end = words.index("--") if "--" in words else len(words)
    found = run(["render", "kubernetes", *words[:end], *extra, *words[end:]])
    out, err = capsys.readouterr()
    assert (found, out) == (code, "")
    assert said in err and "Traceback" not in err
    assert [path for path in tmp_path.iterdir() if path.name in ("made", "a", "b")] == []
