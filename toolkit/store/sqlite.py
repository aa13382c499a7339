"""The store: who drives a run, and when a step of it is saved."""

from __future__ import annotations

import functools
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args
from weakref import WeakSet

from toolkit.audit.locks import lock_byte, unlock_byte
from toolkit.errors import RunExists, StoreError
from toolkit.messages import PendingCall, ToolResult
from toolkit.runs.results import RunResult
from toolkit.runs.state import Run, StopReason
from toolkit.store.database import as_text, open_database, read_run, write_run


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run in the listing of a store. `created` and `updated` are seconds since 1970."""

    id: str
    status: str
    created: float
    updated: float


class SQLiteStore:
    """A `RunStore` in one SQLite file (in WAL mode), for any number of threads and processes on one machine.

    The file `PATH.lease` holds a lock for each run that a process drives, which ends with the process.
    With `durable=True` each step waits until the disk has it. Raises StoreError if `path` is not a
    store, or one of a newer version.
    """

    def __init__(self, path: str | Path, *, durable: bool = False) -> None:
        if str(path) == ":memory:":
            raise StoreError(
                "A store in memory would lose its runs. Give it the path of a file."
            )
        self.path = Path(os.path.realpath(path))
        self._durable = durable
        self._database: sqlite3.Connection | None = None
        # The numbers of the claimed runs, by id.
        self._claims: dict[str, int] = {}
        self._file = _file_at(self.path)
        with self._file.lock:
            self._file.stores.add(self)
        # A file that cannot be opened is reported at once.
        with self._transaction():
            pass

    def __del__(self) -> None:
        if database := getattr(self, "_database", None):
            database.close()

    def create(self, run: Run) -> None:
        """Save a new run and claim it. Raises RunExists if its id is taken."""
        with self._transaction() as database:
            now = time.time()
            inserted = database.execute(
                "INSERT OR IGNORE INTO runs VALUES (NULL, ?, '', '', ?, ?)",
                (run.id, now, now),
            )
            if not inserted.rowcount:
                raise RunExists(
                    f"The store has a run {run.id!r} already. "
                    "Resume it, or choose another run_id."
                )
            number = inserted.lastrowid or 0
            self._lease(run.id, number)
            write_run(database, number, run, "running")

    def claim(self, run_id: str) -> Run:
        """Return the run as it was saved, for this process alone until `release`. Raises StoreError if it is driven."""
        with self._transaction() as database:
            number, _, state = self._find(database, run_id)
            self._lease(run_id, number)
            return read_run(database, number, state)

    def save(self, run: Run, status: str) -> None:
        """Save the state of a claimed run."""
        number = self._claimed(run.id)
        with self._transaction() as database:
            write_run(database, number, run, status)

    def began(self, run_id: str, turn: int, calls: Sequence[PendingCall]) -> None:
        """Save that these calls start, except those of tools that only read."""
        number = self._claimed(run_id)
        rows = [(number, call.id) for call in calls if call.permission != "read"]
        if rows:
            with self._transaction() as database:
                database.executemany(
                    "INSERT OR REPLACE INTO calls VALUES (?, ?, NULL)", rows
                )

    def ended(
        self, run_id: str, turn: int, call: PendingCall, result: ToolResult
    ) -> None:
        """Save the result of a call, before the others of its batch have ended."""
        row = (self._claimed(run_id), call.id, as_text(result))
        with self._transaction() as database:
            database.execute("INSERT OR REPLACE INTO calls VALUES (?, ?, ?)", row)

    def release(self, run_id: str) -> None:
        """End the claim on a run."""
        with self._file.lock:
            number = self._claims.pop(run_id, None)
            if number is not None:
                self._file.free(number)

    def load(self, run_id: str) -> Run:
        """Return the run as it was saved, without claiming it. Raises StoreError if there is no such run."""
        with self._transaction() as database:
            number, _, state = self._find(database, run_id)
            return read_run(database, number, state)

    def result(self, run_id: str) -> RunResult:
        """The result of a run. Raises StoreError if there is no such run, or it neither ended nor waits."""
        with self._transaction() as database:
            number, status, state = self._find(database, run_id)
            run = read_run(database, number, state)
        if status == "applied":
            # The status of a plan does not say how its run ended.
            status = run.stopped or status
        if status not in get_args(StopReason):
            raise StoreError(
                f"The run {run_id!r} has come to no end ({status!r}). "
                f"Continue it with resume({run_id!r}, …)."
            )
        return RunResult(run, status, run.waiting)  # type: ignore[arg-type]

    def waiting(self) -> list[RunResult]:
        """The runs that wait for a verdict, the oldest first."""
        return [self.result(run.id) for run in self.runs("awaiting_approval")]

    def runs(self, status: str | None = None) -> list[StoredRun]:
        """All runs, or those of one status ("running", "stopped", a stop reason), the oldest first."""
        with self._transaction() as database:
            rows = database.execute(
                "SELECT id, status, created, updated FROM runs "
                "WHERE ? IS NULL OR status = ? ORDER BY number",
                (status, status),
            )
            return [StoredRun(*row) for row in rows]

    def delete(self, run_id: str) -> None:
        """Delete a run. Raises StoreError if there is no such run, or it is being driven."""
        with self._transaction() as database:
            number, _, _ = self._find(database, run_id)
            self._lease(run_id, number)
            database.execute("DELETE FROM parts WHERE run = ?", (number,))
            database.execute("DELETE FROM calls WHERE run = ?", (number,))
            database.execute("DELETE FROM runs WHERE number = ?", (number,))
        self.release(run_id)

    def close(self) -> None:
        """Close the file. It opens again when the store is used again."""
        with self._file.lock:
            if self._database:
                self._database.close()
            self._database = None

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), durable=self._durable), (str(self.path),)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One step in the file. If it fails, the runs that it claimed are free again."""
        with self._file.lock:
            claims_before = set(self._claims)
            try:
                if self._database is None:
                    self._database = open_database(self.path, durable=self._durable)
                database = self._database
                try:
                    database.execute("BEGIN IMMEDIATE")
                    yield database
                    database.execute("COMMIT")
                finally:
                    if database.in_transaction:
                        database.execute("ROLLBACK")
            except BaseException as error:
                for run_id in self._claims.keys() - claims_before:
                    self.release(run_id)
                if isinstance(error, sqlite3.Error | OSError):
                    raise StoreError(
                        f"The store {self.path.name!r} cannot be used: {error}."
                    ) from error
                raise

    def _find(self, database: sqlite3.Connection, run_id: str) -> tuple[int, str, str]:
        """The number, the status and the state of a run."""
        rows = database.execute(
            "SELECT number, status, state FROM runs WHERE id = ?", (run_id,)
        )
        row: tuple[int, str, str] | None = rows.fetchone()
        if row is None:
            raise StoreError(f"The store {self.path.name!r} has no run {run_id!r}.")
        return row

    def _lease(self, run_id: str, number: int) -> None:
        if not self._file.take(number):
            raise StoreError(
                f"The run {run_id!r} is being driven, by this or another process."
            )
        self._claims[run_id] = number

    def _claimed(self, run_id: str) -> int:
        """The number of a claimed run."""
        if run_id not in self._claims:
            raise StoreError(
                f"The run {run_id!r} is not claimed. "
                f"Continue it with resume({run_id!r}, store=…)."
            )
        return self._claims[run_id]


class _StoreFile:
    """What the stores of this process share if they use the same file."""

    def __init__(self, path: Path) -> None:
        self.stores: WeakSet[SQLiteStore] = WeakSet()
        # Held during a transaction: who waits for this file holds up nobody who uses another.
        self.lock = threading.RLock()
        # The runs that this process drives, as numbers of locked bytes. It has one open file
        # per path: closing a second one would free the bytes.
        self._path = path.with_name(path.name + ".lease")
        self._descriptor: int | None = None
        self._leases: set[int] = set()

    def take(self, number: int) -> bool:
        """Lock a run. False if somebody drives it."""
        if self._descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
            self._descriptor = os.open(self._path, flags, 0o666)
        if number in self._leases:
            return False
        if not lock_byte(self._descriptor, number, wait=False):
            return False
        self._leases.add(number)
        return True

    def free(self, number: int) -> None:
        self._leases.discard(number)
        if self._descriptor is not None:
            unlock_byte(self._descriptor, number)

    def forget_parent(self) -> None:
        """In a forked child: the claims are those of the parent."""
        for store in self.stores:
            store._claims.clear()
        self._leases.clear()
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


_files: dict[Path, _StoreFile] = {}
_files_lock = threading.Lock()


def _file_at(path: Path) -> _StoreFile:
    with _files_lock:
        if path not in _files:
            _files[path] = _StoreFile(path)
        return _files[path]


def _before_fork() -> None:
    """Close every store until the fork is done. SQLite's locks stay with the parent, and the child would not know."""
    _files_lock.acquire()
    for file in _files.values():
        file.lock.acquire()
        for store in list(file.stores):
            store.close()


def _after_fork() -> None:
    for file in _files.values():
        file.lock.release()
    _files_lock.release()


def _after_fork_in_child() -> None:
    for file in _files.values():
        file.forget_parent()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=_after_fork,
        after_in_child=_after_fork_in_child,
    )
