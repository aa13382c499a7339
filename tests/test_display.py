"""What people see of runs and registries."""

from __future__ import annotations

from html.parser import HTMLParser

from toolkit import RunResult, ScriptedModel, ToolCall, ToolRegistry, run_agent_with_tools

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
    model = ScriptedModel([ToolCall("c1", "echo", {"text": HOSTILE}), f"It says {HOSTILE}."])
    return run_agent_with_tools("q", tools=[echo], model=model)


def test_a_registry_is_a_table() -> None:
    registry = ToolRegistry([echo])
    assert str(registry) == "echo  write  text, times?  Say it again."
    assert Cells(registry._repr_html_()).cells[4:] == ["echo", "write", "text, times?", "Say it again."]
    assert repr(registry) == "ToolRegistry(echo)"
    assert str(ToolRegistry()) == "ToolRegistry(no tools)"


def test_a_result_shows_its_calls_and_runs_no_script() -> None:
    page = Cells(run()._repr_html_())
    assert "script" not in page.tags
    name, arguments, result, _, verdict = page.cells[5:]
    assert (name, arguments, result, verdict) == ("echo", f"text={HOSTILE!r}", HOSTILE, "")


def test_a_result_is_short_in_a_shell() -> None:
    assert repr(run()).startswith("<RunResult answered: 2 turns, 1 calls, 0 tokens: ")
    assert str(run()) == f"It says {HOSTILE}."
