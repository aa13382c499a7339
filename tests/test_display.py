"""What people see of runs and registries."""

from __future__ import annotations

import io
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from toolkit import (
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolError,
    ToolRegistry,
    Verdict,
    run_agent_with_tools,
)
from toolkit.display import live
from toolkit.events import without_content

HOSTILE = "<script>alert('1')</script>"


def echo(text: str, times: int = 1) -> str:
    """Say it again.

    Further on, in detail.
    """
    return text * times


class Cells(HTMLParser):
    """The texts of the table cells, and every tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data


def run() -> RunResult:
    model = ScriptedModel(
        [ToolCall("c1", "echo", {"text": HOSTILE}), f"It says {HOSTILE}."]
    )
    return run_agent_with_tools("q", tools=[echo], model=model)


def test_a_registry_is_a_table() -> None:
    registry = ToolRegistry([echo])
    assert str(registry) == "echo  write  text, times?  Say it again."
    assert Cells(registry._repr_html_()).cells[4:] == [
        "echo",
        "write",
        "text, times?",
        "Say it again.",
    ]
    assert repr(registry) == "ToolRegistry(echo)"
    assert str(ToolRegistry()) == "ToolRegistry(no tools)"


def test_a_result_shows_its_calls_and_runs_no_script() -> None:
    page = Parts(run()._repr_html_())
    assert "script" not in page.tags
    assert page.texts["name"] == ["  turn 1", "✓ echo", "  turn 2"]
    assert page.texts["dd"] == [
        f'{{"text":"{HOSTILE}","times":1}}',
        HOSTILE,
        f"It says {HOSTILE}.",
    ]


class Parts(HTMLParser):
    """The texts by the class or the tag of what they stand in, all tags, and all that a browser would fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {"": [""]}
        self.inside = ""
        self.tags: set[str] = set()
        self.fetched: list[str] = []
        self.widths: list[tuple[float, float]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        self.inside = given.get("class") or tag
        self.texts.setdefault(self.inside, []).append("")
        self.fetched += [str(given[name]) for name in ("src", "href") if name in given]
        if tag == "i":
            left, width = re.findall(r"[0-9.]+", given["style"] or "")
            self.widths.append((float(left), float(width)))

    def handle_data(self, data: str) -> None:
        self.texts[self.inside][-1] += data


def test_calls_stand_side_by_side_in_real_time() -> None:
    def nap(seconds: float) -> str:
        time.sleep(seconds)
        return "awake"

    calls = [
        ToolCall("a", "nap", {"seconds": 0.1}),
        ToolCall("b", "nap", {"seconds": 0.2}),
    ]
    result = run_agent_with_tools(
        "q", tools=[nap], model=ScriptedModel([calls, "done"])
    )
    _, (left_a, width_a), (left_b, width_b), (left_end, _) = Parts(
        result._repr_html_()
    ).widths
    assert abs(left_a - left_b) < 10
    assert width_a < 0.8 * width_b
    assert left_end >= left_b + width_b - 1


def test_a_page_of_a_result_loads_nothing(tmp_path: Path) -> None:
    run().save_html(tmp_path / "run.html")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert Parts(page).fetched == []
    assert "url(" not in page
    assert "@import" not in page
    assert "script" not in Parts(page).tags


OUTCOMES: dict[str, tuple[list[Any], dict[str, Any], str]] = {
    "done": (["echo"], {}, "✓ echo"),
    "failed": (["fail"], {}, "✗ fail"),
    "denied": (["pay"], {"approve": lambda call: Verdict("deny", by="anna")}, "⊘ pay"),
    "waits": (["pay"], {}, "? pay"),
    "planned": (["pay"], {"mode": "plan"}, "◇ pay"),
}


@pytest.mark.parametrize(("names", "options", "line"), OUTCOMES.values(), ids=OUTCOMES)
def test_what_came_of_a_call_is_seen_at_a_glance(
    names: list[str], options: dict[str, Any], line: str
) -> None:
    def fail(text: str) -> str:
        raise ToolError("no such thing")

    registry = ToolRegistry([echo, fail])
    registry.register_tool(echo, name="pay", permission="sensitive")
    model = ScriptedModel(
        [[ToolCall("c", name, {"text": "t"}) for name in names], "done"]
    )
    result = run_agent_with_tools("q", tools=registry, model=model, **options)
    assert line in Parts(result._repr_html_()).texts["name"]
    assert f"  {line}(" in result.tree().replace("│", " ")


def test_a_tree_lets_no_control_character_through() -> None:
    model = ScriptedModel(
        [ToolCall("c1", "echo", {"text": "\x1b[2J\u202e\n"}), "a\x1b]0;title\x07b"]
    )
    tree = run_agent_with_tools("q\x1b[31m", tools=[echo], model=model).tree()
    assert all(
        character.isprintable() for line in tree.split("\n") for character in line
    )
    assert tree.startswith("q [31m\n├─ turn 1")
    assert "answered · 2 turns · 1 calls · 0 tokens" in tree


def test_a_run_is_seen_while_it_goes_on() -> None:
    stream = io.StringIO()
    seen: list[int] = []

    def ask(text: str) -> str:
        seen.append(len(stream.getvalue().splitlines()))
        inner = ScriptedModel([ToolCall("i", "echo", {"text": text}), "inner"])
        return str(run_agent_with_tools("q", tools=[echo], model=inner, on_event=sink))

    sink = live(stream)
    model = ScriptedModel([ToolCall("c", "ask", {"text": "hi"}), "done"])
    run_agent_with_tools("q", tools=[ask], model=model, on_event=sink)
    lines = [
        re.sub(r"[0-9a-f]{8}|[0-9]+ ms", "…", line)
        for line in stream.getvalue().splitlines()
    ]
    assert seen == [3], "what is under way is told before it has ended"
    assert lines[0] == "run … · scripted · 1 tools"
    assert '  … ask({"text":"hi"})' in lines
    assert '      … echo({"text":"hi"})' in lines, "a run inside a tool stands under it"
    assert lines[-1] == "answered · …"


def test_what_was_taken_out_of_events_is_not_missed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = io.StringIO()
    model = ScriptedModel([ToolCall("c", "echo", {"text": "secret"}), "done"])
    run_agent_with_tools(
        "q", tools=[echo], model=model, on_event=without_content(live(stream))
    )
    assert not caplog.records
    assert "  … echo(…)" in stream.getvalue().splitlines()
    assert "secret" not in stream.getvalue()


def test_a_result_is_short_in_a_shell() -> None:
    assert repr(run()).startswith("<RunResult answered: 2 turns, 1 calls, 0 tokens: ")
    assert str(run()) == f"It says {HOSTILE}."
