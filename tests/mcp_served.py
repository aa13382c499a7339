"""A registry of ours as an MCP server: python mcp_served.py stdio|http [port] [tier ...]"""

import sys
import time
from dataclasses import dataclass

from toolkit import ToolContext, ToolError, ToolRegistry, mcp, tool

registry = ToolRegistry()
print("printed before anybody is there")


@dataclass
class Sum:
    total: int
    of: list[int]


@tool(registry=registry, permission="read")
def total(values: list[int]) -> Sum:
    """Add up whole numbers.

    Args:
        values: The numbers.
    """
    print("a tool that prints")
    return Sum(sum(values), values)


@tool(registry=registry, name="shop.greet")
async def greet(name: str, context: ToolContext) -> str:
    """Greet somebody."""
    return f"{context.deps}, {name}! 日本"


@tool(registry=registry, permission="sensitive")
def delete_all() -> str:
    """Delete everything."""
    return "all is gone"


@tool(registry=registry)
def fail(how: str) -> str:
    """Fail in one way or another."""
    if how == "spoken":
        raise ToolError("there is no such city")
    raise OSError("cannot read /home/user/secret.txt")


@tool(registry=registry)
def wait(seconds: float) -> str:
    """Wait a while."""
    time.sleep(seconds)
    return "waited"


if __name__ == "__main__":
    transport, *rest = sys.argv[1:]
    port, tiers = int(rest[0]) if rest else 0, rest[1:] or ["read", "write"]
    mcp.serve(
        registry,
        name="shop",
        transport=transport,
        port=port,
        tiers=tiers,
        deps="Good day",
    )
