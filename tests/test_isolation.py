"""Functions in child processes: what comes back, what is ended, what is said."""

from __future__ import annotations

import asyncio
import builtins
import datetime
import inspect
import json
import logging
import math
import os
import pickle
import re
import resource
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import isolated_functions as functions
from helpers import wait_until
from isolated_functions import Colour, Point
from toolkit import (
    ScriptedModel,
    ToolCall,
    ToolContext,
    ToolError,
    ToolRegistry,
    tool,
)
from toolkit.errors import ToolDefinitionError
from toolkit.isolation import ChildTraceback, IsolatedError, isolated
from toolkit.isolation import call as child_call

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="where all of it holds"),
]

DAY = datetime.date(2030, 6, 1)
NEXT_DAY = datetime.date(2030, 6, 2)


def processes_in(folder: Path) -> list[int]:
    """Of the processes that left their ids there, those that live."""
    pids = [int(path.name) for path in folder.iterdir()]
    assert pids, "none has started"
    return [pid for pid in pids if _is_alive(pid)]


def _is_alive(pid: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


# What comes back


@pytest.mark.parametrize(
    ("call", "value"),
    [
        pytest.param(
            lambda: functions.move(Point(0.5, DAY)),
            (Point(0.5, NEXT_DAY), Colour.RED),
            id="by types",
        ),
        pytest.param(
            lambda: functions.collect(), {b"\xff\x00", b"text"}, id="set of bytes"
        ),
        pytest.param(lambda: functions.Counter().add(2), 5, id="method"),
        pytest.param(lambda: isolated()(math.sqrt)(9), 3.0, id="of another module"),
        pytest.param(lambda: isolated()(lambda x: x + DAY.year)(1), 2031, id="closure"),
        pytest.param(
            lambda: asyncio.run(functions.move_later(DAY)),
            NEXT_DAY,
            id="coroutine function",
        ),
        pytest.param(functions.print_much, "printed", id="100 MB of output"),
        pytest.param(functions.close_output, "closed", id="output closed"),
    ],
)
def test_results_come_back_as_values(call: Callable[[], Any], value: Any) -> None:
    assert call() == value


def test_without_a_return_type_a_result_is_plain_json() -> None:
    first, second, third, *rest = functions.plain()
    assert (first, second) == ("tuple", {"1": "2030-06-01"})
    assert third is None or math.isnan(third)
    assert rest == ["é?", 2**70, None]


def test_a_function_stays_what_it_is() -> None:
    bare = functions.move.__wrapped__
    assert inspect.signature(functions.move) == inspect.signature(bare)
    assert (functions.move.__name__, functions.move.__doc__) == ("move", bare.__doc__)
    assert inspect.iscoroutinefunction(functions.move_later)
    registry = ToolRegistry()
    marked = tool(registry=registry)(functions.move)
    entry = registry["move"].parameters
    assert marked is functions.move
    assert entry == ToolRegistry([bare])["move"].parameters
    assert entry["properties"]["days"]["description"] == "How far."


def test_a_context_goes_without_its_flag() -> None:
    context = ToolContext("c1", deps={"a": [1]}, cancelled=lambda: False)
    assert functions.whole_context(context) == ("c1", {"a": [1]}, False)
    assert functions.whole_context(context=context) == ("c1", {"a": [1]}, False)


def test_the_child_has_nothing_of_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KEPT", "yes")
    monkeypatch.setenv("SECRET", "no")
    with socket.socket() as held, open(tmp_path / "open.txt", "w") as file:
        os.set_inheritable(held.fileno(), True)
        os.set_inheritable(file.fileno(), True)
        environment, folder, links, numbers = functions.surroundings()
    assert environment == {"KEPT": "yes"}
    assert folder != os.getcwd()
    assert not Path(folder).exists(), "it is gone afterwards"
    assert numbers == [0, 1, 2, 3]
    assert links[0] == "/dev/null"
    assert all(link.startswith("pipe:") for link in links[1:])


# What goes wrong


@pytest.mark.parametrize(
    ("call", "said"),
    [
        pytest.param(
            functions.loop_forever,
            "ran longer than 0.6 seconds and was ended.",
            id="endless loop",
        ),
        pytest.param(
            functions.ignore_signals,
            "ran longer than 0.6 seconds and was ended.",
            id="deaf to signals",
        ),
        pytest.param(
            functions.take_large_memory,
            "used more than 250 MB of memory and was ended.",
            id="memory",
        ),
        pytest.param(
            functions.take_small_memory,
            "used more than 120 MB of memory and was ended.",
            id="small objects",
        ),
        pytest.param(
            functions.use_processor,
            "used more than 1 seconds of processor time and was ended.",
            id="cpu",
        ),
        pytest.param(
            lambda: functions.end_process(3),
            "ended itself with exit status 3.",
            id="exit",
        ),
        pytest.param(
            lambda: functions.end_process("why"),
            "ended itself with exit status 1.",
            id="exit with a word",
        ),
        pytest.param(
            lambda: functions.end_process(None),
            "ended itself without a result.",
            id="exit, all well",
        ),
        pytest.param(
            functions.end_at_once, "ended itself without a result.", id="exit at once"
        ),
        pytest.param(
            functions.crash,
            "was ended by the signal 11 (Segmentation fault). Perhaps it needs more than 2048 MB",
            id="crash",
        ),
        pytest.param(
            functions.kill_own_group,
            "was ended by the signal 15 (Terminated).",
            id="own group",
        ),
        pytest.param(
            functions.return_much, "returned more than 10 MB.", id="result too large"
        ),
        pytest.param(
            lambda: functions.forge(b"spoken\nhi"), "hi", id="speaks over the pipe"
        ),
    ],
)
def test_an_end_says_why(call: Callable[[], Any], said: str) -> None:
    started = time.monotonic()
    with pytest.raises(ToolError, match=re.escape(said)):
        call()
    assert time.monotonic() - started < 15


def test_the_memory_of_the_parent_stays_flat() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    functions.print_much()
    for call in (functions.return_much, functions.take_large_memory):
        with pytest.raises(ToolError):
            call()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # KB
    assert grown < 20_000


def test_last_words_are_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ToolError), caplog.at_level(logging.WARNING, "toolkit"):
        functions.end_process("nobody home")
    assert "Its last output: last words\nnobody home" in caplog.text


@pytest.mark.parametrize(
    ("how", "kind", "told"),
    [
        pytest.param(
            "own",
            ValueError,
            "The tool 'fail' failed: ValueError: no city in [path]",
            id="its own",
        ),
        pytest.param(
            "own class",
            IsolatedError,
            "The tool 'fail' failed: NoSuchCity: Atlantis",
            id="of its own class",
        ),
        pytest.param(
            "key",
            KeyError,
            "The tool 'fail' failed: KeyError: 'Atlantis'",
            id="quoted once",
        ),
        pytest.param(
            "June",
            IsolatedError,
            "The tool 'fail' failed: JSONDecodeError (log",
            id="from deeper down",
        ),
        pytest.param("spoken", ToolError, "Ask for another city.", id="ToolError"),
        pytest.param(
            "interrupt",
            IsolatedError,
            "The tool 'fail' failed: KeyboardInterrupt",
            id="no interrupt of ours",
        ),
    ],
)
def test_an_exception_is_told_as_ever(
    how: str, kind: type[Exception], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = ToolRegistry([functions.fail]).call("fail", {"how": how})
    assert result.is_error
    assert result.content.startswith(told)
    logged = [record.exc_info[1] for record in caplog.records if record.exc_info]
    if kind is not ToolError:
        assert isinstance(logged[0], kind)
        assert isinstance(logged[0].__cause__, ChildTraceback)
        assert "isolated_functions.py" in str(logged[0].__cause__), (
            "the trace in the child"
        )


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        pytest.param(
            functions.return_object,
            TypeError,
            "no JSON form: Unable to",
            id="no JSON form",
        ),
        pytest.param(
            functions.return_wrong,
            TypeError,
            "returned what does not fit its return type",
            id="wrong type",
        ),
        pytest.param(
            lambda: functions.forge(b"value\n{"),
            TypeError,
            "its return type",
            id="broken JSON",
        ),
        pytest.param(
            lambda: functions.forge(b"value\n[]"),
            TypeError,
            "its return type",
            id="no value",
        ),
        pytest.param(
            lambda: functions.forge(pickle.dumps(print)),
            RuntimeError,
            "no answer that can",
            id="pickle",
        ),
        pytest.param(
            lambda: functions.forge(b'raised\n["ValueError",1]'),
            RuntimeError,
            "no answer that can",
            id="half an error",
        ),
        pytest.param(
            lambda: functions.forge(b"raised\n{"),
            RuntimeError,
            "no answer that can",
            id="broken error",
        ),
        pytest.param(
            lambda: functions.forge(b'raised\n["StopIteration","","",true]'),
            IsolatedError,
            "^$",
            id="breaks futures",
        ),
        pytest.param(
            lambda: functions.move(threading.Lock()),
            TypeError,
            "cannot go into a child process",
            id="argument",
        ),
    ],
)
def test_what_cannot_travel_is_told(
    call: Callable[[], Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        call()


ANSWERS = st.tuples(
    st.sampled_from(
        [b"value\n", b"raised\n", b"spoken\n", b"problem\n", b"setup\n", b"", b"\n"]
    ),
    st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ).map(lambda value: json.dumps(value).encode())
    | st.tuples(
        st.sampled_from(dir(builtins)) | st.text(), st.text(), st.text(), st.booleans()
    ).map(lambda told: json.dumps(told).encode()),
).map(b"".join)


@given(answer=ANSWERS)
def test_whatever_comes_back_is_a_value_or_a_plain_exception(answer: bytes) -> None:
    function = functions.return_wrong
    try:
        value = child_call.IsolatedFunction(function, {}).value(answer)
    except Exception as error:  # nothing that would end the program
        assert not isinstance(error, StopIteration)  # noqa: PT017
    else:
        assert type(value) is int


# Ended for certain


def test_what_it_started_ends_with_its_return(tmp_path: Path) -> None:
    assert functions.start_and_return(str(tmp_path)) == "started"
    assert processes_in(tmp_path) == []


def test_what_it_started_ends_at_the_timeout(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="ran longer than"):
        functions.start_and_wait(str(tmp_path))
    assert processes_in(tmp_path) == []


@pytest.mark.parametrize("name", ["kill_guard", "stop_guard"])
def test_nothing_is_gained_by_ending_the_guard(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_call, "_GRACE", 0.3)
    with pytest.raises(RuntimeError, match="gave no answer that can be read"):
        getattr(functions, name)(str(tmp_path))
    wait_until(lambda: processes_in(tmp_path) == [])


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    script = f"import isolated_functions as f; f.wait_long({str(tmp_path)!r})"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TMPDIR": str(tmp_path / "own"),
    }
    (tmp_path / "own").mkdir()
    notes = tmp_path / "notes"
    notes.mkdir()
    script = script.replace(repr(str(tmp_path)), repr(str(notes)))
    with subprocess.Popen([sys.executable, "-c", script], env=environment) as parent:
        wait_until(lambda: any(notes.iterdir()))
        assert processes_in(notes) != []
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: processes_in(notes) == [])
    wait_until(lambda: not any((tmp_path / "own").iterdir()))


def test_a_cancelled_caller_ends_it(tmp_path: Path) -> None:
    async def cancel() -> str:
        task = asyncio.create_task(functions.wait_later(str(tmp_path)))
        while not any(tmp_path.iterdir()):
            await asyncio.sleep(0.01)  # the loop is free meanwhile
        assert processes_in(tmp_path) != []
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return "cancelled"
        return "not cancelled"

    assert asyncio.run(cancel()) == "cancelled"
    assert processes_in(tmp_path) == []


def test_an_abandoned_call_ends_at_once(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    registry = ToolRegistry()
    tool(registry=registry, timeout=1.5)(functions.wait_long)
    call = ToolCall("c1", "wait_long", {"folder": str(tmp_path)})
    result = run("Wait.", model=ScriptedModel([call, "Ended."]), tools=registry)
    assert "did not finish within 1.5 seconds" in result.calls[0].content
    end = time.monotonic() + 20
    while processes_in(tmp_path) and time.monotonic() < end:
        time.sleep(0.05)
    assert processes_in(tmp_path) == []


def test_a_run_is_told_that_it_is_ended(run: Callable[..., Any]) -> None:
    registry = ToolRegistry()
    tool(registry=registry)(functions.loop_forever)
    result = run(
        "Loop.",
        model=ScriptedModel([ToolCall("c1", "loop_forever"), "Ended."]),
        tools=registry,
    )
    assert (
        result.calls[0].content
        == "The tool 'loop_forever' ran longer than 0.6 seconds and was ended."
    )


# What cannot be isolated


def generate() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(
            lambda: isolated(timeout=0), "timeout=0 of isolated", id="timeout 0"
        ),
        pytest.param(
            lambda: isolated(timeout=None), "timeout=None of isolated", id="no timeout"
        ),  # type: ignore[arg-type]
        pytest.param(lambda: isolated(memory_mb=True), "memory_mb=True", id="memory"),
        pytest.param(
            lambda: isolated(env={"KEY": "value"}),
            "env of isolated.. names variables",
            id="env with values",
        ),
        pytest.param(lambda: isolated(cpu_s=math.nan), "cpu_s=nan", id="not a number"),
        pytest.param(lambda: isolated()(3), "3 cannot be isolated", id="no function"),  # type: ignore[type-var]
        pytest.param(lambda: isolated()(generate), "'generate' yields", id="generator"),
        pytest.param(
            lambda: isolated()(tool(registry=ToolRegistry())(lambda_named())),
            "@tool above @isolated",
            id="a tool",
        ),
        pytest.param(
            lambda: isolated()(returns_lock)(),
            "return type of 'returns_lock'",
            id="return type",
        ),
        pytest.param(
            lambda: isolated()(returns_unknown)(),
            "'returns_unknown' .* 'Nowhere'",
            id="unknown return type",
        ),
    ],
)
def test_what_cannot_be_isolated_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ToolDefinitionError, match=said):
        make()


def lambda_named() -> Callable[[], int]:
    def count() -> int:
        return 1

    return count


def returns_lock() -> threading.Thread:
    return threading.current_thread()


def returns_unknown() -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
    return 1


def test_without_cloudpickle_the_way_out_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(
        RuntimeError, match=r"top of a module .*toolkit-agent\[isolation\]"
    ):
        isolated()(lambda: 1)()
    assert functions.Counter().add(1) == 4


def test_a_script_works_and_a_module_that_calls_itself_is_told(tmp_path: Path) -> None:
    (tmp_path / "eager.py").write_text(
        "from toolkit.isolation import isolated\n@isolated()\ndef one() -> int: return 1\nvalue = one()\n"
    )
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        from dataclasses import dataclass
        from toolkit.isolation import isolated

        @dataclass
        class Pair:
            left: int
            right: int = 0

        @isolated(timeout=20)
        def swap(pair: Pair) -> Pair:
            return Pair(pair.right, pair.left)

        print(swap(Pair(1)))
        import eager
        """)
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "Pair(left=0, right=1)\n"
    assert "'one' is called while its module is imported" in done.stderr
