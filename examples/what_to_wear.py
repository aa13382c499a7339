"""Two calls in one reply, then calls that depend on what these returned: what to wear on a journey.

    python examples/what_to_wear.py Lisbon Oslo

The model asks for the weather of both cities at once, hands the two temperatures to `compare_temperatures`, and what
that says to `suggest_clothes`. A script plays the model, and reads the results as a model would: with other cities, or
other weather below, all that follows is different. Set OPENAI_API_KEY or TOOLKIT_MODEL, and a real model is asked.
"""

import json
import os
import re
import sys

from toolkit import ScriptedModel, ToolCall, run_agent_with_tools, tool

WEATHER = {
    "Cairo": (35, "sun"),
    "Lisbon": (27, "sun"),
    "London": (16, "rain"),
    "Oslo": (4, "snow"),
}  # made up


@tool(permission="read")
def get_weather(city: str) -> dict:
    """Current weather for one city. Use it before anything that depends on temperature or rain.

    Args:
        city: Name of the city, in English.
    """
    celsius, sky = WEATHER.get(city, (20, "clouds"))
    return {"city": city, "celsius": celsius, "sky": sky}


@tool(permission="read")
def compare_temperatures(here: float, there: float) -> dict:
    """How much warmer or colder it is there than here. Use it for journeys.

    Args:
        here: Temperature at the start, in degrees Celsius.
        there: Temperature at the destination, in degrees Celsius.
    """
    return {"difference": there - here, "feels": "colder" if there < here else "warmer"}


@tool(permission="read")
def suggest_clothes(difference: float, sky: str) -> list[str]:
    """What to wear on arrival. Use it for every question on clothes.

    Args:
        difference: How much warmer it is than at the start, in degrees Celsius; negative where it is colder.
        sky: The sky at the destination, e.g. "rain".
    """
    clothes = (
        ["a warm coat"]
        if difference < -10
        else ["a sweater"]
        if difference < 0
        else ["a shirt"]
    )
    return clothes + {
        "snow": ["boots"],
        "rain": ["an umbrella"],
        "sun": ["sunglasses"],
    }.get(sky, [])


def play(request):
    """The model's part: what it says to the results that came so far."""
    prompt = request.messages[0].text
    results = [
        json.loads(result.content)
        for message in request.messages
        for result in message.tool_results
    ]
    match results:
        case []:
            return [
                ToolCall("", "get_weather", {"city": city})
                for city in re.findall(r"(?:from|to) (\w+)", prompt)
            ]
        case [here, there]:
            return ToolCall(
                "",
                "compare_temperatures",
                {"here": here["celsius"], "there": there["celsius"]},
            )
        case [_, there, compared]:
            return ToolCall(
                "",
                "suggest_clothes",
                {"difference": compared["difference"], "sky": there["sky"]},
            )
        case [_, there, compared, clothes]:
            degrees, feels = abs(compared["difference"]), compared["feels"]
            return f"{there['city']} is {degrees:g} degrees {feels} than home: wear {' and '.join(clothes)}."


def main() -> None:
    start, destination = sys.argv[1:] or ("Lisbon", "Oslo")
    prompt = f"I fly from {start} to {destination} today. What shall I wear?"
    model = (
        None
        if os.environ.get("TOOLKIT_MODEL") or os.environ.get("OPENAI_API_KEY")
        else ScriptedModel(play)
    )
    result = run_agent_with_tools(prompt, model=model)
    for call in result.calls:
        print(f"{call.name}({dict(call.arguments)}) -> {call.content}")
    print(result)


if __name__ == "__main__":
    main()
