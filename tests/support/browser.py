"""A headless Chromium that opens a page and is used as a person uses one, by mouse and keys.

It is spoken to by its DevTools protocol over two pipes, which needs nothing beside the browser.
"""

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def installed() -> str | None:
    """Return the program of a browser, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """A page that is open."""

    def __init__(self, write: Any, read: Any) -> None:
        self._write, self._read = write, read
        self._number = 0
        self._session: str | None = None
        self.errors: list[str] = []
        self.requests: list[str] = []

    def open(self, path: Path, query: str = "") -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for name in ("Page", "Runtime", "Network"):
            self.call(f"{name}.enable")
        self.shaped(1200, 1600)
        self.call("Page.navigate", url=path.as_uri() + query)
        deadline = time.monotonic() + 30
        while self.value("document.readyState") != "complete" and time.monotonic() < deadline:
            time.sleep(0.02)

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._write.write(json.dumps(message).encode() + b"\0")
        self._write.flush()
        while True:
            answer = json.loads(self._message())
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(answer["params"]["exceptionDetails"]))
            if answer.get("method") == "Network.requestWillBeSent":
                self.requests.append(answer["params"]["request"]["url"])
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _message(self) -> bytes:
        data = b""
        while not data.endswith(b"\0"):
            part = self._read.read(1)
            assert part, "the browser has ended"
            data += part
        return data[:-1]

    def shaped(self, width: int, height: int, *, dark: bool = False, scale: float = 1) -> None:
        """Give the window a size, and the colours for light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale}
        self.call("Emulation.setDeviceMetricsOverride", mobile=width < 600, **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, width: int, height: int) -> bytes:
        """Return a PNG picture of the page's top."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        found = self.call("Page.captureScreenshot", format="png", clip=clip)
        return base64.b64decode(found["data"])

    def value(self, expression: str, wait: str = "") -> Any:
        """Return what an expression of JavaScript is on the page, once a promise is kept."""
        if wait:
            self.call("Runtime.evaluate", expression=wait, awaitPromise=True)
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self, selector: str) -> str:
        """Return what a person reads in an element."""
        found: str = self.value(f"document.querySelector({json.dumps(selector)}).innerText")
        return found

    def box(self, selector: str) -> dict[str, float]:
        """Return where an element is, after it has been scrolled into view."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{element}.scrollIntoView({{block: 'center'}})")
        found: dict[str, float] = self.value(f"{element}.getBoundingClientRect().toJSON()")
        return found

    def press(self, x: float, y: float, to: float | None = None) -> None:
        """Press the mouse at a place, and let it go there, or further right or left."""
        end = x if to is None else to
        events = [("mouseMoved", x), ("mousePressed", x)]
        events += [] if to is None else [("mouseMoved", (x + end) / 2), ("mouseMoved", end)]
        for kind, at in (*events, ("mouseReleased", end)):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            buttons = {} if to is None else {"buttons": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=at, y=y, **button, **buttons)

    def click(self, selector: str, across: float = 0.5) -> None:
        """Click on an element, so far from its left to its right."""
        box = self.box(selector)
        self.press(box["x"] + across * box["width"], box["y"] + box["height"] / 2)

    def move(self, selector: str, across: float) -> None:
        """Move the mouse over an element."""
        box = self.box(selector)
        x, y = box["x"] + across * box["width"], box["y"] + box["height"] / 2
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, selector: str, first: float, last: float) -> None:
        """Drag over an element, from so far from its left to so far."""
        box = self.box(selector)
        places = [box["x"] + part * box["width"] for part in (first, last)]
        self.press(places[0], box["y"] + box["height"] / 2, places[1])

    def type(self, selector: str, text: str) -> None:
        """Click on a field, type, and end with the Enter key."""
        self.click(selector)
        self.call("Input.insertText", text=text)
        self.key("Enter", 13, "\r")

    def key(self, name: str, code: int, text: str = "") -> None:
        """Press a key."""
        of = {"key": name, "windowsVirtualKeyCode": code, "text": text}
        self.call("Input.dispatchKeyEvent", type="keyDown", **of)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code)


@contextmanager
def opened(path: Path, profile: Path, query: str = "") -> Iterator[Page]:
    """Open a page in a browser of its own, whose profile is in a folder."""
    program = installed()
    assert program is not None
    (to_read, to_write), (from_read, from_write) = os.pipe(), os.pipe()

    def wire() -> None:
        # The browser reads commands from 3, and answers on 4.
        ends = os.dup(to_read), os.dup(from_write)
        os.dup2(ends[0], 3)
        os.dup2(ends[1], 4)

    browser = subprocess.Popen(
        [
            program,
            *("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
            *("--disable-background-networking", "--no-first-run", f"--user-data-dir={profile}"),
        ],
        preexec_fn=wire,
        close_fds=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(to_read)
    os.close(from_write)
    try:
        with os.fdopen(to_write, "wb") as write, os.fdopen(from_read, "rb") as read:
            page = Page(write, read)
            page.open(path, query)
            yield page
    finally:
        browser.kill()
        browser.wait()
