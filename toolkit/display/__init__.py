"""Runs and registries as people see them: HTML for a notebook or a file, lines for a terminal, and progress."""

from toolkit.display.pages import page, registry_html, result_html, result_page
from toolkit.display.progress import live
from toolkit.display.text import registry_text, result_text

__all__ = [
    "live",
    "page",
    "registry_html",
    "registry_text",
    "result_html",
    "result_page",
    "result_text",
]
