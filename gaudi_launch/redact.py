"""Remove secrets from text, argument lists and JSON values.

Pure, and linear in the length of the text. A secret is known by its name (``api_key``,
``--x-password``, ``Cookie``), by its form (``hf_...``, a JWT, a PEM block) or by its place (the
password of a URL). Names of counts (``max_num_batched_tokens``, ``eos_token_id``) are not secrets.
Forms of tokens: the documentation of each service; where none is published, assumed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gaudi_launch.optional import mapped

REMOVED = "[removed]"
LONGEST_WORD = 4096

_LONGEST_NAME = 128
_LONGEST_GROUP = 4096
_LONGEST_KEY_BLOCK = 16384
# characters that searches for a missing closing bracket may cost in one text
_SEARCH_BUDGET = 1 << 18

# --- names ----------------------------------------------------------------------------------------


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SEGMENT = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ALWAYS = (
    "passw", "passphrase", "passwd", "secret", "credential", "privatekey", "accesskey", "apikey",
    "signingkey", "encryptionkey", "accountkey", "sharedkey", "subscriptionkey", "masterkey",
    "authkey", "licensekey", "keydata", "sshkey", "hmackey", "sessionkey", "requirepass", "sshpass",
)  # fmt: skip
# names of the place of a secret, not of the secret
_PLACES = frozenset(
    (
        "file",
        "filename",
        "path",
        "name",
        "names",
        "ref",
        "stdin",
        "url",
        "dir",
        "length",
        "policy",
        "required",
    )
)
_HEADERS = frozenset(("authorization", "cookie", "cookies"))
# tokens that models read and write
_MODEL_WORDS = _words("""
    added all audio average avg batched bos boi budget cached call class cls context cost count ctx
    current decode draft each embedding end eoi eos eot every first generated generation image img
    input inter invalid last latency length level limit logits mask max min model ms multimodal new
    newline next num number one output pad patch per placeholder prefill prev previous prompt
    reasoning sampled sep sink single soi special spec speculative speech start stop sum target
    think thinking throughput time tool top total tpot ttft type unk video vision window
    """)
_TOKEN_OWNERS = _words(
    "access api auth bearer hf hub huggingface github gitlab id refresh session user"
)
_TOKEN_TAILS = _words("value string data secret key prod read write")
_PASS_OWNERS = _words("admin db ftp mail mysql postgres proxy redis root smtp ssh user")
# a name is checked only where it contains one of these
_KEYWORD = re.compile(
    r"(?i)token|secret|pass(?:w|phrase)|pwd|_pass|requirepass|sshpass|credential|authorization|auth"
    r"|cookie|sig|key[-_]?data|(?:api|access|private|signing|encryption|account|shared|subscription"
    r"|master|license|ssh|hmac|session)[-_. ]?key|jwt|bearer|密码|密钥|令牌|口令"
)
_CHINESE = ("密码", "密钥", "令牌", "口令")


@lru_cache(maxsize=4096)
def secret_kind(name: str) -> str:
    """Return the kind of secret that a name indicates, "" for none.

    The kinds are "password", "token", "header", "auth" and "signature".
    """
    if name.endswith(_CHINESE):
        return "password"
    segments = [segment.lower() for segment in _SEGMENT.findall(name)]
    if not segments:
        return ""
    last, joined = segments[-1], "".join(segments)
    if last in _PLACES:
        return ""
    if last in _HEADERS:
        return "header"
    if any(word in joined for word in _ALWAYS) or "pwd" in joined or _is_pass(segments, name):
        return "password"
    if "token" in joined:
        return _token_kind(segments)
    if last in ("jwt", "bearer"):
        return "token"
    if last in ("auth", "masterauth"):
        return "auth"
    if last in ("signature", "sig"):
        return "signature"
    return ""


def is_secret_name(name: str) -> bool:
    """Return True where the value of this name must not be shown.

    It is the name of an option, variable, field or header.
    """
    return secret_kind(name) not in ("", "signature")


def _is_pass(segments: list[str], name: str) -> bool:
    if segments[-1] != "pass" or len(segments) == 1:
        return False
    return name.isupper() or segments[-2] in _PASS_OWNERS


def _token_kind(segments: list[str]) -> str:
    """Name the kind of a token: one that grants access, or one of a model's text."""
    others = [segment for segment in segments if not segment.endswith(("token", "tokens"))]
    owned = bool(_TOKEN_OWNERS.intersection(others)) and not _MODEL_WORDS.intersection(others)
    last = segments[-1]
    if last.endswith("tokens"):
        if owned and segments[-2:-1] != ["id"]:
            return "token"
        return ""
    if last.endswith("token"):
        if _MODEL_WORDS.intersection(others):
            return ""
        return "token"
    if not any(segment.endswith("token") for segment in segments):
        return ""
    if last in ("id", "ids") or _MODEL_WORDS.intersection(others):
        return ""
    if owned or last in _TOKEN_TAILS:
        return "token"
    return ""


_NOTHING = frozenset(
    ("", "none", "null", "nil", "true", "false", "unset", "undefined", "***", "****")
)
_AUTH_WORDS = _words(
    "basic bearer digest disabled enabled error failed none off ok on optional required"
)
_SHORT_NUMBER = re.compile(r"-?\d{1,5}(?:\.\d{1,12})?(?:%|/s|[a-z]{1,2})?")


def _is_harmless(kind: str, name: str, value: str) -> bool:
    """Return True for a value that is not a secret although its name indicates one."""
    plain = value.strip().lower()
    if plain in _NOTHING or plain.startswith(REMOVED):
        return True
    if kind == "token":
        return bool(_SHORT_NUMBER.fullmatch(plain))
    if kind == "auth":
        return plain in _AUTH_WORDS
    if kind == "signature":
        return len(plain) < 16 or " " in plain
    return name.lower() in ("pwd", "oldpwd") and plain.startswith("/")


# --- secrets known by their form
# -------------------------------------------------------------------------------

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
_SLACK_HOOK = re.compile(r"(hooks\.slack\.com/(?:services|workflows)/)[\w/-]{8,256}")
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
# greedy to the last @: a password may have one
_URL_USER = re.compile(r"(://)([^/\s\"'<>@]{0,512}(?:@[^/\s\"'<>@]{0,512}){0,8})@")
# a slash in the password; digits before it are a port
_URL_SLASH = re.compile(r"(://)[^/\s\"'<>:@]{1,128}:(?!\d{1,5}[/?#])[^\s\"'<>@]{1,256}@(?=[\w.-])")
# two short numbers are a user's and a group's IDs
_CURL_USER = re.compile(
    r"((?:^|[\s\"'])(?:-u|--user|--proxy-user)[\s=\"',]{1,4}(?!\d{1,7}:\d{1,7}(?!\d))[\w.@+-]{1,128}:)([^\s\"',]{1,256})"
)
_SSHPASS = re.compile(r"(\bsshpass[ \t]{1,4}-p[ \t]{0,4})([^\s]{1,256})")
_QUERY_KEY = re.compile(r"([?&](?:key|sig|signature|hmac)=)([^&\s\"'#<>]{6,4096})", re.I)
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
    text = _without_named(text)
    text = _FORMS.sub(REMOVED, text)
    text = _SLACK_HOOK.sub(rf"\1{REMOVED}", text)
    text = _SCHEME.sub(_remove_after_scheme, text)
    text = _URL_USER.sub(_remove_url_user, text)
    text = _URL_SLASH.sub(rf"\1{REMOVED}@", text)
    text = _CURL_USER.sub(_remove_password, text)
    text = _SSHPASS.sub(rf"\1{REMOVED}", text)
    text = _QUERY_KEY.sub(rf"\1{REMOVED}", text)
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


def _remove_url_user(match: re.Match[str]) -> str:
    if match[2] == REMOVED:
        return match[0]
    return f"{match[1]}{REMOVED}@"


def _remove_password(match: re.Match[str]) -> str:
    if match[2] == REMOVED:
        return match[0]
    return f"{match[1]}{REMOVED}"


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

_NAME_PART = re.compile(r"[\w.-]+")
_QUOTE = r"(?:\\{0,15}[\"']|\\{1,4}u002[27]|%2[27]|&quot;|&#3[49];)"
_COLOUR = r"(?:\x1b\[[0-9;]{0,12}m){0,4}"
# what is between a name and its value
_ASSIGNED = re.compile(
    rf"{_COLOUR}{_QUOTE}?\]?{_COLOUR}[ \t]{{0,16}}(?::=|=>|==|%3[AaDd]|[:=：])"
    rf"{_COLOUR}[ \t]{{0,16}}{_COLOUR}(?:%20)?"
)
_NEXT_ELEMENT = re.compile(rf"{_QUOTE},[ \t]{{0,16}}(?:\n[ \t]{{0,64}})?")
_VALUE_FIELD = re.compile(
    rf"{_QUOTE}?[ \t]{{0,16}}(?:,\s{{0,64}}|\n"
    rf"[ \t]{{1,64}}){_QUOTE}?(?:value|val|content){_QUOTE}?[ \t]{{0,16}}[:=][ \t]{{0,16}}"
)
_SPACES = re.compile(rf"{_COLOUR}[ \t]{{1,16}}(?=[^\s=:])")
_PROSE = re.compile(r"[ \t]{1,4}(?:(?:is|was|are|set to)[ \t]{1,4})?(?=[^\s=:])")
_PROSE_WORDS = _words("""
    a an and are argument as at authentication auth based be been by cannot can change could does
    entry error expired failed field file for from given has have hash here if in incorrect input
    into invalid is it login may method mismatch missing must needed new not of on only option or
    policy prompt protected provided required reset rules set shall should store the this to too
    unset use used value verification via was were when which while will with without wrong you your
    protection length
    """)
_LOOKS_RANDOM = re.compile(
    r"(?=[A-Za-z0-9_+/=.-]{0,256}\d)(?=[A-Za-z0-9_+/=.-]{0,256}[A-Za-z])[A-Za-z0-9_+/=.-]{16,}"
)
_OPENING = re.compile(rf"(?:[A-Za-z_][\w.]{{0,64}}\()?[bBuUrRfF]{{0,2}}({_QUOTE})")
_BARE = re.compile(r"(?:(?![,;&][\"']?[\w.-]{1,64}[\"']?[:=])[^\s\"'\\])+")
_ENVIRONMENT_VALUE = re.compile(r"\S+")
_AFTER_QUOTED = re.compile(r"[^\s,;)\]}:&<>|\\\"']+")
_GIVEN_BACK = ",;)]}>"
_BRACKET = re.compile(r"[\[{(]|[\]})]|\\.|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'")
_HEADER_END = re.compile(r"$|\\r|\\n", re.M)
_BLOCK_SCALAR = re.compile(r"[ \t]{0,16}(?:[|>][+-]?\d?)?[ \t]{0,16}\r?\n")
_INDENTED_LINE = re.compile(r"[ \t]*[^\n]*(?:\n|\Z)")


def _without_named(text: str) -> str:
    return _Scanner(text).run()


@dataclass(frozen=True)
class _Name:
    """A name that indicates a secret, at [begin, end) of the text."""

    text: str
    kind: str
    begin: int
    end: int

    @property
    def is_option(self) -> bool:
        return self.text.startswith("-") and not self.text.startswith("---")


class _Scanner:
    """One pass over a text: each name of a secret, its assignment, its value."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._budget = _SEARCH_BUDGET

    def run(self) -> str:
        parts = []
        kept = position = 0
        while (hit := _KEYWORD.search(self._text, position)) is not None:
            name = self._name(hit, max(kept, position))
            position = max(hit.end(), name.end)
            if not name.kind:
                continue
            span = self._value(name)
            if span is None:
                continue
            begin, end = span
            if _is_harmless(name.kind, name.text, self._text[begin:end].strip("\"'\\")):
                continue
            parts += [self._text[kept:begin], REMOVED]
            kept = position = end
        return "".join(parts) + self._text[kept:]

    def _name(self, hit: re.Match[str], floor: int) -> _Name:
        text = self._text
        begin = hit.start()
        lowest = max(floor, begin - _LONGEST_NAME)
        while begin > lowest and (text[begin - 1].isalnum() or text[begin - 1] in "_.-"):
            begin -= 1
        rest = _NAME_PART.match(text, hit.end(), hit.end() + _LONGEST_NAME)
        end = rest.end() if rest is not None else hit.end()
        word = text[begin:end].rstrip(".-")
        kind = secret_kind(word)
        return _Name(word, kind, begin, begin + len(word))

    def _value(self, name: _Name) -> tuple[int, int] | None:
        """Return the begin of the value assigned to a name, None without one."""
        text = self._text
        assigned = _ASSIGNED.match(text, name.end)
        if assigned is not None:
            return self._assigned(name, assigned)
        if name.kind == "signature":
            return None
        field = _VALUE_FIELD.match(text, name.end)
        if field is not None:
            return self._any_value(name, field.end())
        element = _NEXT_ELEMENT.match(text, name.end)
        if element is not None:
            return self._next_element(name, element.end())
        if text.startswith("<", name.begin - 1) and text.startswith(">", name.end):
            end = text.find("<", name.end, name.end + LONGEST_WORD)
            if end >= 0:
                return (name.end + 1, end)
            return (name.end + 1, self._line_end(name.end))
        if name.is_option or self._is_set_by_command(name):
            return self._after_spaces(name)
        return self._prose(name)

    def _assigned(self, name: _Name, assigned: re.Match[str]) -> tuple[int, int] | None:
        text, begin = self._text, assigned.end()
        if not self._is_assignment(name, assigned):
            return None
        block = _BLOCK_SCALAR.match(text, begin)
        if block is not None:
            return self._indented(name, block.end())
        first, is_opening = text[begin : begin + 1], _OPENING.match(text, begin) is not None
        if name.kind == "header" and not is_opening and first not in "[{(":
            return begin, self._header_end(name, begin)
        if assigned[0] != "=":
            return self._any_value(name, begin)
        quoted = self._in_outer_quotes(name, begin)
        if quoted is not None:
            return quoted
        before = text[name.begin - 1 : name.begin]
        at_line = before in ("", "\n") or text.endswith("export ", 0, name.begin)
        if at_line and not is_opening:
            value = _ENVIRONMENT_VALUE.match(text, begin)
            return mapped(lambda match: (begin, match.end()), value)
        return self._any_value(name, begin)

    def _is_assignment(self, name: _Name, assigned: re.Match[str]) -> bool:
        """Return False for a signature's colon and for a scheme, as in token://."""
        if name.kind == "signature" and "=" not in assigned[0]:
            return False
        return not (self._text.startswith("//", assigned.end()) and ":" in assigned[0])

    def _in_outer_quotes(self, name: _Name, begin: int) -> tuple[int, int] | None:
        """Return the span of a value whose quotes are around the name, too."""
        text = self._text
        before = text[name.begin - 1 : name.begin]
        is_word = name.is_option or name.text.isupper()
        if not is_word or before not in ('"', "'") or text.startswith(("'", '"'), begin):
            return None
        end = text.find(before, begin, min(self._line_end(begin), begin + LONGEST_WORD))
        if end <= begin:
            return None
        return begin, end

    def _any_value(self, name: _Name, begin: int) -> tuple[int, int] | None:
        """Return the span of a quoted text, of a list or object, or of a bare text."""
        text = self._text
        opening = _OPENING.match(text, begin)
        if opening is not None:
            return self._quoted(opening)
        if text[begin : begin + 1] in ("[", "{", "(") and not text.startswith(REMOVED, begin):
            return begin, self._group_end(begin)
        if text.startswith(REMOVED, begin):
            return None
        return self._bare(begin)

    def _bare(self, begin: int) -> tuple[int, int] | None:
        text = self._text
        word = _BARE.match(text, begin)
        if word is None:
            return None
        end = word.end()
        while (
            end < len(text)
            and text[end] == "\\"
            and text[end + 1 : end + 2] not in ("n", "r", "t", '"', "'", "")
        ):
            # a backslash inside the text
            more = _BARE.match(text, end + 1)
            if more is None:
                break
            end = more.end()
        while end > begin + 1 and text[end - 1] in _GIVEN_BACK:
            end -= 1
        return begin, end

    def _quoted(self, opening: re.Match[str]) -> tuple[int, int]:
        """Return the span of a quoted text, however deep its quotes are escaped."""
        text, begin, delimiter = self._text, opening.end(), opening[1]
        last = self._line_end(begin)
        quote = delimiter[-1]
        if delimiter in ('"', "'") and text.startswith(quote * 2, begin):
            end = text.find(quote * 3, begin + 2)
            if end >= 0:
                return (begin + 2, end)
            return (begin + 2, last)
        if quote not in "\"'":
            end = text.find(delimiter, begin, last)
            if end < 0:
                end = last
            return begin, end
        depth = len(delimiter) - 1
        for match in re.compile(rf"(\\*){quote}").finditer(text, begin, last):
            slashes = len(match[1])
            # an inner quote has more backslashes than the opening one
            if slashes < depth or (slashes - depth) % (2 * (depth + 1)) == 0:
                end = match.end() - 1 - min(depth, slashes)
                return begin, self._joined(end, depth)
        return begin, last

    def _joined(self, end: int, depth: int) -> int:
        """Return the end of a shell argument that continues after quotes: 'it'"'"'s'."""
        text = self._text
        if depth:
            return end
        position = end + 1
        while True:
            more = _AFTER_QUOTED.match(text, position)
            if more is not None:
                position = more.end()
            elif text[position : position + 1] in ('"', "'"):
                close = text.find(text[position], position + 1, self._line_end(position))
                if close < 0:
                    break
                position = close + 1
            else:
                break
        return end if position == end + 1 else position

    def _group_end(self, begin: int) -> int:
        """Return the end of a list or object.

        For one that never closes, it is the end of its line.
        """
        depth, last = 0, begin
        limit = begin + _LONGEST_GROUP
        for match in _BRACKET.finditer(self._text, begin, limit):
            if match[0] in "[{(":
                depth += 1
            elif match[0] in ")}]":
                depth -= 1
            last = match.end()
            if depth == 0:
                return last
        self._budget -= _LONGEST_GROUP
        end = self._line_end(begin)
        if self._budget > 0:
            return end
        return max(end, min(limit, len(self._text)))

    def _header_end(self, name: _Name, begin: int) -> int:
        """Return the end of a header's value: that of its line, or of its quotes."""
        text = self._text
        end = self._line_end(begin)
        escaped = _HEADER_END.search(text, begin, end)
        if escaped is not None:
            end = escaped.start()
        before = text[name.begin - 1 : name.begin]
        if before in ('"', "'") and before:
            close = text.find(before, begin, end)
            return close if close >= 0 else end
        return end

    def _indented(self, name: _Name, begin: int) -> tuple[int, int] | None:
        """Return the span of the lines below a YAML key that belong to it."""
        text = self._text
        line = text.rfind("\n", max(0, name.begin - 256), name.begin) + 1
        own = len(text[line : name.begin]) - len(text[line : name.begin].lstrip(" \t"))
        end = begin
        while end < len(text):
            match = _INDENTED_LINE.match(text, end)
            words = match[0] if match is not None else ""
            indent = len(words) - len(words.lstrip(" \t"))
            listed = indent == own and words.lstrip(" \t").startswith("- ")
            if match is None or not words.strip() or not (indent > own or listed):
                break
            end = match.end()
        first = len(text[begin:end]) - len(text[begin:end].lstrip(" \t"))
        stop = begin + len(text[begin:end].rstrip())
        if stop > begin + first:
            return (begin + first, stop)
        return None

    def _next_element(self, name: _Name, begin: int) -> tuple[int, int] | None:
        """Return the element of a list after an option's or a header's name."""
        opening = _OPENING.match(self._text, begin)
        opened_by_pair = self._text[max(0, name.begin - 3) : name.begin].lstrip("\"' b")[:1] in (
            "(",
            "[",
        )
        before = self._text[max(0, name.begin - 4) : name.begin]
        is_pair = opened_by_pair or re.search(r"[(\[]b?\\{0,3}[\"']$", before) is not None
        if opening is None or not (name.is_option or is_pair):
            return None
        return self._quoted(opening)

    def _is_set_by_command(self, name: _Name) -> bool:
        """Return True for ``ENV NAME value`` of a Dockerfile, and ``set -x NAME value``."""
        before = self._text[max(0, name.begin - 12) : name.begin]
        return name.text.isupper() and before.endswith(
            ("ENV ", "set -x ", "set -gx ", "setenv ", "set -Ux ")
        )

    def _after_spaces(self, name: _Name) -> tuple[int, int] | None:
        spaces = _SPACES.match(self._text, name.end)
        if spaces is None or self._text.startswith("--", spaces.end()):
            return None
        return self._any_value(name, spaces.end())

    def _prose(self, name: _Name) -> tuple[int, int] | None:
        """Return the text after "password", or a random one after another secret's name."""
        spaces = _PROSE.match(self._text, name.end)
        if spaces is None:
            return None
        span = self._any_value(name, spaces.end())
        if span is None:
            return None
        word = self._text[span[0] : span[1]]
        joined = name.text.lower().replace("_", "")
        if joined.endswith(
            ("password", "passphrase", "passwd", "requirepass")
        ) or name.text.endswith(_CHINESE):
            if word.lower().strip(".,:!?") in _PROSE_WORDS:
                return None
            return span
        if _LOOKS_RANDOM.fullmatch(word) and not word.startswith("/"):
            return span
        return None

    def _line_end(self, begin: int) -> int:
        end = self._text.find("\n", begin)
        return end if end >= 0 else len(self._text)


# --- argument lists and JSON values ---------------------------------------------------------------

_NAME_FIELDS = ("name", "key", "option", "flag", "header", "variable")
_VALUE_FIELDS = ("value", "values", "val", "content", "default")


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """Return an argument list without secrets: ``--x-key S`` and ``--x-key=S``."""
    return [str(each) for each in _redact_list(arguments)]


def redact_document(value: Any, name: str = "") -> Any:
    """Return a JSON value without secrets.

    ``name`` is the field's; if it indicates a secret, everything below it is one.
    """
    kind = secret_kind(name) if name else ""
    if kind and kind != "signature" and not isinstance(value, bool) and value is not None:
        if isinstance(value, (Mapping, list, tuple)):
            return REMOVED if value else value
        if _is_harmless(kind, name, str(value)):
            return value
        return REMOVED
    if isinstance(value, Mapping):
        return _redact_mapping(value)
    if isinstance(value, (list, tuple)):
        return _redact_list(value)
    if isinstance(value, str):
        return redact_text(value)
    return value


def _redact_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    named = any(
        isinstance(value.get(field), str) and is_secret_name(value[field]) for field in _NAME_FIELDS
    )
    is_secret = value.get("kind") == "Secret"
    redacted: dict[str, Any] = {}
    for key, inner in value.items():
        hidden = (named and key in _VALUE_FIELDS) or (is_secret and key in ("data", "stringData"))
        if hidden and inner is not None:
            redacted[redact_text(str(key))] = REMOVED
        else:
            redacted[redact_text(str(key))] = redact_document(inner, str(key))
    return redacted


def _redact_list(values: Sequence[Any]) -> list[Any]:
    redacted: list[Any] = []
    before: Any = None
    for value in values:
        hidden = isinstance(before, str) and _names_the_next(before, is_pair=len(values) == 2)
        redacted.append(REMOVED if hidden else redact_document(value))
        before = value
    return redacted


def _names_the_next(word: str, *, is_pair: bool) -> bool:
    """Return True for an option whose value is the next element.

    Also for the first of a name and its value.
    """
    if not _NAME_PART.fullmatch(word) or not is_secret_name(word):
        return False
    return is_pair or word.startswith("-")
