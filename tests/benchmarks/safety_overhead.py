"""What a turn costs more with a store, with an audit and with both than without.

Runs of many turns against the scripted server of the tests on loopback, in a process of its own, so that its work is
not counted. The kinds take turns in a new order each round. A ratio is the median of the ratios, within a round, to the
runs without either: of the time on the clock, and of that of the processor in the client.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from server import ChatServer, answer, call
from toolkit import Model, ToolRegistry, run_agent_with_tools
from toolkit.store import SQLiteStore

TURNS = 40


def serve(pipe: Any) -> None:
    """A server that answers each request for as long as it is asked: calls, and after `TURNS` of them a text."""
    logging.disable()
    server = ChatServer()
    pipe.send(server.base_url)

    class Endless:
        def __bool__(self) -> bool:
            return True

        def popleft(self) -> Any:
            messages = server.requests[-1].body["messages"]
            turn = sum(message["role"] == "assistant" for message in messages)
            server.requests.clear()
            if turn == TURNS:
                return "ended"
            return answer(
                None, call("note", {"text": f"line {turn}", "count": turn}, f"c{turn}")
            )

    server.plays = Endless()  # type: ignore[assignment]
    server.serve_forever()


def note(text: str, count: int = 1) -> str:
    """Note a text."""
    return f"noted {text} {count}"


def measure(
    base_url: str, rounds: int, folders: dict[str, Path]
) -> dict[str, list[tuple[float, float]]]:
    model = Model("m", base_url=base_url, api_key="none")
    tools = {"read": ToolRegistry(), "write": ToolRegistry()}
    for permission, registry in tools.items():
        registry.register_tool(note, permission=permission)  # type: ignore[arg-type]
    kinds: dict[str, dict[str, Any]] = {"read": {}, "write": {}}
    for place, folder in folders.items():
        store, audit = SQLiteStore(folder / "runs.db"), folder / "audit.jsonl"
        kinds[f"read, store, {place}"] = {"store": store}
        kinds[f"write, store, {place}"] = {"store": store}
        kinds[f"write, audit, {place}"] = {"audit": audit}
        kinds[f"write, both, {place}"] = {"store": store, "audit": audit}
    taken: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    order, chance = list(kinds), random.Random(1)
    for number in range(rounds + 1):
        chance.shuffle(order)
        for kind in order:
            registry = tools[kind.split(",")[0]]
            started = time.perf_counter(), time.process_time()
            result = run_agent_with_tools(
                "go", model=model, tools=registry, max_turns=TURNS + 2, **kinds[kind]
            )
            ended = time.perf_counter(), time.process_time()
            if str(result) != "ended" or len(result.calls) != TURNS:
                raise SystemExit(f"The run did not go as it should: {result!r}")
            if number:  # the first warms up
                taken[kind].append(
                    (
                        (ended[0] - started[0]) / (TURNS + 1),
                        (ended[1] - started[1]) / (TURNS + 1),
                    )
                )
    return taken


def main(parse: Callable[[list[str] | None], argparse.Namespace]) -> None:
    given = parse(None)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with (
        tempfile.TemporaryDirectory(dir=given.disk) as disk,
        tempfile.TemporaryDirectory(dir=memory) as quick,
    ):
        folders = {"disk": Path(disk), **({"memory": Path(quick)} if memory else {})}
        found = measure(ours.recv(), given.rounds, folders)
    server.terminate()
    for kind, times in found.items():
        base = found[kind.split(",")[0]]
        clock, processor = (
            (
                statistics.median(1000 * each[which] for each in times),
                statistics.median(
                    each[which] / other[which]
                    for each, other in zip(times, base, strict=True)
                ),
            )
            for which in (0, 1)
        )
        print(
            f"{kind:22}{clock[0]:8.2f} ms, x{clock[1]:.2f}{processor[0]:8.2f} ms, x{processor[1]:.2f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="runs of each kind (15)")
    parser.add_argument("--disk", default=None, help="a folder on the disk to measure")
    main(parser.parse_args)
