"""The chain of an audit file: lines are appended to it, each with the hash of the one before, and verified."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from toolkit.audit.locks import locked_file

# Stands before the first line.
_FIRST = "0" * 64

as_text = json.JSONEncoder(default=str).encode
"""JSON in ASCII: one line in every editor."""


# Appending


@contextlib.contextmanager
def opened_chain(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """An audit file and its head, for one writer at a time. What is missing is created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
    with (
        locked_file(_head_path(path), 0o600) as head_file,
        os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0) as file,
    ):
        yield file, head_file


def append_lines(path: Path, lines: list[dict[str, Any]], *, sync: bool) -> list[str]:
    """Chain the lines to those of the file, and return them as they stand there.

    If `sync` is true, the disk has them when this returns. Raises OSError if they cannot be written,
    and ValueError if the file does not end as its head says.
    """
    with opened_chain(path) as (file, head_file):
        end = _find_end(file, head_file)
        if end is None:
            raise ValueError(
                f"The audit {path.name!r} does not end as {path.name + '.head'!r} "
                "says. Look at it with verify(), then move both files away."
            )
        texts = []
        number, digest = end.number, end.digest
        for line in lines:
            number += 1
            text = as_text({"number": number, **line, "previous": digest})
            digest = hashlib.sha256(text.encode()).hexdigest()
            texts.append(f'{text[:-1]}, "hash": "{digest}"}}')
        content = "".join(f"{text}\n" for text in texts).encode()
        if end.is_torn:
            content = b"\n" + content
        try:
            _write_all(file, content)
        except OSError:
            # An append-only file cannot be cut. Then the next line follows a torn one.
            with contextlib.suppress(OSError):
                file.truncate(end.size)
            raise
        if sync:
            os.fsync(file.fileno())
        _write_head(head_file, _End(number, digest, end.size + len(content)))
        return texts


class _End(NamedTuple):
    """The number and the hash of the last line, the size of the file, and whether a crash cut the line off."""

    number: int
    digest: str
    size: int
    is_torn: bool = False


def _find_end(file: BinaryIO, head_file: BinaryIO) -> _End | None:
    """The end of a file, None if it does not end as its head says.

    A crash between the two leaves the head behind: lines that follow it count if they continue the chain.
    """
    head = _read_head(head_file.read())
    size = file.seek(0, os.SEEK_END)
    if head is None and size == 0:
        head = _End(0, _FIRST, 0)
        _write_head(head_file, head)
    if head is None or head.size > size:
        return None
    file.seek(max(head.size - 1, 0))
    tail = file.read()
    if head.size:
        if not tail.startswith(b"\n"):
            return None
        tail = tail[1:]
    digest = head.digest
    surplus = _split(tail)
    for line in filter(None, map(_parse_line, surplus)):
        if line.get("previous") != digest or line["hash"] != _hash_of(line):
            return None
        digest = line["hash"]
    is_torn = bool(tail) and not tail.endswith(b"\n")
    return _End(head.number + len(surplus), digest, size, is_torn)


def _write_head(head_file: BinaryIO, end: _End) -> None:
    head_file.seek(0)
    text = f"{end.number:020d} {end.digest} {end.size:020d}\n"
    _write_all(head_file, text.encode())


def _write_all(file: BinaryIO, content: bytes) -> None:
    while content:
        # Only a part is written if the disk becomes full.
        content = content[file.write(content) :]


# Verifying


@dataclass(frozen=True, slots=True)
class Verification:
    """The state of an audit file: how many lines it has, what is wrong with them, and which calls have no outcome."""

    lines: int
    problems: tuple[str, ...]
    unfinished: tuple[str, ...] = ()

    @property
    def is_intact(self) -> bool:
        """True if nothing is wrong with the lines. A call without an outcome is not a fault of the file."""
        return not self.problems

    def __str__(self) -> str:
        state = "intact" if self.is_intact else f"{len(self.problems)} problem(s)"
        summary = f"{self.lines} lines: {state}."
        return "\n".join([summary, *self.problems, *self.unfinished])


def verify(path: str | Path, *, last: str | None = None) -> Verification:
    """Read an audit file and report whether lines were edited, removed, reordered or cut off.

    The end is compared with the head beside the file, or with `last`, the hash of the last line. Keep
    that hash elsewhere: whoever can alter both files can forge a new chain. Raises OSError if there is
    no such file.
    """
    path = Path(os.path.realpath(path))
    head_path = _head_path(path)
    # Read before the lines, because somebody may be writing more of them.
    head = _read_head(head_path.read_bytes()) if head_path.exists() else None
    problems: list[str] = []
    unfinished: dict[tuple[str, str], str] = {}
    digests = [_FIRST]
    for number, text in enumerate(_split(path.read_bytes()), 1):
        line = _parse_line(text)
        if line is None:
            problems.append(f"Line {number} cannot be read: it was cut off or altered.")
            digests.append(digests[-1])
            continue
        problems += _problems_of_line(line, number, digests[-1])
        digests.append(str(line["hash"]))
        call = (str(line.get("run_id")), str(line.get("tool_call_id")))
        if line.get("kind") == "intent":
            unfinished[call] = (
                f"Line {number}: call {call[1]} of {line.get('tool_name')} began; "
                "how it ended is not recorded."
            )
        else:
            unfinished.pop(call, None)
    problems += _problems_of_end(digests, head, last)
    return Verification(len(digests) - 1, tuple(problems), tuple(unfinished.values()))


def _problems_of_line(
    line: dict[str, Any], number: int, previous: str
) -> Iterator[str]:
    if line.get("hash") != _hash_of(line):
        yield f"Line {number} was edited: its hash does not fit."
    if line.get("previous") != previous:
        yield (
            f"Line {number} does not follow the line before it: "
            "lines were removed, added or reordered."
        )
    elif line.get("number") != number:
        yield f"Line {number} has the number {line.get('number')!r}."


def _problems_of_end(
    digests: list[str], head: _End | None, last: str | None
) -> Iterator[str]:
    """`digests[number]` is the hash of the line with that number."""
    if last is not None:
        if last != digests[-1]:
            yield (
                "The last line is not the expected one: "
                "lines were removed at the end, or added."
            )
    elif head is None:
        yield (
            "The head that tells where the file ends is missing or cannot be read. "
            "Give the hash of the last line as last=…"
        )
    # Lines may follow the one of the head: a crash can leave the head behind.
    elif head.number >= len(digests) or digests[head.number] != head.digest:
        yield (
            f"The file has {len(digests) - 1} lines, its head says {head.number}: "
            "lines were removed at the end, or altered."
        )


# Reading


def _head_path(path: Path) -> Path:
    return path.with_name(path.name + ".head")


def _read_head(content: bytes) -> _End | None:
    match content.decode("ascii", "replace").split():
        case [number, digest, size] if number.isdecimal() and size.isdecimal():
            return _End(int(number), digest, int(size))
    return None


def _split(content: bytes) -> list[bytes]:
    return content.removesuffix(b"\n").split(b"\n") if content else []


def _parse_line(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and "hash" in line else None


def _hash_of(line: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in line.items() if key != "hash"}
    return hashlib.sha256(as_text(rest).encode()).hexdigest()
