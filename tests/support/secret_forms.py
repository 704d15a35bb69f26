"""Forms of a setting in a text: name x separator x quotes or list x surroundings."""

from __future__ import annotations

import base64
import itertools
import json
import random
import re
import string

SECRET_NAMES = (
    *("--api-key", "--admin-key", "--x-password", "HF_TOKEN", "api_key", "password", "pass"),
    *("session_id", "fernet_key", "tokens", "client-key-data", "Authorization", "accessToken"),
    *("X-Auth-Token", "DB_PASS", "密码"),
)
# of nothing that a list has, and without a name: a secret by its place, or by nothing
OTHER_NAMES = (
    *("--zorb", "-p", "ZORB", "zorb", "my.zorb", "zorb-x", "docker login -u u -p", "wandb login"),
    *(
        "login",
        "Authorization: Bearer",
        "https://u:",
        "echo",
        "KeyError",
        "私钥",
        "用户",
        "code",
        "",
    ),
)
_EQUALS = ("=", " = ", ":=", "=>", " => ", "==", "%3D", '": "', "': '")
_COLONS = (": ", " : ", ":\n  ", ":\n- ", ": |\n  ", "=\\\n", '\\": \\"', ": !!str ")
_NEXT = (" ", "\t", "', '", '", "', " \\\n  ")
_ODD = ("", ":", "/", "|", "@", "#", " is ", "是", "：", "\n- ", "\x00")
_QUOTED = (
    *("S", "'S'", '"S"', '\\"S\\"', "b'S'", "['S']", "['first', 'S']", "first S", "first, S"),
    *('"first S"', "{'v': 'S'}", "SecretStr('S')", "`S`", '"""S"""', "'''S'''", "%22S%22", "(S)"),
    *("&quot;S&quot;", "\x1b[31mS\x1b[0m", "[\n  S\n]", "[\n  first,\n  S\n]", "<S>", "$(echo S)"),
    *("'it'\"'\"'S'", "\\u0022S\\u0022", "first:S", "first/S", "{\n  S\n}", '"first\nS"'),
    *("4711 S", "u=S", "a,b;c&S", "max S", "'max' 'S'"),
)
_AROUND = (
    *("{}", "INFO 11-20 x {}", "Namespace(host=None, {}, port=1)", '{{"a": {{"b": [{}]}}}}'),
    *("vllm serve m {} --port 80", "- {}", "    {}", "env {} vllm", "export {}", "# {}", "<a {}>"),
    *("['vllm', '{}', 'x']", '["vllm", "{}"]', "curl -H '{}' http://h", "x;{};y", "x && {}"),
    *("json", "repr"),
)
_ALPHABETS = (
    string.ascii_letters + string.digits,
    string.ascii_lowercase,
    string.ascii_letters + string.digits + "-_.!@$%^*+",
)


def _is_form(name: str, separator: str, quoted: str, around: str) -> bool:
    """Return False for what no program writes, as a quote inside its own quotes."""
    if any(quote in separator and quote in quoted for quote in "\"'"):
        return False
    if quoted == '"first\nS"' and '"' in around:
        return False
    return separator not in _NEXT or name.startswith("-")


def _form(name: str, separator: str, quoted: str, around: str, secret: str) -> str:
    text = name + separator + re.sub("S(?![a-z])", lambda _: secret, quoted)
    if around == "json":
        return json.dumps({"a": text}, ensure_ascii=False)
    if around == "repr":
        return repr(json.dumps([text], ensure_ascii=False))
    if around in ("- {}", "    {}"):
        text = text.replace("\n", "\n" + " " * around.index("{"))
    return around.format(text)


def drawn_settings(chance: random.Random, share: int, secret: str) -> list[str]:
    """Return one of ``share`` forms of a secret that has a secret's name."""
    every = list(itertools.product(SECRET_NAMES, _EQUALS + _COLONS + _NEXT, _QUOTED, _AROUND))
    drawn = chance.sample(every, len(every) // share)
    return [_form(*form, secret) for form in drawn if _is_form(*form)]


def drawn_texts(chance: random.Random, count: int) -> list[tuple[str, str]]:
    """Return secrets in texts of any form, also as JSON in YAML in a variable."""
    names, separators = (*SECRET_NAMES, *OTHER_NAMES), _EQUALS + _COLONS + _NEXT + _ODD
    found = []
    for _ in range(count):
        word = drawn_secret(chance)
        name, separator = chance.choice(names), chance.choice(separators)
        text = _form(name, separator, chance.choice(_QUOTED), chance.choice(_AROUND), word)
        if chance.random() < 0.2:
            text = json.dumps({"env": {"CONFIG": json.dumps({"a": text})}}, ensure_ascii=False)
        if chance.random() < 0.2:
            text = "env:\n  CONFIG: |\n    " + text.replace("\n", "\n    ")
        found.append((word, f"INFO begin\n{text}\nINFO end\n"))
    return found


def drawn_secret(chance: random.Random) -> str:
    """Return a secret of 8 to 40 characters: bytes as text, letters, groups, digits."""
    length = chance.randint(8, 40)
    kind = chance.randrange(7)
    if kind < len(_ALPHABETS):
        # of letters alone, fewer could be a term
        return "".join(chance.choices(_ALPHABETS[kind], k=length + 4))
    if kind == 3:
        return base64.b64encode(chance.randbytes(length)).decode()
    if kind == 4:
        return chance.randbytes(length).hex()
    if kind == 5:
        return "-".join("".join(chance.choices("ABCDEFGHJK23456789", k=5)) for _ in range(4))
    return "".join(chance.choices(string.digits, k=length + 3))
