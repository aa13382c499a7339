"""`retrieval`: which of many tools a turn shows."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkit import (
    Message,
    RunResult,
    ScriptedModel,
    Tool,
    ToolCall,
    ToolError,
    ToolRegistry,
    ToolResult,
    tool,
)
from toolkit.retrieval import best, embeddings, find_tools, hybrid, recall_at
from toolkit.tools.request import Request, Retriever
from toolkit.tools.tool import as_tool


def made(name: str, description: str = "", **options: Any) -> Tool:
    return as_tool(
        lambda: f"{name} was run", {"name": name, "description": description, **options}
    )


WEATHER = made("get_weather", "Current weather for a city: temperature, rain, wind.")
MAIL = made("send_mail", "Send a message to somebody.")
TABLE = made("book_table", "Reserves seats at a restaurant.")
TRAIN = made("find_train", "Timetable of trains between two cities.")
JAPANESE = made("tenki", "都市の天気予報を調べる")
TOOLS = (WEATHER, MAIL, TABLE, TRAIN, JAPANESE)


def ask(*texts: str) -> list[Message]:
    """A conversation that ends with a request; before it, requests and answers take turns."""
    roles = ("user", "assistant") if len(texts) % 2 else ("assistant", "user")
    return [Message(roles[place % 2], text) for place, text in enumerate(texts)]  # type: ignore[arg-type]


def shown(
    retriever: Retriever,
    messages: Sequence[Message] | str,
    tools: Sequence[Tool] = TOOLS,
) -> list[str]:
    return [
        tool.name
        for tool in retriever(
            ask(messages) if isinstance(messages, str) else messages, tools
        )
    ]


# The best by words


@pytest.mark.parametrize(
    ("request_text", "names"),
    [
        pytest.param("Will it rain?", ["get_weather"], id="description"),
        pytest.param(
            "mail the weather",
            ["get_weather", "send_mail"],
            id="in the order of the tools, not of the ranks",
        ),
        pytest.param("東京の天気は？", ["tenki"], id="Japanese"),
        pytest.param("what is the square root of nine", [], id="nothing fits"),
        pytest.param("", [], id="nothing is said"),
    ],
)
def test_the_tools_that_fit_best_are_shown(request_text: str, names: list[str]) -> None:
    assert shown(best(3), request_text) == names


def test_at_most_k_are_shown() -> None:
    tools = [made(f"search_{number}", "Search in documents.") for number in range(20)]
    assert len(shown(best(7), "search the documents", tools)) == 7


def test_the_order_does_not_follow_the_request() -> None:
    assert (
        shown(best(2), "mail about trains")
        == shown(best(2), "trains, in a mail, by trains")
        == ["send_mail", "find_train"]
    )


def test_tags_and_keywords_are_read() -> None:
    tagged = made("act", "Do it.", keywords=("forecast",), tags=("meteorology",))
    assert (
        shown(best(1), "a forecast", [MAIL, tagged])
        == shown(best(1), "meteorology", [MAIL, tagged])
        == ["act"]
    )


@pytest.mark.parametrize(
    "always", ["send_mail", ["send_mail"], MAIL, [MAIL], {"send_mail": 1}]
)
def test_what_is_always_shown_comes_first(always: Any) -> None:
    assert shown(best(1, always=always), "trains") == ["send_mail", "find_train"]
    assert shown(best(1, always=always), "nothing of the kind") == ["send_mail"]


def test_what_is_always_shown_takes_no_place_of_the_others() -> None:
    tools = [*TOOLS, find_tools(TOOLS)]
    assert shown(best(1, always=TRAIN), "find a tool, find a train, mail", tools) == [
        "send_mail",
        "find_train",
        "find_tools",
    ]


def test_a_changed_description_is_seen() -> None:
    tools = [made("a"), made("b")]
    retriever = best(1)
    assert shown(retriever, "xyzzy", tools) == []
    tools[1].description = "Now it is about xyzzy."
    assert shown(retriever, "xyzzy", tools) == ["b"]


def test_always_takes_functions() -> None:
    def remember(text: str) -> None:
        """Keep a note."""

    @tool(name="forget_all", registry=ToolRegistry())
    def forget() -> None:
        """Drop the notes."""

    tools = [WEATHER, as_tool(remember), as_tool(forget)]
    assert shown(best(1, always=[remember, forget]), "rain", tools) == [
        "get_weather",
        "remember",
        "forget_all",
    ]
    assert shown(best(1, always=remember), "rain", tools) == ["get_weather", "remember"]


def test_always_names_tools_of_the_run() -> None:
    with pytest.raises(
        ValueError, match=r"always= names \['send_male'\], which the run does not have"
    ):
        best(1, always=["send_male", "send_mail"])(ask("mail"), TOOLS)


@pytest.mark.parametrize("k", [0, -1, 2.0, True, None, "3"])
@pytest.mark.parametrize(
    "make", [best, lambda k: hybrid(embed, k), lambda k: find_tools(TOOLS, k)]
)
def test_k_is_a_number_of_tools(make: Callable[..., Any], k: Any) -> None:
    with pytest.raises(ValueError, match="must be a number of tools"):
        make(k)


def test_a_threshold_keeps_weak_ones_out() -> None:
    assert shown(
        best(5, threshold=2.0), "a message about the trains between cities"
    ) == ["find_train"]
    assert shown(best(5), "a message about the trains between cities") == [
        "get_weather",
        "send_mail",
        "find_train",
    ]


# The conversation


def test_a_follow_up_finds_the_tool_of_the_request_before() -> None:
    assert shown(
        best(1), ask("What is the weather in Oslo?", "It rains.", "And in Paris?")
    ) == ["get_weather"]
    assert shown(best(1), ask("And in Paris?")) == []


def test_the_last_request_counts_most() -> None:
    before = "What is the weather in Oslo, is there rain or wind, which temperature?"
    assert shown(best(1), ask(before, "It rains.", "Mail that to Ann.")) == [
        "send_mail"
    ]
    assert shown(best(2), ask(before, "It rains.", "Mail that to Ann.")) == [
        "get_weather",
        "send_mail",
    ]


@pytest.mark.parametrize(
    "last",
    [
        pytest.param(
            Message("assistant", "First I look at the timetable of the trains."),
            id="what the model said",
        ),
        pytest.param(
            Message("tool", tool_results=(ToolResult("c1", "Name a train first."),)),
            id="what a tool said",
        ),
    ],
)
def test_what_came_after_the_request_counts(last: Message) -> None:
    assert shown(best(3), [*ask("Mail it to Ann"), last]) == ["send_mail", "find_train"]


def test_instructions_do_not_count() -> None:
    assert shown(
        best(3),
        [Message("system", "You know the weather and the trains."), *ask("Mail it")],
    ) == ["send_mail"]


def test_a_request_around_a_long_text_is_found() -> None:
    letter = "Dear Sir, " * 20_000
    assert (
        shown(best(1), f"{letter}\nMail this.")
        == shown(best(1), f"Mail this: {letter}")
        == ["send_mail"]
    )


# Words and embeddings

CONCEPTS = {
    **dict.fromkeys(["umbrella", "weather", "rain", "sunny"], 0),
    **dict.fromkeys(["dinner", "restaurant", "seats", "hungry"], 1),
    **dict.fromkeys(["message", "mail", "notify"], 2),
    **dict.fromkeys(["train", "trains", "travel"], 3),
}


def embed(texts: list[str]) -> list[list[float]]:
    """How often each of four concepts is spoken of."""
    spoken = [
        [CONCEPTS.get(word, -1) for word in re.findall("[a-z]+", text.lower())]
        for text in texts
    ]
    return [
        [float(concepts.count(concept)) for concept in range(4)] for concepts in spoken
    ]


class Counting:
    """An embedding function that notes what it was asked, and fails as it is told."""

    def __init__(self, play: Callable[[list[str]], Any] = embed) -> None:
        self.play, self.asked = play, []  # type: ignore[var-annotated]

    def __call__(self, texts: list[str]) -> Any:
        self.asked.append(list(texts))
        return self.play(texts)


def test_hybrid_finds_what_shares_no_word() -> None:
    assert shown(best(1), "Do I need an umbrella? I am hungry.") == []
    assert shown(hybrid(embed, 1), "Do I need an umbrella?") == ["get_weather"]
    assert shown(hybrid(embed, 2), "An umbrella, and dinner!") == [
        "get_weather",
        "book_table",
    ]


def test_hybrid_finds_what_shares_a_word_and_no_meaning() -> None:
    assert "find_train" in shown(
        hybrid(embed, 2, similarity=0.9), "a timetable, and an umbrella"
    )


def test_both_ranks_count() -> None:
    tools = [
        made("one", "umbrella"),
        made("two", "weather and seats at noon"),
        made("three", "noon"),
    ]
    assert shown(hybrid(embed, 1), "rain, at noon", tools) == ["two"]


def test_hybrid_reads_the_conversation() -> None:
    messages = ask("Do I need an umbrella?", "No.", "And in Paris?")
    assert shown(hybrid(embed, 1), messages) == ["get_weather"]


@pytest.mark.parametrize("text", ["xyzzy plugh", "", "  "])
def test_hybrid_shows_nothing_where_nothing_fits(text: str) -> None:
    assert shown(hybrid(embed, 5), text) == []
    assert shown(hybrid(embed, 1, always=MAIL), text) == ["send_mail"]


def test_tools_are_embedded_once_by_what_they_say() -> None:
    counting = Counting()
    retriever = hybrid(counting, 2)
    for _ in range(3):
        shown(retriever, "umbrella")
    assert [len(texts) for texts in counting.asked] == [1, len(TOOLS), 1, 1]
    again = [
        made(each.name, each.description) for each in TOOLS[1:]
    ]  # other objects, as after a reload
    assert shown(
        retriever, "umbrella", [made("get_weather", "How sunny it is."), *again]
    ) == ["get_weather"]
    assert counting.asked[4:] == [["umbrella"], ["get_weather: How sunny it is."]]


def test_runs_at_once_embed_the_tools_once() -> None:
    barrier = threading.Barrier(4, timeout=30)

    def together(texts: list[str]) -> list[list[float]]:
        if len(texts) == 1:
            barrier.wait()
        return embed(texts)

    counting = Counting(together)
    retriever = hybrid(counting, 1)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: shown(retriever, "umbrella"), range(4)))
    assert found == [["get_weather"]] * 4
    assert sorted(len(texts) for texts in counting.asked) == [1, 1, 1, 1, len(TOOLS)]


def fail(texts: list[str]) -> Any:
    raise ConnectionError("nobody is there")


@pytest.mark.parametrize(
    ("play", "why"),
    [
        pytest.param(fail, "nobody is there", id="it raises"),
        pytest.param(
            lambda texts: embed(texts)[1:], "1 texts got 0 embeddings", id="too few"
        ),
        pytest.param(
            lambda texts: [["x"] for _ in texts], "could not convert", id="text"
        ),
        pytest.param(lambda texts: None, "not iterable", id="nothing"),
        pytest.param(
            lambda texts: [[1.0] * n for n, _ in enumerate(texts, 1)],
            "unequal",
            id="of unequal length",
        ),
    ],
)
def test_words_decide_where_embeddings_fail(
    play: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    counting = Counting(play)
    retriever = hybrid(counting, 1)
    with caplog.at_level(logging.WARNING, "toolkit"):
        assert shown(retriever, "Will it rain?") == ["get_weather"]
    assert "words alone choose the tools for 60 s" in caplog.text
    assert why in caplog.text
    asked = len(counting.asked)
    assert shown(retriever, "A mail, please") == ["send_mail"]
    assert len(counting.asked) == asked, "it is left alone for a while"


@pytest.mark.parametrize("odd", ["nan", "inf", "0"])
def test_odd_numbers_speak_for_no_tool(odd: str) -> None:
    retriever = hybrid(lambda texts: [[float(odd), 0.0] for _ in texts], 1)
    assert shown(retriever, "Will it rain?") == ["get_weather"]
    assert shown(retriever, "xyzzy") == []


def test_an_interruption_passes() -> None:
    def interrupt(texts: list[str]) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shown(hybrid(interrupt, 1), "rain")


async def embed_later(texts: list[str]) -> list[list[float]]:
    return embed(texts)


@pytest.mark.parametrize("wrong", [embed_later, None, "text-embedding-3-small"])
def test_embed_is_a_plain_function(wrong: Any) -> None:
    with pytest.raises(TypeError, match="embed must be a plain function"):
        hybrid(wrong)


# An endpoint


class EmbeddingServer(ThreadingHTTPServer):
    """`POST /v1/embeddings` on loopback, as OpenAI has it; it answers in another order than it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.bodies: list[dict[str, Any]] = []
        self.base_url = f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Connection(BaseHTTPRequestHandler):
    server: EmbeddingServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append({"path": self.path, **body})
        data = [
            {"object": "embedding", "index": i, "embedding": v}
            for i, v in enumerate(embed(body["input"]))
        ]
        answer = json.dumps(
            {"object": "list", "model": "m", "data": data[::-1], "usage": {}}
        ).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Be quiet."""


@pytest.fixture
def endpoint() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield server
        server.shutdown()


def test_embeddings_come_in_batches_and_in_order(endpoint: EmbeddingServer) -> None:
    texts = ["rain", "dinner", "mail", "train", "umbrella"]
    ask_endpoint = embeddings("m", base_url=endpoint.base_url, batch=2, dimensions=6)
    assert ask_endpoint(texts) == embed(texts)
    assert [body["input"] for body in endpoint.bodies] == [
        ["rain", "dinner"],
        ["mail", "train"],
        ["umbrella"],
    ]
    sent = {
        "path": "/v1/embeddings",
        "model": "m",
        "encoding_format": "float",
        "dimensions": 6,
    }
    assert all(body.items() >= sent.items() for body in endpoint.bodies)


def test_hybrid_over_an_endpoint(endpoint: EmbeddingServer) -> None:
    retriever = hybrid(embeddings("m", base_url=endpoint.base_url), 1)
    assert shown(retriever, "Do I need an umbrella?") == ["get_weather"]
    assert len(endpoint.bodies) == 2


def test_a_client_of_ones_own(endpoint: EmbeddingServer) -> None:
    from openai import AsyncOpenAI, OpenAI

    with OpenAI(base_url=endpoint.base_url, api_key="some-key") as client:
        assert embeddings("m", client=client)(["rain"]) == embed(["rain"])
    with pytest.raises(TypeError, match="asynchronous"):
        embeddings(
            "m", client=AsyncOpenAI(base_url=endpoint.base_url, api_key="some-key")
        )


def test_nobody_at_the_endpoint(caplog: pytest.LogCaptureFixture) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Connection) as closed:
        port = closed.server_address[1]
    retriever = hybrid(embeddings("m", base_url=f"http://127.0.0.1:{port}/v1"), 1)
    with caplog.at_level(logging.WARNING, "toolkit"):
        assert shown(retriever, "Will it rain?") == ["get_weather"]
    assert "words alone" in caplog.text


# Tools that find tools


def found_in(finder: Tool, query: str) -> Any:
    return ToolRegistry([finder]).call(finder.name, {"query": query}).value


def test_tools_to_be_found_are_given_as_to_a_run() -> None:
    assert [
        each["name"] for each in found_in(find_tools("batch_tools"), "append a line")
    ] == ["append"]
    assert recall_at([("append a line", "append")], 1, "batch_tools").rate == 1.0


def test_the_model_finds_more_tools() -> None:
    assert found_in(find_tools(TOOLS), "rain") == [
        {
            "name": "get_weather",
            "description": WEATHER.description,
            "parameters": WEATHER.parameters,
        }
    ]
    assert [
        each["name"]
        for each in found_in(find_tools(TOOLS, 2), "weather, mail, trains, restaurant")
    ] != []
    assert len(found_in(find_tools(TOOLS, 2), "weather, mail, trains, restaurant")) == 2
    assert (
        found_in(find_tools(TOOLS), "xyzzy")
        == "No tool fits this. Say it in other words, or do without."
    )
    assert find_tools(TOOLS).permission == "read"


def test_find_tools_reads_a_registry_anew_and_leaves_itself_out() -> None:
    registry = ToolRegistry([MAIL])
    finder = find_tools(registry)
    registry.register_tool(finder)
    assert (
        found_in(finder, "find tools for trains")
        == "No tool fits this. Say it in other words, or do without."
    )
    registry.register_tool(TRAIN)
    assert [each["name"] for each in found_in(finder, "find trains")] == ["find_train"]


def after_search(finder: Tool, query: str, name: str = "find_tools") -> list[Message]:
    """A conversation in which `name` was called and answered what the finder answers."""
    content = ToolRegistry([finder]).call("find_tools", {"query": query}).content
    call = Message("assistant", tool_calls=(ToolCall("c1", name, {"query": query}),))
    return [
        *ask("xyzzy"),
        call,
        Message("tool", tool_results=(ToolResult("c1", content),)),
    ]


def test_what_was_found_comes_into_view() -> None:
    dotted = made("rail.find_train", "Timetable of trains.")
    finder = find_tools([*TOOLS, dotted], 2)
    tools = [*TOOLS, dotted, finder]
    messages = after_search(finder, "timetable of trains")
    assert shown(best(1), "xyzzy", tools) == ["find_tools"]
    assert {"find_train", "rail.find_train", "find_tools"} == {
        *shown(best(1), messages, tools)
    }
    assert {"find_train", "rail.find_train"} <= {
        *shown(best(1), [*messages, *ask("plugh")], tools)
    }, "and stays there"


def test_what_was_found_is_read_from_a_cut_text_as_well() -> None:
    long = made("find_train", "Trains. " * 100)
    finder = find_tools([long])
    before, call, answered = after_search(finder, "trains")
    cut = ToolResult("c1", answered.tool_results[0].content[:100])
    assert "find_train" in shown(
        best(1), [before, call, Message("tool", tool_results=(cut,))], [long, finder]
    )


def test_what_was_found_takes_no_place_of_the_others() -> None:
    finder = find_tools(TOOLS, 2)
    tools = [*TOOLS, finder]
    search = after_search(finder, "seats, or a timetable of trains between cities")[1:]
    asked = Message("user", "A message on the weather.")
    assert shown(best(2), [asked], tools) == ["get_weather", "send_mail", "find_tools"]
    assert shown(best(2), [asked, *search], tools) == [
        "get_weather",
        "send_mail",
        "book_table",
        "find_train",
        "find_tools",
    ]


def test_only_find_tools_brings_tools_into_view() -> None:
    finder = find_tools(TOOLS)
    messages = after_search(finder, "timetable", name="read_page")
    assert "find_train" not in shown(
        best(1),
        [*messages, Message("user", "mail"), Message("assistant", "x")] * 3,
        [*TOOLS, finder],
    )


# Many tools, of which one looks like the request

FILLERS = (
    *("order_lunch", "order_taxi", "order_flowers", "cancel_meeting", "cancel_trip"),
    *(
        f"{verb}_{noun}"
        for verb in ("export", "archive", "rename", "print")
        for noun in (
            "invoice",
            "report",
            "photo",
            "contract",
            "playlist",
            "calendar",
            "ticket",
            "survey",
        )
    ),
)


def shop() -> list[Tool]:
    """40 tools, three of which are needed to cancel somebody's last order."""

    def find_customer() -> str:
        """Look up who is speaking, by e-mail address."""
        return '{"customer_id": 7}'

    def list_orders(customer_id: int) -> str:
        """What a customer bought, with numbers and days."""
        return '[{"number": 31}, {"number": 32}]'

    def cancel_order(number: int = 0) -> str:
        """Cancel an order that was not sent yet."""
        if not number:
            raise ToolError(
                "number is missing. What a customer bought is shown with numbers and days."
            )
        return "cancelled"

    others = [made(name, f"{name.replace('_', ' ').capitalize()}.") for name in FILLERS]
    return [
        *others[:20],
        *map(as_tool, (find_customer, list_orders, cancel_order)),
        *others[20:],
    ]


NEEDED = {
    "find_customer": {},
    "list_orders": {"customer_id": 7},
    "cancel_order": {"number": 32},
}
QUERIES = {
    "find_customer": "look up the customer",
    "list_orders": "what the customer bought",
    "cancel_order": "cancel",
}


def dutiful_model(retriever: Retriever) -> ScriptedModel:
    """It calls what it needs as soon as it is in view, and else looks for it, where there is something to look with."""

    def reply(request: Request) -> Any:
        called = {
            call.name for message in request.messages for call in message.tool_calls
        }
        results = [
            result for message in request.messages for result in message.tool_results
        ]
        failed = any(result.is_error for result in results)
        in_view = {
            tool.name for tool in retriever(request.messages, request.tools)
        } | called
        for name, arguments in NEEDED.items():
            if name not in called or (
                name == "cancel_order" and results[-1].content != "cancelled"
            ):
                if name in in_view:
                    return ToolCall(f"{len(results)}", name, arguments)
                if "find_tools" in in_view:
                    return ToolCall(
                        f"{len(results)}", "find_tools", {"query": QUERIES[name]}
                    )
                return (
                    "I cannot."
                    if failed
                    else ToolCall(f"{len(results)}", "cancel_order", {})
                )
        return "It is cancelled."

    return ScriptedModel(reply)


def test_similarity_alone_shows_one_of_three() -> None:
    tools, cases = shop(), [("Cancel my last order", tuple(NEEDED))]
    assert len(tools) == 40
    measured = recall_at(cases, 3, tools)
    assert measured.rate == pytest.approx(1 / 3)
    assert measured.missed == {"Cancel my last order": ["find_customer", "list_orders"]}
    assert (
        recall_at(cases, best(3, always=["find_customer", "list_orders"]), tools).rate
        == 1.0
    )


@pytest.mark.parametrize("way", ["always", "search", "hybrid and search"])
def test_what_is_needed_can_be_reached(run: Callable[..., RunResult], way: str) -> None:
    tools = shop()
    retrievers = {
        "always": best(3, always=["find_customer", "list_orders"]),
        "search": best(3),
        "hybrid and search": hybrid(embed, 3),
    }
    if way != "always":
        tools.append(find_tools(tools, 1))
    result = run(
        "Cancel my last order", tools=tools, model=dutiful_model(retrievers[way])
    )
    assert str(result) == "It is cancelled."
    assert [call.name for call in result.calls if call.name != "find_tools"] == list(
        NEEDED
    )
    assert sum(call.name == "find_tools" for call in result.calls) == (
        0 if way == "always" else 2
    )


def test_the_conversation_brings_the_next_tool_into_view() -> None:
    """Also without a search: what the first call was answered says what is needed before it."""
    tools = shop()
    call = Message("assistant", tool_calls=(ToolCall("c1", "cancel_order"),))
    answered = ToolRegistry(tools).call("cancel_order", {})
    assert answered.is_error
    messages = [
        *ask("Cancel my last order"),
        call,
        Message("tool", tool_results=(answered,)),
    ]
    assert "list_orders" not in shown(best(3), "Cancel my last order", tools)
    assert {"list_orders", "cancel_order"} <= {*shown(best(3), messages, tools)}


# Measured on one's own cases


def test_recall_counts_the_requests_whose_tool_is_shown() -> None:
    cases = [
        ("Will it rain?", "get_weather"),
        ("mail by train", {"send_mail", "find_train"}),
        ("an umbrella", ["get_weather"]),
    ]
    measured = recall_at(cases, 1, TOOLS)
    assert measured.rate == pytest.approx((1 + 0.5 + 0) / 3)
    assert set(measured.missed) == {"mail by train", "an umbrella"}
    assert measured.missed["an umbrella"] == ["get_weather"]
    assert recall_at(cases, 2, TOOLS).rate == pytest.approx(2 / 3)
    assert recall_at(cases, hybrid(embed, 2), TOOLS).rate == 1.0


@pytest.mark.parametrize(
    ("cases", "why"),
    [
        pytest.param([], "There are no cases", id="no cases"),
        pytest.param(
            [("rain", [])],
            r"needs \[\]\. Name at least one",
            id="a case without a tool",
        ),
        pytest.param(
            [("rain", "get_wether")], r"needs \['get_wether'\]", id="an unknown tool"
        ),
    ],
)
def test_cases_that_cannot_be_measured(cases: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        recall_at(cases, 1, TOOLS)


# Whatever comes

texts = st.text(max_size=30) | st.sampled_from(
    ["weather in a city", "MAIL trains", "天気"]
)
messages_of_any_kind = st.lists(
    st.builds(
        Message,
        st.sampled_from(["system", "user", "assistant", "tool"]),
        texts,
        st.builds(
            lambda name: (ToolCall("c1", name),), st.sampled_from(["find_tools", "x"])
        ),
        st.builds(
            lambda text: (ToolResult("c1", text),),
            texts | st.just('[{"name":"send_mail","description":1}]'),
        ),
    ),
    max_size=6,
)


@given(messages_of_any_kind, st.integers(1, 6), st.booleans())
def test_any_conversation_gets_its_tools(
    messages: list[Message], k: int, by_meaning: bool
) -> None:
    tools = [*TOOLS, find_tools(TOOLS)]
    retriever = (
        hybrid(embed, k, always="book_table")
        if by_meaning
        else best(k, always="book_table")
    )
    names = shown(retriever, messages, tools)
    assert names == [tool.name for tool in tools if tool.name in names]
    assert {"book_table", "find_tools"} <= {*names}
    assert len(names) <= k + 3
