"""Parse server-sent events by the HTML standard (section 9.2, event stream)."""

from __future__ import annotations

_MOST_EVENT = 4 << 20


class TooLong(ValueError):
    """An event without an end."""


class Events:
    """Parses bytes in pieces of any size into the data of complete events."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._after_cr = False

    def feed(self, piece: bytes) -> list[str]:
        """Return the data of the events that end within this piece. Raises TooLong."""
        if self._after_cr and piece:
            # a CR LF that was split is one line end
            piece = piece.removeprefix(b"\n")
            self._after_cr = False
        self._rest += piece
        if len(self._rest) > _MOST_EVENT:
            raise TooLong(f"over {_MOST_EVENT} bytes")
        self._after_cr = self._rest.endswith(b"\r")
        lines = self._rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop()
        found = []
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                found.append(b"\n".join(self._data).decode("utf-8", errors="replace"))
                self._data = []
        return found

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            if sum(map(len, self._data)) > _MOST_EVENT:
                raise TooLong(f"over {_MOST_EVENT} bytes")
