"""A loop of one's own: the tools and their calls from the toolkit, the requests by the SDK's client.

    python examples/own_loop.py

Two rounds written by hand show what `run_agent_with_tools` does for you. A small server in this
file plays the model.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from openai import OpenAI

from toolkit import ScriptedModel, ToolRegistry, run_agent_with_tools, tool

registry = ToolRegistry()  # or toolkit.REGISTRY, in which @tool registers by default


@tool(registry=registry, permission="read")
def get_weather(city: str) -> dict[str, Any]:
    """Current weather of a city. Use for questions on weather or umbrellas.

    Args:
        city: City name, e.g. "Oslo".
    """
    return {"city": city, "sky": "rain"}


def answer_with_own_loop(client: OpenAI, question: str) -> list[Any]:
    """Ask until no call is left; return the conversation, with the SDK's own message objects in it."""
    messages: list[Any] = [{"role": "user", "content": question}]
    while True:
        completion = client.chat.completions.create(
            model="small", messages=messages, tools=registry.schemas()
        )
        message = completion.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return messages
        for call in message.tool_calls:
            result = registry.call(call.function.name, call.function.arguments)
            messages.append(
                {"role": "tool", "tool_call_id": call.id, "content": str(result)}
            )


class PlayedModel(BaseHTTPRequestHandler):
    """Calls the tool first, and answers once it has the result."""

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        request = json.loads(self.rfile.read(length))
        message: dict[str, Any] = {"role": "assistant", "content": "Take an umbrella."}
        if request["messages"][-1]["role"] == "user":
            function = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
            call = {"id": "c1", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        body = {
            "id": "r1",
            "object": "chat.completion",
            "created": 0,
            "model": request["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        }
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Keep the terminal for the conversation."""


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), PlayedModel)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}/v1"
    with OpenAI(base_url=address, api_key="none") as client:
        messages = answer_with_own_loop(client, "Do I need an umbrella in Oslo?")
    server.shutdown()
    server.server_close()
    print(messages[-1].content)

    # The conversation continues in a run: history takes the SDK's objects as they are.
    model = ScriptedModel(["Yes, it rains all day."])
    result = run_agent_with_tools(
        "Are you sure?", history=messages, tools=registry, model=model
    )
    print(result)


if __name__ == "__main__":
    main()
