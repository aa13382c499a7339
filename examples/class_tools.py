"""Tools with state: methods of an object, and a class that is a tool.

    python examples/class_tools.py

`@tool` on a method only marks it; `register_methods` binds the marked methods of one object, so that another object
can serve another run. A subclass of `Tool` says by itself what its parameters are: for what no signature can express,
such as a list of choices that is known only when the program runs.
"""

import os
from dataclasses import dataclass, field
from typing import Literal

from toolkit import (
    ScriptedModel,
    Tool,
    ToolCall,
    ToolParameter,
    ToolRegistry,
    run_agent_with_tools,
    tool,
)


@dataclass
class Cart:
    items: dict[str, int] = field(default_factory=dict)

    @tool(parallel=False)  # the calls of one reply run at once, but these shall not
    def add_item(self, name: str, count: int = 1) -> dict:
        """Put something into the cart. Use it for each thing that the user wants to buy.

        Args:
            name: The thing, in the singular.
            count: How many more of it.
        """
        self.items[name] = self.items.get(name, 0) + count
        return dict(self.items)

    @tool(permission="read")
    def show_cart(self) -> dict:
        """What is in the cart, with counts. Use it before you say what the user buys."""
        return dict(self.items)


class ChooseDelivery(Tool):
    name = "choose_delivery"
    description = "Choose how the cart is delivered. Use it once the user has said how."

    def __init__(self, ways: list[str]) -> None:
        self.ways, self.chosen = ways, ""

    def get_parameters(self) -> list[ToolParameter]:
        return [
            ToolParameter(
                "way",
                Literal[tuple(self.ways)],
                "One of the ways that are possible today.",
            )
        ]

    def run(self, parameters: dict) -> str:
        self.chosen = parameters["way"]
        return f"delivery by {self.chosen}"


script = [
    [
        ToolCall("", "add_item", {"name": "apple", "count": 3}),
        ToolCall("", "add_item", {"name": "bread"}),
    ],
    ToolCall(
        "", "choose_delivery", {"way": "drone"}
    ),  # not possible today, and the model is told what is
    ToolCall("", "choose_delivery", {"way": "bicycle"}),
    "Three apples and a bread come by bicycle; drones do not fly today.",
]


def main() -> None:
    model = (
        None
        if os.environ.get("TOOLKIT_MODEL") or os.environ.get("OPENAI_API_KEY")
        else ScriptedModel(script)
    )
    cart, delivery = Cart(), ChooseDelivery(["bicycle", "van"])
    registry = ToolRegistry([delivery])
    registry.register_methods(cart)
    prompt = "Three apples and a bread, please, by drone. If there is none, whatever is green."
    result = run_agent_with_tools(prompt, model=model, tools=registry)
    for call in result.calls:
        print(f"{call.name}({dict(call.arguments)}) -> {call.content}")
    print(result)
    print("the objects:", cart, delivery.chosen)


if __name__ == "__main__":
    main()
