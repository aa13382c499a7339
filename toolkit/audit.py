"""An append-only record of what tools did to the world: each line chained by hash to the one before it.

A call of a tool that is not `read` gets a line of kind "intent", on the disk before the tool starts, and one of kind
"outcome" after it; a denied call gets the outcome alone.

| field | what it is |
|---|---|
| `number`, `time` | of the line in its file, from 1; UTC in ISO 8601 |
| `kind` | "intent" or "outcome" |
| `run_id`, `turn`, `tool_call_id`, `tool_name`, `permission` | what was called, and where |
| `digest` | the SHA-256 of name and arguments as they ran (`ToolCall.digest`) |
| `arguments` | in an intent: with secrets and connection strings taken out, by the name of a field and by their form |
| `decision`, `by`, `reason` | who decided, where somebody did |
| `status` | in an outcome: "ok", "denied", "failed", "timeout", "interrupted", "unknown" |
| `seconds`, `content_digest` | in an outcome: how long it ran, and the SHA-256 of what the model read of it |
| `previous`, `hash` | the hash of the line before, and of this line without its `hash` |

Beside the file stands another, with `.head` after its name: the number and the hash of the last line, by which missing
lines at the end are found, and the lock by which several processes write to one file.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO

from toolkit.locks import lock_byte, unlock_byte
from toolkit.loop import Run
from toolkit.messages import ToolCall, ToolResult
from toolkit.rendering import redact_secrets
from toolkit.tools import Tool

_log = logging.getLogger("toolkit.audit")
_FIRST = "0" * 64  # stands before the first line
SECRET_FIELDS = (
    "password", "passwd", "passphrase", "secret", "token", "api_key", "apikey", "authorization", "credential",
    "private_key", "access_key", "pin", "cvv", "cvc", "iban", "card_number", "ssn",
)  # fmt: skip
"""The names of arguments whose values no audit shows: in any spelling, and as part of a longer name."""


class AuditLog:
    """An audit in a file, or with None only on the logger `toolkit.audit`, on which every line is told (level INFO).

    `secret_fields` are further names of arguments to redact, `secret_patterns` further regular expressions.
    Raises OSError where a line cannot be written: the call is then not begun. Raises ValueError where the file does not
    end as its head says, since somebody altered it.
    """

    def __init__(
        self,
        path: str | Path | None,
        *,
        secret_fields: Collection[str] = (),
        secret_patterns: Collection[str] = (),
    ) -> None:
        names = "|".join(re.escape(_plain_name(name)) for name in (*SECRET_FIELDS, *secret_fields))
        self._secret_name = re.compile(rf"(?:^|_)(?:{names})s?(?:_|$)")
        self._patterns = [re.compile(pattern) for pattern in secret_patterns]
        self._path = None if path is None else Path(path)
        if self._path:
            _chained_file(self._path)  # what cannot be opened is told at once

    def began(self, run: Run, calls: Sequence[tuple[ToolCall, Tool]]) -> None:
        """Write an intent for each of the calls whose tool is not `read`, and wait until the disk has them."""
        lines = [
            {
                **_who(run, call, tool, "intent"),
                "arguments": self._redacted(dict(call.arguments)),
                **_verdict(run, call),
            }
            for call, tool in calls
            if tool.permission != "read" and tool.name != run.output
        ]
        self._write(lines, sync=True)

    def ended(self, run: Run, call: ToolCall, tool: Tool, result: ToolResult) -> None:
        """Write the outcome of such a call, or of any that was denied."""
        is_denied = result.reason == "denied"
        if (tool.permission == "read" and not is_denied) or tool.name == run.output:
            return
        came = {"status": result.reason or "ok", "seconds": round(result.seconds, 6)}
        content = {"content_digest": hashlib.sha256(result.content.encode("utf-8", "replace")).hexdigest()}
        self._write([{**_who(run, call, tool, "outcome"), **_verdict(run, call), **came, **content}], sync=False)

    def _write(self, lines: list[dict[str, Any]], *, sync: bool) -> None:
        if not lines:
            return
        if self._path:
            lines = _chained_file(self._path).append(lines, sync=sync)
        for line in lines:
            _log.info("%s", _as_text(line))

    def _redacted(self, value: Any, name: str = "") -> Any:
        if name and self._secret_name.search(_plain_name(name)):
            return "[redacted]"
        if isinstance(value, str):
            value = redact_secrets(value)
            for pattern in self._patterns:
                value = pattern.sub("[redacted]", value)
        if isinstance(value, Mapping):
            return {key: self._redacted(each, str(key)) for key, each in value.items()}
        return [self._redacted(each) for each in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Verification:
    """What became of an audit file: how many lines it has, what is wrong with them, and the intents without outcome."""

    lines: int
    problems: tuple[str, ...]
    unfinished: tuple[str, ...] = ()

    @property
    def is_intact(self) -> bool:
        """Whether nothing is wrong with the lines. A call without outcome is no fault of the file."""
        return not self.problems

    def __str__(self) -> str:
        state = "intact" if self.is_intact else f"{len(self.problems)} problem(s)"
        return "\n".join([f"{self.lines} lines: {state}.", *self.problems, *self.unfinished])


def verify(path: str | Path, *, last: str | None = None) -> Verification:
    """Read an audit file and say whether lines were edited, removed, reordered or cut off.

    The end is compared with the head beside the file, or with `last`, the hash of the last line, kept elsewhere:
    who can alter both files can make a new chain, so keep it where they cannot. Raises OSError for no such file.
    """
    path = Path(path)
    problems: list[str] = []
    began: dict[tuple[str, str], str] = {}
    before, previous, count = _FIRST, _FIRST, 0
    for count, text in enumerate(path.read_bytes().split(b"\n"), 1):
        if not text:
            count -= 1
            break
        line = _read_line(text)
        if line is None:
            problems.append(f"Line {count} cannot be read: it was cut off or altered.")
            continue
        problems += _problems_of(line, count, previous)
        before, previous = previous, str(line.get("hash"))
        key = (str(line.get("run_id")), str(line.get("tool_call_id")))
        if line.get("kind") == "intent":
            began[key] = f"Line {count}: call {key[1]} of {line.get('tool_name')} began; how it ended is not recorded."
        else:
            began.pop(key, None)
    problems += _problems_of_end(path, count, (before, previous), last)
    return Verification(count, tuple(problems), tuple(began.values()))


def _problems_of(line: dict[str, Any], number: int, previous: str) -> Iterator[str]:
    if line.get("hash") != _hash(line):
        yield f"Line {number} was edited: its hash does not fit."
    if line.get("previous") != previous:
        yield f"Line {number} does not follow the line before it: lines were removed, added or reordered."
    elif line.get("number") != number:
        yield f"Line {number} says that it is line {line.get('number')!r}."


def _problems_of_end(path: Path, count: int, final: tuple[str, str], last: str | None) -> Iterator[str]:
    head = _head_path(path)
    if last is not None:
        if last != final[1]:
            yield "The last line is not the one that is expected: lines were removed at the end, or added."
    elif not head.exists():
        yield f"Nothing says where the file ends: {head.name!r} is missing. Give the hash of the last line as last=…"
    else:
        said = _read_head(head.read_bytes())
        # A crash may come between a line and the head: then the line follows what the head says.
        if said not in ((count, final[1]), (count - 1, final[0])):
            yield f"The file has {count} lines, its head says {said[0]}: lines were removed at the end, or added."


class _ChainedFile:
    """A file of chained lines that several processes append to."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.process, self.lock = os.getpid(), threading.Lock()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self.lines: BinaryIO = os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)
        self.head: BinaryIO = os.fdopen(os.open(_head_path(path), flags & ~os.O_APPEND, 0o600), "r+b", buffering=0)
        self.name = path.name

    def is_at(self, path: Path) -> bool:
        return path.exists() and os.path.samestat(os.fstat(self.lines.fileno()), path.stat())

    def append(self, lines: list[dict[str, Any]], *, sync: bool) -> list[dict[str, Any]]:
        with self.lock:
            lock_byte(self.head, _LOCKED_BYTE, wait=True)
            try:
                return self._append(lines, sync)
            finally:
                unlock_byte(self.head, _LOCKED_BYTE)

    def _append(self, lines: list[dict[str, Any]], sync: bool) -> list[dict[str, Any]]:
        number, previous, torn = self._end()
        chained = []
        for line in lines:
            number += 1
            line = {"number": number, **line, "previous": previous}
            previous = line["hash"] = _hash(line)
            chained.append(line)
        self.lines.write(torn + b"".join(_as_text(line).encode() + b"\n" for line in chained))
        if sync:
            os.fsync(self.lines.fileno())
        self.head.seek(0)
        self.head.write(f"{number:020d} {previous}\n".encode())
        return chained

    def _end(self) -> tuple[int, str, bytes]:
        """The number and hash of the last line, and what ends a line that was cut off by a crash."""
        self.head.seek(0)
        number, digest = _read_head(self.head.read(_HEAD_BYTES))
        size = self.lines.seek(0, os.SEEK_END)
        if size == 0 and number == 0:
            return 0, _FIRST, b""
        self.lines.seek(max(size - _TAIL_BYTES, 0))
        *_, last, rest = (b"\n" + self.lines.read()).rsplit(b"\n", 2)
        line = _read_line(last) or {}
        if line.get("hash") != digest and line.get("previous") == digest and line["hash"] == _hash(line):
            return number + 1, line["hash"], b""  # a crash came between the line and the head
        if line.get("hash") != digest:
            raise ValueError(
                f"The audit {self.name!r} does not end as {self.name + '.head'!r} says: look at it with verify(), then "
                "move both files away."
            )
        return number + (1 if rest else 0), digest, b"\n" if rest else b""


_HEAD_BYTES = 20 + 1 + 64
_LOCKED_BYTE = 1_000  # behind the head, which is written while it is locked
_TAIL_BYTES = 4_000_000
_files: dict[str, _ChainedFile] = {}
_files_lock = threading.Lock()


def _chained_file(path: Path) -> _ChainedFile:
    """One open file per path and process, or its locks would end each other; a new one where the old was moved away."""
    key = os.path.realpath(path)
    with _files_lock:
        known = _files.get(key)
        if known is None or known.process != os.getpid() or not known.is_at(path):
            known = _files[key] = _ChainedFile(path)
        return known


def _head_path(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def _read_head(head: bytes) -> tuple[int, str]:
    number, _, digest = head.decode("ascii", "replace").strip().partition(" ")
    return (int(number), digest) if number.isdecimal() else (0, _FIRST)


def _read_line(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and "hash" in line else None


def _hash(line: Mapping[str, Any]) -> str:
    return hashlib.sha256(_as_text({k: v for k, v in line.items() if k != "hash"}).encode()).hexdigest()


def _as_text(line: Mapping[str, Any]) -> str:
    return json.dumps(line, default=str)  # ASCII: one line in every editor


def _plain_name(name: str) -> str:
    """A name in snake case, so that apiKey, API-Key and api_key are one."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())


def _who(run: Run, call: ToolCall, tool: Tool, kind: str) -> dict[str, Any]:
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="microseconds"), "kind": kind, "run_id": run.id,
        "turn": run.turns, "tool_call_id": call.id, "tool_name": tool.name, "permission": tool.permission,
        "digest": call.digest,
    }  # fmt: skip


def _verdict(run: Run, call: ToolCall) -> dict[str, str]:
    verdict = run.verdicts.get(call.id)
    if verdict is None:
        return {}
    return {"decision": verdict.decision, "by": verdict.by, "reason": redact_secrets(verdict.reason)}
