"""An MCP server in bare JSON lines, which does what it is told to: also what no decent server does.

    python mcp_peer.py '{"tools": [...], "does": {"name of a tool": {...}}, "page": 2}' [file of what it received]

A tool gives its arguments back as text, unless `does` says otherwise: `print` (a line before the answer), `bytes`
(in hexadecimal, before it), `result`, `error`, `exit` (end with that status), `hang` (never answer). `page` is how
many tools a page of the list has, `later` the tools that there are once the first list was told.
"""

import json
import os
import sys

told = json.loads(sys.argv[1])
received = open(sys.argv[2], "a", encoding="utf-8") if len(sys.argv) > 2 else None  # noqa: SIM115  # as long as we live
tools, does = told["tools"], told.get("does", {})
page = told.get("page", len(tools) or 1)


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(request):
    method, parameters = request["method"], request.get("params") or {}
    if method == "initialize":
        send(
            id=request["id"],
            result={
                "protocolVersion": parameters["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "peer", "version": "1"},
            },
        )
    elif method == "tools/list":
        at = int(parameters.get("cursor") or 0)
        rest = {"nextCursor": str(at + page)} if at + page < len(tools) else {}
        send(id=request["id"], result={"tools": tools[at : at + page], **rest})
        if "later" in told and not rest:
            tools[:] = told.pop("later")
            send(method="notifications/tools/list_changed")
    elif method == "tools/call":
        call(request["id"], parameters["name"], parameters.get("arguments"))
    else:
        send(id=request["id"], error={"code": -32601, "message": f"no method {method}"})


def call(number, name, arguments):
    act = does.get(name, {})
    if "print" in act:
        print(act["print"], flush=True)
    if "bytes" in act:
        sys.stdout.buffer.write(bytes.fromhex(act["bytes"]))
        sys.stdout.flush()
    if "exit" in act:
        print("I am leaving.", file=sys.stderr, flush=True)
        sys.exit(act["exit"])
    if "error" in act:
        send(id=number, error=act["error"])
    elif "hang" not in act:
        send(
            id=number,
            result=act.get("result")
            or {
                "content": [
                    {
                        "type": "text",
                        "text": json.dumps(
                            {"pid": os.getpid(), "arguments": arguments}
                        ),
                    }
                ]
            },
        )


if told.get("refuse"):
    sys.exit(told["refuse"])
for line in sys.stdin:
    if received:
        print(line.strip(), file=received, flush=True)
    message = json.loads(line)
    if "id" in message and "method" in message:
        answer(message)
