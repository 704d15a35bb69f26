"""Logs as `why` meets them: carried by compose, kubectl or journalctl; cut off in the middle; in
Chinese."""

from __future__ import annotations

import pytest

from gaudi_launch.core.services.diagnosis.diagnose import diagnose
from tests.support.log_lines import PROMPT

# what each way to a log puts in front of a line
CARRIERS = [
    "vllm-server-1  | ",
    "\x1b[36mvllm-1 |\x1b[0m ",
    "vllm-1  | 2026-11-21T03:02:41.123456789Z ",
    "2026-11-21T03:02:41.123456789+08:00 ",
    "[pod/qwen-7d9c-x2/engine] ",
    "Nov 21 03:02:41 gaudi01 vllm[4242]: ",
    "11月 21 03:02:41 gaudi01 gaudi-qwen[4242]: ",
    "2026-11-21T03:02:41+0800 gaudi01 vllm[4242]: ",
]


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_log_that_another_program_carried_is_judged_alike(carrier: str) -> None:
    lines = (
        "INFO 11-21 03:02:41 [api_server.py:1043] Set trust_remote_code=True to allow custom code\n"
        f"{PROMPT}Error: ShardFailed\nValueError: odd\n"
    )
    carried = "".join(f"{carrier}{line}\n" for line in lines.splitlines())
    found = diagnose(carried)
    assert found == diagnose(lines)
    assert ([cause.id for cause in found.causes], found.failed, found.phase) == (
        ["exception"],
        True,
        "warmup_prompt",
    )


def test_how_far_an_unfinished_start_was() -> None:
    found = diagnose(PROMPT)
    assert (found.failed, found.phase, found.at) == (False, "warmup_prompt", (2, 4))


CHINESE = [
    ("disk_full", "OSError: [Errno 28] 设备上没有空间: '/root/.cache/x'"),
    ("disk_full", "cp: 写入 '/models/a' 时出错: 设备上没有空间"),
    ("host_oom", "OSError: [Errno 12] 无法分配内存"),
    ("host_oom", "./start.sh: fork: 无法分配内存"),
    ("port_in_use", "OSError: [Errno 98] 地址已在使用"),
    ("permission", "./start.sh:行12: /models/run.sh: 权限不够"),
    ("nofile", "OSError: [Errno 24] 打开的文件过多: '/x'"),
    ("read_only", "OSError: [Errno 30] 只读文件系统: '/x'"),
    ("no_module", "ImportError: libSynapse.so: 无法打开共享对象文件: 没有那个文件或目录"),
    ("quant_config", "FileNotFoundError: [Errno 2] 没有那个文件或目录: '/m/maxabs_quant_g2.json'"),
    ("crashed", "./start.sh: 第 96 行：  4242 段错误               （核心已转储） python3 -m vllm"),
    (
        "shared_memory",
        "./start.sh: 第 96 行：  4242 总线错误               （核心已转储） python3 -m vllm",
    ),
    ("killed", "./start.sh: 第 96 行：  4242 已杀死               python3 -m vllm"),
    ("killed", "./start.sh: 行 96:  4242 已杀死               python3 -m vllm"),
    ("killed", "已杀死"),
]


@pytest.mark.parametrize(("cause", "line"), CHINESE)
def test_what_a_chinese_system_says(cause: str, line: str) -> None:
    found = diagnose(f"INFO 11-21 03:02:41 starting\n{line}\n", exit_status=1)
    assert (found.causes[0].id, found.causes[0].evidence) == (cause, ((2, line),))
