"""Runs in a SQLite file: every step kept before the next, and no run driven by two processes.

A process that is killed loses nothing that was saved. `resume(run_id, store=…)` goes on: a tool that has finished is
not run again, and a call of a `write` or `sensitive` tool that began and never reported is answered with "outcome
unknown" and not run again either. Loss of power may cost the last steps, unless the store is `durable`.
"""

from __future__ import annotations

import functools
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, BinaryIO, get_args

from toolkit.errors import RunExists, StoreError
from toolkit.locks import lock_byte, unlock_byte
from toolkit.loop import Run, StopReason, waiting
from toolkit.messages import Message, ToolCall, ToolResult
from toolkit.results import RunResult, as_plain, reader
from toolkit.tools import Tool

# One entry per version of the file; a file of an older version is brought up by those after its own.
_MIGRATIONS = (
    """
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, status TEXT NOT NULL, state TEXT NOT NULL,
        created REAL NOT NULL, updated REAL NOT NULL
    );
    CREATE INDEX runs_by_status ON runs (status);
    CREATE TABLE messages (run INTEGER NOT NULL, position INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (run, position)) WITHOUT ROWID;
    CREATE TABLE calls (run INTEGER NOT NULL, id TEXT NOT NULL, result TEXT, PRIMARY KEY (run, id)) WITHOUT ROWID;
    """,
)
_UNKNOWN = "Outcome unknown: the call began, then the process ended. It may have taken effect, and is not run again."
_WAITS_FOR_OTHERS = 60  # seconds, for another process to end its step


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A line of a store's listing. `created` and `updated` are seconds since 1970."""

    id: str
    status: str
    created: float
    updated: float


class SQLiteStore:
    """A `RunStore` in one SQLite file (in WAL mode), for any number of threads and of processes on one machine.

    Which process drives a run is a lock that ends with the process, on the file `PATH.lease`. With `durable=True` each
    step waits until the disk has it. Raises StoreError where `path` is no store, or one of a newer version.
    """

    def __init__(self, path: str | Path, *, durable: bool = False) -> None:
        self.path, self._durable = Path(path), durable
        self._lock = threading.RLock()
        self._process, self._database = 0, None  # type: int, sqlite3.Connection | None
        self._saved: dict[str, tuple[int, int]] = {}  # of each claimed run: its number, and how many messages are kept
        with self._transaction():
            pass  # what cannot be opened is told at once

    def create(self, run: Run) -> None:
        """Keep a new run, claimed. Raises RunExists where its id is taken."""
        with self._transaction() as database:
            now = time.time()
            made = database.execute("INSERT OR IGNORE INTO runs VALUES (NULL, ?, '', '', ?, ?)", (run.id, now, now))
            if not made.rowcount:
                raise RunExists(f"The store has a run {run.id!r} already. Resume it, or choose another run_id.")
            self._lease(run.id, made.lastrowid or 0)
            self._write(database, run, "running")
        self._saved[run.id] = (self._saved[run.id][0], len(run.messages))

    def claim(self, run_id: str) -> Run:
        """The run as it was left, for this process alone until `release`. Raises StoreError where somebody has it."""
        with self._transaction() as database:
            number, _, state = self._row(database, run_id)
            self._lease(run_id, number)
            try:
                run = _read_run(database, number, state)
            except BaseException:
                self.release(run_id)
                raise
            self._saved[run_id] = (number, len(run.messages))
            return run

    def save(self, run: Run, status: str) -> None:
        """Keep the state of a claimed run."""
        with self._transaction() as database:
            self._write(database, run, status)
        self._saved[run.id] = (self._claimed(run.id)[0], len(run.messages))

    def began(self, run: Run, calls: Sequence[tuple[ToolCall, Tool]]) -> None:
        """Keep that these calls start, of tools that are not `read`."""
        number, _ = self._claimed(run.id)
        if rows := [(number, call.id) for call, tool in calls if tool.permission != "read"]:
            with self._transaction() as database:
                database.executemany("INSERT OR REPLACE INTO calls VALUES (?, ?, NULL)", rows)

    def ended(self, run: Run, call: ToolCall, tool: Tool, result: ToolResult) -> None:
        """Keep the result of a call, before the others of its batch have ended."""
        row = (self._claimed(run.id)[0], call.id, _as_text(result))
        with self._transaction() as database:
            database.execute("INSERT OR REPLACE INTO calls VALUES (?, ?, ?)", row)

    def release(self, run_id: str) -> None:
        """Give a claimed run free, for any process."""
        with self._lock:
            number, _ = self._saved.pop(run_id, (0, 0))
            if number:
                _leases_of(self.path).give(number)

    def load(self, run_id: str) -> Run:
        """The run as it was left, to look at; `claim` is for going on. Raises StoreError where there is none."""
        with self._transaction() as database:
            number, _, state = self._row(database, run_id)
            return _read_run(database, number, state)

    def result(self, run_id: str) -> RunResult:
        """What a run came to. Raises StoreError where there is none, or it neither ended nor waits."""
        with self._transaction() as database:
            number, status, state = self._row(database, run_id)
            run = _read_run(database, number, state)
        if status not in get_args(StopReason):
            raise StoreError(f"The run {run_id!r} has come to no end ({status!r}). Go on with resume({run_id!r}, …).")
        return RunResult(run, status, waiting(run, lambda call: False))  # type: ignore[arg-type]

    def waiting(self) -> list[RunResult]:
        """The runs that wait for a verdict, the oldest first."""
        return [self.result(run.id) for run in self.runs("awaiting_approval")]

    def runs(self, status: str | None = None) -> list[StoredRun]:
        """All runs, or those of one status ("running", "stopped", a stop reason), the oldest first."""
        with self._transaction() as database:
            rows = database.execute(
                "SELECT id, status, created, updated FROM runs WHERE ? IS NULL OR status = ? ORDER BY number",
                (status, status),
            )
            return [StoredRun(*row) for row in rows]

    def delete(self, run_id: str) -> None:
        """Forget a run. Raises StoreError where there is none, or somebody drives it."""
        with self._transaction() as database:
            number, _, _ = self._row(database, run_id)
            self._lease(run_id, number)
            for table, column in (("messages", "run"), ("calls", "run"), ("runs", "number")):
                database.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))
        self.release(run_id)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), durable=self._durable), (str(self.path.absolute()),)

    def close(self) -> None:
        """Close the file; runs that are driven meanwhile fail. A store that is used again opens it again."""
        with self._lock:
            if self._database:
                self._database.close()
            self._database = None

    def _write(self, database: sqlite3.Connection, run: Run, status: str) -> None:
        number, kept = self._claimed(run.id)
        state = json.dumps({f.name: as_plain(getattr(run, f.name)) for f in _STATE}, ensure_ascii=False)
        messages = [(number, at, _as_text(run.messages[at])) for at in range(kept, len(run.messages))]
        changed = (status, state, time.time(), number)
        database.execute("UPDATE runs SET status = ?, state = ?, updated = ? WHERE number = ?", changed)
        database.executemany("INSERT OR REPLACE INTO messages VALUES (?, ?, ?)", messages)
        if not run.open_calls:
            database.execute("DELETE FROM calls WHERE run = ?", (number,))

    def _row(self, database: sqlite3.Connection, run_id: str) -> tuple[int, str, str]:
        row = database.execute("SELECT number, status, state FROM runs WHERE id = ?", (run_id,)).fetchone()
        if row is None:
            raise StoreError(f"The store {self.path.name!r} has no run {run_id!r}.")
        number, status, state = row
        return number, status, state

    def _lease(self, run_id: str, number: int) -> None:
        if not _leases_of(self.path).take(number):
            raise StoreError(f"The run {run_id!r} is being driven, by this or another process.")
        self._saved[run_id] = (number, 0)

    def _claimed(self, run_id: str) -> tuple[int, int]:
        try:
            return self._saved[run_id]
        except KeyError:
            raise StoreError(f"The run {run_id!r} is not claimed. Go on with resume({run_id!r}, store=…).") from None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                database = self._opened()
                database.execute("BEGIN IMMEDIATE")
                try:
                    yield database
                except BaseException:
                    database.execute("ROLLBACK")
                    raise
                database.execute("COMMIT")
            except sqlite3.Error as error:
                raise StoreError(f"The store {self.path.name!r} cannot be used: {error}.") from error

    def _opened(self) -> sqlite3.Connection:
        if self._database is None or self._process != os.getpid():  # a forked child has its own connection
            database = sqlite3.connect(
                self.path, timeout=_WAITS_FOR_OTHERS, isolation_level=None, check_same_thread=False
            )
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")
            _migrate(database, self.path)
            self._database, self._process, self._saved = database, os.getpid(), {}
        return self._database


class _Leases:
    """The runs of one file that this process drives: numbers of bytes that are locked in a file beside it."""

    def __init__(self, path: Path) -> None:
        self.process, self.lock, self.held = os.getpid(), threading.Lock(), set[int]()
        self.file: BinaryIO = open(path.with_name(path.name + ".lease"), "ab+", buffering=0)  # noqa: SIM115  # kept

    def take(self, number: int) -> bool:
        with self.lock:
            if number in self.held or not lock_byte(self.file, number, wait=False):
                return False
            self.held.add(number)
            return True

    def give(self, number: int) -> None:
        with self.lock:
            if number in self.held:
                self.held.discard(number)
                unlock_byte(self.file, number)


_leases: dict[str, _Leases] = {}
_leases_lock = threading.Lock()


def _leases_of(path: Path) -> _Leases:
    """One open file per path and process, or its locks would end each other."""
    key = os.path.realpath(path)
    with _leases_lock:
        if key not in _leases or _leases[key].process != os.getpid():
            _leases[key] = _Leases(path)
        return _leases[key]


_STATE = tuple(field for field in fields(Run) if field.name not in ("messages", "settled"))


def _as_text(value: Message | ToolResult) -> str:
    return json.dumps(as_plain(value), ensure_ascii=False)


def _read_run(database: sqlite3.Connection, number: int, state: str) -> Run:
    bodies = database.execute("SELECT body FROM messages WHERE run = ? ORDER BY position", (number,))
    run: Run = reader(Run)({**json.loads(state), "messages": [json.loads(body) for (body,) in bodies]})
    calls = dict(database.execute("SELECT id, result FROM calls WHERE run = ?", (number,)))
    read = reader(ToolResult)
    settled = {
        call.id: read(json.loads(text)) if (text := calls[call.id]) else ToolResult(call.id, _UNKNOWN, True, "unknown")
        for call in run.open_calls
        if call.id in calls
    }
    return replace(run, settled=settled)


def _migrate(database: sqlite3.Connection, path: Path) -> None:
    database.execute("BEGIN IMMEDIATE")
    try:
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > len(_MIGRATIONS):
            raise StoreError(f"The store {path.name!r} is of version {version}, newer than this toolkit knows.")
        for statements in _MIGRATIONS[version:]:
            for statement in statements.split(";"):
                database.execute(statement)
        database.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")
        database.execute("COMMIT")
    except BaseException:
        database.execute("ROLLBACK")
        database.close()
        raise
