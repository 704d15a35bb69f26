"""Keep dropped words out of the catalogues; each list is the project's own glossary."""

from __future__ import annotations

import re

import pytest

from gaudi_launch.cli.translated import translations
from gaudi_launch.messages import catalogue
from tests.support.help_texts import english_texts

ENGLISH = (
    r"\bnobody\b",
    r"\bgoes on\b",
    r"\bgo on with\b",
    r"behind --",
    r"\bwished\b",
    r"\blies? in\b",
)
CHINESE = (
    "词元",
    "台账",
    "文件夹",
    "存储声明",
    "模型编号",
    "模块号",
    "步长时间",
    "单步时间",
    "提示词",
    "启动进程",
    "配置档",
    "神经压缩器",
)


@pytest.mark.parametrize("term", CHINESE)
def test_chinese_uses_the_glossary(term: str) -> None:
    assert [id for id, sentence in catalogue("zh").items() if term in sentence] == []


@pytest.mark.parametrize("pattern", ENGLISH)
def test_english_keeps_dropped_words_out(pattern: str) -> None:
    assert [id for id, sentence in catalogue("en").items() if re.search(pattern, sentence)] == []


def test_every_help_text_has_a_chinese_one() -> None:
    # locale/help/zh.json: the English text of the code -> Chinese. A reworded text needs a new entry.
    known, shown = translations("zh"), english_texts()
    assert sorted(shown - known.keys()) == []
    assert sorted(known.keys() - shown) == []
