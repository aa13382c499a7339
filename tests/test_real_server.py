"""All wires against a real server: llama.cpp speaks Chat Completions, Responses and Messages on loopback.

It constrains output on Chat Completions only, so native tool calls of the small model are not to be had; what can be
shown on every wire is text, streams, usage and errors, through the real SDKs.
"""

from __future__ import annotations

from typing import Any, Literal

import pytest

from helpers import Runner
from toolkit import Model, ModelError, ModelInfo, ToolContext, run_agent_with_tools
from toolkit.local import LocalModel

pytestmark = pytest.mark.local
SHORT = {
    "chat": {"max_tokens": 12},
    "responses": {"max_output_tokens": 12},
    "anthropic": {"max_tokens": 12},
}


@pytest.fixture(scope="module")
def served() -> LocalModel:
    return LocalModel()


def model_of(served: LocalModel, wire: str, **given: Any) -> Model:
    address = (
        served.base_url.removesuffix("/v1") if wire == "anthropic" else served.base_url
    )
    return Model(
        "local", wire=wire, base_url=address, **{"api_key": served.api_key, **given}
    )


@pytest.mark.parametrize("wire", SHORT)
def test_a_run_on_each_wire(run: Runner, served: LocalModel, wire: str) -> None:
    # Responses refuses temperature nowhere, Messages only at Anthropic's own service.
    asked = {
        "model": model_of(served, wire, **SHORT[wire], temperature=0),
        "tools": [],
        "instructions": "Be brief.",
    }
    plain = run("Say hello!", **asked)
    pieces: list[str] = []
    streamed = run("Say hello!", **asked, on_text=pieces.append)
    assert plain.text
    assert "".join(pieces) == streamed.text == plain.text
    assert plain.usage.input_tokens > 5
    assert plain.usage.output_tokens > 2
    further = run("And again?", **asked, history=plain)
    assert further.text
    assert further.usage.input_tokens > plain.usage.input_tokens


@pytest.mark.parametrize("wire", SHORT)
def test_a_wrong_key_is_told_and_not_tried_again(
    run: Runner, served: LocalModel, wire: str
) -> None:
    with pytest.raises(ModelError, match="401") as caught:
        run("Say hello!", model=model_of(served, wire, api_key="wrong"), tools=[])
    assert caught.value.status == 401
    assert caught.value.run.messages[-1].text == "Say hello!"


def test_a_model_without_function_calling_is_held_to_the_tools(
    served: LocalModel,
) -> None:
    """The prompted wire, its replies constrained by a grammar made from the tools."""
    seen: list[int] = []

    def switch_light(state: Literal["on", "off"], context: ToolContext) -> str:
        """Switch the light on or off."""
        seen.append(context.turn)
        return f"the light is {state}"

    info = ModelInfo(function_calling=False, structured_output=True)
    model = model_of(served, "chat", info=info, temperature=0, max_tokens=60)
    result = run_agent_with_tools(
        "Switch the light on.",
        model=model,
        tools=[switch_light],
        tool_choice="switch_light",
        max_turns=2,
    )
    assert [(call.name, call.is_error) for call in result.calls[:1]] == [
        ("switch_light", False)
    ]
    assert seen[0] == 1
