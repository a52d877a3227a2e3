# /// script
# dependencies = ["open-webui"]
# ///
"""Open WebUI as a server, and its page in a headless Chromium."""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

from browser import EXECUTABLE, Browser

from checks import ANSWER, MODEL, QUESTION, URL, check, equal, run

PROGRAM = pathlib.Path(sys.executable).with_name("open-webui")
PORT = 38080
SETTINGS = {"WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "none", "OFFLINE_MODE": "true", "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "true",
            "ANONYMIZED_TELEMETRY": "False", "ENABLE_VERSION_UPDATE_CHECK": "False", "BYPASS_EMBEDDING_AND_RETRIEVAL": "True",
            "RAG_EMBEDDING_ENGINE": "openai", "ENABLE_TITLE_GENERATION": "False", "ENABLE_TAGS_GENERATION": "False",
            "ENABLE_FOLLOW_UP_GENERATION": "False"}
OPENAI = {"ENABLE_OLLAMA_API": "False", "OPENAI_API_BASE_URL": f"{URL}/v1", "OPENAI_API_KEY": "none"}
OLLAMA = {"ENABLE_OPENAI_API": "False", "ENABLE_OLLAMA_API": "True", "OLLAMA_BASE_URL": URL}
WELCOME = "[...document.querySelectorAll('button')].find(b => b.innerText.startsWith('Okay'))"
SAID = "[...document.querySelectorAll('.chat-assistant')].map(e => e.innerText.trim()).join('|')"


def answers():
    with contextlib.suppress(OSError):
        return urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5).status == 200


@contextlib.contextmanager
def server(settings):
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([PROGRAM, "serve", "--host", "127.0.0.1", "--port", str(PORT)], cwd=folder,
                                   env={**os.environ, **SETTINGS, **settings, "DATA_DIR": folder})
        try:
            while not answers():
                assert process.poll() is None, "it ended"
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            process.wait(60)


def chat():
    """-> what the page shows of the answer."""
    with contextlib.closing(Browser()) as page:
        page.open(f"http://127.0.0.1:{PORT}/")
        page.wait(f"document.querySelector('#chat-input') && {WELCOME} && document.body.innerText.includes('{MODEL}')")
        page.run(f"{WELCOME}.click()")
        page.wait(f"!{WELCOME}")
        page.run("document.querySelector('#chat-input').focus()")
        page.type(QUESTION)
        page.press("Enter", 13, "\r")
        page.wait(f"({SAID}).endsWith('.')")
        equal(page.complaints, [])
        return page.run(SAID)


for protocol, settings in (("OpenAI's", OPENAI), ("Ollama's", OLLAMA)):
    @check(f"a chat on its page, {protocol} protocol")
    def chats(settings=settings):
        assert EXECUTABLE, "no Chromium: deploy/install-deps build chromium-headless-shell"
        with server(settings):
            equal(chat(), ANSWER)


run("open-webui")
