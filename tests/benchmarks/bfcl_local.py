"""How often the embedded model calls rightly, by the acceptable values of the Berkeley Function-Calling Leaderboard.

    python tests/benchmarks/bfcl_local.py PATH_TO_BFCL_FOLDER [--kind KIND] [--tools given|own|all] [--limit N] [--show]

No tool runs. The right tool is given, or the model has to take it from the task's own ones, or from those of all tasks.
The folder holds `tools.jsonl`, lines of {name, description, parameters}, and `requests.jsonl`, lines of
{kind, messages, tools, calls: [{name: {parameter: [acceptable values]}}], definitions?}: the leaderboard's own data
files (Apache License 2.0, not part of this project) with the definitions by name. Only requests with one call count.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolkit import Tool
from toolkit.local import LocalModel
from toolkit.messages import Message
from toolkit.tools.request import Request


class Described(Tool):
    """A tool as a task describes it. It is not run."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.name, self.description = definition["name"], definition["description"]
        self._parameters: dict[str, Any] = definition["parameters"]

    @property
    def parameters(self) -> dict[str, Any]:
        return self._parameters


ROWS = (
    *(
        ("simple_python", "given"),
        ("live_simple", "given"),
        ("multiple", "own"),
        ("live_multiple", "own"),
    ),
    *(
        ("simple_python", "all"),
        ("live_simple", "all"),
        ("multiple", "all"),
        ("live_multiple", "all"),
    ),
)


def main() -> None:
    options = _read_options()
    rows = [
        row
        for row in ROWS
        if options.kind in (None, row[0]) and options.tools in (None, row[1])
    ]
    if not rows:
        raise SystemExit(
            f"Nothing is measured of {options.kind!r} with tools {options.tools!r}. There is: {ROWS}"
        )
    print(
        "| kind | tools | n | right | 95 % interval | right tool | s a request |\n|---|---|---:|---:|---:|---:|---:|"
    )
    for kind, tools in rows:
        _measure(options, kind, tools)


def _measure(options: argparse.Namespace, kind: str, offered: str) -> None:
    model = LocalModel()
    right, named, seconds = 0, 0, 0.0
    tasks = list(_tasks(options.folder, kind, offered))
    if options.limit:
        tasks = tasks[:: max(1, len(tasks) // options.limit)][: options.limit]
    if not tasks:
        raise SystemExit(f"There are no requests of the kind {kind!r} with one call.")
    for messages, tools, name, wanted in tasks:
        began = time.perf_counter()
        reply = model.complete(
            Request(
                messages, tools, tool_choice=name if offered == "given" else "required"
            )
        )
        seconds += time.perf_counter() - began
        (call,) = reply.message.tool_calls
        is_right = (
            not call.problem
            and call.name == name
            and is_acceptable(call.arguments, wanted)
        )
        right, named = right + is_right, named + (call.name == name)
        if options.show and not is_right:
            print(
                f"asked  {messages[-1].text}\ncalled {call.name} {call.raw}\nwanted {name} {json.dumps(wanted)}\n"
            )
    n = len(tasks)
    low, high = wilson_interval(right, n)
    figures = f"{n} | {right / n:.3f} | {low:.3f} to {high:.3f} | {named / n:.3f} | {seconds / n:.2f}"
    print(f"| {kind} | {offered} | {figures} |", flush=True)


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", help="only these requests, such as simple_python")
    parser.add_argument(
        "--tools", choices=("given", "own", "all"), help="only with the tool from these"
    )
    parser.add_argument(
        "--limit", type=int, help="at most so many requests a row, taken evenly"
    )
    parser.add_argument("--show", action="store_true", help="print what went wrong")
    return parser.parse_args()


def _tasks(
    folder: Path, kind: str, offered: str
) -> Iterator[tuple[list[Message], list[Tool], str, dict[str, list[Any]]]]:
    # The task's own name, not its alias: what is measured is the model, no wire is in between.
    everything: dict[str, Tool] = {
        each["name"]: Described(each) for each in _lines(folder / "tools.jsonl")
    }
    for task in _lines(folder / "requests.jsonl"):
        if task["kind"] != kind or len(task["calls"]) != 1:
            continue
        known = {
            **everything,
            **{
                name: Described(own)
                for name, own in task.get("definitions", {}).items()
            },
        }
        ((name, wanted),) = task["calls"][0].items()
        tools = (
            list(known.values())
            if offered == "all"
            else [known[tool] for tool in task["tools"]]
        )
        yield (
            [Message(each["role"], each["content"]) for each in task["messages"]],
            tools,
            name,
            wanted,
        )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def is_acceptable(arguments: Any, wanted: dict[str, list[Any]]) -> bool:
    """Whether each argument is one of its acceptable values, and only such are missing that may be ("" among them)."""
    return set(arguments) <= set(wanted) and all(
        any(_is_same(arguments[key], value) for value in values)
        if key in arguments
        else "" in values
        for key, values in wanted.items()
    )


def _is_same(given: Any, value: Any) -> bool:
    if isinstance(given, dict) and isinstance(value, dict):
        return is_acceptable(given, value)
    if isinstance(given, list) and isinstance(value, list):
        return len(given) == len(value) and all(map(_is_same, given, value))
    if isinstance(given, str) and isinstance(value, str):
        return _plain(given) == _plain(value)
    return isinstance(given, bool) == isinstance(value, bool) and bool(given == value)


def _plain(text: str) -> str:
    """As the leaderboard compares text: without case, spaces and most punctuation."""
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')


def wilson_interval(right: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a rate."""
    z, rate = 1.959964, right / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return centre - half, centre + half


if __name__ == "__main__":
    main()
