"""How often retrieval shows the right tool among all tools of the Berkeley Function-Calling Leaderboard.

    python tests/benchmarks/bfcl_retrieval.py PATH_TO_BFCL_FOLDER [--base-url http://127.0.0.1:8089/v1 --model NAME]

For the folder see `bfcl_local.py`. All definitions are the pool. recall@K is the mean share of the tools that a request
needs that are among the K shown. With --base-url hybrid retrieval is measured, too, with the embeddings of that
endpoint (`minilm_server.py` is one).
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bfcl_local import Described

from toolkit import Message, Tool, ToolCall, ToolResult
from toolkit.retrieval import Embed, best, embeddings, hybrid
from toolkit.retrieval.ranking import Index
from toolkit.tools.request import Retriever

Task = tuple[str, set[str], dict[str, Any]]
SIZES = (1, 5, 10, 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--base-url", help="of an OpenAI-compatible endpoint for embeddings"
    )
    parser.add_argument(
        "--model", default="all-MiniLM-L6-v2", help="the name that the endpoint knows"
    )
    options = parser.parse_args()
    tools: list[Tool] = [
        Described(each) for each in _lines(options.folder / "tools.jsonl")
    ]
    requests = _lines(options.folder / "requests.jsonl")
    tasks = [
        (_asked(task), {name for call in task["calls"] for name in call}, task)
        for task in requests
    ]
    began = time.process_time()
    Index(tools)
    print(f"{len(tools)} tools, indexed in {time.process_time() - began:.2f} s of CPU")
    ways: dict[str, Callable[..., Retriever]] = {"words": best}
    if options.base_url:
        embed = _remembering(
            embeddings(options.model, base_url=options.base_url, timeout=300)
        )
        embed(
            [asked for asked, _, _ in tasks]
        )  # in batches, which is faster than one by one
        ways["hybrid"] = lambda k: hybrid(embed, k)
    for name, make in ways.items():
        print(f"\n{name}\n{_recalls(make, tools, [task for task in tasks if task[1]])}")
        print(
            f"in a conversation, recall@10: {_conversations(make(10), tools, [task for task in tasks if task[1]])}"
        )
        print(
            f"only the tools of the task given: {_shown_of_own(make(20), tools, tasks)}"
        )
    print(
        f"\nthe same by words, with threshold=0.5: {_shown_of_own(best(20, threshold=0.5), tools, tasks)}"
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _asked(task: dict[str, Any]) -> str:
    return next(
        each["content"] for each in reversed(task["messages"]) if each["role"] == "user"
    )


def _remembering(embed: Embed) -> Embed:
    """So that each request is embedded once, not for each K; what a query costs is measured without that."""
    known: dict[str, Any] = {}

    def embed_once(texts: list[str]) -> list[Any]:
        if missing := [text for text in dict.fromkeys(texts) if text not in known]:
            known.update(zip(missing, embed(missing), strict=True))
        return [known[text] for text in texts]

    return embed_once


def _recalls(
    make: Callable[..., Retriever], tools: list[Tool], tasks: list[Task]
) -> str:
    found = []
    for k in SIZES:
        retrieve = make(k)
        retrieve([Message("user", "weather")], tools)  # what is made once is made
        began = time.process_time()
        shares = [
            _share(retrieve, [Message("user", asked)], tools, names)
            for asked, names, _ in tasks
        ]
        seconds = (time.process_time() - began) / len(tasks)
        found.append(f"recall@{k} {sum(shares) / len(shares):.3f}")
    return (
        f"{', '.join(found)} of n={len(tasks)}; {seconds * 1000:.2f} ms of CPU a query"
    )


def _share(
    retrieve: Retriever, messages: list[Message], tools: list[Tool], names: set[str]
) -> float:
    return len(names & {tool.name for tool in retrieve(messages, tools)}) / len(names)


def _conversations(retrieve: Retriever, tools: list[Tool], tasks: list[Task]) -> str:
    """A request after another one that has nothing to do with it, and a follow-up that says nothing by itself."""
    chance = random.Random(0)
    answered = (
        Message("assistant", tool_calls=(ToolCall("c1", "some_tool"),)),
        Message("tool", tool_results=(ToolResult("c1", '{"ok":true,"value":42}'),)),
        Message("assistant", "It is 42."),
    )
    rates = {}
    for name in ("another subject", "a follow-up"):
        shares = []
        for asked, names, _ in tasks:
            before, last = (
                (chance.choice(tasks)[0], asked)
                if name == "another subject"
                else (asked, FOLLOW_UP)
            )
            shares.append(
                _share(
                    retrieve,
                    [Message("user", before), *answered, Message("user", last)],
                    tools,
                    names,
                )
            )
        rates[name] = sum(shares) / len(shares)
    return ", ".join(f"{name} {rate:.3f}" for name, rate in rates.items())


FOLLOW_UP = "And for the other one, in Paris?"


def _shown_of_own(retrieve: Retriever, tools: list[Tool], tasks: list[Task]) -> str:
    """Whether anything is shown where no call is right, and the right tools where one is."""
    pool = {tool.name: tool for tool in tools}
    shown: dict[str, list[float]] = {
        "needed tools shown": [],
        "irrelevance": [],
        "live_irrelevance": [],
    }
    for asked, names, task in tasks:
        own = task.get("definitions", {})
        offered = [
            Described(own[name]) if name in own else pool[name]
            for name in task["tools"]
        ]
        if names:
            shown["needed tools shown"].append(
                _share(retrieve, [Message("user", asked)], offered, names)
            )
        else:
            shown[task["kind"]].append(not retrieve([Message("user", asked)], offered))
    rates = {
        name: f"{sum(each) / len(each):.3f} of n={len(each)}"
        for name, each in shown.items()
    }
    return ", ".join(
        f"{name}{': nothing shown' if 'irr' in name else ''} {rate}"
        for name, rate in rates.items()
    )


if __name__ == "__main__":
    main()
