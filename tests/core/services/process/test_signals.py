"""Signals that are queued while a service runs."""

from __future__ import annotations

import os
import signal
import threading
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


def test_a_wait_takes_its_time_without_a_signal() -> None:
    signals = Signals()
    begun = time.monotonic()
    signals.wait(0.05)
    with signals.handled():
        signals.wait(0.05)
    assert time.monotonic() - begun >= 0.1


def test_off_the_main_thread_nothing_is_handled() -> None:
    former = signal.getsignal(15)
    found: list[object] = []

    def work() -> None:
        with Signals().handled():
            found.append(signal.getsignal(15))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [former]
