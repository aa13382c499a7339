"""Tools over a database, with what the model must not choose kept out of its hands.

    python examples/database.py

Which database, and which customer is logged in, comes from the program: `deps=` carries it into the run, and each
tool finds it in its `ToolContext`, a parameter that the model does not see. So nobody reads another customer's orders
by asking for them. What the model does choose goes into a query as a parameter ("?"), never into its text, and a tool
that only reads has a connection that cannot write. The permission tiers make a read-only assistant out of the same
tools in one line.
"""

import os
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from toolkit import (
    ScriptedModel,
    ToolCall,
    ToolContext,
    ToolError,
    ToolRegistry,
    run_agent_with_tools,
    tool,
)

registry = ToolRegistry()


@dataclass(frozen=True)
class Session:
    database: Path
    customer: int

    def connect(
        self, mode: Literal["ro", "rw", "rwc"] = "ro"
    ) -> closing[sqlite3.Connection]:
        # One for each call: they run in threads, and a connection of sqlite3 belongs to the thread that opened it.
        address = f"{self.database.as_uri()}?mode={mode}"
        return closing(
            sqlite3.connect(address, uri=True, isolation_level=None)
        )  # None commits each statement


@tool(registry=registry, permission="read")
def list_orders(context: ToolContext) -> list[dict]:
    """The customer's orders, with number, article and state. Use it to find the number of an order."""
    session: Session = context.deps
    with session.connect() as database:
        rows = database.execute(
            "SELECT number, article, state FROM orders WHERE customer = ?",
            (session.customer,),
        )
        return [
            {"number": number, "article": article, "state": state}
            for number, article, state in rows
        ]


@tool(registry=registry, permission="write")
def cancel_order(number: int, context: ToolContext) -> str:
    """Cancel an order that is not sent yet. Use it only where the customer asks for it.

    Args:
        number: The order's number, as `list_orders` gives it.
    """
    session: Session = context.deps
    change = "UPDATE orders SET state = 'cancelled' WHERE number = ? AND customer = ? AND state = 'open'"
    with session.connect("rw") as database:
        changed = database.execute(change, (number, session.customer)).rowcount
    if not changed:
        raise ToolError(
            f"The customer has no open order {number}. Look at list_orders."
        )
    return f"order {number} is cancelled"


def fill(session: Session) -> None:
    orders = [(1, 7, "kettle", "sent"), (2, 7, "lamp", "open"), (3, 8, "piano", "open")]
    with session.connect("rwc") as database:
        database.execute(
            "CREATE TABLE orders (number INTEGER PRIMARY KEY, customer INTEGER, article, state)"
        )
        database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", orders)


def pick_model(*script: Any) -> ScriptedModel | None:
    return (
        None
        if os.environ.get("TOOLKIT_MODEL") or os.environ.get("OPENAI_API_KEY")
        else ScriptedModel(script)
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Path(folder) / "shop.db", customer=7)
        fill(session)

        cancels = [
            ToolCall("", "cancel_order", {"number": 2}),
            ToolCall("", "cancel_order", {"number": 3}),
        ]
        model = pick_model(
            ToolCall("", "list_orders"),
            cancels,
            "The lamp is cancelled. Order 3 is not yours.",
        )
        result = run_agent_with_tools(
            "Cancel my lamp, and order 3.", model=model, tools=registry, deps=session
        )
        for call in result.calls:
            print(f"{call.name}({dict(call.arguments)}) -> {call.content}")
        print(result)

        reader = registry.subset(tiers={"read"})
        model = pick_model(
            ToolCall("", "list_orders"),
            "Your lamp is cancelled, your kettle is on its way.",
        )
        result = run_agent_with_tools(
            "How are my orders?", model=model, tools=reader, deps=session
        )
        print(f"with {[tool.name for tool in reader]}: {result}")


if __name__ == "__main__":
    main()
