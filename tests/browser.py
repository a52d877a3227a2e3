"""browser.py - a headless Chromium, spoken to over its pipe (--remote-debugging-pipe): messages of JSON, a NUL behind each."""
import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
EXECUTABLE = next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page in a browser of its own; complaints is what its console said: errors, what a policy forbade, exceptions."""

    def __init__(self):
        self.complaints = []
        self.id = 0
        self.pending = b""
        self.folder = tempfile.TemporaryDirectory(prefix="flashd-browser-", ignore_cleanup_errors=True)
        read_commands, self.commands = os.pipe()
        self.answers, write_answers = os.pipe()
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
                   f"--user-data-dir={self.folder.name}"]
        wired = f'exec "$@" 3<&{read_commands} 4>&{write_answers}'
        self.process = subprocess.Popen(["bash", "-c", wired, "-", EXECUTABLE, *options], pass_fds=(read_commands, write_answers),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True)
        os.close(read_commands)
        os.close(write_answers)
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def _message(self, deadline):
        while b"\0" not in self.pending:
            ready, _, _ = select.select([self.answers], [], [], max(0, deadline - time.monotonic()))
            part = os.read(self.answers, 1 << 20) if ready else b""
            assert part, "the browser does not answer"
            self.pending += part
        message, self.pending = self.pending.split(b"\0", 1)
        return json.loads(message)

    def _note(self, message):
        params = message.get("params", {})
        if message["method"] == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"])
        elif message["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.complaints.append(params["entry"]["text"])

    def call(self, method, **params):
        self.id += 1
        message = {"id": self.id, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + 60
        while True:
            answer = self._message(deadline)
            if answer.get("id") == self.id:
                assert "error" not in answer, answer
                return answer["result"]
            if "method" in answer:
                self._note(answer)

    def run(self, script):
        """The value of a JavaScript expression, awaited."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, condition, seconds=60):
        deadline = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < deadline, f"never came: {condition}; {self.complaints}"
            time.sleep(0.05)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, code, text=""):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def show(self, width, height, scheme):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # with the processes of its own
        self.process.wait(20)
        os.close(self.commands)
        os.close(self.answers)
        self.folder.cleanup()
