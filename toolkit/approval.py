"""Approvers: rules by name, tag, tier and arguments, a question in the terminal, and the first of several that fits.

    approve=first(allow({"get_*", "!get_secret"}), deny("drop_*", reason="ask an admin"), ask_in_terminal)

A rule fits a call that meets all its conditions, and the first rule that fits decides. Where none does, calls of the
tiers `read` and `write` run, and a `sensitive` one waits: the run pauses.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, TextIO, get_args

from toolkit.calls.policy import Approver
from toolkit.messages import SENSITIVE, Permission, ToolCall, Verdict, copied
from toolkit.messages import spell_out as spell_out  # public here

Where = Callable[[Mapping[str, Any]], Any]
"""A claim about the arguments of a call. One that raises decides nothing: the call waits."""

_TIERS: frozenset[Permission] = frozenset(get_args(Permission))
_BY = "the policy"
_MOST_ARGUMENTS = 30  # that the terminal shows


def allow(
    names: str | Collection[str] | None = None,
    *,
    tags: str | Collection[str] | None = None,
    tiers: Permission | Collection[Permission] | None = None,
    where: Where | None = None,
) -> Rules:
    """Approve the calls that meet all conditions given.

    names: a pattern or several (`*`, `?`, `[…]`, case matters) for the tool's name; `!pattern` takes names out again.
    tags: any of these is one of the tool's.
    tiers: the tool is of one of these: "read", "write", "sensitive".
    where: a function of the arguments, as they will run. Where it raises, the call waits.

    Raises ValueError where there is no condition, or an empty or misspelt one; `"*"` is for every tool.
    """
    return _policy(
        Verdict("approve", by=_BY).on, SENSITIVE, names, tags, tiers, where
    )  # the others run anyway


def deny(
    names: str | Collection[str] | None = None,
    *,
    tags: str | Collection[str] | None = None,
    tiers: Permission | Collection[Permission] | None = None,
    where: Where | None = None,
    reason: str = "",
) -> Rules:
    """Refuse the calls that meet all conditions, of any tier; the model reads the `reason`. See `allow`."""
    return _policy(Verdict("deny", reason, _BY).on, _TIERS, names, tags, tiers, where)


def defer(
    names: str | Collection[str] | None = None,
    *,
    tags: str | Collection[str] | None = None,
    tiers: Permission | Collection[Permission] | None = None,
    where: Where | None = None,
) -> Rules:
    """Pause the run for the calls that meet all conditions, of any tier. See `allow`."""
    return _policy(Verdict("defer", by=_BY).on, _TIERS, names, tags, tiers, where)


def ask(
    approver: Approver,
    names: str | Collection[str] | None = None,
    *,
    tags: str | Collection[str] | None = None,
    tiers: Permission | Collection[Permission] | None = None,
    where: Where | None = None,
) -> Rules:
    """Leave the calls that meet all conditions, of any tier, to an approver, plain or async. See `allow`."""
    if not callable(approver):
        raise TypeError(
            f"ask() takes an approver first, a function of a call, not {approver!r}."
        )
    return _policy(approver, _TIERS, names, tags, tiers, where)


def first(*approvers: Approver) -> Rules:
    """Decide as the first of these that fits a call.

    A function fits each call of a sensitive tool, and of the tiers in its attribute `tiers`; `ask` narrows or widens
    that. Raises TypeError for what is no approver, ValueError for none.
    """
    if not approvers:
        raise ValueError(
            "first() has no approver to ask. Give one, or leave approve= out: then sensitive calls wait."
        )
    if strangers := [one for one in approvers if not callable(one)]:
        raise TypeError(
            f"{strangers} are no approvers. Give rules such as allow(…), or functions of a call."
        )
    rules = [
        one.rules if isinstance(one, Rules) else (_bare(one),) for one in approvers
    ]
    return Rules(tuple(rule for each in rules for rule in each))


@dataclass(frozen=True, slots=True)
class Rule:
    """One approver, the conditions under which it decides, and the tiers on whose calls it wants to be asked."""

    decide: Approver
    asks: frozenset[Permission]
    tiers: frozenset[Permission] = _TIERS
    names: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    where: Where | None = None

    def fits(self, call: ToolCall) -> bool:
        if _tier(call) not in self.tiers or not self._fits_name(call.name):
            return False
        if self.tags is not None and self.tags.isdisjoint(getattr(call, "tags", ())):
            return False
        claim = self.where(copied(call.arguments)) if self.where else True
        if inspect.isawaitable(claim):
            raise TypeError("where= is a plain function; a coroutine is no answer.")
        return bool(claim)

    def _fits_name(self, name: str) -> bool:
        if self.names is None:
            return True
        fitting = [
            pattern
            for pattern in self.names
            if fnmatchcase(name, pattern.removeprefix("!"))
        ]
        return bool(fitting) and not any(pattern.startswith("!") for pattern in fitting)


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules as one approver: the first that fits decides. Made by `allow`, `deny`, `defer`, `ask` and `first`."""

    rules: tuple[Rule, ...]

    @property
    def tiers(self) -> frozenset[Permission]:
        """The tiers on whose calls it wants to be asked."""
        return frozenset(tier for rule in self.rules for tier in rule.asks)

    def __call__(self, call: ToolCall) -> Any:
        for rule in self.rules:
            if rule.fits(call):
                return rule.decide(call)
        return Verdict("defer" if _tier(call) == "sensitive" else "approve", by=_BY).on(
            call
        )


def ask_in_terminal(call: ToolCall, *, by: str = "the user") -> Verdict:
    """Ask whoever sits at the terminal: y or yes approves, the end of input defers, any other answer denies.

    It shows the tool, its tier and the arguments, with what could deceive the eye escaped, and what is long cut. Where
    there is no terminal it defers. Runs in several threads ask one after the other; under an event loop, which it would
    hold up, ask in a thread: `lambda call: asyncio.to_thread(ask_in_terminal, call)`. `by` is who the model and the
    audit are told has decided; `functools.partial` sets it.
    """
    screen = next(
        (stream for stream in (sys.stderr, sys.stdout) if _is_terminal(stream)), None
    )
    if screen is None or not _is_terminal(sys.stdin):
        return Verdict("defer", "there is no terminal to ask in")
    bound = Verdict("deny", by=by).on(call)  # to what is shown
    with _one_at_a_time:
        _forget_typed()
        screen.write(f"\n{_shown(call)}\nRun {_cut(call.name)}? [y/N] ")
        screen.flush()
        line = sys.stdin.readline()
    if not line:
        return Verdict("defer", "the input has ended")
    return (
        replace(bound, decision="approve")
        if line.strip().lower() in ("y", "yes")
        else bound
    )


_one_at_a_time = threading.Lock()


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def _forget_typed() -> None:
    """What was typed before a question was shown is no answer to it."""
    try:
        import termios
    except ImportError:  # Windows
        import msvcrt

        while msvcrt.kbhit():  # type: ignore[attr-defined,unused-ignore]
            msvcrt.getwch()  # type: ignore[attr-defined,unused-ignore]
    else:
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _shown(call: ToolCall) -> str:
    lines = [
        f"The model calls {_cut(call.name)} ({_tier(call)})"
        + (" with" if call.arguments else "")
    ]
    for name, value in list(call.arguments.items())[:_MOST_ARGUMENTS]:
        lines.append(f"  {_cut(name)}: {_cut(value)}")
    if (more := len(call.arguments) - _MOST_ARGUMENTS) > 0:
        lines.append(f"  … (cut: {more:,} more arguments)")
    return "\n".join(lines)


_cut = functools.partial(spell_out, characters=600)


def _tier(call: ToolCall) -> Permission:
    return getattr(call, "permission", "sensitive")


def _bare(approver: Approver) -> Rule:
    asks = SENSITIVE | _chosen("tiers", getattr(approver, "tiers", ()) or SENSITIVE)
    return Rule(approver, asks, asks)


def _policy(
    approver: Approver,
    asks: frozenset[Permission],
    names: Any,
    tags: Any,
    tiers: Any,
    where: Where | None,
) -> Rules:
    if names is tags is tiers is where is None:
        raise ValueError(
            'A rule without a condition would fit every call. Where that is meant, say "*".'
        )
    if where is not None and (
        not callable(where) or inspect.iscoroutinefunction(where)
    ):
        raise TypeError(f"where is a plain function of the arguments, not {where!r}.")
    chosen = _TIERS if tiers is None else _chosen("tiers", tiers)
    patterns = None if names is None else _chosen("names", names)
    if patterns and all(pattern.startswith("!") for pattern in patterns):
        raise ValueError(
            f'names={sorted(patterns)} only takes away. Say from what: add "*" for all tools.'
        )
    rule = Rule(
        approver,
        asks & chosen,
        chosen,
        patterns,
        None if tags is None else _chosen("tags", tags),
        where,
    )
    return Rules((rule,))


def _chosen(condition: str, given: Any) -> frozenset[Any]:
    chosen = frozenset((given,) if isinstance(given, str) else given)
    if not chosen:
        raise ValueError(
            f"{condition}={given!r} fits no call. Leave it out, or say what fits."
        )
    if bad := [
        one for one in chosen if not isinstance(one, str) or not one.strip("! ")
    ]:
        raise ValueError(f"{bad} in {condition} is no text to compare with.")
    if condition == "tiers" and (unknown := sorted(chosen - _TIERS)):
        raise ValueError(
            f"{unknown} is no tier; these are: {', '.join(get_args(Permission))}."
        )
    return chosen
