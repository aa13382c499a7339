"""A conversation over several questions: each goes on from the result of the one before.

    python examples/conversation.py

A result holds the whole conversation, calls and their results too, so the model can refer to them later. It is a
value: going on from it changes nothing in it, two questions may go on from the same one, and as JSON it goes on in
another process, or tomorrow.
"""

import os

from toolkit import RunResult, ScriptedModel, ToolCall, run_agent_with_tools, tool


@tool(permission="read")
def find_flights(start: str, destination: str) -> list[dict]:
    """Flights of tomorrow between two cities. Use it for every question about flights.

    Args:
        start: City of departure.
        destination: City of arrival.
    """
    return [
        {"number": "TK 12", "leaves": "07:40", "price": 180},
        {"number": "TK 34", "leaves": "15:05", "price": 120},
    ]


script = [
    ToolCall("", "find_flights", {"start": "Lisbon", "destination": "Oslo"}),
    "There are two: at 07:40 for 180 and at 15:05 for 120.",
    "TK 34, at 15:05.",  # it needs no new call: the flights are in the history
    "TK 12, at 07:40.",
]


def main() -> None:
    model = (
        None
        if os.environ.get("TOOLKIT_MODEL") or os.environ.get("OPENAI_API_KEY")
        else ScriptedModel(script)
    )

    first = run_agent_with_tools(
        "Is there a flight from Lisbon to Oslo tomorrow?",
        instructions="Answer in one line.",
        model=model,
    )
    print(f"{first}  [messages: {len(first.messages)}, new calls: {len(first.calls)}]")

    second = run_agent_with_tools("Which one is cheaper?", history=first, model=model)
    print(
        f"{second}  [messages: {len(second.messages)}, new calls: {len(second.calls)}]"
    )

    saved = second.to_json()  # a text: put it into a file, a database, a cookie
    third = run_agent_with_tools(
        "And which one leaves earlier?", history=RunResult.from_json(saved), model=model
    )
    print(f"{third}  [messages: {len(third.messages)}, new calls: {len(third.calls)}]")


if __name__ == "__main__":
    main()
