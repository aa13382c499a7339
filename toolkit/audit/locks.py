"""Locks on a file, between processes and threads. A lock ends with the process that holds it."""

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
from weakref import WeakValueDictionary

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_HELD_BY_ANOTHER = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
# Behind everything that is written to a locked file.
_LOCKED_BYTE = 1_000
_RETRY_SECONDS = 0.01


def lock_byte(file: int, position: int, *, wait: bool) -> bool:
    """Lock the byte at `position`, which need not exist. False if another process has it and `wait` is false.

    `file` is the descriptor of an open file. Within one process the lock excludes nobody: guard the
    threads with a lock of their own. Keep one open file per path, because closing any other one would
    free the byte (POSIX record locks). On a network file system it is only as good as the locks there.
    """
    while True:
        try:
            if sys.platform == "win32":
                os.lseek(file, position, os.SEEK_SET)
                msvcrt.locking(file, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
            else:
                mode = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
                fcntl.lockf(file, mode, 1, position)
            return True
        except OSError as error:
            if error.errno not in _HELD_BY_ANOTHER:
                raise
        if not wait:
            return False
        # Windows waits for ten seconds only. A POSIX kernel reports a deadlock although
        # the two processes wait in different threads.
        time.sleep(_RETRY_SECONDS)


def unlock_byte(file: int, position: int) -> None:
    """Free a byte that this process has locked."""
    if sys.platform == "win32":
        os.lseek(file, position, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)
    else:
        fcntl.lockf(file, fcntl.LOCK_UN, 1, position)


@contextmanager
def locked_file(path: str | Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open or create a file, unbuffered, for one thread of one process at a time.

    Whoever waits for this file holds up nobody who uses another one.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
    with (
        _thread_lock(path),
        os.fdopen(os.open(path, flags, mode), "r+b", buffering=0) as file,
    ):
        # Closing the file frees the byte.
        lock_byte(file.fileno(), _LOCKED_BYTE, wait=True)
        yield file


# A lock for each file that a thread uses or waits for, by its real path.
_thread_locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
_registry_lock = threading.Lock()


def _thread_lock(path: str | Path) -> threading.Lock:
    name = os.path.realpath(path)
    with _registry_lock:
        return _thread_locks.setdefault(name, threading.Lock())


def _forget_threads() -> None:
    """In a forked child the threads that hold locks are gone."""
    _thread_locks.clear()
    _registry_lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_registry_lock.acquire,
        after_in_parent=_registry_lock.release,
        after_in_child=_forget_threads,
    )
