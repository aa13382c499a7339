"""What a model or a wire will trip over in the tools of a program, and what to write instead.

An "error" is refused by a wire or contradicts the code, a "warning" makes models call wrongly, a "hint" is worth a
thought. The rules on wording know English only: judged by hand on 1,702 function definitions as people write them
(Berkeley Function-Calling Leaderboard), nine in ten of their findings were right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from toolkit.errors import ToolDefinitionError
from toolkit.lint.checks import Problem, find_alike, problems_of
from toolkit.tools.registry import ToolsGiven, registry_of
from toolkit.tools.tool import Tool

Severity = Literal["error", "warning", "hint"]

RULES: Mapping[str, Severity] = {
    "broken": "error",  # it has no schema: a hint names what is not defined
    "description-missing": "error",
    "description-repeats-name": "warning",
    "description-without-when": "hint",
    "destructive-read": "error",  # permission="read", but it deletes
    "effect-without-tier": "warning",  # it deletes, sends or pays, unasked
    "enum-unexplained": "hint",
    "name-illegal": "warning",  # models see an alias
    "name-without-verb": "hint",
    "not-strict": "hint",  # but an error if strict=True insists
    "parameter-undescribed": "warning",
    "parameter-unknown": "error",  # in the docstring only
    "parameter-untyped": "warning",
    "reads-alike": "warning",
    "pattern-from-argument": "warning",  # one that backtracks holds the process
    "refused": "error",  # by a wire, with all other tools of the request
    "too-large": "warning",
    "values-in-text": "warning",
}
"""The rules, by the names that `ignore` takes, and how severe a finding of each is."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One thing to correct: what is wrong with which tool, or with which of its parameters, and what to write."""

    tool: str
    rule: str
    severity: Severity
    message: str
    fix: str
    parameter: str = ""  # dotted if it is inside another

    def __str__(self) -> str:
        place = f"{self.tool}.{self.parameter}" if self.parameter else self.tool
        return f"{self.severity} {place}: {self.message} {self.fix} [{self.rule}]"


def lint_tools(
    tools: ToolsGiven = None, *, ignore: Collection[str] = ()
) -> list[Finding]:
    """Find what to correct in the tools, tool by tool in their order, the worst first.

    tools: functions, Tools or a registry; None takes the global one.
    ignore: rules to leave out, everywhere ("reads-alike") or for one tool ("get_weather:reads-alike").

    No tool is called. Raises ValueError for a rule that does not exist.
    """
    ignored = {ignore} if isinstance(ignore, str) else set(ignore)
    for name in sorted(ignored):
        if name.rpartition(":")[2] not in RULES:
            raise ValueError(
                f"Unknown rule {name!r}. The rules are {', '.join(RULES)}."
            )
    registry = registry_of(tools)
    problems: list[tuple[Tool, Problem]] = []
    readable: list[Tool] = []
    for tool in registry:
        try:
            problems += [(tool, problem) for problem in problems_of(tool)]
            readable.append(tool)
        except ToolDefinitionError as error:
            fix = "Until then every run with this tool fails."
            problems.append((tool, Problem("broken", str(error), fix)))
    problems += find_alike(readable)
    places = {tool.name: place for place, tool in enumerate(registry)}
    findings = [_finding(tool, problem) for tool, problem in dict.fromkeys(problems)]
    findings.sort(
        key=lambda each: (places[each.tool], _SEVERITIES.index(each.severity))
    )
    return [
        finding
        for finding in findings
        if ignored.isdisjoint((finding.rule, f"{finding.tool}:{finding.rule}"))
    ]


_SEVERITIES = get_args(Severity)


def _finding(tool: Tool, problem: Problem) -> Finding:
    severity = RULES[problem.rule]
    if problem.rule == "not-strict" and tool.strict:
        severity = "error"
    return Finding(tool=tool.name, severity=severity, **problem._asdict())
