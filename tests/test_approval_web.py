"""The approval page: who may look and decide over HTTP, and what people see of it in a real browser."""

from __future__ import annotations

import http.client
import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from chromium import Chromium, Tab, find_chromium
from toolkit import ModelError, RunResult, ScriptedModel, ToolCall, run_agent_with_tools
from toolkit.store import SQLiteStore

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "approval_web"
EXPORTS, ORDER, PARTY = (
    "Delete the exports",
    "Order 1017",
    "Invite the team",
)  # how the tasks of the demo begin
PATIENCE = 60  # seconds


def load_demo() -> Any:
    spec = importlib.util.spec_from_file_location(
        "approval_web_demo", FOLDER / "demo.py"
    )
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DEMO = load_demo()


class Site:
    """A server of the example in a process of its own, and its store."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        self.store = SQLiteStore(folder / "runs.db")
        command = [
            sys.executable,
            "-X",
            "utf8",
            FOLDER,
            "--demo",
            "--port",
            str(port),
            "--store",
            folder / "runs.db",
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout
        self.address = self._process.stdout.readline().removeprefix("Open ").strip()
        self.port = urlsplit(self.address).port or 0
        self.key = self.address.partition("key=")[2]

    def request(
        self,
        method: str,
        path: str,
        form: dict[str, str] | None = None,
        **headers: str | None,
    ) -> Answer:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=PATIENCE
        )
        body = None if form is None else urlencode(form)
        sent = {
            name.replace("_", "-"): value
            for name, value in headers.items()
            if value is not None
        }
        if body is not None and "content_type" not in headers:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        read = Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
        connection.close()
        return read

    def begin(self, prompt: str, *calls: ToolCall) -> RunResult:
        """A run in the store, as another program leaves it: it waits for a verdict on these calls."""
        model = ScriptedModel([list(calls)])
        return run_agent_with_tools(
            prompt, model=model, tools=DEMO.registry, store=self.store
        )

    def run(self, prompt: str) -> str:
        """The id of the run whose prompt begins so."""
        (found,) = [
            r.id
            for r in self.store.runs()
            if self.store.load(r.id).messages[0].text.startswith(prompt)
        ]
        return found

    def state(self, run_id: str) -> str:
        (found,) = [run.status for run in self.store.runs() if run.id == run_id]
        return found

    def ends(self, run_id: str) -> RunResult:
        until = time.monotonic() + PATIENCE
        while (
            self.state(run_id) in ("running", "awaiting_approval")
            and time.monotonic() < until
        ):
            time.sleep(0.01)
        return self.store.result(run_id)

    def kill(self) -> None:
        self._process.send_signal(
            signal.SIGKILL if os.name == "posix" else signal.SIGTERM
        )
        self._process.wait(PATIENCE)
        if self._process.stdout:
            self._process.stdout.close()
        self.store.close()


class Answer:
    def __init__(self, status: int, headers: dict[str, str], text: str) -> None:
        self.status, self.headers, self.text = status, headers, text


class Visitor:
    """Somebody with the key: a session, and the forms that its pages have."""

    def __init__(self, site: Site, session: str = "") -> None:
        self.site = site
        self.session = (
            session
            or site.request("GET", f"/?key={site.key}")
            .headers["Set-Cookie"]
            .split(";")[0]
        )

    def get(self, path: str = "/", **headers: str | None) -> Answer:
        return self.site.request("GET", path, **{"Cookie": self.session, **headers})

    def forms(self, run_id: str) -> list[dict[str, str]]:
        """What each button to confirm on the page of a run would send, without its decision."""
        page = self.get(f"/runs/{run_id}").text
        found = re.findall(
            r'<form method="post" action="/runs/[^"]+/verdict">(.*?)</form>',
            page,
            re.DOTALL,
        )
        fields = r'<input type="hidden" name="(\w+)" value="([^"]*)">'
        return [
            {name: unescape(value) for name, value in re.findall(fields, form)}
            for form in found
            if "Confirm" in form
        ]

    def decide(
        self,
        run_id: str,
        form: dict[str, str],
        decision: str = "confirm",
        **headers: str | None,
    ) -> Answer:
        sent = {
            "Cookie": self.session,
            "Origin": f"http://127.0.0.1:{self.site.port}",
            **headers,
        }
        return self.site.request(
            "POST", f"/runs/{run_id}/verdict", {"decision": decision, **form}, **sent
        )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Site]]:
    begun: list[Site] = []

    def start_one(port: int = 0) -> Site:
        begun.append(Site(tmp_path, port))
        return begun[-1]

    yield start_one
    for site in begun:
        site.kill()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server for what changes nothing."""
    site = Site(tmp_path_factory.mktemp("shared"))
    yield site
    site.kill()


# Who may look


def test_only_who_has_the_key_sees_a_page(shared: Site) -> None:
    paths = [
        "/",
        "/?key=",
        "/?key=wrong",
        f"/?kay={shared.key}",
        f"/runs/{shared.run(EXPORTS)}",
        "/runs/x",
    ]
    for path in paths:
        answer = shared.request("GET", path)
        assert (answer.status, "exports" in answer.text) == (403, False)
    name = f"approvals_{shared.port}"
    for cookie in (
        f"{name}=",
        f"{name}=a.b",
        f"{name}={shared.key}",
        f"other={Visitor(shared).session}",
        "=;=",
        "a b",
    ):
        assert shared.request("GET", "/", Cookie=cookie).status == 403
    begun = shared.request("GET", f"/?key={shared.key}")
    assert (begun.status, begun.headers["Location"]) == (303, "/")
    assert re.fullmatch(
        rf"{name}=\S+; HttpOnly; SameSite=Strict; Path=/", begun.headers["Set-Cookie"]
    )
    page = Visitor(shared).get()
    assert page.status == 200
    assert "exports/2019.csv" in page.text
    assert shared.key not in page.text


@pytest.mark.skipif(os.name != "posix", reason="files have no such permissions there")
def test_the_key_is_for_its_owner_alone(shared: Site) -> None:
    path = shared.store.path.with_name("runs.db.key")
    assert path.read_text() == shared.key
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost.evil.example:{port}",
        "",
    ],
)
def test_under_another_name_nothing_is_served(shared: Site, host: str) -> None:
    """A name that was made to lead to this machine (DNS rebinding) makes a page of somebody else ours."""
    visitor = Visitor(shared)
    for path in ("/", "/style.css", f"/?key={shared.key}"):
        assert visitor.get(path, Host=host.format(port=shared.port)).status == 421
    assert visitor.get("/", Host=f"localhost:{shared.port}").status == 200


def test_every_answer_has_its_guards(shared: Site) -> None:
    visitor = Visitor(shared)
    pages = [
        visitor.get(path)
        for path in (
            "/",
            "/style.css",
            "/nothing",
            f"/runs/{shared.run(ORDER)}",
            "/runs/x",
        )
    ]
    pages += [
        shared.request("GET", "/"),
        shared.request("GET", f"/?key={shared.key}"),
        visitor.get("/", Host="x"),
    ]
    pages.append(visitor.decide(shared.run(ORDER), {}))
    assert [page.status for page in pages] == [
        200,
        200,
        404,
        200,
        404,
        403,
        303,
        421,
        403,
    ]
    for page in pages:
        policy = page.headers["Content-Security-Policy"]
        assert {
            "default-src 'none'",
            "frame-ancestors 'none'",
            "form-action 'self'",
        } <= set(policy.split("; "))
        assert "unsafe" not in policy
        assert page.headers["X-Frame-Options"] == "DENY"
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert page.headers["Cache-Control"] == "no-store"
        assert "Python" not in page.headers["Server"]
        assert not re.search(r"<script|<style|\son\w+=|style=|javascript:", page.text)


def test_it_listens_on_this_machine_alone(shared: Site) -> None:
    assert shared.address.startswith("http://127.0.0.1:")
    tables = [Path(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
    if not tables[0].exists():
        pytest.skip("nothing here lists what listens")
    lines = [
        line.split()[1]
        for table in tables
        if table.exists()
        for line in table.read_text().splitlines()[1:]
    ]
    listening = {
        address for address in lines if address.endswith(f":{shared.port:04X}")
    }
    assert {address.split(":")[0] for address in listening} == {"0100007F"}


# Who may decide

FORGED: dict[str, tuple[dict[str, Any], int]] = {
    "no origin": ({"Origin": None}, 403),
    "another origin": ({"Origin": "http://evil.example"}, 403),
    "the origin of a file or a sandbox": ({"Origin": "null"}, 403),
    "another port of this machine": ({"Origin": "http://127.0.0.1:1"}, 403),
    "another name of this machine": ({"Origin": "http://localhost:{port}"}, 403),
    "another scheme": ({"Origin": "https://127.0.0.1:{port}"}, 403),
    "another host": (
        {"Host": "evil.example:{port}", "Origin": "http://evil.example:{port}"},
        421,
    ),
    "no session": ({"Cookie": None}, 403),
    "a made-up session": ({"Cookie": "approvals_{port}=a.b"}, 403),
    "a page of JSON": ({"content_type": "application/json"}, 415),
    "a form of text, as no other asks leave for": ({"content_type": "text/plain"}, 415),
    "a form of parts": ({"content_type": "multipart/form-data; boundary=x"}, 415),
    "no token": ({"token": None}, 403),
    "an empty token": ({"token": ""}, 403),
    "another token": ({"token": "0" * 64}, 403),
    "the token of another session": ({"token": "theirs"}, 403),
    "no decision": ({"decision": None}, 400),
    "another decision": ({"decision": "approve"}, 400),
    "no digest": ({"digest": None}, 409),
    "an empty digest": ({"digest": ""}, 409),
    "the digest of another call": ({"digest": "0" * 64}, 409),
    "a digest in other letters": ({"digest": "é"}, 409),
    "no call": ({"call": None}, 409),
    "another call": ({"call": "nothing"}, 409),
    "too much": ({"reason": "x" * 100_000}, 413),
}


@pytest.mark.parametrize(("changes", "status"), FORGED.values(), ids=FORGED)
def test_a_forged_form_decides_nothing(
    shared: Site, changes: dict[str, Any], status: int
) -> None:
    visitor, run_id = Visitor(shared), shared.run(ORDER)
    before = shared.store.load(run_id)
    form: dict[str, Any] = {**visitor.forms(run_id)[0], "decision": "confirm"}
    headers: dict[str, Any] = {}
    for name, value in changes.items():
        if value == "theirs":
            value = Visitor(shared).forms(run_id)[0]["token"]
        target = (
            form
            if name in ("token", "decision", "digest", "call", "reason")
            else headers
        )
        target[name] = (
            value.format(port=shared.port) if isinstance(value, str) else value
        )
    form = {name: value for name, value in form.items() if value is not None}
    decision = form.pop("decision", "")
    answer = visitor.decide(run_id, form, decision, **headers)
    assert answer.status == status
    assert 'role="alert"' in answer.text
    assert shared.store.load(run_id) == before
    assert shared.state(run_id) == "awaiting_approval"


def test_a_link_decides_nothing(shared: Site) -> None:
    visitor, run_id = Visitor(shared), shared.run(ORDER)
    before = shared.store.load(run_id)
    form = urlencode({**visitor.forms(run_id)[0], "decision": "confirm"})
    for path in (f"/runs/{run_id}/verdict?{form}", f"/runs/{run_id}/resume?{form}"):
        for method in ("GET", "HEAD"):
            answer = shared.request(method, path, Cookie=visitor.session)
            assert answer.status == 405
    for path in ("/", f"/runs/{run_id}", f"/runs/{run_id}?{form}"):
        visitor.get(path)
    assert shared.store.load(run_id) == before


def test_a_form_to_nowhere_is_not_found(shared: Site) -> None:
    visitor, run_id = Visitor(shared), shared.run(ORDER)
    form = visitor.forms(run_id)[0]
    assert visitor.decide("nothing", form).status == 404
    assert visitor.decide(f"{run_id}/x", form).status == 404


def test_what_a_model_says_stays_text(start: Callable[..., Site]) -> None:
    site = start()
    nasty = "\"'><script>alert(1)</script>&lt;\u202e\x1b[2J"
    call = ToolCall(
        "\"><b id='x'>",
        "send_mail",
        {"to": nasty, "subject": "a\\u202e", "text": "1\n2"},
    )
    run_id = site.begin(f"Mail <img src=x> {nasty}", call).run.id
    visitor = Visitor(site)
    for page in (visitor.get().text, visitor.get(f"/runs/{run_id}").text):
        assert not re.search(r"<script|<img|<b[ >]|[\u202e\x1b]", page)
        assert "<mark>\\u202e</mark><mark>\\u001b</mark>[2J" in page
        assert "a\\\\u202e" in page, "it is spelt out as it is: no unseen character"
        assert '"1<i>\\n</i>\n2"' in page
    (form,) = visitor.forms(run_id)
    assert form["call"] == call.id
    visitor.decide(run_id, {**form, "reason": nasty}, "reject")
    assert nasty in site.ends(run_id).calls[0].content
    assert "<script" not in visitor.get(f"/runs/{run_id}").text


# Decisions


def test_a_reply_is_decided_call_by_call_over_a_restart(
    start: Callable[..., Site],
) -> None:
    site = start()
    run_id, visitor = site.run(EXPORTS), Visitor(site)
    first, second = visitor.forms(run_id)
    answer = visitor.decide(run_id, first)
    assert (answer.status, answer.headers["Location"]) == (303, f"/runs/{run_id}")
    assert site.state(run_id) == "awaiting_approval"
    assert "confirmed" in visitor.get(f"/runs/{run_id}").text
    site.kill()

    site = start(site.port)
    visitor = Visitor(site, visitor.session)  # the open page goes on
    assert visitor.forms(run_id) == [second]
    assert (
        visitor.decide(
            run_id, {**second, "reason": "The audit needs it."}, "reject"
        ).status
        == 303
    )
    result = site.ends(run_id)
    assert [(call.name, call.verdict, call.is_error) for call in result.calls] == [
        ("delete_file", "approve", False),
        ("delete_file", "deny", True),
        ("list_files", "", False),
    ]
    assert (
        result.calls[1].content
        == "Not run: the user denied this call (The audit needs it.)."
    )
    page = visitor.get(f"/runs/{run_id}").text
    assert "2 of 3 steps are done." in page
    assert "The audit needs it." in page
    assert visitor.forms(run_id) == []


def test_a_form_that_is_sent_again_changes_nothing(start: Callable[..., Site]) -> None:
    site = start()
    run_id, visitor = site.run(PARTY), Visitor(site)
    (form,) = visitor.forms(run_id)
    assert visitor.decide(run_id, form).status == 303
    ended = site.ends(run_id)
    for decision in ("confirm", "reject"):
        late = visitor.decide(run_id, form, decision)
        assert late.status == 409
        assert "was decided meanwhile. Your verdict changed nothing." in late.text
        assert "sent to team@example.com" in late.text, (
            "what became of it is told at once"
        )
    assert site.store.result(run_id) == ended


def test_of_two_who_decide_at_once_one_is_told(start: Callable[..., Site]) -> None:
    site = start()
    run_id, visitors = site.run(PARTY), [Visitor(site), Visitor(site)]
    forms = [visitor.forms(run_id)[0] for visitor in visitors]
    answers: list[Answer] = []
    barrier = threading.Barrier(2)

    def decide(number: int) -> None:
        barrier.wait(PATIENCE)
        answers.append(
            visitors[number].decide(
                run_id, forms[number], ("confirm", "reject")[number]
            )
        )

    threads = [threading.Thread(target=decide, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(answer.status for answer in answers) == [303, 409]
    assert len(site.ends(run_id).calls) == 1


def test_of_two_who_decide_on_two_calls_at_once_both_are_heard(
    start: Callable[..., Site],
) -> None:
    site = start()
    run_id, visitor = site.run(ORDER), Visitor(site)
    forms, statuses = visitor.forms(run_id), list[int]()
    threads = [
        threading.Thread(
            target=lambda form=form: statuses.append(
                visitor.decide(run_id, form).status
            )
        )
        for form in forms
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert statuses == [303, 303]
    assert [call.verdict for call in site.ends(run_id).calls] == ["approve", "approve"]


def test_a_run_that_another_process_drives_is_left_to_it(
    start: Callable[..., Site],
) -> None:
    site = start()
    run_id, visitor = site.run(PARTY), Visitor(site)
    (form,) = visitor.forms(run_id)
    site.store.claim(run_id)
    late = visitor.decide(run_id, form)
    assert late.status == 409
    assert "Nothing was changed. The run" in late.text
    site.store.release(run_id)
    assert visitor.decide(run_id, form).status == 303


def test_a_run_that_broke_off_goes_on(start: Callable[..., Site]) -> None:
    site = start()
    for known in site.store.runs():
        site.store.delete(known.id)
    model = ScriptedModel([ModelError("no network")])
    task = next(iter(DEMO.TASKS))
    with pytest.raises(ModelError):
        run_agent_with_tools(task, model=model, tools=DEMO.registry, store=site.store)
    run_id, visitor = site.run(EXPORTS), Visitor(site)
    page = visitor.get(f"/runs/{run_id}").text
    token = re.findall(
        r'/resume"><input type="hidden" name="token" value="(\w+)">', page
    )[0]
    sent = {"Cookie": visitor.session, "Origin": f"http://127.0.0.1:{site.port}"}
    assert site.request("POST", f"/runs/{run_id}/resume", {}, **sent).status == 403
    assert (
        site.request("POST", f"/runs/{run_id}/resume", {"token": token}, **sent).status
        == 303
    )
    until = time.monotonic() + PATIENCE
    while site.state(run_id) != "awaiting_approval" and time.monotonic() < until:
        time.sleep(0.01)
    assert len(visitor.forms(run_id)) == 2


# In a browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    program = find_chromium()
    if program is None or os.name != "posix":
        pytest.skip("no Chromium is installed")
    browser = Chromium(program, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


def alert(tab: Tab) -> str:
    return str(tab.eval("document.querySelector('[role=alert]')?.innerText ?? ''"))


def test_people_confirm_and_reject_in_a_browser(
    start: Callable[..., Site], browser: Chromium
) -> None:
    site = start()
    tab = browser.open(site.address)
    assert tab.eval("location.pathname + location.search") == "/", (
        "the key does not stay in the address"
    )
    assert tab.eval("document.title") == "(5) Approvals"
    assert (
        tab.eval("getComputedStyle(document.querySelector('.confirm')).backgroundColor")
        != "rgba(0, 0, 0, 0)"
    )
    assert tab.eval("document.cookie") == "", "no script reads the session"
    other = browser.open(site.address)

    tab.click("button.confirm")
    assert [part in tab.text for part in ("confirmed", "waits for you", "Answer")] == [
        True,
        True,
        False,
    ]
    tab.type("input[name=reason]", "Keep 2020: <b>audit</b>")
    tab.press_enter()  # of a reason means to reject
    tab.wait("document.querySelector('.answer')")
    assert (
        "2 of 3 steps are done. Not run: the user denied this call (Keep 2020: <b>audit</b>)."
        in tab.text
    )
    assert [call.verdict for call in site.ends(site.run(EXPORTS)).calls] == [
        "approve",
        "deny",
        "",
    ]

    assert "exports/2019.csv" in other.text, "it was opened before"
    other.click("button.confirm")
    assert (
        alert(other)
        == "This call does not wait any more: it was decided meanwhile. Your verdict changed nothing."
    )
    assert "2 of 3 steps are done." in other.text
    other.click(".back a")
    assert other.eval("document.title") == "(3) Approvals"


def test_another_page_of_this_machine_cannot_decide(
    start: Callable[..., Site], browser: Chromium
) -> None:
    """It shares its cookies with ours, ports notwithstanding, and knows all of the form but cannot say who it is."""
    site = start()
    run_id = site.run(PARTY)
    tab = browser.open(site.address)
    session = next(
        c
        for c in tab.call("Network.getCookies")["cookies"]
        if c["name"] == f"approvals_{site.port}"
    )
    (form,) = Visitor(site, f"{session['name']}={session['value']}").forms(run_id)
    fields = "".join(
        f'<input name="{name}" value="{value}">'
        for name, value in {**form, "decision": "confirm"}.items()
    )
    action = f"http://127.0.0.1:{site.port}/runs/{run_id}/verdict"
    page = f'<form method="post" action="{action}">{fields}<button>win a prize</button></form>'.encode()

    class Evil(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Evil) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tab.go(f"http://127.0.0.1:{server.server_port}/").click("button")
        server.shutdown()
    assert alert(tab) == "The form does not come from this page."
    assert site.state(run_id) == "awaiting_approval"
    tab.go(f"http://127.0.0.1:{site.port}/runs/{run_id}").click("button.confirm")
    assert site.ends(run_id).calls[0].verdict == "approve"
