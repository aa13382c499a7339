"""Tools of an MCP server beside functions of one's own, and a registry that is such a server.

    python examples/mcp_tools.py

The server is this file too, started as `python examples/mcp_tools.py serve`, and so it would be written down in the
settings of any program that speaks MCP. Needs the package `mcp`: pip install 'toolkit-agent[mcp]'.
"""

import os
import sys
from typing import Any

from toolkit import (
    ScriptedModel,
    ToolCall,
    ToolError,
    ToolRegistry,
    mcp,
    run_agent_with_tools,
    tool,
)

library = ToolRegistry()
BOOKS = {"The Dispossessed": 4, "Solaris": 0}


@tool(registry=library, permission="read")
def count_copies(title: str) -> dict:
    """How many copies of a book are on the shelf. Use it before a book is lent.

    Args:
        title: The exact title.
    """
    if title not in BOOKS:
        raise ToolError(f"There is no {title!r}. There are: {', '.join(BOOKS)}.")
    return {"title": title, "copies": BOOKS[title]}


@tool(registry=library, permission="sensitive")
def discard_book(title: str) -> str:
    """Throw all copies of a book away."""
    BOOKS.pop(title)
    return f"{title} is gone"


def lend_book(title: str, reader: str) -> str:
    """Lend a book to a reader."""
    return f"{title} is lent to {reader}"


def pick_model(*script: Any) -> ScriptedModel | None:
    return (
        None
        if os.environ.get("TOOLKIT_MODEL") or os.environ.get("OPENAI_API_KEY")
        else ScriptedModel(script)
    )


def main() -> None:
    with mcp.connect(
        [sys.executable, __file__, "serve"], name="library", env=dict(os.environ)
    ) as server:
        print(
            "the server's tools:",
            [f"{tool.name} ({tool.permission})" for tool in server.tools],
        )
        model = pick_model(
            [
                ToolCall("", "library_count_copies", {"title": title})
                for title in ("Solaris", "Dispossessed")
            ],
            ToolCall("", "library_count_copies", {"title": "The Dispossessed"}),
            ToolCall(
                "", "lend_book", {"title": "The Dispossessed", "reader": "Shevek"}
            ),
            "Solaris is out, so I lent The Dispossessed to Shevek.",
        )
        question = "Lend Solaris to Shevek, or else Dispossessed."
        result = run_agent_with_tools(
            question, model=model, tools=[*server.tools, lend_book]
        )
        for call in result.calls:
            print(
                f"{call.name}({dict(call.arguments)}) -> {'error: ' * call.is_error}{call.content}"
            )
        print(result)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        mcp.serve(library, name="library")
    else:
        main()
