"""Remove secrets from text.

Pure but for its list of terms, and linear in the length of the text. A secret is known by its name
(``api_key``, ``--x-password``, ``Cookie``), by its form (``hf_...``, a JWT, a PEM block) or by its
place (the password of a URL). After the name of a secret, its line keeps only terms of a list
(`kept_words.txt`: terms of settings, JSON keys and recorded logs), so that quotes, nesting and
separators need no pattern. A bundle keeps known terms only, wherever they are
(`commands.doctor.bundle`). Forms of tokens: the documentation of each service; where none is
published, assumed.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

REMOVED = "[removed]"
LONGEST_WORD = 4096

_LONGEST_NAME = 128
_LONGEST_KEY_BLOCK = 16384
# lines that a list, an object or a quoted value without its end may take
_MOST_LINES = 64

# --- names ----------------------------------------------------------------------------------------


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SEGMENT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def _segments(name: str) -> list[str]:
    return [segment.lower() for segment in _SEGMENT.findall(name)]


_ALWAYS = (
    "passw", "passphrase", "passwd", "secret", "credential", "privatekey", "accesskey", "apikey",
    "keydata", "requirepass", "sshpass", "pwd", "authkey",
)  # fmt: skip
# names of the place of a secret, not of the secret
_PLACES = _words("file filename path name names ref stdin url dir length policy required")
_HEADERS = _words("authorization cookie cookies")
# tokens and keys that models read and write
_MODEL_WORDS = _words("""
    accept accepted added additional all audio average avg batch batched begin block boa boi bos
    boundary budget cached call capacity class classification classifier cls col completion context
    cost count ctx current decode decoder draft dummy each embed embedding end eoa eoi eol eos eot
    every expert experts fake false first forced from full generated generation global id ids image
    img input inter invalid last latency length level limit logits mask max min mm model moe ms
    multimodal new newline next no num number one output pad padding patch per placeholder pool
    prefill prev previous prompt reasoning row sampled sep sequence single sink soi spec special
    speculative speech split start step stop sum suppress target think thinking threshold throughput
    tile time timestamp timestamps tool top total tpot true ttft type unk video vision window yes
    """)
_KEY_OWNERS = _words("block bucket cache foreign hash kv primary public sort state")
_GRANTED = _words("auth bearer jwt masterauth otp pass passcode session sessionid sid")
_CHINESE = ("密码", "密钥", "令牌", "口令")
_KEYWORD = re.compile(
    r"(?i)token|secret|pass|pwd|credential|auth|cookie|key|jwt|bearer|session|\bsid|otp|login|"
    + "|".join(_CHINESE)
)


@lru_cache(maxsize=4096)
def secret_kind(name: str) -> str:
    """Return the kind of secret that a name indicates, "" for none.

    The kinds are "password", "header" and "token", whose values may be short numbers.
    """
    if name.endswith(_CHINESE):
        return "password"
    segments = _segments(name)
    if not segments or segments[-1] in _PLACES:
        return ""
    last, joined = segments[-1], "".join(segments)
    if last in _HEADERS:
        return "header"
    if any(word in joined for word in _ALWAYS):
        return "password"
    if last in ("key", "keys") and len(segments) > 1 and segments[-2] not in _KEY_OWNERS:
        return "password"
    if last in _GRANTED or segments[-2:] == ["session", "id"]:
        return "token"
    if not any(segment.endswith(("token", "tokens")) for segment in segments):
        return ""
    return "" if _MODEL_WORDS.intersection(segments) else "token"


def is_secret_name(name: str) -> bool:
    """Return True where the value of this name must not be shown.

    It is the name of an option, variable, field or header.
    """
    return bool(secret_kind(name)) and name.lower() != "tokens"


@lru_cache(maxsize=1)
def kept_words() -> frozenset[str]:
    """Return the terms that may stay after a secret."""
    return _words(Path(__file__).with_name("kept_words.txt").read_text(encoding="utf-8"))


_KEPT_FORM = re.compile(r"-{0,2}[A-Za-z][A-Za-z_./-]{0,127}\d{0,2}\.?")
_NUMBER = re.compile(r"-?\d{1,5}(?:\.\d{1,12})?(?:%|/s|[a-z]{1,2})?")


@lru_cache(maxsize=4096)
def _is_known(name: str) -> bool:
    """Return True for a name made of terms of the kept list."""
    segments = _segments(name)
    if not segments or segments[-1] in ("key", "keys"):
        return False
    return kept_words().issuperset(segments)


def _is_kept(word: str) -> bool:
    """Return True for a term, a name or a path that may stay after a secret."""
    return _KEPT_FORM.fullmatch(word) is not None and _is_known(word)


_NOTHING = _words("none null nil true false unset undefined *** **** [] {} ()")
_AUTH_WORDS = _words(
    "basic bearer digest disabled enabled error failed none off ok on optional required"
)


def is_harmless(kind: str, name: str, value: str) -> bool:
    """Return True for a value that is not a secret although its name indicates one."""
    plain = value.strip().rstrip(")]}>.").lower()
    if plain in _NOTHING or value.startswith(REMOVED) or not plain:
        return True
    if kind == "token":
        return plain in _AUTH_WORDS or _NUMBER.fullmatch(plain) is not None
    return name.lower() in ("pwd", "oldpwd") and plain.startswith("/")


# --- secrets known by their form ------------------------------------------------------------------

_FORMS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    # Hugging Face, GitHub, GitLab, npm, PyPI, Docker Hub
    r"(?:hf|api_org)_[A-Za-z0-9]{16,256}|gh[pousr]_[A-Za-z0-9]{8,256}|github_pat_\w{8,256}"
    r"|gl(?:pat|ptt|dt|rt|cbt|ft|soat|agent)-[\w.-]{8,256}|npm_[A-Za-z0-9]{16,256}|pypi-[\w-]{16,512}"
    r"|dckr_(?:pat|oat)_[\w-]{8,256}"
    # OpenAI and others that use its form, NVIDIA, Groq, Replicate, ModelScope
    r"|sk-(?:(?=[\w-]{0,64}\d)[\w-]{8,256}|[A-Za-z]{16,256})|nvapi-[\w-]{8,256}|gsk_[A-Za-z0-9]{16,256}"
    r"|r8_[A-Za-z0-9]{16,256}|ms-(?=[\w-]{0,64}\d)[0-9A-Fa-f-]{16,256}"
    # Slack, Stripe, SendGrid, DigitalOcean, Vault, Tailscale, Atlassian
    r"|xox[a-z]-[\w-]{8,256}|xapp-[\w-]{8,256}|xoxe\.[\w.-]{8,256}|[rsp]k_(?:live|test)_[A-Za-z0-9]{8,256}"
    r"|whsec_[A-Za-z0-9+/=]{16,256}|SG\.[\w-]{8,128}\.[\w-]{8,128}|do[opr]_v1_[0-9a-f]{16,256}"
    r"|hv[sbr]\.[\w-]{16,512}|tskey-[\w-]{8,256}|ATATT[\w=-]{16,512}|AGE-SECRET-KEY-1[A-Z0-9]{16,128}"
    # Amazon, Google, Alibaba, Tencent
    r"|(?:AKIA|ASIA|AROA|AIDA|ABIA|ACCA)[A-Z0-9]{8,64}|AIza[\w-]{20,128}|ya29\.[\w-]{16,512}|GOCSPX-[\w-]{8,128}"
    r"|LTAI[A-Za-z0-9]{12,64}|AKID[A-Za-z0-9]{16,64}"
    # JWT and JWE
    r"|eyJ[\w-]{4,4096}\.[\w-]{4,8192}(?:\.[\w-]{0,8192}){0,3}"
    r")"
)
_SCHEME = re.compile(
    r"(?i)(?<![\w-])(bearer|basic|apikey|negotiate|ntlm|digest|aws4-hmac-sha256)"
    r"[ \t]{1,4}([\w.~+/=:-]{6,4096})"
)
_SCHEME_WORDS = _words("""
    access attention auth authentication authorization configuration credential credentials example
    header headers information method methods model operation schema scheme security server setting
    settings support token tokens usage functions function config features feature checks
    implementation
    """)
# secrets known by their place, after what stays
_PLACED = tuple(
    re.compile(pattern)
    for pattern in (
        r"(hooks\.slack\.com/(?:services|workflows)/)[\w/-]{8,256}",
        # greedy to the last @: a password may have one
        r"(://)[^/\s\"'<>@]{0,512}(?:@[^/\s\"'<>@]{0,512}){0,8}(?=@)",
        # a slash in the password; digits before it are a port
        r"(://)[^/\s\"'<>:@]{1,128}:(?!\d{1,5}[/?#])[^\s\"'<>@]{1,256}(?=@[\w.-])",
        # two short numbers are a user's and a group's IDs
        r"((?:^|[\s\"'])(?:-u|--user|--proxy-user)[\s=\"',]{1,4}(?!\d{1,7}:\d{1,7}(?!\d))[\w.@+-]{1,128}:)"
        r"[^\s\"',]{1,256}",
        r"(\bsshpass[ \t]{1,4}-p[ \t]{0,4})\S{1,256}",
        r"(\blogin\b[^\n]{0,256}?[ \t]-p[ \t]{0,4})\S{1,256}",
        r"(\bwandb login[ \t]{1,4}(?:--\w+[ \t]{1,4}){0,4})[^\s-]\S{1,256}",
        r"(?i)((?:[?&]key|\bsig|\bhmac|signature)=)(?!none\b)[^&\s\"'#<>]{6,4096}",
    )
)
_BEGIN_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_END_KEY = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{1,128}\\?n?")
# {"value": S, "name": N}: the value comes before the name that marks it as a secret
_VALUE_FIRST = re.compile(
    r"(\\{0,3}[\"']value\\{0,3}[\"']\s{0,8}:\s{0,8}\\{0,3}([\"']))([^\"'\n]{1,4096}?)"
    r"(\\{0,3}\2\s{0,8},\s{0,8}\\{0,3}[\"'](?:name|key)\\{0,3}[\"']\s{0,8}:\s{0,8}\\{0,3}[\"'])([\w.-]{1,128})"
)


def redact_text(text: str) -> str:
    """Return the text with every secret replaced by ``[removed]``.

    Everything beyond 4 KiB without a blank is cut.
    """
    text = _without_key_blocks(text)
    text = _VALUE_FIRST.sub(_remove_value_first, text)
    lines = _Lines()
    text = "\n".join(lines.line(line) for line in text.split("\n"))
    text = _FORMS.sub(REMOVED, text)
    text = _SCHEME.sub(_remove_after_scheme, text)
    for pattern in _PLACED:
        text = pattern.sub(rf"\1{REMOVED}", text)
    return cut_long_words(text)


_LONG_WORD = re.compile(rf"(\S{{{LONGEST_WORD}}})(\S+)")


def cut_long_words(text: str) -> str:
    """Return the text with long runs without blanks cut after 4 KiB.

    The rest (an image, a hex dump) is replaced by its length.
    """
    return _LONG_WORD.sub(lambda match: f"{match[1]}[{len(match[2])} characters cut]", text)


def _remove_value_first(match: re.Match[str]) -> str:
    if not is_secret_name(match[5]):
        return match[0]
    return f"{match[1]}{REMOVED}{match[4]}{match[5]}"


def _remove_after_scheme(match: re.Match[str]) -> str:
    word = match[2].rstrip(".:").lower()
    ordinary = word in _SCHEME_WORDS
    # base64 of user:password has capitals inside, a digit or =; ordinary text has none
    plain = word.isalpha() and match[2][1:] == match[2][1:].lower()
    if ordinary or (plain and match[1].lower() != "bearer"):
        return match[0]
    return f"{match[1]} {REMOVED}"


def _without_key_blocks(text: str) -> str:
    """Remove private keys, also one whose beginning or end was cut off with the log."""
    first = _BEGIN_KEY.search(text)
    orphan = _END_KEY.search(text)
    if orphan is not None and (first is None or orphan.start() < first.start()):
        begin = _start_of_key_lines(text, orphan.start())
        text = text[:begin] + REMOVED + text[orphan.end() :]
    parts = []
    position = 0
    while (begin_match := _BEGIN_KEY.search(text, position)) is not None:
        limit = begin_match.end() + _LONGEST_KEY_BLOCK
        end_match = _END_KEY.search(text, begin_match.end(), limit)
        parts += [text[position : begin_match.start()], REMOVED]
        position = end_match.end() if end_match is not None else limit
    return "".join(parts) + text[position:]


def _start_of_key_lines(text: str, end: int) -> int:
    """Return the beginning of the lines of base64 directly before ``end``."""
    begin = text.rfind("\n", 0, end) + 1
    while begin > 0:
        before = text.rfind("\n", 0, begin - 1) + 1
        if not _KEY_LINE.fullmatch(text[before : min(begin - 1, before + 200)].strip()):
            break
        begin = before
    return begin


# --- secrets known by their name ------------------------------------------------------------------

_WORD = re.compile(r"[\w.-]+")
_QUOTE = r"(?:\"\"\"|'''|\\{0,15}[\"']|\\{0,4}u002[27]|%2[27]|&quot;|&#3[49];)"
_COLOUR = r"\x1b\[[0-9;]{0,12}m"
_FIELD = rf"{_QUOTE}?(?:values?|val|content|default){_QUOTE}?[ \t]{{0,16}}[:=][ \t]{{0,16}}"
# what is between a name and its value
_ASSIGNED = re.compile(
    rf"(?i)(?:{_COLOUR}|{_QUOTE}|[\] \t]){{0,24}}(?::=|=>|==|%3[ad]|[:=：>])(?!//)"
    rf"|{_QUOTE}?[ \t]{{0,16}},[ \t]{{0,16}}{_FIELD}"
)
_NEXT_ELEMENT = re.compile(rf"{_QUOTE},")
_PAIR = re.compile(r"[(\[][ \t]{0,4}b?\\{0,3}[\"']$")
_BLANKS = re.compile(rf"(?:{_COLOUR}|[ \t]|\\{{1,8}}[nrt]?){{1,16}}(?=[^\s=:])(?!--)")
_COMMAND = re.compile(r"(?:\bENV|\bset -\w{1,3}|\bsetenv)[ \t]{1,8}$")
_PROSE = re.compile(r"[ \t]{1,4}(?:(?:is|was|are|set to)[ \t]{1,4})?(?=[^\s=:])")
_LOOKS_RANDOM = re.compile(r"(?=[^\d]{0,256}\d)(?=[^A-Za-z]{0,256}[A-Za-z])[A-Za-z0-9_+=.-]{16,}")
_OPENING = re.compile(
    rf"(?:{_COLOUR}|[ \t]){{0,16}}(?:[A-Za-z_][\w.]{{0,64}}\()?[bBuUrRfF]{{0,2}}({_QUOTE})"
)
_ALREADY = re.compile(r"[\s\[{(\"'\\]{1,16}removed\]")
_BARE_END = re.compile(r"[\s,;&|)\]}>]|$")
_BARE = re.compile(r"[ \t]{0,16}([^\s\"',;&\\]{1,4096})")
# nothing of the value is in the line of its name
_EMPTY = re.compile(r"[\s\[{(|>+\\,\"'-]*")
_VALUE_LINE = re.compile(rf"[ \t-]*{_FIELD}", re.I)
_SEPARATORS = r"\s\"'`\[\]{}(),;:=<>\\&|%?"
# of an escaped quote, and of what is removed already
_MARKS = ("u0022", "u0027", "removed")
_PIECE = re.compile(rf"[^{_SEPARATORS}]+")
_REPEATED = re.compile(rf"{re.escape(REMOVED)}(?:[\s,;:=&|]*{re.escape(REMOVED)})+")
# the next term, unless it is a name with a value
_FOLLOWING = re.compile(r"[\s)\]},;\"'>]{1,16}(?!-)([^\s\"'=:]{1,512})(?![\"']?[=:]|[^\s\"'=:])")


class _Lines:
    """One pass over the lines of a text."""

    def __init__(self) -> None:
        self._close()

    def _close(self) -> None:
        # of a value that continues: the lines it may take, its closing quote, its open brackets,
        # the indent of its name, whether list items at this indent belong to it
        self._lines = 0
        self._quote = ""
        self._depth = 0
        self._indent = 0
        self._has_items = self._takes_next = False
        self._takes_first = True

    def line(self, line: str) -> str:
        """Return the next line without secrets."""
        if self._lines and self._continues(line):
            return _filtered(line, 0, takes_first=self._takes_first)
        if _KEYWORD.search(line) is None:
            return line
        for word in _WORD.finditer(line):
            name = word[0].rstrip(".-")
            kind = secret_kind(name[-_LONGEST_NAME:])
            if kind:
                begin, is_value = self._begin(line, name, kind, word.start())
                if begin < len(line) and not (
                    is_value and self._is_harmless(line, name, kind, begin)
                ):
                    self._takes_first = is_value
                    if not self._lines and (_depth(line[begin:]) > 0 or line.count('"') % 2):
                        self._opens(line, begin)
                        self._quote = '"' if line.count('"') % 2 else ""
                    return _filtered(line, begin, takes_first=self._takes_first)
        return line

    def _continues(self, line: str) -> bool:
        self._lines -= 1
        takes_next, self._takes_next = self._takes_next, False
        if self._quote:
            self._quote = "" if self._quote in line else self._quote
            return True
        if self._depth > 0:
            self._depth += _depth(line)
            return True
        words = line.lstrip()
        indent = len(line) - len(words)
        is_item = self._has_items and indent == self._indent and words.startswith("- ")
        if not words or indent > self._indent or is_item or takes_next:
            self._depth = _depth(line)
            self._quote = '"' if line.count('"') % 2 else ""
            return True
        is_value = _VALUE_LINE.match(line) is not None
        self._close()
        return is_value

    def _opens(self, line: str, begin: int) -> None:
        """Note that the value continues in the lines below."""
        words = line.lstrip()
        self._lines = _MOST_LINES
        self._depth = _depth(line[begin:])
        self._indent = len(line) - len(words)
        self._has_items = not words.startswith("- ")
        self._takes_next = line.rstrip().endswith((",", "\\"))

    def _begin(self, line: str, name: str, kind: str, start: int) -> tuple[int, bool]:
        """Return where the text after this name is checked, and True where its value is.

        The line's length: nowhere.
        """
        end = start + len(name)
        is_option = name.startswith("-")
        before = line[max(0, start - 12) : start]
        assigned = _ASSIGNED.match(line, end)
        if assigned is None and (is_option or _PAIR.search(before)):
            assigned = _NEXT_ELEMENT.match(line, end)
        if assigned is None and (is_option or _COMMAND.search(before)):
            assigned = _BLANKS.match(line, end)
        begin = assigned.end() if assigned is not None else end
        if _EMPTY.fullmatch(line, begin):
            self._opens(line, begin)
            self._takes_first = True
            return len(line), False
        if assigned is not None:
            return begin, True
        prose = _PROSE.match(line, end)
        if prose is None:
            return len(line), False
        word = line[prose.end() :].split(maxsplit=1)[0].strip("\"'.,:!?")
        if kind == "password" and name[-3:].lower() != "key":
            goes = not _is_kept(word.lower())
        else:
            goes = _LOOKS_RANDOM.fullmatch(word) is not None
        return (prose.end(), True) if goes else (len(line), False)

    def _is_harmless(self, line: str, name: str, kind: str, begin: int) -> bool:
        if _ALREADY.match(line, begin) is not None:
            return True
        opening = _OPENING.match(line, begin)
        if opening is not None:
            first = opening.end()
            end = line.find(opening[1], first)
            if end < 0:
                self._opens(line, begin)
                self._quote = opening[1]
                return False
            value, after = line[first:end], end + len(opening[1])
            if _BARE_END.match(line, after) is None:
                return False
        else:
            if line[begin:].lstrip()[:1] in ("[", "{", "(") and _depth(line[begin:]) > 0:
                self._opens(line, begin)
            bare = _BARE.match(line, begin)
            if bare is None:
                return line[begin : begin + 1] in (",", "&", ";")
            value, after = bare[1], bare.end()
        following = _FOLLOWING.match(line, after)
        if following is not None and not _is_kept(following[1]):
            return False
        return is_harmless(kind, name, value)


def _depth(text: str) -> int:
    text = text.replace("\x1b[", "")
    return sum(text.count(each) for each in "[{(") - sum(text.count(each) for each in "]})")


def _filtered(line: str, begin: int, *, takes_first: bool) -> str:
    """Return the line with kept terms only from ``begin``.

    The first value of a secret goes in any case. A number stays after a kept term.
    """
    if begin >= len(line):
        return line
    parts, position = [line[:begin]], begin
    opening = _OPENING.match(line, begin) if takes_first else None
    close = line.find(opening[1], opening.end()) if opening is not None else -1
    if opening is not None and close > opening.end():
        parts += [line[begin : opening.end()], REMOVED]
        position, takes_first = close, False
    takes, after_kept = takes_first, not takes_first
    for piece in _PIECE.finditer(line, position):
        word = piece[0]
        is_number = after_kept and _NUMBER.fullmatch(word) is not None
        stays = not takes and (is_number or _is_kept(word))
        is_mark = word in _MARKS or not word.strip("-^*#/.~+")
        takes = (
            is_mark
            if takes
            else bool(secret_kind(word)) and kept_words().issuperset(_segments(word))
        )
        parts.append(line[position : piece.start()])
        parts.append(word if stays or takes or is_mark else REMOVED)
        position, after_kept = piece.end(), stays
    return _REPEATED.sub(REMOVED, "".join(parts) + line[position:])
