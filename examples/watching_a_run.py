"""A run as people see it: while it goes on, as a tree in the terminal, and as a timeline on a page or in a notebook.

    python examples/watching_a_run.py run.html

In a notebook a result at the end of a cell shows itself as this timeline. `live()` writes a line for each step as it
happens, to standard error; here to standard output. The page loads nothing from elsewhere: it can be sent by mail.
A script plays the model, always, and takes its time as a real one does.
"""

import sys
import time

from toolkit import (
    Message,
    Reply,
    ScriptedModel,
    ToolCall,
    ToolError,
    Usage,
    run_agent_with_tools,
    tool,
)
from toolkit.display import live


@tool(permission="read")
def find_trains(start: str, destination: str) -> list[str]:
    """Trains of tomorrow between two cities. Use it for every question on trains."""
    time.sleep(0.35)
    return ["07:40", "15:05"]


@tool(permission="read")
def get_weather(city: str) -> dict:
    """Forecast for tomorrow. Use it before you advise on a journey."""
    time.sleep(0.2)
    if city == "Bergn":
        raise ToolError("There is no city 'Bergn'. Did you mean 'Bergen'?")
    return {"city": city, "celsius": 9, "sky": "rain"}


@tool(permission="sensitive")
def book_seat(train: str) -> str:
    """Book a seat. Use it once the user has chosen a train."""
    time.sleep(0.25)
    return f"Seat 12 in the train of {train}"


def play(request):
    time.sleep(0.3)  # what a model does most of the time
    turn = sum(message.role == "assistant" for message in request.messages)
    calls = [
        [
            ToolCall("c1", "find_trains", {"start": "Oslo", "destination": "Bergen"}),
            ToolCall("c2", "get_weather", {"city": "Bergn"}),
        ],
        [
            ToolCall("c3", "get_weather", {"city": "Bergen"}),
            ToolCall("c4", "book_seat", {"train": "15:05"}),
        ],
        [],
    ][turn]
    text = "" if calls else "You have seat 12 in the train of 15:05. Take an umbrella."
    return Reply(Message("assistant", text, tuple(calls)), Usage(310 + 90 * turn, 24))


def main() -> None:
    result = run_agent_with_tools(
        "I want to go from Oslo to Bergen tomorrow, in the afternoon. Book me a seat.",
        tools=[find_trains, get_weather, book_seat],
        model=ScriptedModel(play),
        approve=lambda call: "approve",
        on_event=live(sys.stdout),
    )
    print("---")
    print(result.tree())
    if sys.argv[1:]:
        result.save_html(sys.argv[1])


if __name__ == "__main__":
    main()
