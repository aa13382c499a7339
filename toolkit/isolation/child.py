"""The child's side of isolation: a guard, and beside it the process that runs the function.

Run as a script by a fresh interpreter, and light, for it is started anew for each call. The guard runs no code of
anybody else: it forks the process that does (nothing but this file has run until then), keeps the clock, reads what
comes out of it within bounds, and when that ends, ends all that it has started. On Linux the guard adopts every
process whose parent is gone (PR_SET_CHILD_SUBREAPER), so a new session or a second fork is no way out.

What goes back to the parent is one kind in a line of its own, and a body. Kinds and bodies: "value", JSON; "raised",
JSON of class, message, trace, and whether the function's own module raised it; "spoken", the text of a ToolError;
"problem", what the limits or the system did to it; "setup", why the function was not reached.
"""

from __future__ import annotations

import contextlib
import marshal
import math
import os
import select
import signal
import sys
import time
import types
from typing import Any, NoReturn

MOST_RESULT = 10_000_000  # bytes
_MOST_OUTPUT = 2_000  # bytes, of what it wrote last
_MOST_TEXT = 20_000  # characters, of a message or a trace
_PATIENCE = 5.0  # seconds, for what was killed to be gone
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVS = 1, 36, 38  # <linux/prctl.h>


def guard(settings: dict[str, Any], payload: Any) -> None:
    """Run the function in a process of its own, and write down what came of it once all is ended."""
    _prctl(_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the parent's may be inherited
    (wake_in, wake_out), result, output = os.pipe(), os.pipe(), os.pipe()
    for end in (wake_in, wake_out, result[0], output[0]):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(
            number, lambda *_: None
        )  # the default would not wake, or end the guard alone
    deadline, guard_pid = time.monotonic() + settings["timeout"], os.getpid()
    worker = os.fork()
    if worker == 0:
        work(settings, payload, result[1], output[1], guard_pid)
    os.close(result[1])
    os.close(output[1])
    watch = _Watch(worker, result[0], output[0], wake_in)
    problem = watch.wait(deadline, settings)
    if not _end_all(worker):
        problem = "could not be ended: a process that it started is still there."
    if os.getppid() != settings["parent"]:
        import shutil

        shutil.rmtree(settings["folder"], ignore_errors=True)
    answer = (
        f"problem\n{problem}\n".encode() + watch.output
        if problem
        else bytes(watch.result)
    )
    _write_all(1, answer)


class _Watch:
    """What has come out of the worker so far."""

    def __init__(self, worker: int, result: int, output: int, wake: int) -> None:
        self.worker, self.result_end, self.output_end, self.wake = (
            worker,
            result,
            output,
            wake,
        )
        self.result, self.output = bytearray(), b""
        self.poll = select.poll()
        for end in (result, output, wake):
            self.poll.register(end, select.POLLIN)

    def wait(self, deadline: float, settings: dict[str, Any]) -> str:
        """Read until the worker ends, or has to; return what went wrong, "" for nothing."""
        while True:
            ended = self._reap()
            woken = self._read()
            if len(self.result) > MOST_RESULT:
                return f"returned more than {MOST_RESULT // 1_000_000} MB. Return less, or a part of it."
            if ended:
                return _tell_end(*ended, settings) or (
                    "" if self.result else "ended itself without a result."
                )
            left = deadline - time.monotonic()
            if left <= 0:
                return f"ran longer than {settings['timeout']:g} seconds and was ended."
            if signal.SIGTERM in woken or os.getppid() != settings["parent"]:
                return "was ended: nobody waits for it any more."
            self.poll.poll(
                min(left, 0.2) * 1000
            )  # milliseconds; a fifth of a second, to see whether the parent lives

    def _reap(self) -> tuple[int, float] | None:
        """The status and the processor seconds of the worker, once it has ended."""
        while True:
            pid, status, used = os.wait4(-1, os.WNOHANG)
            if pid == self.worker:
                return status, used.ru_utime + used.ru_stime
            if pid == 0:
                return None

    def _read(self) -> bytes:
        """Take in what is there, the result whole, the rest for a bounded while; return the signals that came."""
        while piece := self._piece(self.result_end):
            self.result += piece
            if len(self.result) > MOST_RESULT:
                break
        for _ in range(64):
            if not (piece := self._piece(self.output_end)):
                break
            self.output = (self.output + piece)[-_MOST_OUTPUT:]
        return self._piece(self.wake)

    def _piece(self, end: int) -> bytes:
        try:
            piece = os.read(end, 65_536)
        except BlockingIOError:
            return b""
        if not piece:
            with contextlib.suppress(KeyError):
                self.poll.unregister(end)  # closed: it would wake for ever
        return piece


def _tell_end(status: int, seconds: float, settings: dict[str, Any]) -> str:
    """What is to be said of the worker's end; "" where it ended well."""
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        return f"ended itself with exit status {code}." if code else ""
    number, cpu_s, memory_mb = (
        os.WTERMSIG(status),
        settings["cpu_s"],
        settings["memory_mb"],
    )
    if number == signal.SIGXCPU or (
        number == signal.SIGKILL and cpu_s and seconds >= cpu_s
    ):
        return f"used more than {cpu_s:g} seconds of processor time and was ended."
    hint = (
        f" Perhaps it needs more than {memory_mb:g} MB of memory." if memory_mb else ""
    )
    return f"was ended by the signal {number} ({signal.strsignal(number)}).{hint}"


def _end_all(worker: int) -> bool:
    """Kill all that is left below the guard, however it is related; whether all is gone."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        for pid in _children() or [
            -worker
        ]:  # without /proc: the group that the worker founded
            with contextlib.suppress(OSError):
                os.kill(
                    pid, signal.SIGKILL
                )  # what it leaves behind is the guard's next, on Linux
        time.sleep(0.001)
    return False


def _children() -> list[int]:
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        with (
            contextlib.suppress(OSError, ValueError, IndexError),
            open(f"/proc/{name}/stat", "rb") as file,
        ):
            if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                found.append(int(name))
    return found


# The worker


def work(
    settings: dict[str, Any], payload: Any, result: int, output: int, guard_pid: int
) -> NoReturn:
    """Set the limits, run the function, write what came of it, end. Nothing runs after it, come what may."""
    code = 70
    try:
        _settle_in(settings, result, output, guard_pid)
        payload = payload.read()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.closerange(4, 64)
        _write_all(3, _answer(settings, payload))
        code = 0
    except MemoryError as error:
        error.__traceback__ = None  # what filled the memory stands in its frames
        os.write(3, settings["memory_problem"])
        code = 0
    except SystemExit as end:
        if isinstance(end.code, (int, types.NoneType)):
            code = end.code or 0
        else:
            print(end.code, file=sys.stderr)
            code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(
                BaseException
            ):  # closed, or nobody reads it: the result counts
                stream.flush()
        os._exit(code & 0xFF)


def _settle_in(
    settings: dict[str, Any], result: int, output: int, guard_pid: int
) -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for name in {*os.environ} - {*settings["env"]}:  # Python itself sets LC_CTYPE
        del os.environ[name]
    os.setsid()  # what it sends to its own group does not reach the guard
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)
    _prctl(_SET_NO_NEW_PRIVS, 1)  # a setuid program could not be killed
    if os.getppid() != guard_pid:
        os._exit(70)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.dup2(result, 3, inheritable=False)
    import resource  # here, so that this file can be read where there is none

    limits: dict[int, tuple[int, int]] = {resource.RLIMIT_CORE: (0, 0)}
    if settings["cpu_s"]:
        seconds = math.ceil(settings["cpu_s"])  # the system counts whole ones
        limits[resource.RLIMIT_CPU] = (seconds, seconds + 1)
    if settings["memory_mb"] and sys.platform != "darwin":  # which may refuse any limit
        limits[resource.RLIMIT_AS] = (most := int(settings["memory_mb"] * 1e6), most)
    for kind, (soft, hard) in limits.items():
        most = resource.getrlimit(kind)[1]
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(kind, (soft, hard))


def _answer(settings: dict[str, Any], payload: bytes) -> bytes:
    try:
        function, arguments, named = _load(settings, payload)
    except MemoryError:
        raise
    except BaseException as error:
        return _text("setup", f"{type(error).__name__}: {error}\n{_trace(error)}")
    try:
        value = function(*arguments, **named)
        if hasattr(value, "__await__"):
            import asyncio

            value = asyncio.run(_awaited(value))
        return b"value\n" + _write_value(value)
    except (MemoryError, SystemExit):
        raise
    except BaseException as error:
        return _told(error, function)


def _load(
    settings: dict[str, Any], payload: bytes
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The function and its arguments. The parent pickled them, so they are what it trusts."""
    import site

    site.main()
    sys.path[:], sys.argv[:] = settings["path"], [""]
    main = types.ModuleType("__main__")
    main.__dict__["__isolating__"] = settings[
        "name"
    ]  # a call while its own module is imported would never end
    sys.modules["__main__"] = main
    import pickle

    function, arguments, named = pickle.loads(payload)
    if isinstance(function, str):
        function = find_function(*function.split(":"))
    del main.__dict__["__isolating__"]
    return function, arguments, named


def find_function(module: str, qualified_name: str) -> Any:
    """The function of this name, from behind its wrapper. Raises ImportError or AttributeError."""
    import importlib

    found: Any = importlib.import_module(module)
    for name in qualified_name.split("."):
        found = getattr(found, name)
    return getattr(found, "__isolated__", found)


async def _awaited(value: Any) -> Any:
    return await value


def _write_value(value: Any) -> bytes:
    """A list of the value alone, as JSON."""
    import json

    try:
        text = json.dumps([value], ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        from pydantic_core import to_jsonable_python

        try:
            text = json.dumps(
                [to_jsonable_python(value, bytes_mode="base64")], ensure_ascii=False
            )
        except ValueError as error:
            raise TypeError(
                f"What it returned has no JSON form: {error}. Return plain data."
            ) from error
    return text.encode("utf-8", "replace")


def _told(error: BaseException, function: Any) -> bytes:
    import json

    errors = sys.modules.get("toolkit.errors")
    if errors and isinstance(error, errors.ToolError):
        return _text("spoken", str(error)[:_MOST_TEXT])
    innermost = error.__traceback__
    while innermost and innermost.tb_next:
        innermost = innermost.tb_next
    home = innermost.tb_frame.f_globals.get("__name__") if innermost else None
    only = error.args[0] if len(error.args) == 1 else None
    message = (
        only if isinstance(only, str) else str(error)
    )  # str() of a KeyError would be quoted once more
    is_own = home == getattr(function, "__module__", "")
    told = [type(error).__name__, message[:_MOST_TEXT], _trace(error), is_own]
    return _text("raised", json.dumps(told))


def _trace(error: BaseException) -> str:
    import traceback

    return "".join(traceback.format_exception(type(error), error, error.__traceback__))[
        -_MOST_TEXT:
    ]


def _write_all(end: int, answer: bytes) -> None:
    while answer:
        answer = answer[os.write(end, answer) :]


def _text(kind: str, text: str) -> bytes:
    return f"{kind}\n{text}".encode("utf-8", "replace")


def _prctl(option: int, value: int) -> None:
    """What the standard library has no name for. Only Linux has it; elsewhere nothing happens."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)


if __name__ == "__main__":
    stream = open(0, "rb", closefd=False)  # noqa: SIM115  # the worker reads on where the guard stops
    guard(marshal.load(stream), stream)
    os._exit(0)  # without the time that an interpreter takes to end
