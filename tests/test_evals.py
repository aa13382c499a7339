"""Cases, the judgement of calls, and what an evaluation counts."""

from __future__ import annotations

import concurrent.futures
import io
import json
import multiprocessing
import pickle
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from toolkit import (
    Message,
    Model,
    ModelError,
    Reply,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolParameter,
    ToolRegistry,
    Usage,
    tool,
)
from toolkit.cost import Money, Price
from toolkit.evals import (
    ALL,
    NO_CALL,
    Case,
    Comparison,
    Expected,
    Outcome,
    Report,
    check,
    contains,
    equal,
    evaluate,
    load_cases,
    matches,
    near,
    one_of,
    optional,
    run_case,
)

pytest_plugins = ["pytester"]


class Unit(Enum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


TOOLS = ToolRegistry()
RAN: list[str] = []


@tool(registry=TOOLS, permission="read")
def weather(city: str, days: int = 1, unit: Unit = Unit.CELSIUS) -> str:
    """The weather in a city."""
    RAN.append(f"weather {city}")
    return f"sunny in {city}"


@tool(registry=TOOLS)
def book(
    day: date,
    people: float = 2,
    tags: list[str] | None = None,
    at: dict[str, Any] | None = None,
) -> str:
    """Book a table."""
    RAN.append(f"book {day}")
    return "booked"


@tool(registry=TOOLS, permission="sensitive")
def cancel(number: int, anything: Any = None) -> str:
    """Cancel a booking."""
    RAN.append(f"cancel {number}")
    return "cancelled"


def call(name: str, raw: Any = "{}", **arguments: Any) -> ToolCall:
    return ToolCall("", name, raw=json.dumps(arguments) if arguments else raw)


def ask(case: Case, *script: Any, **options: Any) -> Outcome:
    return run_case(
        case, tools=TOOLS, model=ScriptedModel([*script, "Done.", "Done."]), **options
    )


ROME = {"city": "Rome"}


@pytest.mark.parametrize(
    ("wanted", "sent", "fits"),
    [
        pytest.param(
            {"city": "L'Aquila", "days": 1},
            """{"days": 1, "city": "L'Aquila"}""",
            True,
            id="order, quote",
        ),
        pytest.param(
            {"city": "L'Aquila", "days": 1},
            """{"city": "L'Aquila", "days": 1.0}""",
            True,
            id="1 is 1.0",
        ),
        pytest.param(
            {"city": "L'Aquila", "days": 1},
            """{"city": "L'Aquila"}""",
            True,
            id="the default",
        ),
        pytest.param(
            {"city": "L'Aquila", "days": 2},
            """{"city": "L'Aquila"}""",
            False,
            id="not the default",
        ),
        pytest.param(
            {"city": "Rome", "days": 3},
            """{'city': "Rome", "days": "3",}""",
            True,
            id="mended, converted",
        ),
        pytest.param(
            {**ROME, "unit": "celsius"},
            '{"city": "Rome"}',
            True,
            id="an enum by default",
        ),
        pytest.param(
            {**ROME, "unit": Unit.FAHRENHEIT},
            '{"city": "Rome", "unit": "fahrenheit"}',
            True,
            id="enum",
        ),
        pytest.param(
            ROME, '{"city": "Rome", "days": null}', True, id="null for the default"
        ),
        pytest.param(
            {**ROME, "days": 1},
            '{"city": "Rome", "days": null}',
            True,
            id="null is the default",
        ),
        pytest.param(
            ROME, '{"city": "Rome", "days": 9}', True, id="what is not named is free"
        ),
        pytest.param(ROME, '{"city": "rome"}', False, id="another case"),
        pytest.param(
            ROME, '{"city": ["Rome"]}', False, id="what the tool would refuse"
        ),
        pytest.param(ROME, '{"city": "Rome"', False, id="cut off"),
        pytest.param({"city": contains("om")}, '{"city": "Rome"}', True, id="contains"),
        pytest.param(
            {"city": contains("OM")}, '{"city": "Rome"}', False, id="does not contain"
        ),
        pytest.param(
            {"city": matches("(?i)^rom.$")}, '{"city": "Rome"}', True, id="matches"
        ),
        pytest.param(
            {"city": matches("^om")}, '{"city": "Rome"}', False, id="does not match"
        ),
        pytest.param(
            {"city": one_of("Roma", contains("Rom"))},
            '{"city": "Rome"}',
            True,
            id="one of",
        ),
        pytest.param(
            {"city": one_of("Roma", "Milan")}, '{"city": "Rome"}', False, id="none of"
        ),
        pytest.param(
            {"unit": one_of("celsius")},
            '{"city": "Rome", "unit": "celsius"}',
            True,
            id="one of, as the tool",
        ),
        pytest.param({"days": near(3)}, '{"city": "Rome", "days": 3}', True, id="near"),
        pytest.param(
            {"days": near(5, 2)},
            '{"city": "Rome", "days": 3}',
            True,
            id="near by tolerance",
        ),
        pytest.param(
            {"days": near(5, 1)}, '{"city": "Rome", "days": 3}', False, id="too far"
        ),
        pytest.param(
            {"days": equal(3)}, '{"city": "Rome", "days": 3}', True, id="equal"
        ),
        pytest.param({"days": optional()}, '{"city": "Rome"}', True, id="left out"),
        pytest.param(
            {"days": optional()},
            '{"city": "Rome", "days": 1}',
            False,
            id="not left out",
        ),
        pytest.param(
            {"days": optional(3)}, '{"city": "Rome"}', True, id="may be left out"
        ),
        pytest.param(
            {"days": optional(3)},
            '{"city": "Rome", "days": 4}',
            False,
            id="there, and wrong",
        ),
    ],
)
def test_arguments_are_compared_as_the_tool_gets_them(
    wanted: dict[str, Any], sent: str, fits: bool
) -> None:
    outcome = ask(Case("Weather?", "weather", wanted), call("weather", sent))
    assert (outcome.label, bool(outcome.explanation)) == (
        ("right", False) if fits else ("wrong_arguments", True)
    )


@pytest.mark.parametrize(
    ("wanted", "sent", "fits"),
    [
        pytest.param({"day": date(2030, 6, 1)}, {"day": "2030-06-01"}, True, id="date"),
        pytest.param(
            {"day": "2030-06-01"},
            {"day": "2030-06-01T00:00:00"},
            True,
            id="a date written differently",
        ),
        pytest.param(
            {"people": 2}, {"day": "2030-06-01", "people": 2.0}, True, id="float"
        ),
        pytest.param(
            {"tags": ["a"]},
            {"day": "2030-06-01", "tags": '["a"]'},
            True,
            id="a list as text",
        ),
        pytest.param(
            {"tags": ["a", "b"]},
            {"day": "2030-06-01", "tags": ["b", "a"]},
            False,
            id="order in a list",
        ),
        pytest.param(
            {"tags": contains("b")},
            {"day": "2030-06-01", "tags": ["a", "b"]},
            True,
            id="an item",
        ),
        pytest.param(
            {"at": {"x": near(1.0)}},
            {"day": "2030-06-01", "at": {"x": 1.001}},
            True,
            id="inside an object",
        ),
        pytest.param(
            {"at": {"x": near(1.0)}},
            {"day": "2030-06-01", "at": {"x": 1, "y": 2}},
            False,
            id="one too many",
        ),
        pytest.param(
            {"at": {"x": 1}},
            {"day": "2030-06-01", "at": {"x": True}},
            False,
            id="true is not 1",
        ),
        pytest.param(
            {"at": {"x": 1}},
            {"day": "2030-06-01", "at": {"x": 1.0}},
            True,
            id="1 is 1.0 inside",
        ),
    ],
)
def test_values_of_other_types(
    wanted: dict[str, Any], sent: dict[str, Any], fits: bool
) -> None:
    outcome = ask(Case("Book!", "book", wanted), call("book", **sent))
    assert outcome.passed is fits, outcome.explanation


TWO = [("weather", {"city": "Rome"}), ("weather", {"city": contains("M")})]


@pytest.mark.parametrize(
    ("case", "script", "label", "said"),
    [
        pytest.param(Case("q", None), ["Hello."], "right", "", id="no call"),
        pytest.param(
            Case("q", None),
            [call("weather", **ROME)],
            "unwanted_call",
            "weather(city='Rome')",
            id="unwanted",
        ),
        pytest.param(
            Case("q", "weather"),
            ["It is warm."],
            "missing_call",
            "It is warm.",
            id="missing",
        ),
        pytest.param(
            Case("q", "weather", ROME),
            [call("book", day="2030-06-01")],
            "wrong_tool",
            "book(day='2030-06-01') was called instead of weather(city='Rome').",
            id="wrong tool",
        ),
        pytest.param(
            Case("q", "weather"),
            [call("functions.weather", **ROME)],
            "right",
            "",
            id="as a run reads a name",
        ),
        pytest.param(
            Case("q", "weather"),
            [call("tomorrow", **ROME)],
            "wrong_tool",
            "tomorrow",
            id="no such tool",
        ),
        pytest.param(
            Case("q", "weather", {"city": "Rome", "days": 2}),
            [call("weather", city="Milan", days=2)],
            "wrong_arguments",
            "weather: city was 'Milan', not 'Rome'.",
            id="wrong argument",
        ),
        pytest.param(
            Case("q", one_of("book", "weather")),
            [call("weather", **ROME)],
            "right",
            "",
            id="either tool",
        ),
        pytest.param(
            Case("q", "weather", ROME),
            [[call("weather", **ROME)] * 2],
            "unwanted_call",
            "no further call",
            id="once too often",
        ),
        pytest.param(
            Case("q", calls=TWO),
            [[call("weather", city="Milan"), call("weather", **ROME)]],
            "right",
            "",
            id="a set",
        ),
        pytest.param(
            Case("q", calls=TWO),
            [call("weather", city="Milan"), call("weather", **ROME)],
            "right",
            "",
            id="in two turns",
        ),
        pytest.param(
            Case(
                "q",
                calls=[
                    ("weather", {"city": contains("M")}),
                    ("weather", {"city": "Milan"}),
                ],
            ),
            [[call("weather", city="Milan"), call("weather", city="Madrid")]],
            "right",
            "",
            id="the looser one takes what is left",
        ),
        pytest.param(
            Case("q", calls=TWO, in_order=True),
            [[call("weather", city="Milan"), call("weather", **ROME)]],
            "wrong_tool",
            "another order",
            id="a sequence out of order",
        ),
        pytest.param(
            Case("q", calls=TWO, in_order=True),
            [[call("weather", **ROME), call("weather", city="Milan")]],
            "right",
            "",
            id="a sequence",
        ),
        pytest.param(
            Case("q", calls=TWO),
            [call("weather", **ROME)],
            "missing_call",
            "contains('M')",
            id="one of two",
        ),
        pytest.param(
            Case("q", "weather", ROME, exact=True),
            [call("weather", city="Rome", days=1)],
            "right",
            "",
            id="exact",
        ),
        pytest.param(
            Case("q", "weather", ROME, exact=True),
            [call("weather", city="Rome", days=2)],
            "wrong_arguments",
            "days was 2",
            id="not exact",
        ),
        pytest.param(
            Case("q", "book", exact=True),
            [call("book", day="2030-06-01")],
            "wrong_arguments",
            "left out",
            id="exact, none",
        ),
        pytest.param(
            Case("q", "weather"),
            [RuntimeError("no luck")],
            "error",
            "RuntimeError: no luck",
            id="an error",
        ),
        pytest.param(
            Case("q", "weather"), [ModelError("gone")], "error", "gone", id="no model"
        ),
    ],
)
def test_what_is_wrong_is_said(
    case: Case, script: list[Any], label: str, said: str
) -> None:
    outcome = ask(case, *script)
    assert (outcome.label, outcome.passed) == (label, label == "right")
    assert said in outcome.explanation if said else outcome.explanation == ""


@pytest.mark.parametrize(
    ("finish", "used", "options", "label"),
    [
        pytest.param(
            "stop",
            64,
            {"max_tokens": 64},
            "truncated",
            id="all tokens used, whatever the finish says",
        ),
        pytest.param(
            "stop",
            64,
            {"max_completion_tokens": 64},
            "truncated",
            id="by its other name",
        ),
        pytest.param("stop", 63, {"max_tokens": 64}, "right", id="one token left"),
        pytest.param("length", 63, {}, "truncated", id="by the finish"),
        pytest.param("stop", 64, {}, "right", id="no limit known"),
    ],
)
def test_a_reply_that_was_cut_off(
    finish: Any, used: int, options: dict[str, int], label: str
) -> None:
    sent = Message("assistant", tool_calls=(call("weather", **ROME),))
    outcome = ask(Case("q", "weather"), Reply(sent, Usage(10, used), finish), **options)
    assert outcome.label == label


def test_a_limit_of_the_model_itself() -> None:
    model = ScriptedModel([Reply(Message("assistant", "and so"), Usage(1, 8))])
    model.defaults = {"max_tokens": 8}
    assert run_case(Case("q", "weather"), tools=TOOLS, model=model).label == "truncated"


def test_the_case_that_follows() -> None:
    case = Case(
        "Weather in Rome?",
        "weather",
        ROME,
        then=Case("And in Milan?", "weather", {"city": "Milan"}),
    )
    model = ScriptedModel(
        [call("weather", **ROME), "It is sunny.", call("weather", city="Turin")]
    )
    outcome = run_case(case, tools=TOOLS, model=model)
    assert (outcome.label, outcome.explanation) == (
        "wrong_arguments",
        "Afterwards: weather: city was 'Turin', not 'Milan'.",
    )
    roles = ["user", "assistant", "tool", "assistant", "user"]
    assert [message.role for message in model.requests[2].messages] == roles
    assert model.requests[2].messages[2].tool_results[0].content == "sunny in Rome"
    assert len(outcome.calls) == len(outcome.pairs) == 2
    assert outcome.expected == "weather(city='Rome'); then weather(city='Milan')"


@pytest.mark.parametrize("ask_once", [run_case, check])
def test_tools_that_can_be_read_once_serve_the_case_that_follows(
    ask_once: Callable[..., Outcome],
) -> None:
    case = Case("q", "weather", ROME, then=Case("and then?", "weather", ROME))
    script = [call("weather", **ROME), "Fine.", call("weather", **ROME), "Fine."]
    assert ask_once(
        case, tools=(tool for tool in TOOLS), model=ScriptedModel(script)
    ).passed


def test_the_conversation_so_far() -> None:
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]
    said += [
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Weather in Rome?"},
    ]
    model = ScriptedModel([call("weather", **ROME)])
    outcome = run_case(Case(said, "weather", ROME), tools=TOOLS, model=model)
    assert outcome.passed
    assert outcome.input == "Weather in Rome?"
    assert [message.text for message in model.requests[0].messages] == [
        "Be brief.",
        "Hi",
        "Hi.",
        "Weather in Rome?",
    ]


@tool(registry=TOOLS)
async def wait_long(city: str) -> str:
    """Wait for long."""
    raise RuntimeError("was run")


# Running, or not


@pytest.mark.parametrize(
    ("dry_run", "ran"),
    [
        pytest.param(None, ["weather Rome"], id="only what reads"),
        pytest.param(True, [], id="nothing"),
        pytest.param(False, ["weather Rome", "book 2030-06-01"], id="as in a run"),
    ],
)
def test_which_tools_are_run(dry_run: bool | None, ran: list[str]) -> None:
    RAN.clear()
    calls = [call("weather", **ROME), call("book", day="2030-06-01")]
    outcome = ask(
        Case("q", calls=["weather", one_of("book", "cancel")]), calls, dry_run=dry_run
    )
    assert outcome.passed
    assert sorted(RAN) == sorted(ran)


@pytest.mark.parametrize("name", ["wait_long", "count"])
def test_other_kinds_of_tools_stay_dry(name: str) -> None:
    class Count(Tool):
        name = "count"
        description = "Count the streets of a city."

        def get_parameters(self) -> list[ToolParameter]:
            return [ToolParameter("city", "string", "Its name.")]

        async def run(self, parameters: dict[str, Any]) -> str:  # type: ignore[override]
            raise RuntimeError("was run")

    model = ScriptedModel([call(name, **ROME), "Done."])
    assert run_case(
        Case("q", name, ROME), tools=[*TOOLS, Count()], model=model, max_turns=2
    ).passed
    assert "Dry run" in model.requests[1].messages[-1].tool_results[0].content


def test_a_sensitive_call_is_judged_and_not_run() -> None:
    RAN.clear()
    for dry_run in (None, True, False):  # in the last case it waits for a verdict
        assert ask(
            Case("q", "cancel", {"number": 7}),
            call("cancel", number=7),
            dry_run=dry_run,
            max_turns=3,
        ).passed
    assert RAN == []


class Sink:
    """A sink that is told where a tool runs, too."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, event: Any) -> None:
        self.names.append(event.name)

    def enter_call(self, call_id: str) -> None:
        self.names.append("enter")


@pytest.mark.parametrize("is_listed", [False, True], ids=["one sink", "several"])
def test_sinks_hear_what_a_run_would_tell_them(is_listed: bool) -> None:
    sink = Sink()
    heard = [sink] if is_listed else sink
    assert ask(
        Case("q", "weather", ROME), call("weather", **ROME), on_event=heard, max_turns=2
    ).passed
    around = [
        "run_start",
        "model_request",
        "model_reply",
        "tool_call_request",
        "enter",
        "tool_exec_result",
    ]
    assert sink.names == [*around, "model_request", "model_reply", "run_end"]


def test_what_a_dry_run_answers() -> None:
    case = Case(
        "q", calls=[("weather", {}), ("book", {})], results={"weather": {"sky": "grey"}}
    )
    model = ScriptedModel(
        [[call("weather", **ROME), call("book", day="2030-06-01")], "Done."]
    )
    assert run_case(case, tools=TOOLS, model=model).passed
    first, second = model.requests[1].messages[-1].tool_results
    assert first.content == '{"sky":"grey"}'
    assert "was not run" in second.content


def test_a_case_brings_its_tools() -> None:
    definition = {
        "name": "math.add",
        "description": "Add.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
        },
    }
    model = ScriptedModel([call("math_add", a=1)])
    outcome = run_case(
        Case("q", "math.add", {"a": 1}, tools=["weather", definition]),
        tools=TOOLS,
        model=model,
    )
    assert outcome.passed, outcome.explanation
    assert [each.name for each in model.requests[0].tools] == ["weather", "math.add"]


def test_a_seed_is_sent_and_counts_up() -> None:
    model = ScriptedModel(lambda request: "hi")
    evaluate(
        [Case("q", None)], tools=TOOLS, model=model, repeat=3, seed=7, temperature=1
    )
    assert [request.options for request in model.requests] == [
        {"seed": s, "temperature": 1} for s in (7, 8, 9)
    ]


def test_a_seed_goes_only_where_one_is_taken() -> None:
    from toolkit.evals.evaluation import _accepts_seed

    wires = ("chat", "react", "responses", "anthropic")
    models = [
        Model("m", wire=wire, base_url="http://127.0.0.1:9", api_key="k")
        for wire in wires
    ]
    assert [_accepts_seed(model) for model in models] == [True, True, False, False]


# Many cases


def clever(request: Any) -> Any:
    """A model that does what the text says: the name of a tool, a city, or nothing of both."""
    if request.messages[-1].role == "tool":
        return "fine"
    words = request.messages[-1].text.split()
    if words[0] == "raise":
        raise RuntimeError("no luck")
    return call(words[0], city=words[1]) if words[0] == "weather" else "hi"


CASES = [
    Case("weather Rome", "weather", ROME),
    Case("hello", None),
    Case("raise", "weather"),
    Case("bye", "weather"),
]


def test_a_report_counts() -> None:
    report = evaluate(
        CASES, tools=TOOLS, model=ScriptedModel(clever), repeat=2, price=Price(1, 2)
    )
    assert [outcome.label for outcome in report.outcomes[::2]] == [
        "right",
        "right",
        "error",
        "missing_call",
    ]
    assert [outcome.repeat for outcome in report.outcomes] == [0, 1] * 4
    assert report.pass_rate.value == 0.5
    assert report.pass_rate.of == 4, "repeats are no further cases"
    assert report.pass_rate.interval == pytest.approx((0.1500, 0.8500), abs=1e-4)
    assert report.should_not_call.value == 1.0
    assert report.tools["weather"].value == 0.5
    assert report.matrix == {
        ("weather", "weather"): 2,
        (NO_CALL, NO_CALL): 2,
        ("weather", NO_CALL): 2,
    }
    assert report.model == "scripted"
    assert report.cost == Money(0, "USD")
    for said in (
        "50.0% [15.0%, 85.0%] of 4",
        "weather → (no call)  2 ×",
        "error 2 ×  raise: RuntimeError: no luck",
    ):
        assert said in str(report)


@pytest.mark.parametrize(
    ("passed", "of", "interval"),
    [  # R 4.4: prop.test(x, n, correct = FALSE)$conf.int
        pytest.param(0, 10, (0.0, 0.2775), id="none"),
        pytest.param(10, 10, (0.7225, 1.0), id="all"),
        pytest.param(8, 10, (0.4902, 0.9433), id="some"),
        pytest.param(81, 263, (0.2553, 0.3662), id="many"),
    ],
)
def test_a_rate_has_the_interval_of_wilson(
    passed: int, of: int, interval: tuple[float, float]
) -> None:
    outcomes = (Outcome(str(i), "right" if i < passed else "error") for i in range(of))
    assert Report(tuple(outcomes)).pass_rate.interval == pytest.approx(
        interval, abs=1e-4
    )


def test_cost_tokens_and_time() -> None:
    outcomes = tuple(
        Outcome(str(i), "right", usage=Usage(1000, 100), seconds=float(i))
        for i in range(1, 21)
    )
    report = Report(outcomes, price=Price(2.0, 10.0))
    assert report.usage == Usage(20_000, 2_000)
    assert str(report.cost) == "0.060000 USD"
    assert report.seconds == (10.5, 19.0)


def test_a_report_is_saved_and_loaded(tmp_path: Path) -> None:
    report = evaluate(
        CASES,
        tools=TOOLS,
        model=ScriptedModel(clever),
        save_to=tmp_path / "report.json",
    )
    assert Report.load(tmp_path / "report.json") == report
    (tmp_path / "other.json").write_text("[1]")
    with pytest.raises(ValueError, match=r"other.json' is not a saved report"):
        report.compare(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("case", "sent"),
    [
        pytest.param(Case("q \ud83d", "weather", ROME), "Rome", id="asked"),
        pytest.param(Case("q", "weather", ROME, id="\ud83d"), "Rome", id="id"),
        pytest.param(Case("q", "weather", ROME), "\\ud83d", id="called"),
    ],
)
def test_half_a_character_costs_no_report(
    case: Case, sent: str, tmp_path: Path
) -> None:
    model = ScriptedModel(
        [ToolCall("", "weather", raw=f'{{"city": "{sent}"}}'), "Done."]
    )
    report = evaluate(
        [case], tools=TOOLS, model=model, save_to=(path := tmp_path / "report.json")
    )
    report.save_html(tmp_path / "report.html")
    assert [outcome.label for outcome in Report.load(path).outcomes] == [
        report.outcomes[0].label
    ]


def test_where_a_report_cannot_be_saved_no_case_is_asked(tmp_path: Path) -> None:
    model = ScriptedModel(["Done."])
    with pytest.raises(FileNotFoundError, match="no folder for the report"):
        evaluate(
            [Case("q", None)],
            tools=TOOLS,
            model=model,
            save_to=tmp_path / "nowhere" / "report.json",
        )
    assert not model.requests


def test_nobody_is_told_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told: list[tuple[int, int, str]] = []
    evaluate(
        CASES,
        tools=TOOLS,
        model=ScriptedModel(clever),
        on_progress=lambda *a: told.append((*a[:2], a[2].label)),
    )
    assert told == [
        (1, 4, "right"),
        (2, 4, "right"),
        (3, 4, "error"),
        (4, 4, "missing_call"),
    ]
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    evaluate(CASES, tools=TOOLS, model=ScriptedModel(clever))
    first, *_, last = terminal.getvalue().split("\r")[1:]
    assert first.startswith("1/4  100% right")
    assert "s left" in first
    assert last.startswith("4/4  50% right")
    assert last.endswith("\n")


@pytest.mark.parametrize("how", ["in the model", "in on_progress"])
def test_interrupted_it_keeps_what_it_has(how: str, tmp_path: Path) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    def model(request: Any) -> Any:
        return (
            stop()
            if how == "in the model" and request.messages[-1].text == "raise"
            else clever(request)
        )

    def told(done: int, *_: Any) -> None:
        if how == "in on_progress" and done == 2:
            stop()

    options: dict[str, Any] = {
        "tools": TOOLS,
        "on_progress": told,
        "save_to": tmp_path / "report.json",
    }
    with pytest.raises(KeyboardInterrupt) as caught:
        evaluate(CASES, model=ScriptedModel(model), **options)
    report = caught.value.report  # type: ignore[attr-defined]
    assert [outcome.case for outcome in report.outcomes] == ["weather Rome", "hello"]
    assert Report.load(tmp_path / "report.json") == report
    assert "2 times in all of 4 (interrupted)" in str(report)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_at_most_so_many_at_once(concurrency: int) -> None:
    import threading

    most, now, lock, met = [0], [0], threading.Lock(), threading.Barrier(concurrency)

    def model(request: Any) -> str:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        met.wait(timeout=20)
        with lock:
            now[0] -= 1
        return "hi"

    cases = [Case(f"q{number}", None) for number in range(2 * concurrency)]
    report = evaluate(
        cases, tools=TOOLS, model=ScriptedModel(model), concurrency=concurrency
    )
    assert report.pass_rate.value == 1.0
    assert most == [concurrency]
    assert [outcome.case for outcome in report.outcomes] == [case.id for case in cases]


@pytest.mark.slow
def test_in_other_processes() -> None:
    cases = [
        *CASES,
        Case("weather Milan", "weather", {"city": matches("M")}, then=Case("hm", None)),
    ]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
        report = evaluate(
            cases,
            tools="test_evals:TOOLS",
            model=ScriptedModel(clever),
            executor=executor,
            repeat=2,
            seed=1,
        )
    assert report.model == "scripted"
    labels = ["right", "right", "error", "missing_call", "right"]
    assert [outcome.label for outcome in report.outcomes] == [
        label for label in labels for _ in range(2)
    ]


def test_what_cannot_be_sent_is_an_outcome() -> None:
    class Refusing(concurrent.futures.Executor):
        def submit(self, *_: Any, **__: Any) -> concurrent.futures.Future[Any]:
            future: concurrent.futures.Future[Any] = concurrent.futures.Future()
            future.set_exception(pickle.PicklingError("a lambda"))
            return future

    report = evaluate(
        [Case("q", None)], tools=TOOLS, model=ScriptedModel(clever), executor=Refusing()
    )
    assert report.outcomes[0].label == "error"
    assert (
        "a lambda. Tools for other processes are passed as tools='module:name'."
        in report.outcomes[0].explanation
    )


def test_cases_and_outcomes_can_be_sent() -> None:
    case = Case(
        "q", calls=[("weather", {"city": one_of("a", near(3))})], then=Case("q", None)
    )
    assert pickle.loads(pickle.dumps(case)) == case
    outcome = ask(Case("q", "weather"), call("weather", **ROME))
    assert pickle.loads(pickle.dumps(outcome)) == outcome


# Wrong questions


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        pytest.param(
            lambda: Case("q"), ValueError, "say what is expected", id="nothing expected"
        ),
        pytest.param(
            lambda: Case("q", "a", calls=[]),
            ValueError,
            "say what is expected",
            id="two expectations",
        ),
        pytest.param(lambda: Case("", None), ValueError, "'input'", id="no input"),
        pytest.param(
            lambda: Case("q", None, {"a": 1}),
            ValueError,
            "'arguments' belong",
            id="arguments of no tool",
        ),
        pytest.param(lambda: Case("q", 3), TypeError, "a tool's name", id="no name"),  # type: ignore[arg-type]
        pytest.param(
            lambda: Case("q", contains("a")),
            TypeError,
            "a tool's name",
            id="no choice of tools",
        ),
        pytest.param(
            lambda: Case("q", None, tools=[{}]),
            TypeError,
            "'tools' holds names",
            id="no definition",
        ),
        pytest.param(
            lambda: matches("("), ValueError, "regular expression", id="no pattern"
        ),
        pytest.param(lambda: near("3"), ValueError, "takes a number", id="no number"),  # type: ignore[arg-type]
        pytest.param(
            lambda: run([Case("q", None)], executor="threads"),
            TypeError,
            "executor must be",
            id="executor",
        ),
        pytest.param(
            lambda: run([Case("q", None)], on_progress=5),
            TypeError,
            "on_progress must be",
            id="progress",
        ),
        pytest.param(
            lambda: run([Case("q", "wether")]),
            ValueError,
            r"none of its tools. There are \['weather'",
            id="name",
        ),
        pytest.param(
            lambda: run([Case("q", "weather", {"town": "a"})]),
            ValueError,
            "no parameter 'town'",
            id="argument",
        ),
        pytest.param(
            lambda: run([Case("q", "weather", {"days": "x"})]),
            ValueError,
            "would refuse days='x'",
            id="value",
        ),
        pytest.param(
            lambda: run([Case("q", None, then=Case("r", "wether"))]),
            ValueError,
            "none of its tools",
            id="what follows",
        ),
        pytest.param(
            lambda: run([Case("q", None, results={"wether": 1})]),
            ValueError,
            "names 'wether'",
            id="results",
        ),
        pytest.param(lambda: run([]), ValueError, "at least one", id="no cases"),
        pytest.param(
            lambda: run([Case("q", None)], repeat=0),
            ValueError,
            "repeat=0",
            id="no repeat",
        ),
        pytest.param(
            lambda: run([Case("q", None)], max_turns=0),
            ValueError,
            "max_turns=0",
            id="no turn",
        ),
        pytest.param(
            lambda: run([Case("q", None)], price=3),
            TypeError,
            "price=3: pass a",
            id="one price",
        ),
        pytest.param(lambda: run("cases.yaml"), ValueError, "load_cases", id="a path"),  # type: ignore[arg-type]
        pytest.param(
            lambda: run([{"input": "q"}]),
            TypeError,
            "must be a list of Case",
            id="rows",
        ),  # type: ignore[list-item]
        pytest.param(
            lambda: check(Case("q", None), tools="json"),
            TypeError,
            "contains no tools",
            id="a module",
        ),
        pytest.param(
            lambda: run([Case("q", None)], concurrency=0),
            ValueError,
            "concurrency=0",
            id="none at once",
        ),
        pytest.param(
            lambda: Case([{"role": "assistant", "content": "a"}], None),
            ValueError,
            "the user's",
            id="last",
        ),
        pytest.param(
            lambda: check(Case("q", None), tols=TOOLS),
            TypeError,
            "mean 'tools'",
            id="one in check",
        ),
        pytest.param(
            lambda: run([Case("q", None)] * 2),
            ValueError,
            "Two cases have the id 'q'",
            id="twice",
        ),
        pytest.param(
            lambda: run([Case("q", None)], max_turn=2),
            TypeError,
            "mean 'max_turns'",
            id="a typing error",
        ),
        pytest.param(
            lambda: run([Case("q", None)], history=[]),
            TypeError,
            "'history' has no place",
            id="history",
        ),
    ],
)
def test_a_wrong_question_is_refused_at_once(
    make: Callable[[], Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        make()


def run(cases: list[Case], **options: Any) -> Report:
    return evaluate(cases, tools=TOOLS, model=ScriptedModel(clever), **options)


# Comparing

DESCRIPTIONS = {
    "weather_now": "The weather in a city at this moment.",
    "weather_forecast": "The weather in a city on days to come.",
    "book_table": "Book a table in a restaurant.",
    "cancel_table": "Cancel the booking of a table.",
}
REQUESTS = {
    "weather_now": "what is the weather at this moment in {}",
    "weather_forecast": "how is the weather on the days to come in {}",
    "book_table": "book a table in a restaurant in {}",
    "cancel_table": "cancel the booking of my table in {}",
}


def noisy(seed: int) -> ScriptedModel:
    """A model that takes the tool whose description shares most words with the request, and errs one time in ten."""
    generator = random.Random(seed)

    def reply(request: Any) -> Any:
        words = set(request.messages[-1].text.lower().split())

        def shared(each: Any) -> int:
            return len(words & set(each.description.lower().strip(".").split()))

        chosen = max(request.tools, key=shared)
        if generator.random() < 0.1:
            chosen = generator.choice(request.tools)
        return call(chosen.name, city=request.messages[-1].text.split()[-1])

    return ScriptedModel(reply)


def measured(seed: int, repeat: int = 3, **descriptions: str) -> Report:
    tools = ToolRegistry()
    for name, description in {**DESCRIPTIONS, **descriptions}.items():
        tools.register_function(name, description, lambda city: "fine")
    cases = [
        Case(request.format(city), name, {"city": city})
        for name, request in REQUESTS.items()
        for city in ("Rome", "Milan", "Turin", "Bari", "Lecce", "Como")
    ]
    return evaluate(cases, tools=tools, model=noisy(seed), repeat=repeat)


def test_a_vague_description_is_a_regression(tmp_path: Path) -> None:
    measured(1).save(tmp_path / "baseline.json")
    compared = measured(2, weather_forecast="Something with weather.").compare(
        tmp_path / "baseline.json"
    )
    assert compared.exit_code == 1
    assert "weather_forecast" in compared.regressions
    assert set(compared.worse) >= {
        f"how is the weather on the days to come in {city}" for city in ("Rome", "Bari")
    }
    assert compared.difference == pytest.approx(-0.2, abs=0.1)
    assert compared.interval[0] < compared.difference < compared.interval[1]
    assert "REGRESSION in weather_forecast" in str(compared)


def test_noise_is_no_regression() -> None:
    reports = [measured(seed) for seed in range(100, 121)]
    compared = [reports[n + 1].compare(reports[n]) for n in range(20)]
    assert [one.exit_code for one in compared] == [0] * 20
    assert any(one.difference < -0.05 for one in compared), (
        "there was noise to be taken for more"
    )
    assert any(one.worse and one.better for one in compared)


def outcomes(passed: list[int], repeats: int = 1, tool: str = "t") -> Report:
    """A report in which each case passes so often."""
    made = [
        Outcome(
            f"case {i}", "right" if n < p else "wrong_tool", repeat=n, tools=(tool,)
        )
        for i, p in enumerate(passed)
        for n in range(repeats)
    ]
    return Report(tuple(made))


@pytest.mark.parametrize(
    ("new", "old", "repeats", "chance"),
    [
        pytest.param([0] * 8, [1] * 8, 1, 0.5**8, id="McNemar, all lost"),
        pytest.param(
            [0, 0, 0, 1, 1], [1, 1, 1, 0, 1], 1, 5 / 16, id="McNemar, one won"
        ),
        pytest.param([0], [5], 5, 1 / 252, id="Fisher, one case"),
        pytest.param([0, 0], [2, 2], 2, (1 / 6) ** 2, id="two cases"),
        pytest.param([1, 1], [1, 1], 1, 1.0, id="nothing changed"),
        pytest.param([1, 1], [0, 1], 1, 1.0, id="better"),
    ],
)
def test_the_chance_of_noise(
    new: list[int], old: list[int], repeats: int, chance: float
) -> None:
    compared = outcomes(new, repeats).compare(outcomes(old, repeats))
    assert compared.chances == {ALL: pytest.approx(chance)}
    if chance <= 0.005:
        assert compared.exit_code == 1
    else:
        assert compared.exit_code == (3 if compared.worse else 0)


@pytest.mark.parametrize(("repeats", "enough"), [(1, 9), (2, 4), (3, 2)])
def test_how_many_cases_of_a_tool_must_break(repeats: int, enough: int) -> None:
    """As README.md says."""
    others = [
        replace(one, case=f"other {one.case}")
        for one in outcomes([repeats] * 20, repeats, "u").outcomes
    ]

    def compared(broken: int) -> Comparison:
        new = outcomes([0] * broken + [repeats] * (9 - broken), repeats)
        old = outcomes([repeats] * 9, repeats)
        return Report((*new.outcomes, *others)).compare(
            Report((*old.outcomes, *others))
        )

    assert compared(enough - 1).regressions == ()
    assert compared(enough).regressions == (ALL, "t")


@pytest.mark.parametrize(
    ("new", "old", "repeats", "code"),
    [
        pytest.param([0] * 7, [1] * 7, 1, 1, id="seven of seven, then none"),
        pytest.param([0] * 3, [1] * 3, 1, 1, id="three of three, then none"),
        pytest.param([0] * 2, [1] * 2, 1, 3, id="two are no set"),
        pytest.param([0] * 6 + [1], [1] * 7, 1, 3, id="one of seven is left"),
        pytest.param([0] * 7, [1] * 6 + [0], 1, 3, id="one failed before"),
        pytest.param([1] * 7, [1] * 7, 1, 0, id="as before"),
        pytest.param([1] * 7, [0] * 7, 1, 0, id="better"),
        pytest.param([0] + [1] * 7, [1] * 8, 1, 0, id="eight can tell"),
        pytest.param([1, 2, 2], [2, 2, 2], 2, 0, id="three repeated can tell"),
    ],
)
def test_a_small_set_tells_the_truth(
    new: list[int], old: list[int], repeats: int, code: int
) -> None:
    compared = outcomes(new, repeats).compare(outcomes(old, repeats))
    assert compared.exit_code == code
    assert ("too few cases to tell" in str(compared)) == (code == 3)
    assert ("REGRESSION" in str(compared)) == (code == 1)


def test_cases_are_paired_by_their_ids() -> None:
    compared = outcomes([1, 0, 0]).compare(outcomes([1, 1]))
    assert compared.difference == -0.5
    assert (compared.worse, compared.better) == (("case 1",), ())
    assert (compared.only_here, compared.only_there) == (("case 2",), ())
    with pytest.raises(ValueError, match="no case in common"):
        outcomes([1]).compare(Report((Outcome("other", "right"),)))


def test_a_comparison_comes_out_the_same_again() -> None:
    one, two = measured(1), measured(2, weather_forecast="Something.")
    assert two.compare(one) == two.compare(one)


# With pytest


def test_each_case_is_a_test(pytester: pytest.Pytester) -> None:
    pytester.makefile(
        ".yaml",
        cases="- {input: weather Rome, tool: weather}\n- {input: bye, tool: weather}\n",
    )
    pytester.makepyfile("""
        import pytest
        from test_evals import TOOLS, clever
        from toolkit import ScriptedModel
        from toolkit.evals import check, load_cases

        @pytest.mark.parametrize("case", load_cases("cases.yaml"), ids=str)
        def test_calls(case):
            check(case, tools=TOOLS, model=ScriptedModel(clever))
    """)
    pytest.importorskip("yaml")
    done = pytester.runpytest("-v", "-p", "no:cacheprovider", "-p", "no:asyncio")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        ["*test_calls?weather Rome? PASSED*", "*test_calls?bye? FAILED*"]
    )
    done.stdout.fnmatch_lines(
        [
            "*AssertionError: missing_call: weather() was not called; the model said 'hi'."
        ]
    )


def test_check_returns_the_outcome() -> None:
    assert (
        check(CASES[0], tools=TOOLS, model=ScriptedModel(clever)).calls[0]["tool"]
        == "weather"
    )
    with pytest.raises(ValueError, match="none of its tools"):
        check(Case("q", "wether"), tools=TOOLS, model=ScriptedModel(clever))


# The page


def test_the_page_escapes_and_loads_nothing(tmp_path: Path) -> None:
    evil = "<script>alert('x')</script>"
    outcome = Outcome(
        evil,
        "wrong_tool",
        evil,
        0,
        evil,
        evil,
        (evil,),
        (),
        ((evil, f"{evil}2", False),),
    )
    Report((outcome,), evil).save_html(path := tmp_path / "report.html")
    page = path.read_text(encoding="utf-8")
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 6
    assert [
        part
        for part in ("http:", "https:", "src=", "href=", "@import", "url(")
        if part in page
    ] == []


def test_a_page_of_many_tools_shows_those_that_were_confused(tmp_path: Path) -> None:
    names = [f"tool_{number}" for number in range(200)]
    right = [
        Outcome(name, "right", tools=(name,), pairs=((name, name, True),))
        for name in names
    ]
    wrong = Outcome(
        "w", "wrong_tool", tools=("tool_3",), pairs=(("tool_3", "tool_150", False),)
    )
    Report((*right, wrong)).save_html(path := tmp_path / "report.html")
    matrix = (
        path.read_text(encoding="utf-8")
        .partition('class="matrix"')[2]
        .partition("</table>")[0]
    )
    assert matrix.count("<tr>") == 3
    assert 'title="tool_3 expected, tool_150 called">1<' in matrix


# Files


def write(path: Path, name: str, text: str) -> Path:
    path.joinpath(name).parent.mkdir(exist_ok=True)
    path.joinpath(name).write_text(text, encoding="utf-8")
    return path / name


YAML = """
- input: Weather in Rome?
  tool: weather
  arguments:
    city: {contains: Rom}
    days: {near: 3, tolerance: 1, optional: true}
- input: Hello
  tool: null
- id: both
  input: Weather in Rome, and book for June 1st, 2030
  calls:
    - tool: {one_of: [weather, forecast]}
      arguments: {city: {one_of: [Rome, Roma]}}
    - {tool: book, arguments: {day: 2030-06-01, at: {equal: {contains: x}}}}
  in_order: true
  results: {weather: sunny}
  then: {input: Thanks, tool: null}
"""


def test_cases_of_yaml(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    assert load_cases(write(tmp_path, "cases.yaml", YAML)) == [
        Case(
            "Weather in Rome?",
            "weather",
            {"city": contains("Rom"), "days": optional(near(3, 1))},
        ),
        Case("Hello", None),
        Case(
            "Weather in Rome, and book for June 1st, 2030",
            id="both",
            calls=[
                Expected(
                    one_of("weather", "forecast"), {"city": one_of("Rome", "Roma")}
                ),
                Expected("book", {"day": "2030-06-01", "at": equal({"contains": "x"})}),
            ],
            in_order=True,
            results={"weather": "sunny"},
            then=Case("Thanks", None),
        ),
    ]


def test_cases_of_json_lines(tmp_path: Path) -> None:
    lines = '{"input": "q", "tool": "a", "arguments": {"x": {"matches": "^y"}}}\n\n{"input": "r", "tool": null}\n'
    cases = load_cases(write(tmp_path, "cases.jsonl", lines))
    assert cases == [Case("q", "a", {"x": matches("^y")}), Case("r", None)]
    assert [str(case) for case in cases] == ["q", "r"]


def test_ids_are_made_of_the_input() -> None:
    long = "a word " * 20
    assert len(Case(long, None).id) < 60
    assert Case(long, None).id == Case(long, "t").id != Case(long + "!", None).id
    assert Case([{"role": "user", "content": "hi"}], None).id.startswith("hi")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        pytest.param(
            "c.jsonl",
            '{"input": "q", "tool": "a"}\n{"input"',
            r"c.jsonl, line 2: a line is one JSON",
            id="JSON",
        ),
        pytest.param(
            "c.jsonl",
            '\n{"input": "q", "tol": "a"}',
            r"line 2: 'tol' is not a field. Did you mean 'tool'",
            id="field",
        ),
        pytest.param(
            "c.jsonl",
            '{"tool": "a"}',
            r"line 1: the field 'input' is missing",
            id="no input",
        ),
        pytest.param(
            "c.jsonl",
            '{"input": "q"}',
            r"line 1: Case 'q': say what is expected",
            id="no expectation",
        ),
        pytest.param("c.jsonl", "3", r"line 1: a case is an object", id="no object"),
        pytest.param(
            "c.jsonl",
            '{"input": "q", "tool": null}\n' * 2,
            r"line 2: the id 'q' is taken by .* line 1",
            id="twice",
        ),
        pytest.param(
            "c.jsonl",
            '{"input": "q", "calls": [{"arguments": {}}]}',
            r"'calls', number 1",
            id="call",
        ),
        pytest.param(
            "c.jsonl",
            '{"input": "q", "tool": "a", "arguments": 3}',
            r"line 1: Case 'q': .*object",
            id="arguments",
        ),
        pytest.param(
            "c.jsonl",
            '{"input": "q", "tool": "a", "arguments": {"x": {"near": "y"}}}',
            "takes a number",
            id="near",
        ),
        pytest.param(
            "c.jsonl",
            '{"input": "q", "tool": "a", "arguments": {"x": {"one_of": 3}}}',
            "takes a list",
            id="one of",
        ),
        pytest.param(
            "c.yaml",
            "- input: q\n  tool: a\n- input: r\n  tol: b\n",
            r"c.yaml, line 3: 'tol' is",
            id="YAML field",
        ),
        pytest.param("c.yaml", "- input: [\n", r"c.yaml: this is not YAML", id="YAML"),
        pytest.param(
            "c.yaml",
            "input: q\n",
            r"c.yaml: the file must be a list",
            id="YAML without a list",
        ),
        pytest.param("c.csv", "", r"are read from .yaml", id="another suffix"),
    ],
)
def test_a_file_of_something_else(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    if name.endswith("yaml"):
        pytest.importorskip("yaml")
    with pytest.raises(ValueError, match=said):
        load_cases(write(tmp_path, name, text))


def test_without_yaml_the_way_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ImportError, match=r"pip install 'toolkit-agent\[evals\]'"):
        load_cases(write(tmp_path, "cases.yml", YAML))


# Rows from the Berkeley Function-Calling Leaderboard, Apache-2.0, shortened.
BFCL_TOOL = {
    "name": "calculate_em.force",
    "description": "Calculate the induced force.",
    "parameters": {
        "type": "dict",
        "properties": {
            "b_field": {"type": "integer", "description": "Tesla."},
            "d_time": {"type": "float", "description": "Seconds."},
            "unit": {"type": "string"},
            "at": {"type": "dict", "properties": {"place": {"type": "any"}}},
        },
        "required": ["b_field", "d_time"],
    },
}
BFCL_CALLS = [
    {
        "calculate_em.force": {
            "b_field": [5],
            "d_time": [4],
            "unit": ["", "km/h"],
            "at": [{"place": ["lab", ""]}, ""],
        }
    },
    {
        "calculate_em.force": {
            "b_field": [5],
            "d_time": [10],
            "unit": ["km/h", ""],
            "at": [""],
        }
    },
]
BFCL_ASKED = [
    {"role": "user", "content": "Calculate the force for 4 seconds, then for 10."}
]


def bfcl_published(path: Path) -> Path:
    row = {"id": "parallel_1", "question": [BFCL_ASKED], "function": [BFCL_TOOL]}
    other = {
        "id": "irrelevance_1",
        "question": [[{"role": "user", "content": "Hi"}]],
        "function": [BFCL_TOOL],
    }
    write(
        path,
        "possible_answer/b.json",
        json.dumps({"id": "parallel_1", "ground_truth": BFCL_CALLS}),
    )
    return write(path, "b.json", f"{json.dumps(row)}\n{json.dumps(other)}\n")


def bfcl_reshaped(path: Path) -> Path:
    plain = (
        json.dumps(BFCL_TOOL)
        .replace('"dict"', '"object"')
        .replace('"float"', '"number"')
    )
    write(path, "tools.jsonl", plain.replace('{"type": "any"}', "{}"))
    rows = [
        ("parallel_1", BFCL_ASKED, BFCL_CALLS),
        ("irrelevance_1", [{"role": "user", "content": "Hi"}], []),
    ]
    made = [
        {"id": i, "messages": m, "tools": [BFCL_TOOL["name"]], "calls": c}
        for i, m, c in rows
    ]
    return write(path, "b.jsonl", "\n".join(map(json.dumps, made)))


@pytest.mark.parametrize("shape", [bfcl_published, bfcl_reshaped])
@pytest.mark.parametrize(
    ("first", "second", "label"),
    [
        pytest.param(
            {"d_time": 10},
            {"d_time": 4.0},
            "right",
            id="in any order, the rest left out",
        ),
        pytest.param(
            {"d_time": 4, "unit": "KM / H"},
            {"d_time": 10},
            "right",
            id="texts are compared loosely",
        ),
        pytest.param(
            {"d_time": 4, "at": {"place": "Lab."}},
            {"d_time": 10},
            "right",
            id="inside an object",
        ),
        pytest.param(
            {"d_time": 4, "at": {}}, {"d_time": 10}, "right", id="left out of an object"
        ),
        pytest.param(
            {"d_time": 4, "unit": "mph"},
            {"d_time": 10},
            "wrong_arguments",
            id="another text",
        ),
        pytest.param(
            {"d_time": 4}, {"d_time": 11}, "wrong_arguments", id="another number"
        ),
        pytest.param(
            {"d_time": 4},
            {"d_time": 10, "at": {"place": 3}},
            "wrong_arguments",
            id="not left out",
        ),
    ],
)
def test_answers_are_judged_as_the_leaderboard_judges_them(
    shape: Any, first: Any, second: Any, label: str, tmp_path: Path
) -> None:
    pytest.importorskip("jsonschema")
    called, idle = load_cases(shape(tmp_path))
    sent = [
        call("calculate_em_force", b_field=5, **arguments)
        for arguments in (first, second)
    ]
    outcome = run_case(called, tools=(), model=ScriptedModel([sent, "Done."]))
    assert (outcome.case, outcome.label) == ("parallel_1", label), outcome.explanation
    assert run_case(idle, tools=(), model=ScriptedModel(["Hello."])).passed


@pytest.mark.parametrize(
    ("row", "said"),
    [
        pytest.param(
            {"question": [BFCL_ASKED]},
            r"'b.json' has no answer for 'x'",
            id="no answer",
        ),
        pytest.param(
            {"question": [BFCL_ASKED, BFCL_ASKED]}, "several turns", id="programs"
        ),
    ],
)
def test_bfcl_that_cannot_be_read(
    row: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "b.json", json.dumps({"id": "x", "function": [], **row}))
    with pytest.raises(ValueError, match=said.replace("'b.json'", ".*b.json'")):
        load_cases(path)
