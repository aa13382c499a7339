"""A model on this machine decides to call a Python function, gets its result, and answers.

Run it with `make demo`, or `python examples/quickstart.py "Is it raining in Oslo?"`. It needs neither a key nor a
network: the embedded model is real, but small: compare its answer with the result that it was given. To use another
model, set one of these and run it again:

    OPENAI_API_KEY=…                                   OpenAI's default model
    TOOLKIT_MODEL=NAME OPENAI_BASE_URL=http://…/v1     any OpenAI-compatible server (Ollama, vLLM, llama.cpp …);
                                                       OPENAI_API_KEY=none, too, where it wants no key
"""

import os
import sys
from typing import Literal

from toolkit import run_agent_with_tools, tool


@tool(permission="read")
def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """Current weather for a city. Use for questions on weather, temperature, rain or umbrellas.

    Args:
        city: City name, e.g. "Berlin".
        unit: Temperature unit.
    """
    made_up = {
        "tokyo": (18, "raining"),
        "oslo": (4, "snowing"),
        "berlin": (22, "sunny"),
    }
    celsius, sky = made_up.get(city.lower(), (20, "cloudy"))
    degrees = celsius if unit == "celsius" else round(celsius * 9 / 5 + 32)
    return f"It is {sky} in {city}, at {degrees} degrees {unit.title()}."


def main() -> None:
    prompt = " ".join(sys.argv[1:]) or "What is the weather in Tokyo?"
    model = (
        None
        if os.environ.get("TOOLKIT_MODEL") or os.environ.get("OPENAI_API_KEY")
        else "local"
    )
    print(f"you     {prompt}")
    result = run_agent_with_tools(prompt, model=model, max_turns=5)
    for call in result.calls:
        print(
            f"call    {call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"
        )
        print(f"result  {call.content}")
    print(f"answer  {result}")


if __name__ == "__main__":
    main()
