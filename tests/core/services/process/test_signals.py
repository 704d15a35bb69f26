"""Signals that are queued while a service runs."""

from __future__ import annotations

import os
import signal
import time

import pytest

from gaudi_launch.core.services.process.signals import Signals


def test_signals_are_queued_in_order_and_the_former_handlers_return() -> None:
    former = {number: signal.getsignal(number) for number in (2, 15, 1)}
    signals = Signals()
    with signals.handled(), signals.handled():
        for number in (15, 1, 2):
            os.kill(os.getpid(), number)
        assert bool(signals)
        begun = time.monotonic()
        signals.wait(60)
        assert time.monotonic() - begun < 30
        assert [signals.take() for _ in range(3)] == [15, 1, 2]
        assert not signals
    assert {number: signal.getsignal(number) for number in former} == former
    with pytest.raises(IndexError):
        signals.take()
