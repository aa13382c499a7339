"""Cases: what a model is asked, which calls it should make, and the outcome."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import EllipsisType
from typing import Any, Literal

from pydantic_core import to_jsonable_python

from toolkit.evals.matchers import Matcher
from toolkit.messages import Message, Usage
from toolkit.runs.reading import read_conversation

Label = Literal[
    "right",
    "wrong_tool",
    "wrong_arguments",
    "missing_call",
    "unwanted_call",
    "truncated",
    "error",
]
NO_CALL = "(no call)"
Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Expected:
    """A call that should be made. Arguments that are not named are free, unless the case is `exact`."""

    tool: str | Matcher
    arguments: Arguments = field(default_factory=dict)

    def __str__(self) -> str:
        arguments = (f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self.name}({', '.join(arguments)})"

    @property
    def names(self) -> tuple[str, ...]:
        """The tools of which any one is right."""
        tool: Any = self.tool
        is_choice = isinstance(tool, Matcher) and tool.kind == "one_of"
        return tool.wanted if is_choice else (tool,)

    @property
    def name(self) -> str:
        return " or ".join(self.names)


@dataclass(frozen=True, slots=True)
class Case:
    """One request to a model, and the calls that it should make.

    input: the user's message, or messages in the form of Chat Completions, the last of them the user's.
    tool, arguments: the one call expected; None: no call. `one_of("a", "b")` if either tool is right.
    calls: several calls instead, each a tool, a pair of tool and arguments, or an `Expected`; in any order, unless
        `in_order`.
    exact: arguments that are not named must be left out or have their default.
    id: the name of the case in reports and baselines; by default made from the input.
    tools: the tools offered, by name (default: all), or definitions with `name, description, parameters`.
    results: by the name of a tool, what a call of it returns. The tool is then not run.
    then: the next case of the same conversation, asked if this one is right.
    """

    input: str | Sequence[Arguments]
    tool: str | Matcher | EllipsisType | None = ...
    arguments: Arguments = field(default_factory=dict)
    _: KW_ONLY
    calls: Sequence[Expected | str | tuple[str, Arguments]] | None = None
    in_order: bool = False
    exact: bool = False
    id: str = ""
    tools: Sequence[str | Arguments] | None = None
    results: Arguments = field(default_factory=dict)
    then: Case | None = None

    def __post_init__(self) -> None:
        if not self.input or not isinstance(self.input, str | list | tuple):
            raise ValueError("'input' must be a text or a list of messages.")
        if self.messages[-1].role != "user":
            raise ValueError("The last message of 'input' must be the user's.")
        object.__setattr__(self, "id", self.id or self._default_id())
        if (self.tool is ...) is (self.calls is None):
            raise ValueError(
                f"Case {self.id!r}: say what is expected, either with 'tool' (None: no call) or with 'calls'."
            )
        if self.arguments and (self.tool is None or self.tool is ...):
            raise ValueError(
                f"Case {self.id!r}: 'arguments' belong to a 'tool'. Those of 'calls' are part of each call."
            )
        self._check_types()

    def _check_types(self) -> None:
        kinds = {
            "id": str,
            "results": Mapping,
            "then": Case | None,
            "tools": list | tuple | None,
        }
        for name, kind in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise TypeError(f"Case {self.id!r}: {name!r} cannot be {value!r}.")
        for call in self.expected:
            has_names = all(isinstance(name, str) for name in call.names)
            if not has_names or not isinstance(call.arguments, Mapping):
                raise TypeError(
                    f"Case {self.id!r}: a call is a tool's name and an object of arguments, not {call!r}."
                )
        for tool in self.tools or ():
            is_definition = isinstance(tool, Mapping) and "name" in tool
            if not is_definition and not isinstance(tool, str):
                raise TypeError(
                    f"Case {self.id!r}: 'tools' holds names, or objects with name, description, parameters."
                )

    def _default_id(self) -> str:
        text = self.input
        if not isinstance(text, str):
            last = to_jsonable_python(text[-1], fallback=str)
            text = str(last.get("content"))
        elif len(text) <= 60:
            return text
        whole = repr(self.input).encode("utf-8", "replace")
        return f"{text[:50]}… {hashlib.sha256(whole).hexdigest()[:6]}"

    @property
    def expected(self) -> tuple[Expected, ...]:
        """The calls expected; none if no tool should be called."""
        if isinstance(self.tool, EllipsisType):
            return tuple(map(_expected, self.calls or ()))
        return () if self.tool is None else (Expected(self.tool, self.arguments),)

    @property
    def messages(self) -> list[Message]:
        """The input as messages. The last of them is the user's."""
        if isinstance(self.input, str):
            return [Message("user", self.input)]
        return read_conversation(self.input)

    @property
    def steps(self) -> tuple[Case, ...]:
        """This case and those that follow it in the same conversation."""
        return (self, *self.then.steps) if self.then else (self,)

    def __str__(self) -> str:
        return self.id


def _expected(call: Any) -> Expected:
    if isinstance(call, Expected):
        return call
    if isinstance(call, str | Matcher):
        return Expected(call)
    return Expected(*call)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one case, asked once.

    `label` is "right" or names the fault, and `explanation` describes it in a sentence. "truncated": the output limit
    ended a reply; "error": something raised. Neither passes. `tools` are those expected (`NO_CALL`: none), `calls`
    those made, and `pairs` compares them: expected, called, and whether the arguments were right too.
    """

    case: str
    label: Label
    explanation: str = ""
    repeat: int = 0
    input: str = ""
    expected: str = ""
    tools: tuple[str, ...] = ()
    calls: tuple[Arguments, ...] = ()
    pairs: tuple[tuple[str, str, bool], ...] = ()
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the calls were those expected, with the right arguments."""
        return self.label == "right"
