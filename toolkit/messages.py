"""The nouns of a conversation: plain values.

Frozen dataclasses that compare by value. Nothing here needs a model, a network or a tool.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]
Finish = Literal["stop", "length", "refusal", "pause"]
Permission = Literal["read", "write", "sensitive"]
Decision = Literal["approve", "deny", "defer"]
SENSITIVE: frozenset[Permission] = frozenset({"sensitive"})
"""The tiers whose calls need a verdict, unless an approver names more."""
# Printable by their category, but invisible: fillers, blanks, variation selectors.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a model asks of a tool.

    `raw` is what the model sent: text, or an object from some servers. `arguments` is what was read
    from it, and `repairs` names each repair that reading needed. If it could not be read, `problem`
    says why, and `arguments` is {}.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    raw: Any = ""
    repairs: tuple[str, ...] = ()
    problem: str = ""

    @property
    def digest(self) -> str:
        """A hash (SHA-256) of name and arguments. A verdict, a plan or an audit line applies to exactly this."""
        text = json.dumps(
            [self.name, dict(self.arguments)],
            sort_keys=True,
            separators=(",", ":"),
            default=repr,
        )
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


@dataclass(frozen=True, slots=True)
class PendingCall(ToolCall):
    """A call as approvers and journals see it.

    `arguments` are the validated values in JSON form: by the tool's own parameter names, defaults
    included, exactly what the tool gets. `permission`, `tags` and `description` are those of the
    tool. `verdict` is None until somebody decides.
    """

    permission: Permission = "sensitive"
    tags: tuple[str, ...] = ()
    description: str = ""
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class ToolReturn:
    """A tool may return this to give the program a value and the model a text of its own.

    return ToolReturn(rows, f"{len(rows)} rows")
    """

    value: Any
    text: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of one call, as the model reads it.

    `reason` is one word: why the result is an error ("malformed", "denied", "failed", "timeout",
    "interrupted", "not_run", or "unknown" if the call began and nobody knows how it ended), or
    "planned". `arguments` is what the tool got, None if that is what the model sent; `repairs` names
    what validation had to mend. `started` is in seconds after the batch, `seconds` is how long the
    tool ran. `value` is the Python object that the tool returned; it is neither compared nor saved.
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

    A `tool` message has the results of one batch, in the order of its calls. `opaque[dialect]` is what
    that dialect needs back verbatim; other dialects ignore it.
    """

    role: Role
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    opaque: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them, 0 if it reported none. Adds with `+`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output. Cached tokens are part of the input, reasoning tokens part of the output."""
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

    `finish` is why it ended: "stop", "length" (cut off), "refusal", or "pause" for the provider's own
    tools.
    """

    message: Message
    usage: Usage = Usage()
    finish: Finish = "stop"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision on a call. Anything but exactly "approve" keeps the call from running.

    `by` says who decided. `digest` is the `ToolCall.digest` of the call: the verdict applies to no other
    name or arguments. It is filled in if it is left out.
    """

    decision: Decision
    reason: str = ""
    by: str = ""
    digest: str = ""

    def on(self, call: ToolCall) -> Verdict:
        """The verdict, bound to a call. A denial if it was given on another call."""
        if self.digest not in ("", call.digest):
            return Verdict(
                "deny", "the verdict was on another call", self.by, call.digest
            )
        return replace(self, digest=call.digest)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run.

    `tool_calls`, `total_tokens` and `seconds` count over the whole run; None means no bound. `seconds`
    do not include waiting for approval; when they are over, a request or a tool that is still at work
    is left behind. `tool_seconds` bounds each call of a tool, whatever timeout the tool has.
    `concurrency` is how many calls of a reply run at once. The run ends after
    `malformed` replies in a row that no tool could read, and after `repeats` equal calls with equal
    results. `argument_chars` bounds what a model may send to one call, `result_chars` what it reads of
    one result.
    """

    tool_calls: int | None = None
    total_tokens: int | None = None
    seconds: float | None = None
    tool_seconds: float | None = None
    concurrency: int = 16
    malformed: int = 3
    repeats: int = 6
    argument_chars: int = 1_000_000
    result_chars: int = 32_000

    def __post_init__(self) -> None:
        minimums = {"concurrency": 1, "malformed": 1, "repeats": 2}
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value == limit.default:
                continue
            if value is None or value < minimums.get(limit.name, 0):
                raise ValueError(
                    f"Limits({limit.name}={value!r}) would let nothing happen. "
                    "Give a larger number, or leave it out."
                )


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a model and its server can do. It is stated, not guessed: give your own to `Model` if it differs.

    Without `function_calling` the tools are described in the prompt; with `structured_output` the reply
    is then bound to a JSON Schema. Without `parallel_calls` the model is asked for one call at a time.
    `strict` says that the server has OpenAI's strict mode for tools. Without `null_content` the content
    beside calls is "" instead of null, as Ollama needs it.
    """

    function_calling: bool = True
    structured_output: bool = False
    parallel_calls: bool = True
    strict: bool = False
    null_content: bool = True


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool may know about the run that called it.

    Annotate one parameter with it: the parameter is hidden from the model and filled in at the call.
    `deps` is what the caller gave to the run. `cancelled()` is true once the run has stopped waiting.
    """

    call_id: str = ""
    run_id: str = ""
    turn: int = 0
    deps: Any = None
    cancelled: Callable[[], bool] = field(default=lambda: False, repr=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Accept only an object of this class, which no model can send as JSON."""
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)


def whole_characters(value: Any) -> Any:
    """A text, or all texts in JSON, with U+FFFD for each lone surrogate, which no request can carry."""
    if isinstance(value, str):
        if value.isascii():
            return value
        encoded = value.encode("utf-16-le", "surrogatepass")
        return encoded.decode("utf-16-le", "replace")
    if isinstance(value, Mapping):
        return {
            whole_characters(key): whole_characters(each) for key, each in value.items()
        }
    if isinstance(value, list):
        return [whole_characters(each) for each in value]
    return value


def copied(value: Any) -> Any:
    """A deep copy of a JSON value."""
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    if isinstance(value, list):
        return [copied(each) for each in value]
    return value


def as_json(value: Mapping[str, Any]) -> str:
    """An object as compact JSON text."""
    from pydantic_core import to_json

    return to_json(dict(value)).decode()


def spell_out(value: Any, *, characters: int | None = None) -> str:
    """Write a value as JSON on one line that shows every character: the invisible ones as escapes.

    So an approver is shown no control sequence, no reversed text direction and no invisible character.
    `characters` is how many are shown at most, None for all; what is cut says so, and how many there are.
    """
    text = json.dumps(value, ensure_ascii=False, default=repr)
    shown = text[:characters]
    cut = f" … (cut: {len(text):,} characters in all)" if len(shown) < len(text) else ""
    return visible(shown) + cut


def visible(text: str, *, keep: str = "") -> str:
    """A text with escapes in place of the characters that nobody sees, or that turn its direction.

    The characters in `keep` stay, for example line breaks.
    """
    return "".join(
        char if char in keep or _is_visible(char) else json.dumps(char)[1:-1]
        for char in text
    )


def _is_visible(char: str) -> bool:
    return char.isprintable() and not _INVISIBLE.match(char)


def token_count(usage: Any, *path: str) -> int:
    """The number under these keys of a usage, 0 if there is none."""
    for key in path:
        usage = usage.get(key) if isinstance(usage, dict) else None
    return usage if type(usage) is int else 0


def read_usage(usage: Any, input_key: str, output_key: str) -> Usage:
    """The counts of a usage that has these keys for its input and its output, each with details."""
    return Usage(
        token_count(usage, input_key),
        token_count(usage, output_key),
        token_count(usage, f"{input_key}_details", "cached_tokens"),
        token_count(usage, f"{output_key}_details", "reasoning_tokens"),
    )


def text_at(part: Any, key: str) -> str:
    """The text under a key, "" if there is none."""
    text = part.get(key) if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""


def text_of(content: Any) -> str:
    """The text of a message's content, which is a string, a list of parts, or missing."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(
        part if isinstance(part, str) else text_at(part, "text") for part in parts
    )


def new_call_id(seed: str, used: Collection[str]) -> str:
    """A new id, the same in every replay: nine letters and digits, the only form that Mistral accepts."""
    for attempt in itertools.count():
        call_id = hashlib.sha256(f"{seed}:{attempt}".encode()).hexdigest()[:9]
        if call_id not in used:
            return call_id
    raise AssertionError("unreachable")


def with_own_id(call: ToolCall, used: set[str], seed: str) -> ToolCall:
    """The call with an id that no other call has: its own if that is new, else one made from `seed`."""
    call_id = call.id
    if not call_id or call_id in used:
        call_id = new_call_id(seed, used)
    used.add(call_id)
    return call if call_id == call.id else replace(call, id=call_id)
