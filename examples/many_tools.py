"""Thirty tools, and each turn shows the model only those that fit what is said.

    python examples/many_tools.py

All of them in every request would cost tokens and confuse the model. `best(3)` shows the three that fit best, by their
words; what must never be missing is named in `always`, and with `find_tools` the model looks for what is not in view.
`recall_at` tells, on requests of your own, whether three are enough. A retriever is a function of the messages and the
tools; it is called here by hand, as a run calls it before each turn.
"""

from toolkit import Message, ToolCall, ToolRegistry, ToolResult, tool
from toolkit.retrieval import best, find_tools, recall_at

registry = ToolRegistry()


@tool(registry=registry, permission="read")
def find_customer(email: str) -> dict:
    """Look up a customer by e-mail address."""
    return {"customer": 7}


@tool(registry=registry, permission="read")
def list_orders(customer: int) -> list[dict]:
    """List what a customer bought, with numbers and days."""
    return [{"number": 31}, {"number": 32}]


@tool(
    registry=registry, permission="sensitive", keywords=("send back", "changed my mind")
)
def cancel_order(number: int) -> str:
    """Cancel an order that is not sent yet."""
    return f"order {number} is cancelled"


def note(name: str) -> str:
    return f"noted: {name}"


for thing in (
    "invoice",
    "contract",
    "photo",
    "playlist",
    "report",
    "ticket",
    "survey",
    "newsletter",
    "coupon",
):
    for verb in ("print", "archive", "rename"):
        registry.register_function(
            f"{verb}_{thing}", f"{verb.capitalize()} the {thing} of that name.", note
        )


def main() -> None:
    def show(messages: list[Message]) -> None:
        shown = retrieve(messages, list(registry))
        print(
            f"{messages[-1].text or '(the search was answered)'}\n    {', '.join(t.name for t in shown) or 'no tools'}"
        )

    retrieve = best(3)
    for request in (
        "Cancel my last order",
        "I changed my mind, Kopfhörer are too loud",
        "Archive all surveys",
        "Hello!",
    ):
        show([Message("user", request)])
    talk = [
        Message("user", "Print the coupon of May"),
        Message("assistant", "Done."),
        Message("user", "And of June?"),
    ]
    show(talk)

    finder = registry.register_tool(find_tools(registry))
    query = {"query": "who is the customer"}  # as the model would ask
    found = registry.call(finder.name, query).content
    call = Message("assistant", tool_calls=(ToolCall("c1", finder.name, query),))
    show(
        [
            Message("user", "Cancel my last order"),
            call,
            Message("tool", tool_results=(ToolResult("c1", found),)),
        ]
    )

    cases = [
        ("Cancel my last order", ["find_customer", "list_orders", "cancel_order"]),
        ("Rename a photo", "rename_photo"),
    ]
    for name, way in {
        "best(3)": best(3),
        "best(3, always=[…])": best(3, always=[find_customer, list_orders]),
    }.items():
        print(f"{name}: {recall_at(cases, way, registry)}")


if __name__ == "__main__":
    main()
