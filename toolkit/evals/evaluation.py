"""Asks a model the cases of an evaluation, one by one or many at once."""

from __future__ import annotations

import errno
import inspect
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from toolkit.batch import as_they_end
from toolkit.cost import Price
from toolkit.evals.cases import NO_CALL, Arguments, Case, Outcome
from toolkit.evals.judgement import check_expected, judge
from toolkit.evals.report import Report
from toolkit.messages import Usage
from toolkit.models.naming import find_model
from toolkit.models.options import refuse_unknown_options
from toolkit.run import run_agent_with_tools
from toolkit.runs.reading import read_conversation
from toolkit.runs.results import RunResult
from toolkit.tools.registry import ToolRegistry, ToolsGiven, registry_of
from toolkit.tools.request import LanguageModel
from toolkit.tools.tool import Tool, as_tool

_DRY_RUN = "Dry run: the tool was not run, and there is no result."
_CUT_OFF = "A reply was cut off at the output limit. Allow more tokens."
_LENGTH_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


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
    seed: sent to models that accept one (Chat Completions, the embedded one), plus the number of the repeat.
    max_turns: requests for a case at most; None: one if at most one call is expected and no case follows, else one
        more than calls.
    executor: where the cases run, any of `concurrent.futures`; None: in this process, `concurrency` at once.
    price: what a million tokens cost, see `toolkit.cost.Price`.
    on_progress: called with how many are done, how many there are, and the outcome. A terminal shows a line as well.
    save_to: a file for the report, written after an interruption too.
    options: those of `run_agent_with_tools`, and request fields of the model.

    What a case raises is its outcome. KeyboardInterrupt and errors of `on_progress` are raised, with the outcomes so
    far as `error.report`. Raises ValueError if a case expects what its tools do not have.
    """
    _check_objects(executor, on_progress, price, save_to)
    turns = 1 if max_turns is None else max_turns
    _check_counts(repeat=repeat, concurrency=concurrency, max_turns=turns)
    if executor is None:
        # What is unavailable is reported once and now, not by each case.
        tools, (model, options) = registry_of(tools), _model_and_rest(model, options)
    elif isinstance(tools, Iterable) and not isinstance(tools, str | ToolRegistry):
        tools = list(tools)
    cases = _checked(cases, tools, options)
    options |= {"dry_run": dry_run, "seed": seed, "max_turns": max_turns}
    ask = partial(run_case, tools=tools, model=model, **options)
    numbers = range(repeat)
    jobs = [partial(ask, case, repeat=number) for number in numbers for case in cases]
    outcomes: list[Outcome] = []
    empty = Report((), str(getattr(model, "name", model or "")), len(jobs), price)
    report = partial(_report, outcomes, cases, empty, save_to)
    try:
        _ask_all(jobs, executor, concurrency, on_progress, outcomes)
    except BaseException as error:
        error.report = report()  # type: ignore[attr-defined]
        raise
    return report()


def check(case: Case, **options: Any) -> Outcome:
    """Ask one case once. Raises AssertionError, with the explanation, unless its outcome is right.

    The options are those of `run_case`. With pytest each case is a test:

        @pytest.mark.parametrize("case", load_cases("cases.yaml"), ids=str)
        def test_calls(case):
            check(case, tools=registry, model="…")
    """
    __tracebackhide__ = True
    options["tools"] = registry_of(options.get("tools"))
    _checked([case], options["tools"], options)
    outcome = run_case(case, **options)
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
    """Ask one case once. The arguments are those of `evaluate`; whatever goes wrong is in the outcome."""
    started = time.perf_counter()
    empty = outcome = _empty_outcome(case, repeat)
    result: RunResult | None = None
    try:
        found, options = _model_and_rest(model, options)
        if seed is not None and _accepts_seed(found):
            options["seed"] = seed + repeat
        registry = registry_of(tools)
        for step in case.steps:
            offered = _offered(step, registry)
            served = [_served(tool, step, dry_run) for tool in offered]
            result = _ask(step, result, served, max_turns, model=found, **options)
            limits = {**getattr(found, "defaults", {}), **options}
            outcome = _with_step(outcome, _judged(step, result, offered, limits))
            if not outcome.passed:
                break
    except Exception as error:
        usage = getattr(getattr(error, "run", None), "usage", Usage())
        reason = f"{type(error).__name__}: {error}"
        outcome = replace(empty, explanation=reason, usage=usage)
    return replace(outcome, seconds=time.perf_counter() - started)


# One case


def _empty_outcome(case: Case, repeat: int) -> Outcome:
    """What is known of an outcome before the case is asked."""
    expected = [", ".join(map(str, step.expected)) or "no call" for step in case.steps]
    tools: list[str] = []
    for step in case.steps:
        tools += [call.name for call in step.expected] or [NO_CALL]
    return Outcome(
        case.id,
        "error",
        repeat=repeat,
        input=case.messages[-1].text,
        expected="; then ".join(expected),
        tools=tuple(dict.fromkeys(tools)),
    )


def _offered(case: Case, tools: ToolRegistry) -> ToolRegistry:
    """The tools of a case. A definition becomes a tool that does nothing."""
    if case.tools is None:
        return tools
    return ToolRegistry(
        tools[tool] if isinstance(tool, str) else _defined(json.dumps(tool))
        for tool in case.tools
    )


# A schema is checked in some milliseconds, and many cases share one.
@lru_cache(maxsize=4096)
def _defined(definition: str) -> Tool:
    fields = json.loads(definition)
    options = {
        "name": fields["name"],
        "description": fields.get("description", ""),
        "schema": fields.get("parameters") or {"type": "object"},
    }
    return as_tool(_nothing, options)


def _nothing(**arguments: Any) -> str:
    return _DRY_RUN


def _served(tool: Tool, case: Case, dry_run: bool | None) -> Tool:
    """The tool, or a stand-in that looks the same to a model, does nothing, and so needs no approval."""
    is_dry = tool.permission != "read" if dry_run is None else dry_run
    if not is_dry and tool.name not in case.results:
        return tool
    answer = case.results.get(tool.name, _DRY_RUN)
    return tool.replace(call=lambda values, context: answer, permission="read")


def _ask(
    case: Case,
    previous: RunResult | None,
    tools: list[Tool],
    max_turns: int | None,
    **options: Any,
) -> RunResult:
    *messages, last = case.messages
    count = len(case.expected)
    turns = count + 1 if count > 1 or case.then else 1
    return run_agent_with_tools(
        last.text,
        tools=tools,
        history=[*read_conversation(previous), *messages],
        max_turns=max_turns or turns,
        **options,
    )


def _judged(
    case: Case, result: RunResult, tools: ToolRegistry, options: Arguments
) -> Outcome:
    outcome = judge(case, result, tools)
    limits = [options[name] for name in _LENGTH_LIMITS if options.get(name)]
    limit = min(limits, default=float("inf"))
    for turn in result.run.log:
        # By the count of tokens too: some servers say "tool_calls" for a call that was cut off.
        if turn.finish == "length" or turn.usage.output_tokens >= limit:
            return replace(outcome, label="truncated", explanation=_CUT_OFF)
    return outcome


def _with_step(outcome: Outcome, step: Outcome) -> Outcome:
    """The outcome of a case with that of its next step."""
    explanation = step.explanation
    if outcome.pairs and explanation:
        explanation = f"Afterwards: {explanation}"
    return replace(
        outcome,
        label=step.label,
        explanation=explanation,
        calls=outcome.calls + step.calls,
        pairs=outcome.pairs + step.pairs,
        usage=outcome.usage + step.usage,
    )


def _model_and_rest(
    model: str | LanguageModel | None, options: Arguments
) -> tuple[LanguageModel, dict[str, Any]]:
    """The model, and the options that do not say where it is."""
    rest = dict(options)
    place = {name: rest.pop(name, None) for name in ("client", "base_url", "api_key")}
    return find_model(model, **place), rest


def _accepts_seed(model: LanguageModel) -> bool:
    # A model without a dialect takes any option.
    dialect = getattr(model, "dialect", None)
    return dialect is None or dialect.DIALECT in ("chat", "prompted")


# All cases


def _check_objects(
    executor: Any, on_progress: Any, price: Any, save_to: str | Path | None
) -> None:
    if executor is not None and not hasattr(executor, "submit"):
        raise TypeError(
            f"executor must be a concurrent.futures.Executor, not {executor!r}. "
            "Pass None to ask the cases in this process."
        )
    if on_progress is not None and not callable(on_progress):
        raise TypeError(f"on_progress must be a function, not {on_progress!r}.")
    if not isinstance(price, Price | None):
        raise TypeError(
            f"price={price!r}: pass a toolkit.cost.Price, for a million tokens of input and of output."
        )
    folder = Path(save_to or ".").absolute().parent
    if save_to and not folder.is_dir():
        raise FileNotFoundError(
            errno.ENOENT, "There is no folder for the report", str(folder)
        )


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if type(count) is not int or count < 1:
            raise ValueError(f"{name}={count!r}: pass a whole number, 1 or more.")


def _checked(
    cases: Iterable[Case], tools: ToolsGiven, options: Arguments
) -> list[Case]:
    """The cases, if they can be asked. Raises ValueError or TypeError for the first fault, naming it."""
    for name in ("prompt", "history", "output_type"):
        if name in options:
            raise TypeError(
                f"{name!r} has no place here: each Case says what is asked and expected."
            )
    known = [
        *inspect.signature(run_agent_with_tools).parameters,
        *inspect.signature(evaluate).parameters,
    ]
    strangers = {name: options[name] for name in options if name not in known}
    refuse_unknown_options(strangers, known)
    cases = [] if isinstance(cases, str | Case) else list(cases)
    if not all(isinstance(case, Case) for case in cases):
        raise TypeError(
            "cases must be a list of Case. load_cases(path) reads those of a file."
        )
    if not cases:
        raise ValueError(
            "There are no cases. Pass a list of at least one; load_cases(path) reads a file."
        )
    (id_, count), *_ = Counter(case.id for case in cases).most_common(1)
    if count > 1:
        raise ValueError(f"Two cases have the id {id_!r}. Give one of them another id.")
    registry = registry_of(tools)
    for case in cases:
        for step in case.steps:
            check_expected(step, _offered(step, registry))
    return cases


def _ask_all(
    jobs: list[partial[Outcome]],
    executor: Executor | None,
    concurrency: int,
    on_progress: Callable[[int, int, Outcome], Any] | None,
    outcomes: list[Outcome],
) -> None:
    """Fill `outcomes`, which an interruption leaves as they are."""
    listeners = list(filter(None, (_progress_line(), on_progress)))
    at_once = len(jobs) if executor else concurrency
    for position, future in as_they_end(jobs, executor, at_once):
        outcomes.append(_outcome(future, jobs[position]))
        for listener in listeners:
            listener(len(outcomes), len(jobs), outcomes[-1])


def _outcome(future: Future[Outcome], job: partial[Outcome]) -> Outcome:
    try:
        return future.result()
    # The executor's error: a process that died, or a tool that cannot be sent there.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        return replace(
            _empty_outcome(job.args[0], job.keywords["repeat"]),
            explanation=f"{reason}. Tools for other processes are passed as tools='module:name'.",
        )


def _report(
    outcomes: list[Outcome],
    cases: Iterable[Case],
    empty: Report,
    save_to: str | Path | None,
) -> Report:
    # Case by case, although they are asked round by round.
    places = {case.id: place for place, case in enumerate(cases)}
    ordered = sorted(outcomes, key=lambda each: (places[each.case], each.repeat))
    report = replace(empty, outcomes=tuple(ordered))
    if save_to:
        report.save(save_to)
    return report


def _progress_line() -> Callable[[int, int, Outcome], None] | None:
    """Rewrites one line of a terminal; None if there is no terminal."""
    started, passed = time.monotonic(), 0

    def show(done: int, total: int, outcome: Outcome) -> None:
        nonlocal passed
        passed += outcome.passed
        rate = done / max(time.monotonic() - started, 1e-9)
        line = f"{done}/{total}  {passed / done:.0%} right  {rate:.1f}/s  {(total - done) / rate:.0f} s left"
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r{line}\x1b[K{end}")
        sys.stderr.flush()

    return show if sys.stderr and sys.stderr.isatty() else None
