"""The tools of an MCP server, as tools here; and a registry, served as an MCP server.

    with mcp.connect("uvx mcp-server-time", name="time") as server:
        run_agent_with_tools("What time is it in Tokyo?", tools=server.tools)

The official SDK speaks the protocol. What a server sends is untrusted: one bad tool of a list, a line that is not a
message, a death during a call cost no more than themselves.
"""

try:
    from mcp import Client as _Client  # noqa: F401  # older SDKs have none
except ImportError as error:
    raise ImportError(
        "MCP needs its SDK. Install it: pip install 'toolkit-agent[mcp]'."
    ) from error

from toolkit.mcp.connection import Server
from toolkit.mcp.connection import Server as connect  # as it reads where it is used
from toolkit.mcp.server import serve

__all__ = ["Server", "connect", "serve"]
