"""Runs in processes that kill themselves (SIGKILL) at a chosen event, and are gone on with in further processes.

Started as a script, it imports all that a run needs, then forks one child for each life of a run: with one thread only,
so that a fork is safe. An event is a statement to SQLite, a line of the audit reaching the disk, a request to the
model, a question to the approver, and the beginning, the effect and the end of a tool.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import itertools
import json
import os
import random
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import toolkit
from toolkit import ScriptedModel, ToolCall, ToolRegistry
from toolkit.audit import AuditLog, verify
from toolkit.errors import StoreError
from toolkit.messages import ToolResult
from toolkit.runs.results import reader
from toolkit.runs.state import Run, StopReason
from toolkit.store import SQLiteStore
from toolkit.tools.request import Request


class Clock:
    """Counts the events of this process, and ends it at the one that was chosen."""

    def __init__(self, death: int | None) -> None:
        self.count, self.death, self.lock = itertools.count(1), death, threading.Lock()

    def tick(self) -> None:
        with self.lock:
            if next(self.count) == self.death:
                os.kill(os.getpid(), signal.SIGKILL)


clock = Clock(None)


class TickingConnection(sqlite3.Connection):
    def execute(self, *arguments: Any) -> Any:
        clock.tick()
        return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> Any:
        clock.tick()
        return super().executemany(*arguments)


class TickingStore(SQLiteStore):
    """Tells the diary what it has kept."""

    def __init__(self, path: Path, diary: Diary) -> None:
        super().__init__(path)
        self.diary = diary

    def ended(self, run_id: str, turn: int, call: Any, result: Any) -> None:
        super().ended(run_id, turn, call, result)
        self.diary.write("kept", call.id)
        clock.tick()


class Diary:
    """What was done to the world: one line each, in the file as soon as `write` returns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, what: str, key: str) -> None:
        os.write(self.file, f"{what} {key}\n".encode())

    def read(self) -> list[tuple[str, str]]:
        return [
            (what, key)
            for what, _, key in (
                line.partition(" ") for line in self.path.read_text().splitlines()
            )
        ]


def die_in_sqlite_and_on_disk_too() -> None:
    sqlite3.connect = functools.partial(sqlite3.connect, factory=TickingConnection)  # type: ignore[assignment]
    fsync = os.fsync

    def ticking_fsync(file: int) -> None:
        clock.tick()
        fsync(file)
        clock.tick()

    os.fsync = ticking_fsync


def make_tools(diary: Diary) -> ToolRegistry:
    """Tools of all tiers; the key that each gets is the id of its call."""

    def act(key: str) -> str:
        clock.tick()
        diary.write("began", key)
        clock.tick()
        diary.write("done", key)
        clock.tick()
        return f"done {key}"

    def look(key: str) -> str:
        return act(key)

    def put(key: str) -> str:
        return act(key)

    def put_in_line(key: str) -> str:
        return act(key)

    async def put_async(key: str) -> str:
        return act(key)

    def pay(key: str) -> str:
        return act(key)

    registry = ToolRegistry()
    registry.register_tool(look, description="Look.", permission="read")
    registry.register_tool(put, description="Put.")
    registry.register_tool(put_in_line, description="Put.", parallel=False)
    registry.register_tool(put_async, description="Put.")
    registry.register_tool(pay, description="Pay.", permission="sensitive")
    return registry


def ask(name: str, id: str) -> ToolCall:
    return ToolCall(id, name, {"key": id})


EIGHT_TURNS: list[Any] = [
    ask("look", "1"),
    ask("put", "2"),
    [ask("put", "3a"), ask("look", "3b"), ask("put_async", "3c")],
    ask("pay", "4"),
    [ask("look", "5a"), ask("pay", "5b"), ask("pay", "5c")],
    [ToolCall("6a", "put", raw='{"wrong": 1}'), ask("put", "6b")],
    [ask("put_in_line", "7a"), ask("put_in_line", "7b")],
    "the end",
]
THREE_TURNS: list[Any] = [
    [ask("look", "1a"), ask("put", "1b")],
    ask("put_async", "2"),
    "the end",
]


def play(turns: list[Any], prefix: str = "") -> ScriptedModel:
    """The model's turn is known from the messages, so that it goes on in another process."""

    def reply(request: Request) -> Any:
        clock.tick()
        turn = turns[sum(message.role == "assistant" for message in request.messages)]
        calls = [turn] if isinstance(turn, ToolCall) else turn
        if isinstance(calls, str):
            return calls
        return [
            ToolCall(
                prefix + c.id, c.name, (c.raw and {}) or {"key": prefix + c.id}, c.raw
            )
            for c in calls
        ]

    return ScriptedModel(reply)


def approve(call: ToolCall) -> str:
    clock.tick()
    return "approve"


def live(folder: Path, driver: str) -> None:
    """One life of the run of eight turns: begun where the store has none, else gone on with."""
    die_in_sqlite_and_on_disk_too()
    diary = Diary(folder / "diary")
    store = TickingStore(folder / "runs.db", diary)
    options: dict[str, Any] = {
        "model": play(EIGHT_TURNS),
        "tools": make_tools(diary),
        "approve": approve,
        "store": store,
        "audit": AuditLog(folder / "audit.jsonl"),
    }
    is_kept = bool(store.runs())
    if driver == "sync":
        result = (
            toolkit.resume("r", **options)
            if is_kept
            else toolkit.run_agent_with_tools("", run_id="r", **options)
        )
    elif is_kept:
        result = asyncio.run(toolkit.aresume("r", **options))
    else:
        result = asyncio.run(toolkit.arun_agent_with_tools("", run_id="r", **options))
    (folder / "result.json").write_text(result.to_json())


def fork(work: Callable[[], None], death: int | None) -> int:
    """Do work in a child that dies at an event; its process id."""
    child = os.fork()
    if child:
        return child
    clock.__init__(death)  # type: ignore[misc]
    try:
        work()
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


def wait_for(child: int) -> str:
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return (
            "killed"
            if os.WTERMSIG(status) == signal.SIGKILL
            else f"signal {os.WTERMSIG(status)}"
        )
    return "ended" if os.WEXITSTATUS(status) == 0 else "failed"


def die_everywhere(
    folder: Path, driver: str, first: int, step: int, twice: int
) -> Iterator[dict[str, Any]]:
    """Lives that end at the event `first`, at `step` after it …; each is followed by one to the end.

    Of the deaths that `twice` divides, a second life comes in between that ends, too.
    """
    for death in itertools.count(first, step):
        place = folder / f"{driver}-{death}"
        place.mkdir()
        lives: list[str] = []
        for end in [
            death,
            *([death * 37 % 61 + 1] if death % twice == 0 else []),
            None,
        ]:
            lives.append(wait_for(fork(functools.partial(live, place, driver), end)))
            if lives[-1] != "killed":
                break
        yield {"place": str(place), "lives": lives, **look_at(place, "r")}
        if lives == ["ended"]:
            return


def check_integrity(folder: Path) -> str:
    with contextlib.closing(sqlite3.connect(folder / "runs.db")) as database:
        return str(database.execute("PRAGMA integrity_check").fetchone()[0])


def look_at(folder: Path, run_id: str) -> dict[str, Any]:
    store = SQLiteStore(folder / "runs.db")
    check = check_integrity(folder)
    audit = verify(folder / "audit.jsonl")
    stored = store.result(run_id)
    return {
        "statuses": [run.status for run in store.runs()],
        "integrity": check,
        "result": stored.to_json(),
        "diary": Diary(folder / "diary").read(),
        "audit": audit.problems,
        "unfinished": audit.unfinished,
    }


def live_with_others(folder: Path, worker: int, runs: int) -> None:
    """Drive the runs of one worker, all at once, and any that another has left behind."""
    die_in_sqlite_and_on_disk_too()
    diary = Diary(folder / "diary")
    store, tools = TickingStore(folder / "runs.db", diary), make_tools(diary)
    mine = {f"{worker}-{number}" for number in range(runs)}

    async def drive(run_id: str, is_kept: bool) -> None:
        options: dict[str, Any] = {
            "model": play(THREE_TURNS, run_id + ":"),
            "tools": tools,
            "store": store,
        }
        if not is_kept:
            await toolkit.arun_agent_with_tools("", run_id=run_id, **options)
            return
        try:
            await toolkit.aresume(run_id, **options)
        except StoreError as error:  # another worker drives it
            if "is being driven" not in str(error):
                raise

    async def drive_all() -> None:
        kept = {run.id: run.status for run in store.runs()}
        left = [run_id for run_id, status in kept.items() if status == "running"]
        new = [run_id for run_id in sorted(mine) if run_id not in kept]
        await asyncio.gather(
            *[drive(run_id, True) for run_id in left],
            *[drive(run_id, False) for run_id in new],
        )

    asyncio.run(drive_all())


def live_under_load(
    folder: Path, workers: int, runs: int, deaths: int
) -> Iterator[dict[str, Any]]:
    """Several workers, each with many runs, that die at random and are replaced; the last ones live."""
    chance = random.Random(7)
    ends = {
        worker: [chance.randrange(50, 600) for _ in range(deaths)]
        for worker in range(workers)
    }

    def begin(worker: int) -> int:
        end = ends[worker].pop() if ends[worker] else None
        return fork(functools.partial(live_with_others, folder, worker, runs), end)

    alive = {begin(worker): worker for worker in range(workers)}
    lives = []
    while alive:
        child, status = os.wait()
        worker = alive.pop(child)
        lives.append(
            "killed" if os.WIFSIGNALED(status) else "ended" if status == 0 else "failed"
        )
        if os.WIFSIGNALED(status):
            alive[begin(worker)] = worker
    # What a worker drove that died last was left by the others, for they could not know.
    lives.append(
        wait_for(fork(functools.partial(live_with_others, folder, workers, 0), None))
    )
    store = SQLiteStore(folder / "runs.db")
    check = check_integrity(folder)
    yield {
        "lives": lives,
        "integrity": check,
        "results": {run.id: store.result(run.id).to_json() for run in store.runs()},
        "diary": Diary(folder / "diary").read(),
    }


if __name__ == "__main__":
    todo, folder, *rest = sys.argv[1:]
    for kind in (Run, ToolResult, StopReason):
        reader(kind)  # once, not in each child
    gc.freeze()  # so that the children share this memory
    if todo == "everywhere":
        driver, *numbers = rest
        found = die_everywhere(Path(folder), driver, *map(int, numbers))
    else:
        found = live_under_load(Path(folder), *map(int, rest))
    for one in found:
        print(json.dumps(one), flush=True)
