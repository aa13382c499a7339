"""The store: who drives a run, what is kept of it, what is refused, and what goes on after an end in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import toolkit
from helpers import Runner, ask, look, of, pay
from toolkit import (
    Limits,
    Message,
    ModelError,
    Reply,
    RunResult,
    ScriptedModel,
    ToolCall,
    Usage,
    Verdict,
)
from toolkit.errors import StoreError
from toolkit.runs.state import Run
from toolkit.store import SQLiteStore

ROOT = Path(__file__).parents[1]


def new_run(run_id: str, *messages: Message) -> Run:
    return Run(run_id, messages or (Message("user", "go"),))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(path)
    yield store
    store.close()


def pause(
    store: SQLiteStore, run_id: str = "r", run: Runner = toolkit.run_agent_with_tools
) -> RunResult:
    tools = of(pay, permission="sensitive")
    return run(
        "go",
        model=ScriptedModel([ask("pay", key="a")]),
        tools=tools,
        store=store,
        run_id=run_id,
    )


# Going on


def test_a_run_is_kept_as_it_is(run: Runner, store: SQLiteStore, path: Path) -> None:
    message = Message(
        "assistant", "é 漢", (ask("look", key="ключ"),), opaque={"chat": {"x": [1]}}
    )
    model = ScriptedModel([Reply(message, Usage(3, 4, 1, 2)), "seen"])
    result = run(
        "größe",
        model=model,
        tools=of(look),
        store=store,
        instructions="be",
        limits=Limits(seconds=60.0),
    )
    other = SQLiteStore(path)
    assert other.load(result.run.id) == result.run
    assert other.result(result.run.id) == result
    assert [(kept.id, kept.status) for kept in other.runs()] == [
        (result.run.id, "answered")
    ]
    assert other.runs()[0].created <= other.runs()[0].updated
    other.close()


def test_a_paused_run_is_gone_on_with_by_its_id(
    run: Runner, resume: Runner, store: SQLiteStore, path: Path
) -> None:
    pause(store, run=run)
    store.close()
    other, tools = SQLiteStore(path), of(pay, permission="sensitive")
    (waiting,) = other.waiting()
    assert [call.id for call in waiting.waiting] == ["pay"]
    assert "Paused" in str(waiting)
    result = resume(
        "r",
        {"pay": Verdict("approve", by="Ada")},
        model=ScriptedModel(["ok"]),
        tools=tools,
        store=other,
    )
    assert [call.content for call in result.calls] == ["paid a"]
    assert other.waiting() == []
    assert other.load("r").decided["pay"].by == "Ada"
    other.close()


@pytest.mark.parametrize("as_given", ["result", "run", "json", "id"])
def test_what_a_run_is_resumed_from(
    as_given: str, resume: Runner, store: SQLiteStore
) -> None:
    paused = pause(store)
    given: Any = {
        "result": paused,
        "run": paused.run,
        "json": paused.to_json(),
        "id": "r",
    }[as_given]
    options: dict[str, Any] = {"tools": of(pay, permission="sensitive"), "store": store}
    result = resume(given, {"pay": "approve"}, model=ScriptedModel(["ok"]), **options)
    assert str(result) == "ok"
    if (
        as_given == "id"
    ):  # an ended run has nothing to go on with, and says its end again
        assert resume(given, model=ScriptedModel([]), **options) == result
        return
    with pytest.raises(StoreError, match="in another state"):
        resume(given, {"pay": "approve"}, model=ScriptedModel([]), **options)
    assert store.runs()[0].status == "answered"


def test_an_id_without_its_store_is_told(resume: Runner) -> None:
    with pytest.raises(ValueError, match=r"not JSON: .* an id with store="):
        resume("r", model=ScriptedModel([]), tools=())


def test_a_fault_leaves_a_run_that_goes_on_by_its_id(
    run: Runner, resume: Runner, store: SQLiteStore
) -> None:
    model = ScriptedModel([ask("look", key="a"), ModelError("down")])
    with pytest.raises(ModelError) as caught:
        run("go", model=model, tools=of(look), store=store, run_id="r")
    assert store.runs()[0].status == "stopped"
    with pytest.raises(StoreError, match=r"come to no end \('stopped'\)"):
        store.result("r")
    assert store.load("r") == caught.value.run
    result = resume("r", model=ScriptedModel(["ok"]), tools=of(look), store=store)
    assert [call.content for call in result.calls] == ["seen a"]


def test_ctrl_c_in_a_tool_leaves_a_run_that_goes_on_by_its_id(
    store: SQLiteStore, resume: Runner
) -> None:
    def break_off() -> None:
        """Break off."""
        raise KeyboardInterrupt

    calls = [ask("break_off"), ask("look", key="a")]
    with pytest.raises(KeyboardInterrupt):
        toolkit.run_agent_with_tools(
            "",
            model=ScriptedModel([calls]),
            tools=of(break_off, look, parallel=False),
            store=store,
            run_id="r",
        )
    result = resume(
        "r", model=ScriptedModel(["ok"]), tools=of(break_off, look), store=store
    )
    contents = [call.content for call in result.calls]
    assert contents[0].startswith("Interrupted while it ran")
    assert contents[1].startswith("Not run")


def test_ctrl_c_amid_a_transaction_leaves_the_store_usable(
    store: SQLiteStore, path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt), store._transaction():
        raise KeyboardInterrupt
    other = SQLiteStore(path)
    other.create(new_run("r"))  # would wait for long if the first still held the file
    other.release("r")
    store.create(new_run("s"))
    store.release("s")
    other.close()


# Who drives


def test_a_run_is_driven_by_one(store: SQLiteStore, path: Path, resume: Runner) -> None:
    """Two stores on one file are as two processes to each other, and so are two threads with one store."""
    other = SQLiteStore(path)
    pause(store)
    store.claim("r")
    ran: list[str] = []
    for one in (store, other):
        with pytest.raises(StoreError, match="'r' is being driven"):
            resume(
                "r",
                {"pay": "approve"},
                model=ScriptedModel([]),
                tools=of(pay, permission="sensitive"),
                store=one,
            )
        with pytest.raises(StoreError, match="'r' is being driven"):
            one.delete("r")
    assert ran == []
    other.release("r")  # which is not its own
    with pytest.raises(StoreError, match="'r' is being driven"):
        other.claim("r")
    store.release("r")
    store.release("r")
    other.claim("r")
    other.release("r")
    other.close()


def test_a_tool_cannot_resume_the_run_that_it_is_in(
    run: Runner, store: SQLiteStore
) -> None:
    def resume_itself() -> str:
        """Resume."""
        return str(
            toolkit.resume(
                "r", model=ScriptedModel(["inner"]), tools=of(look), store=store
            )
        )

    tools = of(resume_itself)
    result = run(
        "",
        model=ScriptedModel([ask("resume_itself"), "ok"]),
        tools=tools,
        store=store,
        run_id="r",
    )
    assert "StoreError" in result.calls[0].content
    assert str(result) == "ok"
    assert store.result("r") == result


def test_threads_that_claim_one_run(store: SQLiteStore, path: Path) -> None:
    store.create(new_run("r"))
    store.release("r")
    stores = [store, SQLiteStore(path)]
    won: list[int] = []
    gate = threading.Barrier(8)

    def claim(number: int) -> None:
        gate.wait()
        with contextlib.suppress(StoreError):
            stores[number % 2].claim("r")
            won.append(number)

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(won) == 1
    stores[1].close()


def test_a_store_that_is_waited_for_holds_up_no_other(tmp_path: Path) -> None:
    blocked, other = SQLiteStore(tmp_path / "a.db"), SQLiteStore(tmp_path / "b.db")
    waiting = threading.Thread(target=blocked.create, args=(new_run("r"),), daemon=True)
    went_on = threading.Event()

    def use_other() -> None:
        other.create(new_run("r"))
        other.release("r")
        went_on.set()

    # As another process would hold it during a step.
    holder = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    waiting.start()
    threading.Thread(target=use_other, daemon=True).start()
    assert went_on.wait(30)
    assert waiting.is_alive()
    holder.execute("ROLLBACK")
    waiting.join(30)
    assert [run.id for run in blocked.runs()] == ["r"]
    blocked.release("r")
    for closable in (holder, blocked, other):
        closable.close()


_IN_A_PROCESS = """
import sys, time
from toolkit.store import SQLiteStore
from toolkit.errors import StoreError
store = SQLiteStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
try:
    store.claim("r")
    print("won", flush=True)
except StoreError as error:
    print(error, flush=True)
sys.stdin.readline()
"""


@pytest.mark.slow
def test_processes_that_claim_one_run_and_one_that_is_killed(
    store: SQLiteStore, path: Path
) -> None:
    store.create(new_run("r"))
    store.release("r")
    command = [sys.executable, "-c", _IN_A_PROCESS, str(path)]
    pipes: dict[str, Any] = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "text": True,
        "bufsize": 1,
    }
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [subprocess.Popen(command, env=environment, **pipes) for _ in range(4)]
    assert [process.stdout.readline() for process in processes if process.stdout] == [
        "ready\n"
    ] * 4
    for process in processes:
        print(file=process.stdin)
    said = [process.stdout.readline() for process in processes if process.stdout]
    assert sorted(said, reverse=True)[0] == "won\n"
    assert (
        sum("'r' is being driven, by this or another process" in line for line in said)
        == 3
    )
    with pytest.raises(StoreError, match="being driven"):
        store.claim("r")
    winner = processes[said.index("won\n")]
    winner.kill()
    winner.wait(10)
    assert store.claim("r").id == "r"  # at once
    store.release("r")
    for process in processes:
        process.kill()
        process.communicate(timeout=10)


def test_an_id_is_taken_once(run: Runner, store: SQLiteStore) -> None:
    ran: list[str] = []
    first = run("go", model=ScriptedModel(["ok"]), tools=(), store=store, run_id="r")
    with pytest.raises(StoreError, match="has a run 'r' already"):
        run("again", model=ScriptedModel(ran), tools=(), store=store, run_id="r")
    assert store.result("r") == first


def test_a_run_that_could_not_be_kept_is_free_again(store: SQLiteStore) -> None:
    unkeepable = new_run("r", Message("user", "go", opaque={"chat": {1, 2}}))
    for _ in range(
        2
    ):  # the second time it would be "driven", if a lease were left over
        with pytest.raises(TypeError):
            store.create(unkeepable)
    store.create(new_run("r"))
    store.release("r")


def test_a_closed_store_opens_again_and_keeps_its_claims(store: SQLiteStore) -> None:
    store.create(new_run("r"))
    store.close()
    store.save(
        new_run("r", Message("user", "a"), Message("assistant", "b")), "answered"
    )
    store.release("r")
    store.close()
    store.close()
    assert store.claim("r").messages[1].text == "b"
    store.release("r")


def test_what_is_not_claimed_is_not_written(store: SQLiteStore) -> None:
    pause(store)
    run = store.load("r")
    with pytest.raises(
        StoreError,
        match=r"'r' is not claimed\. Continue it with resume\('r', store=…\)",
    ):
        store.save(run, "running")


def test_a_deleted_run_is_gone(store: SQLiteStore) -> None:
    pause(store)
    pause(store, "other")
    store.delete("r")
    assert [run.id for run in store.runs()] == ["other"]
    for use in (store.claim, store.load, store.result, store.delete):
        with pytest.raises(StoreError, match=r"The store 'runs.db' has no run 'r'"):
            use("r")
    pause(store)  # its id is free
    assert len(store.load("r").messages) == 2


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_shares_neither_connection_nor_claim(
    path: Path, store: SQLiteStore
) -> None:
    """The parent closes its file while the child has it: without locks of its own, what the child writes is lost."""
    store.create(new_run("r"))
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        with contextlib.suppress(BaseException):
            store.create(new_run("of the child"))
            os.read(reader, 1)  # now the parent has closed its connection
            with pytest.raises(StoreError, match="being driven"):
                store.claim("r")
            with pytest.raises(StoreError, match="not claimed"):
                store.save(new_run("r"), "running")
            store.create(new_run("later"))
            status = 0
        os._exit(status)
    deadline = time.monotonic() + 30
    while len(store.runs()) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    store.close()
    os.write(writer, b"!")
    assert os.waitpid(child, 0)[1] == 0
    assert sorted(run.id for run in store.runs()) == ["later", "of the child", "r"]
    store.save(new_run("r"), "running")  # still the parent's
    store.release("r")
    os.close(reader)
    os.close(writer)


# Odd names and texts


@pytest.mark.parametrize(
    "run_id",
    ["../x", "a b", "日本", "x" * 5_000, "'; DROP TABLE runs; --", "a\0b", "%s", "[1]"],
)
def test_a_run_may_have_any_id(run_id: str, store: SQLiteStore, resume: Runner) -> None:
    paused = pause(store, run_id)
    assert store.load(run_id) == paused.run
    result = resume(
        run_id,
        {"pay": "deny"},
        model=ScriptedModel(["ok"]),
        tools=of(pay, permission="sensitive"),
        store=store,
    )
    assert store.result(run_id) == result
    assert [
        path.name
        for path in store.path.parent.iterdir()
        if path.name.startswith("runs.db")
    ] != []
    assert len(list(store.path.parent.parent.glob("x"))) == 0


@pytest.mark.parametrize("run_id", ["{", ' {"a": 1}', "\ud800"], ids=ascii)
def test_ids_that_could_not_be_resumed_are_refused(
    run_id: str, run: Runner, store: SQLiteStore
) -> None:
    with pytest.raises(ValueError, match="run_id"):
        run("go", model=ScriptedModel([]), tools=(), store=store, run_id=run_id)
    assert store.runs() == []


@pytest.mark.parametrize(
    "text", ["\ud800", "\0", "a\ud83d", "\u2028", '"\\'], ids=ascii
)
def test_texts_that_files_do_not_take(
    text: str, run: Runner, store: SQLiteStore, path: Path
) -> None:
    calls = [
        ToolCall("c", "look", raw=json.dumps({"key": text})),
        ToolCall("d", "look", raw=text),
    ]
    model = ScriptedModel(
        [
            Reply(
                Message("assistant", text, tuple(calls), opaque={"chat": {"t": text}})
            ),
            text,
        ]
    )
    result = run(
        text, model=model, tools=of(look), store=store, run_id="r", instructions=text
    )
    other = SQLiteStore(path)
    assert other.load("r") == result.run
    other.close()


# How much


def test_a_step_writes_what_is_new(store: SQLiteStore, path: Path) -> None:
    """Of 200 turns the last writes no more than the second, so that a long run takes time in proportion to it."""
    sizes: list[int] = []
    database = sqlite3.connect(path)

    def measure(request: Any) -> Any:
        # All that is kept is in one row that each step writes anew, and in rows that are written once.
        sizes.append(database.execute("SELECT length(state) FROM runs").fetchone()[0])
        return ask("pay", f"c{len(sizes)}", key="a" * 100) if len(sizes) < 200 else "ok"

    result = toolkit.run_agent_with_tools(
        "go",
        model=ScriptedModel(measure),
        tools=of(pay, permission="sensitive", repeat_ok=True),
        max_turns=300,
        store=store,
        approve=lambda call: "approve",
    )
    assert result.stop_reason == "answered"
    assert sizes[-1] < sizes[1] + 100
    database.close()
    assert store.load(result.run.id) == result.run


# Files that are none


def make_newer(path: Path) -> None:
    SQLiteStore(path).close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()


def make_foreign(path: Path, *statements: str) -> None:
    database = sqlite3.connect(path)
    for statement in statements:
        database.execute(statement)
    database.close()


FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a newer version": (make_newer, "is of version 99, newer"),
    "tables of something else": (
        lambda path: make_foreign(path, "CREATE TABLE runs (a)"),
        "of something else",
    ),
    "a version of something else": (
        lambda path: make_foreign(
            path, "CREATE TABLE notes (a)", "PRAGMA user_version = 1"
        ),
        "of something else",
    ),
    "an application": (
        lambda path: make_foreign(path, "PRAGMA application_id = 7"),
        "of something else",
    ),
    "no database": (
        lambda path: path.write_text("not a database, but a text\n" * 50),
        "file is not a database",
    ),
    "a folder": (Path.mkdir, "unable to open"),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_no_store_is_named_and_left_as_it_is(
    kind: str, path: Path
) -> None:
    make, told = FILES[kind]
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreError, match=r"'runs.db'") as caught:
        SQLiteStore(path)
    assert told in str(caught.value)
    assert before is None or path.read_bytes() == before


def test_a_place_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"'runs.db' cannot be used"):
        SQLiteStore(tmp_path / "nowhere" / "runs.db")
    with pytest.raises(StoreError, match="in memory"):
        SQLiteStore(":memory:")


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    store = SQLiteStore(path)
    assert store.runs() == []
    store.close()


def test_two_names_of_one_file_are_one_store(path: Path, store: SQLiteStore) -> None:
    link = path.with_name("link.db")
    try:
        link.symlink_to(path)
    except OSError:
        pytest.skip("no links here")
    other = SQLiteStore(link)
    other.create(new_run("r"))
    with pytest.raises(StoreError, match="being driven"):
        store.claim("r")
    other.release("r")
    other.close()
    assert sorted(p.name for p in path.parent.glob("*.lease")) == ["runs.db.lease"]


def test_a_path_is_taken_when_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("runs.db")
    store.create(new_run("r"))
    store.close()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert [run.id for run in store.runs()] == ["r"]
    store.release("r")
    store.close()


_ON_A_FULL_DISK = """
import resource, sys
import toolkit
from toolkit import ScriptedModel, ToolCall, ToolRegistry
from toolkit.errors import StoreError
from toolkit.store import SQLiteStore

ran = []
def note(text: str) -> str:
    ran.append(text)
    if len(ran) == 2:  # from now on nothing more fits
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    return "x" * 20_000

tools = ToolRegistry()
tools.register_tool(note, description="Note.", timeout=None)
calls = iter(range(100))
model = ScriptedModel(lambda request: ToolCall(f"c{next(calls)}", "note", {"text": "a"}))
store = SQLiteStore(sys.argv[1])
try:
    toolkit.run_agent_with_tools("", model=model, tools=tools, store=store, run_id="r")
except StoreError as error:
    print(error, len(ran))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.create(toolkit.Run("s", store.load("r").messages))
print([call.content[:7] for call in toolkit.resume("r", model=ScriptedModel(["ok"]), tools=tools, store=store).calls])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no such limit there")
def test_on_a_full_disk_no_tool_runs(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", _ON_A_FULL_DISK, str(path)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60
    )
    assert "could not be saved" in done.stderr
    error, kept = done.stdout.splitlines()
    assert error.startswith("The store 'runs.db' cannot be used: ")
    assert error.endswith(" 2")
    assert kept == "['xxxxxxx', 'Outcome']"


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0,
    reason="nothing is read-only to root",
)
def test_in_a_file_that_may_only_be_read_no_run_begins(path: Path) -> None:
    SQLiteStore(path).close()
    path.chmod(0o400)
    ran: list[str] = []
    with pytest.raises(StoreError, match=r"'runs.db'"):
        toolkit.run_agent_with_tools(
            "", model=ScriptedModel(ran), tools=(), store=SQLiteStore(path)
        )
