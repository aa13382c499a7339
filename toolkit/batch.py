"""Many prompts, each a run of its own: in threads, processes or a cluster, in order, and going on after a crash."""

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


class RunFailed(ToolkitError):
    """A run of a batch raised: its text names the exception, which is its cause where it was raised in this process."""


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
    """Run each prompt; return what each came to, in their order. A run that fails stops no other.

    executor: any `concurrent.futures.Executor`; None is threads. For one of processes or of a cluster, what is given
        must be picklable: tools and approvers of modules, models by name. Results then have no `value`s.
    concurrency: how many runs are under way at once.
    rate: bounds the requests of all runs together, see `Rate`.
    store, batch_id: runs are kept as "BATCH_ID-NUMBER". The same batch again returns what has ended, goes on with what
        was broken off, and runs the rest.
    on_progress: called with how many have ended, and how many there are.
    options: those of `run_agent_with_tools`.

    Raises ValueError or TypeError for what cannot work. On KeyboardInterrupt nothing more is begun, and what has ended
    is on `error.results` (None for the rest).
    """
    prompts = _listed(prompts)
    _check(executor, concurrency)
    if not isinstance(rate, Rate | None):
        raise TypeError(
            f"rate is a Rate, not {type(rate).__name__}. Write rate=Rate(60) for 60 requests a minute."
        )
    if (store is None) != (batch_id is None):
        raise ValueError(
            "store= and batch_id= go together: the runs are kept under the batch's id."
        )
    is_near = executor is None or isinstance(executor, ThreadPoolExecutor)
    options = _checked(options, is_near)
    if rate:
        model = find_model(
            options.pop("model", None),
            **{name: options.pop(name, None) for name in _OF_A_MODEL},
        )
        options["model"] = _Paced(model, rate)
    work = _run_one if is_near else _run_elsewhere
    jobs = [
        functools.partial(work, prompt, store, f"{batch_id}-{at}", options)
        for at, prompt in enumerate(prompts)
    ]
    results: list[Any] = [None] * len(prompts)
    try:
        for done, (at, future) in enumerate(
            as_they_end(jobs, executor, concurrency), 1
        ):
            results[at] = _typed(_read(future), options.get("output_type"))
            if on_progress:
                on_progress(done, len(prompts))
    except BaseException as error:
        error.results = results  # type: ignore[attr-defined]
        raise
    return results


_OF_A_MODEL = ("client", "base_url", "api_key")


def _listed(prompts: Iterable[str]) -> list[str]:
    listed = [] if isinstance(prompts, str) else list(prompts)
    if isinstance(prompts, str) or not all(
        isinstance(prompt, str) for prompt in listed
    ):
        raise TypeError(
            "prompts is a list of texts. One text alone goes to run_agent_with_tools."
        )
    return listed


def _check(executor: Any, concurrency: Any) -> None:
    if executor is not None and not hasattr(executor, "submit"):
        raise TypeError(
            f"executor is one of concurrent.futures, not {executor!r}. None is threads."
        )
    if type(concurrency) is not int or concurrency < 1:
        raise ValueError(
            f"concurrency={concurrency!r} lets nothing run. Give a whole number, 1 or more."
        )


def _checked(options: dict[str, Any], is_near: bool) -> dict[str, Any]:
    """The options of every run, their tools read once. A module is left to be imported in another process."""
    known = inspect.signature(run_agent_with_tools).parameters
    if clash := {"prompt", "run_id"} & options.keys():
        raise TypeError(
            f"{min(clash)!r} belongs to one run. A batch has prompts, and run ids of its batch_id."
        )
    refuse_unknown_options(
        {name: value for name, value in options.items() if name not in known}, known
    )
    tools = options.get("tools")
    return {
        **options,
        "tools": tools
        if isinstance(tools, str) and not is_near
        else list(registry_of(tools)),
    }


class Rate:
    """So many requests a minute at most, evenly spaced, of all runs that share it.

    `path` is a file by which the processes of one machine share it; without one it holds within a process.
    """

    def __init__(self, per_minute: float, path: str | Path | None = None) -> None:
        if not per_minute > 0:
            raise ValueError(
                f"Rate(per_minute={per_minute!r}) lets nothing through. Give more than 0."
            )
        self.per_minute, self.path = (
            per_minute,
            None if path is None else str(Path(path).absolute()),
        )
        self._next = 0.0

    def take(self) -> float:
        """Take the next place; return the seconds until then."""
        now, spacing = time.time(), 60 / self.per_minute
        if self.path is None:
            with _taking:
                begins = max(now, self._next)
                self._next = begins + spacing
        else:
            with locked_file(self.path) as file:
                begins = max(now, float(file.read() or 0))
                file.seek(0)
                file.truncate()
                file.write(str(begins + spacing).encode())
        return begins - now


_taking = threading.Lock()


class _Paced(LanguageModel):
    """A model whose requests wait for their place."""

    def __init__(self, model: LanguageModel, rate: Rate) -> None:
        self.name, self.info, self.defaults = model.name, model.info, model.defaults
        self.provider = model.provider
        self._model, self._rate = model, rate

    @property
    def prompted(self) -> LanguageModel:
        return _Paced(self._model.prompted, self._rate)

    def complete(self, request: Request) -> Reply:
        time.sleep(self._rate.take())
        return self._model.complete(request)

    async def acomplete(self, request: Request) -> Reply:
        import asyncio

        await asyncio.sleep(self._rate.take())
        return await self._model.acomplete(request)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Paced, (self._model, self._rate)


def as_they_end(
    jobs: Iterable[Callable[[], Any]], executor: Executor | None, concurrency: int
) -> Iterator[tuple[int, Future[Any]]]:
    """The number and the future of each job that has ended, `concurrency` of them under way at once.

    Without an executor they run in daemon threads, so that a stuck one does not hold the process. Once this is closed
    nothing more is begun.
    """
    left, running = iter(enumerate(jobs)), dict[Future[Any], int]()
    try:
        while True:
            for at, job in itertools.islice(left, concurrency - len(running)):
                running[executor.submit(job) if executor else threads.start(job)] = at
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
        kept = store.load(run_id)
    if kept.messages[kept.history].text != whole_characters(prompt):
        raise RunFailed(
            f"The store has {run_id!r} with another prompt. Give this batch another batch_id."
        )
    return resume(
        run_id,
        store=store,
        **{name: options[name] for name in options.keys() - _OF_A_BEGINNING},
    )


_OF_A_BEGINNING = {*inspect.signature(run_agent_with_tools).parameters} - {
    *inspect.signature(resume).parameters
}


def _run_elsewhere(*given: Any) -> RunResult | RunFailed:
    """What can leave any process: a result without the values of its calls, or what was raised, told."""
    try:
        return RunResult.from_json(_run_one(*given).to_json())
    except Exception as error:
        return _failed(error)


def _read(future: Future[RunResult | RunFailed]) -> RunResult | RunFailed:
    try:
        return future.result()
    except Exception as error:
        failed = _failed(error)
        failed.__cause__ = None if failed is error else error
        return failed


def _typed(result: RunResult | RunFailed, output_type: Any) -> RunResult | RunFailed:
    """The result with the type of its output, which stayed here."""
    if (
        output_type is None
        or isinstance(result, RunFailed)
        or result.toolset is not None
    ):
        return result
    tool = OutputTool(output_type)
    tool.name = result.run.output
    return replace(result, toolset=Toolset([tool]))


def _failed(error: Exception) -> RunFailed:
    return (
        error
        if isinstance(error, RunFailed)
        else RunFailed(f"{type(error).__name__}: {error}")
    )
