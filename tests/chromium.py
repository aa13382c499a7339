"""A headless Chromium, driven over a pipe by its DevTools protocol, with nothing but the standard library.

https://chromedevtools.github.io/devtools-protocol/: with --remote-debugging-pipe the browser reads commands from its
file descriptor 3 and writes to 4, each a JSON text that ends with a zero byte.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any

NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)
FLAGS = (
    *(
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--disable-dev-shm-usage",
    ),
    *(
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
    ),
    *("--window-size=1000,1100", "--remote-debugging-pipe"),
)
PATIENCE = 60  # seconds


def find_chromium() -> str | None:
    """Where the browser is, or nothing."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """The browser. `open` gives a tab; tabs share cookies."""

    def __init__(self, program: str, profile: Path) -> None:
        reads, self._commands = os.pipe()
        self._answers, writes = os.pipe()
        asked = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        quiet = os.open(os.devnull, os.O_RDWR)
        actions = [
            (os.POSIX_SPAWN_DUP2, fd, place)
            for fd, place in ((reads, 3), (writes, 4), (quiet, 1), (quiet, 2))
        ]
        self._process = os.posix_spawn(
            program, asked, os.environ, file_actions=actions, setpgroup=0
        )
        for fd in (reads, writes, quiet):
            os.close(fd)
        self._ids, self._read = itertools.count(1), b""

    def open(self, address: str = "about:blank") -> Tab:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        tab = Tab(self, session)
        return tab.go(address)

    def call(self, method: str, session: str = "", **params: Any) -> Any:
        """The answer to one command. Raises RuntimeError for one that the browser refuses."""
        number = next(self._ids)
        command = {"id": number, "method": method, "params": params} | (
            {"sessionId": session} if session else {}
        )
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            pass  # what happened meanwhile
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _next(self) -> Any:
        until = time.monotonic() + PATIENCE
        while b"\0" not in self._read:
            ready, _, _ = select.select(
                [self._answers], [], [], max(until - time.monotonic(), 0)
            )
            more = os.read(self._answers, 1_000_000) if ready else b""
            if not more:
                raise TimeoutError("The browser does not answer.")
            self._read += more
        message, _, self._read = self._read.partition(b"\0")
        return json.loads(message)

    def close(self) -> None:
        os.killpg(
            self._process, signal.SIGKILL
        )  # its own group: the browser and what it began
        os.waitpid(self._process, 0)
        os.close(self._commands)
        os.close(self._answers)


class Tab:
    """One page."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser, self._session = browser, session
        self.call("Page.enable")

    def call(self, method: str, **params: Any) -> Any:
        return self._browser.call(method, self._session, **params)

    def go(self, address: str) -> Tab:
        self.call("Page.navigate", url=address)
        return self.wait(
            "document.readyState == 'complete' && location.href != 'about:blank'"
        )

    def eval(self, script: str) -> Any:
        """What an expression gives, as JSON has it. Raises RuntimeError where it throws."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait(self, script: str) -> Tab:
        """Wait until an expression is true."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            try:
                if self.eval(f"!!({script})"):
                    return self
            except RuntimeError:  # the page changes just now
                pass
            time.sleep(0.02)
        raise TimeoutError(
            f"{script!r} did not come true on: {self.eval('document.body.innerText')!r}"
        )

    def click(self, selector: str) -> Tab:
        """Click as a mouse does, and wait for the page that comes of it."""
        self.eval("window.left = true")
        find = f"document.querySelector({json.dumps(selector)})"
        self.eval(f"{find}.scrollIntoView({{block: 'center'}})")
        box = self.eval(
            f"(r => [r.x + r.width / 2, r.y + r.height / 2])({find}.getBoundingClientRect())"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call(
                "Input.dispatchMouseEvent",
                type=kind,
                x=box[0],
                y=box[1],
                button="left",
                clickCount=1,
            )
        return self.wait("!window.left && document.readyState == 'complete'")

    def type(self, selector: str, text: str) -> Tab:
        self.eval(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)
        return self

    def press_enter(self) -> Tab:
        """Press Enter where the cursor is, and wait for the page that comes of it."""
        self.eval("window.left = true")
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key="Enter",
                code="Enter",
                text="\r",
                windowsVirtualKeyCode=13,
            )
        return self.wait("!window.left && document.readyState == 'complete'")

    @property
    def text(self) -> str:
        return str(self.eval("document.body.innerText"))

    def picture(self, path: Path, *, dark: bool = False) -> None:
        """The whole page as a PNG."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        shot = self.call(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True
        )
        path.write_bytes(base64.b64decode(shot["data"]))
