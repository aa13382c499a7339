"""Many prompts, each a run of its own: several at once, in order, none harmed by another, and going on after a crash.

    python examples/batch.py

Here they run in threads. `executor=ProcessPoolExecutor()` takes processes and `executor=Client(…).get_executor()` of
`dask.distributed` a cluster (extra `cluster`); what is given must then be picklable: tools named as "module" or
"module:name", and models by their names. A script plays the model; set OPENAI_API_KEY or TOOLKIT_MODEL, and a real
one is asked.
"""

import os
import re
import tempfile
from pathlib import Path

from toolkit import ScriptedModel, ToolCall, tool
from toolkit.batch import Rate, RunFailed, run_batch
from toolkit.store import SQLiteStore


@tool(permission="read")
def count_letters(word: str) -> int:
    """How many letters a word has. Use it for every question on the length of a word.

    Args:
        word: One word.
    """
    return len(word)


def play(request):
    word = re.findall(r"\w+", request.messages[0].text)[-1]
    if word == "nothing":
        raise ConnectionError("the model is away")  # what a run raises stops no other
    results = request.messages[-1].tool_results
    return (
        f"{word}: {results[0].content}"
        if results
        else ToolCall("", "count_letters", {"word": word})
    )


def main() -> None:
    is_real = os.environ.get("TOOLKIT_MODEL") or os.environ.get("OPENAI_API_KEY")
    model = None if is_real else ScriptedModel(play)
    words = ["tea", "nothing", "marmalade", "toast"]
    prompts = [f"How many letters are in the word {word}?" for word in words]

    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "runs.db")
        options = {
            "tools": [count_letters],
            "model": model,
            "store": store,
            "batch_id": "breakfast",
        }
        results = run_batch(prompts, concurrency=2, rate=Rate(6_000), **options)
        for prompt, result in zip(prompts, results, strict=True):
            print(
                f"{prompt:48} {'FAILED ' if isinstance(result, RunFailed) else ''}{result}"
            )

        if not is_real:
            model.requests.clear()
        run_batch(
            prompts,
            on_progress=lambda done, of: print(f"again: {done} of {of}"),
            **options,
        )
        if not is_real:  # only the one that had failed was asked
            print(
                "asked anew:", [request.messages[0].text for request in model.requests]
            )
        store.close()


if __name__ == "__main__":
    main()
