"""Whether a model calls the right tools with the right arguments, asked of cases and counted.

report = evaluate(load_cases("cases.yaml"), tools=registry, model="…", repeat=3)
print(report)
sys.exit(report.compare("baseline.json").exit_code)
"""

from __future__ import annotations

import errno
import functools
import inspect
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolkit.batch import as_they_end
from toolkit.cost import Price
from toolkit.evals.cases import (
    NO_CALL,
    Case,
    Expected,
    Matcher,
    check_expected,
    contains,
    equal,
    judge,
    matches,
    near,
    one_of,
    optional,
)  # fmt: skip
from toolkit.evals.files import load_cases
from toolkit.evals.report import Comparison, Outcome, Report, Share
from toolkit.messages import Usage
from toolkit.models.naming import find_model
from toolkit.models.options import refuse_unknown_options
from toolkit.run import run_agent_with_tools
from toolkit.runs.reading import read_conversation
from toolkit.runs.results import RunResult
from toolkit.tools.registry import ToolRegistry, ToolsGiven, registry_of
from toolkit.tools.request import LanguageModel
from toolkit.tools.tool import Tool, as_tool

__all__ = [
    "Case",
    "Comparison",
    "Expected",
    "Matcher",
    "Outcome",
    "Report",
    "Share",
    "check",
    "contains",
    "equal",
    "evaluate",
    "load_cases",
    "matches",
    "near",
    "one_of",
    "optional",
    "run_case",
]  # fmt: skip

_DRY = "Dry run: the tool was not run, and there is no result."
_LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


def evaluate(
    cases: Iterable[Case],
    *,
    tools: ToolsGiven = None,
    model: str | LanguageModel | None = None,
    repeat: int = 1,
    dry_run: bool | None = None,
    seed: int | None = None,
    max_turns: int | None = None,
    executor: Executor | None = None,
    concurrency: int = 1,
    price: Price | None = None,
    on_progress: Callable[[int, int, Outcome], Any] | None = None,
    save_to: str | Path | None = None,
    **options: Any,
) -> Report:
    """Ask a model every case, `repeat` times, and count how often it calls what it should.

    tools, model: as for a run. tools="module:name" is found by import, also in another process.
    dry_run: True runs no tool, False runs them as a run would, None only those of the tier "read". A tool that is not
        run answers with `Case.results`, else with a neutral text.
    seed: sent to models that take one (Chat Completions, the embedded one), plus the number of the repeat.
    max_turns: requests for a case at most; None: one where at most one call is expected and no case follows, else one
        more than calls.
    executor: where the cases run, any of `concurrent.futures`; None: here, `concurrency` of them at once.
    price: what a million tokens cost, see `toolkit.cost.Price`.
    on_progress: called with how many are done, how many there are, and the outcome. A terminal shows a line besides.
    save_to: a file for the report, also where it is interrupted.
    options: those of `run_agent_with_tools`, and request fields of the model.

    What a case raises is its outcome. KeyboardInterrupt and errors of `on_progress` pass, with what is done as
    `error.report`. Raises ValueError where a case expects what its tools do not have.
    """
    if save_to and not (folder := Path(save_to).absolute().parent).is_dir():
        raise FileNotFoundError(
            errno.ENOENT, "There is no folder for the report", str(folder)
        )
    if executor is not None and not hasattr(executor, "submit"):
        raise TypeError(
            f"executor is one of concurrent.futures, not {executor!r}. None asks the cases here."
        )
    if on_progress is not None and not callable(on_progress):
        raise TypeError(f"on_progress is a function, not {on_progress!r}.")
    _check_numbers(
        price,
        repeat=repeat,
        concurrency=concurrency,
        max_turns=1 if max_turns is None else max_turns,
    )
    if executor is None:  # what cannot be had is told once, and now
        tools, (model, options) = registry_of(tools), _found(model, options)
    elif isinstance(tools, Iterable) and not isinstance(tools, str | ToolRegistry):
        tools = list(tools)
    cases = _checked(cases, tools, options)
    asked = dict(
        tools=tools,
        model=model,
        dry_run=dry_run,
        seed=seed,
        max_turns=max_turns,
        **options,
    )
    jobs = [
        functools.partial(run_case, case, repeat=number, **asked)
        for number in range(repeat)
        for case in cases
    ]
    outcomes: dict[int, Outcome] = {}
    named = str(getattr(model, "name", model or ""))
    report = functools.partial(
        _report, outcomes, len(cases), Report((), named, len(jobs), price), save_to
    )
    show_progress = _progress_line()
    try:
        for at, future in as_they_end(
            jobs, executor, len(jobs) if executor else concurrency
        ):
            outcomes[at] = _outcome(future, jobs[at])
            for tell in filter(None, (show_progress, on_progress)):
                tell(len(outcomes), len(jobs), outcomes[at])
    except BaseException as error:
        error.report = report()  # type: ignore[attr-defined]
        raise
    return report()


def check(case: Case, **asked: Any) -> Outcome:
    """Ask one case once; raise AssertionError, with the explanation, where it does not come out right.

    `asked` is as for `run_case`. With pytest each case is a test:

        @pytest.mark.parametrize("case", load_cases("cases.yaml"), ids=str)
        def test_calls(case):
            check(case, tools=registry, model="…")
    """
    __tracebackhide__ = True
    asked["tools"] = registry_of(asked.get("tools"))
    _checked([case], asked["tools"], asked)
    outcome = run_case(case, **asked)
    if not outcome.passed:
        raise AssertionError(f"{outcome.label}: {outcome.explanation}")
    return outcome


def run_case(
    case: Case,
    *,
    tools: ToolsGiven = None,
    model: str | LanguageModel | None = None,
    repeat: int = 0,
    dry_run: bool | None = None,
    seed: int | None = None,
    max_turns: int | None = None,
    **options: Any,
) -> Outcome:
    """Ask one case once. The arguments are those of `evaluate`; all that goes wrong is in the outcome."""
    started, outcome = time.perf_counter(), _blank(case, repeat)
    try:
        found, options = _found(model, options)
        if seed is not None and _takes_seed(found):
            options["seed"] = seed + repeat
        tools = registry_of(tools)  # once: the case that follows has them, too
        ask = functools.partial(
            _ask,
            tools=tools,
            model=found,
            dry_run=dry_run,
            max_turns=max_turns,
            options=options,
        )
        outcome = ask(case, outcome, None)
    except Exception as error:
        usage = getattr(getattr(error, "run", None), "usage", Usage())
        outcome = replace(
            outcome,
            label="error",
            explanation=f"{type(error).__name__}: {error}",
            usage=usage,
        )
    return replace(outcome, seconds=time.perf_counter() - started)


# One case


def _blank(case: Case, repeat: int) -> Outcome:
    """What is known of an outcome before the case is asked."""
    steps = [case]
    while steps[-1].then:
        steps.append(steps[-1].then)
    said = (
        case.input
        if isinstance(case.input, str)
        else read_conversation(case.input)[-1].text
    )
    names = dict.fromkeys(
        name
        for step in steps
        for name in [one.name for one in step.expected] or [NO_CALL]
    )
    expected = "; then ".join(
        ", ".join(map(str, step.expected)) or "no call" for step in steps
    )
    return Outcome(case.id, "error", "", repeat, said, expected, tuple(names))


def _ask(
    case: Case, outcome: Outcome, before: RunResult | None, **asked: Any
) -> Outcome:
    messages = [] if isinstance(case.input, str) else read_conversation(case.input)
    prompt = case.input if isinstance(case.input, str) else messages.pop().text
    offered, options, count = (
        _offered(case, asked["tools"]),
        asked["options"],
        len(case.expected),
    )
    heard: list[Any] = []
    given = options.get("on_event") or ()
    result = run_agent_with_tools(
        prompt,
        model=asked["model"],
        tools=[_as_run(tool, case, asked["dry_run"]) for tool in offered],
        history=read_conversation(before) + messages,
        max_turns=asked["max_turns"] or (count + 1 if count > 1 or case.then else 1),
        **{
            **options,
            "on_event": [heard.append, *([given] if callable(given) else given)],
        },
    )
    found = judge(case, result, offered)
    if _is_truncated(heard, {**getattr(asked["model"], "defaults", {}), **options}):
        found |= {
            "label": "truncated",
            "explanation": "A reply was cut off at the output limit. Allow more tokens.",
        }
    if before is not None:
        found["explanation"] = (
            found["explanation"] and f"Afterwards: {found['explanation']}"
        )
    both = {
        name: getattr(outcome, name) + found[name]
        for name in ("calls", "pairs", "usage")
    }
    outcome = replace(outcome, **{**found, **both})
    return (
        _ask(case.then, outcome, result, **asked)
        if outcome.passed and case.then
        else outcome
    )


def _offered(case: Case, tools: ToolsGiven) -> ToolRegistry:
    """The tools of a case; a definition becomes a tool that does nothing."""
    registry = registry_of(tools)
    if case.tools is None:
        return registry
    return ToolRegistry(
        [
            registry[tool] if isinstance(tool, str) else _defined(json.dumps(tool))
            for tool in case.tools
        ]
    )


@functools.lru_cache(
    maxsize=4096
)  # a schema is checked in some milliseconds, and many cases share one
def _defined(definition: str) -> Tool:
    given = json.loads(definition)
    about = {"name": given["name"], "description": given.get("description", "")}
    return as_tool(
        _nothing, {**about, "schema": given.get("parameters") or {"type": "object"}}
    )


def _nothing(**arguments: Any) -> str:
    return _DRY


def _as_run(tool: Tool, case: Case, dry_run: bool | None) -> Tool:
    """The tool, or what looks like it to a model and answers without doing anything, and so needs no approval."""
    is_dry = tool.permission != "read" if dry_run is None else dry_run
    if not is_dry and tool.name not in case.results:
        return tool
    answer = case.results.get(tool.name, _DRY)
    return tool.replace(call=lambda values, context: answer, permission="read")


def _is_truncated(heard: Sequence[Any], options: Mapping[str, Any]) -> bool:
    """By the finish reason, or by the count of tokens: some servers say "tool_calls" for a call that was cut off."""
    most = min(
        (options[name] for name in _LENGTHS if options.get(name)), default=float("inf")
    )
    replies = [event.data for event in heard if event.name == "model_reply"]
    return any(
        reply["finish"] == "length" or reply["output_tokens"] >= most
        for reply in replies
    )


def _takes_seed(model: LanguageModel) -> bool:
    dialect = getattr(
        model, "dialect", None
    )  # a model that is no wire's takes any option
    return dialect is None or dialect.DIALECT in ("chat", "prompted")


def _found(
    model: str | LanguageModel | None, options: Mapping[str, Any]
) -> tuple[LanguageModel, dict[str, Any]]:
    """The model, and the options that do not say where it is."""
    rest = dict(options)
    where = {name: rest.pop(name, None) for name in ("client", "base_url", "api_key")}
    return find_model(model, **where), rest


# All cases


def _check_numbers(price: Any, **counts: int) -> None:
    for name, count in counts.items():
        if type(count) is not int or count < 1:
            raise ValueError(f"{name}={count!r}: give a whole number, 1 or more.")
    if not isinstance(price, Price | None):
        raise TypeError(
            f"price={price!r}: give a toolkit.cost.Price, for a million tokens of input and of output."
        )


def _checked(
    cases: Iterable[Case], tools: ToolsGiven, options: Mapping[str, Any]
) -> list[Case]:
    """The cases, if they can be asked. Raises ValueError for the first that cannot, naming it."""
    known = [
        *inspect.signature(run_agent_with_tools).parameters,
        *inspect.signature(evaluate).parameters,
    ]
    if clash := [
        name for name in ("prompt", "history", "output_type") if name in options
    ]:
        raise TypeError(
            f"{clash[0]!r} has no place here: what is asked and expected stands in each Case."
        )
    refuse_unknown_options(
        {name: value for name, value in options.items() if name not in known}, known
    )
    cases = [] if isinstance(cases, str | Case) else list(cases)
    if not all(isinstance(case, Case) for case in cases):
        raise TypeError(
            "cases is a list of Case. Those of a file are read by load_cases(path)."
        )
    if not cases:
        raise ValueError(
            "There are no cases. Give a list of at least one; load_cases(path) reads a file."
        )
    if twice := [
        name for name, count in Counter(case.id for case in cases).items() if count > 1
    ]:
        raise ValueError(
            f"Two cases have the id {twice[0]!r}. Give one of them another id."
        )
    for case in cases:
        step: Case | None = case
        while step:
            check_expected(step, _offered(step, tools))
            step = step.then
    return cases


def _outcome(future: Future[Outcome], job: Any) -> Outcome:
    try:
        return future.result()
    except (
        Exception
    ) as error:  # the executor's: a process that died, a tool that cannot be sent there
        why = (
            f"{type(error).__name__}: {error}".rstrip(".")
            + ". In other processes, tools are found by tools='module:name'."
        )
        return replace(_blank(job.args[0], job.keywords["repeat"]), explanation=why)


def _report(
    outcomes: Mapping[int, Outcome],
    cases: int,
    empty: Report,
    save_to: str | Path | None,
) -> Report:
    in_order = sorted(
        outcomes, key=lambda at: (at % cases, at)
    )  # by case: they were asked round by round
    report = replace(empty, outcomes=tuple(map(outcomes.__getitem__, in_order)))
    if save_to:
        report.save(save_to)
    return report


def _progress_line() -> Callable[[int, int, Outcome], None] | None:
    """Rewrites one line on a terminal; elsewhere there is none."""
    started, passed = time.monotonic(), 0

    def tell(done: int, total: int, outcome: Outcome) -> None:
        nonlocal passed
        passed += outcome.passed
        rate = done / max(time.monotonic() - started, 1e-9)
        line = f"{done}/{total}  {passed / done:.0%} right  {rate:.1f}/s  {(total - done) / rate:.0f} s left"
        sys.stderr.write(f"\r{line}\x1b[K" + "\n" * (done == total))
        sys.stderr.flush()

    return tell if sys.stderr and sys.stderr.isatty() else None
