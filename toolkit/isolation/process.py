"""The child process, from this side: started, waited for, ended."""

from __future__ import annotations

import marshal
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from toolkit.isolation import child

_GRACE = 10.0  # seconds, after which the guard itself is not waited for
_MOST_ANSWER = child.MOST_RESULT + 1_000_000  # bytes


def answer_of_child(
    payload: bytes,
    name: str,
    limits: Mapping[str, Any],
    is_abandoned: Callable[[], bool],
) -> bytes:
    """Let a child make the call. Return its answer, once all that it started has ended."""
    memory_mb = limits["memory_mb"] or 0
    folder = tempfile.TemporaryDirectory(prefix="toolkit-", ignore_cleanup_errors=True)
    try:
        settings = {
            "name": name,
            "parent": os.getpid(),
            # Encoded here: a child without memory cannot.
            "memory_problem": f"problem\nused more than {memory_mb:g} MB of memory and was ended.".encode(),
            "path": [os.path.abspath(entry) for entry in sys.path],
            "folder": folder.name,
            **limits,
        }
        process = _start(settings, payload)
        try:
            return _read_answer(process, limits["timeout"] + _GRACE, is_abandoned)
        finally:
            _end(process)
    finally:
        # The child may have nested folders too deep to be removed.
        with suppress(RecursionError):
            folder.cleanup()


def _start(settings: dict[str, Any], payload: bytes) -> subprocess.Popen[bytes]:
    names = [name for name in settings["env"] if name in os.environ]
    with tempfile.TemporaryFile() as file:
        file.write(marshal.dumps(settings) + payload)
        file.seek(0)
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", child.__file__],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=settings["folder"],
            env={name: os.environ[name] for name in names},
            start_new_session=True,
        )


def _read_answer(
    process: subprocess.Popen[bytes], seconds: float, is_abandoned: Callable[[], bool]
) -> bytes:
    assert process.stdout is not None
    pipe, poll = process.stdout.fileno(), select.poll()
    poll.register(pipe, select.POLLIN)
    answer, deadline = bytearray(), time.monotonic() + seconds
    while time.monotonic() < deadline and len(answer) < _MOST_ANSWER:
        if is_abandoned():
            return b"problem\nwas ended: nobody waits for it any more."
        if not poll.poll(100):  # milliseconds
            continue
        piece = os.read(pipe, 65_536)
        if not piece:
            break
        answer += piece
    return bytes(answer)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the guard if it has not ended. Asked to, it first ends all that it started."""
    assert process.stdout is not None
    process.stdout.close()
    process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()  # the function's own process dies with it
        process.wait()
