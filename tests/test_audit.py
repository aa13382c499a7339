"""The audit: what stands in it and when, what verify finds, and what is kept out of it."""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import toolkit
from helpers import Runner, ask, look, of, pay
from toolkit import ScriptedModel, ToolCall, ToolError, ToolRegistry, Verdict
from toolkit.audit import AuditLog, verify
from toolkit.audit.locks import locked_file
from toolkit.batch import Rate
from toolkit.events import Event
from toolkit.messages import PendingCall

ROOT = Path(__file__).parents[1]


def begin(audit: AuditLog, run_id: str, calls: Any) -> None:
    """Tell the audit that calls start, each given with its tool."""
    pending = [
        PendingCall(call.id, call.name, call.arguments, permission=tool.permission)
        for call, tool in calls
    ]
    audit.began(run_id, 0, pending)


def put(key: str = "", fails: bool = False) -> str:
    """Put something there."""
    if fails:
        raise ToolError("It did not fit.")
    return f"put {key}"


def all_tiers() -> ToolRegistry:
    registry = of(look, permission="read")
    registry.register_tool(put)
    registry.register_tool(pay, permission="sensitive")
    return registry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, count: int) -> None:
    """Intents and outcomes of as many calls, each in one reply."""
    for number in range(count):
        model = ScriptedModel([ask("put", f"c{number}", key=f"k{number}"), "ok"])
        toolkit.run_agent_with_tools(
            "go", model=model, tools=of(put), audit=path, run_id=f"r{number}"
        )


# What stands in it


def test_the_lines_of_a_run(run: Runner, path: Path) -> None:
    replies: list[Any] = [
        [
            ask("look", "a", key="1"),
            ask("put", "b", key="2"),
            ask("put", "c", fails=True),
        ],
        [ask("pay", "d", key="4"), ask("pay", "e", key="5")],
        "ok",
    ]
    verdicts = {
        "d": Verdict("approve", by="Ada"),
        "e": Verdict("deny", "too much", by="Ada"),
    }
    result = run(
        "go",
        model=ScriptedModel(replies),
        tools=all_tiers(),
        audit=path,
        approve=lambda call: verdicts[call.id],
    )
    lines = read(path)
    shown = [
        (line["kind"], line["tool_call_id"], line.get("status"), line.get("by"))
        for line in lines
    ]
    assert shown[:2] == [("intent", "b", None, None), ("intent", "c", None, None)]
    assert sorted(shown[2:4]) == [
        ("outcome", "b", "ok", None),
        ("outcome", "c", "failed", None),
    ]
    assert shown[4] == ("outcome", "e", "denied", "Ada")  # it never began
    assert shown[5:] == [("intent", "d", None, "Ada"), ("outcome", "d", "ok", "Ada")]
    assert lines[4]["reason"] == "too much"
    assert lines[5]["decision"] == "approve"
    assert {line["run_id"] for line in lines} == {result.run.id}
    assert [line["turn"] for line in lines] == [1, 1, 1, 1, 2, 2, 2]
    assert [line["number"] for line in lines] == list(range(1, 8))
    assert lines[0]["arguments"] == {"key": "[redacted]", "fails": False}
    assert (lines[0]["tool_name"], lines[0]["permission"], lines[5]["permission"]) == (
        "put",
        "write",
        "sensitive",
    )
    assert lines[5]["digest"] == ask("pay", key="4").digest == lines[6]["digest"]
    found = verify(path)
    assert (found.lines, found.is_intact, found.unfinished, str(found)) == (
        7,
        True,
        (),
        "7 lines: intact.",
    )
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o777 == 0o600


def test_calls_that_only_read_leave_no_line(run: Runner, path: Path) -> None:
    run("go", model=ScriptedModel([ask("look"), "ok"]), tools=all_tiers(), audit=path)
    assert path.read_bytes() == b""
    assert verify(path).lines == 0


def test_a_denied_read_leaves_a_line(run: Runner, path: Path) -> None:
    def approve(call: ToolCall) -> str:
        return "deny"

    approve.tiers = ("read",)  # type: ignore[attr-defined]
    run(
        "go",
        model=ScriptedModel([ask("look"), "ok"]),
        tools=all_tiers(),
        audit=path,
        approve=approve,
    )
    assert [(line["kind"], line["status"]) for line in read(path)] == [
        ("outcome", "denied")
    ]


def test_the_answer_itself_leaves_no_line(run: Runner, path: Path) -> None:
    model = ScriptedModel([ToolCall("a", "final_answer", {"response": 3}), "x"])
    result = run(
        "go", model=model, tools=all_tiers(), audit=path, output_type=int, max_turns=1
    )
    assert path.read_bytes() == b"", result.calls


def test_an_intent_is_on_the_disk_before_the_tool_runs(
    run: Runner, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    fsync = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: (seen.append("on the disk"), fsync(file))[1]
    )

    def put(key: str) -> str:
        """Put it there."""
        seen.extend(
            line["kind"]
            for line in read(path)
            if line["arguments"] == {"key": "[redacted]"}
        )
        return key

    run(
        "go",
        model=ScriptedModel([ask("put", key="a"), "ok"]),
        tools=of(put),
        audit=path,
    )
    assert seen == ["on the disk", "intent"]


@pytest.mark.parametrize("fault", ["altered", "a folder", "a journal of the caller"])
def test_what_cannot_be_audited_is_not_run(
    fault: str, run: Runner, path: Path, tmp_path: Path
) -> None:
    ran: list[str] = []

    def put(key: str) -> str:
        """Put it there."""
        ran.append(key)
        return key

    audit: Any = path
    if fault == "altered":
        write_lines(path, 2)
        path.write_bytes(path.read_bytes()[:-5])
    elif fault == "a folder":
        path.mkdir()
    else:
        audit = AuditLog(None)

        def cannot(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        audit.began = cannot
    with pytest.raises((OSError, ValueError)):
        run(
            "go",
            model=ScriptedModel([ask("put", key="a"), "ok"]),
            tools=of(put),
            audit=audit,
        )
    assert ran == []


_ON_A_FULL_DISK = """
import resource, sys
import toolkit
from toolkit import ScriptedModel, ToolCall, ToolRegistry
from toolkit.audit import verify
ran = []
tools = ToolRegistry()
tools.register_function("put", "Put it.", lambda text: ran.append(text) or "ok")
def run(size):
    model = ScriptedModel([ToolCall("a", "put", {"text": "x" * size}), "ok"])
    return toolkit.run_agent_with_tools("", model=model, tools=tools, audit=sys.argv[1])
run(1)
resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, resource.RLIM_INFINITY))  # a part of the next line fits
try:
    run(10_000)
except OSError as error:
    print(type(error).__name__, len(ran), error.run.messages[-1].tool_results[0].reason)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
run(1)
print(verify(sys.argv[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no such limit there")
def test_a_disk_that_is_full_amid_a_line_breaks_no_chain(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", _ON_A_FULL_DISK, str(path)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.splitlines(), done.stderr) == (
        ["OSError 1 not_run", "4 lines: intact."],
        "",
    )


@pytest.mark.parametrize("given", [True, 7, b"audit.jsonl", ["a"]], ids=repr)
def test_what_is_no_audit_is_refused_before_the_run(given: Any, run: Runner) -> None:
    model = ScriptedModel([])
    with pytest.raises(TypeError, match="audit must be a path or an AuditLog, not "):
        run("go", model=model, tools=of(put), audit=given)
    assert model.requests == []


def test_ctrl_c_in_a_tool_leaves_an_outcome(path: Path) -> None:
    def break_off() -> None:
        """Break off."""
        raise KeyboardInterrupt

    calls = [ask("break_off"), ask("put", key="a")]
    with pytest.raises(KeyboardInterrupt):
        toolkit.run_agent_with_tools(
            "",
            model=ScriptedModel([calls]),
            tools=of(break_off, put, parallel=False),
            audit=path,
        )
    assert [(line["kind"], line.get("status")) for line in read(path)] == [
        ("intent", None),
        ("outcome", "interrupted"),
    ]
    assert verify(path).unfinished == ()


def test_cancelling_leaves_an_outcome(path: Path) -> None:
    async def wait() -> None:
        """Wait."""
        await asyncio.sleep(30)

    async def main() -> None:
        model = ScriptedModel([ask("wait")])
        task = asyncio.ensure_future(
            toolkit.arun_agent_with_tools("", model=model, tools=of(wait), audit=path)
        )
        while not path.exists() or not path.read_bytes():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [(line["kind"], line.get("status")) for line in read(path)] == [
        ("intent", None),
        ("outcome", "interrupted"),
    ]


def test_a_timeout_is_an_outcome(run: Runner, path: Path) -> None:
    stop = threading.Event()

    def wait() -> None:
        """Wait."""
        stop.wait(30)

    run(
        "",
        model=ScriptedModel([ask("wait"), "ok"]),
        tools=of(wait, timeout=0.05),
        audit=path,
    )
    stop.set()
    assert [line.get("status") for line in read(path)] == [None, "timeout"]


def test_the_logger_alone_is_an_audit(
    run: Runner, caplog: pytest.LogCaptureFixture, path: Path
) -> None:
    replies = [ask("put", key="a"), "ok"]
    run("go", model=ScriptedModel(replies), tools=of(put))
    assert caplog.records == []
    with caplog.at_level(logging.INFO, logger="toolkit.audit"):
        run("go", model=ScriptedModel(replies), tools=of(put))
        run("go", model=ScriptedModel(replies), tools=of(put), audit=path)
    told = [
        json.loads(record.getMessage())
        for record in caplog.records
        if record.name == "toolkit.audit"
    ]
    assert [line["kind"] for line in told] == ["intent", "outcome"] * 2
    assert told[2:] == read(path)


# What verify finds


def change(lines: list[bytes], kind: str) -> list[bytes]:
    edited = {
        "a word": lambda line: line.replace(b'"c2"', b'"c9"'),
        "a hash": lambda line: line.replace(b'"hash": "', b'"hash": "0'),
        "a space": lambda line: line.replace(b": ", b":  ", 1),
        "the number": lambda line: line.replace(b'"number": 5', b'"number": 6'),
    }
    middle = len(lines) // 2
    match kind.split(": "):
        case ["edited", what]:
            return [*lines[:4], edited[what](lines[4]), *lines[5:]]
        case ["removed", "first"]:
            return lines[1:]
        case ["removed", "middle"]:
            return lines[:middle] + lines[middle + 1 :]
        case ["removed", "last"]:
            return lines[:-1]
        case ["removed", "last two"]:
            return lines[:-2]
        case ["swapped", where]:
            first = {"first": 0, "middle": middle, "last": len(lines) - 2}[where]
            return [*lines[:first], lines[first + 1], lines[first], *lines[first + 2 :]]
        case ["doubled", where]:
            at = {"first": 0, "middle": middle, "last": len(lines) - 1}[where]
            return [*lines[: at + 1], *lines[at:]]
        case ["inserted", what]:
            made = {
                "blank": b"\n",
                "text": b"hello\n",
                "json": b"{}\n",
                "bytes": b"\xff\xfe\n",
                "list": b"[1]\n",
            }[what]
            return [*lines[:middle], made, *lines[middle:]]
        case ["cut", "half a line"]:
            return [*lines[:-1], lines[-1][: len(lines[-1]) // 2]]
        case ["cut", "half a line amid"]:
            return [*lines[:middle], lines[middle][:40], b"\n", *lines[middle + 1 :]]
        case ["cut", "all"]:
            return []
        case ["added", "at the end"]:
            return [*lines, b'{"kind": "outcome", "hash": "00"}\n']
        case ["added", "blank"]:
            return [*lines, b"\n"]
    raise AssertionError(kind)


CHANGES = [
    *("edited: a word", "edited: a hash", "edited: the number"),
    *("removed: first", "removed: middle", "removed: last", "removed: last two"),
    *("swapped: first", "swapped: middle", "swapped: last"),
    *("doubled: first", "doubled: middle", "doubled: last"),
    *(
        "inserted: blank",
        "inserted: text",
        "inserted: json",
        "inserted: bytes",
        "inserted: list",
    ),
    *(
        "cut: half a line",
        "cut: half a line amid",
        "cut: all",
        "added: at the end",
        "added: blank",
    ),
]


@pytest.mark.parametrize("kind", CHANGES)
def test_what_was_changed_is_found(kind: str, path: Path) -> None:
    write_lines(path, 4)
    assert verify(path).is_intact
    kept = read(path)[-1]["hash"]
    lines = path.read_bytes().splitlines(keepends=True)
    changed = change(lines, kind)
    assert changed != lines
    path.write_bytes(b"".join(changed))
    found = verify(path)
    assert not found.is_intact
    assert "problem(s)" in str(found)
    path.with_name("audit.jsonl.head").unlink()
    assert not verify(
        path, last=kept
    ).is_intact  # the hash kept elsewhere serves as well


def test_what_stands_in_no_line_is_no_change(path: Path) -> None:
    """The hash is of what a line says, so that its layout may change."""
    write_lines(path, 4)
    path.write_bytes(
        b"".join(change(path.read_bytes().splitlines(keepends=True), "edited: a space"))
    )
    assert verify(path).is_intact


@pytest.mark.parametrize(
    "left", [b"", b"garbage", b"00000000000000000008 x 9", None], ids=str
)
def test_a_lost_head_is_told(left: bytes | None, path: Path) -> None:
    write_lines(path, 4)
    head, last = path.with_name("audit.jsonl.head"), read(path)[-1]["hash"]
    head.unlink()
    if left is not None:
        head.write_bytes(left)
    assert not verify(path).is_intact
    assert verify(path, last=last).is_intact
    if left != b"00000000000000000008 x 9":
        with pytest.raises(
            ValueError,
            match=r"does not end as 'audit.jsonl.head' says. Look at it with verify",
        ):
            write_lines(path, 1)
        assert len(read(path)) == 8


@pytest.mark.parametrize(
    "lost",
    ["the file", "all lines", "the last line", "all but the first", "head and lines"],
)
def test_a_changed_end_keeps_tools_from_running(lost: str, path: Path) -> None:
    write_lines(path, 4)
    lines = path.read_bytes().splitlines(keepends=True)
    if lost == "the file":
        path.unlink()
    else:
        kept = {
            "all lines": 0,
            "the last line": 7,
            "all but the first": 1,
            "head and lines": 2,
        }[lost]
        path.write_bytes(b"".join(lines[:kept]))
    if lost == "head and lines":
        path.with_name("audit.jsonl.head").unlink()
    with pytest.raises(ValueError, match="does not end as"):
        write_lines(path, 1)


def test_a_file_that_is_not_there_is_an_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        verify(path)


# Crashes, several writers, other files


@pytest.mark.parametrize("batch", [1, 3])
def test_a_crash_between_the_lines_and_the_head(batch: int, path: Path) -> None:
    """The lines of a batch are written together, and the head after them."""
    write_lines(path, 1)
    head = path.with_name("audit.jsonl.head")
    before = head.read_bytes()
    calls = tuple(
        (ask("put", f"x{number}", key="a"), of(put).snapshot()["put"])
        for number in range(batch)
    )
    begin(AuditLog(path), "crashed", calls)
    head.write_bytes(before)
    assert verify(path).is_intact
    write_lines(path, 1)
    found = verify(path)
    assert (found.problems, found.lines, len(found.unfinished)) == (
        (),
        4 + batch,
        batch,
    )


@pytest.mark.parametrize("kept", [1, 40, -2, -1])
def test_a_line_that_a_crash_cut_off(kept: int, path: Path) -> None:
    """The next line begins anew; what was cut off is told, unless only the end of its line is missing."""
    write_lines(path, 1)
    head = path.with_name("audit.jsonl.head")
    before, size = head.read_bytes(), path.stat().st_size
    begin(
        AuditLog(path),
        "crashed",
        [(ask("put", "x", key="a"), of(put).snapshot()["put"])],
    )
    whole = path.read_bytes()
    path.write_bytes(whole[:size] + whole[size:][:kept])
    head.write_bytes(before)
    assert verify(path).is_intact is (kept == -1)
    write_lines(path, 1)
    write_lines(path, 1)
    found = verify(path)
    assert found.lines == 7
    assert found.problems == (
        () if kept == -1 else ("Line 3 cannot be read: it was cut off or altered.",)
    )


_WRITE = """
import sys, threading
import toolkit
from toolkit import ScriptedModel, ToolCall, ToolRegistry
tools = ToolRegistry()
tools.register_function("put", "Put it.", lambda text: text)
def run(name):
    count = iter(range(int(sys.argv[3])))
    def play(request):
        number = next(count, None)
        return "ok" if number is None else [ToolCall(f"{number}-{part}", "put", {"text": name}) for part in "ab"]
    model = ScriptedModel(play)
    toolkit.run_agent_with_tools("", model=model, tools=tools, audit=sys.argv[1], run_id=name, max_turns=1_000,
                                 limits=toolkit.Limits(repeats=1_000))
threads = [threading.Thread(target=run, args=(f"{sys.argv[2]}-{number}",)) for number in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.slow
def test_processes_and_threads_that_write_at_once(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    turns = 100
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-W",
                "error",
                "-c",
                _WRITE,
                str(path),
                str(number),
                str(turns),
            ],
            env=environment,
            stderr=subprocess.PIPE,
        )
        for number in range(2)
    ]
    for process in processes:
        assert process.communicate(timeout=100)[1] == b""
    found = verify(path)
    assert (found.problems, found.unfinished, found.lines) == (
        (),
        (),
        2 * 3 * turns * 2 * 2,
    )
    writers = [line["run_id"] for line in read(path)]
    assert len(set(writers)) == 6
    changes = sum(
        one.split("-")[0] != other.split("-")[0]
        for one, other in itertools.pairwise(writers)
    )
    assert changes > 10, (
        "the processes wrote one after the other, so that nothing is shown"
    )


@pytest.mark.parametrize("moved", ["both", "the folder"])
def test_a_file_that_is_moved_away_is_begun_anew(moved: str, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    path = folder / "audit.jsonl"
    audit = AuditLog(path)  # which is kept
    call, tool = ask("put", key="a"), of(put).snapshot()["put"]
    begin(audit, "r", [(call, tool)] * 3)
    old = tmp_path / "old"
    if moved == "the folder":
        folder.rename(old)
    else:
        old.mkdir()
        for name in ("audit.jsonl", "audit.jsonl.head"):
            (folder / name).rename(old / name)
    begin(audit, "r", [(call, tool)] * 2)
    assert (verify(old / "audit.jsonl").lines, verify(path).lines) == (3, 2)
    assert verify(old / "audit.jsonl").is_intact
    assert verify(path).is_intact


def test_a_head_that_is_moved_away_later_is_noticed(path: Path) -> None:
    """Between the two moves a line is refused; after them the new files belong together."""
    audit = AuditLog(path)
    calls = [(ask("put", key="a"), of(put).snapshot()["put"])]
    begin(audit, "r", calls)
    path.rename(path.with_name("old"))
    with pytest.raises(ValueError, match="does not end as"):
        begin(audit, "r", calls)
    path.with_name("audit.jsonl.head").rename(path.with_name("old.head"))
    begin(audit, "r", calls)
    assert verify(path).is_intact
    assert verify(path.with_name("old")).is_intact


@pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="open files cannot be counted here"
)
def test_an_audit_for_each_run_keeps_few_files_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(100):
        write_lines(tmp_path / f"{number}.jsonl", 1)
    assert len(os.listdir("/proc/self/fd")) - before < 80
    write_lines(tmp_path / "0.jsonl", 1)
    assert (
        verify(tmp_path / "0.jsonl").is_intact,
        verify(tmp_path / "0.jsonl").lines,
    ) == (True, 4)


def test_two_names_of_one_file_are_one_audit(path: Path) -> None:
    link = path.with_name("link.jsonl")
    try:
        link.symlink_to(path)
    except OSError:
        pytest.skip("no links here")
    write_lines(link, 1)
    write_lines(path, 1)
    assert (verify(link).is_intact, verify(link).lines) == (True, 4)
    assert not path.with_name("link.jsonl.head").exists()


def test_a_file_that_is_waited_for_holds_up_no_other(tmp_path: Path) -> None:
    """Neither another audit nor a rate that processes share."""
    went_on = threading.Event()

    def use_others() -> None:
        write_lines(tmp_path / "other.jsonl", 1)
        Rate(600, tmp_path / "rate").take()
        went_on.set()

    def use_blocked() -> None:
        write_lines(tmp_path / "blocked.jsonl", 1)

    waiting = threading.Thread(target=use_blocked, daemon=True)
    with locked_file(tmp_path / "blocked.jsonl.head"):
        waiting.start()
        threading.Thread(target=use_others, daemon=True).start()
        assert went_on.wait(30)
        assert waiting.is_alive()
    waiting.join(30)
    assert verify(tmp_path / "blocked.jsonl").lines == 2


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_goes_on_with_the_file(path: Path) -> None:
    audit = AuditLog(path)
    calls = [(ask("put", key="a"), of(put).snapshot()["put"])]
    begin(audit, "r", calls)
    holds, may_end = threading.Event(), threading.Event()

    def hold() -> None:
        with locked_file(path.with_name("audit.jsonl.head")):
            holds.set()
            may_end.wait(30)

    holding = threading.Thread(target=hold)
    holding.start()
    assert holds.wait(30)
    # The child has no thread that would free the file.
    child = os.fork()
    may_end.set()
    if not child:
        for _ in range(50):
            begin(audit, "child", calls)
        os._exit(0)
    for _ in range(50):
        begin(audit, "r", calls)
    holding.join(30)
    assert os.waitpid(child, 0)[1] == 0
    assert (verify(path).problems, verify(path).lines) == ((), 101)


# What is kept out


HIDDEN = [
    *(
        "password",
        "passwords",
        "Password",
        "userPassword",
        "dbpassword",
        "DB_PASSWORD",
        "new-password",
    ),
    *(
        "password2",
        "passphrase",
        "pwd",
        "secret",
        "clientSecret",
        "clientsecret",
        "secret_key",
        "SECRET",
    ),
    *(
        "token",
        "accessToken",
        "accesstoken",
        "refresh_token",
        "tokens",
        "tokenValue",
        "api_key",
        "apiKey",
    ),
    *(
        "APIKey",
        "x-api-key",
        "apikeys",
        "authorization",
        "Authorization",
        "credentials",
        "privateKey",
    ),
    *(
        "private_key_pem",
        "accessKeyId",
        "pin",
        "PINCode",
        "cardPin",
        "cvv",
        "CVC",
        "iban",
        "IBANs",
    ),
    *("card_number", "cardNumbers", "ssn", "otp", "cookie", "setCookie"),
]
SHOWN = [
    *(
        "tokenizer",
        "pinboard",
        "pinned",
        "spin",
        "opinion",
        "secretary",
        "passenger",
        "max_tokens",
    ),
    *(
        "maxTokens",
        "token_count",
        "tokenLimit",
        "token_type",
        "password_policy",
        "primary_key",
        "keyboard",
    ),
    *(
        "shipping",
        "author",
        "authority",
        "session_count",
        "class",
        "pinot",
        "compass",
        "passport_country",
        "ibanez",
    ),
    *("cvvx", "assn", "name", "secretariat"),
]


def redacted(audit: AuditLog, path: Path, arguments: dict[str, Any]) -> Any:
    begin(audit, "r", [(ToolCall("c", "put", arguments), of(put).snapshot()["put"])])
    return read(path)[-1]["arguments"]


@pytest.mark.parametrize("name", HIDDEN)
def test_secrets_are_redacted_by_the_name_of_their_field(name: str, path: Path) -> None:
    arguments = {
        name: "v4lue",
        "deep": [{name: {"a": "v4lue"}}],
        "more": {"deep": {name: ["v4lue"]}},
    }
    assert "v4lue" not in json.dumps(redacted(AuditLog(path), path, arguments)), name


@pytest.mark.parametrize("name", SHOWN)
def test_other_fields_stay(name: str, path: Path) -> None:
    value: Any = 7 if "okens" in name else "value"
    arguments = {name: value, "deep": [{name: {"a": value}}]}
    if isinstance(value, int):
        arguments = {name: value, "deep": [{name: value}]}
    assert redacted(AuditLog(path), path, arguments) == arguments


@pytest.mark.parametrize(
    "text",
    [
        "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefSECRET",
        "postgres://ada:SECRET@db/x",
        "sk-proj-0123456789SECRET",
        '{"password": "SECRET1"}',
        "-----BEGIN PRIVATE KEY-----\nSECRET\n-----END PRIVATE KEY-----",
        "Authorization: Basic U0VDUkVUSECRET",
        "https://ada:SECRET@example.com/",
    ],
)
def test_secrets_are_redacted_by_their_form(text: str, path: Path) -> None:
    assert "SECRET" not in json.dumps(
        redacted(AuditLog(path), path, {"note": f"see {text}", "more": [[text]]})
    )


@pytest.mark.parametrize(
    "name",
    ["auth", "pass", "key", "session", "sessionid", "jwt", "pw", "passwort", "JWT"],
)
def test_short_names_are_secrets_as_whole_names(name: str, path: Path) -> None:
    arguments = {name: "v4lue", f"sort_{name}_order": "x"}
    expected = {name: "[redacted]", f"sort_{name}_order": "x"}
    assert redacted(AuditLog(path), path, arguments) == expected


@pytest.mark.parametrize(
    "value",
    [
        {"name": "password", "value": "v4lue"},
        {"key": "apiKey", "value": {"a": "v4lue"}},
        {"header": "Authorization", "content": "v4lue"},
        [["Authorization", "v4lue"]],
        [["Accept", "text"], ["X-Api-Key", ["v4lue"]]],
        {"password=v4lue": 1},
        {"postgres://a:v4lue@h/x": 1},
    ],
    ids=str,
)
def test_secrets_are_redacted_beside_their_name_and_in_keys(
    value: Any, path: Path
) -> None:
    shown = redacted(AuditLog(path), path, {"data": value, "more": [value]})
    assert "v4lue" not in json.dumps(shown)


def test_what_is_named_beside_a_plain_value_stays(path: Path) -> None:
    arguments = {
        "fields": [{"name": "city", "value": "Oslo"}, {"key": "a", "value": 1}],
        "pairs": [["Accept", "text/html"], ["a", "b"]],
        "pair": {"name": "password"},
    }
    assert redacted(AuditLog(path), path, arguments) == arguments


def test_further_secrets_are_named_by_the_caller(path: Path) -> None:
    audit = AuditLog(
        path, secret_fields=("birthDate", "пароль"), secret_patterns=(r"\bK-\d+",)
    )
    arguments = {
        "birth_date": "1.1.",
        "пароль": "x",
        "имя": "Ада",
        "note": "by K-123 of",
        "birthplace": "here",
    }
    expected = {
        "birth_date": "[redacted]",
        "пароль": "[redacted]",
        "имя": "Ада",
        "note": "by [redacted] of",
    }
    assert redacted(audit, path, arguments) == {**expected, "birthplace": "here"}


def test_arguments_that_are_hard_to_write(path: Path, run: Runner) -> None:
    """A chain is made of what is read back: numbers without end, surrogates and depth must not break it."""
    deep: Any = "x"
    for _ in range(60):
        deep = [deep]
    calls = [
        ToolCall(
            "a",
            "take",
            raw='{"value": [-0.0, 1e16, 1e-7, 0.1, 123456789012345678901234567890]}',
        ),
        ToolCall("b", "take", raw='{"value": "\\ud800\\u2028\\u0000\\n"}'),
        ToolCall("c", "take", raw=json.dumps({"value": deep})),
        ToolCall("d", "take", raw='{"value": {"": 1, " ": null, "é": {"ü": []}}}'),
    ]

    def take(value: Any) -> str:
        """Take it."""
        return "taken"

    run("", model=ScriptedModel([calls, "ok"]), tools=of(take), audit=path)
    assert (verify(path).problems, verify(path).unfinished) == ((), ())
    assert len(read(path)) == 8


# Errors that know too much

SECRET = "hunter2SECRET"
TELLING = {
    "a password": f"login failed: password={SECRET} for user ada",
    "a connection": f"cannot connect to postgresql://ada:{SECRET}@db.internal:5432/orders",
    "a dsn": f"Server=db.internal;Database=orders;User Id=ada;Password={SECRET};",
    "a path": f"No such file: '/srv/app/{SECRET}/key.pem'",
    "a windows path": f"No such file: C:\\srv\\{SECRET}\\key.pem",
    "sql": f"[SQL: SELECT card FROM orders WHERE name = '{SECRET}']",
    "more sql": f"syntax error in INSERT INTO users VALUES ('{SECRET}')",
    "a token": f"401 for Authorization: Bearer {SECRET}",
    "a key": f"invalid api_key: sk-proj-1{SECRET}",
    "a url": f"GET https://ada:{SECRET}@example.com/ failed",
    "json": json.dumps({"error": "denied", "client_secret": SECRET}),
}


def foreign_module() -> Any:
    """A library, to a tool: its exceptions are raised deeper down."""
    spec = importlib.util.spec_from_loader("a_library", loader=None)
    assert spec
    module = importlib.util.module_from_spec(spec)
    exec("def fail(text, kind=RuntimeError):\n    raise kind(text)", module.__dict__)
    return module


@pytest.mark.parametrize(
    "place", ["own", "library", "chained", "group", "nested", "note"]
)
@pytest.mark.parametrize("kind", TELLING)
def test_an_exception_tells_no_secret(
    kind: str, place: str, run: Runner, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library, text = foreign_module(), TELLING[kind]

    def act() -> None:
        """Act."""
        if place == "own":
            raise RuntimeError(text)
        if place == "library":
            library.fail(text)
        if place == "chained":
            try:
                library.fail(text, ConnectionError)
            except ConnectionError as error:
                raise ValueError("It did not work.") from error
        if place == "group":
            group = getattr(__builtins__, "ExceptionGroup", None) or dict(
                __builtins__
            ).get("ExceptionGroup")  # type: ignore[call-overload]
            raise (
                group("several", [RuntimeError(text)]) if group else RuntimeError(text)
            )
        if place == "nested":
            raise RuntimeError("failed", {"why": [text]})
        error = RuntimeError("failed")
        error.__notes__ = [text]  # type: ignore[attr-defined]
        raise error

    events: list[Event] = []
    model = ScriptedModel([ask("act"), "ok"])
    with caplog.at_level(logging.INFO, logger="toolkit.audit"):
        result = run(
            "go", model=model, tools=of(act), audit=path, on_event=events.append
        )
    told = result.calls[0].content
    assert "The tool 'act' failed" in told
    assert "log reference act" in told
    shown = [
        told,
        repr(model.requests[-1].messages),
        *(event.to_json() for event in events),
        path.read_text(),
    ]
    shown += [record.getMessage() for record in caplog.records]
    for one in shown:
        assert SECRET not in one
        assert "db.internal" not in one
    if place in ("library",):
        assert told.split(" (")[0] == "The tool 'act' failed: RuntimeError"
    # All of it is in the local log, under the reference.
    assert any(record.exc_info and record.args[1] == "act" for record in caplog.records)  # type: ignore[index]
