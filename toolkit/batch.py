"""Many prompts, each a run of its own: in threads, processes or a cluster, in order, and continued after a crash."""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolkit.audit.locks import locked_file
from toolkit.calls import threads
from toolkit.errors import RunExists, ToolkitError
from toolkit.messages import Reply, whole_characters
from toolkit.models.naming import find_model
from toolkit.models.options import refuse_unknown_options
from toolkit.run import resume, run_agent_with_tools
from toolkit.runs.protocols import RunStore
from toolkit.runs.results import RunResult
from toolkit.tools.registry import registry_of
from toolkit.tools.request import LanguageModel, Request
from toolkit.tools.tool import OutputTool, Toolset

_RUN_PARAMETERS = inspect.signature(run_agent_with_tools).parameters
_MODEL_PARAMETERS = ("client", "base_url", "api_key")
# Only a new run takes these.
_START_PARAMETERS = _RUN_PARAMETERS.keys() - inspect.signature(resume).parameters.keys()


class RunFailed(ToolkitError):
    """A run of a batch raised an exception, which the text names. It is the cause if it was raised in this process."""


def run_batch(
    prompts: Iterable[str],
    *,
    executor: Executor | None = None,
    concurrency: int = 8,
    rate: Rate | None = None,
    store: RunStore | None = None,
    batch_id: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> list[RunResult | RunFailed]:
    """Run each prompt, and return the results in the order of the prompts. A run that fails stops no other.

    executor: any `concurrent.futures.Executor`; None uses threads. An executor of processes or of a
        cluster needs arguments that can be pickled: tools and approvers of modules, models by name.
        The calls of its results have no `value`s.
    concurrency: how many runs are at work at once.
    rate: bounds the requests of all runs together, see `Rate`.
    store, batch_id: the runs are saved as "BATCH_ID-NUMBER". If the same batch is run again, finished
        runs return their result, interrupted ones continue, and the others start.
    on_progress: called with the number of finished runs and the number of all.
    options: those of `run_agent_with_tools`.

    Raises ValueError or TypeError for arguments that cannot work. After KeyboardInterrupt no further run
    starts, and `error.results` has the results so far (None for the others).
    """
    prompts = _prompt_list(prompts)
    _check_arguments(executor, concurrency, rate)
    if (store is None) != (batch_id is None):
        raise ValueError(
            "store= and batch_id= go together: the runs are saved under the batch's id."
        )
    is_local = executor is None or isinstance(executor, ThreadPoolExecutor)
    options = _checked_options(options, is_local=is_local)
    if rate:
        at_server = {name: options.pop(name, None) for name in _MODEL_PARAMETERS}
        model = find_model(options.get("model"), **at_server)
        options["model"] = _PacedModel(model, rate)
    run = _run_one if is_local else _run_elsewhere
    jobs = [
        functools.partial(run, prompt, store, f"{batch_id}-{number}", options)
        for number, prompt in enumerate(prompts)
    ]
    results: list[Any] = [None] * len(jobs)
    finished = 0
    try:
        for number, future in as_they_end(jobs, executor, concurrency):
            result = _result_of(future)
            results[number] = _with_output_type(result, options.get("output_type"))
            finished += 1
            if on_progress:
                on_progress(finished, len(jobs))
    except BaseException as error:
        error.results = results  # type: ignore[attr-defined]
        raise
    return results


def _prompt_list(prompts: Iterable[str]) -> list[str]:
    texts = [] if isinstance(prompts, str) else list(prompts)
    is_text = [isinstance(text, str) for text in texts]
    if isinstance(prompts, str) or not all(is_text):
        raise TypeError(
            "prompts must be a list of texts. Give one text alone to run_agent_with_tools."
        )
    return texts


def _check_arguments(executor: Any, concurrency: Any, rate: Any) -> None:
    if executor is not None and not hasattr(executor, "submit"):
        raise TypeError(
            f"executor must be a concurrent.futures.Executor, not {executor!r}. "
            "Pass None to use threads."
        )
    if type(concurrency) is not int or concurrency < 1:
        raise ValueError(
            f"concurrency={concurrency!r} lets nothing run. "
            "Give a whole number of 1 or more."
        )
    if not isinstance(rate, Rate | None):
        raise TypeError(
            f"rate must be a Rate, not {type(rate).__name__}. "
            "Write rate=Rate(60) for 60 requests a minute."
        )


def _checked_options(options: dict[str, Any], *, is_local: bool) -> dict[str, Any]:
    """The options of every run. Its tools are read once, but a reference is left to be imported elsewhere."""
    for name in ("prompt", "run_id"):
        if name in options:
            raise TypeError(
                f"{name!r} belongs to one run. A batch has prompts, "
                "and makes the run ids from its batch_id."
            )
    fields = {name: options[name] for name in options.keys() - _RUN_PARAMETERS.keys()}
    refuse_unknown_options(fields, _RUN_PARAMETERS)
    tools = options.get("tools")
    if is_local or not isinstance(tools, str):
        tools = list(registry_of(tools))
    return {**options, "tools": tools}


class Rate:
    """At most so many requests a minute, evenly spaced, for all runs that share it.

    `path` is a file through which the processes of one machine share the rate. Without it the rate holds
    within one process.
    """

    def __init__(self, per_minute: float, path: str | Path | None = None) -> None:
        if not per_minute > 0:
            raise ValueError(
                f"Rate(per_minute={per_minute!r}) lets nothing through. "
                "Give a number above 0."
            )
        self.per_minute = per_minute
        self.path = None if path is None else str(Path(path).absolute())
        self._next = 0.0

    def take(self) -> float:
        """Take the next place, and return the seconds until then."""
        now = time.time()
        spacing = 60 / self.per_minute
        if self.path is None:
            with _rates_lock:
                start = max(now, self._next)
                self._next = start + spacing
        else:
            with locked_file(self.path) as file:
                start = max(now, float(file.read() or 0))
                file.seek(0)
                file.truncate()
                file.write(str(start + spacing).encode())
        return start - now


# One for all, because a lock cannot be pickled with its rate. Nobody waits while holding it.
_rates_lock = threading.Lock()


class _PacedModel(LanguageModel):
    """A model whose requests wait for their place."""

    def __init__(self, model: LanguageModel, rate: Rate) -> None:
        self.name = model.name
        self.info = model.info
        self.provider = model.provider
        self.defaults = model.defaults
        self._model = model
        self._rate = rate

    @property
    def prompted(self) -> LanguageModel:
        return _PacedModel(self._model.prompted, self._rate)

    def complete(self, request: Request) -> Reply:
        time.sleep(self._rate.take())
        return self._model.complete(request)

    async def acomplete(self, request: Request) -> Reply:
        import asyncio

        await asyncio.sleep(self._rate.take())
        return await self._model.acomplete(request)


def as_they_end(
    jobs: Iterable[Callable[[], Any]], executor: Executor | None, concurrency: int
) -> Iterator[tuple[int, Future[Any]]]:
    """Run jobs, `concurrency` at once, and yield the number and the future of each as it ends.

    Without an executor they run in daemon threads, so a stuck job does not hold the process. After this
    generator is closed no further job starts.
    """
    waiting = iter(enumerate(jobs))
    running: dict[Future[Any], int] = {}
    try:
        while True:
            for number, job in itertools.islice(waiting, concurrency - len(running)):
                future = executor.submit(job) if executor else threads.start(job)
                running[future] = number
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future
    finally:
        for future in running:
            future.cancel()


def _run_one(
    prompt: str, store: RunStore | None, run_id: str, options: dict[str, Any]
) -> RunResult:
    if store is None:
        return run_agent_with_tools(prompt, **options)
    try:
        return run_agent_with_tools(prompt, store=store, run_id=run_id, **options)
    except RunExists:
        run = store.load(run_id)
    if run.messages[run.history].text != whole_characters(prompt):
        raise RunFailed(
            f"The store has {run_id!r} with another prompt. Give this batch another batch_id."
        )
    remaining = {name: options[name] for name in options.keys() - _START_PARAMETERS}
    return resume(run_id, store=store, **remaining)


def _run_elsewhere(*arguments: Any) -> RunResult | RunFailed:
    """What every process can return: a result without the values of its calls, or a failure as text."""
    try:
        return RunResult.from_json(_run_one(*arguments).to_json())
    except Exception as error:
        return _failure(error)


def _result_of(future: Future[RunResult | RunFailed]) -> RunResult | RunFailed:
    try:
        return future.result()
    except Exception as error:
        failure = _failure(error)
        if failure is not error:
            failure.__cause__ = error
        return failure


def _failure(error: Exception) -> RunFailed:
    if isinstance(error, RunFailed):
        return error
    return RunFailed(f"{type(error).__name__}: {error}")


def _with_output_type(
    result: RunResult | RunFailed, output_type: Any
) -> RunResult | RunFailed:
    """The result of another process with the type of its output, which stayed in this one."""
    if output_type is None or isinstance(result, RunFailed):
        return result
    if result.toolset is not None:
        return result
    tool = OutputTool(output_type)
    tool.name = result.run.output
    return replace(result, toolset=Toolset([tool]))
