"""What a turn and a call cost, in function calls: a figure that does not depend on the machine.

A loop written by hand on the SDK's `chat.completions.create` makes 22,300 calls a request, the SDK's bare `post` 3,100
(openai 3.57, Python 3.11).
"""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable
from typing import Any

from server import ChatServer
from toolkit import Model, ToolRegistry, run_agent_with_tools

# A ratchet: openai 3.57, Python 3.11. Goal 3,540.
CALLS_A_TURN = 3_570


def look_up(key: str) -> str:
    """Look up the value of a key."""
    return f"value of {key}"


def count_calls(work: Callable[[], Any]) -> int:
    """The calls of Python and C functions in this thread."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def ask(number: int) -> dict[str, Any]:
    function = {"name": "look_up", "arguments": f'{{"key": "k{number}"}}'}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return {
        "choices": [
            {"message": {"role": "assistant", "content": None, "tool_calls": [call]}}
        ]
    }


def play(turns: int) -> Callable[[], Any]:
    """A run of this many turns, warmed up, to be measured."""
    script = [*(ask(number) for number in range(turns - 1)), "done"]
    server = ChatServer(*script, *script)
    server.__enter__()
    asked = {
        "model": Model("m", base_url=server.base_url, api_key="k"),
        "tools": ToolRegistry([look_up]),
    }
    run_agent_with_tools("q", **asked, max_turns=turns + 1)

    def measured() -> None:
        assert str(run_agent_with_tools("q", **asked, max_turns=turns + 1)) == "done"
        server.__exit__(None, None, None)

    return measured


def test_a_turn_is_cheap() -> None:
    assert count_calls(play(11)) / 11 <= CALLS_A_TURN


def test_a_turn_costs_hardly_more_late_in_a_long_run() -> None:
    short, long = count_calls(play(10)) / 10, count_calls(play(60)) / 60
    assert (long - short) / 50 < 40  # calls for each turn that lies behind


def test_a_call_is_cheap() -> None:
    registry = ToolRegistry()
    registry.register_tool(look_up, timeout=None)
    registry.call("look_up", '{"key": "k"}')
    assert count_calls(lambda: registry.call("look_up", '{"key": "k"}')) < 60
