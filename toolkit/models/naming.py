"""TEMP."""

from toolkit.models.model import find_model as find_model
from toolkit.models.model import refuse_strangers as refuse_strangers
