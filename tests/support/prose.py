"""Wording habits that the project avoids, and the texts to check for them."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Habit:
    """A pattern to avoid, with an example, a text that passes, and what to write."""

    pattern: str
    caught: str
    passes: str
    instead: str

    def found(self, text: str) -> str:
        """Return the first match in ``text``, "" without one."""
        match = re.search(self.pattern, text, re.IGNORECASE)
        return match.group(0) if match else ""


@dataclass(frozen=True)
class Passage:
    """A docstring or a comment with its place."""

    path: Path
    line: int
    text: str


_COUNTED = (
    "bytes|kB|MiB|MB|GiB|GB|seconds|ms|tokens|cards|requests|replicas|steps|graphs|blocks|processes|copies|nodes|"
    "engines|prompts|times|rows|operations|calls|lines|files|one"
)
_COUNTED_PER = (
    "second|minute|hour|day|card|step|replica|request|token|node|host|process|copy|core|group|layer|graph|rank|"
    "weight|prompt|sequence"
)

HABITS = (
    Habit(r"\btold\b", "the kernel told no size", "the tolerance", "reported, stated, given"),
    Habit(
        r"\btells?\b(?! apart)",
        "as /proc tells",
        "two names that nothing can tell apart",
        "shows, reports",
    ),
    Habit(r"\bsaid\b", "what hl-smi said", "the aside", "reported, stated"),
    Habit(r"\bsays? so\b", "the plan says so", "it says why", "states it, shows it"),
    Habit(r"\bask(?:ed|s)\b", "the asked length", "a task", "requested, queried, read"),
    Habit(r"\bwish(?:es|ed)?\b", "what the user wished", "a wash", "requested, options"),
    Habit(r"\bwanted\b", "the wanted port", "an unwarranted port", "requested, expected, required"),
    Habit(r"\bbehind (?:the )?--", "options behind --", "a server behind a proxy", "after --"),
    Habit(
        r"\bwhole\b",
        "the whole path",
        "a wholesale change",
        "complete, absolute (path), all, integer",
    ),
    Habit(r"\blies?\b", "the file lies in /tmp", "the cache is in /tmp", "is, is stored in"),
    Habit(
        r"\bstands?\b(?!-| for\b)",
        "its source stands in the profile",
        "a folder that stands for /",
        "is, is stored in, is written in",
    ),
    Habit(r"\bis there\b(?! an?\b)", "when the file is there", "there is a file", "exists"),
    Habit(r"\bhouse\b", "everything else in the house", "a warehouse", "package, module"),
    Habit(
        r"\b(?:other|one|its own) homes?\b",
        "the one home of it",
        "the user's home folder",
        "target, package, module",
    ),
    Habit(
        r"\b(?:other|this|another) rooms?\b",
        "records of other rooms",
        "room for more blocks",
        "package, module",
    ),
    Habit(
        r"\b(?:goes|go|going|went) on\b", "the pull goes on", "what follows", "continues, resumes"
    ),
    Habit(
        r"\bholds?\b(?! (?:the|a|its|this|that|no|any) locks?\b)",
        "the folder holds files",
        "the process that holds the lock",
        "contains, owns, locks, uses",
    ),
    Habit(
        r"\b(?:a|this|each|every|that|one) start\b(?!-| script)",
        "before a start",
        "the start script",
        "launch",
    ),
    Habit(r"\blife of\b", "for the life of a service", "a lifeline", "run"),
    Habit(r"\bpatience\b", "the patience of a client", "a patient", "timeout"),
    Habit(
        r"\b(?:no|some)body\b",
        "nobody knows it",
        "no process knows it",
        "no process, another process, not yet",
    ),
    Habit(
        rf"\b(?:{_COUNTED}) an? (?:{_COUNTED_PER})\b",
        "bytes a second",
        "a second step",
        "per: bytes per second",
    ),
    Habit(
        r"(?<!there )\b(?:is|are|was|were) no (?!longer\b|larger\b|more than\b|other\b)",
        "'x' is no server",
        "there is no server; it is no longer valid",
        "is not a",
    ),
    Habit(r"\bquick(?:er|est|ly)?\b", "a quick check", "a quickstart", "fast, short"),
    Habit(
        r"\bso (?:many|much|few|long)\b(?! as\b)", "so many cards", "so long as it runs", "N, this"
    ),
    Habit(r"\bsuch an?\b", "such a file", "models such as this", "this"),
    Habit(r"\bwords?\b", "the words after --", "a keyword", "options, arguments, values"),
    Habit(
        r"\bof (?:(?:its|their|our|his|your) own|ours)\b",
        "a folder of its own",
        "its owner",
        "separate, or drop",
    ),
    Habit(
        r"\bbeside\b", "the file beside it", "modules besides the driver", "next to, in addition to"
    ),
    Habit(r"\banew\b", "written anew", "a new file", "again"),
    Habit(r"\bputs? right\b", "it puts right what it may", "put it right after", "repair, fix"),
    Habit(
        r"\bbeliev(?:e|es|ed)\b",
        "it cannot be believed",
        "a relieved user",
        "trusted, valid, damaged",
    ),
    Habit(r"\bhurr(?:y|ies)\b", "Ctrl-C again hurries", "a hurricane", "forces"),
)

# a heading or docstring is a noun phrase or an imperative
OPENING = Habit(
    r"^(?:What|Whether|Which|Who|Whose|How|Where|Why|Is|Are|Does|Do|Has|Have|Can|May|Did|Was|Could|Would|Will)\b",
    "What is known of a card",
    "Return what is known of a card",
    "a noun phrase or an imperative",
)


@cache
def plain(text: str) -> str:
    """Return ``text`` without code, options, placeholders, paths and quotations."""
    text = re.sub(r"```.*?```", " ", text, flags=re.DOTALL)
    text = re.sub(r"(?m)^ *(?:>>>|\.\.\. |\.\.\.$).*(?:\n(?! *\n).*)*", " ", text)
    text = re.sub(r"``.*?``|`[^`]*`", " CODE ", text, flags=re.DOTALL)
    text = re.sub(r"\{\w*\}", " X ", text)
    text = re.sub(r'"[^"]*"', " QUOTE ", text)
    text = re.sub(r"(?<![\w])'[^'\n]*'(?!\w)", " QUOTE ", text)
    text = re.sub(r"\]\([^)]*\)", "] ", text)
    text = re.sub(r"(?<![\w-])--?[a-zA-Z][\w-]*", " OPTION ", text)
    text = re.sub(r"\S*[_/@]\S*", " NAME ", text)
    text = re.sub(r"\b\w+(?:\.\w+)+\b", " NAME ", text)
    return re.sub(r"\s+", " ", text).strip()


GENERATED = re.compile(r"<!-- generated .*?: begin -->.*?<!-- generated .*?: end -->", re.DOTALL)


def written_by_hand(path: Path) -> str:
    """Return a document without what scripts made of texts checked elsewhere."""
    text = path.read_text(encoding="utf-8")
    if path.stem.removesuffix("_zh") in ("commands", "troubleshooting"):
        return GENERATED.sub("", text)
    return text


def paragraphs(document: str) -> list[str]:
    """Return the paragraphs and table rows of a Markdown document, without code."""
    text = re.sub(r"```.*?```", "", document, flags=re.DOTALL)
    return [part.strip() for part in re.split(r"\n{2,}|\n(?=\|)", text) if part.strip()]


def headings(document: str) -> list[str]:
    """Return the headings of a Markdown document."""
    text = re.sub(r"```.*?```", "", document, flags=re.DOTALL)
    return re.findall(r"(?m)^#+ (.*)$", text)


@cache
def docstrings(path: Path) -> list[Passage]:
    """Return the docstrings of a file, also those below a name."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        if isinstance(node.value.value, str):
            found.append(Passage(path, node.lineno, node.value.value))
    return found


def sentences(path: Path) -> Iterator[Passage]:
    """Yield the texts of three parts and more in the code, except for docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            not isinstance(node, ast.Constant)
            or not isinstance(node.value, str)
            or id(node) in alone
        ):
            continue
        if node.value.count(" ") >= 2:
            yield Passage(path, node.lineno, node.value)


def comments(path: Path) -> Iterator[Passage]:
    """Yield the comments of a file; those on neighbouring lines are one passage."""
    block: list[str] = []
    start = last = 0
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if block and line != last + 1:
            yield Passage(path, start, "\n".join(block))
            block = []
        if not block:
            start = line
        block.append(token.string.lstrip("#! "))
        last = line
    if block:
        yield Passage(path, start, "\n".join(block))
