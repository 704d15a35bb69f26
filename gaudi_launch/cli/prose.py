"""Rich text whose Chinese breaks between characters, as rich does not."""

from __future__ import annotations

from rich.console import Console, JustifyMethod, OverflowMethod
from rich.containers import Lines
from rich.text import Text

from gaudi_launch.cli.wrapping import break_offsets


class Prose(Text):
    """A text that rich folds at blanks, and between Chinese characters.

    It never folds before a closing mark.
    """

    @classmethod
    def of(cls, text: Text) -> Prose:
        """Return a text with its styles as prose."""
        return cls(
            text.plain,
            style=text.style,
            justify=text.justify,
            overflow=text.overflow,
            no_wrap=text.no_wrap,
            end=text.end,
            tab_size=text.tab_size,
            spans=text.spans,
        )

    def wrap(
        self,
        console: Console,
        width: int,
        *,
        justify: JustifyMethod | None = None,
        overflow: OverflowMethod | None = None,
        tab_size: int = 8,
        no_wrap: bool | None = None,
    ) -> Lines:
        """Return the lines of at most ``width`` cells.

        What is not folded or has no Chinese, as rich does it.
        """
        how = overflow or self.overflow or "fold"
        never = no_wrap if no_wrap is not None else self.no_wrap
        if never or how == "ignore" or self.plain.isascii():
            plain = super().wrap(
                console,
                width,
                justify=justify,
                overflow=overflow,
                tab_size=tab_size,
                no_wrap=no_wrap,
            )
            return _without_trailing_blanks(plain)
        side = justify or self.justify or "default"
        lines = Lines()
        for line in self.split(allow_blank=True):
            if "\t" in line:
                line.expand_tabs(tab_size)
            folded = line.divide(break_offsets(str(line), width))
            for part in folded:
                part.rstrip_end(width)
            folded.justify(console, width, justify=side, overflow=how)
            for part in folded:
                part.truncate(width, overflow=how)
            lines.extend(folded)
        return _without_trailing_blanks(lines)


def _without_trailing_blanks(lines: Lines) -> Lines:
    """Return lines whose fold left no blank, and the last line as it is."""
    for line in lines[:-1]:
        line.rstrip()
    return lines
