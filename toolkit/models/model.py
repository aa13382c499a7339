"""A model behind a server: a dialect over a transport."""

from __future__ import annotations

import functools
import importlib
from dataclasses import replace
from typing import Any, NamedTuple

from toolkit.dialects import Dialect
from toolkit.messages import ModelInfo, Reply, ToolCall, as_json
from toolkit.models.clients import Clients
from toolkit.models.options import refuse_unknown_options
from toolkit.models.streaming import StreamedReply
from toolkit.models.transport import Exchange, Transport
from toolkit.tools.request import LanguageModel, Request


class _Wire(NamedTuple):
    """A dialect, the SDK that carries it, and the ordinary method of the SDK's client."""

    dialect: str
    sdk: str
    method: str


WIRES = {
    "chat": _Wire("chat", "openai", "chat.completions.create"),
    "responses": _Wire("responses", "openai", "responses.create"),
    "anthropic": _Wire("anthropic", "anthropic", "messages.create"),
    "react": _Wire("prompted", "openai", "chat.completions.create"),
}


class Model(LanguageModel):
    """A model behind a server. One client is kept for the model's life.

    name: the model's name at its server.
    wire: "chat", "responses", "anthropic" or "react" (the tools are described in the prompt).
    client: a client of the SDK, or anything with the same ordinary method (`chat.completions.create` …). Without one,
        a client is made from `base_url` and `api_key` (default: the SDK's environment variables).
    info: what the model and its server can do. Default: all that is usual; `strict` at OpenAI itself only.
    retries: how often a failed request is sent again (429, 5xx, no connection, timeout).
    defaults: request fields such as `temperature`, sent as they are; those of a run override them.

    The attribute `provider` names, for traces, whose API the server speaks ("openai", "anthropic"); set it if you know
    better. Raises ValueError for an unknown wire, and TypeError for a misspelled option.
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
        refuse_unknown_options(
            defaults, ("wire", "client", "base_url", "api_key", "info", "retries")
        )
        if wire not in WIRES:
            raise ValueError(f"Unknown wire {wire!r}. Pass one of {', '.join(WIRES)}.")
        if info and not info.function_calling:
            wire = "react"
        self._settings = {
            "wire": wire,
            "client": client,
            "base_url": base_url,
            "api_key": api_key,
            "retries": retries,
        }
        dialect, sdk, method = WIRES[wire]
        clients = Clients(sdk, method, client, base_url, api_key)
        if info is None:
            is_openai = sdk == "openai" and clients.is_at("https://api.openai.com/")
            info = ModelInfo(strict=is_openai)
        self.name, self.info, self.provider, self.defaults = name, info, sdk, defaults
        module: Any = importlib.import_module(f"toolkit.dialects.{dialect}")
        self.dialect: Dialect = module
        self._transport = Transport(clients, self.dialect.PATH, retries)

    def complete(self, request: Request) -> Reply:
        """Answer one request. Raises ModelError if it is refused, or fails with all retries."""
        return self._transport.send(self._exchange(request))

    async def acomplete(self, request: Request) -> Reply:
        """As `complete`, on the running event loop."""
        return await self._transport.asend(self._exchange(request))

    @functools.cached_property
    def prompted(self) -> Model:
        """The same model with the tools described in its prompt, for a server that accepts no tools."""
        info = replace(self.info, function_calling=False)
        settings = {**self._settings, "wire": "react", **self.defaults}
        return Model(self.name, info=info, **settings)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process gets a model with a client of its own."""
        if self._settings["client"] is not None:
            raise TypeError(
                f"The model {self.name!r} has a client, which cannot leave its process. Pass base_url instead."
            )
        settings = {"info": self.info, **self._settings, **self.defaults}
        return functools.partial(type(self), **settings), (self.name,)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def _exchange(self, request: Request) -> Exchange:
        """The request in the form of this model's wire."""
        fields = {**self.defaults, **request.options}
        options = {
            name: fields.pop(name) for name in Transport.OPTIONS if name in fields
        }
        # The SDKs' word for fields that they do not know.
        fields |= fields.pop("extra_body", None) or {}
        info = self.info
        if "strict" in fields:
            info = replace(info, strict=fields.pop("strict"))
        stream = None
        if request.on_text:
            fields |= self.dialect.STREAM
            tool_names = [tool.wire_name for tool in request.tools]
            new_assembly = functools.partial(self.dialect.assembly, tool_names)
            stream = StreamedReply(new_assembly, request.on_text)
        decode = functools.partial(self._decode, request, stream)
        complete = Request(
            request.messages,
            request.tools,
            request.tool_choice,
            fields,
            model=self.name,
            info=info,
        )
        return Exchange(self.dialect.encode(complete), options, stream, decode)

    def _decode(
        self, request: Request, stream: StreamedReply | None, body: Any
    ) -> Reply:
        dialect = self.dialect
        if dialect.DIALECT == "prompted" and not request.tools:
            # Without tools in the prompt, nothing in the reply is meant for the toolkit.
            from toolkit.dialects import chat

            dialect = chat
        reply = dialect.decode(body)
        if dialect.DIALECT != "prompted":
            reply = _with_leaked_calls(reply, request)
        if stream:
            stream.show_whole(reply.message.text)
        return reply


def _with_leaked_calls(reply: Reply, request: Request) -> Reply:
    """The reply with the calls that its text holds in the model's own format, if its server did not read them."""
    message = reply.message
    may_call = request.tools and request.tool_choice != "none"
    if not may_call or reply.finish == "refusal":
        return reply
    if not message.text or message.tool_calls:
        return reply
    from toolkit.dialects.leaked import read_leaked

    schemas = {tool.wire_name: tool.parameters for tool in request.tools}
    leaked = read_leaked(message.text, schemas)
    if leaked is None:
        return reply
    calls = tuple(
        ToolCall(
            "",
            name,
            raw=arguments if isinstance(arguments, str) else as_json(arguments),
            repairs=("leaked",),
        )
        for name, arguments in leaked.calls
    )
    message = replace(message, text=leaked.text, tool_calls=calls)
    return replace(reply, message=message)
