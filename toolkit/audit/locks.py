"""A lock on one byte of a file, between processes; it ends with the process that holds it."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_HELD_BY_ANOTHER = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_LOCKED_BYTE = 1_000  # behind what is written


def lock_byte(file: int, position: int, *, wait: bool) -> bool:
    """Lock the byte at `position`, which need not exist; False where another process has it and `wait` is off.

    `file` is the descriptor of an open file. Within one process the lock excludes nobody: guard the threads by one of
    their own, and keep one open file per path, since closing any other one would free the byte (POSIX record locks).
    On network file systems it is only as good as their locks.
    """
    while True:
        try:
            if sys.platform == "win32":
                os.lseek(file, position, os.SEEK_SET)
                msvcrt.locking(file, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            else:
                fcntl.lockf(
                    file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, position
                )
            return True
        except OSError as error:
            if error.errno not in _HELD_BY_ANOTHER:
                raise
            if not wait:
                return False
            # Windows waits ten seconds only; a kernel sees a deadlock where other threads of two processes wait, too.
            time.sleep(0.01)


def unlock_byte(file: int, position: int) -> None:
    """Free a byte that this process has locked."""
    if sys.platform == "win32":
        os.lseek(file, position, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)
    else:
        fcntl.lockf(file, fcntl.LOCK_UN, 1, position)


@contextmanager
def locked_file(path: str | Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a file, or make it, which nobody else has open so meanwhile: no thread and no process. Unbuffered."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
    with _threads, os.fdopen(os.open(path, flags, mode), "r+b", buffering=0) as file:
        lock_byte(file.fileno(), _LOCKED_BYTE, wait=True)  # closing frees it
        yield file


_threads = threading.Lock()
if hasattr(
    os, "register_at_fork"
):  # in a forked child there is no other thread that would give it back
    os.register_at_fork(
        before=_threads.acquire,
        after_in_parent=_threads.release,
        after_in_child=_threads.release,
    )
