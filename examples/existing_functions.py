"""Functions that exist already become tools, and the module they live in stays as it is.

    python examples/existing_functions.py

`units.py` beside this file knows nothing of the toolkit. Its hints, docstrings (reST and NumPy here), defaults and
enums are what the model is told. A function without hints gets them in a `schema`, written by hand.
"""

import os
import statistics
from functools import partial

import units

from toolkit import ScriptedModel, ToolCall, ToolRegistry, run_agent_with_tools

registry = ToolRegistry()
registry.register_tool(units.convert_temperature, permission="read")
# A partial fixes what the model shall not choose, and another name and description say what is left.
registry.register_tool(
    partial(units.split_bill, tip_percent=0),
    name="split_without_tip",
    description="What each person pays where nobody tips.",
    permission="read",
)
# The standard library has hardly any hints. Without the schema, the model would be told nothing of `data`.
registry.register_tool(
    statistics.median,
    description="The median of some numbers. Use it for what is typical; it does not mind outliers.",
    schema={
        "type": "object",
        "properties": {
            "data": {
                "type": "array",
                "items": {"type": "number"},
                "minItems": 1,
                "description": "In any order.",
            },
        },
        "required": ["data"],
    },
    permission="read",
)

script = [
    [
        ToolCall("", "convert_temperature", {"degrees": 100, "to": "celsius"}),
        ToolCall("", "split_without_tip", {"total": 84, "people": 3}),
        ToolCall("", "median", {"data": [3, 1, 400]}),
    ],
    "100 °F are 37.8 °C, each pays 28, and the median is 3.",
]


def main() -> None:
    model = (
        None
        if os.environ.get("TOOLKIT_MODEL") or os.environ.get("OPENAI_API_KEY")
        else ScriptedModel(script)
    )
    prompt = "What is 100 °F in °C? What do 3 people pay for a bill of 84 without a tip? The median of 3, 1, 400?"
    result = run_agent_with_tools(prompt, model=model, tools=registry)
    for call in result.calls:
        print(f"{call.name} -> {call.content}")
    print(result)
    print("and from Python, as ever:", units.convert_temperature(100))


if __name__ == "__main__":
    main()
