"""How often the embedded model calls rightly, by the acceptable values of the Berkeley Function-Calling Leaderboard.

    python tests/benchmarks/bfcl_local.py PATH_TO_BFCL_FOLDER [--kind simple_python] [--limit N] [--choose] [--show]

No tool runs. The right tool is given; with --choose the one is taken that fits best of those that the task offers.
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


class Described(Tool):
    """A tool as a task describes it. It is not run."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.name, self.description = definition["name"], definition["description"]
        self._parameters: dict[str, Any] = definition["parameters"]

    @property
    def parameters(self) -> dict[str, Any]:
        return self._parameters


def main() -> None:
    options = _read_options()
    model = LocalModel()
    right: list[bool] = []
    seconds: list[float] = []
    for messages, tools, name, wanted in _tasks(options.folder, options.kind):
        if len(right) == options.limit:
            break
        began = time.perf_counter()
        reply = model.complete(messages, tools, tool_choice="required" if options.choose else name)
        seconds.append(time.perf_counter() - began)
        (call,) = reply.message.tool_calls
        right.append(not call.problem and call.name == name and is_acceptable(call.arguments, wanted))
        if options.show and not right[-1]:
            print(f"asked  {messages[-1].text}\ncalled {call.name} {call.raw}\nwanted {name} {json.dumps(wanted)}\n")
    if not right:
        raise SystemExit(f"There are no requests of the kind {options.kind!r} with one call.")
    low, high = wilson_interval(sum(right), len(right))
    print(
        f"{options.kind}: {sum(right)} of n={len(right)} right, {sum(right) / len(right):.3f} "
        f"(95 % interval {low:.3f} to {high:.3f}), {sum(seconds) / len(seconds):.2f} s a request"
    )


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", default="simple_python")
    parser.add_argument("--limit", type=int, help="at most so many requests")
    parser.add_argument("--choose", action="store_true", help="choose among the tools of the task, too")
    parser.add_argument("--show", action="store_true", help="print what went wrong")
    return parser.parse_args()


def _tasks(folder: Path, kind: str) -> Iterator[tuple[list[Message], list[Tool], str, dict[str, list[Any]]]]:
    definitions = {each["name"]: each for each in _lines(folder / "tools.jsonl")}
    for task in _lines(folder / "requests.jsonl"):
        if task["kind"] != kind or len(task["calls"]) != 1:
            continue
        own = {**definitions, **task.get("definitions", {})}
        ((name, wanted),) = task["calls"][0].items()
        # The task's own name, not its alias: what is measured is the model, no wire is in between.
        tools: list[Tool] = [Described(own[tool]) for tool in task["tools"]]
        yield [Message(each["role"], each["content"]) for each in task["messages"]], tools, name, wanted


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def is_acceptable(arguments: Any, wanted: dict[str, list[Any]]) -> bool:
    """Whether each argument is one of its acceptable values, and only such are missing that may be ("" among them)."""
    return set(arguments) <= set(wanted) and all(
        any(_is_same(arguments[key], value) for value in values) if key in arguments else "" in values
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
