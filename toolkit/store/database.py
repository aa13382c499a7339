"""The database of a store: its tables, and a run in their rows."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from toolkit.errors import StoreError
from toolkit.messages import ToolResult
from toolkit.runs.results import as_plain, reader
from toolkit.runs.state import Run

# One entry for each version of the file; a file of an older version gets those after its own.
# A number is never used again (AUTOINCREMENT), because it is also the lease of its run.
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
# In the header of the file, which shows that it is a store.
_APPLICATION = 0x746B7231
_UNKNOWN = (
    "Outcome unknown: the call began, then the process ended. "
    "It may have taken effect, and is not run again."
)
# For another process to end its step.
_TIMEOUT_SECONDS = 60
# Fields of a run that have rows of their own.
_IN_OTHER_ROWS = ("messages", "log", "decided", "settled")
_STATE_FIELDS = [
    field.name for field in fields(Run) if field.name not in _IN_OTHER_ROWS
]


def open_database(path: Path, *, durable: bool) -> sqlite3.Connection:
    """Connect to a store, which becomes one of this version. Raises StoreError if it is something else."""
    database = sqlite3.connect(
        path, timeout=_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
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
            f"The file {path.name!r} is a database of something else. "
            "Give the store a file of its own."
        )
    if version > len(_MIGRATIONS):
        raise StoreError(
            f"The store {path.name!r} is of version {version}, newer than this toolkit "
            "knows. Upgrade the toolkit, or give another file."
        )
    if version < len(_MIGRATIONS):
        for statement in ";".join(_MIGRATIONS[version:]).split(";"):
            database.execute(statement)
        database.execute(f"PRAGMA application_id = {_APPLICATION}")
        database.execute(f"PRAGMA user_version = {len(_MIGRATIONS)}")


def write_run(database: sqlite3.Connection, number: int, run: Run, status: str) -> None:
    """Save the state of a run."""
    state = as_text({name: getattr(run, name) for name in _STATE_FIELDS})
    database.execute(
        "UPDATE runs SET status = ?, state = ?, updated = ? WHERE number = ?",
        (status, state, time.time(), number),
    )
    # These only grow, so a step writes just what is new in them.
    parts = {
        "messages": run.messages,
        "log": run.log,
        "decided": tuple(run.decided.items()),
    }
    for part, items in parts.items():
        (saved,) = database.execute(
            "SELECT coalesce(max(position) + 1, 0) FROM parts "
            "WHERE run = ? AND part = ?",
            (number, part),
        ).fetchone()
        database.executemany(
            "INSERT INTO parts VALUES (?, ?, ?, ?)",
            [
                (number, part, position, as_text(items[position]))
                for position in range(saved, len(items))
            ],
        )
    if not run.open_calls:
        database.execute("DELETE FROM calls WHERE run = ?", (number,))


def as_text(value: Any) -> str:
    """A value as JSON in ASCII: SQLite takes no lone surrogates, which arguments may contain."""
    return json.dumps(as_plain(value))


def read_run(database: sqlite3.Connection, number: int, state: str) -> Run:
    """The run with this number. `state` is in its row."""
    parts: dict[str, list[Any]] = {"messages": [], "log": [], "decided": []}
    rows = database.execute(
        "SELECT part, body FROM parts WHERE run = ? ORDER BY part, position", (number,)
    )
    for part, body in rows:
        parts[part].append(json.loads(body))
    saved = {**json.loads(state), **parts, "decided": dict(parts["decided"])}
    run: Run = reader(Run)(saved)
    calls = database.execute("SELECT id, result FROM calls WHERE run = ?", (number,))
    return replace(run, settled=_settled(run, dict(calls)))


def _settled(run: Run, texts: Mapping[str, str | None]) -> dict[str, ToolResult]:
    """The results of the calls that began. `texts` has them as JSON, None for a call that did not end."""
    # A plan is applied after its run has ended, when its calls are no longer open.
    call_ids = list(texts) if run.applied else [call.id for call in run.open_calls]
    settled = {}
    for call_id in call_ids:
        text = texts.get(call_id)
        if text:
            settled[call_id] = reader(ToolResult)(json.loads(text))
        elif call_id in texts:
            settled[call_id] = ToolResult(
                call_id, _UNKNOWN, is_error=True, reason="unknown"
            )
    return settled
