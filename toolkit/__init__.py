"""A decorator-first micro-toolkit for tool calling.

`@tool` turns a function into something a language model can call;
`run_agent_with_tools` drives the conversation until there is an answer.

What not everybody needs stands in modules beside it, imported by name:

| to | look into |
|---|---|
| decide on calls | `toolkit.approval` |
| keep runs, and what was done | `toolkit.store`, `toolkit.audit`, `toolkit.replay` |
| run many prompts | `toolkit.batch` |
| contain a function | `toolkit.isolation` |
| show only some of many tools | `toolkit.retrieval` |
| check tools, and measure models with them | `toolkit.lint`, `toolkit.cost`, `toolkit.evals` |
| see what happens | `toolkit.display`, `toolkit.events`, `toolkit.otel` |
| speak MCP | `toolkit.mcp` |
| know what may be raised | `toolkit.errors` |
"""

from toolkit.errors import ModelError, ToolError, ToolkitError
from toolkit.messages import (
    Limits,
    Message,
    ModelInfo,
    Reply,
    ToolCall,
    ToolContext,
    ToolResult,
    ToolReturn,
    Usage,
    Verdict,
)
from toolkit.models.model import Model
from toolkit.models.scripted import ScriptedModel
from toolkit.run import (
    aextract,
    aresume,
    arun_agent_with_tools,
    extract,
    resume,
    run_agent_with_tools,
)
from toolkit.runs.results import RunResult
from toolkit.runs.state import Run
from toolkit.tools.decorator import tool
from toolkit.tools.parameter import ToolParameter
from toolkit.tools.registry import REGISTRY, ToolRegistry
from toolkit.tools.tool import Tool

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022  # sorted as Python sorts
    "Limits",
    "Message",
    "Model",
    "ModelError",
    "ModelInfo",
    "REGISTRY",
    "Reply",
    "Run",
    "RunResult",
    "ScriptedModel",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolParameter",
    "ToolRegistry",
    "ToolResult",
    "ToolReturn",
    "ToolkitError",
    "Usage",
    "Verdict",
    "__version__",
    "aextract",
    "aresume",
    "arun_agent_with_tools",
    "extract",
    "resume",
    "run_agent_with_tools",
    "tool",
]
