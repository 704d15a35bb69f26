"""Chinese: one term for one thing, full-width punctuation, and the facts of the English sentence
beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import pytest

from gaudi_launch.cli.table import COMMANDS
from gaudi_launch.cli.translated import translations
from gaudi_launch.core.base.messages import catalogue
from tests.support.places import TOP
from tests.support.prose import written_by_hand

PAGES = ["README_zh.md", *sorted(f"docs/{path.name}" for path in (TOP / "docs").glob("*_zh.md"))]
HAN = "\u4e00-\u9fff"
WIDE = "，。：；？！（）、“”"


@dataclass(frozen=True)
class Habit:
    """A habit that stays out: what finds it, a text that has it and the same text without it."""

    name: str
    pattern: str
    wrong: str
    right: str


TYPOGRAPHY = (
    Habit("half-width mark after Chinese", rf"[{HAN}] ?[,;:?!]", "停止:gaudi", "停止：gaudi"),
    Habit("half-width mark before Chinese", rf"[,;:?!] ?[{HAN}]", "GiB, 可用", "GiB，可用"),
    Habit("half-width stop", rf"[{HAN}]\.(?!\w)", "没有卡.", "没有卡。"),
    Habit("half-width bracket", rf"[{HAN}] ?\(|\) ?[{HAN}]", "内存 (GiB)", "内存（GiB）"),
    Habit("straight quote", r"['\"]", "服务 'x' 已停止", "服务“x”已停止"),
    Habit(
        "no space beside Latin",
        rf"[{HAN}][A-Za-z0-9]|[A-Za-z0-9%][{HAN}]",
        "每卡8GiB",
        "每卡 8 GiB",
    ),
    Habit("no space beside a value", rf"[{HAN}]\{{|\}}[{HAN}]", "共{count}张", "共 {count} 张"),
    Habit(
        "space beside a full-width mark",
        rf"[{WIDE[:-2]}] | [{WIDE[:-2]}]",
        "模型（a） 可用",
        "模型（a）可用",
    ),
    Habit("space beside a quote", rf"[{HAN}] “|” [{HAN}]", "用 “ps” 查看", "用“ps”查看"),
    Habit("space inside Chinese", rf"[{HAN}] [{HAN}]", "没有 可用的卡", "没有可用的卡"),
    Habit("space before a percent sign", r"[\d}] %", "相差 5 %", "相差 5%"),
    Habit(
        "a command that no mark sets off",
        r"(?<![“：（])(?<!“sudo )(?<!\| )gaudi-launch [a-z]",
        "请用 gaudi-launch ps 查看",
        "请用“gaudi-launch ps”查看",
    ),
)

# the project's glossary: the form that is dropped, and the one that is used
TERMS = (
    Habit("token", "词元", "输入词元", "输入 token"),
    Habit("prompt", "提示", "长提示词", "长 prompt"),
    Habit("prefill", "(?<![-{a-z])prefill(?![-}a-z])", "分块 prefill", "分块预填充"),
    Habit("decode graph", "解码(?:图|分桶)", "预热解码图", "预热 decode 图"),
    Habit("step time", "步长|单步时间|步时", "步长时间", "单步耗时"),
    Habit("device memory", "卡上?的?内存", "卡上内存", "显存"),
    Habit("profile run", "剖析", "内存剖析", "显存探测"),
    Habit("module ID", "模块号|卡号", "模块号 3", "模块 ID 3"),
    Habit("index", "序号|(?<!用户)编号", "hl-smi 序号", "hl-smi 索引"),
    Habit(
        "profile",
        "配置档|(?<!量化)(?<!kubectl 的)配置文件",
        "没有配置文件",
        "没有模型配置（profile）",
    ),
    Habit("model ID", r"模型编号|(?<![{\w])hub(?![}\w])", "hub 名称", "模型 ID"),
    Habit("bucket", "(?<!分)桶", "减少桶", "减少分桶"),
    Habit("batch size", "批量", "热点批量", "热点批大小"),
    Habit("KV cache", "KV cache", "KV cache 已满", "KV 缓存已满"),
    Habit("folder", "文件夹", "模型文件夹", "模型目录"),
    Habit("absolute path", "完整路径", "请给出完整路径", "请给出绝对路径"),
    Habit("exit code", "退出状态", "退出状态 1", "退出码 1"),
    Habit("chat page", "对话页面", "打开对话页面", "打开聊天页面"),
    Habit("embedding", "嵌入", "嵌入模型", "向量模型"),
    Habit("trace", "轨迹", "重放轨迹", "重放历史请求（trace）"),
    Habit("fork", "fork 分支|分支指南|vLLM 分支", "分支指南", "fork 的指南"),
    Habit("index of the cache", "台账", "没有台账", "没有清单"),
    Habit("launcher", "启动进程|启动器", "服务的启动器", "服务的守护进程"),
    Habit("replica", "(?:[0-9}]|多|每) ?份模型", "多份模型", "多个副本"),
    Habit("PVC", "存储声明", "存储声明未绑定", "PVC 未绑定"),
    Habit("INC", "神经压缩器", "神经压缩器", "Intel Neural Compressor（INC）"),
    Habit("runtime scale patching", "运行时缩放", "运行时缩放修补", "runtime scale patching"),
    Habit("download, pull", "获取", "获取镜像", "拉取镜像"),
    Habit("does not apply", "没有意义", "对它没有意义", "不适用于它"),
    Habit("does not support", "认识", "引擎不认识", "引擎不支持"),
    Habit("silently", "默默|悄悄", "默默忽略", "静默忽略"),
    Habit("answer of a program", "应答", "没有应答", "没有响应"),
    Habit("a later version", "更新版本|更新的版本", "3.10 或更新版本", "3.10 或更高版本"),
    Habit("disaggregation", "拆分(?!该命令)", "预填充/decode 拆分", "PD 分离"),
    Habit("power limit", "功耗上限", "卡功耗上限", "卡功率上限"),
    Habit("dashboard", "仪表盘|(?<!控制)面板", "Ray 面板", "Ray 仪表板"),
    Habit("bundle", "支持包", "机器的支持包", "机器的诊断包"),
    Habit("scale", "缩放系数", "缩放系数", "缩放因子"),
    Habit("link group", "链路组", "一个链路组", "一个互联组"),
    Habit("pipeline stage", "流水线阶段", "两个流水线阶段", "两个流水线级"),
    Habit("stack", "(?<!另)一组模型", "一组模型", "模型组"),
    Habit("journal", "修改记录", "修改记录", "操作记录"),
    Habit("killed", "杀死|被杀", "进程被杀死", "进程被终止"),
    Habit("the product", "我们", "我们的调优", "自动调优"),
    Habit("the reader", "你", "你的请求", "您的请求"),
)

# texts with a habit for a reason: commands and code with quotes in them, and values that are
# Chinese themselves
EXEMPT = {
    "straight quote": {
        "diagnose.fastapi_routes_fix",
        "doctor.container.runtime.add",
        "doctor.grub.rhel",
        "doctor.grub.ubuntu",
        "kubernetes.ray_image",
        "kubernetes.words",
        "measure.no_package",
        "plot.no_library",
        "ray.missing",
        "render.podman_secrets",
    },
    "no space beside a value": {
        "diagnose.unfinished",
        "doctor.bundle.written",
        "doctor.memory.hugepages_nodes.warn",
        "fit.plan_refused",
        "plan.no_such_option",
        "time.span",
        "screen.doctor_skipped",
        "support.forced",
        "support.refused",
    },
}

FACT = re.compile(
    r"(?<![\w}-])--?[a-z][\w-]*"  # an option
    r"|\b[A-Z][A-Z0-9]*_[A-Z0-9_]+"  # a variable
    r"|(?<![\w.@-])\d+(?:\.\d+)*(?!\w)"  # a number
)
HELP = translations("zh")

# numbers that one language writes as a word: December, eight cards, one card
WRITTEN_OUT = {"tgi.maintenance", "engines.title_deepseek_r1", "plan.one_card"}
WRITTEN_OUT_IN_HELP = {
    "Convert a start-script command, for a server with eight cards",
    "Plan for a server with eight Gaudi2 cards, on any machine",
    "Show what would be started on a server with eight Gaudi2 cards",
}


def prose(name: str) -> dict[str, str]:
    """Return the lines of a Chinese page outside code blocks, by number; inline code becomes a
    Latin word."""
    lines: dict[str, str] = {}
    code = False
    for number, line in enumerate(written_by_hand(TOP / name).splitlines(), start=1):
        if line.startswith("```"):
            code = not code
        elif not code:
            # Markdown needs the space behind a heading that ends in a full stop and opens a
            # paragraph
            line = re.sub(r"`[^`]+`", "CODE", line).replace("。** ", "。")
            lines[str(number)] = re.sub(r" ?\| ?", "|", line)
    return lines


def found(habit: Habit, texts: dict[str, str]) -> list[str]:
    """Return the ids of the texts that have this habit."""
    return [id for id, text in texts.items() if re.search(habit.pattern, text)]


def facts(text: str) -> set[str]:
    """Return the options, variables and numbers of a text."""
    return set(FACT.findall(re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)))


@pytest.mark.parametrize("habit", TYPOGRAPHY + TERMS, ids=lambda habit: habit.name)
def test_messages_keep_the_habit_out(habit: Habit) -> None:
    assert set(found(habit, dict(catalogue("zh")))) == EXEMPT.get(habit.name, set())


@pytest.mark.parametrize("habit", TYPOGRAPHY + TERMS, ids=lambda habit: habit.name)
def test_the_pages_keep_the_habit_out(habit: Habit) -> None:
    assert {name: lines for name in PAGES if (lines := found(habit, prose(name)))} == {}


@pytest.mark.parametrize("habit", TYPOGRAPHY + TERMS, ids=lambda habit: habit.name)
def test_help_keeps_the_habit_out(habit: Habit) -> None:
    # the shape of a JSON object and an argument are code
    texts = {
        english: chinese.replace('{"schema": 1, "line": ...}', "CODE").replace("'COMMAND'", "CODE")
        for english, chinese in HELP.items()
    }
    assert found(habit, texts) == []


@pytest.mark.parametrize("name", [name for name in PAGES if name != "docs/gateway_zh.md"])
def test_a_paragraph_of_a_page_is_one_line(name: str) -> None:
    """A line break between two Chinese characters is shown as a space."""
    lines = list(prose(name).values())
    broken = [
        first
        for first, second in pairwise(lines)
        if first != "" and second != "" and not re.match(r"\||- |\d+\. ", second)
    ]
    assert broken == []


@pytest.mark.parametrize("name", PAGES)
def test_both_languages_of_a_page_have_the_same_paragraphs(name: str) -> None:
    def count(name: str) -> int:
        text = re.sub(r"```.*?```", "CODE", (TOP / name).read_text("utf-8"), flags=re.DOTALL)
        return len(re.split(r"\n\s*\n", text.strip()))

    assert count(name) == count(name.replace("_zh.md", ".md"))


@pytest.mark.parametrize("name", PAGES)
def test_both_languages_of_a_page_name_the_same_code(name: str) -> None:
    def code(name: str) -> set[str]:
        text = re.sub(r"```.*?```", "", written_by_hand(TOP / name), flags=re.DOTALL)
        # a sentence may name its command or leave it out
        return set(re.findall(r"`([^`]+)`", text)) - COMMANDS.keys()

    assert code(name) == code(name.replace("_zh.md", ".md"))


@pytest.mark.parametrize("habit", TYPOGRAPHY + TERMS, ids=lambda habit: habit.name)
def test_the_habit_is_recognised(habit: Habit) -> None:
    assert found(habit, {"wrong": habit.wrong, "right": habit.right}) == ["wrong"]


def test_both_languages_name_the_same_options_variables_and_numbers() -> None:
    english, chinese = catalogue("en"), catalogue("zh")
    assert english.keys() == chinese.keys()
    different = {id for id in english if facts(english[id]) != facts(chinese[id])}
    assert different == WRITTEN_OUT & english.keys()


def test_help_names_the_options_variables_and_numbers_of_the_english_text() -> None:
    different = {english for english, chinese in HELP.items() if facts(english) != facts(chinese)}
    assert different == WRITTEN_OUT_IN_HELP


def test_a_fact_is_an_option_a_variable_or_a_number() -> None:
    text = "-n {cards}-card, --max-num-seqs 0.5, VLLM_API_KEY, Gaudi2, v1.21 and tgi@3.3.5"
    assert facts(text) == {"-n", "--max-num-seqs", "0.5", "VLLM_API_KEY"}
