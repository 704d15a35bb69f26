"""What a command refuses by itself, before its use case is called."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.cli.main import run
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.engines.install.environment import PLACES
from gaudi_launch.core.engines.registry import setup_names
from gaudi_launch.core.engines.releases import known
from gaudi_launch.core.host.simulated import NAMES

pytestmark = pytest.mark.usefixtures("plain_english")

_GIVEN = "setup.not_for"
_ALONE = "setup.not_with_rollback"

REFUSED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    *((f"bench {more}", "learn.alone", {}) for more in ("a --learned", "--learned --unlearn")),
    ("serve /m --no-wait", "services.no_wait", {}),
    ("logs a --previous --follow", "services.previous", {}),
    ("logs a --previous --launcher", "services.previous", {}),
    ("stop", "services.stop_what", {}),
    ("stop a --all", "services.stop_what", {}),
    ("stop --orphans --all", "services.stop_what", {}),
    ("wait a --timeout 0", "services.timeout", {"found": "0"}),
    ("exporter --json", "measure.exporter_json", {}),
    ("doctor --fix --undo", "doctor.fix.both", {}),
    ("doctor --list --bundle f", "doctor.fix.both", {}),
    ("doctor --undo --list", "doctor.fix.both", {}),
    ("doctor --fix --machine m", "doctor.fix.machine", {"machine": "m"}),
    ("doctor --undo --machine m", "doctor.fix.machine", {"machine": "m"}),
    ("doctor --fix --json", "doctor.fix.json", {}),
    ("bench http://h --plot p.svg", "measure.plot_compare", {}),
    ("devices power", "power.limit_or_undo", {}),
    ("devices power --limit 500 --undo", "power.limit_or_undo", {}),
    ("devices power --undo -m 0", "power.needs_limit", {}),
    ("devices power --undo --dry-run", "power.needs_limit", {}),
    ("devices power --undo --machine m", "power.not_this_machine", {}),
    ("devices power --limit 500 --yes --machine m", "power.not_this_machine", {}),
    ("devices --machine m power --limit 500 --yes", "power.not_this_machine", {}),
    ("pull name", "pull.name", {"found": "name"}),
    *(
        (
            f"{command} https://{page}",
            "models.address",
            {"found": f"https://{page}", "pull": f"pull Qwen/QwQ-32B{source}"},
        )
        for command in ("pull", "plan", "serve", "warmup -w")
        for page, source in (
            ("www.modelscope.cn/Qwen/QwQ-32B.git", " --from modelscope"),
            ("huggingface.co/Qwen/QwQ-32B/tree/main", ""),
        )
    ),
    ("pull a/b --from x", "pull.source", {"found": "x"}),
    ("pull a/b --repo-type x", "pull.repo_type", {"found": "x"}),
    ("top --hosts a --inventory b", "watch.hosts_twice", {}),
    ("top --hosts a --machine simulated:hls2", "watch.machine_or_hosts", {}),
    ("top --hosts -x", "cluster.bad_host", {"found": "-x"}),
    *((f"top {each}", "watch.seconds", {}) for each in ("--interval nan", "--timeout 1e9")),
    *(
        (f"cluster plan m {each}", "cluster.which_hosts", {})
        for each in ("", "--hosts a --inventory f")
    ),
    *(
        (f"cluster plan m --hosts local {each}", "cluster.not_here", {"flag": flag})
        for each, flag in (
            ("-m 0", "-m"),
            ("--machine simulated:hls2", "--machine"),
            ("--tuning reference", "--tuning reference"),
        )
    ),
    ("stack down nobody", "stack.unknown", {"found": "nobody", "known": "-"}),
    ("render compose Qwen/Qwen3-8B --engine simulated", "simulated.here_only", {}),
    ("serve m --engine simulated --in docker", "simulated.here_only", {}),
    ("serve m --in jail", "render.place", {"found": "jail", "known": "docker, podman"}),
    ("serve m --image i", "render.image_alone", {}),
    ("serve m --python p --in docker", "render.python_inside", {}),
    ("serve demo --engine vllm-fork --in podman", "render.demo_inside", {}),
    (
        "render kubernetes --helm h --to o",
        "kubernetes.not_with",
        {"one": "--helm", "other": "--to"},
    ),
    ("devices snapshot", "host.snapshot_nowhere", {}),
    (
        "devices snapshot --tree t",
        "host.tree_machine",
        {"known": ", ".join(f"simulated:{name}" for name in NAMES)},
    ),
    (
        "devices pick --format x",
        "placement.format",
        {"found": "x", "known": "text, modules, indices, cpus"},
    ),
    ("--lang fr plan", "common.language", {"found": "fr", "known": "en, zh"}),
    ("setup", "setup.no_engine", {"known": ", ".join((*setup_names(), *known()))}),
    ("setup cpu --in moon", "setup.place", {"found": "moon", "known": ", ".join(PLACES)}),
    (
        "setup vllm-fork@1.21 --in moon",
        "setup.place",
        {"found": "moon", "known": ", ".join(PLACES)},
    ),
    (
        "setup vllm-fork@1.21 --in docker --python p",
        "setup.not_in",
        {"flag": "--python", "place": "docker"},
    ),
    *(
        (f"setup cpu --rollback {option}", _ALONE, {"flag": option.split()[0]})
        for option in (
            *("--in venv", "--python p", "--vision", "--scale-out", "--unpinned"),
            *("--base-image i", "--index-url https://m", "--no-demo"),
            *("--torch-index https://m", "--registry m", "--git-mirror https://m"),
        )
    ),
    *(
        (f"setup gateway {option}", _GIVEN, {"flag": option.split()[0], "engine": "gateway"})
        for option in (
            *("--in venv", "--python p", "--vision", "--scale-out", "--unpinned"),
            *("--base-image i", "--git-mirror https://m", "--registry m"),
            "--torch-index https://m",
        )
    ),
    *(
        (
            f"setup vllm-fork@1.21 {option}",
            _GIVEN,
            {"flag": option.split()[0], "engine": "vllm-fork@1.21"},
        )
        for option in ("--torch-index https://m", "--base-image i")
    ),
    *(
        (f"setup cpu {option}", _GIVEN, {"flag": option.split()[0], "engine": "cpu"})
        for option in (
            *("--python p", "--vision", "--scale-out", "--unpinned", "--base-image i"),
            *("--git-mirror https://m", "--registry m"),
        )
    ),
)


@pytest.mark.parametrize(("line", "id", "values"), REFUSED, ids=[each[0] for each in REFUSED])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_refusal_is_a_sentence_with_exit_code_2(
    line: str,
    id: str,
    values: dict[str, Any],
    language: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GAUDI_LAUNCH_LANG", language)
    before = sorted(tmp_path.rglob("*"))
    assert run(shlex.split(line)) == 2
    out, err = capsys.readouterr()
    shown = text(id, language, **values)
    if "--json" in line:
        assert shown in out.replace("\\n", "\n")
    else:
        assert (out, err.startswith(f"gaudi-launch: {shown}")) == ("", True)
    assert sorted(tmp_path.rglob("*")) == before
