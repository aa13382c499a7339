"""A request in, a reply out: models behind servers, the names that they are found by, and a scripted one for tests."""

from toolkit.messages import ModelInfo
from toolkit.models.model import Model
from toolkit.models.naming import OPENAI_MODEL, find_model
from toolkit.models.scripted import ScriptedModel

__all__ = ["OPENAI_MODEL", "Model", "ModelInfo", "ScriptedModel", "find_model"]
