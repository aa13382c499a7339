"""Which of many tools a turn shows: the best by words and embeddings, and a tool with which the model finds more."""

from toolkit.retrieval.embedding import Embed, embeddings
from toolkit.retrieval.finding import FindTools, find_tools
from toolkit.retrieval.recall import Recall, recall_at
from toolkit.retrieval.retrievers import best, hybrid
from toolkit.tools.request import Retriever

__all__ = [
    "Embed",
    "FindTools",
    "Recall",
    "Retriever",
    "best",
    "embeddings",
    "find_tools",
    "hybrid",
    "recall_at",
]
