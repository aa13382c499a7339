"""The examples, really run, and what they print."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server import ChatServer, answer, call

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"


def run_example(name: str, *arguments: str) -> str:
    """What the example prints in a process of its own, where a warning is an error."""
    command = [sys.executable, "-W", "error", "-X", "utf8", EXAMPLES / name, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environment, capture_output=True, encoding="utf-8", timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cities", "facts"),
    [
        pytest.param(
            (),
            [
                "'here': 27.0, 'there': 4.0",
                "'difference': -23.0",
                "wear a warm coat and boots.",
            ],
            id="cold",
        ),
        pytest.param(
            ("London", "Cairo"),
            ["'here': 16.0, 'there': 35.0", "19 degrees warmer", "sunglasses."],
            id="warm",
        ),
    ],
)
def test_what_to_wear(cities: tuple[str, ...], facts: list[str]) -> None:
    printed = run_example("what_to_wear.py", *cities)
    names = ["get_weather", "get_weather", "compare_temperatures", "suggest_clothes"]
    assert re.findall(r"^(\w+)\(", printed, re.MULTILINE) == names
    assert [fact for fact in facts if fact not in printed] == []


@pytest.mark.slow
def test_what_to_wear_on_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [call("get_weather", {"city": city}, id=city) for city in ("Lisbon", "Oslo")]
    with ChatServer(answer(None, *both), "Take a coat.") as server:
        monkeypatch.setenv("TOOLKIT_MODEL", "some-model")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "some-key")
        printed = run_example("what_to_wear.py")
    assert printed.endswith("Take a coat.\n")
    results = {
        m["tool_call_id"]: json.loads(m["content"])["celsius"]
        for m in server.bodies[1]["messages"][-2:]
    }
    assert results == {"Lisbon": 27, "Oslo": 4}


@pytest.mark.slow
def test_existing_functions() -> None:
    printed = run_example("existing_functions.py")
    for fact in (
        "convert_temperature -> 37.777",
        "split_without_tip -> 28.0",
        "median -> 3\n",
        "as ever: 212.0",
    ):
        assert fact in printed
    assert "import toolkit" not in (EXAMPLES / "units.py").read_text(encoding="utf-8")


@pytest.mark.slow
def test_class_tools() -> None:
    printed = run_example("class_tools.py")
    assert "expected 'bicycle' or 'van'; got \"drone\"" in printed
    assert printed.endswith(
        "the objects: Cart(items={'apple': 3, 'bread': 1}) bicycle\n"
    )


@pytest.mark.slow
def test_database() -> None:
    printed = run_example("database.py")
    assert (
        'list_orders({}) -> [{"number":1,"article":"kettle","state":"sent"}' in printed
    )
    assert "piano" not in printed, "it belongs to another customer"
    assert "cancel_order({'number': 2}) -> order 2 is cancelled" in printed
    assert "cancel_order({'number': 3}) -> The customer has no open order 3." in printed
    assert "with ['list_orders']: Your lamp is cancelled" in printed


@pytest.mark.slow
def test_shell_without_a_shell() -> None:
    printed = run_example("shell_without_a_shell.py")
    assert (
        len(re.findall(r"arguments\.1: String should match pattern .*; got", printed))
        == 2
    )
    assert (
        "{'program': 'wc', 'arguments': ['-l', 'notes.txt']} -> 3 notes.txt" in printed
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="where all of it holds")
def test_python_sandbox() -> None:
    printed = run_example("python_sandbox.py")
    assert "\n233168\n" in printed
    assert "keys in sight: False" in printed
    assert "The tool 'run_python' ran longer than 5 seconds and was ended." in printed
    if printed.startswith("behind bubblewrap"):
        assert "this script in sight: False" in printed
        assert re.search(r"no network|interfaces: \['lo'\]", printed)


@pytest.mark.slow
def test_correcting_itself() -> None:
    printed = run_example("correcting_itself.py")
    assert re.findall(r"^(error|result|answer) ", printed, re.MULTILINE) == [
        "error",
        "error",
        "result",
        "answer",
    ]
    assert (
        'day: expected a valid date or datetime, input is too short; got "June 31st"'
        in printed
    )
    assert "2003-06-30 is over. Today is 2030-06-01." in printed
    assert "booked: Sunday, 30 June 2030, 4 people" in printed


@pytest.mark.slow
def test_conversation() -> None:
    printed = run_example("conversation.py")
    counts = [(5, 1), (7, 0), (9, 0)]
    assert [
        (int(m), int(c))
        for m, c in re.findall(r"messages: (\d+), new calls: (\d+)", printed)
    ] == counts
    assert "TK 34, at 15:05." in printed


@pytest.mark.slow
def test_agent_as_tool() -> None:
    printed = run_example("agent_as_tool.py")
    assert (
        "research({'question': 'What is special about the Kakapo?'}) -> It lives up to 90 years."
        in printed
    )
    assert printed.endswith(
        "Two parrots of New Zealand. It is the only alpine parrot. It lives up to 90 years.\n"
    )
    assert "read_page" not in printed, "what the inner agent did is its own affair"


@pytest.mark.slow
def test_many_tools() -> None:
    printed = run_example("many_tools.py")
    assert "Cancel my last order\n    list_orders, cancel_order\n" in printed
    assert "Hello!\n    no tools\n" in printed
    assert "And of June?\n    print_coupon, archive_coupon, rename_coupon\n" in printed
    assert "find_customer, list_orders, cancel_order, find_tools\n" in printed
    assert re.findall(r"rate=([\d.]{3})", printed) == ["0.8", "1.0"]


@pytest.mark.slow
def test_evaluate_tools(tmp_path: Path) -> None:
    printed = run_example("evaluate_tools.py", str(tmp_path / "report.html"))
    before, after, compared = printed.split("---")
    assert "pass rate         100.0% [75.8%, 100.0%] of 12" in before
    assert "get_forecast → (no call)  15 ×" in after
    assert "REGRESSION in get_forecast" in compared
    assert printed.endswith("exit code 1\n")
    assert "get_forecast(city=&#x27;Lima&#x27;)" in (
        tmp_path / "report.html"
    ).read_text(encoding="utf-8")


@pytest.mark.slow
def test_check_tools() -> None:
    printed = run_example("check_tools.py")
    found = re.findall(r"^(\w+) (\S+): .*\[(\S+)\]$", printed, re.MULTILINE)
    assert ("error", "delete_report", "destructive-read") in found
    assert ("error", "find_reports.autor", "parameter-unknown") in found
    assert ("warning", "delete_report.number", "parameter-undescribed") not in found, (
        "it is ignored"
    )
    assert "2 errors" in printed
    assert re.search(
        r"^about \d+ tokens in each request, 0\.0001\d\d USD \(estimated",
        printed,
        re.MULTILINE,
    )
    assert "within the budget" in printed
    assert '"input_schema"' in printed


@pytest.mark.slow
def test_mcp_tools() -> None:
    pytest.importorskip("mcp", reason="needs the extra `mcp`")
    printed = run_example("mcp_tools.py")
    assert "['library_count_copies (write)']" in printed
    assert (
        'library_count_copies({\'title\': \'Solaris\'}) -> {"title":"Solaris","copies":0}'
        in printed
    )
    assert (
        "error: There is no 'Dispossessed'. There are: The Dispossessed, Solaris."
        in printed
    )
    assert (
        "lend_book({'title': 'The Dispossessed', 'reader': 'Shevek'}) -> The Dispossessed is lent"
        in printed
    )
    assert printed.endswith("so I lent The Dispossessed to Shevek.\n")


@pytest.mark.slow
def test_tracing() -> None:
    pytest.importorskip("opentelemetry.sdk", reason="makes the spans")
    lines = run_example("tracing.py").splitlines()
    before, calls, after = lines[:3], lines[3:-2], lines[-2:]
    assert [line.split(" usage")[0] for line in before] == [
        "GET /directions",
        "    invoke_agent",
        "        chat scripted",
    ]
    assert (
        '        execute_tool find_street tool.call.id=c1 tool.call.arguments={"place": "Station"}'
        in calls
    )
    failed = (
        "        execute_tool find_street tool.call.id=c2 "
        'tool.call.arguments={"place": "Atlantis"} error.type=failed'
    )
    assert calls[calls.index(failed) + 1] == "            query"
    guide = next(
        number for number, line in enumerate(calls) if "execute_tool ask_guide" in line
    )
    assert calls[guide + 1] == "            invoke_agent"
    assert (
        after[0]
        == "        chat scripted usage.input_tokens=300 usage.output_tokens=14"
    )


@pytest.mark.slow
def test_approvals() -> None:
    rules, person, plan = run_example("approvals.py").split("---")[1:]
    assert (
        "Ada: Ada has 9 euros\nBob: Not run: the policy denied this call (Never more than 1000.).\n"
        in rules
    )
    assert "Paused: 1 call(s) wait for approval: pay (Eve)." in person
    assert person.endswith("Eve has 300 euros\n")
    assert (
        "paid so far: [('Ada', 9), ('Eve', 300)]\nAnn has 1 euros\nTom has 2 euros\n"
        in plan
    )


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform == "win32",
    reason="a file of a dead process may be held there for a while",
)
def test_crash_and_resume() -> None:
    first, second = run_example("crash_and_resume.py").split(
        "the first process is dead (exit code 9)\n"
    )
    assert re.findall(r"book_transfer to (\w+) runs in the (\w+)", first) == [
        ("Ada", "first"),
        ("Bob", "first"),
    ]
    assert re.findall(r"(\w+) runs in the", first) == ["find_account", "Ada", "Bob"]
    assert re.findall(r"(\w+) runs in the", second) == ["Eve"], (
        "what had ended or begun is not run again"
    )
    assert (
        "3 lines: intact.\nLine 3: call c3 of book_transfer began; how it ended is not recorded."
        in second
    )
    assert "Ada has 9 euros | Outcome unknown: " in second
    assert 'All three were booked once: ["Ada 9","Bob 9","Eve 9"]' in second
    assert re.findall(r"\('pay-day', '(\w+)'\)", second) == ["running", "answered"]


@pytest.mark.slow
def test_batch() -> None:
    lines = run_example("batch.py").splitlines()
    assert [line.split("? ")[1].strip() for line in lines[:4]] == [
        *(
            "tea: 3",
            "FAILED ConnectionError: the model is away",
            "marmalade: 9",
            "toast: 5",
        )
    ]
    assert lines[7] == "again: 4 of 4"
    assert lines[8] == "asked anew: ['How many letters are in the word nothing?']"


@pytest.mark.slow
def test_watching_a_run(tmp_path: Path) -> None:
    live, tree = run_example("watching_a_run.py", str(tmp_path / "run.html")).split(
        "---\n"
    )
    assert live.index("… book_seat(") < live.index("✓ book_seat")
    assert [line[0] for line in tree.splitlines()] == [*"I├││├││└", "a"]
    assert '│  ✗ get_weather({"city":"Bergn"}) → There is no city \'Bergn\'.' in tree
    assert "answered · 3 turns · 4 calls, 1 failed · 1272 tokens · " in tree
    index = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert without_times(tree) in without_times(index.replace("\n  ", "\n"))
    assert "There is no city &#x27;Bergn&#x27;" in (tmp_path / "run.html").read_text(
        encoding="utf-8"
    )


@pytest.mark.slow
def test_models() -> None:
    native, plain, away = run_example("models.py").split("---")[1:]
    assert (
        native.count("{'model': 'native', 'temperature': 0, 'seed': 7} with tools\n")
        == 2
    )
    assert re.findall(r"'plain'} (\w+) tools", plain) == ["with", "without", "without"]
    assert "Take boots. ['snow in Oslo']\n" in plain
    assert "503: The model's server answered 503" in away
    assert away.endswith("'temperature': 0} with tools\nTake boots.\n")


def without_times(text: str) -> str:
    return re.sub(r"[\d.]+ m?s\b", "… s", text)


@pytest.mark.slow
def test_web_service() -> None:
    pytest.importorskip("starlette", reason="is the service")
    pytest.importorskip("uvicorn", reason="serves it")
    printed = run_example("web_service.py")
    assert (
        "three at once: ['lamp: 20 euros', 'chair: 20 euros', 'table: 20 euros']"
        in printed
    )
    assert (
        "to be approved (202): order({'article': 'lamp'})\napproved (200): lamp is ordered for Ada\n"
        in printed
    )
    assert re.search(r"approved again \(409\): No call \['\w+'\] waits", printed)
    assert "the client has gone: the run is cancelled\n" in printed
    assert printed.endswith(
        "in the store: ['answered', 'answered', 'answered', 'answered', 'stopped']\n"
    )


@pytest.mark.slow
def test_coming_from() -> None:
    printed = run_example("coming_from.py")
    assert "You have ordered a lamp." in printed
    assert "The money is on its way.\n['You are the billing desk.']\n" in printed
    assert (
        "    tool_exec_result\n    run_end\nTicket(subject='broken lamp', urgent=True)\n"
        in printed
    )


@pytest.mark.local
def test_quickstart() -> None:
    from toolkit.local import is_installed

    if not is_installed():
        pytest.skip("the embedded model is not installed")
    printed = run_example("quickstart.py")
    assert "call    get_weather(city='Tokyo'" in printed
    assert "result  It is raining in Tokyo, at 18 degrees Celsius." in printed
    assert printed.split("answer  ")[1].strip()


def test_the_index_names_every_example() -> None:
    listed = re.findall(
        r"\]\((.+?)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8")
    )
    files = [
        path.name
        for path in EXAMPLES.iterdir()
        if path.suffix in (".py", ".ipynb", ".png")
    ]
    folders = [f"{path.parent.name}/" for path in EXAMPLES.glob("*/__main__.py")]
    assert sorted(listed) == sorted(files + folders)


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name
)
def test_an_example_says_first_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith('"""')
    assert (
        path.stem == "units" or f"python examples/{path.name}" in text.split('"""')[1]
    )


# The notebook

NOTEBOOK = EXAMPLES / "notebook.ipynb"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """The notebook as it stands, and one that was run, with its kernel still there."""
    nbclient = pytest.importorskip("nbclient", reason="runs the notebook in a kernel")
    pytest.importorskip("ipykernel", reason="is the kernel")
    import nbformat

    stored = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        nbformat.read(NOTEBOOK, as_version=4), timeout=60, kernel_name="python3"
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in (
            "IPYTHONDIR",
            "JUPYTER_RUNTIME_DIR",
            "JUPYTER_CONFIG_DIR",
        ):  # nothing of the user's own
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        patch.setenv("PYTHONPATH", str(ROOT))
        with client.setup_kernel():
            for position, cell in enumerate(client.nb.cells):
                client.execute_cell(cell, position)
            yield stored, client


def shown(cell: Any) -> list[str]:
    return [
        output.get("text") or output["data"]["text/plain"]
        for output in cell.get("outputs", ())
    ]


@pytest.mark.slow
def test_the_notebook_shows_what_it_does(notebook: tuple[Any, Any]) -> None:
    """Where it changed on purpose: `jupyter execute --inplace examples/notebook.ipynb`."""
    stored, client = notebook
    assert [shown(cell) for cell in client.nb.cells] == [
        shown(cell) for cell in stored.cells
    ]
    assert (
        sum(
            "await " in cell.source for cell in stored.cells if cell.cell_type == "code"
        )
        == 1
    )


@pytest.mark.slow
def test_a_cell_is_run_twice(notebook: tuple[Any, Any]) -> None:
    stored, client = notebook
    define, use = (
        next(
            n
            for n, cell in enumerate(stored.cells)
            if cell.cell_type == "code" and word in cell.source
        )
        for word in ("def get_weather(city: str) ->", "= run_agent_with_tools")
    )
    for position in (
        define,
        define,
        use,
    ):  # also: back to what it was before the redefinition
        client.execute_cell(client.nb.cells[position], position)
    assert shown(client.nb.cells[use]) == shown(stored.cells[use])
    assert "umbrella" in shown(stored.cells[use])[0]
