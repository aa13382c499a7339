"""Approvers: rules by name, tag, tier and arguments, a question in the terminal, and the first of several that fits.

    approve=first(allow({"get_*", "!get_secret"}), deny("drop_*", reason="ask an admin"), ask_in_terminal)

A rule fits a call that meets all its conditions, and the first rule that fits decides. If none fits, a
call of the tier `read` or `write` runs, and a `sensitive` one waits: the run pauses.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, TextIO, get_args

from toolkit.calls.policy import Approver
from toolkit.messages import (
    SENSITIVE,
    Decision,
    Permission,
    ToolCall,
    Verdict,
    copied,
)

# Public here.
from toolkit.messages import spell_out as spell_out

Where = Callable[[Mapping[str, Any]], Any]
"""A condition on the arguments of a call: validated values in JSON form, by parameter name, defaults included.

If it raises, nothing is decided, and the call waits.
"""

_TIERS: frozenset[Permission] = frozenset(get_args(Permission))
_BY = "the policy"
# What the terminal shows of a call.
_MAX_ARGUMENTS = 30
_MAX_CHARS = 600


def allow(
    names: str | Collection[str] | None = None,
    *,
    tags: str | Collection[str] | None = None,
    tiers: Permission | Collection[Permission] | None = None,
    where: Where | None = None,
) -> Rules:
    """Approve the calls that meet all conditions.

    names: a pattern or several (`*`, `?`, `[…]`; case matters) for the tool's name. `!pattern` excludes
        names again.
    tags: the tool has one of these.
    tiers: the tool is of one of these: "read", "write", "sensitive".
    where: a function of the validated arguments. If it raises, the call waits.

    Raises ValueError without a condition, or if one is empty or misspelt. `"*"` means every tool.
    """
    # Calls of the other tiers run anyway.
    approve = Verdict("approve", by=_BY).on
    return _rules(approve, SENSITIVE, names, tags, tiers, where)


def deny(
    names: str | Collection[str] | None = None,
    *,
    tags: str | Collection[str] | None = None,
    tiers: Permission | Collection[Permission] | None = None,
    where: Where | None = None,
    reason: str = "",
) -> Rules:
    """Deny the calls that meet all conditions, of any tier. The model reads the `reason`. See `allow`."""
    return _rules(Verdict("deny", reason, _BY).on, _TIERS, names, tags, tiers, where)


def defer(
    names: str | Collection[str] | None = None,
    *,
    tags: str | Collection[str] | None = None,
    tiers: Permission | Collection[Permission] | None = None,
    where: Where | None = None,
) -> Rules:
    """Pause the run for the calls that meet all conditions, of any tier. See `allow`."""
    return _rules(Verdict("defer", by=_BY).on, _TIERS, names, tags, tiers, where)


def ask(
    approver: Approver,
    names: str | Collection[str] | None = None,
    *,
    tags: str | Collection[str] | None = None,
    tiers: Permission | Collection[Permission] | None = None,
    where: Where | None = None,
) -> Rules:
    """Let an approver, plain or async, decide on the calls that meet all conditions, of any tier. See `allow`."""
    if not callable(approver):
        raise TypeError(
            f"ask() takes an approver first, a function of a call, not {approver!r}."
        )
    return _rules(approver, _TIERS, names, tags, tiers, where)


def first(*approvers: Approver) -> Rules:
    """Decide as the first of these approvers that fits a call.

    A function fits each call of a sensitive tool, and of the tiers in its attribute `tiers`; `ask`
    narrows or widens that. Raises TypeError for something that is not an approver, and ValueError
    without any.
    """
    if not approvers:
        raise ValueError(
            "first() has no approver. Give one, or leave approve= out: then sensitive calls wait."
        )
    rules: list[Rule] = []
    for approver in approvers:
        if not callable(approver):
            raise TypeError(
                f"{approver!r} is not an approver. "
                "Give rules such as allow(…), or functions of a call."
            )
        if isinstance(approver, Rules):
            rules += approver.rules
        else:
            tiers = getattr(approver, "tiers", ()) or SENSITIVE
            asked = SENSITIVE | _tier_set(tiers)
            rules.append(Rule(approver, asked, asked))
    return Rules(tuple(rules))


@dataclass(frozen=True, slots=True)
class Rule:
    """An approver, the tiers that it must be asked about, and the conditions under which it decides."""

    decide: Approver
    asks: frozenset[Permission]
    tiers: frozenset[Permission] = _TIERS
    names: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    where: Where | None = None

    def fits(self, call: ToolCall) -> bool:
        """True if the call meets all conditions."""
        if _tier(call) not in self.tiers or not self._fits_name(call.name):
            return False
        if self.tags is not None and self.tags.isdisjoint(getattr(call, "tags", ())):
            return False
        if self.where is None:
            return True
        answer = self.where(copied(call.arguments))
        if inspect.isawaitable(answer):
            raise TypeError(
                "where= must be a plain function: a coroutine decides nothing."
            )
        return bool(answer)

    def _fits_name(self, name: str) -> bool:
        if self.names is None:
            return True
        patterns = [
            pattern
            for pattern in self.names
            if fnmatchcase(name, pattern.removeprefix("!"))
        ]
        is_excluded = any(pattern.startswith("!") for pattern in patterns)
        return bool(patterns) and not is_excluded


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules as one approver: the first that fits decides. `allow`, `deny`, `defer`, `ask` and `first` make them."""

    rules: tuple[Rule, ...]

    @property
    def tiers(self) -> frozenset[Permission]:
        """The tiers that these rules must be asked about."""
        return frozenset(tier for rule in self.rules for tier in rule.asks)

    def __call__(self, call: ToolCall) -> Any:
        for rule in self.rules:
            if rule.fits(call):
                return rule.decide(call)
        decision: Decision = "defer" if _tier(call) == "sensitive" else "approve"
        return Verdict(decision, by=_BY).on(call)


def ask_in_terminal(call: ToolCall, *, by: str = "the user") -> Verdict:
    """Ask the person at the terminal: y or yes approves, any other answer denies, the end of the input defers.

    It shows the tool, its tier and the arguments, with `spell_out`; what is long is cut. Without a
    terminal it defers. Runs in several threads ask one after the other. It would hold up an event loop,
    so ask in a thread there: `lambda call: asyncio.to_thread(ask_in_terminal, call)`. `by` is the name
    of whoever decides, for the model and the audit; set it with `functools.partial`.
    """
    screens = [stream for stream in (sys.stderr, sys.stdout) if _is_terminal(stream)]
    if not screens or not _is_terminal(sys.stdin):
        return Verdict("defer", "there is no terminal to ask in")
    # Bound to the call before anybody can change it.
    denial = Verdict("deny", by=by).on(call)
    with _terminal_lock:
        _discard_typed_input()
        screens[0].write(f"\n{_description(call)}\nRun {_short(call.name)}? [y/N] ")
        screens[0].flush()
        line = sys.stdin.readline()
    if not line:
        return Verdict("defer", "the input has ended")
    is_yes = line.strip().lower() in ("y", "yes")
    return replace(denial, decision="approve") if is_yes else denial


_terminal_lock = threading.Lock()


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def _discard_typed_input() -> None:
    """Forget what was typed before the question appeared: it does not answer it."""
    try:
        import termios
    except ImportError:  # Windows
        import msvcrt

        while msvcrt.kbhit():  # type: ignore[attr-defined,unused-ignore]
            msvcrt.getwch()  # type: ignore[attr-defined,unused-ignore]
    else:
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _description(call: ToolCall) -> str:
    arguments = list(call.arguments.items())
    title = f"The model calls {_short(call.name)} ({_tier(call)})"
    lines = [f"{title} with" if arguments else title]
    for name, value in arguments[:_MAX_ARGUMENTS]:
        lines.append(f"  {_short(name)}: {_short(value)}")
    if len(arguments) > _MAX_ARGUMENTS:
        lines.append(f"  … (cut: {len(arguments) - _MAX_ARGUMENTS:,} more arguments)")
    return "\n".join(lines)


def _short(value: Any) -> str:
    return spell_out(value, characters=_MAX_CHARS)


def _tier(call: ToolCall) -> Permission:
    # A saved call that waits has no tier, and only sensitive ones wait by default.
    return getattr(call, "permission", "sensitive")


def _rules(
    approver: Approver,
    asks: frozenset[Permission],
    names: str | Collection[str] | None,
    tags: str | Collection[str] | None,
    tiers: str | Collection[str] | None,
    where: Where | None,
) -> Rules:
    """One rule, after its conditions are checked."""
    if all(each is None for each in (names, tags, tiers, where)):
        raise ValueError(
            'A rule without a condition would fit every call. If you mean that, give "*".'
        )
    is_plain = callable(where) and not inspect.iscoroutinefunction(where)
    if where is not None and not is_plain:
        raise TypeError(
            f"where must be a plain function of the arguments, not {where!r}."
        )
    patterns = None if names is None else _text_set("names", names)
    if patterns and all(pattern.startswith("!") for pattern in patterns):
        raise ValueError(
            f"names={sorted(patterns)} only excludes names. "
            'Add those that fit: "*" for all tools.'
        )
    tag_set = None if tags is None else _text_set("tags", tags)
    tier_set = _TIERS if tiers is None else _tier_set(tiers)
    rule = Rule(approver, asks & tier_set, tier_set, patterns, tag_set, where)
    return Rules((rule,))


def _tier_set(tiers: str | Collection[str]) -> frozenset[Any]:
    tier_set = _text_set("tiers", tiers)
    unknown = sorted(tier_set - _TIERS)
    if unknown:
        known = ", ".join(get_args(Permission))
        raise ValueError(f"{unknown} are not tiers. The tiers are {known}.")
    return tier_set


def _text_set(condition: str, value: str | Collection[str]) -> frozenset[str]:
    texts = frozenset([value] if isinstance(value, str) else value)
    if not texts:
        raise ValueError(
            f"{condition}={value!r} fits no call. Leave it out, or give what fits."
        )
    for text in texts:
        if not isinstance(text, str) or not text.strip("! "):
            raise ValueError(f"{text!r} in {condition} fits no call. Give a text.")
    return texts
