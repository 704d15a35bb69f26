"""A line of a log: its process, its level and its message. Pure.

Prefixes are those of docker, Kubernetes, journalctl, pdsh, vLLM, Ray, torch and TGI. Every
repetition is bounded: one hostile line of 64 KiB must not block the launcher.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from gaudi_launch.core.base.json_values import mapping
from gaudi_launch.core.base.reader import parse_json

_MOST_LINE = 2000
_MOST_JSON = 65_536
_JSON = '"message"'
_MOST_PREFIXES = 6
ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\^\[\[[0-9;]*m|\x1b\][^\x07\x1b]{0,512}\x07")

# "(name pid=1)" of vLLM and Ray, "[rank0]:" and "[default0]:" of torch, "[1,0]<stderr>:" of mpirun;
# "(Pdb)" is a debugger that waits
_PROCESS = re.compile(
    r"^(?:\((?!Pdb\))(?P<who>[A-Za-z][^\s()]{0,200}(?=[ ,]+\w+=)|[A-Za-z][\w:]*)"
    r"(?:[ ,]+\w+=[^)]*)?\)|\(pid=[^)]{1,200}\)"
    r"|\[(?:rank|default)\d{1,5}\]:?|\[\d{1,5},\d{1,5}\]<std(?:err|out)>:)\s?"
)
# docker compose, pdsh and stern before what they carry, time stamps of docker and kubectl (nine
# digits; TGI has six) and of a node's container logs, kubectl logs --prefix, journalctl in any
# language (host and unit[pid])
_CARRIED = re.compile(
    r"^(?:(?!(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\b)[\w.-]{1,100} {1,100}\| "
    r"|\d{1,3}(?:\.\d{1,3}){3}: "
    r"|(?=[\w.]{0,60}[\d-])[\w.-]{1,100}: (?=\[rank\d|Traceback \(| +File \"|ERROR\b"
    r"|(?:[a-z_]\w{0,60}\.){0,9}[A-Z]\w{0,80}(?:Error|Exception): )"
    r"|(?:[\w.-]{1,100} ){1,2}(?=(?:\(\w{1,60} pid=\d{1,9}\) )?(?:INFO|WARNING|ERROR) \d\d-\d\d )"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}(?:Z|[+-]\d\d:\d\d) std(?:out|err) [FP] "
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d) "
    r"|\[pod/[^\]\s]{1,300}\] "
    r"|(?:\S{1,10} {1,2}\d{1,2} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S{8,25})"
    r" \S{1,100} [^\s\[\]]{1,100}\[\d{1,10}\]: )"
)

_TIME = (
    r"(?:(?:\d{4}[-/]\d\d[-/]\d\d|\d\d/\d\d/\d{4}|\d\d-\d\d)[ T])?"
    r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
)
# vLLM (vllm/logger.py), uvicorn, TGI, Python, DeepSpeed, INC, Synapse and docker's command
_HEADER = re.compile(
    rf"^(?!FATAL ERROR ::)(?:[\[(]?{_TIME}[\])]?[ \t]{{0,8}}(?:[-|] )?(?:[\w.]{{1,80}} - )?)?"
    r"(?:\[[^\]]{1,100}\][ \t]?){0,3}?"
    r"(?:\[?(?P<level>TRACE|DEBUG?|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR?)?|CRITICAL|FATAL?)"
    r"(?![\w-])(?:\|[^\]]{1,200})?\]?|\[(?P<low>(?i:trace|debug|info|warning|error|critical|fatal))\])"
    r"(?:\[\d{1,6}\])?(?::[ \t]{0,4}|[ \t]{0,8})(?:[-|] )?"
    rf"(?:\d\d-\d\d )?(?:{_TIME} ?)?(?:>> )?(?:(?:\[[^\]]{{1,200}}\]|\S{{1,100}}:\d{{1,6}}\]) ?)?"
)
# the loggers of Kubernetes, torch, Ray's core and Go programs
_KLOG = re.compile(
    r"^(?:(?P<level>[IWEF])\d{4} [\d:.]{8,30} {1,8}\d{1,9} \S{1,200}\] "
    rf"|\[(?:{_TIME} )?(?P<low>[DIWEFC])(?:\d{{4}} [\d:.]{{8,30}})?(?: \S{{1,200}}){{1,3}}\] ?)"
)
_LOGFMT = re.compile(
    r'^(?:(?:time|ts)=(?:"[^"]{1,60}"|\S{1,60}) )?level=(?P<level>[A-Za-z]{3,8}) (?:msg=)?'
)
# rows of kubectl describe and of kubectl get events
_EVENT = re.compile(
    r"^(?:\S{1,80}\s+){0,3}?(?P<level>Normal|Warning)\s+[A-Z][A-Za-z]{2,40}\s+"
    r"(?:\d{1,5}[smhd]|<\w+>|[a-z]+/\S|[a-z-]{3,40}\s)"
)
# Python's own warnings; huggingface_hub logs each failed attempt, and continues with local files
_PYTHON_WARNING = re.compile(
    r"^(?:[^:]{1,300}:\d{1,6}: )?\S{0,100}Warning: |thrown while requesting (?:HEAD|GET) "
)
_LEVELS = {
    **dict.fromkeys(("W", "WARN", "WARNING"), "warning"),
    **dict.fromkeys(("E", "F", "C", "ERR", "ERRO", "ERROR", "CRITICAL", "FATA", "FATAL"), "error"),
}


@dataclass(frozen=True)
class LogLine:
    """``text`` has no colours and no prefixes, ``words`` no logger's header either.

    ``level`` is "error", "warning", "info", "event" (a warning of Kubernetes), or "" for a line
    without one. ``process`` is the prefix of the process. ``words`` keep their indentation.
    """

    text: str
    words: str
    level: str = ""
    process: str = ""


def uncarried(raw: str) -> tuple[str, str, str]:
    """Return a line as its process wrote it, its prefix, and the outermost name.

    Prefixes stack: compose shows docker's time stamps, too, and Ray those of vLLM.
    """
    line, process, who = ANSI.sub("", raw).rstrip().removesuffix("^M").rstrip(), "", ""
    for _ in range(_MOST_PREFIXES):
        carried = _CARRIED.match(line.lstrip())
        if carried is not None:
            line = line.lstrip()[carried.end() :]
            continue
        found = _PROCESS.match(line.lstrip())
        if found is None:
            break
        line, process, who = line.lstrip()[found.end() :], found[0].strip(), who or found["who"]
    return line, process, who or ""


def bare(line: str) -> str:
    """Return a log line without colours, transport prefix and process prefix."""
    return uncarried(line)[0].strip()


def json_message(line: str) -> str:
    """Return the message of a JSON line (TGI, Ray) behind its level, or the line."""
    if not line.startswith("{"):
        return line
    try:
        outer = mapping(parse_json(line))
    except ValueError:
        return line
    said = mapping(outer.get("fields", outer)).get("message")
    if not isinstance(said, str):
        return line
    level = str(outer.get("level") or outer.get("levelname") or "").upper()
    return f"{level} {said.strip()}" if level in _LEVELS else said.strip()


@lru_cache(maxsize=4096)
def read_line(raw: str) -> LogLine:
    """Return a line with its level; one that shows none has ""."""
    line, process, _ = uncarried(raw)
    text = line.strip()
    event = _EVENT.match(text) if "Normal" in text or "Warning" in text else None
    if event is not None:
        return LogLine(text, text, "event" if event["level"] == "Warning" else "", process)
    if _PYTHON_WARNING.search(text):
        return LogLine(text, text, "warning", process)
    header = _HEADER.match(text) or _KLOG.match(text) or _LOGFMT.match(text)
    if header is None:
        return LogLine(text, line, "", process)
    found = header.groupdict()
    level = (found["level"] or found.get("low") or "").upper()
    return LogLine(text, text[header.end() :], _LEVELS.get(level, "info"), process)


def lines_of(text: str) -> Iterator[tuple[int, LogLine]]:
    """Yield the lines of a log with their numbers.

    A progress bar's redraws (carriage returns) and the lines of one JSON message share a number.
    """
    for number, raw in enumerate(text.split("\n"), start=1):
        for part in raw.split("\r"):
            said = json_message(bare(part[:_MOST_JSON])) if _JSON in part else part
            for each in said.split("\n"):
                yield number, read_line(each[:_MOST_LINE])
