"""Find the cause of a failed connection.

The libraries wrap one system error in up to five other errors.
"""

from __future__ import annotations

from collections.abc import Iterator

_MOST_WRAPS = 12


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
