"""What the tools of a program cost: the tokens and the money that their schemas add to each request.

With a model, tokens are what its provider counts: the difference of two tiny requests, one with the tools and one
without. Without a model they are estimated from the length of the schemas, and the result says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolkit.dialects import anthropic, chat, prompted, responses
from toolkit.errors import ModelError, ToolsRefused
from toolkit.messages import Message, ModelInfo, Usage
from toolkit.models.model import Model
from toolkit.models.naming import find_model
from toolkit.runs.results import RunResult
from toolkit.tools.registry import ToolsGiven, registry_of
from toolkit.tools.request import LanguageModel, Request
from toolkit.tools.tool import Tool, Toolset, as_tool, tool_entry

BYTES_PER_TOKEN = 4.5
"""How long a tool's compact JSON is for a token, where that is estimated.

Measured on 1,702 function definitions (Berkeley Function-Calling Leaderboard), with the vocabularies of OpenAI (o200k,
cl100k), DeepSeek, SmolLM2 and an older one of Anthropic's: the totals come within 8 %, nine tools in ten within 16 %.
What a provider writes around the schemas, or in their place, is not in it (Anthropic: some hundreds of tokens).
"""


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in a currency."""

    amount: float
    currency: str

    def __str__(self) -> str:
        return f"{self.amount:.6f} {self.currency}"


@dataclass(frozen=True, slots=True)
class Price:
    """What a provider takes for a million tokens: read, written, and read again from its cache (None: as `input`).

    Price lists change, so the toolkit brings none. What a provider takes for writing into its cache is not counted.
    """

    input: float
    output: float = 0.0
    cached: float | None = None
    currency: str = "USD"

    def of(self, usage: Usage) -> Money:
        """What this usage costs. Cached tokens are a part of the input, reasoning a part of the output."""
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input_tokens - usage.cached_tokens
        spent = (
            fresh * self.input
            + usage.cached_tokens * cached
            + usage.output_tokens * self.output
        )
        return Money(spent / 1_000_000, self.currency)


@dataclass(frozen=True, slots=True)
class SchemaCost:
    """The tokens that tools add to each request, so to each turn of a run.

    `tools` has each tool's share by name; `overhead` comes once, with the first tool; `total` is all of it. `is_exact`
    says whether the total was counted by the provider, `measured` how, and `requests` with how many requests.
    """

    tools: Mapping[str, int]
    overhead: int
    total: int
    is_exact: bool
    measured: str
    requests: int = 0
    price: Price | None = None

    @property
    def money(self) -> Money | None:
        """What that costs with each request, where a price was given and the provider's cache does not help."""
        return self.price.of(Usage(self.total)) if self.price else None

    def exceeds(self, max_tokens: int) -> bool:
        """Whether the tools add more than this budget to a request."""
        return self.total > max_tokens

    def __str__(self) -> str:
        rows = sorted(self.tools.items(), key=lambda row: -row[1])
        rows += [("(once)", self.overhead)] if self.overhead else []
        lines = [f"{tokens:8,}  {name}" for name, tokens in rows]
        count = f"{'' if self.is_exact else 'about '}{self.total:,}"
        cost = f", {self.money}" if self.money else ""
        return "\n".join(
            [*lines, f"{count} tokens in each request{cost} ({self.measured})"]
        )


def schema_cost(
    tools: ToolsGiven = None,
    *,
    model: str | Model | None = None,
    each: bool = False,
    price: Price | None = None,
    client: Any = None,
    base_url: str | None = None,
    api_key: str | None = None,
) -> SchemaCost:
    """Count what the schemas of the tools add to each request.

    tools: functions, Tools or a registry; None takes the global one.
    model: a name or a `Model` as for a run; `client`, `base_url`, `api_key` go with a name. It is sent two requests
        whose answers are cut to a token or a few (and up to three more where it refuses the field that cuts them).
        None estimates, and sends nothing.
    each: measure every tool, by one further request for each; else the total is divided by their length.
    price: what a million tokens cost, to tell the money as well.

    Where the request with the tools counts no more tokens than the one without, the model does not get them all (the
    embedded model picks one itself, some servers drop them): the cost is then an estimate. Raises ModelError.
    """
    registry = registry_of(tools)
    shown = list(registry.snapshot().values())
    if model is None and client is None and base_url is None:
        return _estimated(shown, price, "estimated from the length of the schemas")
    probe = _Probe(find_model(model, client=client, base_url=base_url, api_key=api_key))
    without = probe.count(())
    total = probe.count(shown) - without if shown else 0
    if shown and total <= 0:
        return _estimated(
            shown,
            price,
            f"estimated: {probe.model.name!r} counts no tokens for tools",
            probe.requests,
        )
    how = f"counted by {probe.model.name!r}"
    if len(shown) < 2 or not each:
        how += "; shares by length" if len(shown) > 1 else ""
        return SchemaCost(
            _shared(total, shown), 0, total, True, how, probe.requests, price
        )
    alone = {tool.name: probe.count([tool]) - without for tool in shown}
    # What comes once stands in each of these requests, and only once in the one with all tools. Rounded up, so that
    # no tool is charged with it.
    once = max(0, -(-(sum(alone.values()) - total) // (len(alone) - 1)))
    shares = {name: count - once for name, count in alone.items()}
    return SchemaCost(
        shares, total - sum(shares.values()), total, True, how, probe.requests, price
    )


class _Probe:
    """A model that is asked next to nothing, for the sake of the input tokens that its provider counts."""

    def __init__(self, model: LanguageModel) -> None:
        self.model, self.requests, self._switched = model, 0, False
        # By wire and age of the model, which refuse each other's fields; some that reason refuse so small a number.
        self._limits: list[dict[str, int]] = [
            {"max_tokens": 1}, {"max_output_tokens": 16}, {"max_completion_tokens": 16}, {}
        ]  # fmt: skip

    def count(self, tools: Sequence[Tool]) -> int:
        while True:
            self.requests += 1
            try:
                # A prompt without a word fits no tool: the embedded model shall not pick one.
                reply = self.model.complete(
                    Request([Message("user", ".")], tools, options=self._limits[0])
                )
                return reply.usage.input_tokens
            except ToolsRefused:
                if self._switched:
                    raise
                self.model, self._switched = self.model.prompted, True  # as a run would
            except ModelError as error:
                if tools or error.status not in (400, 422) or len(self._limits) == 1:
                    raise
                self._limits.pop(0)


def _estimated(
    tools: list[Tool], price: Price | None, how: str, requests: int = 0
) -> SchemaCost:
    total = round(sum(map(_length, tools)) / BYTES_PER_TOKEN)
    return SchemaCost(_shared(total, tools), 0, total, False, how, requests, price)


def _shared(total: int, tools: list[Tool]) -> dict[str, int]:
    """The total, divided among the tools by their length, to the last token."""
    whole, before, shares = sum(map(_length, tools)), 0, {}
    for tool in tools:
        after = before + _length(tool)
        shares[tool.name] = round(total * after / whole) - round(total * before / whole)
        before = after
    return shares


def _length(tool: Tool) -> int:
    return len(
        json.dumps(
            tool_entry(tool)["function"], ensure_ascii=False, separators=(",", ":")
        ).encode()
    )


def run_cost(result: RunResult, price: Price) -> list[Money]:
    """What each turn of a run has cost, by the usage that its provider told, in the order of the turns.

    Of all of them together, `price.of(result.usage)`.
    """
    return [price.of(turn.usage) for turn in result.run.log]


def explain(tool: Callable[..., Any] | Tool) -> str:
    """The JSON that each wire gets of a tool, laid out for reading, and the text that a model gets in its prompt."""
    request = Request((), list(Toolset([as_tool(tool)]).values()))
    strict = replace(request, info=ModelInfo(strict=True))
    shown: dict[str, Any] = {
        "Chat Completions": chat.encode(request)["tools"][0],
        "Chat Completions, strict": chat.encode(strict)["tools"][0],
        "Responses": responses.encode(request)["tools"][0],
        "Anthropic Messages": anthropic.encode(request)["tools"][0],
        "in the prompt": prompted.encode(request)["messages"][0]["content"],
    }
    texts = (
        t if isinstance(t, str) else json.dumps(t, indent=2, ensure_ascii=False)
        for t in shown.values()
    )
    return "\n\n".join(
        f"{title}\n{text}" for title, text in zip(shown, texts, strict=True)
    )
