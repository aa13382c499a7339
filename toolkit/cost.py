"""What the tools of a program cost: the tokens and the money that their schemas add to each request.

With a model, tokens are what its provider counts: the difference of two tiny requests, one with the tools and one
without. Without a model they are estimated from the length of the schemas, and the result says so.
"""

from __future__ import annotations

import json
import math
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
"""The length of a tool's compact JSON for each token, for estimates.

Measured on 1,702 function definitions (Berkeley Function-Calling Leaderboard), with the vocabularies of OpenAI (o200k,
cl100k), DeepSeek, SmolLM2 and an older one of Anthropic's: the totals are within 8 %, nine tools in ten within 16 %.
What a provider writes around the schemas, or in their place, is not counted (Anthropic: some hundreds of tokens).
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
    """The price of a million tokens: of input, of output, and of input from the provider's cache (None: as `input`).

    Price lists change, so the toolkit brings none. The price of writing into a cache is not counted.
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
        """The cost of that in each request, without the help of a cache. None without a price."""
        return self.price.of(Usage(self.total)) if self.price else None

    def exceeds(self, max_tokens: int) -> bool:
        """Whether the tools add more than this budget to a request."""
        return self.total > max_tokens

    def __str__(self) -> str:
        rows = sorted(self.tools.items(), key=lambda row: -row[1])
        if self.overhead:
            rows.append(("(once)", self.overhead))
        lines = [f"{tokens:8,}  {name}" for name, tokens in rows]
        total = f"{self.total:,} tokens in each request"
        if not self.is_exact:
            total = f"about {total}"
        if self.money:
            total += f", {self.money}"
        return "\n".join([*lines, f"{total} ({self.measured})"])


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
        whose answers are cut to a token or a few (and up to three more if it refuses the field that cuts them).
        None estimates, and sends nothing.
    each: measure every tool, with one more request for each; else the total is divided by their length.
    price: what a million tokens cost, to get the money as well.

    If the request with the tools counts no more tokens than the one without, the model does not get them all (the
    embedded model picks one itself, some servers drop them): the cost is then an estimate. Raises ModelError.
    """
    shown = list(registry_of(tools).snapshot().values())
    lengths = {tool.name: _length(tool) for tool in shown}
    if model is None and client is None and base_url is None:
        return _estimated(lengths, price, "estimated from the length of the schemas")
    probe = _Probe(find_model(model, client=client, base_url=base_url, api_key=api_key))
    bare = probe.count(())
    total = probe.count(shown) - bare if shown else 0
    if shown and total <= 0:
        measured = f"estimated: {probe.model.name!r} counts no tokens for tools"
        return _estimated(lengths, price, measured, probe.requests)
    measured = f"counted by {probe.model.name!r}"
    shares = _shares(total, lengths)
    if len(shown) > 1 and each:
        alone = {tool.name: probe.count([tool]) - bare for tool in shown}
        shares = _own_shares(total, alone)
    elif len(shown) > 1:
        measured += "; shares by length"
    return SchemaCost(
        tools=shares,
        overhead=total - sum(shares.values()),
        total=total,
        is_exact=True,
        measured=measured,
        requests=probe.requests,
        price=price,
    )


def _estimated(
    lengths: Mapping[str, int], price: Price | None, measured: str, requests: int = 0
) -> SchemaCost:
    total = round(sum(lengths.values()) / BYTES_PER_TOKEN)
    return SchemaCost(
        tools=_shares(total, lengths),
        overhead=0,
        total=total,
        is_exact=False,
        measured=measured,
        requests=requests,
        price=price,
    )


def _own_shares(total: int, alone: Mapping[str, int]) -> dict[str, int]:
    """What each tool adds, without what comes once, from what a request with it alone counts.

    What comes once is part of each of these requests, but only once of the one with all tools. It
    is rounded up, so that no tool is charged with it.
    """
    repeated = sum(alone.values()) - total
    once = max(0, math.ceil(repeated / (len(alone) - 1)))
    return {name: count - once for name, count in alone.items()}


def _length(tool: Tool) -> int:
    """The bytes of a tool as compact JSON."""
    entry = tool_entry(tool)["function"]
    text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode())


def _shares(total: int, lengths: Mapping[str, int]) -> dict[str, int]:
    """The total, divided among the tools by their length, to the last token."""
    shares: dict[str, int] = {}
    whole = sum(lengths.values())
    length = 0
    for name in lengths:
        length += lengths[name]
        shares[name] = round(total * length / whole) - sum(shares.values())
    return shares


class _Probe:
    """A model that is asked almost nothing, to learn how many input tokens its provider counts."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.requests = 0
        self._is_prompted = False
        # By wire and age of the model, which refuse each other's fields; some that reason refuse so small a number.
        self._limits: list[dict[str, int]] = [
            {"max_tokens": 1},
            {"max_output_tokens": 16},
            {"max_completion_tokens": 16},
            {},
        ]

    def count(self, tools: Sequence[Tool]) -> int:
        # A prompt without a word fits no tool: the embedded model must not pick one.
        prompt = [Message("user", ".")]
        while True:
            self.requests += 1
            request = Request(prompt, tools, options=self._limits[0])
            try:
                return self.model.complete(request).usage.input_tokens
            except ToolsRefused:
                if self._is_prompted:
                    raise
                # As a run would.
                self.model = self.model.prompted
                self._is_prompted = True
            except ModelError as error:
                is_about_limit = error.status in (400, 422) and not tools
                if not is_about_limit or len(self._limits) == 1:
                    raise
                self._limits.pop(0)


def run_cost(result: RunResult, price: Price) -> list[Money]:
    """The cost of each turn of a run, by the usage that its provider reported, in the order of the turns.

    `price.of(result.usage)` is the cost of all turns together.
    """
    return [price.of(turn.usage) for turn in result.run.log]


def explain(tool: Callable[..., Any] | Tool) -> str:
    """The JSON of a tool on each wire, indented for reading, and the text that describes it in a prompt."""
    request = Request((), list(Toolset([as_tool(tool)]).values()))
    strict = replace(request, info=ModelInfo(strict=True))
    entries = {
        "Chat Completions": chat.encode(request)["tools"][0],
        "Chat Completions, strict": chat.encode(strict)["tools"][0],
        "Responses": responses.encode(request)["tools"][0],
        "Anthropic Messages": anthropic.encode(request)["tools"][0],
    }
    sections = [
        f"{title}\n{json.dumps(entry, indent=2, ensure_ascii=False)}"
        for title, entry in entries.items()
    ]
    prompt = prompted.encode(request)["messages"][0]["content"]
    return "\n\n".join([*sections, f"in the prompt\n{prompt}"])
