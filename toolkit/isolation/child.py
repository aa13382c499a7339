"""The child's side of isolation: a guard, and beside it the worker, the process that runs the function.

A fresh interpreter runs this file as a script, once for each call, so it is light. The guard runs no code of anybody
else: it forks the worker (until then nothing but this file has run), keeps the clock, reads what comes out of the
worker within bounds, and when that ends, ends all that it has started. On Linux the guard adopts every process whose
parent is gone (PR_SET_CHILD_SUBREAPER), so a new session or a second fork is no way out.

The answer to the parent is a kind in a line of its own, and a body. Kinds and bodies: "value", JSON; "raised", JSON of
class, message, trace, and whether the function's own module raised it; "spoken", the text of a ToolError; "problem",
what the limits or the system did to it; "setup", why the function was not reached.
"""

from __future__ import annotations

import contextlib
import itertools
import marshal
import math
import os
import select
import signal
import sys
import time
import types
from collections.abc import Iterator
from typing import Any, NoReturn

MOST_RESULT = 10_000_000  # bytes
_MOST_OUTPUT = 2_000  # bytes, of the last that it wrote
_MOST_TEXT = 20_000  # characters, of a message or a trace
_PATIENCE = 5.0  # seconds, for what was killed to be gone
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER, _SET_NO_NEW_PRIVS = 1, 36, 38  # <linux/prctl.h>


def guard(settings: dict[str, Any], payload: Any) -> None:
    """Run the function in a process of its own. Write the answer once everything has ended."""
    _prctl(_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the parent's may be inherited
    (signals, wake), result, output = os.pipe(), os.pipe(), os.pipe()
    for end in (signals, wake, result[0], output[0]):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        # The default would not wake the guard, or would end it alone.
        signal.signal(number, lambda *_: None)
    guard_pid = os.getpid()
    worker = os.fork()
    if worker == 0:
        _work(settings, payload, result[1], output[1], guard_pid)
    os.close(result[1])
    os.close(output[1])
    problem, value, last_output = _watch(
        worker, (result[0], output[0], signals), settings
    )
    if not _end_all(worker):
        problem = "could not be ended: a process that it started is still there."
    if os.getppid() != settings["parent"]:
        import shutil

        shutil.rmtree(settings["folder"], ignore_errors=True)
    if problem:
        value = f"problem\n{problem}\n".encode() + last_output
    _write_all(1, value)


def _watch(
    worker: int, pipes: tuple[int, int, int], settings: dict[str, Any]
) -> tuple[str, bytes, bytes]:
    """Wait until the worker ends, or has to. Return the problem ("" for none), the result and the last output."""
    deadline = time.monotonic() + settings["timeout"]
    result_pipe, output_pipe, signal_pipe = pipes
    result, output, poll = bytearray(), b"", select.poll()
    for pipe in pipes:
        poll.register(pipe, select.POLLIN)
    while True:
        end = _reap(worker)
        for piece in _pieces(result_pipe, poll):
            result += piece
            if len(result) > MOST_RESULT:
                break
        for piece in itertools.islice(_pieces(output_pipe, poll), 64):
            output = (output + piece)[-_MOST_OUTPUT:]
        signal_numbers = b"".join(_pieces(signal_pipe, poll))
        seconds = deadline - time.monotonic()
        if len(result) > MOST_RESULT:
            problem = f"returned more than {MOST_RESULT // 1_000_000} MB. Return less, or a part of it."
        elif end:
            problem = _end_problem(*end, settings)
            if not problem and not result:
                problem = "ended itself without a result."
        elif seconds <= 0:
            problem = f"ran longer than {settings['timeout']:g} seconds and was ended."
        elif signal.SIGTERM in signal_numbers or os.getppid() != settings["parent"]:
            problem = "was ended: nobody waits for it any more."
        else:
            # At most a fifth of a second, to see whether the parent lives. poll() counts milliseconds.
            poll.poll(min(seconds, 0.2) * 1000)
            continue
        return problem, bytes(result), output


def _reap(worker: int) -> tuple[int, float] | None:
    """The status and the processor seconds of the worker, once it has ended."""
    while True:
        pid, status, used = os.wait4(-1, os.WNOHANG)
        if pid == worker:
            return status, used.ru_utime + used.ru_stime
        if pid == 0:
            return None


def _pieces(pipe: int, poll: Any) -> Iterator[bytes]:
    """What a pipe holds now."""
    with contextlib.suppress(BlockingIOError, KeyError):
        yield from iter(lambda: os.read(pipe, 65_536), b"")
        poll.unregister(pipe)  # closed: it would wake for ever


def _end_problem(status: int, seconds: float, settings: dict[str, Any]) -> str:
    """What the end of the worker says of a problem, "" if it ended well."""
    if os.WIFEXITED(status):
        code = os.WEXITSTATUS(status)
        return f"ended itself with exit status {code}." if code else ""
    number, cpu_s = os.WTERMSIG(status), settings["cpu_s"]
    is_over = number == signal.SIGKILL and cpu_s and seconds >= cpu_s
    if number == signal.SIGXCPU or is_over:
        return f"used more than {cpu_s:g} seconds of processor time and was ended."
    problem = f"was ended by the signal {number} ({signal.strsignal(number)})."
    if settings["memory_mb"]:
        problem += (
            f" Perhaps it needs more than {settings['memory_mb']:g} MB of memory."
        )
    return problem


def _end_all(worker: int) -> bool:
    """Kill all that is left below the guard, however it is related. Return whether all is gone."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        # What a killed process leaves behind is the guard's next, on Linux. Without /proc: the worker's group.
        for pid in _children() or [-worker]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)
    return False


def _children() -> list[int]:
    children = []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        with (
            contextlib.suppress(OSError, ValueError, IndexError),
            open(f"/proc/{name}/stat", "rb") as file,
        ):
            parent = file.read().rpartition(b")")[2].split()[1]
            if int(parent) == os.getpid():
                children.append(int(name))
    return children


# The worker


def _work(
    settings: dict[str, Any], payload: Any, result: int, output: int, guard_pid: int
) -> NoReturn:
    """Set the limits, run the function, write the answer, end. Nothing runs after it, whatever happens."""
    code = 70
    try:
        _confine(settings, result, output, guard_pid)
        call = payload.read()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.closerange(4, 64)
        _write_all(3, _answer(settings, call))
        code = 0
    except MemoryError as error:
        # The frames of the traceback hold what filled the memory.
        error.__traceback__ = None
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
            # Closed, or nobody reads it: the result counts.
            with contextlib.suppress(BaseException):
                stream.flush()
        os._exit(code & 0xFF)


def _confine(
    settings: dict[str, Any], result: int, output: int, guard_pid: int
) -> None:
    """Undo what the guard needs, leave its session, and set the limits."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for name in os.environ.keys() - set(settings["env"]):  # Python sets LC_CTYPE
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

    _limit(resource.RLIMIT_CORE, 0, 0)
    if settings["cpu_s"]:
        seconds = math.ceil(settings["cpu_s"])  # the system counts whole ones
        _limit(resource.RLIMIT_CPU, seconds, seconds + 1)
    if settings["memory_mb"] and sys.platform != "darwin":  # which may refuse any limit
        size = int(settings["memory_mb"] * 1e6)
        _limit(resource.RLIMIT_AS, size, size)


def _limit(kind: int, soft: int, hard: int) -> None:
    """Lower a limit; one that is lower already stays."""
    import resource

    most = resource.getrlimit(kind)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), min(hard, most)
    resource.setrlimit(kind, (soft, hard))


def _answer(settings: dict[str, Any], call: bytes) -> bytes:
    try:
        function, arguments, keywords = _load(settings, call)
    except MemoryError:
        raise
    except BaseException as error:
        return _text("setup", f"{type(error).__name__}: {error}\n{_trace(error)}")
    try:
        value = function(*arguments, **keywords)
        if hasattr(value, "__await__"):
            import asyncio

            value = asyncio.run(_awaited(value))
        return b"value\n" + _value_json(value)
    except (MemoryError, SystemExit):
        raise
    except BaseException as error:
        return _error_report(error, function)


def _load(settings: dict[str, Any], call: bytes) -> tuple[Any, Any, Any]:
    """The function, its arguments and its keywords. The parent pickled them, so they are what it trusts."""
    import site

    site.main()
    sys.path[:], sys.argv[:] = settings["path"], [""]
    main = types.ModuleType("__main__")
    # A call while its own module is imported would never end.
    main.__dict__["__isolating__"] = settings["name"]
    sys.modules["__main__"] = main
    import pickle

    function, arguments, keywords = pickle.loads(call)
    if isinstance(function, str):
        function = find_function(*function.split(":"))
    del main.__dict__["__isolating__"]
    return function, arguments, keywords


def find_function(module: str, qualified_name: str) -> Any:
    """The function of this name, from behind its wrapper. Raises ImportError or AttributeError."""
    import functools
    import importlib

    attributes = qualified_name.split(".")
    value = functools.reduce(getattr, attributes, importlib.import_module(module))
    return getattr(value, "__isolated__", value)


async def _awaited(value: Any) -> Any:
    return await value


def _value_json(value: Any) -> bytes:
    """A list of the value alone, as JSON."""
    import json

    try:
        text = json.dumps([value], ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        from pydantic_core import to_jsonable_python

        try:
            plain = to_jsonable_python(value, bytes_mode="base64")
            text = json.dumps([plain], ensure_ascii=False)
        except ValueError as error:
            raise TypeError(
                f"What it returned has no JSON form: {error}. Return plain data."
            ) from error
    return text.encode("utf-8", "replace")


def _error_report(error: BaseException, function: Any) -> bytes:
    import json
    import traceback

    errors = sys.modules.get("toolkit.errors")
    if errors and isinstance(error, errors.ToolError):
        return _text("spoken", str(error)[:_MOST_TEXT])
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    module = frames[-1].f_globals.get("__name__")
    is_own = module == getattr(function, "__module__", "")
    message = str(error)
    if len(error.args) == 1 and isinstance(error.args[0], str):
        message = error.args[0]  # str() of a KeyError would be quoted once more
    fields = [type(error).__name__, message[:_MOST_TEXT], _trace(error), is_own]
    return _text("raised", json.dumps(fields))


def _trace(error: BaseException) -> str:
    import traceback

    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return "".join(lines)[-_MOST_TEXT:]


def _write_all(end: int, answer: bytes) -> None:
    while answer:
        answer = answer[os.write(end, answer) :]


def _text(kind: str, text: str) -> bytes:
    return f"{kind}\n{text}".encode("utf-8", "replace")


def _prctl(option: int, value: int) -> None:
    """Call what the standard library has no name for. Only Linux has it; elsewhere nothing happens."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)


if __name__ == "__main__":
    stream = open(0, "rb", closefd=False)  # noqa: SIM115  # the worker reads on where the guard stops
    guard(marshal.load(stream), stream)
    os._exit(0)  # without the time that an interpreter takes to end
