"""The server: who may look and decide, and what becomes of a verdict.

It listens on this machine alone. From elsewhere, come through a tunnel: `ssh -L 8765:127.0.0.1:8765 MACHINE`.

Nobody but who has the key, which the server prints at its start, sees a page or decides. A verdict comes as a form of
this very page (a token bound to the session, and the origin), names the hash of what was shown, and is given to
`resume`, which starts nothing before all calls of the reply are decided.
"""

from __future__ import annotations

import hashlib
import hmac
import http.cookies
import logging
import os
import secrets
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import pages

from toolkit import Model, RunResult, ToolRegistry, Verdict, resume
from toolkit.errors import StoreError
from toolkit.store import SQLiteStore, StoredRun

_log = logging.getLogger("approval_web")
_MOST_BYTES, _MOST_OTHERS = 64_000, 20  # of a form; runs that wait for nobody
_STYLE = (Path(__file__).parent / "style.css").read_bytes()
_DECISIONS = {"confirm": "approve", "reject": "deny"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # "no-referrer" would take the origin from our own forms
    "Cache-Control": "no-store",
}


class TooLate(Exception):
    """A verdict that cannot be taken: its text says to people why."""


class Approvals:
    """The runs of a store: what waits in them, and a thread for each that goes on."""

    def __init__(
        self,
        store: SQLiteStore,
        tools: ToolRegistry,
        model: str | Model | None,
        *,
        by: str = "the user",
    ):
        self.store, self.tools, self.model, self.by = store, tools, model, by
        self._one_at_a_time, self._at_work = threading.Lock(), set[str]()

    def waiting(self) -> list[tuple[StoredRun, RunResult]]:
        return [
            (line, self._read(line)) for line in self.store.runs("awaiting_approval")
        ]

    def others(self) -> list[tuple[StoredRun, RunResult]]:
        """The latest runs that wait for nobody, the newest first."""
        lines = [
            line for line in self.store.runs() if line.status != "awaiting_approval"
        ]
        return [(line, self._read(line)) for line in reversed(lines[-_MOST_OTHERS:])]

    def find(self, run_id: str) -> tuple[StoredRun, RunResult]:
        """A run by its id. Raises StoreError where there is none."""
        line = next((line for line in self.store.runs() if line.id == run_id), None)
        if line is None:
            raise StoreError(f"There is no run {run_id!r}.")
        return line, self._read(line)

    def is_at_work(self, run_id: str) -> bool:
        return run_id in self._at_work

    def decide(self, run_id: str, call_id: str, verdict: Verdict) -> None:
        """Take a verdict; once it was the last one of its reply, the run goes on in the background."""
        with (
            self._one_at_a_time
        ):  # or two tabs on two calls of one reply would be in each other's way
            undecided = {call.id: call for call in self.find(run_id)[1].waiting}
            if call_id not in undecided:
                raise TooLate(
                    "This call does not wait any more: it was decided meanwhile. Your verdict changed nothing."
                )
            if undecided[call_id].digest != verdict.digest:
                raise TooLate(
                    "This is not the call that you were shown. Your verdict changed nothing: look again."
                )
            self._go_on(run_id, {call_id: verdict}, is_last=len(undecided) == 1)

    def go_on(self, run_id: str) -> None:
        """Resume a run that broke off, as with a server that was killed."""
        with self._one_at_a_time:
            self._go_on(run_id, {}, is_last=True)

    def _go_on(
        self, run_id: str, verdicts: dict[str, Verdict], *, is_last: bool
    ) -> None:
        if run_id in self._at_work:
            raise TooLate("Nothing was changed: the run goes on already.")
        told, begun, failed = threading.Event(), threading.Event(), list[Exception]()

        def on_event(event: Any) -> None:
            begun.set()  # the run is ours, and the verdicts are taken
            told.set()

        def work() -> None:
            try:
                given: dict[str, Any] = {
                    "store": self.store,
                    "tools": self.tools,
                    "model": self.model,
                }
                resume(run_id, verdicts, **given, on_event=on_event)
            except Exception as error:
                failed.append(error)
                _log.exception("run %s broke off", run_id)
            finally:
                self._at_work.discard(run_id)
                told.set()

        self._at_work.add(run_id)
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        told.wait() if is_last else thread.join()
        if failed and not begun.is_set():
            raise TooLate(f"Nothing was changed. {failed[0]}")

    def _read(self, line: StoredRun) -> RunResult:
        """A run as it is now, which may be further on than its line in the list."""
        run = self.store.load(line.id)
        is_paused = line.status == "awaiting_approval"
        waiting = run.waiting if is_paused else ()
        return RunResult(run, line.status, waiting)  # type: ignore[arg-type]  # also "running", "stopped"


class Sessions:
    """Who may look and decide: whoever came with the key, which is kept beside the store and so outlives the server."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            with os.fdopen(
                os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
            ) as file:
                file.write(secrets.token_urlsafe(32))
        self.key = path.read_text(encoding="ascii")

    def begin(self, key: str) -> str | None:
        """A new session for whoever has the key."""
        name = secrets.token_urlsafe(16)
        return (
            f"{name}.{self._sign('session', name)}" if _equal(key, self.key) else None
        )

    def is_valid(self, session: str) -> bool:
        name, _, signature = session.partition(".")
        return _equal(signature, self._sign("session", name))

    def token(self, session: str) -> str:
        """What the forms of a session carry."""
        return self._sign("form", session)

    def has_token(self, session: str, token: str) -> bool:
        return _equal(token, self.token(session))

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(
            self.key.encode(), f"{purpose} {text}".encode(), hashlib.sha256
        ).hexdigest()


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


class Server(ThreadingHTTPServer):
    """The page on one address."""

    daemon_threads = True

    def __init__(self, approvals: Approvals, sessions: Sessions, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.approvals, self.sessions, port = approvals, sessions, self.server_port
        # Any other name that leads here was given to this machine by somebody else (DNS rebinding).
        self.hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
        self.cookie = f"approvals_{port}"  # cookies know no ports: another server of this machine has its own
        self.address = f"http://127.0.0.1:{port}/?key={sessions.key}"


def make_server(approvals: Approvals, port: int = 8765) -> Server:
    """The server, listening; `serve_forever()` serves, and `address` is where to look."""
    path = approvals.store.path
    return Server(approvals, Sessions(path.with_name(path.name + ".key")), port)


class Refused(Exception):
    """A request that is not served."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    server_version, sys_version, timeout = "approvals", "", 30

    def do_GET(self) -> None:
        self._serve(self._get)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._serve(self._post)

    def _serve(self, answer: Any) -> None:
        try:
            hosts = self.headers.get_all("Host", [])
            if len(hosts) != 1 or hosts[0].lower() not in self.server.hosts:
                raise Refused(
                    HTTPStatus.MISDIRECTED_REQUEST, "This server has another name."
                )
            answer()
        except Refused as refused:
            self._send(
                refused.status, pages.message(refused.status.phrase, str(refused))
            )
        except StoreError as error:
            self._send(HTTPStatus.NOT_FOUND, pages.message("Not found", str(error)))

    def _get(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/style.css":
            return self._send(
                HTTPStatus.OK, _STYLE, content_type="text/css; charset=utf-8"
            )
        if parts.path == "/" and (key := parse_qs(parts.query).get("key")):
            return self._begin_session(key[0])
        session = self._session()
        match parts.path.split("/"):
            case ["", ""]:
                approvals, token = (
                    self.server.approvals,
                    self.server.sessions.token(session),
                )
                body = pages.overview(
                    approvals.waiting(), approvals.others(), approvals.tools, token
                )
                return self._send(HTTPStatus.OK, body)
            case ["", "runs", run_id]:
                return self._show(unquote(run_id), session)
            case ["", "runs", _, "verdict" | "resume"]:
                raise Refused(
                    HTTPStatus.METHOD_NOT_ALLOWED,
                    "A link decides nothing: use the buttons of the page.",
                )
        raise Refused(HTTPStatus.NOT_FOUND, "There is no such page.")

    def _post(self) -> None:
        session = self._session()
        form = self._form(session)
        match urlsplit(self.path).path.split("/"):
            case ["", "runs", quoted, "verdict"]:
                run_id = unquote(quoted)
                decision = _DECISIONS.get(form.get("decision", ""))
                if decision is None:
                    raise Refused(
                        HTTPStatus.BAD_REQUEST,
                        "The form says neither confirm nor reject.",
                    )
                reason, digest = (
                    form.get("reason", "").strip(),
                    form.get("digest") or "none",
                )
                by = self.server.approvals.by
                verdict = Verdict(
                    decision, reason if decision == "deny" else "", by, digest
                )  # type: ignore[arg-type]
                self._change(
                    run_id,
                    session,
                    lambda: self.server.approvals.decide(
                        run_id, form.get("call", ""), verdict
                    ),
                )
            case ["", "runs", quoted, "resume"]:
                run_id = unquote(quoted)
                self._change(
                    run_id, session, lambda: self.server.approvals.go_on(run_id)
                )
            case _:
                raise Refused(HTTPStatus.NOT_FOUND, "There is no such page.")

    def _change(self, run_id: str, session: str, change: Any) -> None:
        try:
            change()
        except TooLate as late:
            return self._show(run_id, session, str(late), HTTPStatus.CONFLICT)
        self._redirect(f"/runs/{quote(run_id, safe='')}")

    def _show(
        self,
        run_id: str,
        session: str,
        alert: str = "",
        status: HTTPStatus = HTTPStatus.OK,
    ) -> None:
        approvals = self.server.approvals
        is_at_work = approvals.is_at_work(
            run_id
        )  # looked at first: it may end meanwhile
        line, result = approvals.find(run_id)
        token = self.server.sessions.token(session)
        body = pages.one_run(
            line, result, approvals.tools, token, is_at_work=is_at_work, alert=alert
        )
        self._send(status, body, {"Refresh": "1"} if is_at_work and not alert else {})

    def _begin_session(self, key: str) -> None:
        session = self.server.sessions.begin(key)
        if session is None:
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "This key is another one. Open the address that the server printed.",
            )
        cookie = f"{self.server.cookie}={self._current_session() or session}; HttpOnly; SameSite=Strict; Path=/"
        self._redirect(
            "/", {"Set-Cookie": cookie}
        )  # a session that there is stays: forms of it may be open

    def _session(self) -> str:
        session = self._current_session()
        if session is None:
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "Open the address that the server printed when it started.",
            )
        return session

    def _current_session(self) -> str | None:
        try:
            morsel = http.cookies.SimpleCookie(self.headers.get("Cookie", "")).get(
                self.server.cookie
            )
        except http.cookies.CookieError:
            return None
        return (
            morsel.value
            if morsel and self.server.sessions.is_valid(morsel.value)
            else None
        )

    def _form(self, session: str) -> dict[str, str]:
        """The fields of a form that this page made, for this session. Raises Refused for any other."""
        if self.headers.get_all("Origin", []) != [
            f"http://{self.headers['Host'].lower()}"
        ]:
            raise Refused(
                HTTPStatus.FORBIDDEN, "The form does not come from this page."
            )
        if self.headers.get_content_type() != "application/x-www-form-urlencoded":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "This is no form.")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MOST_BYTES:
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"A form has {_MOST_BYTES:,} bytes at most.",
            )
        fields = parse_qs(self.rfile.read(int(length)).decode("utf-8", "replace"))
        form = {name: values[0] for name, values in fields.items() if len(values) == 1}
        if not self.server.sessions.has_token(session, form.get("token", "")):
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "The form is not one of your session. Load the page again.",
            )
        return form

    def _redirect(self, where: str, headers: dict[str, str] | None = None) -> None:
        self._send(HTTPStatus.SEE_OTHER, b"", {"Location": where, **(headers or {})})

    def _send(
        self,
        status: HTTPStatus,
        body: bytes,
        headers: dict[str, str] | None = None,
        content_type: str = "text/html; charset=utf-8",
    ) -> None:
        self.send_response(status)
        sent = {
            **_HEADERS,
            "Content-Type": content_type,
            "Content-Length": str(len(body)),
            **(headers or {}),
        }
        for name, value in sent.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        _log.debug("%s %s", self.command, urlsplit(self.path).path)  # without the key
