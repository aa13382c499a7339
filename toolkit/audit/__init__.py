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
| `status` | in an outcome: "ok", "denied", "failed", "timeout", "interrupted"; there is none where the process died |
| `seconds`, `content_digest` | in an outcome: how long it ran, and the SHA-256 of what the model read of it |
| `previous`, `hash` | the hash of the line before, and of this line without its `hash` |

Beside the file stands another, with `.head` after its name: the number and the hash of the last line and the size of
the file, by which missing lines at the end are found, and the lock by which several processes write to one file. Move
both away, and a new chain begins.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO

from toolkit.audit.locks import locked_file
from toolkit.calls.redaction import redact_secrets
from toolkit.messages import PendingCall, ToolResult

_log = logging.getLogger("toolkit.audit")
_FIRST = "0" * 64  # stands before the first line
SECRET_FIELDS = (
    "password", "passwd", "passphrase", "passcode", "secret", "token", "api_key", "apikey", "authorization", "bearer",
    "credential", "cookie", "private_key", "access_key", "account_key", "signing_key", "card_number",
    "pwd", "pin", "otp", "cvv", "cvc", "iban", "ssn",
)  # fmt: skip
"""The names of arguments whose values no audit shows: in any spelling, in the plural, as words of a longer name.

The longer ones are found glued to others, too ("dbpassword"). Numbers of tokens, and what is said of a secret without
telling it ("token_type", "password_policy"), stay.
"""


_WHOLE_NAMES = frozenset(
    (
        "auth",
        "jwt",
        "key",
        "pass",
        "passwort",
        "pw",
        "session",
        "session_id",
        "sessionid",
    )
)  # as the whole name: in a longer one they are mostly no secret ("sort_key", "session_count")
# What names the value beside it.
_LABELS = ("name", "key", "field", "header")
_LABELLED = ("value", "values", "content")
_SAID_OF = "count|counts|limit|limits|type|types|usage|policy|length|strength"


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
        glued = "|".join(name for name in SECRET_FIELDS if len(name) > len("iban"))
        names = "|".join(
            re.escape(_plain_name(name)) for name in (*SECRET_FIELDS, *secret_fields)
        )
        self._secret_name = re.compile(
            rf"(?:{glued}|(?:^|_)(?:{names}))s?\d*(?:_(?!(?:{_SAID_OF})(?:_|$))|$)"
        )
        self._patterns = [re.compile(pattern) for pattern in secret_patterns]
        self._path = None if path is None else Path(os.path.realpath(path))
        if self._path:
            with _opened(self._path):
                pass  # what cannot be opened is told at once

    def began(self, run_id: str, turn: int, calls: Sequence[PendingCall]) -> None:
        """Write an intent for each of the calls whose tool is not `read`, and wait until the disk has them."""
        lines = [
            _line(
                run_id,
                turn,
                call,
                "intent",
                arguments=self._redacted(dict(call.arguments)),
            )
            for call in calls
            if call.permission != "read"
        ]
        self._write(lines, sync=True)

    def ended(
        self, run_id: str, turn: int, call: PendingCall, result: ToolResult
    ) -> None:
        """Write the outcome of such a call, or of any that was denied."""
        if call.permission == "read" and result.reason != "denied":
            return
        digest = hashlib.sha256(result.content.encode("utf-8", "replace")).hexdigest()
        came = {
            "status": result.reason or "ok",
            "seconds": round(result.seconds, 6),
            "content_digest": digest,
        }
        self._write([_line(run_id, turn, call, "outcome", **came)], sync=False)

    def _write(self, lines: list[dict[str, Any]], *, sync: bool) -> None:
        if not lines:
            return
        texts = _append(self._path, lines, sync) if self._path else map(_as_text, lines)
        for text in texts if _log.isEnabledFor(logging.INFO) else ():
            _log.info("%s", text)

    def _redacted(self, value: Any, name: str = "") -> Any:
        if self._is_secret(name, value):
            return "[redacted]"
        if isinstance(value, str):
            return self._redacted_text(value)
        if isinstance(value, Mapping):
            return self._redacted_object(value)
        if not isinstance(value, list):
            return value
        if len(value) == 2 and isinstance(value[0], str):  # a header: name and value
            return [self._redacted(value[0]), self._redacted(value[1], value[0])]
        return [self._redacted(each) for each in value]

    def _redacted_object(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """An object with its secrets taken out: also those in a key, and {"name": "password", "value": …}."""
        label = next((value[key] for key in _LABELS if key in value), "")
        names = {key: str(key) for key in value}
        for key in _LABELLED:
            if key in value and isinstance(label, str):
                names[key] = label
        labels = _LABELS if names.keys() & set(_LABELLED) else ()
        return {
            self._redacted_text(str(key)): self._redacted(
                each, "" if key in labels else names[key]
            )
            for key, each in value.items()
        }

    def _redacted_text(self, text: str) -> str:
        text = redact_secrets(text)
        for pattern in self._patterns:
            text = pattern.sub("[redacted]", text)
        return text

    def _is_secret(self, name: str, value: Any) -> bool:
        plain = _plain_name(name)
        if plain in _WHOLE_NAMES:
            return True
        is_count = "token" in plain and isinstance(value, int | float)
        return bool(self._secret_name.search(plain)) and not is_count


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
        return "\n".join(
            [f"{self.lines} lines: {state}.", *self.problems, *self.unfinished]
        )


def verify(path: str | Path, *, last: str | None = None) -> Verification:
    """Read an audit file and say whether lines were edited, removed, reordered or cut off.

    The end is compared with the head beside the file, or with `last`, the hash of the last line, kept elsewhere:
    who can alter both files can make a new chain, so keep it where they cannot. Raises OSError for no such file.
    """
    path = Path(os.path.realpath(path))
    head = _head_path(path)
    said = (
        head.read_bytes() if head.exists() else None
    )  # before the lines: somebody may be writing more
    problems: list[str] = []
    began: dict[tuple[str, str], str] = {}
    ends = [_FIRST]
    for count, text in enumerate(_split(path.read_bytes()), 1):
        ends.append(ends[-1])
        line = _read_line(text)
        if line is None:
            problems.append(f"Line {count} cannot be read: it was cut off or altered.")
            continue
        problems += _problems_of(line, count, ends[-1])
        ends[-1] = str(line["hash"])
        key = (str(line.get("run_id")), str(line.get("tool_call_id")))
        if line.get("kind") == "intent":
            began[key] = (
                f"Line {count}: call {key[1]} of {line.get('tool_name')} began; how it ended is not recorded."
            )
        else:
            began.pop(key, None)
    problems += _problems_of_end(ends, said, last)
    return Verification(len(ends) - 1, tuple(problems), tuple(began.values()))


def _problems_of(line: dict[str, Any], number: int, previous: str) -> Iterator[str]:
    if line.get("hash") != _hash(line):
        yield f"Line {number} was edited: its hash does not fit."
    if line.get("previous") != previous:
        yield f"Line {number} does not follow the line before it: lines were removed, added or reordered."
    elif line.get("number") != number:
        yield f"Line {number} says that it is line {line.get('number')!r}."


def _problems_of_end(
    ends: list[str], said: bytes | None, last: str | None
) -> Iterator[str]:
    """`ends` are the hashes up to each line, from before the first."""
    if last is not None:
        if last != ends[-1]:
            yield "The last line is not the one that is expected: lines were removed at the end, or added."
    elif said is None or (head := _read_head(said)) is None:
        yield "Nothing says where the file ends: its head is missing. Give the hash of the last line as last=…"
    elif (
        head[0] >= len(ends) or ends[head[0]] != head[1]
    ):  # lines that follow it came when a crash left it behind
        yield f"The file has {len(ends) - 1} lines, its head says {head[0]}: lines were removed at the end, or altered."


# The file, and its head


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The file and its head, for one writer at a time; both are new where they were moved away."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
    with (
        locked_file(_head_path(path), 0o600) as head,
        os.fdopen(os.open(path, flags, 0o600), "r+b", 0) as file,
    ):
        yield file, head


def _append(path: Path, lines: list[dict[str, Any]], sync: bool) -> list[str]:
    """Chain the lines to those of the file; return them as they stand there now."""
    with _opened(path) as (file, head):
        end = _end(file, head)
        if end is None:
            raise ValueError(
                f"The audit {path.name!r} does not end as {path.name + '.head'!r} says: look at it with verify(), then "
                "move both files away."
            )
        number, previous, size, torn = end
        chained = []
        for line in lines:
            number += 1
            text = _as_text({"number": number, **line, "previous": previous})
            previous = hashlib.sha256(text.encode()).hexdigest()
            chained.append(f'{text[:-1]}, "hash": "{previous}"}}')
        written = torn + "".join(f"{text}\n" for text in chained).encode()
        try:
            _write_whole(file, written)
        except OSError:
            with contextlib.suppress(OSError):  # it can be an append-only file
                file.truncate(size)
            raise
        if sync:
            os.fsync(file.fileno())
        _write_head(head, number, previous, size + len(written))
        return chained


def _end(file: BinaryIO, head: BinaryIO) -> tuple[int, str, int, bytes] | None:
    """The number and hash of the last line, the size, and what ends a line that was cut off by a crash.

    None where the file does not end as its head says.
    """
    said, end = _read_head(head.read()), file.seek(0, os.SEEK_END)
    if said is None and end == 0:
        _write_head(head, 0, _FIRST, 0)
        return 0, _FIRST, 0, b""
    if said is None or said[2] > end:
        return None
    number, digest, size = said
    file.seek(max(size - 1, 0))
    tail = file.read()
    if size and not tail.startswith(b"\n"):
        return None
    surplus = _split(tail[1:] if size else tail)  # where a crash left the head behind
    for line in filter(None, map(_read_line, surplus)):
        if line.get("previous") != digest or line["hash"] != _hash(line):
            return None
        digest = line["hash"]
    return (
        number + len(surplus),
        digest,
        end,
        b"" if tail.endswith(b"\n") or not end else b"\n",
    )


def _write_head(head: BinaryIO, number: int, digest: str, size: int) -> None:
    head.seek(0)
    _write_whole(head, f"{number:020d} {digest} {size:020d}\n".encode())


def _write_whole(file: BinaryIO, text: bytes) -> None:
    while text:
        text = text[file.write(text) :]  # less than all, where the disk is full


def _split(text: bytes) -> list[bytes]:
    return text.removesuffix(b"\n").split(b"\n") if text else []


def _head_path(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def _read_head(head: bytes) -> tuple[int, str, int] | None:
    match head.decode("ascii", "replace").split():
        case [number, digest, size] if number.isdecimal() and size.isdecimal():
            return int(number), digest, int(size)
    return None


def _read_line(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and "hash" in line else None


def _hash(line: Mapping[str, Any]) -> str:
    return hashlib.sha256(
        _as_text({k: v for k, v in line.items() if k != "hash"}).encode()
    ).hexdigest()


_as_text = json.JSONEncoder(default=str).encode  # ASCII: one line in every editor


def _plain_name(name: str) -> str:
    """A name in snake case, so that apiKey, API-Key and api_key are one."""
    return re.sub(
        r"[\W_]+",
        "_",
        re.sub(
            r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})", "_", name
        ).lower(),
    )


def _line(
    run_id: str, turn: int, call: PendingCall, kind: str, **more: Any
) -> dict[str, Any]:
    verdict = call.verdict
    decided = verdict and {
        "decision": verdict.decision,
        "by": verdict.by,
        "reason": redact_secrets(verdict.reason),
    }
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="microseconds"), "kind": kind, "run_id": run_id,
        "turn": turn, "tool_call_id": call.id, "tool_name": call.name, "permission": call.permission,
        "digest": call.digest, **more, **(decided or {}),
    }  # fmt: skip
