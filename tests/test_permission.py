"""What is approved is what runs: rules, approvers, digests, plans and records see the validated values."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import AliasChoices, Field, SecretStr

from helpers import Runner
from toolkit import RunResult, ScriptedModel, ToolCall, ToolRegistry, Verdict
from toolkit.approval import allow, deny, first
from toolkit.errors import ApprovalError
from toolkit.store import SQLiteStore

SAVED = Path(__file__).parent / "saved"


class Effects:
    """Tools that note what they did."""

    def __init__(self, permission: str) -> None:
        self.done: list[Any] = []
        self.tools = ToolRegistry()
        for function in (
            self.transfer,
            self.remind,
            self.pay,
            self.book,
            self.block,
            self.wipe,
            self.remove,
            self.archive,
        ):
            self.tools.register_tool(function, permission=permission)

    def transfer(self, account: int) -> str:
        """Transfer money."""
        self.done.append(account)
        return "sent"

    def remind(self, text: str, urgent: bool = False) -> str:
        """Remind somebody."""
        self.done.append(urgent)
        return "reminded"

    def pay(self, to: int) -> str:
        """Pay somebody."""
        self.done.append(to)
        return "paid"

    def book(self, day: date) -> str:
        """Book a day."""
        self.done.append(day)
        return "booked"

    def block(self, accounts: set[int]) -> str:
        """Block accounts."""
        self.done.append(accounts)
        return "blocked"

    def wipe(
        self,
        path: Annotated[str, Field(validation_alias=AliasChoices("folder", "path"))],
    ) -> str:
        """Wipe a folder."""
        self.done.append(path)
        return "wiped"

    def remove(self, path: str, recursive: bool = True) -> str:
        """Remove a path."""
        self.done.append((path, recursive))
        return "removed"

    def archive(self, id: int, dry_run: bool = True) -> str:
        """Archive an entry."""
        self.done.append((id, dry_run))
        return "archived"


# Each rule forbids the call beside it, as the model sent it.
DENIED: dict[str, tuple[Any, ToolCall]] = {
    "a number as text": (
        deny("transfer", where=lambda a: a["account"] == 666),
        ToolCall("c", "transfer", raw='{"account": "666"}'),
    ),
    "a truth as a word": (
        deny(where=lambda a: a.get("urgent") is True),
        ToolCall("c", "remind", raw='{"text": "tea", "urgent": "yes"}'),
    ),
    "a date as a timestamp": (
        deny("book", where=lambda a: a["day"] == "2026-12-24"),
        ToolCall("c", "book", raw='{"day": 1798070400}'),
    ),
    "one of a set, as text": (
        deny("block", where=lambda a: 666 in a["accounts"]),
        ToolCall("c", "block", raw='{"accounts": ["1", "666"]}'),
    ),
    "another name of a parameter": (
        deny("wipe", where=lambda a: a["path"] == "/"),
        ToolCall("c", "wipe", raw='{"folder": "/"}'),
    ),
    "a default that was left out": (
        deny("remove", where=lambda a: a["recursive"]),
        ToolCall("c", "remove", raw='{"path": "/srv"}'),
    ),
}
NOT_ALLOWED: dict[str, tuple[Any, ToolCall]] = {
    "a number outside of a set, as text": (
        allow("pay", where=lambda a: a["to"] not in {13}),
        ToolCall("c", "pay", raw='{"to": "13"}'),
    ),
    "a falsehood as a word": (
        allow(where=lambda a: a.get("dry_run", True)),
        ToolCall("c", "archive", raw='{"id": 7, "dry_run": "false"}'),
    ),
}


@pytest.mark.parametrize("permission", ["write", "sensitive"])
@pytest.mark.parametrize(("rule", "call"), DENIED.values(), ids=DENIED)
def test_a_denial_sees_what_the_tool_would_get(
    run: Runner, rule: Any, call: ToolCall, permission: str
) -> None:
    effects = Effects(permission)
    result = run(
        "Go.",
        model=ScriptedModel([call, "Done."]),
        tools=effects.tools,
        approve=first(rule, allow("*")),
    )
    assert effects.done == []
    assert [(each.is_error, each.verdict) for each in result.calls] == [(True, "deny")]
    assert result.calls[0].raw == call.raw


@pytest.mark.parametrize(("rule", "call"), NOT_ALLOWED.values(), ids=NOT_ALLOWED)
def test_a_permission_sees_what_the_tool_would_get(
    run: Runner, rule: Any, call: ToolCall
) -> None:
    effects = Effects("sensitive")
    result = run("Go.", model=ScriptedModel([call]), tools=effects.tools, approve=rule)
    assert effects.done == []
    assert result.stop_reason == "awaiting_approval"


@pytest.mark.parametrize(("rule", "call"), DENIED.values(), ids=DENIED)
def test_the_same_calls_run_without_the_rule(
    run: Runner, rule: Any, call: ToolCall
) -> None:
    effects = Effects("sensitive")
    model = ScriptedModel([call, "Done."])
    run("Go.", model=model, tools=effects.tools, approve=allow("*"))
    assert len(effects.done) == 1


def test_everybody_sees_the_validated_arguments(run: Runner, tmp_path: Path) -> None:
    effects = Effects("sensitive")
    call = ToolCall("c", "archive", raw='{"id": "7"}')
    seen: list[Any] = []

    def approve(pending: Any) -> str:
        seen.append((dict(pending.arguments), pending.raw))
        return "approve"

    audit = tmp_path / "audit.jsonl"
    result = run(
        "Go.",
        model=ScriptedModel([call, "Done."]),
        tools=effects.tools,
        approve=approve,
        audit=audit,
    )
    arguments = {"id": 7, "dry_run": True}
    assert seen == [(arguments, call.raw)]
    assert effects.done == [(7, True)]
    assert (result.calls[0].arguments, result.calls[0].raw) == (arguments, call.raw)
    intent, outcome = map(json.loads, audit.read_text().splitlines())
    assert intent["arguments"] == arguments
    digest = ToolCall("c", "archive", arguments).digest
    assert [intent["digest"], outcome["digest"]] == [digest, digest]
    # What is echoed to the model and judged by evals stays what was read.
    (echoed,) = result.messages[1].tool_calls
    assert echoed.arguments == {"id": "7"}


def test_a_waiting_call_shows_what_would_run(run: Runner, resume: Runner) -> None:
    effects = Effects("sensitive")
    call = ToolCall("c", "archive", raw='{"id": "7"}')
    paused = run("Go.", model=ScriptedModel([call]), tools=effects.tools)
    assert paused.waiting[0].arguments == {"id": 7, "dry_run": True}
    loaded = RunResult.from_json(paused.to_json())
    assert loaded.waiting == paused.waiting
    verdict = Verdict("approve", digest=loaded.waiting[0].digest)
    model = ScriptedModel(["Done."])
    assert resume(loaded, {"c": verdict}, model=model, tools=effects.tools).text
    assert effects.done == [(7, True)]


def test_a_plan_shows_and_runs_the_validated_arguments(run: Runner) -> None:
    effects = Effects("write")
    replies = [ToolCall("c", "wipe", raw='{"folder": "/srv"}'), "Done."]
    result = run("Go.", model=ScriptedModel(replies), tools=effects.tools, mode="plan")
    plan = RunResult.from_json(result.to_json()).plan
    assert [call.arguments for call in plan.calls] == [{"path": "/srv"}]
    assert not plan.apply(plan.digest, tools=effects.tools)[0].is_error
    assert effects.done == ["/srv"]


class Handle:
    """A value that has no JSON form."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(lambda value: cls())

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Any:
        return {"type": "string"}


def test_nobody_can_approve_what_nobody_can_see(run: Runner) -> None:
    done: list[Any] = []

    def release(handle: Handle) -> None:
        done.append(handle)

    tools = ToolRegistry()
    tools.register_tool(release, permission="sensitive")
    asked: list[Any] = []
    replies = [ToolCall("c", "release", raw='{"handle": "h1"}'), "Done."]
    result = run(
        "Go.",
        model=ScriptedModel(replies),
        tools=tools,
        approve=lambda call: asked.append(call) or "approve",
    )
    assert (done, asked) == ([], [])
    assert "'handle'" in result.calls[0].content


def test_a_secret_is_approved_by_its_hash(run: Runner) -> None:
    done: list[str] = []

    def log_in(password: SecretStr) -> None:
        done.append(password.get_secret_value())

    tools = ToolRegistry()
    tools.register_tool(log_in, permission="sensitive")
    seen: list[Any] = []

    def approve(call: Any) -> str:
        seen.append(call.arguments["password"])
        return "approve"

    for password in ("first-word", "second-word"):
        call = ToolCall("c", "log_in", {"password": password})
        model = ScriptedModel([call, "Done."])
        run("Go.", model=model, tools=tools, approve=approve)
    assert done == ["first-word", "second-word"]
    assert len({*seen}) == 2
    assert not any("word" in each.removeprefix("<SecretStr") for each in seen)


# Runs that were saved by version 0.1.0


def test_a_denied_call_is_recorded_as_it_was_shown(run: Runner) -> None:
    effects = Effects("write")
    call = ToolCall("c", "transfer", raw='{"account": "666"}')
    result = run(
        "Go.",
        model=ScriptedModel([call, "Done."]),
        tools=effects.tools,
        approve=deny("transfer"),
    )
    record = result.calls[0]
    assert record.verdict == "deny"
    assert record.arguments["account"] == 666
    assert record.raw == call.raw


def saved_tools(done: list[Any]) -> ToolRegistry:
    def transfer(account: int, amount: float) -> str:
        """Transfer money."""
        done.append((account, amount))
        return "sent"

    def remind(text: str, days: int = 1) -> str:
        """Remind somebody."""
        done.append((text, days))
        return "reminded"

    tools = ToolRegistry()
    tools.register_tool(transfer, permission="sensitive")
    tools.register_tool(remind, permission="sensitive")
    return tools


def saved_run(name: str) -> str:
    runs = json.loads((SAVED / "paused_0.1.0.json").read_text(encoding="utf-8"))
    return json.dumps(runs[name])


def test_a_saved_call_that_reads_the_same_runs(resume: Runner) -> None:
    done: list[Any] = []
    model = ScriptedModel(["Done."])
    tools = saved_tools(done)
    result = resume(saved_run("unchanged"), {"c1": "approve"}, model=model, tools=tools)
    assert (result.text, done) == ("Done.", [(7, 2.5)])


CHANGED = {
    "text": {"account": 666, "amount": 2.5},
    "default": {"text": "tea", "days": 1},
}


@pytest.mark.parametrize(("name", "arguments"), CHANGED.items(), ids=CHANGED)
def test_a_saved_call_that_reads_differently_waits_again(
    resume: Runner, name: str, arguments: dict[str, Any]
) -> None:
    done: list[Any] = []
    tools = saved_tools(done)
    again = resume(
        saved_run(name), {"c1": "approve"}, model=ScriptedModel([]), tools=tools
    )
    assert (again.stop_reason, done) == ("awaiting_approval", [])
    assert [call.arguments for call in again.waiting] == [arguments]
    model = ScriptedModel(["Done."])
    result = resume(again.to_json(), {"c1": "approve"}, model=model, tools=tools)
    assert (result.text, done) == ("Done.", [tuple(arguments.values())])


def test_a_saved_call_that_somebody_altered_is_refused(resume: Runner) -> None:
    text = saved_run("unchanged").replace('"account": 7,', '"account": 8,')
    done: list[Any] = []
    with pytest.raises(ApprovalError, match="altered"):
        resume(
            text, {"c1": "approve"}, model=ScriptedModel([]), tools=saved_tools(done)
        )
    assert done == []


def test_a_store_of_version_0_1_0_resumes(resume: Runner, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    shutil.copy(SAVED / "runs_0.1.0.db", path)
    store = SQLiteStore(path)
    done: list[Any] = []
    tools = saved_tools(done)
    result = resume(
        "unchanged",
        {"c1": "approve"},
        model=ScriptedModel(["Done."]),
        tools=tools,
        store=store,
    )
    assert (result.text, done) == ("Done.", [(7, 2.5)])
    again = resume(
        "text", {"c1": "approve"}, model=ScriptedModel([]), tools=tools, store=store
    )
    assert again.stop_reason == "awaiting_approval"
    assert store.result("text").waiting[0].arguments["account"] == 666
    assert len(done) == 1
    store.close()
