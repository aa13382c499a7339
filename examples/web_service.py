"""An agent inside a web service: one model for all requests, runs that end with their client, and approval later.

    python examples/web_service.py            # serves itself some requests, and ends
    python examples/web_service.py --serve    # serves at http://127.0.0.1:8000

Needs `starlette` and `uvicorn` (the extra `mcp` brings both); any framework with `async` will do. Three things matter:

- `arun_agent_with_tools` runs on the server's own event loop, so that one process serves many runs. Make one `Model`
  and keep it: it holds the connections.
- Where the client goes away, the task is cancelled. The run in the store is whole, and can be resumed by its id.
- A run that needs a verdict pauses, and the request is over. A later request, in any process, decides by the run's id.

Who may ask and who may decide is the service's affair: take the user from your session, not from the body as here.
`examples/approval_web` shows what a page for it needs. A script plays the model. Set OPENAI_API_KEY or TOOLKIT_MODEL,
and with --serve a real one is asked.
"""

import asyncio
import contextlib
import http.client
import json
import os
import sys
import tempfile
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from toolkit import (
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolContext,
    Verdict,
    aresume,
    arun_agent_with_tools,
    tool,
)
from toolkit.errors import ApprovalError, StoreError
from toolkit.models import find_model
from toolkit.store import SQLiteStore


@tool(permission="read")
async def ask_supplier(article: str) -> str:
    """Ask the supplier for the price of an article. Use it for every question on prices."""
    await asyncio.sleep(60 if article == "piano" else 0.05)
    return f"{article}: 20 euros"


@tool(permission="sensitive")
def order(article: str, context: ToolContext) -> str:
    """Order an article for the user. Use it only where the user asks for it."""
    return f"{article} is ordered for {context.deps}"


def play(request):
    """The model's part; it holds no state, so it serves any number of runs at once."""
    last = request.messages[-1]
    if last.role == "tool":
        return " ".join(result.content for result in last.tool_results)
    name = "order" if last.text.startswith("Order") else "ask_supplier"
    return ToolCall("", name, {"article": last.text.split()[-1].strip("?.")})


def make_service(store: SQLiteStore) -> Starlette:
    is_real = os.environ.get("TOOLKIT_MODEL") or os.environ.get("OPENAI_API_KEY")
    model = find_model(None) if is_real else ScriptedModel(play)
    given = {"model": model, "tools": [ask_supplier, order], "store": store}

    async def ask(request: Request) -> JSONResponse:
        body = await request.json()
        run = arun_agent_with_tools(body["question"], deps=body["user"], **given)
        return answer(await while_connected(request, run))

    async def decide(request: Request) -> JSONResponse:
        body = await request.json()
        verdict = Verdict(body["decision"], by=body["user"], digest=body["digest"])
        try:
            run = aresume(
                request.path_params["run_id"],
                {body["call"]: verdict},
                deps=body["user"],
                **given,
            )
            return answer(await while_connected(request, run))
        except (
            ApprovalError,
            StoreError,
        ) as error:  # decided before, no such run, or another process has it
            return JSONResponse({"error": str(error)}, 409)

    routes = [
        Route("/runs", ask, methods=["POST"]),
        Route("/runs/{run_id}/verdict", decide, methods=["POST"]),
    ]
    return Starlette(routes=routes)


async def while_connected(request: Request, run) -> RunResult:
    """The result of a run, which is cancelled where nobody waits for it any more."""
    task = asyncio.ensure_future(run)
    gone = asyncio.ensure_future(disconnected(request))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        print("    the client has gone: the run is cancelled")
        raise HTTPException(499)  # nobody reads it
    finally:
        gone.cancel()
        if task.cancel():  # also where the server shuts down
            await asyncio.wait([task])  # its last state is being kept


async def disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def answer(result: RunResult) -> JSONResponse:
    waiting = [
        {
            "id": call.id,
            "name": call.name,
            "arguments": dict(call.arguments),
            "digest": call.digest,
        }
        for call in result.waiting
    ]
    body = {
        "run": result.run.id,
        "stop_reason": result.stop_reason,
        "text": result.text,
        "waiting": waiting,
    }
    return JSONResponse(body, 202 if waiting else 200)


# What follows plays the clients.


def post(port: int, path: str, patience: float = 30, **body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience)
    with contextlib.closing(connection):
        connection.request(
            "POST", path, json.dumps(body), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        return response.status, json.loads(response.read())


async def try_out(store: SQLiteStore) -> None:
    server = uvicorn.Server(
        uvicorn.Config(make_service(store), port=0, log_level="critical", ws="none")
    )
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]

    async def ask(path, **body):
        return await asyncio.to_thread(post, port, path, user="Ada", **body)

    articles = ["lamp", "chair", "table"]
    answers = await asyncio.gather(
        *(ask("/runs", question=f"What is the price of a {name}?") for name in articles)
    )
    print("three at once:", [body["text"] for _, body in answers])

    status, paused = await ask("/runs", question="Order a lamp.")
    (call,) = paused["waiting"]
    print(f"to be approved ({status}): {call['name']}({call['arguments']})")
    decided = {"call": call["id"], "digest": call["digest"], "decision": "approve"}
    status, body = await ask(f"/runs/{paused['run']}/verdict", **decided)
    print(f"approved ({status}): {body['text']}")
    status, body = await ask(f"/runs/{paused['run']}/verdict", **decided)
    print(f"approved again ({status}): {body['error']}")

    with contextlib.suppress(TimeoutError):
        await ask("/runs", question="What is the price of a piano?", patience=0.3)
    while store.runs("running"):
        await asyncio.sleep(0.01)
    print("in the store:", [run.status for run in store.runs()])
    server.should_exit = True
    await serving


def main() -> None:
    if sys.argv[1:] == ["--serve"]:
        return uvicorn.run(make_service(SQLiteStore("service.db")), port=8000)
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "runs.db")
        asyncio.run(try_out(store))
        store.close()


if __name__ == "__main__":
    main()
