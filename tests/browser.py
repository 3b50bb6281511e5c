"""Headless Chromium, controlled through its DevTools protocol over two pipes."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time

NAME = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
# No profile, no updates, and no sandbox, which a container forbids.
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
)


class Page:
    """A page of a browser: the actions of a user, and the requests of the page."""

    def __init__(self, send, requests):
        self.send, self.requests = send, requests

    def resize(self, width=1000, height=800, dark=False, touch=False):
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=touch,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path, wait="document.querySelector('nav')"):
        """Opens a file and waits until an expression is true."""
        self.requests.clear()
        # The previous page may still be there when the browser answers.
        self.value("window.isOld = true")
        self.send("Page.navigate", url=path.resolve().as_uri())
        self.until(f"!window.isOld && document.readyState == 'complete' && {wait}")

    def until(self, expression, seconds=8):
        end = time.monotonic() + seconds
        while not self.value(f"!!({expression})"):
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.02)

    def value(self, expression):
        """The value of a JavaScript expression."""
        reply = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def click(self, expression):
        """Clicks with the mouse in the middle of an element."""
        x, y = self.value(
            f"(() => {{ const e = {expression}; e.scrollIntoView({{block: 'nearest'}});"
            " const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        at = {"x": x, "y": y, "button": "left", "clickCount": 1}
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.send("Input.dispatchMouseEvent", type="mousePressed", **at)
        self.send("Input.dispatchMouseEvent", type="mouseReleased", **at)

    def press(self, key):
        code = {"Tab": 9, "Enter": 13, "ArrowDown": 40, "ArrowRight": 39}[key]
        text = {"text": "\r"} if key == "Enter" else {}
        known = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", **known, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **known)

    def picture(self, path=None):
        """A screenshot as PNG, also written to `path`."""
        # A frame is drawn after the functions of requestAnimationFrame have run.
        self.send(
            "Runtime.evaluate",
            expression="new Promise(r => requestAnimationFrame(() => "
            "requestAnimationFrame(r)))",
            awaitPromise=True,
        )
        data = base64.b64decode(self.send("Page.captureScreenshot")["data"])
        if path:
            path.write_bytes(data)
        return data


@contextlib.contextmanager
def opened(folder):
    """A page in a new browser with its profile in `folder`."""
    to_read, to_write = os.pipe(), os.pipe()
    ends = to_read[0], to_write[1]
    # The protocol uses the file descriptors 3 and 4.
    script = f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}'
    flags = (*FLAGS, f"--user-data-dir={folder}", "--remote-debugging-pipe")
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", script, "-", NAME, *flags, "about:blank"],
            pass_fds=ends,
            stdout=log,
            stderr=log,
        )
    for end in ends:
        os.close(end)
    with open(to_read[1], "wb", 0) as out, open(to_write[0], "rb") as back:
        try:
            yield _attached(out, back)
        finally:
            process.terminate()
            process.wait()


def _attached(out, back):
    requests, numbers = [], iter(range(1, 10**9))

    def send(method, session=None, **params):
        number = next(numbers)
        message = {"id": number, "method": method, "params": params}
        message |= {"sessionId": session} if session else {}
        out.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(_message(back))
            if answer.get("method") == "Network.requestWillBeSent":
                requests.append(answer["params"]["request"]["url"])
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    target = send("Target.createTarget", url="about:blank")["targetId"]
    session = send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    page = Page(lambda method, **x: send(method, session, **x), requests)
    for domain in ("Page", "Network", "Runtime"):
        page.send(f"{domain}.enable")
    return page


def _message(back):
    """Bytes up to the next zero."""
    message = bytearray()
    while (byte := back.read(1)) != b"\0":
        assert byte, "the browser is gone; see its log"
        message += byte
    return message
