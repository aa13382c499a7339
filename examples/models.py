"""One program, several models: a server, one that takes no tools, and another model where the first is away.

    python examples/models.py

A name says which wire is spoken: "NAME" Chat Completions, "responses:NAME", "anthropic:NAME", "react:NAME" (tools
in the prompt). A `Model` keeps its connection and what every request carries. What goes wrong at a server is tried
again for a while, then raised as ModelError with the whole run attached: another model goes on from there. Here a small
server in this file plays all of them, so nothing else is needed. To see what a wire gets of a tool: check_tools.py.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from toolkit import Model, ModelError, resume, run_agent_with_tools, tool

ARGUMENTS = json.dumps({"city": "Oslo"})


@tool(permission="read")
def get_weather(city: str) -> str:
    """Current weather for a city. Use it for every question on the weather."""
    return f"snow in {city}"


class Served(BaseHTTPRequestHandler):
    """A server in the form of OpenAI's Chat Completions, as Ollama, vLLM and llama.cpp are."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        last, has_tools = body["messages"][-1], "tools" in body
        shown = {
            name: body[name]
            for name in ("model", "temperature", "seed")
            if name in body
        }
        print(
            "    the server is asked:",
            shown,
            "with tools" if has_tools else "without tools",
        )
        if body["model"] == "away":
            return self.send(503, {"error": {"message": "down for maintenance"}})
        if body["model"] == "plain" and has_tools:
            return self.send(
                400, {"error": {"message": "plain does not support tools"}}
            )
        if "snow" in last["content"]:
            message = {
                "content": "Final Answer: Take boots."
                if body["model"] == "plain"
                else "Take boots."
            }
        elif body["model"] == "plain":
            message = {
                "content": f"Thought: I look.\nAction: get_weather\nAction Input: {ARGUMENTS}"
            }
        else:
            called = {"name": "get_weather", "arguments": ARGUMENTS}
            message = {
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": called}],
            }
        self.send(
            200,
            {
                "choices": [
                    {
                        "message": {"role": "assistant", **message},
                        "finish_reason": "stop",
                    }
                ]
            },
        )

    def send(self, status: int, body: dict) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_) -> None:
        pass


def ask(at: dict) -> None:
    question, tools = "Which shoes in Oslo?", [get_weather]

    print("--- a model, made once; a run may say more")
    model = Model("native", **at, temperature=0)
    print(run_agent_with_tools(question, tools=tools, model=model, seed=7))

    print("--- a server that takes no tools: they go into the prompt, by themselves")
    result = run_agent_with_tools(question, tools=tools, model="plain", **at)
    print(result, [call.content for call in result.calls])

    print("--- another model, where the first is away")
    try:
        result = run_agent_with_tools(
            question, tools=tools, model=Model("away", **at, retries=0)
        )
    except ModelError as error:
        print(f"    {error.status}: {error}")
        result = resume(error.run, tools=tools, model=model)
    print(result)


def main() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Served) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ask(
            {"base_url": f"http://127.0.0.1:{server.server_port}/v1", "api_key": "none"}
        )
        server.shutdown()


if __name__ == "__main__":
    main()
