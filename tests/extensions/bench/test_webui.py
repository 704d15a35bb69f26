"""``gaudi-launch webui``: the page in a real browser that can reach nothing else, and the parts
beneath it."""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest

from gaudi_launch.cli.main import run
from tests.support.stand_in_server import KEY, Manner, serving
from tests.support.waiting import GENEROUS, until, unused_port

gradio = pytest.mark.skipif(
    importlib.util.find_spec("gradio") is None, reason="gradio is not installed"
)


@contextmanager
def page(url: str, *words: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The command as a user runs it; its page's address."""
    port = unused_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "gaudi_launch", "webui", url, "-p", str(port), *words],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "VLLM_API_KEY": KEY},
    )
    assert process.stderr is not None
    try:
        address = f"http://127.0.0.1:{port}"
        lines = [process.stderr.readline()]
        while lines[-1] and address not in lines[-1]:
            lines.append(process.stderr.readline())
        assert lines[-1] == f"Chat with stand-in at {address}; Ctrl-C stops the page.\n", "".join(
            lines
        )
        yield address, process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def browser(profile: Path) -> Iterator[Any]:
    """Chromium without a window, for which no host but ours exists; skips where it or selenium
    is not there."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no Chromium with its driver here")
    options = selenium.ChromeOptions()
    options.binary_location = program
    for word in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1000,800",
        "--no-proxy-server",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    chromium = selenium.Chrome(options=options, service=selenium.ChromeService(driver))
    try:
        yield chromium
    finally:
        chromium.quit()


def asked_for(chromium: Any) -> list[str]:
    """Every address that the page asked for, blocked or not."""
    events = (json.loads(entry["message"])["message"] for entry in chromium.get_log("performance"))
    return [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]


def say(chromium: Any, words: str) -> None:
    from selenium.common.exceptions import (
        ElementNotInteractableException,
        StaleElementReferenceException,
    )

    def typed() -> bool:
        """Whether the box took them: while the page is drawn anew, there is none that does."""
        with contextlib.suppress(ElementNotInteractableException, StaleElementReferenceException):
            chromium.find_element("css selector", "textarea").send_keys(words)
            return True
        return False

    until(typed, "the box")
    chromium.find_element("css selector", "textarea").send_keys("\ue007")


def shown(chromium: Any) -> str:
    return str(chromium.find_element("css selector", "body").text)


@gradio
def test_a_talk_in_the_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # selenium itself would ask the proxy for its driver
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    says = "Paris ![x](http://elsewhere.example/x.png)"
    with (
        serving(key=True, gap=0.02, pieces=4, says=says) as (url, manner),
        page(url, "--system", "be brief", "--title", "Our model") as (address, process),
        browser(tmp_path / "profile") as chromium,
    ):
        chromium.get(address)
        until(lambda: "Our model" in shown(chromium), "the page")
        until(lambda: bool(chromium.find_elements("css selector", "textarea")), "the box")
        say(chromium, "one")
        until(lambda: "w3" in shown(chromium), "the answer")
        _wait_idle(chromium)
        say(chromium, "two")
        until(lambda: shown(chromium).count("w3") == 2, "the second answer")
        _picture(chromium, tmp_path)
        _told_history(manner)
        _nothing_elsewhere(chromium, address)
        _stops(chromium, manner)
        _says_failures(chromium, manner)
        assert KEY not in chromium.page_source
        process.send_signal(signal.SIGINT)
        assert process.wait(GENEROUS) == 130


def _picture(chromium: Any, folder: Path) -> None:
    """A picture for people to look at, where they say."""
    chromium.save_screenshot(str(folder / "page.png"))
    if "GAUDI_LAUNCH_SCREENSHOT" in os.environ:
        shutil.copy(folder / "page.png", os.environ["GAUDI_LAUNCH_SCREENSHOT"])


def _wait_idle(chromium: Any) -> None:
    until(
        lambda: not chromium.find_elements("css selector", "button.stop-button:not(.hidden)"),
        "the end",
    )


def _told_history(manner: Manner) -> None:
    said = [(message["role"], message["content"]) for message in manner.questions[-1]["messages"]]
    assert (
        said[0] == ("system", "be brief")
        and said[1] == ("user", "one")
        and said[3] == ("user", "two")
    )
    assert said[2][0] == "assistant" and said[2][1].endswith("w1 w2 w3")


def _nothing_elsewhere(chromium: Any, address: str) -> None:
    seen = asked_for(chromium)
    assert len(seen) > 10
    # only the picture in the answer wants out, and may not; chrome: is the empty tab of the browser
    # itself
    inside = (address, "data:", "blob:", "chrome:", "chrome-untrusted:")
    outside = {url for url in seen if not url.startswith(inside)}
    assert outside <= {"http://elsewhere.example/x.png"}
    blocked = [
        entry["message"]
        for entry in chromium.get_log("browser")
        if "elsewhere.example" in entry["message"]
    ]
    assert any("Content Security Policy" in line for line in blocked)


def _stops(chromium: Any, manner: Manner) -> None:
    manner.pieces, manner.gap, manner.says = 500, 0.1, "Slow"
    say(chromium, "three")
    until(lambda: "Slow w1" in shown(chromium), "the slow answer")
    chromium.find_element("css selector", "button.stop-button").click()
    # the engine's work ends, not only the page's
    until(lambda: manner.left == 1, "the end of the connection")
    _wait_idle(chromium)


def _says_failures(chromium: Any, manner: Manner) -> None:
    manner.status = 500
    say(chromium, "four")
    until(lambda: "the engine is dead" in shown(chromium), "the failure")


UPLOAD = (
    "--x\r\nContent-Disposition: form-data; name=files; filename=a\r\n\r\n" + "a" * 99 + "\r\n--x--"
)


def status(address: str, method: str, path: str, **headers: str) -> tuple[int, list[str]]:
    """Return the status of a request, and the names of its answer's CORS headers."""
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=GENEROUS)
    body = None
    if method == "POST":
        body, headers = UPLOAD, {**headers, "Content-Type": "multipart/form-data; boundary=x"}
    connection.request(method, path, body, headers)
    with connection.getresponse() as answer:
        answer.read()
        names = [name for name, _ in answer.getheaders() if name.startswith("access-control")]
        return answer.status, names


@gradio
def test_the_page_is_for_itself_only() -> None:
    """Uploads, descriptions of the API and files are refused, and so are pages of others."""
    with serving(key=True) as (url, _), page(url) as (address, _process):
        port = address.rpartition(":")[2]
        foreign = f"http://rebound.example:{port}"
        asked: list[tuple[str, str, dict[str, str]]] = [
            ("GET", "/config", {}),
            ("GET", "/config", {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}),
            ("GET", "/config", {"Host": f"rebound.example:{port}", "Origin": foreign}),
            ("GET", "/config", {"Host": f"rebound.example:{port}"}),
            ("GET", "/config", {"Origin": foreign}),
            ("OPTIONS", "/config", {"Origin": foreign, "Access-Control-Request-Method": "POST"}),
            ("POST", "/gradio_api/upload", {}),
            ("POST", "/upload", {}),
            ("GET", "/openapi.json", {}),
            ("GET", "/gradio_api/openapi.json", {}),
            ("GET", "/gradio_api/file=/etc/hostname", {}),
        ]
        found = [status(address, method, path, **headers) for method, path, headers in asked]
        with build_opener(ProxyHandler({})).open(address, timeout=GENEROUS) as answer:
            html, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
    assert found == [(200, [])] * 2 + [(403, [])] * 9
    assert policy.startswith("default-src 'self';") and "http" not in policy
    assert 'src="https://' not in html and 'href="https://' not in html and len(html) > 1000
    assert KEY not in html


def test_without_gradio(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    with serving() as (url, _):
        assert run(["webui", url]) == 3
    assert "pip install 'gaudi-launch[webui]'" in capsys.readouterr().err


@gradio
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["127.0.0.1:9"], 1, "The server cannot be reached"),
        (["URL", "-p", "0"], 2, "-p"),
        (["URL", "--temperature", "hot"], 2, "--temperature"),
        (["nobody"], 2, "nobody"),
        (["URL", "-u", "203.0.113.1"], 3, "Cannot listen on"),
        (["URL", "-u", "no such host"], 3, "Cannot listen on"),
    ],
)
def test_bad_words(
    capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    with serving() as (url, _):
        assert run(["webui", *(url if word == "URL" else word for word in words)]) == code
    assert says in capsys.readouterr().err


@gradio
def test_a_page_for_everybody_is_said_to_be_one() -> None:
    with serving() as (url, _):
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "gaudi_launch", "webui", url, "-u", "0.0.0.0"),
                *("-p", str(unused_port())),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        first = process.stderr.readline()
        process.kill()
        process.communicate()
    assert "Anyone who can reach 0.0.0.0" in first
