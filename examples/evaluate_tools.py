"""Measure whether the right tool is called, change one description, and see whether that made it worse.

    python examples/evaluate_tools.py report.html

Twelve requests say which call is right, two of them that none is. They are asked of a model twice: with the
descriptions below, and with one of them made vague. The comparison is paired by case, so that it tells a regression
from a model's noise; its exit code is what CI would fail on. No tool is run. A rule plays the model: it takes the tool
whose description shares most words with the request. Set OPENAI_API_KEY or TOOLKIT_MODEL, and a real model is asked.
"""

import os
import re
import sys

from toolkit import ScriptedModel, ToolCall, ToolRegistry
from toolkit.evals import Case, contains, evaluate

CITIES = ("Lima", "Oslo", "Cairo", "Porto", "Quito")
CASES = [
    *(
        Case(
            f"What will the weather be in {city} tomorrow?",
            "get_forecast",
            {"city": city},
        )
        for city in CITIES
    ),
    *(
        Case(
            f"Which events are on in {city} tonight?",
            "find_events",
            {"city": contains(city)},
        )
        for city in CITIES
    ),
    Case("Thank you!", None),
    Case("Who are you?", None),
]
PRECISE = "What the weather will be in a city. Use it for rain, warmth or clothes, tomorrow and later."
VAGUE = "Gets data."


def get_forecast(city: str, days: int = 1) -> str:
    raise NotImplementedError(
        "an evaluation runs no tool that is not of the tier 'read'"
    )


def find_events(city: str) -> str:
    raise NotImplementedError


def make_tools(forecast: str) -> ToolRegistry:
    tools = ToolRegistry()
    tools.register_function("get_forecast", forecast, get_forecast)
    tools.register_function(
        "find_events",
        "Which events are on in a city, such as concerts, tonight.",
        find_events,
    )
    return tools


def play(request):
    """The model's part: the tool that shares most words with the request, if it shares two."""
    prompt = request.messages[-1].text
    asked = set(re.findall(r"\w+", prompt.lower()))
    shared = {
        tool.name: len(asked & set(re.findall(r"\w+", tool.description.lower())))
        for tool in request.tools
    }
    best = max(shared, key=shared.get)
    city = re.search(r" in (\w+)", prompt)
    return (
        ToolCall("", best, {"city": city[1]})
        if shared[best] > 1 and city
        else "You are welcome."
    )


def main() -> int:
    real = os.environ.get("TOOLKIT_MODEL") or os.environ.get("OPENAI_API_KEY")
    model = None if real else ScriptedModel(play)
    before = evaluate(CASES, tools=make_tools(PRECISE), model=model, repeat=3)
    after = evaluate(CASES, tools=make_tools(VAGUE), model=model, repeat=3)
    print(f"{before}\n\n--- with the vague description\n\n{after}\n\n--- compared\n")
    compared = after.compare(before)
    print(compared)
    for path in sys.argv[1:]:
        after.save_html(path)
    print("exit code", compared.exit_code)
    return 0  # in CI: return compared.exit_code


if __name__ == "__main__":
    sys.exit(main())
