"""`cost`: what the schemas of tools add to each request, in tokens and in money."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from openai import OpenAI

from server import ChatServer, Fault, answer
from toolkit import (
    Model,
    ModelError,
    ModelInfo,
    Reply,
    ScriptedModel,
    ToolRegistry,
    Usage,
    run_agent_with_tools,
)
from toolkit.cost import Price, explain, run_cost, schema_cost
from toolkit.messages import Message
from toolkit.tools.registry import REGISTRY
from toolkit.tools.request import Request

TOKENS = {"find_order": 60, "cancel_order": 45, "list_orders": 20}
ONCE, PROMPT = 300, 8


def find_order(number: int, with_history: bool = False) -> dict[str, Any]:
    """Find an order by its number.

    Args:
        number: As on the invoice.
        with_history: Whether to tell all that has happened to it.
    """
    return {}


def cancel_order(number: int) -> str:
    """Cancel an order that is not sent yet."""
    return ""


def list_orders() -> list[int]:
    """The numbers of all orders."""
    return []


TOOLS = (find_order, cancel_order, list_orders)


def count(request: Request, once: int = ONCE) -> Reply:
    """As a provider counts: the prompt, what comes once where there are tools, and the tools."""
    tools = sum(TOKENS[tool.name] for tool in request.tools)
    return Reply(
        Message("assistant", "."),
        Usage(PROMPT + tools + (once if request.tools else 0), 1),
    )


# Counted


def test_two_requests_count_the_total() -> None:
    model = ScriptedModel(count)
    cost = schema_cost(TOOLS, model=model)
    assert (cost.total, cost.is_exact, cost.requests) == (425, True, 2)
    assert [len(request.tools) for request in model.requests] == [0, 3]
    assert sum(cost.tools.values()) + cost.overhead == 425
    assert list(cost.tools) == list(TOKENS)
    assert (
        cost.tools["find_order"]
        > cost.tools["cancel_order"]
        > cost.tools["list_orders"]
        > 0
    ), "by their length"
    assert "shares by length" in cost.measured


def test_each_tool_is_counted_on_request() -> None:
    model = ScriptedModel(count)
    cost = schema_cost(TOOLS, model=model, each=True)
    assert (cost.tools, cost.overhead, cost.total) == (TOKENS, ONCE, 425)
    assert cost.requests == len(model.requests) == 5
    assert cost.measured == "counted by 'scripted'"


@pytest.mark.parametrize("odd", [-2, -1, 1, 2])
def test_shares_add_up_where_tokens_do_not(odd: int) -> None:
    """Tokens join at the seams, so that the whole is not just its parts."""

    def seamed(request: Request) -> Reply:
        reply = count(request, once=0)
        seams = odd if len(request.tools) > 1 else 0
        return dataclasses.replace(reply, usage=Usage(reply.usage.input_tokens + seams))

    cost = schema_cost(TOOLS, model=ScriptedModel(seamed), each=True)
    assert cost.total == 125 + odd == sum(cost.tools.values()) + cost.overhead
    assert cost.overhead >= 0


def test_one_tool_needs_no_request_of_its_own() -> None:
    cost = schema_cost([list_orders], model=ScriptedModel(count), each=True)
    assert (cost.tools, cost.overhead, cost.requests) == ({"list_orders": 320}, 0, 2)


def test_no_tools_cost_nothing() -> None:
    cost = schema_cost([], model=ScriptedModel(count))
    assert (cost.tools, cost.total, cost.is_exact, cost.requests) == ({}, 0, True, 1)


@pytest.mark.parametrize(
    "tell",
    [
        pytest.param(lambda request: "I count nothing.", id="no usage at all"),
        pytest.param(
            lambda request: Reply(Message("assistant", "."), Usage(8, 1)),
            id="tools dropped by the server",
        ),
    ],
)
def test_a_model_that_does_not_get_all_tools(
    tell: Callable[[Request], Any],
) -> None:
    cost = schema_cost(TOOLS, model=ScriptedModel(tell))
    assert (cost.is_exact, cost.total) == (False, schema_cost(TOOLS).total)
    assert (cost.measured, cost.requests) == (
        "estimated: 'scripted' counts no tokens for tools",
        2,
    )


def counted(tokens: int) -> dict[str, Any]:
    return {**answer("."), "usage": {"prompt_tokens": tokens, "completion_tokens": 1}}


@contextlib.contextmanager
def served(*plays: Any, **options: Any) -> Iterator[tuple[ChatServer, Model]]:
    """A server that plays these, and a model behind it whose connections are closed with it."""
    with (
        ChatServer(*plays) as server,
        OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client,
    ):
        yield server, Model("m", client=client, **options)


REFUSED = Fault(400, "Unsupported parameter")


@pytest.mark.parametrize(
    ("refusals", "field"),
    [
        pytest.param([], {"max_tokens": 1}, id="most servers"),
        pytest.param([REFUSED, Fault(422)], {"max_completion_tokens": 16}, id="OpenAI"),
        pytest.param(
            [REFUSED, REFUSED, REFUSED],
            {},
            id="a model that reasons for longer than that",
        ),
    ],
)
def test_the_answer_is_cut_as_the_server_lets_it(
    refusals: list[Fault], field: Mapping[str, int]
) -> None:
    with served(*refusals, counted(9), counted(70)) as (server, model):
        cost = schema_cost([list_orders], model=model)
    limits = [
        {key: body[key] for key in body if key.startswith("max_")}
        for body in server.bodies
    ]
    assert limits[-2:] == [field, field]
    assert (cost.total, cost.requests) == (61, 2 + len(refusals))


@pytest.mark.parametrize(
    "plays",
    [
        pytest.param([Fault(401)], id="a wrong key"),
        pytest.param([REFUSED] * 4, id="whatever is asked"),
        pytest.param([counted(9), Fault(400, "Invalid schema")], id="the tools"),
        pytest.param(
            [counted(9), *[Fault(400, "does not support tools")] * 2],
            id="the tools, in the prompt too",
        ),
    ],
)
def test_a_refusal_is_told(plays: list[Any]) -> None:
    with served(*plays) as (_, model), pytest.raises(ModelError):
        schema_cost([list_orders], model=model)


def test_tools_in_the_prompt_are_counted_there() -> None:
    with served(counted(9), counted(70), info=ModelInfo(function_calling=False)) as (
        server,
        model,
    ):
        cost = schema_cost([list_orders], model=model)
    assert cost.total == 61
    bare, told = (
        "".join(message["content"] for message in body["messages"])
        for body in server.bodies
    )
    assert "list_orders" in told
    assert "tools" not in server.bodies[1]
    assert "Tools" not in bare


def test_a_server_that_refuses_tools_gets_them_in_the_prompt() -> None:
    with served(counted(9), Fault(400, "m does not support tools"), counted(70)) as (
        server,
        model,
    ):
        cost = schema_cost([list_orders], model=model)
    assert (cost.total, cost.is_exact) == (61, True)
    assert "list_orders" in server.bodies[-1]["messages"][0]["content"]


@pytest.mark.local
def test_a_real_server_counts_what_stands_in_the_prompt() -> None:
    from toolkit.local import LocalModel

    embedded = LocalModel()
    with OpenAI(base_url=embedded.base_url, api_key=embedded.api_key) as client:
        cost = schema_cost(
            TOOLS, model=Model("local", wire="react", client=client), each=True
        )
    assert cost.is_exact
    assert cost.tools["find_order"] > cost.tools["list_orders"] > 0
    assert not schema_cost(TOOLS, model=embedded).is_exact, (
        "it never reads more than one of them"
    )


# Estimated


def test_without_a_model_it_is_an_estimate() -> None:
    cost = schema_cost(TOOLS)
    assert (cost.is_exact, cost.requests) == (False, 0)
    assert 60 < cost.total < 160
    assert sum(cost.tools.values()) == cost.total
    assert "estimated" in cost.measured


def test_other_scripts_take_more_tokens_a_character() -> None:
    def find(name: str) -> str:
        return name

    latin, chinese = (
        schema_cost([ToolRegistry().register_function("find", text * 30, find)]).total
        for text in ("word", "查找订单")
    )
    assert chinese > 1.5 * latin


def test_the_global_registry_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGISTRY, "_tools", {})
    REGISTRY.register_tool(list_orders)
    assert list(schema_cost().tools) == ["list_orders"]


# What people do with it


@pytest.mark.parametrize(("budget", "exceeds"), [(424, True), (425, False), (0, True)])
def test_a_budget_that_is_exceeded_is_reported(budget: int, exceeds: bool) -> None:
    assert schema_cost(TOOLS, model=ScriptedModel(count)).exceeds(budget) is exceeds


def test_it_reads_as_a_table() -> None:
    cost = schema_cost(
        TOOLS, model=ScriptedModel(count), each=True, price=Price(2.5, currency="EUR")
    )
    assert str(cost).splitlines() == [
        "      60  find_order",
        "      45  cancel_order",
        "      20  list_orders",
        "     300  (once)",
        "425 tokens in each request, 0.001063 EUR (counted by 'scripted')",
    ]
    assert str(schema_cost(TOOLS)).splitlines()[-1].startswith("about ")
    assert json.loads(json.dumps(dataclasses.asdict(cost)))["total"] == 425


def test_money_needs_a_price() -> None:
    assert schema_cost(TOOLS).money is None


@pytest.mark.parametrize(
    ("price", "usage", "amount"),
    [
        pytest.param(Price(3.0), Usage(1_000_000, 500), 3.0, id="only what is read"),
        pytest.param(
            Price(3.0, 15.0), Usage(1_000_000, 1_000_000), 18.0, id="and written"
        ),
        pytest.param(
            Price(3.0, 15.0, 0.3),
            Usage(1_000_000, 0, 500_000),
            1.65,
            id="half of it cached",
        ),
        pytest.param(
            Price(3.0, 15.0),
            Usage(1_000_000, 0, 500_000),
            3.0,
            id="no other price for cached",
        ),
        pytest.param(
            Price(3.0, 15.0, 0.0),
            Usage(1_000_000, 0, 1_000_000),
            0.0,
            id="cached for nothing",
        ),
        pytest.param(
            Price(3.0, 15.0),
            Usage(0, 1_000_000, 0, 900_000),
            15.0,
            id="reasoning is written too",
        ),
    ],
)
def test_prices_are_for_a_million_tokens(
    price: Price, usage: Usage, amount: float
) -> None:
    assert price.of(usage).amount == pytest.approx(amount)


def test_a_run_costs_what_its_provider_told(run: Callable[..., Any]) -> None:
    model = ScriptedModel(
        [Reply(Message("assistant", "Done."), Usage(1_000, 200, 400))]
    )
    result = run("q", model=model, tools=TOOLS)
    price = Price(2.0, 8.0, 0.5, "EUR")
    assert str(price.of(result.usage)) == "0.003000 EUR"
    turns = run_cost(result, price)
    assert len(turns) == result.run.turns
    assert sum(each.amount for each in turns) == pytest.approx(0.003)


# What each wire gets


def sections(text: str) -> dict[str, str]:
    return {
        part.partition("\n")[0]: part.partition("\n")[2] for part in text.split("\n\n")
    }


def test_each_wire_is_explained() -> None:
    told = sections(explain(cancel_order))
    *wires, prompt = told.values()
    chat, strict, responses, anthropic = map(json.loads, wires)
    assert list(told)[:2] == ["Chat Completions", "Chat Completions, strict"]
    assert (
        chat["function"]["name"]
        == strict["function"]["name"]
        == responses["name"]
        == anthropic["name"]
    )
    assert strict["function"]["strict"] is True
    assert strict["function"]["parameters"]["additionalProperties"] is False
    assert "additionalProperties" not in chat["function"]["parameters"]
    assert responses["strict"] is False
    assert anthropic["input_schema"] == chat["function"]["parameters"]
    assert "cancel_order {number: integer}" in prompt


def test_what_is_explained_is_what_is_sent() -> None:
    with served("Done.") as (server, model):
        run_agent_with_tools("q", tools=[find_order], model=model)
    assert server.bodies[0]["tools"] == [
        json.loads(sections(explain(find_order))["Chat Completions"])
    ]


def test_a_tool_with_an_alias_is_explained_as_models_see_it() -> None:
    tool = ToolRegistry().register_tool(
        list_orders, name="orders.list", description="Liste der Bestellungen, für alle"
    )
    told = sections(explain(tool))
    assert json.loads(told["Anthropic Messages"])["name"] == "orders_list"
    assert "für" in told["Chat Completions"]
