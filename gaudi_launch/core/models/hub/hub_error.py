"""Errors of hubs by kind, and the variable with the token of each hub."""

from __future__ import annotations

import re
from collections.abc import Iterator

# the variable with the token of each hub, and the command that keeps one
TOKENS = {
    "hf": {"token": "HF_TOKEN", "login": "hf auth login"},
    "modelscope": {"token": "MODELSCOPE_API_TOKEN", "login": "modelscope login"},
}
_KIND_OF_NAME = {
    # a subclass of RepositoryNotFoundError in huggingface_hub
    "GatedRepoError": "gated",
    "OfflineModeIsEnabled": "offline_mode",
    "RepositoryNotFoundError": "no_repo",
    "NotExistError": "no_repo",
    "HubRepoNotFoundError": "no_repo",
    "NotFoundError": "no_repo",
    "RevisionNotFoundError": "no_revision",
}
# the hub's header X-Error-Code (huggingface_hub 1.0:utils/_http.py, hf_raise_for_status)
_KIND_OF_CODE = {
    "GatedRepo": "gated",
    "RepoNotFound": "no_repo",
    "RevisionNotFound": "no_revision",
    "EntryNotFound": "no_file",
}
# the hub's answer to a token that it does not know (ibid.)
_BAD_TOKEN = "Invalid credentials in Authorization header"
_KIND_OF_STATUS = {401: "gated", 403: "gated", 404: "no_repo", 429: "busy"}
_NETWORK = re.compile("Connect|Timeout|Resolve|Network|Offline|RemoteDisconnected|MaxRetry")
_MOST_WRAPS = 12


class HubError(Exception):
    """An error of a hub, by kind.

    The kinds are offline, no_repo, no_revision, no_file, gated, token, busy, changed, disk and
    other.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


def classify(error: BaseException) -> HubError:
    """Return the kind of a library's error, by its name and its HTTP status.

    Error classes move between releases of the libraries.
    """
    if isinstance(error, HubError):
        return error
    name, text = type(error).__name__, str(error)
    if isinstance(error, OSError) and error.errno in (28, 122):
        return HubError("disk", text)
    answer = getattr(error, "response", None)
    headers = getattr(answer, "headers", None) or {}
    status = getattr(answer, "status_code", None)
    if status == 401 and _BAD_TOKEN in f"{headers.get('X-Error-Message')} {text}":
        return HubError("token", text)
    # By name first: the Hub answers 401 for a repository that does not exist (huggingface_hub's
    # RepositoryNotFoundError), and the text contains ".../revision/..." whenever a revision was
    # requested.
    if name in _KIND_OF_NAME:
        return HubError(_KIND_OF_NAME[name], text)
    if headers.get("X-Error-Code") in _KIND_OF_CODE:
        return HubError(_KIND_OF_CODE[headers["X-Error-Code"]], text)
    if status == 404 and "revision" in text.lower():
        return HubError("no_revision", text)
    if status in _KIND_OF_STATUS:
        return HubError(_KIND_OF_STATUS[status], text)
    if any(
        isinstance(each, ConnectionError) or _NETWORK.search(type(each).__name__)
        for each in _causes(error)
    ):
        return HubError("offline", reason_of(error))
    return HubError("other", f"{name}: {text}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it follows from."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def reason_of(error: BaseException) -> str:
    """Return the system's text of the innermost cause (``Connection refused``).

    Without one, return ``timed out`` or the outermost error's class.
    """
    found = list(_wrapped(error))
    for each in reversed(found):
        if isinstance(each, OSError) and each.strerror:
            return each.strerror
    if any("timeout" in type(each).__name__.lower() for each in found):
        return "timed out"
    return type(error).__name__


def _wrapped(error: BaseException) -> Iterator[BaseException]:
    """Return the error and those that it wraps, outermost first.

    They are its cause, context, reason (urllib3) or first argument.
    """
    waiting: list[BaseException] = [error]
    seen: list[BaseException] = []
    while waiting and len(seen) < _MOST_WRAPS:
        each = waiting.pop(0)
        if each in seen:
            continue
        seen.append(each)
        yield each
        inner = (each.__cause__, each.__context__, getattr(each, "reason", None), *each.args[:1])
        waiting += [one for one in inner if isinstance(one, BaseException)]
