"""The threads that tools run in."""

from __future__ import annotations

import threading
import time

import pytest

from toolkit.calls import threads


def workers() -> int:
    return sum(thread.name == "toolkit-tool" for thread in threading.enumerate())


def test_threads_without_work_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 calls at once left 300 threads alive for good."""
    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.05)
    before = workers()
    gate = threading.Event()
    futures = [threads.start(gate.wait) for _ in range(50)]
    assert workers() >= before + 25  # some may have been idle before
    gate.set()
    assert all(future.result(5) for future in futures)
    deadline = time.monotonic() + 10
    while workers() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert workers() <= before


def test_a_thread_that_ends_loses_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_IDLE_SECONDS", 0.001)
    for number in range(300):
        assert threads.start(lambda number=number: number).result(5) == number
        time.sleep(0.0005 * (number % 4))


def test_an_idle_thread_is_used_again() -> None:
    first = threads.start(threading.get_ident).result(5)
    time.sleep(0.05)
    assert threads.start(threading.get_ident).result(5) == first
