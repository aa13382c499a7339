"""Who decides on calls: policies, the terminal, and attempts to run something without an approval."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import toolkit
from helpers import Runner, Till, approve_later, in_loop
from toolkit import (
    Limits,
    Message,
    Reply,
    RunResult,
    ScriptedModel,
    ToolCall,
    ToolRegistry,
    Verdict,
)
from toolkit.approval import (
    Rules,
    allow,
    ask,
    ask_in_terminal,
    defer,
    deny,
    first,
    spell_out,
)
from toolkit.errors import ApprovalError, StoreError
from toolkit.messages import PendingCall
from toolkit.store import SQLiteStore

ROOT = Path(__file__).parents[1]


def pending(
    name: str = "pay",
    tier: Any = "sensitive",
    tags: tuple[str, ...] = (),
    **arguments: Any,
) -> PendingCall:
    return PendingCall("c1", name, arguments, permission=tier, tags=tags)


# Rules

DECISIONS: dict[str, tuple[Rules, PendingCall, str]] = {
    "a name": (allow("pay"), pending("pay"), "approve"),
    "another name": (allow("pay"), pending("repay"), "defer"),
    "the name in other letters": (allow("pay"), pending("Pay"), "defer"),
    "a pattern": (allow("get_*"), pending("get_mail"), "approve"),
    "a pattern in other letters": (allow("get_*"), pending("GET_mail"), "defer"),
    "the second pattern": (allow({"get_*", "list_?"}), pending("list_a"), "approve"),
    "an exception": (allow({"get_*", "!get_secret"}), pending("get_secret"), "defer"),
    "an exception that is a pattern": (
        allow({"*", "!get_*"}),
        pending("get_secret"),
        "defer",
    ),
    "beside the exception": (
        allow({"get_*", "!get_secret"}),
        pending("get_mail"),
        "approve",
    ),
    "an exception, whatever the order": (
        allow(["!get_secret", "get_*"]),
        pending("get_secret"),
        "defer",
    ),
    "a pattern within a name": (allow("get"), pending("get_mail"), "defer"),
    "every name": (deny("*"), pending("pay"), "deny"),
    "a tag": (allow(tags="safe"), pending(tags=("money", "safe")), "approve"),
    "one of the tags": (
        allow(tags={"safe", "fast"}),
        pending(tags=("fast",)),
        "approve",
    ),
    "another tag": (allow(tags="safe"), pending(tags=("unsafe",)), "defer"),
    "no tag": (allow(tags="safe"), pending(), "defer"),
    "a tier": (deny(tiers="write"), pending(tier="write"), "deny"),
    "another tier": (deny(tiers="write"), pending(tier="sensitive"), "defer"),
    "any tier": (deny("pay"), pending(tier="read"), "deny"),
    "arguments": (allow(where=lambda a: a["sum"] < 10), pending(sum=9), "approve"),
    "other arguments": (allow(where=lambda a: a["sum"] < 10), pending(sum=10), "defer"),
    "all conditions": (
        allow("pay", tags="safe", where=lambda a: True),
        pending(tags=("safe",)),
        "approve",
    ),
    "all conditions but one": (
        allow("pay", tags="safe", where=lambda a: True),
        pending(),
        "defer",
    ),
    "no rule, read": (deny("x"), pending(tier="read"), "approve"),
    "no rule, write": (deny("x"), pending(tier="write"), "approve"),
    "no rule, sensitive": (deny("x"), pending(tier="sensitive"), "defer"),
    "to pause a call that writes": (
        defer(tiers="write"),
        pending(tier="write"),
        "defer",
    ),
    "the first": (first(allow("pay"), deny("*")), pending(), "approve"),
    "the first, the other way round": (
        first(deny("*"), allow("pay")),
        pending(),
        "deny",
    ),
    "the second": (first(allow("pay"), deny("*")), pending("buy"), "deny"),
    "the first of the first": (
        first(first(allow("x"), allow("pay")), deny("*")),
        pending(),
        "approve",
    ),
    "a policy within that has nothing to say": (
        first(allow("x"), deny("*")),
        pending(),
        "deny",
    ),
    "a function behind": (
        first(allow("x"), lambda call: Verdict("deny")),
        pending(),
        "deny",
    ),
    "a function is not asked about what writes": (
        first(deny("x"), lambda call: None),
        pending(tier="write"),
        "approve",
    ),
    "a function that defers decides": (
        first(lambda call: Verdict("defer"), allow("*")),
        pending(),
        "defer",
    ),
    "left to a function": (
        ask(lambda call: Verdict("deny"), tiers="write"),
        pending(tier="write"),
        "deny",
    ),
    "left to a function, but not this": (
        ask(lambda call: None, "buy"),
        pending(),
        "defer",
    ),
}


@pytest.mark.parametrize(
    ("policy", "call", "decision"), DECISIONS.values(), ids=DECISIONS
)
def test_what_a_policy_decides(policy: Rules, call: PendingCall, decision: str) -> None:
    verdict = policy(call)
    assert verdict.decision == decision
    assert verdict.digest in ("", call.digest)


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no condition": (lambda: allow(), ValueError, r'give "\*"'),
    "nothing denied": (lambda: deny(reason="no"), ValueError, "without a condition"),
    "no names": (lambda: allow([]), ValueError, r"names=\[\] fits no call"),
    "no names, but tags": (
        lambda: allow((), tags="safe"),
        ValueError,
        r"names=\(\) fits no call",
    ),
    "an empty name": (lambda: allow({"get_*", ""}), ValueError, "'' in names"),
    "an exception of nothing": (
        lambda: allow({"get_*", "!"}),
        ValueError,
        "'!' in names",
    ),
    "only exceptions": (
        lambda: allow("!get_secret"),
        ValueError,
        "only excludes names",
    ),
    "a name that is none": (lambda: allow([len]), ValueError, "in names"),
    "no tags": (lambda: deny(tags=set()), ValueError, "tags"),
    "no tiers": (lambda: deny(tiers=[]), ValueError, "tiers"),
    "a misspelt tier": (
        lambda: deny(tiers="wirte"),
        ValueError,
        "'wirte'.*read, write, sensitive",
    ),
    "a misspelt tier of a function": (
        lambda: first(Reviewer("wirte")),
        ValueError,
        "'wirte'",
    ),
    "a claim that is none": (lambda: allow(where={"sum": 1}), TypeError, "where"),
    "a claim to be awaited": (lambda: allow(where=claim_later), TypeError, "where"),
    "no approver": (lambda: ask("pay"), TypeError, "'pay'"),
    "is not an approver": (lambda: first(), ValueError, "first"),
    "a list of approvers": (
        lambda: first([allow("pay")]),
        TypeError,
        "is not an approver",
    ),
}


@pytest.mark.parametrize(("make", "kind", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_in_a_rule_is_told_at_once(
    make: Any, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        make()


class Reviewer:
    """Denies, and says for which tiers."""

    def __init__(self, tiers: Any) -> None:
        self.tiers = tiers

    def __call__(self, call: ToolCall) -> str:
        return "deny"


async def claim_later(arguments: Any) -> bool:
    return True


ASKED: dict[str, tuple[Any, set[str]]] = {
    "allowing": (allow("x"), {"sensitive"}),
    "denying": (deny("x"), {"read", "write", "sensitive"}),
    "denying a tier": (deny(tiers="write"), {"write"}),
    "a function": (first(lambda call: "deny"), {"sensitive"}),
    "a function that says so": (first(Reviewer(["write"])), {"write", "sensitive"}),
    "a function that wants no more": (first(Reviewer(())), {"sensitive"}),
    "several": (first(allow("x"), deny(tiers="read")), {"read", "sensitive"}),
}


@pytest.mark.parametrize(("policy", "tiers"), ASKED.values(), ids=ASKED)
def test_the_tiers_that_a_policy_is_asked_about(policy: Rules, tiers: set[str]) -> None:
    assert policy.tiers == tiers


# Policies in runs


LOOK = ToolCall("c0", "look", {"what": "all"})
NOTE = ToolCall("c1", "note", {"text": "hi"})
PAY = ToolCall("c2", "pay", {"sum": 5})


def went(result: RunResult) -> list[str]:
    return [call.verdict for call in result.calls]


IN_RUNS: dict[str, tuple[Any, list[Any], list[str]]] = {
    "allowed": (allow("pay"), ["all", "hi", 5], ["", "", "approve"]),
    "a tier denied": (
        first(deny(tiers="write"), allow("*")),
        ["all", 5],
        ["deny", "approve"],
    ),
    "all denied": (deny("*"), [], ["deny", "deny", "deny"]),
    "by tag": (
        first(deny(tags="paper"), allow(tags="money")),
        ["all", 5],
        ["approve", "deny", "approve"],
    ),
    "an async approver last": (
        first(deny("note"), approve_later),
        ["all", 5],
        ["approve", "deny", "approve"],
    ),
    "an async approver of a tier": (
        ask(approve_later, tiers={"write", "sensitive"}),
        ["all", "hi", 5],
        ["approve"] * 2,
    ),
    "an odd answer": (first(lambda call: True), ["all", "hi"], ["", "", "deny"]),
}


@pytest.mark.parametrize(("policy", "did", "verdicts"), IN_RUNS.values(), ids=IN_RUNS)
def test_a_policy_decides_in_a_run(
    run: Runner, policy: Any, did: list[Any], verdicts: list[str]
) -> None:
    till = Till()
    result = run(
        "q",
        model=ScriptedModel([[LOOK, NOTE, PAY], "so"]),
        tools=till.tools,
        approve=policy,
    )
    assert result.text == "so"
    assert sorted(till.did, key=str) == sorted(did, key=str)
    assert went(result)[-len(verdicts) :] == verdicts


def test_who_is_asked_sees_the_arguments_that_will_run(run: Runner) -> None:
    """Also if the tool is of a tier that nobody else is asked about."""
    seen: list[Any] = []
    received: list[list[int]] = []

    def put(items: list[int]) -> str:
        """Put items away."""
        received.append(items)
        return "put"

    def approve(call: PendingCall) -> Verdict:
        seen.append(call.arguments)
        return Verdict("approve").on(call)

    sent = ToolCall("c1", "put", raw='{"items":"[1,2]"}')
    result = run(
        "go",
        model=ScriptedModel([[sent], "done"]),
        tools=[put],
        approve=ask(approve, "put"),
    )
    assert seen == [{"items": [1, 2]}]
    assert received == [[1, 2]]
    assert [call.is_error for call in result.calls] == [False]


@pytest.mark.parametrize("policy", [deny("*"), defer("*"), deny(tiers="read")])
def test_the_answer_itself_is_no_call_to_decide_on(run: Runner, policy: Rules) -> None:
    model = ScriptedModel([[LOOK, ToolCall("c", "final_answer", {"answer": 7})]])
    result = run(
        "q",
        model=model,
        tools=Till().tools,
        output_type=int,
        approve=first(allow("look"), policy),
    )
    assert (result.output, went(result)) == (7, ["approve", ""])


def test_a_plan_asks_about_what_it_runs(run: Runner) -> None:
    till = Till()
    policy = deny({"look", "note"})
    result = run(
        "q",
        model=ScriptedModel([[LOOK, NOTE, PAY], "so"]),
        tools=till.tools,
        approve=policy,
        mode="plan",
    )
    assert went(result) == ["deny", "deny", ""]
    assert [call.name for call in result.plan.calls] == ["pay"]
    assert till.did == []


def test_a_policy_pauses_what_writes(run: Runner, resume: Runner) -> None:
    till = Till()
    paused = run(
        "q",
        model=ScriptedModel([[LOOK, NOTE]]),
        tools=till.tools,
        approve=defer(tiers="write"),
    )
    assert [call.name for call in paused.waiting] == ["note"]
    assert till.did == []
    result = resume(
        paused.to_json(),
        {"c1": "approve"},
        model=ScriptedModel(["so"]),
        tools=till.tools,
    )
    assert sorted(till.did) == ["all", "hi"]
    assert result.text == "so"


def test_a_denial_says_who_and_why_and_nothing_of_the_rule(run: Runner) -> None:
    till = Till()
    policy = deny({"no*", "!nothing"}, reason="ask an admin")
    result = run(
        "q", model=ScriptedModel([NOTE, "so"]), tools=till.tools, approve=policy
    )
    assert (
        result.calls[0].content
        == "Not run: the policy denied this call (ask an admin)."
    )


def test_who_decided_is_in_the_audit(run: Runner, tmp_path: Path) -> None:
    path, till = tmp_path / "audit.jsonl", Till()
    policy = first(allow("pay"), deny("note", reason="no paper"))
    run(
        "q",
        model=ScriptedModel([[NOTE, PAY], "so"]),
        tools=till.tools,
        approve=policy,
        audit=path,
    )
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    told = {
        (line["kind"], line["tool_name"], line["decision"], line["by"], line["reason"])
        for line in lines
    }
    assert told == {
        ("intent", "pay", "approve", "the policy", ""),
        ("outcome", "pay", "approve", "the policy", ""),
        ("outcome", "note", "deny", "the policy", "no paper"),
    }


def broken(arguments: Any) -> bool:
    raise KeyError("limit")


def claim_awaited(arguments: Any) -> Any:
    return asyncio.sleep(0)


@pytest.mark.filterwarnings("ignore:coroutine 'sleep' was never awaited:RuntimeWarning")
@pytest.mark.parametrize("where", [broken, claim_awaited])
@pytest.mark.parametrize("rule", [allow, deny])
def test_a_claim_that_fails_makes_the_call_wait(
    run: Runner, rule: Any, where: Any, caplog: pytest.LogCaptureFixture
) -> None:
    till = Till()
    with caplog.at_level(logging.ERROR, "toolkit"):
        policy = first(rule("pay", where=where), allow("*"))
        result = run("q", model=ScriptedModel([PAY]), tools=till.tools, approve=policy)
    assert result.stop_reason == "awaiting_approval"
    assert till.did == []
    assert "the approver failed" in caplog.text


# The terminal


class Terminal:
    """A person at a terminal, who types each answer once the question is there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: bytes) -> None:
        pty = pytest.importorskip("pty", reason="a terminal that a test can type in")
        self.shown, self._answers, self._shown_to = "", list(answers), 0
        self._own, theirs = pty.openpty()
        self._streams = [
            os.fdopen(theirs, "r", encoding="utf-8"),
            os.fdopen(os.dup(theirs), "w", encoding="utf-8"),
        ]
        monkeypatch.setattr(sys, "stdin", self._streams[0])
        monkeypatch.setattr(sys, "stderr", self._streams[1])
        self._thread = threading.Thread(target=self._sit, daemon=True)
        self._thread.start()

    def type(self, answer: bytes) -> None:
        os.write(self._own, answer)

    def _sit(self) -> None:
        with contextlib.suppress(OSError):  # the other side was closed
            while seen := os.read(self._own, 65_536):
                self.shown += seen.decode()
                if "[y/N] " in self.shown[self._shown_to :] and self._answers:
                    self._shown_to = len(self.shown)
                    self.type(self._answers.pop(0))

    def leave(self) -> str:
        for stream in self._streams:
            stream.close()
        self._thread.join(5)
        os.close(self._own)
        return self.shown


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def sit_down(*answers: bytes) -> Terminal:
        made.append(Terminal(monkeypatch, *answers))
        return made[-1]

    yield sit_down
    for one in made:
        with contextlib.suppress(OSError):
            one.leave()


ANSWERS = {
    b"y\n": "approve",
    b"yes\n": "approve",
    b"  YES \n": "approve",
    b"\n": "deny",
    b"n\n": "deny",
    b"yep\n": "deny",
    b"yes, but\n": "deny",
    b"y\x1b[D\n": "deny",
    b"\x04": "defer",
}


@pytest.mark.parametrize(("typed", "decision"), ANSWERS.items(), ids=repr)
def test_only_yes_approves_at_the_terminal(
    terminal: Any, typed: bytes, decision: str
) -> None:
    terminal(typed)
    call = pending(sum=5)
    verdict = ask_in_terminal(call)
    assert verdict.decision == decision
    assert decision == "defer" or (verdict.by, verdict.digest) == (
        "the user",
        call.digest,
    )


def test_the_terminal_in_a_run(run: Runner, terminal: Any) -> None:
    till, screen = Till(), terminal(b"n\n", b"y\n")
    calls = [PAY, ToolCall("c3", "pay", {"sum": 6})]
    asked = functools.partial(ask_in_terminal, by="Ada")
    result = run(
        "q", model=ScriptedModel([calls, "so"]), tools=till.tools, approve=asked
    )
    assert till.did == [6]
    assert result.calls[0].content == "Not run: Ada denied this call."
    lines = [line for line in screen.leave().replace("\r", "").split("\n") if line]
    assert lines[:3] == [
        'The model calls "pay" (sensitive) with',
        '  "sum": 5',
        'Run "pay"? [y/N] n',
    ]


def test_what_was_typed_before_the_question_does_not_count(terminal: Any) -> None:
    screen = terminal(b"n\n")
    screen.type(b"y\n")
    while "y" not in screen.shown:  # until the terminal has it
        time.sleep(0.001)
    assert ask_in_terminal(pending()).decision == "deny"


def test_without_a_terminal_nobody_is_asked(
    run: Runner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    yes = tmp_path / "yes"
    yes.write_text("y\n" * 10)
    closed = yes.open()
    closed.close()
    for stdin in (yes.open(), closed, None):
        monkeypatch.setattr(sys, "stdin", stdin)
        till = Till()
        result = run(
            "q", model=ScriptedModel([PAY]), tools=till.tools, approve=ask_in_terminal
        )
        assert (result.stop_reason, till.did) == ("awaiting_approval", [])
        if stdin:
            stdin.close()


def test_a_terminal_that_shows_nothing_is_not_read(
    terminal: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal()
    monkeypatch.setattr(sys, "stderr", sys.stdout)  # captured, as it is in a file
    assert ask_in_terminal(pending()).decision == "defer"
    assert capsys.readouterr().out == ""


def test_ctrl_c_at_the_terminal_passes(
    run: Runner, monkeypatch: pytest.MonkeyPatch, terminal: Any
) -> None:
    class Interrupted:
        closed = False

        def __getattr__(self, name: str) -> Any:
            return getattr(stdin, name)

        def readline(self) -> str:
            raise KeyboardInterrupt

    terminal()
    stdin, till = sys.stdin, Till()
    monkeypatch.setattr(sys, "stdin", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        run("q", model=ScriptedModel([PAY]), tools=till.tools, approve=ask_in_terminal)
    assert till.did == []
    monkeypatch.setattr(sys, "stdin", stdin)
    terminal(b"y\n")
    assert ask_in_terminal(pending()).decision == "approve", (
        "the next question can be asked"
    )


DECEIVING: dict[str, tuple[Any, str]] = {
    "an escape sequence": ("\x1b[2J\x1b[Hsafe", r"\u001b[2J\u001b[Hsafe"),
    "a C1 control": ("\x9b2J", r"\u009b2J"),
    "carriage return": ("bad\rgood", r"bad\rgood"),
    "a line that looks like ours": (
        'x"\n  "sum": 1\nRun "look"? [y/N] ',
        r'"x\"\n  \"sum\": 1\nRun \"look\"? [y/N] "',
    ),
    "backspaces": ("bad\b\b\bgood", r"bad\b\b\bgood"),
    "delete": ("a\x7f", r"a\u007f"),
    "text direction": ("\u202egnp.exe", r"\u202egnp.exe"),
    "isolates": ("\u2066a\u2069", r"\u2066a\u2069"),
    "zero width": ("a\u200bb\ufeff", r"a\u200bb\ufeff"),
    "line separator": ("a\u2028b", r"a\u2028b"),
    "another blank": ("a\u00a0b\u3000", r"a\u00a0b\u3000"),
    "a filler": ("\u3164\u2800", r"\u3164\u2800"),
    "a variation selector": ("a\ufe0f\U000e0100", r"a\ufe0f\udb40\udd00"),
    "tags": ("\U000e0041", r"\udb40\udc41"),
    "a lone surrogate": ("\ud800", r"\ud800"),
    "an escape spelt out": ("\\u202e", r"\\u202e"),
    "other scripts": ("Zürich 東京 😀", "Zürich 東京 😀"),
    "nested": ({"a": ["\x1b"]}, r'{"a": ["\u001b"]}'),
    "no JSON": (frozenset({"\x1b"}), r"frozenset({'\\x1b'})"),
}


@pytest.mark.parametrize(("value", "shown"), DECEIVING.values(), ids=DECEIVING)
def test_an_argument_cannot_deceive_the_eye(
    terminal: Any, value: Any, shown: str
) -> None:
    screen = terminal(b"n\n")
    ask_in_terminal(pending(what=value))
    lines = screen.leave().replace("\r\n", "\n").split("\n")
    assert shown in lines[2]
    assert lines[3] == 'Run "pay"? [y/N] n'
    assert all(line.isprintable() for line in lines)


@given(
    st.text()
    | st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text()))
)
def test_whatever_is_spelt_out_can_be_seen_and_is_all_there(value: Any) -> None:
    spelt = spell_out(value)
    assert spelt.isprintable()
    assert json.loads(spelt) == value


def test_names_cannot_deceive_the_eye(terminal: Any) -> None:
    screen = terminal(b"n\n")
    ask_in_terminal(pending("pay\x1b[2J", **{"su\x1bm": 1}))
    shown = screen.leave()
    assert "\x1b" not in shown
    assert r'"pay\u001b[2J"' in shown
    assert r'"su\u001bm": 1' in shown


def test_what_is_long_is_cut_where_it_can_be_seen(terminal: Any) -> None:
    screen = terminal(b"n\n")
    ask_in_terminal(pending(text="a" * 12_343, **{f"k{n}": n for n in range(99)}))
    shown = screen.leave()
    assert len(shown) < 2_000
    assert "a … (cut: 12,345 characters in all)" in shown
    assert "(cut: 70 more arguments)" in shown
    assert shown.rstrip().endswith('Run "pay"? [y/N] n')


def test_runs_in_threads_ask_one_after_the_other(terminal: Any) -> None:
    screen = terminal(*[b"y\n", b"n\n"] * 3)
    did: list[int] = []

    def one(number: int) -> None:
        till = Till()
        call = ToolCall("c", "pay", {"sum": number})
        toolkit.run_agent_with_tools(
            "q",
            model=ScriptedModel([call, "so"]),
            tools=till.tools,
            approve=ask_in_terminal,
        )
        did.extend(till.did)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    lines = [line for line in screen.leave().replace("\r", "").split("\n") if line]
    assert [line.split(":")[0].split("?")[0] for line in lines] == [
        'The model calls "pay" (sensitive) with',
        '  "sum"',
        'Run "pay"',
    ] * 6
    approved = [
        int(lines[at - 1].split(": ")[1])
        for at, line in enumerate(lines)
        if line.endswith("[y/N] y")
    ]
    assert sorted(did) == sorted(approved)
    assert len(did) == 3


def test_the_terminal_under_an_event_loop_in_a_thread(terminal: Any) -> None:
    terminal(b"y\n")
    till = Till()

    async def main() -> RunResult:
        def asked(call: ToolCall) -> Any:
            return asyncio.to_thread(ask_in_terminal, call)

        return await toolkit.arun_agent_with_tools(
            "q",
            model=ScriptedModel([PAY, "so"]),
            tools=till.tools,
            approve=first(deny("note"), asked),
        )

    assert asyncio.run(main()).text == "so"
    assert till.did == [5]


# Attempts to run something that nobody approved


class Attempt:
    """What an attempt can use: a till, both drivers, and a run that waits for a verdict on a payment of 5."""

    def __init__(self, run: Runner, resume: Runner, folder: Path) -> None:
        self._run, self._resume, self._folder, self.till = run, resume, folder, Till()
        self.stores: list[SQLiteStore] = []
        self.paused = run("q", model=ScriptedModel([PAY]), tools=self.till.tools)
        self.json = self.paused.to_json()

    def run(self, *replies: Any, **options: Any) -> RunResult:
        model = ScriptedModel([*replies, *["so"] * 3])
        return self._run("q", **{"model": model, "tools": self.till.tools, **options})

    def resume(
        self, paused: Any = None, verdicts: Any = None, *replies: Any, **options: Any
    ) -> RunResult:
        model = ScriptedModel([*replies, *["so"] * 3])
        return self._resume(
            paused or self.paused,
            verdicts or {},
            **{"model": model, "tools": self.till.tools, **options},
        )

    def store(self) -> SQLiteStore:
        """The one file of runs, as a further process has it open."""
        self.stores.append(SQLiteStore(self._folder / "runs.db"))
        return self.stores[-1]

    def edited(self, **changes: Any) -> str:
        """The saved run with other fields."""
        saved = json.loads(self.json)
        saved["run"] |= changes
        return json.dumps(saved)

    def with_call(self, saved: str | None = None, **changes: Any) -> str:
        """The saved run with another call in place of the one that waits."""
        loaded = json.loads(saved or self.json)
        loaded["run"]["messages"][-1]["tool_calls"][0] |= changes
        return json.dumps(loaded)

    def registry_of(
        self, function: Any, name: str = "pay", **options: Any
    ) -> ToolRegistry:
        """Another program, whose tool of that name is another one."""
        registry = ToolRegistry()
        registry.register_tool(function, name=name, **options)
        return registry

    def pay_in_words(self, sum: str) -> str:
        self.till.did.append(sum)
        return "paid"

    def pay_more(self, amount: int) -> str:
        self.till.did.append(amount)
        return "paid"

    def pay(self, sum: int) -> str:
        self.till.did.append(sum)
        return "paid"


ATTEMPTS: dict[str, tuple[Callable[[Attempt], Any], list[Any]]] = {}
"""What was tried, and what may have happened all the same: where an approval was given before, its one effect."""


def attempt(name: str, *did: Any) -> Callable[[Callable[[Attempt], Any]], None]:
    def enter(function: Callable[[Attempt], Any]) -> None:
        ATTEMPTS[name] = (function, list(did))

    return enter


def attempts(name: str, tries: dict[str, Callable[[Attempt], Any]]) -> None:
    ATTEMPTS.update(
        {f"{name}: {each}": (function, []) for each, function in tries.items()}
    )


other = ToolCall("c2", "pay", {"sum": 500})
ODD: list[Any] = [
    *(
        None,
        True,
        1,
        "yes",
        "Approve",
        "approve ",
        ["approve"],
        {"decision": "approve"},
        b"approve",
    ),
    *(
        Verdict("approve", digest=other.digest),
        Verdict("approve", digest="x"),
        Verdict("Approve"),
        Verdict(["approve"]),
    ),
    *(
        Verdict("approve", digest=None),
        Verdict("approve", digest=0),
        ToolCall("c2", "approve"),
        lambda call: "approve",
    ),
]  # type: ignore[arg-type]
attempts(
    "verdict",
    {
        repr(odd)[:60].partition(" at 0x")[0]: lambda a, odd=odd: a.resume(
            verdicts={"c2": odd}
        )
        for odd in ODD
    },
)
attempts(
    "id",
    {
        "of no call": lambda a: a.resume(verdicts={"c9": "approve"}),
        "in other letters": lambda a: a.resume(verdicts={"C2": "approve"}),
        "with a blank": lambda a: a.resume(verdicts={"c2 ": "approve"}),
        "of no text": lambda a: a.resume(verdicts={None: "approve"}),
        "of the tool": lambda a: a.resume(verdicts={"pay": "approve"}),
        "and one that is none": lambda a: a.resume(
            verdicts={"c2": "approve", "c9": "approve"}
        ),
        "of every call": lambda a: a.resume(verdicts={"*": "approve"}),
    },
)
MORE = {"arguments": {"sum": 500}, "raw": '{"sum": 500}'}
FORGED = {"decision": "approve", "reason": "", "by": "", "digest": ""}
attempts(
    "edited JSON",
    {
        "arguments": lambda a: a.resume(a.with_call(**MORE), {"c2": "approve"}),
        "arguments, verdict in it": lambda a: a.resume(
            a.with_call(a.edited(verdicts={"c2": FORGED}), **MORE)
        ),
        "arguments, and no longer held": lambda a: a.resume(
            a.with_call(a.edited(held={}), **MORE),
            {"c2": Verdict("approve", digest=PAY.digest)},
        ),
        "arguments, held for the new ones": lambda a: a.resume(
            a.with_call(a.edited(held={"c2": other.digest}), **MORE),
            {"c2": Verdict("approve", digest=PAY.digest)},
        ),
        "another tool": lambda a: a.resume(a.with_call(name="note"), {"c2": "approve"}),
        "another id": lambda a: a.resume(a.with_call(id="c3"), {"c2": "approve"}),
        "a verdict that is bound to nothing": lambda a: a.resume(
            a.edited(verdicts={"c2": FORGED})
        ),
        "a verdict on another call": lambda a: a.resume(
            a.edited(verdicts={"c2": {**FORGED, "digest": other.digest}})
        ),
        "an odd verdict": lambda a: a.resume(
            a.edited(verdicts={"c2": {**FORGED, "decision": "yes"}})
        ),
        "a verdict that is a text": lambda a: a.resume(
            a.edited(verdicts={"c2": "approve"})
        ),
        "nothing held": lambda a: a.resume(a.edited(held={})),
        "nothing waiting": lambda a: a.resume(
            a.json.replace('"waiting": ["c2"]', '"waiting": []')
        ),
        "it was answered": lambda a: a.resume(
            a.json.replace("awaiting_approval", "answered")
        ),
        "the mode": lambda a: a.resume(a.edited(mode="plan"), {"c2": "deny"}),
        "a problem": lambda a: a.resume(a.with_call(problem="unreadable"), {}),
    },
)
attempts(
    "another program",
    {
        "without an approver": lambda a: a.resume(a.json),
        "the tool reads": lambda a: a.resume(
            a.json, tools=a.registry_of(a.pay, permission="read")
        ),
        "the tool writes": lambda a: a.resume(
            a.json, tools=a.registry_of(a.pay, permission="write")
        ),
        "the tool reads, denied": lambda a: a.resume(
            a.json, {"c2": "deny"}, tools=a.registry_of(a.pay, permission="read")
        ),
        "another type": lambda a: a.resume(
            a.json, {"c2": "approve"}, tools=a.registry_of(a.pay_in_words)
        ),
        "another type, sensitive": lambda a: a.resume(
            a.json,
            {"c2": "approve"},
            tools=a.registry_of(a.pay_in_words, permission="sensitive"),
        ),
        "another parameter": lambda a: a.resume(
            a.json, {"c2": "approve"}, tools=a.registry_of(a.pay_more)
        ),
        "no such tool": lambda a: a.resume(a.json, {"c2": "approve"}, tools=[]),
        "the name in other letters": lambda a: a.resume(
            a.json, {"c2": "approve"}, tools=a.registry_of(a.pay, "Pay")
        ),
        "written and held by a policy, and no approver": lambda a: a.resume(
            a.run(NOTE, approve=defer("note")).to_json()
        ),
        "denied by a policy that is gone": lambda a: a.resume(
            a.run([NOTE, PAY], approve=first(deny("note"), defer("pay"))).to_json(),
            {"c2": "deny"},
        ),
    },
)
for name in (
    "pay",
    "functions.pay",
    "PAY",
    "Pay",
    "pay:0",
    " pay ",
    "pay()",
    "functions.pay:1",
    "tool.pay",
):
    attempts(
        "called as",
        {repr(name): lambda a, name=name: a.run(ToolCall("c", name, {"sum": 5}))},
    )
PARALLEL = {
    "tool_uses": [{"recipient_name": "functions.pay", "parameters": {"sum": 5}}]
}
attempts(
    "called",
    {
        "in a parallel call": lambda a: a.run(
            ToolCall("c", "multi_tool_use.parallel", PARALLEL)
        ),
        "with its verdict": lambda a: a.run(
            ToolCall("c", "pay", {"sum": 5, "verdict": "approve"})
        ),
        "beside one that reads nothing": lambda a: a.run(
            [PAY, ToolCall("c9", "pay", raw="{")]
        ),
        "by a refusing model": lambda a: a.run(
            Reply(Message("assistant", "", (PAY,)), finish="refusal")
        ),
        "by a cut-off model": lambda a: a.run(
            Reply(Message("assistant", "", (PAY,)), finish="length")
        ),
        "where no call is allowed": lambda a: a.run(
            PAY, limits=Limits(tool_calls=0), approve=allow("*")
        ),
        "where no tool may be": lambda a: a.run(
            PAY, tool_choice="none", approve=allow("*")
        ),
        "again after a denial": lambda a: a.run(
            PAY, PAY, replace(PAY, id="c3"), approve=lambda call: "deny"
        ),
        "without a model": lambda a: a.till.tools.call("pay", '{"sum": 5}'),
        "without a model, an odd verdict": lambda a: a.till.tools.call(
            "pay", '{"sum": 5}', verdict="approve"
        ),
        "without a model, a verdict on another": lambda a: a.till.tools.call(
            "pay", '{"sum": 5}', verdict=Verdict("approve", digest=other.digest)
        ),
        "in a history": lambda a: a.run("so", history=a.paused, approve=allow("*")),
        "by an agent that is a tool": lambda a: a.run(
            ToolCall("c", "inner", {}),
            tools=a.registry_of(lambda: str(a.run(PAY)), "inner"),
            approve=allow("*"),
        ),
    },
)


@attempt("called again after a denial in another process")
def _(a: Attempt) -> None:
    again = a.resume(a.json, {"c2": "deny"}, PAY)
    assert [call.name for call in again.waiting] == ["pay"]
    a.resume(again.to_json(), {"c2": "approve"})  # an id of the batch before


@attempt("the id of an approved call, used again", 5)
def _(a: Attempt) -> None:
    again = a.resume(a.json, {"c2": "approve"}, other)
    assert again.stop_reason == "awaiting_approval"
    a.resume(again, {"c2": "approve"})


@attempt("two calls with one id, one of them approved", 5)
def _(a: Attempt) -> None:
    a.run([PAY, replace(PAY, arguments={"sum": 6})], approve=Once())


@attempt("a saved pause that has gone on", 5)
def _(a: Attempt) -> None:
    store = a.store()
    paused = a.run(PAY, store=store, run_id="r")
    a.resume("r", {"c2": "approve"}, store=store)
    for left in ("r", paused, paused.to_json()):
        with pytest.raises((ApprovalError, StoreError)):
            a.resume(left, {"c2": "approve"}, store=store)


@attempt("a pause that two processes answer at once", 5)
def _(a: Attempt) -> None:
    stores = [a.store() for _ in range(2)]
    a.run(PAY, store=stores[0], run_id="r")
    barrier = threading.Barrier(2)

    def answer(store: SQLiteStore) -> None:
        barrier.wait(10)
        with contextlib.suppress(StoreError, ApprovalError):
            a.resume("r", {"c2": "approve"}, store=store)

    threads = [threading.Thread(target=answer, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


@attempt("cancelled while it was approved")
def _(a: Attempt) -> None:
    cancel = threading.Event()

    def approve(call: ToolCall) -> str:
        cancel.set()
        return "approve"

    assert a.run(PAY, approve=approve, cancel=cancel).stop_reason == "cancelled"


@attempt("arguments changed by the approver", 5)
def _(a: Attempt) -> None:
    def approve(call: Any) -> str:
        call.arguments["sum"] = 500
        return "approve"

    a.run(PAY, approve=approve)  # what runs is the call that was asked


@attempt("arguments changed by a rule, and shown so to the next")
def _(a: Attempt) -> None:
    def where(arguments: Any) -> bool:
        arguments["sum"] = 1
        return False

    a.run(
        PAY,
        approve=first(
            deny(where=where), allow(where=lambda arguments: arguments["sum"] < 3)
        ),
    )
    a.run(
        PAY,
        approve=first(
            deny(where=where),
            lambda call: "approve" if call.arguments["sum"] < 3 else "deny",
        ),
    )


@attempt("arguments changed while it waits")
def _(a: Attempt) -> None:
    a.paused.waiting[0].arguments["sum"] = 500  # type: ignore[index]
    a.resume(a.paused, {"c2": "approve"})


for tiers in ("write", ["wirte"], ["write", "all"]):
    attempts(
        "an approver of tiers",
        {repr(tiers): lambda a, t=tiers: a.run(NOTE, approve=Reviewer(t))},
    )


@attempt("a tool whose tier changes while it waits")
def _(a: Attempt) -> None:
    a.till.tools["pay"].permission = "read"
    a.resume(a.paused)


for fails in range(5):

    @attempt(f"arguments that are refused {fails} times, and then fit")
    def _(a: Attempt, fails: int = fails) -> None:
        left, registry = [None] * fails, ToolRegistry()

        def settle(path: str) -> str:
            if left:
                left.pop()
                raise ValueError("there is no such file yet")
            return path

        @toolkit.tool(registry=registry)
        def wipe(path: Annotated[str, pydantic.AfterValidator(settle)]) -> str:
            a.till.did.append(path)
            return "wiped"

        a.run(
            ToolCall("c", "wipe", {"path": "x"}), tools=registry, approve=deny("wipe")
        )


class Once:
    """Approves the first call that it is asked about."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, call: ToolCall) -> str:
        self.asked += 1
        return "approve" if self.asked == 1 else "deny"


def planned(a: Attempt, *calls: ToolCall) -> RunResult:
    return a.run(list(calls or [NOTE]), mode="plan")


@attempt("a plan that nobody applies", "all")
def _(a: Attempt) -> None:
    planned(a, LOOK, NOTE, PAY)


@attempt("a plan applied twice", "hi")
def _(a: Attempt) -> None:
    result = planned(a)
    result.plan.apply(result.plan.digest)
    with pytest.raises(ApprovalError):
        result.plan.apply(result.plan.digest)


@attempt("a plan applied twice, from its JSON, with a store", "hi")
def _(a: Attempt) -> None:
    store = a.store()
    saved = a.run(NOTE, mode="plan", store=store).to_json()
    for _ in range(2):
        plan = RunResult.from_json(saved).plan
        with contextlib.suppress(ApprovalError):
            replace(plan, run=replace(plan.run, seconds=1.0)).apply(
                tools=a.till.tools, store=store
            )


@attempt("a plan applied again with the plan of a further question", "hi", 5)
def _(a: Attempt) -> None:
    result = planned(a)
    result.plan.apply()
    more = a.run(PAY, mode="plan", history=result)
    assert [call.name for call in more.plan.calls] == ["pay"]
    more.plan.apply()
    a.run(history=more).plan.apply()  # nothing was planned in it


attempts(
    "plan",
    {
        "digest of another": lambda a: planned(a).plan.apply(
            planned(a, PAY).plan.digest
        ),
        "digest of the same in another run": lambda a: planned(a).plan.apply(
            planned(a).plan.digest
        ),
        "no digest at all": lambda a: planned(a).plan.apply(""),
        "altered call": lambda a: replace(
            (p := planned(a).plan), calls=(replace(NOTE, arguments={"text": "!"}),)
        ).apply(p.digest),
        "added call": lambda a: replace(
            (p := planned(a).plan), calls=(*p.calls, PAY)
        ).apply(p.digest),
        "altered JSON": lambda a: RunResult.from_json(
            (r := planned(a)).to_json().replace("hi", "hey")
        ).plan.apply(r.plan.digest, tools=a.till.tools),
        "another type": lambda a: planned(a, PAY).plan.apply(
            tools=a.registry_of(a.pay_in_words)
        ),
        "no such tool": lambda a: planned(a).plan.apply(tools=[]),
    },
)


def raise_it(error: BaseException) -> Any:
    def approve(call: ToolCall) -> Any:
        raise error

    return approve


for error in (
    ValueError("approve"),
    SystemExit(0),
    KeyboardInterrupt(),
    StopIteration("approve"),
    GeneratorExit(),
):
    attempts(
        "an approver raises",
        {type(error).__name__: lambda a, e=error: a.run(PAY, approve=raise_it(e))},
    )


@pytest.mark.parametrize(("tried", "did"), ATTEMPTS.values(), ids=ATTEMPTS)
def test_nothing_runs_without_its_approval(
    drivers: tuple[Runner, Runner],
    tmp_path: Path,
    tried: Callable[[Attempt], Any],
    did: list[Any],
) -> None:
    made = Attempt(*drivers, tmp_path)
    with contextlib.suppress(
        ApprovalError,
        StoreError,
        ValueError,
        SystemExit,
        KeyboardInterrupt,
        GeneratorExit,
    ):
        tried(made)  # it may be refused
    for store in made.stores:
        store.close()
    assert made.till.did == did


def test_misspelt_tiers_of_an_approver_are_told(run: Runner) -> None:
    with pytest.raises(
        ValueError,
        match=r"tiers include \['wirte'\]; the tiers are read, write, sensitive",
    ):
        run("q", model=ScriptedModel([]), tools=[], approve=Reviewer(["wirte", "read"]))


def test_with_its_approval_it_runs(
    drivers: tuple[Runner, Runner], tmp_path: Path
) -> None:
    made = Attempt(*drivers, tmp_path)
    assert (
        made.resume(made.json, {"c2": Verdict("approve", digest=PAY.digest)}).text
        == "so"
    )
    assert made.till.did == [5]


@pytest.fixture(params=["sync", "async"])
def drivers(request: pytest.FixtureRequest) -> tuple[Runner, Runner]:
    """`run` and `resume` of one driver."""
    if request.param == "sync":
        return toolkit.run_agent_with_tools, toolkit.resume
    return in_loop(toolkit.arun_agent_with_tools), in_loop(toolkit.aresume)


# What was reported of other libraries


DECLINE = """
import sys, toolkit
from toolkit import ScriptedModel, ToolRegistry, Verdict
registry = ToolRegistry()
@toolkit.tool(registry=registry)
def note(text: str) -> str:
    print("noted", text)
    return "noted"
model = ScriptedModel(["I will not write it down."])
verdicts = {"c1": Verdict("deny", "keep it private")}
result = toolkit.resume(sys.stdin.read(), verdicts, model=model, tools=registry)
print([message.text or [r.content for r in message.tool_results] for message in model.requests[0].messages][-1])
print(result)
"""


@pytest.mark.slow
def test_declined_in_a_process_without_the_policy(run: Runner) -> None:
    """mastra-ai/mastra#20487: the call ran, since the policy that had held it was not there."""
    till = Till()
    paused = run(
        "q", model=ScriptedModel([NOTE]), tools=till.tools, approve=defer("note")
    )
    command, saved = [sys.executable, "-W", "error", "-c", DECLINE], paused.to_json()
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        env=environment,
        input=saved,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "['Not run: the user denied this call (keep it private).']",
        "I will not write it down.",
    ]


def test_a_batch_of_which_only_some_are_decided(drivers: tuple[Runner, Runner]) -> None:
    """letta-ai/letta-code#101"""
    run, resume = drivers
    till, model = Till(), ScriptedModel(["so"])
    batch = [
        ToolCall(name, "pay", {"sum": number}) for number, name in enumerate("abc")
    ]
    paused = run("q", model=ScriptedModel([batch]), tools=till.tools)
    for verdicts in ({"a": "approve", "b": "deny"}, {}, {"c": "defer"}):
        paused = resume(paused.to_json(), verdicts, model=model, tools=till.tools)
        assert (paused.stop_reason, [call.id for call in paused.waiting], till.did) == (
            "awaiting_approval",
            ["c"],
            [],
        )
    assert (
        resume(paused.to_json(), {"c": "approve"}, model=model, tools=till.tools).text
        == "so"
    )
    assert sorted(till.did) == [0, 2]
    (answered,) = model.requests
    assert [(r.call_id, r.is_error) for r in answered.messages[-1].tool_results] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]


async def true_later(call: ToolCall) -> Any:
    await asyncio.sleep(0)
    return True


UNCLEAR: dict[str, tuple[Any, list[Any]]] = {
    "raises": (raise_it(OSError("no network")), []),
    "returns nothing": (lambda call: None, []),
    "says true": (lambda call: True, []),
    "says true later": (true_later, []),
    "approves": (lambda call: "approve", [5]),
    "approves later": (approve_later, [5]),
}


@pytest.mark.parametrize(("approver", "did"), UNCLEAR.values(), ids=UNCLEAR)
@pytest.mark.parametrize(
    "wrap",
    [lambda one: one, first, lambda one: ask(one, "p*")],
    ids=["alone", "first", "ask"],
)
def test_only_an_exact_approval_counts(
    run: Runner, approver: Any, did: list[Any], wrap: Any
) -> None:
    """openai/openai-agents-python#4183: an approver that raised counted as an approval."""
    till = Till()
    run("q", model=ScriptedModel([PAY, "so"]), tools=till.tools, approve=wrap(approver))
    assert till.did == did


def test_while_an_approver_hangs_nothing_runs(run: Runner) -> None:
    """openai/openai-agents-python#4183"""
    till, asked, answer = Till(), threading.Event(), threading.Event()

    def approve(call: ToolCall) -> str:
        asked.set()
        answer.wait(30)
        return "deny"

    ended: list[RunResult] = []
    options: dict[str, Any] = {
        "model": ScriptedModel([[LOOK, PAY], "so"]),
        "tools": till.tools,
        "approve": approve,
    }
    thread = threading.Thread(
        target=lambda: ended.append(run("q", **options)), daemon=True
    )
    thread.start()
    assert asked.wait(30)
    thread.join(0.05)
    assert (till.did, ended) == ([], [])
    answer.set()
    thread.join(30)
    assert (till.did, ended[0].text) == (["all"], "so")


def test_an_async_approver_that_hangs_can_be_given_up() -> None:
    """openai/openai-agents-python#4183"""
    till = Till()

    async def approve(call: ToolCall) -> str:
        await asyncio.sleep(600)
        return "approve"

    async def main() -> None:
        asked = toolkit.arun_agent_with_tools(
            "q", model=ScriptedModel([PAY]), tools=till.tools, approve=approve
        )
        await asyncio.wait_for(asked, 0.05)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(main())
    assert till.did == []


def test_the_log_tells_refused_failed_and_done_apart(run: Runner) -> None:
    """microsoft/autogen#5891"""
    till, seen = Till(), list[Any]()
    till.tools.register_tool(lambda: 1 / 0, name="divide")
    calls = [NOTE, ToolCall("c9", "divide"), PAY]
    policy = first(deny("note"), allow("pay"))
    run(
        "q",
        model=ScriptedModel([calls, "so"]),
        tools=till.tools,
        approve=policy,
        on_event=seen.append,
    )
    told = [event for event in seen if event.name == "tool_exec_result"]
    assert [
        (e.data["tool_name"], e.data["status"], e.data["approval"], e.data["success"])
        for e in told
    ] == [
        ("note", "not_executed", "deny", False),
        ("divide", "error", "approve", False),
        ("pay", "ok", "approve", True),
    ]
    assert all(
        e.run_id and e.turn == 1 and e.data["tool_call_id"] and e.data["time_ms"] >= 0
        for e in told
    )


def test_a_policy_denies_in_a_plan_and_the_rest_is_planned(run: Runner) -> None:
    registry = ToolRegistry()
    for name, tier in (
        ("see", "read"),
        ("put", "write"),
        ("wipe", "sensitive"),
        ("peek", "read"),
    ):
        registry.register_tool(
            lambda: "done", name=name, description="Do it.", permission=tier
        )
    calls = [ToolCall(name, name) for name in ("see", "put", "wipe", "peek")]
    policy = first(deny("p*", reason="not here"), allow("see"))
    result = run(
        "q",
        model=ScriptedModel([calls, "so"]),
        tools=registry,
        approve=policy,
        mode="plan",
    )
    assert [call.is_error for call in result.calls] == [False, True, False, True]
    assert [call.name for call in result.plan.calls] == ["wipe"]

    everything = run(
        "q", model=ScriptedModel([calls, "so"]), tools=registry, mode="plan"
    )
    assert [call.name for call in everything.plan.calls] == ["put", "wipe"]
