"""Models over a real client and a strict server: retries, clients, names; and the scripted model."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import gc
import inspect
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import openai
import pytest

import toolkit
from helpers import Runner, clock
from server import ChatServer, Cut, Fault, Raw, Reset, Slow, answer, call
from toolkit import (
    Message,
    Model,
    ModelError,
    ModelInfo,
    Reply,
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolRegistry,
    Usage,
)
from toolkit.errors import MalformedReply, ToolsRefused
from toolkit.models import OPENAI_MODEL, find_model
from toolkit.tools import Request


def tools() -> ToolRegistry:
    return ToolRegistry([clock])


ASKS_CLOCK = answer(None, call("clock"))


def waits(server: ChatServer) -> list[float]:
    """Seconds between the requests."""
    at = [request.at for request in server.requests]
    return [later - earlier for earlier, later in itertools.pairwise(at)]


# Retries

SOON = {"retry-after": "0.01"}
PASSING: dict[str, list[Any]] = {
    "429": [Fault(429, headers=SOON)],
    "408": [Fault(408, headers=SOON)],
    "409": [Fault(409, headers=SOON)],
    "500 twice": [Fault(500, headers=SOON), Fault(500, headers=SOON)],
    "503": [Fault(503, headers=SOON)],
    "529": [Fault(529, headers=SOON)],
    "a reset": [Reset()],
    "an answer cut short": [Cut()],
}


@pytest.mark.parametrize("plays", PASSING.values(), ids=PASSING)
def test_what_passes_is_tried_again(run: Runner, plays: list[Any]) -> None:
    with ChatServer(*plays, "done") as server:
        assert (
            run("q", model=Model("m", base_url=server.base_url), tools=tools()).text
            == "done"
        )
        assert server.bodies == [server.bodies[0]] * (len(plays) + 1)


LASTING: dict[str, tuple[Any, int | None, str]] = {
    "400": (Fault(400, "no such field"), 400, "no such field"),
    "401": (Fault(401, "who are you"), 401, "who are you"),
    "403": (Fault(403), 403, "403"),
    "404": (Fault(404, "no such model"), 404, "no such model"),
    "422": (Fault(422), 422, "422"),
    "no money": (
        Fault(429, "you have no credits", "insufficient_quota"),
        429,
        "no credits",
    ),
    "the server says so": (Fault(503, headers={"x-should-retry": "false"}), 503, "503"),
    "to come back tomorrow": (Fault(429, headers={"retry-after": "86400"}), 429, "429"),
}


@pytest.mark.parametrize(("play", "status", "said"), LASTING.values(), ids=LASTING)
def test_what_lasts_is_raised_at_once(
    run: Runner, play: Any, status: int | None, said: str
) -> None:
    with ChatServer(play) as server:
        with pytest.raises(ModelError, match=said) as caught:
            run("q", model=Model("m", base_url=server.base_url), tools=tools())
        assert len(server.requests) == 1
    assert caught.value.status == status


NO_REPLIES = {
    "a page": b"<html>Welcome</html>",
    "nothing": b"",
    "half": b'{"choices"',
    "no object": b"[]",
}


@pytest.mark.parametrize("body", NO_REPLIES.values(), ids=NO_REPLIES)
def test_a_success_that_is_no_reply_is_told(run: Runner, body: bytes) -> None:
    with ChatServer(Raw(body)) as server, pytest.raises(MalformedReply) as caught:
        run("q", model=Model("m", base_url=server.base_url, retries=0), tools=tools())
    assert caught.value.run.messages == (Message("user", "q"),)


# Errors in the server's own words

HTML = b"<!doctype html><html><head><title>Not\n here</title></head><body><p>No.</p></body></html>"
WORDS: dict[str, tuple[bytes, str]] = {
    "OpenAI": (b'{"error": {"message": "the words", "code": "x"}}', "the words"),
    "LM Studio": (b'{"error": "the words"}', "the words"),
    "xAI": (b'{"code": "invalid-argument", "error": "the words"}', "the words"),
    "FastAPI": (b'{"detail": "the words"}', "the words"),
    "FastAPI, validation": (
        b'{"detail": [{"type": "extra", "loc": ["body", "tools", 0], "msg": "the words"}, {"loc": [], "msg": "b"}]}',
        "body.tools.0: the words; b",
    ),
    "Mistral": (
        b'{"object": "error", "message": {"detail": [{"loc": ["body"], "msg": "the words"}]}}',
        "body: the words",
    ),
    "Gemini": (b'[{"error": {"code": 400, "message": "the words"}}]', "the words"),
    "vLLM": (b'{"object": "error", "message": "the words", "code": 400}', "the words"),
    "a framework": (
        b'{"statusCode": 400, "error": "Bad", "message": ["the", "words"]}',
        "Bad: the; words",
    ),
    "OpenRouter": (
        b'{"error": {"message": "upstream", "metadata": {"raw": "the words"}}}',
        "upstream: the words",
    ),
    "plain text": (b"the words\n", "the words"),
    "a page": (HTML, "an HTML page, 'Not here'"),
    "a page without a title": (b"<p>No <b>luck</b></p>", "an HTML page, 'No luck'"),
    "another shape": (b'{"reason": 7}', "{'reason': 7}"),
    "nothing": (b"", "played"),
}


@pytest.mark.parametrize("on_text", [None, list[str]().append])
@pytest.mark.parametrize(("body", "words"), WORDS.values(), ids=WORDS)
def test_an_error_has_the_words_of_the_server(
    run: Runner, body: bytes, words: str, on_text: Any
) -> None:
    with ChatServer(Raw(body, 400)) as server:
        model = Model("m", base_url=server.base_url)
        with pytest.raises(ModelError) as caught:
            run("q", model=model, tools=tools(), on_text=on_text)
        assert len(server.requests) == 1
    message, status = str(caught.value), caught.value.status
    assert message.startswith("The model's server answered 400")
    assert message.endswith(f": {words}")
    assert status == 400


NO_TOOLS = "this model does not support tools"
WITHOUT_TOOLS = {
    "LM Studio": b'{"error": "%s"}',
    "xAI": b'{"code": "x", "error": "%s"}',
    "FastAPI": b'{"detail": "%s"}',
    "FastAPI, validation": b'{"detail": [{"loc": ["body"], "msg": "%s"}]}',
    "Gemini": b'[{"error": {"code": 400, "message": "%s"}}]',
    "OpenRouter": b'{"error": {"message": "upstream", "metadata": {"raw": "%s"}}}',
    "plain text": b"%s",
}


@pytest.mark.parametrize("body", WITHOUT_TOOLS.values(), ids=WITHOUT_TOOLS)
def test_refused_tools_are_recognised_in_whatever_shape(body: bytes) -> None:
    with ChatServer(Raw(body % NO_TOOLS.encode(), 400)) as server:
        model = Model("m", base_url=server.base_url)
        with pytest.raises(ToolsRefused, match=NO_TOOLS):
            model.complete(Request([Message("user", "q")]))


@pytest.mark.parametrize("on_text", [None, list[str]().append])
@pytest.mark.parametrize(
    "content_type", ["text/html; charset=utf-8", "text/event-stream"]
)
@pytest.mark.parametrize("status", [200, 404])
def test_a_page_asks_for_the_base_url(
    run: Runner, status: int, content_type: str, on_text: Any
) -> None:
    with ChatServer(Raw(HTML, status, {"content-type": content_type})) as server:
        base_url = server.base_url.removesuffix("/v1")
        with pytest.raises(ModelError, match="Not here") as caught:
            run(
                "q",
                model=Model("m", base_url=base_url),
                tools=tools(),
                on_text=on_text,
            )
        assert len(server.requests) == 1
    assert f"{base_url}/chat/completions" in str(caught.value)
    assert "Should base_url end in '/v1'?" in str(caught.value)


def test_a_missing_path_asks_for_the_base_url(run: Runner) -> None:
    with ChatServer(Raw(b'{"detail": "Not Found"}', 404)) as server:
        base_url = server.base_url.replace("/v1", "/api")
        with pytest.raises(ModelError, match=r"404 at .*/api/.*: Not Found") as caught:
            run("q", model=Model("m", base_url=f"{base_url}?key=secret"), tools=tools())
    assert "secret" not in str(caught.value)
    assert "Should base_url end in '/v1'?" in str(caught.value)


def test_an_answer_in_json_is_read_whatever_its_header_says(run: Runner) -> None:
    pieces: list[str] = []
    body = json.dumps(answer("done")).encode()
    with ChatServer(Raw(body, 200, {"content-type": "text/event-stream"})) as server:
        model = Model("m", base_url=server.base_url)
        result = run("q", model=model, tools=tools(), on_text=pieces.append)
    assert (result.text, pieces) == ("done", ["done"])


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_that_fails_names_where_it_led(run: Runner, status: int) -> None:
    with ChatServer(Raw(b'{"detail": "Method not allowed"}', 405)) as target:
        there = f"{target.base_url}/elsewhere?key=secret"
        with ChatServer(Raw(b"", status, {"location": there})) as server:
            with pytest.raises(ModelError, match="Method not allowed") as caught:
                run("q", model=Model("m", base_url=server.base_url), tools=tools())
            assert f"{server.base_url}/chat/completions" in str(caught.value)
        assert f"{target.base_url}/elsewhere" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_redirect_to_no_server_names_where_it_led(run: Runner) -> None:
    there = "http://127.0.0.1:9/elsewhere"
    with ChatServer(Raw(b"", 307, {"location": there})) as server:
        model = Model("m", base_url=server.base_url, retries=0)
        with pytest.raises(ModelError, match=there):
            run("q", model=model, tools=tools())


SAID = b'{"choices": [{"message": {"role": "assistant", "content": "so %b"}}]}'
ODD_TEXTS: dict[str, tuple[bytes, str]] = {
    "half an emoji": (SAID % rb"\ud83d", "so \ufffd"),
    "a whole one, in halves": (SAID % rb"\ud83d\ude00", "so \U0001f600"),
    "no UTF-8": (SAID % b"\xff", "so \ufffd"),
    "a mark at its beginning": (b"\xef\xbb\xbf" + SAID % b"be it", "so be it"),
}


@pytest.mark.parametrize(("body", "text"), ODD_TEXTS.values(), ids=ODD_TEXTS)
def test_one_odd_character_does_not_lose_the_reply(
    run: Runner, body: bytes, text: str
) -> None:
    with ChatServer(Raw(body), "done") as server:
        model = Model("m", base_url=server.base_url)
        result = run("q", model=model, tools=tools())
        assert result.text == text
        assert run("and?", model=model, history=result, tools=tools()).text == "done"


def test_what_json_does_not_know_is_not_sent_back(run: Runner) -> None:
    odd = b'{"choices": [{"message": {"content": null, "score": NaN, "tool_calls": [{"id": "c1", "type": "function", '
    odd += b'"function": {"name": "clock", "arguments": "{}"}}]}}]}'
    with ChatServer(Raw(odd), "done") as server:
        assert (
            run("q", model=Model("m", base_url=server.base_url), tools=tools()).text
            == "done"
        )


def test_retry_after_is_a_promise_to_keep(run: Runner) -> None:
    with ChatServer(Fault(429, headers={"Retry-After": "0.3"}), "done") as server:
        run("q", model=Model("m", base_url=server.base_url), tools=tools())
        (waited,) = waits(server)
    assert 0.3 <= waited < 5


def test_two_minutes_are_waited_for() -> None:
    with ChatServer(Fault(503, headers={"retry-after": "120"})) as server:
        result = asyncio.run(
            toolkit.arun_agent_with_tools(
                "q",
                model=Model("m", base_url=server.base_url),
                tools=(),
                limits=toolkit.Limits(seconds=0.5),  # ends the wait
            )
        )
        assert len(server.requests) == 1
    assert result.stop_reason == "limit_reached"


def test_more_than_two_minutes_are_not_waited_for(run: Runner) -> None:
    with ChatServer(Fault(503, headers={"retry-after": "120.1"})) as server:
        model = Model("m", base_url=server.base_url)
        with pytest.raises(ModelError, match="503"):
            run("q", model=model, tools=(), limits=toolkit.Limits(seconds=10))


def test_retry_after_in_milliseconds(run: Runner) -> None:
    headers = {"retry-after-ms": "200", "retry-after": "60"}
    with ChatServer(Fault(503, headers=headers), "done") as server:
        run("q", model=Model("m", base_url=server.base_url), tools=tools())
        (waited,) = waits(server)
    assert 0.2 <= waited < 5


@pytest.mark.parametrize("value", ["soon", "-1", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_retry_after_that_says_nothing_does_no_harm(value: str) -> None:
    with ChatServer(Fault(503, headers={"retry-after": value}), "done") as server:
        model = Model("m", base_url=server.base_url)
        assert (
            toolkit.run_agent_with_tools("q", model=model, tools=tools()).text == "done"
        )
        assert waits(server)[0] < 5


@pytest.mark.parametrize("retries", [0, 2])
def test_retries_are_counted(run: Runner, retries: int) -> None:
    with ChatServer(*[Fault(500, headers=SOON)] * (retries + 1)) as server:
        with pytest.raises(ModelError) as caught:
            run(
                "q",
                model=Model("m", base_url=server.base_url, retries=retries),
                tools=tools(),
            )
        assert len(server.requests) == retries + 1
    assert caught.value.status == 500


def test_retries_belong_to_the_request_and_no_tool_runs_twice(run: Runner) -> None:
    """agno-agi/agno#10366"""
    charged = []

    def charge() -> str:
        charged.append(1)
        return "charged"

    with ChatServer(
        answer(None, call("charge")), *[Fault(500, headers=SOON)] * 2, "done"
    ) as server:
        result = run("q", model=Model("m", base_url=server.base_url), tools=[charge])
        assert len(server.requests) == 4
    assert (result.text, result.run.turns, charged) == ("done", 2, [1])


def test_a_failed_run_is_attached_and_goes_on(run: Runner) -> None:
    ran = []

    def charge() -> str:
        ran.append(1)
        return "charged"

    with ChatServer(answer(None, call("charge")), Fault(400), "done", "well") as server:
        model = Model("m", base_url=server.base_url)
        with pytest.raises(ModelError) as caught:
            run("q", model=model, tools=[charge])
        left = caught.value.run
        assert [message.role for message in left.messages] == [
            "user",
            "assistant",
            "tool",
        ]
        assert toolkit.resume(left, model=model, tools=[charge]).text == "done"
        assert run("and?", model=model, tools=[charge], history=left).text == "well"
    assert ran == [1]


def test_a_server_that_is_not_there(run: Runner) -> None:
    with ChatServer() as server:
        address = server.base_url
    with pytest.raises(ModelError, match="could not be reached") as caught:
        run("q", model=Model("m", base_url=address, retries=0), tools=tools())
    assert address in str(caught.value)
    assert caught.value.status is None
    assert caught.value.run.turns == 0


def test_a_timeout_of_the_request(run: Runner) -> None:
    started = time.monotonic()
    with (
        ChatServer(Slow(30, "late")) as server,
        pytest.raises(ModelError, match="could not be reached"),
    ):
        run(
            "q",
            model=Model("m", base_url=server.base_url, retries=0),
            tools=tools(),
            timeout=0.2,
        )
    assert time.monotonic() - started < 5


# What goes along


def test_what_belongs_to_the_transport_and_what_to_the_body(run: Runner) -> None:
    with ChatServer("done") as server:
        run(
            "q",
            model=Model(
                "m",
                base_url=server.base_url,
                api_key="secret",
                temperature=0,
                top_p=0.5,
            ),
            tools=tools(),
            temperature=1,
            extra_body={"top_k": 3},
            extra_headers={"X-Team": "blue"},
            extra_query={"version": "2"},
            timeout=30,
        )
        (request,) = server.requests
    assert {
        key: request.body[key] for key in request.body.keys() - {"messages", "tools"}
    } == {
        "model": "m",
        "temperature": 1,
        "top_p": 0.5,
        "top_k": 3,
    }
    assert request.headers["x-team"] == "blue"
    assert request.headers["authorization"] == "Bearer secret"
    assert request.path == "/v1/chat/completions?version=2"


def test_strict_schemas_where_the_server_takes_them(run: Runner) -> None:
    with ChatServer("done", "done") as server:
        run("q", model=Model("m", base_url=server.base_url), tools=tools())
        run(
            "q",
            model=Model("m", base_url=server.base_url, info=ModelInfo(strict=True)),
            tools=tools(),
        )
        loose, strict = (body["tools"][0]["function"] for body in server.bodies)
    assert "strict" not in loose
    assert strict["strict"] is True


AT_OPENAI = {"by default": {}, "by name": {"base_url": "https://api.openai.com/v1"}}
ELSEWHERE = {
    "another": {"base_url": "http://127.0.0.1:1/v1"},
    "alike": {"base_url": "https://api.openai.com.evil/v1"},
}


def test_only_openai_itself_is_known_to_be_strict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert all(Model("m", **given).info.strict for given in AT_OPENAI.values())
    assert not any(Model("m", **given).info.strict for given in ELSEWHERE.values())
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert not Model("m").info.strict


# Clients


def test_a_name_keeps_its_client_and_its_connection() -> None:
    with ChatServer(*["done"] * 4) as server:
        for _ in range(2):
            toolkit.run_agent_with_tools(
                "q", model="m", base_url=server.base_url, tools=tools()
            )
        assert server.connections == 1

        async def twice() -> None:
            for _ in range(2):
                await toolkit.arun_agent_with_tools(
                    "q", model="m", base_url=server.base_url, tools=tools()
                )

        asyncio.run(twice())
        assert server.connections == 2


def test_another_key_is_another_client() -> None:
    with ChatServer("done", "done") as server:
        for key in ("one", "two"):
            toolkit.run_agent_with_tools(
                "q", model="m", base_url=server.base_url, api_key=key, tools=tools()
            )
        assert [request.headers["authorization"] for request in server.requests] == [
            "Bearer one",
            "Bearer two",
        ]


def test_a_model_serves_one_loop_after_the_other() -> None:
    with ChatServer(*["done"] * 3) as server:
        model = Model("m", base_url=server.base_url)
        for _ in range(2):
            asyncio.run(toolkit.arun_agent_with_tools("q", model=model, tools=tools()))
        toolkit.run_agent_with_tools("q", model=model, tools=tools())
        assert server.connections == 3


@pytest.mark.filterwarnings("error")
def test_a_model_that_is_gone_leaves_no_connection() -> None:
    """Warnings are errors here, also that a socket was not closed."""
    for _ in range(3):
        with ChatServer(Fault(400)) as server, pytest.raises(ModelError):
            toolkit.run_agent_with_tools(
                "q", model=Model("m", base_url=server.base_url), tools=tools()
            )
        gc.collect()


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """A server of one run: a call, then the answer."""
    with ChatServer(ASKS_CLOCK, "done") as made:
        yield made


def check(run: Runner, server: ChatServer, client: Any, **options: Any) -> None:
    """The client is used, and still open afterwards."""
    result = run("q", model="m", client=client, tools=tools(), **options)
    assert (result.text, [record.content for record in result.calls]) == (
        "done",
        ["noon UTC"],
    )
    assert len(server.requests) == 2
    assert server.connections == 1


@pytest.fixture
def plain(server: ChatServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=server.base_url, api_key="theirs") as client:
        yield client


def test_a_client_of_the_sdk(
    run: Runner, server: ChatServer, plain: openai.OpenAI
) -> None:
    check(run, server, plain)
    assert server.requests[0].headers["authorization"] == "Bearer theirs"
    assert not plain.is_closed()


def test_an_azure_client_keeps_its_address(run: Runner, server: ChatServer) -> None:
    endpoint = server.base_url.removesuffix("/v1")
    with openai.AzureOpenAI(
        azure_endpoint=endpoint, api_key="k", api_version="2026-01-01"
    ) as client:
        check(run, server, client)
    assert (
        server.requests[0].path
        == "/openai/deployments/m/chat/completions?api-version=2026-01-01"
    )


def test_an_async_client_under_the_sync_driver(server: ChatServer) -> None:
    client = openai.AsyncOpenAI(base_url=server.base_url, api_key="k")
    check(toolkit.run_agent_with_tools, server, client)
    close_where_it_was_used(client)


def test_an_async_client_under_the_async_driver(server: ChatServer) -> None:
    async def main() -> RunResult:
        async with openai.AsyncOpenAI(base_url=server.base_url, api_key="k") as client:
            return await toolkit.arun_agent_with_tools(
                "q", model="m", client=client, tools=tools()
            )

    assert asyncio.run(main()).text == "done"


def close_where_it_was_used(client: openai.AsyncOpenAI) -> None:
    """Its connections belong to the loop that the async tools of the sync driver share."""

    async def close() -> None:
        await client.close()

    registry = ToolRegistry([close])
    assert not registry.call("close", "{}").is_error


def test_a_client_whose_method_is_wrapped_is_used_through_it(
    run: Runner, server: ChatServer, plain: openai.OpenAI
) -> None:
    seen: list[str] = []
    create = plain.chat.completions.create

    def traced(**fields: Any) -> Any:
        seen.append(fields["model"])
        return create(**fields)

    plain.chat.completions.create = traced
    check(run, server, plain)
    assert seen == ["m", "m"]


class Proxy:
    """As wrapt makes one: looks in all like what it wraps, also when it is bound."""

    def __init__(self, wrapped: Any, seen: list[str]) -> None:
        self.__dict__.update(wrapped=wrapped, seen=seen)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    @property
    def __class__(self) -> Any:
        return self.wrapped.__class__

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return (
            Proxy(self.wrapped.__get__(owner, kind), self.seen)
            if owner is not None
            else self
        )

    def __call__(self, *positional: Any, **named: Any) -> Any:
        self.seen.append("proxied")
        return self.wrapped(*positional, **named)


def look_alike(create: Any, seen: list[str]) -> Any:
    @functools.wraps(create)
    def traced(self: Any, **fields: Any) -> Any:
        seen.append("wrapped")
        return create(self, **fields)

    return traced


@pytest.mark.parametrize(
    "wrap", [look_alike, Proxy], ids=["functools.wraps", "a proxy"]
)
def test_a_class_whose_method_is_wrapped_is_used_through_it(
    run: Runner,
    server: ChatServer,
    plain: openai.OpenAI,
    monkeypatch: pytest.MonkeyPatch,
    wrap: Any,
) -> None:
    """That is how tracers do it, for all clients of a program."""
    from openai.resources.chat.completions import Completions

    seen: list[str] = []
    monkeypatch.setattr(Completions, "create", wrap(Completions.create, seen))
    check(run, server, plain)
    assert len(seen) == 2


def fake(create: Any) -> Any:
    return SimpleNamespace(
        chat=SimpleNamespace(completions=SimpleNamespace(create=create))
    )


def script() -> Iterator[Any]:
    """Replies as dicts and as the SDK's objects."""
    yield ASKS_CLOCK
    yield openai.types.chat.ChatCompletion.model_validate(answer("done"))


class AwaitedLater:
    """What is awaited, though no coroutine function made it."""

    def __init__(self, reply: Any) -> None:
        self.reply = reply

    def __await__(self) -> Any:
        yield from asyncio.sleep(0).__await__()
        return self.reply


def fakes(kind: str, seen: list[Any], note: Callable[[], Any] | None = None) -> Any:
    """A client that plays the script and notes what it was asked, or what `note` says meanwhile."""
    replies = script()

    def create(**fields: Any) -> Any:
        seen.append(note() if note else fields)
        return next(replies)

    async def acreate(**fields: Any) -> Any:
        await asyncio.sleep(0)
        return create(**fields)

    makers = {
        "sync": create,
        "async": acreate,
        "awaitable": lambda **fields: AwaitedLater(create(**fields)),
    }
    return fake(makers[kind])


@pytest.mark.parametrize("kind", ["sync", "async", "awaitable"])
def test_a_fake_needs_nothing_but_create(run: Runner, kind: str) -> None:
    seen: list[Any] = []
    client = fakes(kind, seen)
    result = run(
        "q",
        model="m",
        client=client,
        tools=tools(),
        temperature=0,
        extra_body={"x": 1},
        timeout=9,
    )
    assert (result.text, [record.content for record in result.calls]) == (
        "done",
        ["noon UTC"],
    )
    assert (seen[0]["model"], seen[0]["temperature"]) == ("m", 0)
    assert (seen[0]["x"], seen[0]["timeout"]) == (1, 9)
    assert (
        seen[1]["messages"][1]["tool_calls"]
        == ASKS_CLOCK["choices"][0]["message"]["tool_calls"]
    )


user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")


@pytest.mark.parametrize("kind", ["sync", "async", "awaitable"])
def test_a_client_sees_the_context_of_its_caller(run: Runner, kind: str) -> None:
    """Tracers keep the span to which a request belongs in a context variable."""
    seen: list[Any] = []
    token = user.set("ann")
    try:
        run("q", model="m", client=fakes(kind, seen, user.get), tools=tools())
    finally:
        user.reset(token)
    assert seen == ["ann", "ann"]


def test_what_a_fake_raises_passes_with_the_run_attached(run: Runner) -> None:
    def create(**fields: Any) -> Any:
        raise LookupError("no such tape")

    with pytest.raises(LookupError, match="no such tape") as caught:
        run("q", model="m", client=fake(create), tools=tools())
    assert getattr(caught.value, "run").messages == (Message("user", "q"),)  # noqa: B009  # no attribute of its type


# Which model


def test_nothing_configured_names_the_three_ways_out(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(ModelError) as caught:
        run("q", tools=tools())
    for way in ("model=", "$TOOLKIT_MODEL", "$OPENAI_API_KEY", "toolkit-agent[local]"):
        assert way in str(caught.value)


@pytest.mark.local
def test_nothing_configured_takes_the_embedded_one() -> None:
    assert type(find_model(None)).__name__ == "LocalModel"


@pytest.mark.parametrize(
    "key", ["k", None], ids=["a key", "a server that wants no key"]
)
def test_the_environment_names_the_model(
    run: Runner, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChatServer("done") as server:
        monkeypatch.setenv("TOOLKIT_MODEL", "theirs")
        if key:
            monkeypatch.setenv("OPENAI_API_KEY", key)
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        assert run("q", tools=tools()).text == "done"
        assert server.bodies[0]["model"] == "theirs"


def test_a_key_alone_takes_openais_model(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ChatServer("done") as server:
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        run("q", tools=tools())
        assert server.bodies[0]["model"] == OPENAI_MODEL
        assert server.requests[0].headers["authorization"] == "Bearer k"


def test_what_a_server_answered_is_told_once(run: Runner) -> None:
    with (
        ChatServer(Fault(400, "no such model")) as server,
        pytest.raises(ModelError, match="no such") as caught,
    ):
        run("q", model="m", base_url=server.base_url, tools=tools())
    assert str(caught.value).count("400") == 1


def test_a_name_with_a_colon_is_a_name(run: Runner) -> None:
    with ChatServer("done") as server:
        run("q", model="llama3.2:1b", base_url=server.base_url, tools=tools())
        assert server.bodies[0]["model"] == "llama3.2:1b"


def test_a_server_without_a_key_gets_some_key(run: Runner) -> None:
    with ChatServer("done") as server:
        run("q", model="m", base_url=server.base_url, tools=tools())
        assert server.requests[0].headers["authorization"].startswith("Bearer ")


def test_openai_without_a_key_is_told(run: Runner) -> None:
    with pytest.raises(ModelError, match=r"(?i)api_key"):
        run("q", model="gpt-5.4-mini", tools=tools())


def test_a_server_without_a_model_name(run: Runner) -> None:
    with pytest.raises(ValueError, match="model="):
        run("q", base_url="http://127.0.0.1:1/v1", tools=tools())


@pytest.mark.parametrize(
    "model",
    [3, Model, object(), ["m"]],
    ids=["a number", "the class", "an object", "a list"],
)
def test_what_is_no_model_is_refused_at_once(run: Runner, model: Any) -> None:
    with pytest.raises(TypeError, match="model"):
        run("q", model=model, tools=tools())


@pytest.mark.parametrize(
    "given",
    [{"client": object()}, {"base_url": "http://x"}, {"api_key": "k"}],
    ids="-".join,
)
def test_what_belongs_to_the_model_object(run: Runner, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"Model\("):
        run("q", model=ScriptedModel(["done"]), tools=tools(), **given)


TYPOS = {
    "max_turn": "max_turns",
    "tool": "tools",
    "instruction": "instructions",
    "limit": "limits",
    "base_ur": "base_url",
    "baseurl": "base_url",
    "apikey": "api_key",
    "tools_choice": "tool_choice",
    "aprove": "approve",
    "histroy": "history",
}


@pytest.mark.parametrize(("typo", "meant"), TYPOS.items(), ids=TYPOS)
def test_a_misspelled_parameter_is_told(run: Runner, typo: str, meant: str) -> None:
    model = ScriptedModel(["done"])
    with pytest.raises(TypeError, match=f"{typo}.*{meant}"):
        run("q", model=model, tools=tools(), **{typo: 3})
    assert not model.requests


MODEL_TYPOS = {
    "baseurl": "base_url",
    "apikey": "api_key",
    "api_keys": "api_key",
    "clients": "client",
}


@pytest.mark.parametrize(("typo", "meant"), MODEL_TYPOS.items(), ids=MODEL_TYPOS)
def test_a_misspelled_parameter_of_a_model_is_told(typo: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"{typo}.*{meant}"):
        Model("m", **{typo: 3})


FIELDS = sorted(
    inspect.signature(
        openai.OpenAI(api_key="k").chat.completions.create
    ).parameters.keys()
    - inspect.signature(toolkit.run_agent_with_tools).parameters.keys()
    - {
        "messages",
        "stream",
        "stream_options",
        "functions",
        "function_call",
        "n",
        "store",
    }
)


def test_no_field_of_the_api_is_taken_for_a_typo(run: Runner) -> None:
    model = ScriptedModel(["done"])
    run("q", model=model, tools=tools(), **dict.fromkeys(FIELDS, 1))
    assert model.requests[0].options.keys() == set(FIELDS)


TAKEN = ["messages", "stream"]
PROMISED = [
    "output_type",
    "retrieve",
    "mode",
    "on_text",
    "audit",
    "store",
    "run_id",
    "cancel",
]
STILL_TO_COME = [
    name
    for name in PROMISED
    if name not in inspect.signature(toolkit.run_agent_with_tools).parameters
]


@pytest.mark.parametrize("name", [*TAKEN, *STILL_TO_COME])
def test_what_a_run_cannot_do_is_no_field_of_the_request(
    run: Runner, name: str
) -> None:
    """`mode="plan"` would run everything, and `messages=` would take the conversation's place."""
    model = ScriptedModel(["done"])
    with pytest.raises(TypeError, match=name):
        run("q", model=model, tools=tools(), **{name: "plan"})
    assert not model.requests


# The scripted model

REPLIES: dict[str, tuple[Any, tuple[str, list[str]]]] = {
    "a text": ("so", ("so", [])),
    "an empty text": ("", ("", [])),
    "a call": (ToolCall("a", "clock"), ("", ["clock"])),
    "calls": (
        [ToolCall("a", "clock"), ToolCall("b", "clock")],
        ("", ["clock", "clock"]),
    ),
    "a message": (
        Message("assistant", "so", (ToolCall("a", "clock"),)),
        ("so", ["clock"]),
    ),
    "a reply": (Reply(Message("assistant", "so"), Usage(1, 2)), ("so", [])),
}


@pytest.mark.parametrize(("played", "said"), REPLIES.values(), ids=REPLIES)
def test_a_scripted_reply(run: Runner, played: Any, said: Any) -> None:
    with ScriptedModel([played, *["done"] * bool(said[1])]) as model:
        result = run("q", model=model, tools=tools())
    first = next(message for message in result.messages if message.role == "assistant")
    assert (first.text, [one.name for one in first.tool_calls]) == said
    assert all(one.raw == "{}" for one in first.tool_calls)


def test_a_script_may_be_a_function(run: Runner) -> None:
    def reply(request: Any) -> Any:
        return (
            ToolCall("", "clock")
            if len(request.messages) == 1
            else f"seen {request.messages[-1].tool_results[0].content}"
        )

    assert run("q", model=ScriptedModel(reply), tools=tools()).text == "seen noon UTC"


def test_what_was_asked_is_recorded(run: Runner) -> None:
    model = ScriptedModel([ToolCall("a", "clock"), "done"])
    run("q", model=model, tools=tools(), tool_choice="required", temperature=0)
    first, second = model.requests
    assert first.messages == (Message("user", "q"),)
    assert [tool.name for tool in first.tools] == ["clock"]
    assert (first.tool_choice, second.tool_choice) == ("required", "auto")
    assert first.options == {"temperature": 0}
    assert [message.role for message in second.messages] == [
        "user",
        "assistant",
        "tool",
    ]


def test_a_scripted_exception_is_raised(run: Runner) -> None:
    with pytest.raises(ModelError, match="down") as caught:
        run(
            "q",
            model=ScriptedModel(
                [ToolCall("a", "clock"), ModelError("down", status=503)]
            ),
            tools=tools(),
        )
    assert len(caught.value.run.messages) == 3


def test_a_request_past_the_script_fails(run: Runner) -> None:
    with pytest.raises(AssertionError, match="script has ended"):
        run("q", model=ScriptedModel([ToolCall("a", "clock")]), tools=tools())


def test_replies_left_over_fail() -> None:
    with (
        pytest.raises(AssertionError, match=r"1 replies are left.*never"),
        ScriptedModel(["done", "never"]) as model,
    ):
        toolkit.run_agent_with_tools("q", model=model, tools=tools())


def test_an_error_inside_is_not_hidden_by_replies_left_over() -> None:
    with pytest.raises(ZeroDivisionError), ScriptedModel(["never"]):
        raise ZeroDivisionError


def test_a_script_of_something_else_is_refused(run: Runner) -> None:
    with pytest.raises(TypeError, match="3 is not a scripted reply"):
        run("q", model=ScriptedModel([3]), tools=tools())


def test_a_server_that_refuses_null_gets_an_empty_text(run: Runner) -> None:
    with ChatServer(ASKS_CLOCK, "nine") as server:
        model = Model("m", base_url=server.base_url, info=ModelInfo(null_content=False))
        run("q", model=model, tools=tools())
    assert server.bodies[1]["messages"][1]["content"] == ""


def test_refusing_null_does_no_harm_on_a_wire_that_sends_none(run: Runner) -> None:
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "nine"}],
    }
    client = SimpleNamespace(
        responses=SimpleNamespace(
            create=lambda **_: {"status": "completed", "output": [said]}
        )
    )
    model = Model(
        "m", wire="responses", client=client, info=ModelInfo(null_content=False)
    )
    assert str(run("q", model=model, tools=[])) == "nine"


def test_one_call_at_a_time_is_asked_for_where_a_model_makes_no_more(
    run: Runner,
) -> None:
    with ChatServer("done", "done") as server:
        model = Model(
            "m", base_url=server.base_url, info=ModelInfo(parallel_calls=False)
        )
        run("q", model=model, tools=tools())
        run("q", model=model, tools=[])
    assert [body.get("parallel_tool_calls") for body in server.bodies] == [False, None]
