"""The mirrors and proxies of this site: what replaces the public addresses.

Each comes from an option, an environment variable or the file ``mirrors.yaml`` of the
folder of settings, in this order. pip, git, docker and the hubs' libraries get them by their own
options and variables; the names of those: their documentation. An address with a user or a password
is refused, because it would appear in files and on command lines; pip and git read passwords from
~/.netrc.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from urllib.parse import urlsplit

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.paths import config_dir
from gaudi_launch.core.base.reader import BadDocument
from gaudi_launch.core.base.yaml_reader import parse_yaml

# docs: Docker, "Predefined ARGs": known to every build, and kept out of an image's history
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
# the address that every repository of a profile has
GIT_HOST = "https://github.com/"
# images that gaudi-launch builds: no registry has them
_BUILT_HERE = "gaudi-launch/"
# pip reads it itself
_PIP_INDEX = "PIP_INDEX_URL"
TORCH_VARIABLE = "GAUDI_LAUNCH_TORCH_INDEX"
_MOST_BYTES = 1 << 16
_URL = re.compile(r"(https?|file)://[!-~]+")
_WEB = re.compile(r"https?://[!-~]+")
_GIT = re.compile(r"(https?|file|ssh|git)://[!-~]+|/[!-~]+")
# docs: distribution, reference.go: an optional port, and path components in lower case
_REGISTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")


@dataclass(frozen=True)
class _Kind:
    """A kind of mirror: its option and variable, the form of its address, an example."""

    option: str
    variable: str
    form: re.Pattern[str]
    example: str


_KINDS: Mapping[str, _Kind] = {
    "pip": _Kind("--index-url", _PIP_INDEX, _URL, "https://HOST/simple/"),
    "torch": _Kind("--torch-index", TORCH_VARIABLE, _URL, "https://HOST/whl/cpu"),
    "registry": _Kind("--registry", "GAUDI_LAUNCH_REGISTRY", _REGISTRY, "HOST:5000/PATH"),
    "git": _Kind("--git-mirror", "GAUDI_LAUNCH_GIT_MIRROR", _GIT, "https://HOST/github/"),
    "huggingface": _Kind("--hf-endpoint", "HF_ENDPOINT", _WEB, "https://hf-mirror.com"),
    "modelscope": _Kind(
        "--modelscope-endpoint", "MODELSCOPE_ENDPOINT", _WEB, "https://www.modelscope.cn"
    ),
}
# addresses that their owners check and describe themselves
_OWN_CHECK = ("huggingface", "modelscope")


@dataclass(frozen=True)
class Mirrors:
    """The mirrors in force, "" where there is none.

    ``registry`` replaces the registry of images, ``git`` the address https://github.com/.
    ``wheels`` is a folder of wheels that pip uses instead of every index. ``pip_by_itself``: pip
    reads ``pip`` from its variable, so that no argument names it. ``options`` are the options that
    were given.
    """

    pip: str = field(default="", repr=False)
    torch: str = ""
    registry: str = ""
    git: str = ""
    huggingface: str = ""
    modelscope: str = ""
    wheels: str = ""
    pip_by_itself: bool = False
    options: tuple[str, ...] = ()

    @property
    def pip_words(self) -> tuple[str, ...]:
        """Return pip's options for its packages."""
        if self.wheels:
            return ("--no-index", "--find-links", self.wheels)
        if self.pip and not self.pip_by_itself:
            return ("--index-url", self.pip)
        return ()

    @property
    def torch_words(self) -> tuple[str, ...]:
        """Return pip's further options for PyTorch.

        A mirror of PyTorch's builds is an index or one page of links; pip reads it as both.
        """
        if self.wheels or not self.torch:
            return ()
        return ("--extra-index-url", self.torch, "--find-links", self.torch)

    def for_image(self) -> Mirrors:
        """Return the mirrors for the build of an image.

        It has no variables of this shell. Raises LaunchError (USAGE) for an index with a password:
        everyone with the image could read it.
        """
        if self.pip_by_itself and has_secret(self.pip):
            raise LaunchError("mirrors.image_secret", ExitCode.USAGE, where=_PIP_INDEX)
        return replace(self, pip_by_itself=False)

    def image(self, name: str) -> str:
        """Return the name of an image at the mirror of its registry.

        A name without a registry is Docker Hub's (distribution/reference@v0.6.0:normalize.go).
        """
        if not self.registry or name.startswith(_BUILT_HERE):
            return name
        first, slash, rest = name.partition("/")
        if slash and ("." in first or ":" in first or first == "localhost"):
            return f"{self.registry}/{rest}"
        if slash:
            return f"{self.registry}/{name}"
        return f"{self.registry}/library/{name}"

    def git_variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that make git use the mirror, also inside pip.

        docs: git-config, "GIT_CONFIG_COUNT" and "url.<base>.insteadOf"; git 2.31 and newer.
        """
        if not self.git:
            return {}
        before = environment.get("GIT_CONFIG_COUNT", "")
        count = 0
        if before.isascii() and before.isdecimal():
            count = int(before)
        return {
            "GIT_CONFIG_COUNT": str(count + 1),
            f"GIT_CONFIG_KEY_{count}": f"url.{self.git.rstrip('/')}/.insteadOf",
            f"GIT_CONFIG_VALUE_{count}": GIT_HOST,
        }

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables for the programs of an installation."""
        found = self.git_variables(environment)
        if self.wheels:
            # for the pip that builds a package, which gets no arguments
            found |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": self.wheels}
            found["PIP_CONFIG_FILE"] = os.devnull
        return found

    def hub_variables(self) -> dict[str, str]:
        """Return the variables of the hubs' libraries, for the process that downloads."""
        found = {}
        if self.huggingface:
            found["HF_ENDPOINT"] = self.huggingface
        if self.modelscope:
            found["MODELSCOPE_ENDPOINT"] = self.modelscope
            # releases before modelscope_hub read the host only
            found["MODELSCOPE_DOMAIN"] = urlsplit(self.modelscope).netloc
        return found


NONE = Mirrors()


def file() -> Path:
    """Return the path of the user's file of mirrors, which may not exist."""
    return config_dir() / "mirrors.yaml"


def read(
    given: Mapping[str, str | None] | None = None, environment: Mapping[str, str] | None = None
) -> Mirrors:
    """Return the mirrors of options, environment and file, the strongest of each.

    ``given`` are the values of options by the names of `Mirrors`. Raises LaunchError (USAGE) for an
    address that cannot be one, or that has a user or a password, and for an unreadable file.
    """
    environment = os.environ if environment is None else environment
    in_file = _in_file()
    found: dict[str, str] = {}
    options: list[str] = []
    by_itself = False
    for name, kind in _KINDS.items():
        option = (given or {}).get(name)
        exported = environment.get(kind.variable)
        if option is not None:
            options.append(kind.option)
            found[name] = _checked(name, option, kind.option)
        elif exported and name == "pip":
            found[name], by_itself = exported, True
        elif exported and name in _OWN_CHECK:
            found[name] = exported
        elif exported:
            found[name] = _checked(name, exported, kind.variable)
        elif name in in_file:
            found[name] = _checked(name, in_file[name], f"{name} ({file()})")
    return Mirrors(**found, pip_by_itself=by_itself, options=tuple(options))


def exported_proxies(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the proxy variables that are set."""
    return tuple(name for name in PROXIES if environment.get(name))


def has_secret(address: str) -> bool:
    """Return True for an address with a user or a password.

    The user of an ssh address is part of its name.
    """
    scheme, _, rest = address.rpartition("://")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    return bool(at) and (scheme != "ssh" or ":" in user)


def _checked(name: str, value: str, where: str) -> str:
    kind = _KINDS[name]
    # the option of pip's index has older sentences
    area = "setup" if where == "--index-url" else "mirrors"
    if has_secret(value):
        raise LaunchError(f"{area}.address_secret", ExitCode.USAGE, where=where)
    if not kind.form.fullmatch(value):
        raise LaunchError(
            f"{area}.address_bad", ExitCode.USAGE, where=where, found=value, example=kind.example
        )
    if name in ("pip", "torch"):
        return value
    return value.rstrip("/")


def _in_file() -> dict[str, str]:
    """Return the addresses of the user's file; {} without one."""
    path = file()
    try:
        with path.open(encoding="utf-8") as stream:
            content = stream.read(_MOST_BYTES)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise _bad_file(" ".join(str(error).split())) from None
    try:
        document = parse_yaml(content)
    except BadDocument as error:
        # its text would quote the file, which has passwords
        raise _bad_file(f"YAML: {error.line}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise _bad_file(type(document).__name__)
    for key, value in document.items():
        if key not in _KINDS or not isinstance(value, str):
            raise _bad_file(str(key))
    return document


def _bad_file(why: str) -> LaunchError:
    names = ", ".join(each.name for each in fields(Mirrors) if each.name in _KINDS)
    return LaunchError("mirrors.bad_file", ExitCode.USAGE, path=str(file()), why=why, known=names)
