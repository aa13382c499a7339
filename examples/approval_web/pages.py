"""The pages as HTML. Whatever comes from a model or a person is escaped, and unseen characters are spelt out."""

from __future__ import annotations

import re
from datetime import datetime
from html import escape
from typing import Any
from urllib.parse import quote

from toolkit import RunResult, ToolRegistry
from toolkit.approval import spell_out
from toolkit.messages import ToolCall
from toolkit.store import StoredRun

_STATES = {
    "awaiting_approval": ("waits for you", "waits"),
    "running": ("under way", "works"),
    "stopped": ("broke off", "bad"),
    "answered": ("done", "good"),
}
Lines = list[tuple[StoredRun, RunResult]]
_VERDICTS = {"approve": ("confirmed", "good"), "deny": ("rejected", "bad")}


def overview(waiting: Lines, others: Lines, tools: ToolRegistry, token: str) -> bytes:
    count = sum(len(result.waiting) for _, result in waiting)
    title = (
        f"{count} {'call waits' if count == 1 else 'calls wait'} for you"
        if count
        else "Nothing waits for you"
    )
    body = [
        f'<header><h1>{title}</h1><a class="again" href="/">Look again</a></header>'
    ]
    body += [
        _section(line, result, tools, token, has_link=True) for line, result in waiting
    ]
    if others:
        items = "".join(
            f'<li><a href="{_link(line.id)}">{_text(_prompt(result))}</a>{_state(line.status)}</li>'
            for line, result in others
        )
        body.append(f'<h2>Other runs</h2><ul class="others">{items}</ul>')
    return _page(f"({count}) Approvals" if count else "Approvals", "".join(body))


def one_run(
    line: StoredRun,
    result: RunResult,
    tools: ToolRegistry,
    token: str,
    *,
    is_at_work: bool,
    alert: str = "",
) -> bytes:
    body = ['<p class="back"><a href="/">← All runs</a></p>']
    if alert:
        body.append(f'<p class="alert" role="alert">{_text(alert)}</p>')
    body.append(_section(line, result, tools, token, has_link=False))
    if is_at_work:
        body.append(
            '<p class="work" role="status">The run goes on. This page looks again by itself.</p>'
        )
    elif line.status in ("running", "stopped"):
        button = '<button class="confirm">Go on</button>'
        form = f'<form method="post" action="{_link(line.id)}/resume">{_hidden(token=token)}{button}</form>'
        told = "The run broke off, or is at work elsewhere. No step that has ended is done again."
        body.append(f'<div class="work">{told} {form}</div>')
    elif not result.waiting:
        answer = _text(result.text) or f"(no text; it ended with {_text(line.status)})"
        body.append(f'<section class="answer"><h2>Answer</h2><p>{answer}</p></section>')
    return _page("A run", "".join(body))


def message(title: str, text: str) -> bytes:
    return _page(
        title,
        f'<h1>{escape(title)}</h1><p class="alert" role="alert">{_text(text)}</p>',
    )


def _section(
    line: StoredRun,
    result: RunResult,
    tools: ToolRegistry,
    token: str,
    *,
    has_link: bool,
) -> str:
    prompt = _text(_prompt(result))
    title = f'<a href="{_link(line.id)}">{prompt}</a>' if has_link else prompt
    began = datetime.fromtimestamp(line.created).strftime("%d %b %Y, %H:%M")
    calls = [_answered(call) for call in result.calls]
    calls += [_open(call, line, result, tools, token) for call in result.run.open_calls]
    note = ""
    if len(result.run.open_calls) > 1 and result.waiting:
        note = f"<p>{len(result.run.open_calls)} calls in one step: none starts before all are decided.</p>"
    state = _state(line.status)
    return (
        f'<section class="run"><div class="head"><h2>{title}</h2>{state}</div>'
        f'<p class="began">began <time>{began}</time></p>{note}{"".join(calls)}</section>'
    )


def _open(
    call: ToolCall, line: StoredRun, result: RunResult, tools: ToolRegistry, token: str
) -> str:
    """A call of the step that is to come: one to decide on, or one of which all is known."""
    tool = tools.get(call.name)
    about = (
        escape(tool.description.split("\n")[0])
        if tool
        else "There is no such tool here: it cannot run."
    )
    verdict = result.run.verdicts.get(call.id)
    tier = f'<span class="tier">{escape(tool.permission)}</span>' if tool else ""
    if call.id in {waiting.id for waiting in result.waiting}:
        foot, badge = _form(call, line, token), ""
    elif verdict and verdict.decision in _VERDICTS:
        foot, badge = _reason(verdict.reason), _badge(*_VERDICTS[verdict.decision])
    else:
        foot, badge = "", _badge("needs no verdict", "")
    head = f"<h3><code>{_text(call.name)}</code></h3>{tier}{badge}"
    return f'<article><div class="head">{head}</div><p>{about}</p>{_arguments(call.arguments)}{foot}</article>'


def _answered(call: Any) -> str:
    label = _VERDICTS.get(call.verdict, ("needed no verdict", ""))
    head = f"<h3><code>{_text(call.name)}</code></h3>{_badge(*label)}"
    shown = _text(call.content)
    kind = "result bad" if call.is_error else "result"
    arguments = _arguments(call.arguments)
    return f'<article><div class="head">{head}</div>{arguments}<p class="{kind}">{shown}</p></article>'


def _form(call: ToolCall, line: StoredRun, token: str) -> str:
    """Two forms: were they one, Enter in the reason would press its first button."""
    begin = f'<form method="post" action="{_link(line.id)}/verdict">'
    begin += _hidden(token=token, call=call.id, digest=call.digest)
    name = f"reason-{line.id}-{call.id}"
    return (
        f'<div class="decide">{begin}<button class="confirm" name="decision" value="confirm">Confirm</button></form>'
        f'{begin}<span><label for="{escape(name)}">Reason for a rejection (the model reads it)</label>'
        f'<input id="{escape(name)}" name="reason" maxlength="2000" autocomplete="off"></span>'
        '<button class="reject" name="decision" value="reject">Reject</button></form></div>'
    )


def _arguments(arguments: Any) -> str:
    if not arguments:
        return '<p class="none">without arguments</p>'
    rows = (
        f"<dt>{_exact(name)[1:-1]}</dt><dd>{_exact(value)}</dd>"
        for name, value in arguments.items()
    )
    return f"<dl>{''.join(rows)}</dl>"


def _exact(value: Any) -> str:
    """A value as JSON: unseen characters spelt out and marked, and a line begun where a text has one."""
    shown = escape(spell_out(value), quote=False)
    return re.sub(r"(\\\\)|(\\u[0-9a-f]{4})|(\\n)", _marked, shown)


def _marked(found: re.Match[str]) -> str:
    if found[1]:
        return found[1]  # a backslash that is one, whatever follows
    return f"<mark>{found[2]}</mark>" if found[2] else f"<i>{found[3]}</i>\n"


def _text(text: str) -> str:
    """A text for people, on as many lines as it has; unseen characters are spelt out."""
    return "\n".join(
        escape(spell_out(part)[1:-1].replace('\\"', '"').replace("\\\\", "\\"))
        for part in text.split("\n")
    )


def _prompt(result: RunResult) -> str:
    asked = [
        message.text
        for message in result.run.messages[result.run.history :]
        if message.role == "user"
    ]
    text = asked[0] if asked else "(no question)"
    return text if len(text) < 300 else text[:300] + " …"


def _state(status: str) -> str:
    return _badge(*_STATES.get(status, (status.replace("_", " "), "bad")))


def _badge(text: str, kind: str) -> str:
    return f'<span class="badge {kind}">{escape(text)}</span>'


def _reason(reason: str) -> str:
    return f'<p class="result">{_text(reason)}</p>' if reason else ""


def _hidden(**fields: str) -> str:
    return "".join(
        f'<input type="hidden" name="{name}" value="{escape(value)}">'
        for name, value in fields.items()
    )


def _link(run_id: str) -> str:
    return escape(f"/runs/{quote(run_id, safe='')}")


def _page(title: str, body: str) -> bytes:
    head = (
        f'<meta charset="utf-8"><title>{escape(title)}</title><link rel="stylesheet" href="/style.css">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
    )
    return f'<!doctype html><html lang="en"><head>{head}</head><body><main>{body}</main></body></html>'.encode(
        "utf-8", "replace"
    )
