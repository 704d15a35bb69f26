"""An operator's words find the page that answers them."""

from __future__ import annotations

import pytest

from gaudi_launch.commands.help.search import search
from gaudi_launch.core.base.messages import set_language

# what an operator types, and the page that must be among the three shown
PAGES = {
    "en": {
        "api key": "security",
        "why slow": "tuning",
        "two servers": "cluster",
        "Prometheus": "monitoring",
        "grafana dashboard": "monitoring",
        "power limit": "monitoring",
        "reboot": "serving",
        "restart after a crash": "serving",
        "upgrade": "upgrades",
        "out of memory": "troubleshooting",
        "port in use": "troubleshooting",
        "log level": "troubleshooting",
        "fp8": "fp8",
        "huge pages": "kubernetes",
        "autoscale": "kubernetes",
        "offline": "offline",
        "mirror": "offline",
        "proxy": "offline",
        "docker": "containers",
        "LoRA": "gateway",
        "load balancing": "gateway",
        "rate limit": "gateway",
        "uninstall": "install",
        "exit code": "exit-codes",
        "environment variables": "environment",
        "several models": "stack",
        "how many cards do I need": "planning",
        "new server test": "first-day",
        "replay requests": "traces",
    },
    "zh": {
        "密钥": "security",
        "太慢": "tuning",
        "两台服务器": "cluster",
        "监控": "monitoring",
        "功率": "monitoring",
        "Prometheus": "monitoring",
        "重启": "serving",
        "开机启动": "serving",
        "升级": "upgrades",
        "回滚": "upgrades",
        "显存不足": "troubleshooting",
        "端口被占用": "troubleshooting",
        "日志": "troubleshooting",
        "校准": "fp8",
        "量化": "fp8",
        "大页": "kubernetes",
        "离线": "offline",
        "镜像站": "offline",
        "代理": "offline",
        "容器": "containers",
        "LoRA": "gateway",
        "负载均衡": "gateway",
        "证书": "gateway",
        "卸载": "install",
        "退出码": "exit-codes",
        "环境变量": "environment",
        "多个模型": "stack",
        "启动脚本": "start-scripts",
    },
}


@pytest.mark.parametrize("language", PAGES)
def test_a_question_finds_its_page_among_the_three_that_are_shown(language: str) -> None:
    set_language(language)
    found = {term: [page.name for page in search(term).pages] for term in PAGES[language]}
    assert {
        term: found[term] for term, page in PAGES[language].items() if page not in found[term][:3]
    } == {}


@pytest.mark.usefixtures("plain_english")
def test_a_question_finds_its_command() -> None:
    assert "bench" in list(search("why slow").commands)[:3]


@pytest.mark.usefixtures("plain_english")
def test_what_no_page_has_finds_nothing() -> None:
    assert search("xyzzy").is_empty
