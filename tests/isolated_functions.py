"""What tests/test_isolation.py runs in children: each imports this module, so it stays light."""

from __future__ import annotations

import asyncio
import datetime
import enum
import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from toolkit import ToolContext, ToolError
from toolkit.isolation import isolated


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: float
    when: datetime.date


class NoSuchCity(Exception):
    pass


# What comes back


@isolated(timeout=20)
def move(
    point: Point, days: int = 1, *, colour: Colour = Colour.RED
) -> tuple[Point, Colour]:
    """Move a point in time.

    Args:
        point: Where it is.
        days: How far.
    """
    return Point(point.x, point.when + datetime.timedelta(days)), colour


@isolated(timeout=20)
def collect() -> set[bytes]:
    return {b"\xff\x00", b"text"}


@isolated(timeout=20)
def plain():
    return ("tuple", {1: datetime.date(2030, 6, 1)}, math.nan, "é\ud800", 2**70, None)


@isolated(timeout=20)
async def move_later(day: datetime.date) -> datetime.date:
    await asyncio.sleep(0.01)
    return day + datetime.timedelta(1)


@isolated(timeout=20)
def whole_context(context: ToolContext) -> tuple[str, Any, bool]:
    return context.call_id, context.deps, context.cancelled()


class Counter:
    def __init__(self) -> None:
        self.total = 3

    @isolated(timeout=20)
    def add(self, by: int) -> int:
        self.total += by
        return self.total


@isolated(timeout=20, env=("KEPT", "NOT_SET"))
def surroundings() -> tuple[dict[str, str], str, list[str], list[int]]:
    links = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            links[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the listing itself
    (open("left.txt", "w")).close()
    return (
        dict(os.environ),
        os.getcwd(),
        [links[n] for n in sorted(links)],
        sorted(links),
    )


# What goes wrong


@isolated(timeout=0.6)
def loop_forever() -> None:
    while True:
        pass


@isolated(timeout=0.6)
def ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(60)


@isolated(timeout=20, memory_mb=250)
def take_large_memory() -> None:
    kept = []
    while True:
        kept.append(bytearray(5_000_000))


@isolated(timeout=20, memory_mb=120)
def take_small_memory() -> None:
    kept: list[Any] = [None] * 5_000_000
    for position in range(len(kept)):
        kept[position] = [position]


@isolated(timeout=20, cpu_s=1)
def use_processor() -> None:
    while True:
        pass


@isolated(timeout=20)
def end_process(code: Any) -> None:
    print("last words", file=sys.stderr)
    sys.exit(code)


@isolated(timeout=20)
def end_at_once() -> None:
    os._exit(0)


@isolated(timeout=20)
def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@isolated(timeout=20)
def kill_own_group() -> None:
    os.killpg(0, signal.SIGTERM)
    time.sleep(60)


@isolated(timeout=20)
def return_much() -> str:
    return "x" * 11_000_000


@isolated(timeout=20)
def print_much() -> str:
    for _ in range(100):
        print("x" * 1_000_000)
    return "printed"


@isolated(timeout=20)
def close_output() -> str:
    sys.stdout.close()
    os.close(1)
    os.close(2)
    return "closed"


@isolated(timeout=20)
def return_object() -> Any:
    return object()


@isolated(timeout=20)
def return_wrong() -> int:
    return "no number"  # type: ignore[return-value]


@isolated(timeout=20)
def forge(answer: bytes) -> int:
    os.write(3, answer)
    os._exit(0)


@isolated(timeout=20)
def kill_guard(folder: str) -> None:
    note(folder)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


@isolated(timeout=1.5)
def stop_guard(folder: str) -> None:
    note(folder)
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(60)


@isolated(timeout=20)
def fail(how: str) -> None:
    if how == "own":
        raise ValueError("no city in /home/ada/cities.txt")
    if how == "own class":
        raise NoSuchCity("Atlantis")
    if how == "key":
        raise KeyError("Atlantis")
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "spoken":
        raise ToolError("Ask for another city.")
    json.loads(how)


# Processes below processes

_ESCAPE = """
import os, time
os.setsid()
if os.fork():
    os._exit(0)
os.setsid()
open(os.path.join({folder!r}, str(os.getpid())), "w").close()
time.sleep(60)
"""


def note(folder: str) -> None:
    """Leave the process's id where a test finds it."""
    open(os.path.join(folder, str(os.getpid())), "w").close()


def start_some(folder: str, count: int = 3) -> None:
    """Processes with sessions of their own, whose parents are gone at once; wait for them."""
    for _ in range(count):
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _ESCAPE.format(folder=folder)]
        )
    while len(os.listdir(folder)) < count:
        time.sleep(0.01)


@isolated(timeout=20)
def start_and_return(folder: str) -> str:
    start_some(folder)
    return "started"


@isolated(timeout=2.5)
def start_and_wait(folder: str) -> None:
    start_some(folder)
    time.sleep(60)


@isolated(timeout=60)
def wait_long(folder: str) -> str:
    """Wait for long."""
    note(folder)
    time.sleep(60)
    return "done"


@isolated(timeout=60)
async def wait_later(folder: str) -> None:
    note(folder)
    await asyncio.sleep(60)
