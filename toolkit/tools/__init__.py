"""A function becomes a tool: its signature, its schema, its strict form, its validator; tools by name."""

from toolkit.tools.decorator import tool
from toolkit.tools.parameter import ToolParameter
from toolkit.tools.registry import REGISTRY, ToolRegistry, import_tools
from toolkit.tools.request import LanguageModel, Request, Retriever
from toolkit.tools.tool import Tool

__all__ = [
    "REGISTRY",
    "LanguageModel",
    "Request",
    "Retriever",
    "Tool",
    "ToolParameter",
    "ToolRegistry",
    "import_tools",
    "tool",
]
