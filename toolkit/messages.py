"""The nouns of a conversation: plain values.

Frozen dataclasses that compare by value. Nothing here needs a model, a network or a tool.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
Finish = Literal["stop", "length", "refusal", "pause"]
Permission = Literal["read", "write", "sensitive"]
Decision = Literal["approve", "deny", "defer"]
SENSITIVE: frozenset[Permission] = frozenset({"sensitive"})
"""The tiers on whose calls somebody decides, where no approver names more."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a model asks of a tool.

    `arguments` is what was read from `raw`, the text (from some servers: the object) as the model sent
    it; `repairs` names each mend that reading needed. Where it could not be read, `problem` says why
    and `arguments` is {}.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    raw: Any = ""
    repairs: tuple[str, ...] = ()
    problem: str = ""

    @property
    def digest(self) -> str:
        """A hash (SHA-256) of name and arguments: a verdict, a plan or a line of an audit holds for just this."""
        text = json.dumps(
            [self.name, dict(self.arguments)],
            sort_keys=True,
            separators=(",", ":"),
            default=repr,
        )
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True)
class PendingCall(ToolCall):
    """A call as approvers and journals see it: with the tier, the tags and the description of its tool.

    `verdict` is what was decided on it, None before anybody decides.
    """

    permission: Permission = "sensitive"
    tags: tuple[str, ...] = ()
    description: str = ""
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class ToolReturn:
    """What a tool may return to give the program a value and the model a text: `ToolReturn(rows, "3 rows")`."""

    value: Any
    text: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came back from one call, as the model reads it.

    `reason` says in a word why it is an error: "malformed", "denied", "failed", "timeout",
    "interrupted", "unknown" (it began, and nobody knows how it ended), "not_run"; or that it was only
    "planned". `started` is when, in seconds after its batch, and `seconds` how long the tool ran. Where
    the arguments fitted only after mends, `repairs` names these and `arguments` is what the tool got.
    `value` is the Python object that the tool returned; it is not compared and not saved.
    """

    call_id: str
    content: str
    is_error: bool = False
    reason: str = ""
    repairs: tuple[str, ...] = ()
    arguments: Mapping[str, Any] | None = None
    started: float = 0.0
    seconds: float = 0.0
    value: Any = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return self.content


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a conversation.

    A `tool` message holds the results of one batch, in the order of its calls. `opaque[dialect]`
    is what that dialect wants back verbatim; the other dialects pass over it.
    """

    role: Role
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    opaque: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them; 0 where it told nothing. Adds with `+`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together; cached tokens are part of the input, reasoning ones of the output."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a model.

    `finish` is why it stopped: by itself, at its length, refusing, or only pausing for the provider's own tools.
    """

    message: Message
    usage: Usage = Usage()
    finish: Finish = "stop"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a call may run, and why not. Anything but exactly "approve" keeps it from running.

    `by` says who decided. `digest` is the `ToolCall.digest` of the call that was decided: the verdict holds for
    no other name or arguments. It is filled in where it is left out.
    """

    decision: Decision
    reason: str = ""
    by: str = ""
    digest: str = ""

    def on(self, call: ToolCall) -> Verdict:
        """The verdict, bound to a call; a denial where it was given on another one."""
        if self.digest not in ("", call.digest):
            return Verdict(
                "deny", "the verdict was on another call", self.by, call.digest
            )
        return replace(self, digest=call.digest)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run.

    `tool_calls`, `total_tokens` and `seconds` (of activity, waiting for approval left out) count over the run; None is
    no bound. When the seconds are over, a request or a tool that is still at work is left behind. `concurrency` is how
    many calls of a reply run at once. `malformed` replies in a row that no tool could read end the run, as do `repeats`
    equal calls with equal results. `argument_chars` bounds what a model may send to one call, `result_chars` what it
    sees of one result.
    """

    tool_calls: int | None = None
    total_tokens: int | None = None
    seconds: float | None = None
    concurrency: int = 16
    malformed: int = 3
    repeats: int = 6
    argument_chars: int = 1_000_000
    result_chars: int = 32_000

    def __post_init__(self) -> None:
        least = {"concurrency": 1, "malformed": 1, "repeats": 2}
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value != limit.default and (
                value is None or value < least.get(limit.name, 0)
            ):
                raise ValueError(
                    f"Limits({limit.name}={value!r}) would let nothing happen. Give more, or leave it out."
                )


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a model and its server can do. Stated, not guessed: give your own to `Model` where it differs.

    Without `function_calling` the tools are described in the prompt; with `structured_output` the reply is then held to
    a JSON Schema. Without `parallel_calls` one call at a time is asked for. `strict` tools are OpenAI's. Without
    `null_content` the content beside calls is "", as Ollama wants.
    """

    function_calling: bool = True
    structured_output: bool = False
    parallel_calls: bool = True
    strict: bool = False
    null_content: bool = True


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know of the run that called it.

    Annotate one parameter with it: the parameter is hidden from the model and filled in at the call.
    `deps` is what the caller gave to the run; `cancelled()` says whether the run no longer waits.
    """

    call_id: str = ""
    run_id: str = ""
    turn: int = 0
    deps: Any = None
    cancelled: Callable[[], bool] = field(default=lambda: False, repr=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Only an object will do, in whatever it is wrapped: no model can send one as JSON."""
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)


def whole_characters(value: Any) -> Any:
    """A text, or all texts in JSON, as a request can carry them: a lone surrogate is replaced by U+FFFD."""
    if isinstance(value, str):
        return (
            value
            if value.isascii()
            else value.encode("utf-16-le", "surrogatepass").decode(
                "utf-16-le", "replace"
            )
        )
    if isinstance(value, Mapping):
        return {
            whole_characters(key): whole_characters(each) for key, each in value.items()
        }
    return (
        [whole_characters(each) for each in value] if isinstance(value, list) else value
    )


def copied(schema: Any) -> Any:
    """A copy of JSON as deep as it goes."""
    if isinstance(schema, dict):
        return {key: copied(value) for key, value in schema.items()}
    return [copied(value) for value in schema] if isinstance(schema, list) else schema


def as_json(value: Mapping[str, Any]) -> str:
    """An object as compact JSON text."""
    from pydantic_core import to_json

    return to_json(dict(value)).decode()


def token_count(usage: Any, *path: str) -> int:
    """The number under these keys of a usage, 0 where there is none."""
    for key in path:
        usage = usage.get(key) if isinstance(usage, Mapping) else None
    return usage if type(usage) is int else 0


def read_usage(usage: Any, asked: str, answered: str) -> Usage:
    """The counts of a usage whose keys for what was asked and answered are these, each with its details."""
    cached = token_count(usage, f"{asked}_details", "cached_tokens")
    reasoned = token_count(usage, f"{answered}_details", "reasoning_tokens")
    return Usage(
        token_count(usage, asked), token_count(usage, answered), cached, reasoned
    )


def text_at(part: Any, key: str) -> str:
    """The text under a key, "" where there is none."""
    text = part.get(key) if isinstance(part, Mapping) else None
    return text if isinstance(text, str) else ""


def text_of(content: Any) -> str:
    """The text of a content, which is a text, a list of parts, or missing."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(
        part if isinstance(part, str) else text_at(part, "text") for part in parts
    )


def new_call_id(seed: str, used: Collection[str]) -> str:
    """Nine letters and digits, which every provider takes (Mistral takes nothing else); the same in every replay."""
    made = (
        hashlib.sha256(f"{seed}:{attempt}".encode()).hexdigest()[:9]
        for attempt in itertools.count()
    )
    return next(call_id for call_id in made if call_id not in used)


def with_own_id(call: ToolCall, used: set[str], seed: str) -> ToolCall:
    """The call under an id that no other has: its own where that is new, else one made of `seed`."""
    made = call.id if call.id and call.id not in used else new_call_id(seed, used)
    used.add(made)
    return call if made == call.id else replace(call, id=made)
