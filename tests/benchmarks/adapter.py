"""This toolkit for the side-by-side benchmark: its public functions, with their defaults.

A single call is measured on the caller's own thread, as a tool with `timeout=None` runs; the class
`OnWorker` measures the default, a worker thread that bounds the call to 60 seconds.
"""

from types import SimpleNamespace

from .base import Adapter


class Toolkit(Adapter):
    name = "toolkit"
    env = "toolkit"
    distributions = ("toolkit-agent",)
    imports = "from toolkit import tool, run_agent_with_tools, arun_agent_with_tools"
    notes = {"loop": "run_agent_with_tools / arun_agent_with_tools", "dispatch": "ToolRegistry.call"}
    timeout = None

    def declare(self, functions):
        from toolkit import ToolRegistry, tool

        registry = ToolRegistry()
        return [tool(registry=registry)(function) for function in functions]

    def schemas(self, tools):
        return [dict(function.tool_schema) for function in tools]

    def dispatcher(self, function):
        from toolkit import ToolRegistry

        registry = ToolRegistry()
        made = registry.register_tool(function, timeout=self.timeout)
        return lambda arguments: registry.call(made.name, arguments).content

    def open(self, model, functions, max_turns, concurrency=1):
        from toolkit import Model, ToolRegistry

        asked = Model(model, base_url=self.base_url, api_key=self.api_key)
        return SimpleNamespace(model=asked, tools=ToolRegistry(functions), max_turns=max_turns)

    def run(self, s, prompt):
        from toolkit import run_agent_with_tools

        return str(run_agent_with_tools(prompt, model=s.model, tools=s.tools, max_turns=s.max_turns))

    async def aopen(self, model, functions, max_turns, concurrency=1):
        return self.open(model, functions, max_turns, concurrency)

    async def arun(self, s, prompt):
        from toolkit import arun_agent_with_tools

        return str(await arun_agent_with_tools(prompt, model=s.model, tools=s.tools, max_turns=s.max_turns))


class OnWorker(Toolkit):
    name = "toolkit_worker"
    skip = (
        "W1",
        "W1b",
        "W1c",
        "W2",
        "W2r",
        "W3s",
        "W3x",
        "W3a",
        "W4s",
        "W4x",
        "W4a",
        "W6",
        "W6h",
        "W7",
        "W7c",
        "W8",
        "W8t",
    )
    timeout = 60.0


ADAPTER = Toolkit
