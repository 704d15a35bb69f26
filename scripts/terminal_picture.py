"""Write docs/terminal.svg and terminal_zh.svg: terminals of real runs.

    python scripts/terminal_picture.py

The command of `COMMAND` runs in a pseudo-terminal of 100 columns; its output, colours included, is
drawn by rich. No text is edited. Run it again when the output of the command has changed.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
PICTURES = {"en": TOP / "docs" / "terminal.svg", "zh": TOP / "docs" / "terminal_zh.svg"}
COMMAND = (
    "gaudi-launch plan Qwen/Qwen2-72B-Instruct -n 4 --engine vllm-gaudi --machine simulated:hls2"
)
COLUMNS = 100
# the picture must not load fonts from elsewhere
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def main() -> None:
    """Run the command in each language and write its picture."""
    for language, path in PICTURES.items():
        path.write_text(drawn(COMMAND, output(COMMAND.split()[1:], language)), encoding="utf-8")


def output(arguments: list[str], language: str) -> str:
    """Return what the program prints in a terminal, with its colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 60, COLUMNS, 0, 0))
    # a user's folder whose name does not matter
    user = {"HOME": "/home/user", "TERM": "xterm-256color", "GAUDI_LAUNCH_LANG": language}
    environment = {**os.environ, **user}
    environment.pop("NO_COLOR", None)
    environment.pop("COLUMNS", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "gaudi_launch", *arguments],
        cwd=TOP,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    parts = []
    while part := _read(ours):
        parts.append(part)
    os.close(ours)
    if process.wait() != 0:
        raise SystemExit(f"{COMMAND}: exit status {process.returncode}")
    return b"".join(parts).decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    """Return the next output, empty at its end: Linux reports EIO there."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


def drawn(command: str, printed: str) -> str:
    """Return a picture of a terminal with a prompt, the command and its output."""
    from rich.console import Console
    from rich.text import Text

    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(Text.assemble(("$ ", "bold green"), command))
        console.print(Text.from_ansi(printed.rstrip("\n")))
        picture = console.export_svg(title="gaudi-launch", unique_id="terminal")
    return _FONTS.sub("", picture)


if __name__ == "__main__":
    main()
