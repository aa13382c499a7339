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
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_args

from toolkit.audit.locks import lock_byte, unlock_byte
from toolkit.errors import RunExists, StoreError
from toolkit.messages import PendingCall, ToolResult
from toolkit.runs.results import RunResult, as_plain, reader
from toolkit.runs.state import Run, StopReason

# One entry per version of the file; a file of an older version is brought up by those after its own. A number is never
# used again (AUTOINCREMENT): it is the lease of its run.
_MIGRATIONS = (
    """
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, status TEXT NOT NULL, state TEXT NOT NULL,
        created REAL NOT NULL, updated REAL NOT NULL
    );
    CREATE INDEX runs_by_status ON runs (status);
    CREATE TABLE parts (run INTEGER NOT NULL, part TEXT NOT NULL, position INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (run, part, position)) WITHOUT ROWID;
    CREATE TABLE calls (run INTEGER NOT NULL, id TEXT NOT NULL, result TEXT, PRIMARY KEY (run, id)) WITHOUT ROWID;
    """,
)
_APPLICATION = 0x746B7231  # in the header of the file, by which it is known as a store
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
        if str(path) == ":memory:":
            raise StoreError(
                "A store in memory would outlive nothing. Give it the path of a file."
            )
        self.path, self._durable = Path(os.path.realpath(path)), durable
        self._database: sqlite3.Connection | None = None
        self._saved: dict[str, _Saved] = {}
        _stores.add(self)
        with self._transaction():
            pass  # what cannot be opened is told at once

    def __del__(self) -> None:
        if database := getattr(self, "_database", None):
            database.close()

    def create(self, run: Run) -> None:
        """Keep a new run, claimed. Raises RunExists where its id is taken."""
        with ExitStack() as undo, self._transaction() as database:
            now = time.time()
            made = database.execute(
                "INSERT OR IGNORE INTO runs VALUES (NULL, ?, '', '', ?, ?)",
                (run.id, now, now),
            )
            if not made.rowcount:
                raise RunExists(
                    f"The store has a run {run.id!r} already. Resume it, or choose another run_id."
                )
            self._lease(run.id, made.lastrowid or 0, undo)
            self._write(database, run, "running")
        self._saved[run.id].kept = _lengths(run)

    def claim(self, run_id: str) -> Run:
        """The run as it was left, for this process alone until `release`. Raises StoreError where somebody has it."""
        with ExitStack() as undo, self._transaction() as database:
            number, _, state = self._row(database, run_id)
            self._lease(run_id, number, undo)
            run = _read_run(database, number, state)
        self._saved[run_id].kept = _lengths(run)
        return run

    def save(self, run: Run, status: str) -> None:
        """Keep the state of a claimed run."""
        with self._transaction() as database:
            self._write(database, run, status)
        self._claimed(run.id).kept = _lengths(run)

    def began(self, run_id: str, turn: int, calls: Sequence[PendingCall]) -> None:
        """Keep that these calls start, of tools that are not `read`."""
        number = self._claimed(run_id).number
        rows = [(number, call.id) for call in calls if call.permission != "read"]
        if rows:
            with self._transaction() as database:
                database.executemany(
                    "INSERT OR REPLACE INTO calls VALUES (?, ?, NULL)", rows
                )

    def ended(
        self, run_id: str, turn: int, call: PendingCall, result: ToolResult
    ) -> None:
        """Keep the result of a call, before the others of its batch have ended."""
        row = (self._claimed(run_id).number, call.id, _as_text(result))
        with self._transaction() as database:
            database.execute("INSERT OR REPLACE INTO calls VALUES (?, ?, ?)", row)

    def release(self, run_id: str) -> None:
        """Give a claimed run free, for any process."""
        with _lock:
            if saved := self._saved.pop(run_id, None):
                _held.discard((self.path, saved.number))
                unlock_byte(_lease_files[self.path], saved.number)

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
        if (
            status == "applied"
        ):  # a plan, which says nothing of how its run came to its end
            status = run.stopped or status
        if status not in get_args(StopReason):
            raise StoreError(
                f"The run {run_id!r} has come to no end ({status!r}). Go on with resume({run_id!r}, …)."
            )
        return RunResult(run, status, run.waiting)  # type: ignore[arg-type]

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
        with ExitStack() as undo, self._transaction() as database:
            number, _, _ = self._row(database, run_id)
            self._lease(run_id, number, undo)
            for table, column in (
                ("parts", "run"),
                ("calls", "run"),
                ("runs", "number"),
            ):
                database.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))
        self.release(run_id)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), durable=self._durable), (
            str(self.path.absolute()),
        )

    def close(self) -> None:
        """Close the file. A store that is used again opens it again."""
        with _lock:
            if self._database:
                self._database.close()
            self._database = None

    def _write(self, database: sqlite3.Connection, run: Run, status: str) -> None:
        saved = self._claimed(run.id)
        changed = (
            status,
            _as_text({f.name: getattr(run, f.name) for f in _STATE}),
            time.time(),
            saved.number,
        )
        database.execute(
            "UPDATE runs SET status = ?, state = ?, updated = ? WHERE number = ?",
            changed,
        )
        rows = [
            (saved.number, part, at, _as_text(items[at]))
            for (part, items), kept in zip(_parts(run).items(), saved.kept, strict=True)
            for at in range(kept, len(items))
        ]
        database.executemany("INSERT OR REPLACE INTO parts VALUES (?, ?, ?, ?)", rows)
        if not run.open_calls:
            database.execute("DELETE FROM calls WHERE run = ?", (saved.number,))

    def _row(self, database: sqlite3.Connection, run_id: str) -> tuple[int, str, str]:
        found: list[tuple[int, str, str]]
        found = database.execute(
            "SELECT number, status, state FROM runs WHERE id = ?", (run_id,)
        ).fetchall()
        if not found:
            raise StoreError(f"The store {self.path.name!r} has no run {run_id!r}.")
        return found[0]

    def _lease(self, run_id: str, number: int, undo: ExitStack) -> None:
        if not _take(self.path, number):
            raise StoreError(
                f"The run {run_id!r} is being driven, by this or another process."
            )
        self._saved[run_id] = _Saved(number)
        undo.push(lambda error, *_: self.release(run_id) if error else None)

    def _claimed(self, run_id: str) -> _Saved:
        try:
            return self._saved[run_id]
        except KeyError:
            raise StoreError(
                f"The run {run_id!r} is not claimed. Go on with resume({run_id!r}, store=…)."
            ) from None

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _lock:
            try:
                database = self._database = self._database or _open(
                    self.path, self._durable
                )
                try:
                    database.execute("BEGIN IMMEDIATE")
                    yield database
                    database.execute("COMMIT")
                finally:
                    if database.in_transaction:
                        database.execute("ROLLBACK")
            except (sqlite3.Error, OSError) as error:
                raise StoreError(
                    f"The store {self.path.name!r} cannot be used: {error}."
                ) from error


@dataclass(slots=True)
class _Saved:
    """A claimed run: its number, and how much is kept of each of its growing parts."""

    number: int
    kept: tuple[int, ...] = (0, 0, 0)


# Of the whole process. The runs that it drives, as numbers of bytes that are locked in a file beside the store's: one
# open file per path, or its locks would end each other.
_lock = threading.RLock()
_stores: weakref.WeakSet[SQLiteStore] = weakref.WeakSet()
_lease_files: dict[Path, int] = {}
_held: set[tuple[Path, int]] = set()


def _take(path: Path, number: int) -> bool:
    if path not in _lease_files:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
        _lease_files[path] = os.open(path.with_name(path.name + ".lease"), flags, 0o666)
    if (path, number) in _held or not lock_byte(_lease_files[path], number, wait=False):
        return False
    _held.add((path, number))
    return True


_STATE = tuple(
    field
    for field in fields(Run)
    if field.name not in ("messages", "log", "decided", "settled")
)


def _parts(run: Run) -> dict[str, Sequence[Any]]:
    """What only grows in a run: of it, a step writes what is new."""
    return {
        "messages": run.messages,
        "log": run.log,
        "decided": tuple(run.decided.items()),
    }


def _lengths(run: Run) -> tuple[int, ...]:
    return tuple(len(items) for items in _parts(run).values())


def _as_text(value: Any) -> str:
    return json.dumps(
        as_plain(value)
    )  # ASCII: SQLite takes no lone surrogates, which arguments may hold


def _read_run(database: sqlite3.Connection, number: int, state: str) -> Run:
    parts: dict[str, list[Any]] = {"messages": [], "log": [], "decided": []}
    rows = database.execute(
        "SELECT part, body FROM parts WHERE run = ? ORDER BY part, position", (number,)
    )
    for part, body in rows:
        parts[part].append(json.loads(body))
    run: Run = reader(Run)(
        {**json.loads(state), **parts, "decided": dict(parts["decided"])}
    )
    calls = dict(
        database.execute("SELECT id, result FROM calls WHERE run = ?", (number,))
    )
    read = reader(ToolResult)
    # A plan is applied when its run has ended: its calls are no longer open.
    ids = list(calls) if run.applied else [call.id for call in run.open_calls]
    settled = {
        call_id: read(json.loads(text))
        if (text := calls[call_id])
        else ToolResult(call_id, _UNKNOWN, True, "unknown")
        for call_id in ids
        if call_id in calls
    }
    return replace(run, settled=settled)


def _open(path: Path, durable: bool) -> sqlite3.Connection:
    database = sqlite3.connect(
        path, timeout=_WAITS_FOR_OTHERS, isolation_level=None, check_same_thread=False
    )
    try:
        database.execute("BEGIN IMMEDIATE")
        _migrate(database, path)
        database.execute("COMMIT")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    except BaseException:
        database.close()
        raise
    return database


def _migrate(database: sqlite3.Connection, path: Path) -> None:
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != _APPLICATION and (application or version or tables):
        raise StoreError(
            f"The file {path.name!r} is a database of something else. Give the store a file of its own."
        )
    if version > len(_MIGRATIONS):
        raise StoreError(
            f"The store {path.name!r} is of version {version}, newer than this toolkit knows."
        )
    if version < len(_MIGRATIONS):
        for statement in ";".join(_MIGRATIONS[version:]).split(";"):
            database.execute(statement)
        database.execute(f"PRAGMA application_id = {_APPLICATION}")
        database.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")


def _before_fork() -> None:
    """Close every store, and hold it: SQLite's locks stay with the parent, while a child would believe it has them."""
    _lock.acquire()
    for store in list(_stores):
        store.close()


def _after_fork_in_child() -> None:
    for store in list(_stores):
        store._saved.clear()
    while _lease_files:
        os.close(_lease_files.popitem()[1])
    _held.clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_lock.release,
        after_in_child=_after_fork_in_child,
    )
