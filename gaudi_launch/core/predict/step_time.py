"""Step times as straight lines: the time of a prefill or decode step of a shape.

Every constant has a name, can be overridden and is printed with each plan. Those of a model on
cards come from `gaudi_launch.core.predict.scaling`. The two sets here are the prototype's
assumptions, an 8B model in bf16 on one Gaudi2 card and a 32B model on eight; they are used where no
model is given, and in tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError

_BLOCK = 128
_NOT_CONSTANTS = ("basis", "bend")


@dataclass(frozen=True)
class StepTime:
    """Milliseconds of a step. The defaults are assumed.

    prefill of ``batch`` prompts padded to ``tokens``: ``prefill_fixed + prefill_token * batch *
    tokens + prefill_attention * batch * tokens**2``; decode of ``batch`` sequences that use
    ``blocks`` KV blocks together: ``decode_fixed + decode_sequence * batch + decode_block *
    blocks``.
    """

    prefill_fixed: float = 10.0
    prefill_token: float = 0.053
    prefill_attention: float = 3.5e-6
    decode_fixed: float = 12.0
    decode_sequence: float = 0.03
    decode_block: float = 0.0084
    basis: str = "8B bf16, one card"
    # a decode step's deviation from its line, by the number of sequences: a mixture reads more
    # experts with more tokens. The last value is that of larger batches
    bend: tuple[float, ...] = ()
    # how much longer attention takes behind a context, as a share
    prefill_masked: float = 0.0

    def prefill(self, batch: Any, tokens: Any) -> Any:
        """Return the milliseconds of a prefill step; numbers or numpy arrays."""
        return self.prefill_fixed + batch * tokens * (
            self.prefill_token + self.prefill_attention * tokens
        )

    def chunk(self, batch: Any, tokens: Any, context: Any) -> Any:
        """Return milliseconds of a prefill step after ``context`` cached tokens.

        ``prefill_attention`` counts a pair of the prompt's tokens half, because attention is
        causal; pairs with the context count in full. Behind a context attention runs by a mask,
        without the causal kernel: ``prefill_masked``.
        """
        masked = 1 + self.prefill_masked * (context > 0)
        attention = self.prefill_attention * masked * (tokens + 2 * context)
        return self.prefill_fixed + batch * tokens * (self.prefill_token + attention)

    def in_blocks(self, batch: Any, tokens: Any, blocks: Any) -> Any:
        """Return `chunk` with the context in KV blocks, as buckets have it."""
        return self.chunk(batch, tokens, _BLOCK * blocks)

    def decode(self, batch: Any, blocks: Any) -> Any:
        """Return the milliseconds of a decode step; numbers or numpy arrays."""
        line = self.decode_fixed + self.decode_sequence * batch + self.decode_block * blocks
        if not self.bend:
            return line
        return line + self._bent(batch)

    def _bent(self, batch: Any) -> Any:
        if isinstance(batch, int):
            return self.bend[min(batch, len(self.bend) - 1)]
        import numpy as np

        return np.interp(batch, np.arange(len(self.bend)), self.bend)

    def constants(self) -> dict[str, float]:
        """Return every constant by name, in milliseconds."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name not in _NOT_CONSTANTS
        }

    def with_constants(self, changes: Mapping[str, float | str]) -> StepTime:
        """Return a copy with some constants replaced.

        Raises LaunchError (USAGE) for unknown names or bad numbers.
        """
        known = self.constants()
        values: dict[str, float] = {}
        for name, text in changes.items():
            try:
                values[name] = float(text)
            except ValueError:
                values[name] = -1.0
            if name not in known or not 0 <= values[name] < 1e6:
                raise LaunchError(
                    "warmup.bad_constant",
                    ExitCode.USAGE,
                    name=name,
                    found=str(text),
                    known=", ".join(known),
                )
        if not values:
            return self
        # a line that the user gives is straight
        bend = self.bend
        if any(name.startswith("decode_") for name in values):
            bend = ()
        changed = StepTime(**{**known, **values}, basis=self.basis, bend=bend)
        if (
            changed.prefill_fixed + changed.prefill_token <= 0
            or changed.decode_fixed + changed.decode_block <= 0
        ):
            raise LaunchError("warmup.free_steps", ExitCode.USAGE)
        return replace(changed, basis=f"{self.basis}, {', '.join(values)} given")


def constants_of(words: Iterable[str]) -> dict[str, str]:
    """Return constants by name from arguments of the form ``name=ms``.

    A dash may replace an underscore.

    >>> constants_of(["prefill-token=0.04", "decode_fixed"])
    {'prefill_token': '0.04', 'decode_fixed': ''}
    """
    pairs = (word.partition("=") for word in words)
    return {name.strip().replace("-", "_"): value for name, _, value in pairs}


ONE_CARD_8B = StepTime()
EIGHT_CARDS_32B = StepTime(
    prefill_token=0.038,
    prefill_attention=3.9e-7,
    decode_block=0.0021,
    basis="32B bf16, eight cards",
)
