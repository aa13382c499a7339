"""How often a run goes from one room of the package to another.

A scripted model calls one tool and answers. From the driver's start on, each call of a named function of the package
is noted; a move is a change of room from one such call to the next, and a move up leads to a room on a higher floor.
Lambdas and comprehensions belong to the function that they stand in, and a generator that goes on is not a call.
Before there were folders it was 54 moves, 23 of them up.

    python tests/benchmarks/moves.py
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import toolkit
from toolkit import ScriptedModel, ToolCall, ToolRegistry, run_agent_with_tools

PACKAGE = Path(toolkit.__file__).parent
DRIVER = "drive"


def count_moves(rooms: list[str], floors: Mapping[str, int]) -> tuple[int, int]:
    """All moves, and those of them that lead up."""
    moves = [(before, after) for before, after in pairwise(rooms) if before != after]
    return len(moves), sum(floors[before] < floors[after] for before, after in moves)


def rooms_of_a_run() -> list[str]:
    """The room of each call, from the driver's start on."""
    play()  # loads what is loaded at first use
    calls: list[tuple[str, str]] = []
    begun = set[FrameType]()  # a generator that goes on keeps its frame

    def note(frame: FrameType, event: str, argument: Any) -> None:
        name, path = frame.f_code.co_name, Path(frame.f_code.co_filename)
        if event != "call" or frame in begun or name.startswith("<"):
            return
        if path.is_relative_to(PACKAGE):
            begun.add(frame)
            calls.append((path.relative_to(PACKAGE).parts[0].removesuffix(".py"), name))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        play()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    names = [name for _, name in calls]
    return [room for room, _ in calls[names.index(DRIVER) :]]


def play() -> None:
    script = [[ToolCall("c1", "look_up", {"key": "a"})], "done"]
    model = ScriptedModel(script)
    assert str(run_agent_with_tools("q", model=model, tools=TOOLS)) == "done"


def look_up(key: str) -> str:
    """Look up the value of a key."""
    return f"value of {key}"


TOOLS = ToolRegistry([look_up])


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from test_architecture import FLOORS

    print("{} moves, {} of them up".format(*count_moves(rooms_of_a_run(), FLOORS)))
