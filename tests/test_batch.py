"""Batches: order, failures, progress, rates, other processes, and going on after a crash."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import batch_tools
from batch_tools import MODEL, TOOLS
from toolkit import Model, RunResult, ScriptedModel, ToolCall
from toolkit.batch import Rate, RunFailed, run_batch
from toolkit.store import SQLiteStore
from toolkit.tools.registry import REGISTRY, ToolRegistry, import_tools


def texts(results: list[Any]) -> list[str]:
    return [str(result) for result in results]


def test_results_come_in_the_order_of_the_prompts() -> None:
    prompts = [f"p{number}" for number in range(30)]
    assert texts(run_batch(prompts, model=MODEL, tools=TOOLS)) == [
        f"you said {prompt}" for prompt in prompts
    ]


def test_a_failed_run_stops_no_other() -> None:
    first, failed, last = run_batch(["a", "fail", "b"], model=MODEL, tools=TOOLS)
    assert (str(first), str(last)) == ("you said a", "you said b")
    assert isinstance(failed, RunFailed)
    assert str(failed) == "RuntimeError: the model is out"
    assert isinstance(failed.__cause__, RuntimeError)


def test_nothing_is_nothing() -> None:
    assert run_batch([], model=MODEL, tools=TOOLS) == []


def test_progress_counts_up() -> None:
    seen: list[tuple[int, int]] = []
    run_batch(
        ["a", "b", "fail"],
        model=MODEL,
        tools=TOOLS,
        on_progress=lambda *counts: seen.append(counts),
    )
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_concurrency_is_bounded(concurrency: int) -> None:
    lock, now, most = threading.Lock(), 0, 0

    def answer(request: Any) -> str:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1
        return "done"

    run_batch(
        list("abcdefgh"), model=ScriptedModel(answer), tools=(), concurrency=concurrency
    )
    assert most == concurrency


def test_tools_that_can_be_read_once_are_there_for_all_runs(tmp_path: Path) -> None:
    prompts = [f"append {tmp_path / 'lines'} {line} 0" for line in "ab"]
    given = (function for function in [batch_tools.append])
    assert texts(run_batch(prompts, model=MODEL, tools=given)) == [
        "appended a",
        "appended b",
    ]


def test_a_file_of_tools_is_run_once(tmp_path: Path) -> None:
    (tmp_path / "counting_tools.py").write_text(
        "from pathlib import Path\nfrom toolkit.tools.registry import ToolRegistry\nR = ToolRegistry()\n"
        "with Path(__file__).with_name('runs').open('a') as file:\n    file.write('x')\n"
        "def look() -> str:\n    return 'seen'\nR.register_tool(look)\n"
    )
    model = ScriptedModel(
        lambda asked: (
            "done" if asked.messages[-1].tool_results else ToolCall("", "look", {})
        )
    )
    for _ in range(2):
        for result in run_batch(
            list("ab"), model=model, tools=str(tmp_path / "counting_tools.py")
        ):
            assert [call.content for call in result.calls] == ["seen"]
    assert (tmp_path / "runs").read_text() == "x"


def test_a_batch_in_a_tool_belongs_to_its_call(run: Any) -> None:
    """Context variables go along: the private event loop, on which the outer tool runs, is not waited for in it."""
    told: list[Any] = []

    async def inner() -> str:
        return "from within"

    async def outer() -> str:
        asked = ScriptedModel(
            lambda asked: (
                "done" if asked.messages[-1].tool_results else ToolCall("", "inner", {})
            )
        )
        results = run_batch(
            ["a", "b"], model=asked, tools=[inner], on_event=told.append
        )
        return " ".join(result.calls[0].content for result in results)

    call = ToolCall("outside", "outer", {})
    result = run("q", model=ScriptedModel([call, "done"]), tools=ToolRegistry([outer]))
    assert result.calls[0].content == "from within from within"
    assert [
        event.data["parent_call_id"] for event in told if event.name == "run_start"
    ] == ["outside"] * 2


WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a store without an id": ({"store": object()}, ValueError, "go together"),
    "an id without a store": ({"batch_id": "b"}, ValueError, "go together"),
    "a rate that is a number": ({"rate": 3}, TypeError, "rate must be a Rate"),
    "no concurrency": ({"concurrency": 0}, ValueError, "lets nothing run"),
    "a part of one": ({"concurrency": 2.5}, ValueError, "a whole number"),
    "no executor": (
        {"executor": "threads"},
        TypeError,
        "executor must be a concurrent.futures.Executor, not 'threads'",
    ),
    "a text for a list": (
        {"prompts": "abc"},
        TypeError,
        "prompts must be a list of texts",
    ),
    "what is no text": (
        {"prompts": ["a", 5]},
        TypeError,
        "prompts must be a list of texts",
    ),
    "an id for all runs": ({"run_id": "r"}, TypeError, "belongs to one run"),
    "a parameter misspelt": ({"max_turn": 3}, TypeError, "Did you mean 'max_turns'"),
    "no tools": ({"tools": 5}, TypeError, "a list of tools"),
}


@pytest.mark.parametrize(("options", "kind", "told"), WRONG.values(), ids=WRONG)
def test_what_cannot_work_is_refused_at_once(
    options: dict[str, Any], kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        run_batch(**{"prompts": ["a"], "model": MODEL, "tools": TOOLS, **options})


def test_one_text_is_no_list_of_prompts() -> None:
    with pytest.raises(TypeError, match="Give one text alone"):
        run_batch("hello", model=MODEL, tools=TOOLS)


def test_an_interrupted_batch_keeps_what_it_has() -> None:
    def stop(done: int, of: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        run_batch(
            ["a", "b", "c"], model=MODEL, tools=TOOLS, concurrency=1, on_progress=stop
        )
    assert texts(caught.value.results) == ["you said a", "you said b", "None"]  # type: ignore[attr-defined]


def test_a_batch_of_a_store_is_done_once(tmp_path: Path) -> None:
    lines, store = tmp_path / "lines", SQLiteStore(tmp_path / "runs.db")
    prompts = [f"append {lines} {number} 0" for number in range(5)]
    options: dict[str, Any] = {
        "model": MODEL,
        "tools": TOOLS,
        "store": store,
        "batch_id": "b",
    }
    first = run_batch([*prompts, "fail"], **options)
    again = run_batch([*prompts, "fail"], **options)
    assert texts(first) == texts(again)
    assert sorted(lines.read_text().split()) == ["0", "1", "2", "3", "4"]

    other = run_batch(["another prompt"], **options)
    assert "another batch_id" in str(other[0])


def test_requests_of_all_runs_keep_one_rate(tmp_path: Path) -> None:
    for rate in (Rate(600), Rate(600, tmp_path / "rate")):
        waits = [rate.take() for _ in range(5)]
        assert waits == sorted(waits)
        assert waits[0] == 0
        assert 0.1 < waits[-1] <= 0.4  # later calls wait for less, on a slow machine
        assert pickle.loads(pickle.dumps(rate)).path == rate.path
    times: list[float] = []
    rate = Rate(3000)
    run_batch(
        list("abcd"),
        model=ScriptedModel(lambda request: times.append(time.time()) or "x"),
        tools=(),
        rate=rate,
    )
    assert max(times) - min(times) >= 0.05
    with pytest.raises(ValueError, match="lets nothing through"):
        Rate(0)


@pytest.fixture(
    scope="module",
    params=["threads", pytest.param("processes", marks=pytest.mark.slow)],
)
def executor(request: pytest.FixtureRequest) -> Any:
    made: Executor
    if request.param == "threads":
        made = ThreadPoolExecutor(2)
    else:
        made = ProcessPoolExecutor(
            2, mp_context=multiprocessing.get_context("forkserver")
        )
    with made:
        yield made


def test_any_executor_will_do(executor: Executor, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    prompts = ["a", f"append {lines} x 0", "fail"]
    first, second, third = run_batch(
        prompts, model=MODEL, tools=TOOLS, executor=executor
    )
    assert texts([first, second, third]) == [
        "you said a",
        "appended x",
        "RuntimeError: the model is out",
    ]
    assert isinstance(second, RunResult)
    assert second.calls[0].name == "append"
    assert isinstance(third, RunFailed)
    assert lines.read_text() == "x\n"


def test_an_output_keeps_its_type(executor: Executor, tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "model": batch_tools.COUNTING,
        "tools": (),
        "output_type": int,
        "executor": executor,
    }
    assert [result.output for result in run_batch(["one", "three"], **asked)] == [3, 5]
    kept: dict[str, Any] = {"store": SQLiteStore(tmp_path / "runs.db"), "batch_id": "b"}
    assert [
        result.output
        for _ in range(2)
        for result in run_batch(["four"], **asked, **kept)
    ] == [4, 4]


def test_tools_are_found_by_reference(executor: Executor, tmp_path: Path) -> None:
    prompts = [f"append {tmp_path / 'lines'} x 0"]
    for reference in ("batch_tools", "batch_tools:TOOLS", "batch_tools:append"):
        assert texts(
            run_batch(prompts, model=MODEL, tools=reference, executor=executor)
        ) == ["appended x"]


REFERENCES = {
    "no such module": ("no_such_module", ImportError, "no module 'no_such_module'"),
    "no such name": ("batch_tools:nothing", ImportError, "no 'nothing'"),
    "no such file": ("no_such_file.py", ImportError, "no file 'no_such_file.py'"),
    "nothing": ("", ImportError, "no module ''"),
    "a module beside this one": (".tools", ImportError, "no module '.tools'"),
    "a module without tools": ("json", TypeError, "contains no tools"),
    "no tool": ("batch_tools:os", TypeError, "not a tool"),
}


@pytest.mark.parametrize(
    ("reference", "kind", "told"), REFERENCES.values(), ids=REFERENCES
)
def test_a_reference_to_nothing_is_told(
    reference: str, kind: type[Exception], told: str
) -> None:
    with pytest.raises(kind, match=told):
        import_tools(reference)


def test_a_module_that_misses_another_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no_such_thing_tools.py").write_text("import no_such_thing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="No module named 'no_such_thing'"):
        import_tools("no_such_thing_tools")


def test_a_file_named_as_a_module_is_another_one(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("def look() -> str:\n    return 'seen'\n")
    for _ in range(2):
        assert (
            import_tools(f"{tmp_path / 'json.py'}:look").call("look", "{}").content
            == "seen"
        )
    assert pickle.loads(pickle.dumps({"a": json.dumps}))["a"] is json.dumps


def test_a_file_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "failing_tools.py").write_text("raise ValueError('at its import')\n")
    for _ in range(2):
        with pytest.raises(
            ImportError,
            match=r"failed while it was imported: ValueError: at its import\. Run it",
        ):
            import_tools(str(tmp_path / "failing_tools.py"))


def test_a_file_is_a_reference_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(REGISTRY)
    (tmp_path / "my_own_tools.py").write_text(
        "from toolkit import tool\nfrom toolkit.tools.registry import ToolRegistry\nR = ToolRegistry()\n\n"
        '@tool(registry=R)\ndef look() -> str:\n    """Look."""\n    return "seen"\n'
    )
    found = import_tools(str(tmp_path / "my_own_tools.py"))
    assert [tool.name for tool in found] == ["look"]
    assert found.call("look", "{}").content == "seen"
    monkeypatch.chdir(tmp_path)
    for reference in (
        "my_own_tools.py",
        "./my_own_tools.py",
        f"../{tmp_path.name}/my_own_tools.py:R",
    ):
        assert [tool.name for tool in import_tools(reference)] == ["look"]
    assert len(REGISTRY) == before


def test_what_a_batch_needs_can_be_pickled(tmp_path: Path) -> None:
    registry = pickle.loads(pickle.dumps(TOOLS))
    assert (
        registry.call("append", {"path": str(tmp_path / "x"), "line": "y"}).content
        == "appended y"
    )
    again = pickle.loads(
        pickle.dumps(
            Model("m", wire="responses", base_url="http://127.0.0.1:1/v1", api_key="k")
        )
    )
    assert (again.name, again.dialect.DIALECT) == ("m", "responses")
    with pytest.raises(TypeError, match="has a client"):
        pickle.dumps(Model("m", client=object()))
    result = run_batch(
        [f"append {tmp_path / 'x'} z 0"],
        model=MODEL,
        tools=ToolRegistry([batch_tools.append]),
    )[0]
    assert pickle.loads(pickle.dumps(result)) == result
    store = pickle.loads(pickle.dumps(SQLiteStore(tmp_path / "runs.db", durable=True)))
    assert store.runs() == []


@pytest.mark.slow
def test_a_cluster_goes_on_where_a_worker_was_killed(tmp_path: Path) -> None:
    """200 runs on two worker processes with one store; one of them is killed by a tool amid its run."""
    distributed = pytest.importorskip("distributed")
    lines, store = tmp_path / "lines", SQLiteStore(tmp_path / "runs.db")
    prompts = [f"append {lines} {number} 0" for number in range(200)]
    prompts[60] = f"die {tmp_path / 'died'}"
    options = {
        "n_workers": 2,
        "threads_per_worker": 2,
        "processes": True,
        "dashboard_address": None,
    }
    with (
        distributed.LocalCluster(host="127.0.0.1", **options) as cluster,
        distributed.Client(cluster) as client,
    ):
        results = run_batch(
            prompts,
            model=MODEL,
            tools=TOOLS,
            store=store,
            batch_id="b",
            executor=client.get_executor(pure=False),
        )
    expected = [f"appended {number}" for number in range(200)]
    for at, result in enumerate(results):
        assert isinstance(result, RunResult), str(result)
        assert str(result) == expected[at] or "Outcome unknown" in str(result)
    assert "Outcome unknown" in str(results[60])
    written = lines.read_text().split()
    assert len(written) == len(set(written)), "a tool that writes ran twice"
    assert sum("Outcome unknown" in str(result) for result in results) <= 4, (
        "at most what was under way"
    )
