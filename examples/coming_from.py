"""What you know from another framework, and what it is here.

    python examples/coming_from.py

There is no agent object, no graph and no chain: a run is one function, an agent is its arguments, and state is a value
that you keep where you like. The names on the left are those of the OpenAI Agents SDK, Pydantic AI, LangChain and
smolagents.

    @function_tool, @tool, @agent.tool               @tool, or just the function in tools=[…]
    Agent(…), create_agent(…)                        the arguments of a run; functools.partial keeps them
    Runner.run, agent.run, agent.invoke              run_agent_with_tools; arun_agent_with_tools with await
    RunContext, RunContextWrapper, ToolRuntime       a parameter annotated with ToolContext; deps=
    ModelRetry                                       ToolError; wrong arguments are answered by themselves
    output_type, response_format                     output_type=; extract() to read a value out of a text
    handoffs                                         history= with other instructions and tools
    managed_agents, agents as tools                  a function that runs an agent (agent_as_tool.py)
    Session, message_history, checkpointer           history=result; store= and run_id=
    needs_approval, requires_approval,
        HumanInTheLoopMiddleware                     permission="sensitive", approve=, resume()
    hooks, callbacks, step_callbacks                 on_event=; toolkit.otel for OpenTelemetry
    max_turns, recursion_limit, max_steps,
        UsageLimits                                  max_turns=, limits=Limits(…)
    input and output guardrails                      code before and after the run; deny() rules for calls
    TestModel, FunctionModel                         ScriptedModel
    agent.run_stream, stream_events                  on_text=, on_event=

A script plays the model, always.
"""

import functools
from dataclasses import dataclass

from toolkit import (
    Limits,
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolContext,
    ToolError,
    run_agent_with_tools,
    tool,
)

CUSTOMERS = {"ada": "a lamp, order 7"}


@tool(permission="read")
def find_order(context: ToolContext) -> str:
    """What the user has ordered. Use it for every question on an order."""
    if context.deps not in CUSTOMERS:
        raise ToolError(
            "This user has no order. Ask for the name."
        )  # the model reads it
    return CUSTOMERS[context.deps]


@tool(permission="write")
def refund(order: int) -> str:
    """Pay an order back. Use it where the user sends the article back.

    Args:
        order: The number of the order.
    """
    return f"order {order} is paid back"


@dataclass
class Ticket:
    subject: str
    urgent: bool


def main() -> None:
    script = [
        ToolCall("c1", "find_order", {}),
        "You have ordered a lamp.",
        ToolCall("c2", "refund", {"order": 7}),
        "The money is on its way.",
        ToolCall(
            "c3", "final_answer", {"answer": {"subject": "broken lamp", "urgent": True}}
        ),
    ]
    model = ScriptedModel(script)

    print("--- an agent: arguments, kept")
    ask_front_desk = functools.partial(
        run_agent_with_tools,
        instructions="You are the front desk. Be brief.",
        tools=[find_order],
        model=model,
        deps="ada",
        limits=Limits(tool_calls=5),
    )
    first = ask_front_desk("What did I order?")
    print(first)

    print("--- a handoff: the same conversation, other instructions and other tools")
    ask_billing = functools.partial(
        run_agent_with_tools,
        instructions="You are the billing desk.",
        tools=[refund],
        model=model,
    )
    second = ask_billing("It is broken. I want my money back.", history=first)
    print(second)
    print([message.text for message in second.messages if message.role == "system"])

    print("--- memory: a value")
    saved = second.to_json()

    print(
        "--- structured output, and a hook"
    )  # the answer is a call of the tool `final_answer`
    third = run_agent_with_tools(
        "Write a ticket on this.",
        history=RunResult.from_json(saved),
        tools=(),
        model=model,
        output_type=Ticket,
        on_event=lambda event: print("   ", event.name),
    )
    print(third.output)


if __name__ == "__main__":
    main()
