"""Processes that die at any moment: what the store and the audit have kept, and that nothing is done twice.

The runs and their deaths are in mortal.py. The folder is in memory where there is one: a killed process loses nothing
that it has written, on whatever it was written.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mortal import EIGHT_TURNS
from toolkit import RunResult, ToolCall

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forks"),
]
ROOT = Path(__file__).parents[1]
CALLS = {
    call.id: call
    for turn in EIGHT_TURNS
    if not isinstance(turn, str)
    for call in ([turn] if isinstance(turn, ToolCall) else turn)
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


def start(*arguments: Any) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-W",
        "error",
        str(ROOT / "tests" / "mortal.py"),
        *map(str, arguments),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_all(*processes: subprocess.Popen[str]) -> list[dict[str, Any]]:
    """What each printed, line by line; each is read to its end before the next, which goes on meanwhile."""
    found = []
    for process in processes:
        out, complaints = process.communicate(timeout=110)
        assert (process.returncode, complaints) == (0, ""), complaints
        found += [json.loads(line) for line in out.splitlines()]
    return found


def check_whole(result: RunResult, diary: list[tuple[str, str]]) -> None:
    """Every call is answered once with its own result, and what has ended or changes something was not run again."""
    for asked, answer in zip(result.messages, result.messages[1:], strict=False):
        if asked.tool_calls:
            assert [call.id for call in asked.tool_calls] == [
                given.call_id for given in answer.tool_results
            ]
    times = Counter(diary)
    for call in result.calls:
        if call.id.endswith("6a"):  # the malformed one
            assert not any(key == call.id for _, key in diary)
            continue
        is_unknown = call.content.startswith("Outcome unknown")
        if is_unknown:
            assert call.name != "look", "a tool that only reads is run again"
            assert times["kept", call.id] == 0, "its result was there"
        else:
            assert call.content == f"done {call.id}"
            assert times["done", call.id] >= 1
        if call.name != "look":
            assert times["began", call.id] <= 1
        lines = [what for what, key in diary if key == call.id]
        assert (
            "began" not in lines[lines.index("kept") :] if "kept" in lines else True
        ), "it ran after it had ended"


@pytest.mark.parametrize("driver", ["sync", "async"])
def test_a_run_that_is_killed_anywhere_comes_to_the_same_end(
    driver: str, folder: Path
) -> None:
    # One driver at every event, the other, of which the store sees the same, at every fourth.
    numbers = [(1, 2, 3), (2, 2, 3)] if driver == "sync" else [(1, 8, 3), (5, 8, 3)]
    rows = read_all(*[start("everywhere", folder, driver, *each) for each in numbers])
    deaths = [row["lives"] for row in rows]
    assert sum(lives[0] == "killed" for lives in deaths) > (
        200 if driver == "sync" else 50
    )
    assert {lives[-1] for lives in deaths} == {"ended"}
    (whole, *_) = [
        RunResult.from_json(row["result"]) for row in rows if row["lives"] == ["ended"]
    ]
    seen = Counter[str]()
    for row in rows:
        result = RunResult.from_json(row["result"])
        diary = [(what, key) for what, key in row["diary"]]
        assert (row["statuses"], row["integrity"], row["audit"]) == (
            ["answered"],
            "ok",
            [],
        ), row["place"]
        assert str(result) == "the end"
        check_whole(result, diary)
        assert [message.tool_calls for message in result.messages] == [
            m.tool_calls for m in whole.messages
        ]
        unknown = {
            call.id
            for call in result.calls
            if call.content.startswith("Outcome unknown")
        }
        contents = [call.content for call in result.calls if call.id not in unknown]
        assert contents == [
            call.content for call in whole.calls if call.id not in unknown
        ]
        if row["lives"] == ["ended"]:
            assert not unknown
            assert not row["unfinished"]
        seen.update(unknown)
    # What changes something was hit while it was under way, each kind of it; else nothing is shown here.
    assert {CALLS[call_id].name for call_id in seen} == {
        "put",
        "put_in_line",
        "put_async",
        "pay",
    }


def test_many_runs_of_many_processes_that_are_killed_at_random(folder: Path) -> None:
    ((row),) = read_all(start("load", folder, 4, 50, 3))
    lives = Counter(row["lives"])
    assert lives.keys() == {"killed", "ended"}
    assert lives["killed"] >= 6, (
        "a worker may have come to its end before its death, but not many"
    )
    assert row["integrity"] == "ok"
    assert len(row["results"]) == 200
    diary = [(what, key) for what, key in row["diary"]]
    for run_id, text in row["results"].items():
        result = RunResult.from_json(text)
        assert (result.stop_reason, str(result)) == ("answered", "the end")
        check_whole(
            result, [(what, key) for what, key in diary if key.startswith(run_id + ":")]
        )
