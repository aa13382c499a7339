"""A lock on one byte of a file, between processes; it ends with the process that holds it."""

from __future__ import annotations

import errno
import sys
import time
from typing import BinaryIO

_HELD_BY_ANOTHER = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)


def lock_byte(file: BinaryIO, position: int, *, wait: bool) -> bool:
    """Lock the byte at `position`, which need not exist; False where another process has it and `wait` is off.

    Within one process it excludes nobody: guard the threads by a lock of their own, and keep one open file per path,
    since closing any other one would free the byte (POSIX record locks). On network file systems it is only as good as
    their locks.
    """
    while True:
        try:
            _lock(file, position, wait)
        except OSError as error:
            if error.errno not in _HELD_BY_ANOTHER:
                raise
            if not wait:
                return False
            # Windows waits ten seconds only; a kernel sees a deadlock where other threads of two processes wait, too.
            time.sleep(0.01)
        else:
            return True


def _lock(file: BinaryIO, position: int, wait: bool) -> None:
    if sys.platform == "win32":
        import msvcrt

        file.seek(position)
        msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, position)


def unlock_byte(file: BinaryIO, position: int) -> None:
    """Free a byte that this process has locked."""
    if sys.platform == "win32":
        import msvcrt

        file.seek(position)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
    else:
        import fcntl

        fcntl.lockf(file, fcntl.LOCK_UN, 1, position)
