"""The page for people: its bytes and headers, and what a browser makes of it. SCREENSHOTS=folder keeps pictures of it."""

import base64
import contextlib
import hashlib
import os
import pathlib
import re
import socket

import httpx
import pytest

from conftest import wait_until
from browser import EXECUTABLE, Browser

SOURCE = (pathlib.Path(__file__).resolve().parents[2] / "server/page/page.html").read_bytes()
needs_browser = pytest.mark.skipif(not EXECUTABLE, reason="no Chromium")

ENTER, ESCAPE = ("Enter", 13, "\r"), ("Escape", 27)


def sha256_of(pattern):
    inside = re.search(pattern, SOURCE, re.DOTALL).group(1)
    return "'sha256-" + base64.b64encode(hashlib.sha256(inside).digest()).decode() + "'"


def test_bytes_and_headers(server):
    answer = httpx.get(server.url + "/")
    assert answer.status_code == 200 and answer.content == SOURCE
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy == {"default-src": "'none'", "script-src": sha256_of(rb'<script type="module">(.*?)</script>'),
                      "style-src": sha256_of(rb"<style>(.*?)</style>"), "connect-src": "'self'", "img-src": "data:",
                      "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'"}
    head = httpx.head(server.url + "/")
    assert head.status_code == 200 and head.content == b"" and head.headers["content-length"] == str(len(SOURCE))
    assert httpx.delete(server.url + "/").status_code == 405
    assert not re.search(rb"(src|href)=\"(?!data:)|https?://(?!www.w3.org/2000/svg)|@import|url\(", SOURCE), "an asset"


def test_foreign_pages_and_names(server):
    assert httpx.get(server.url + "/", headers={"Host": "evil.example"}).status_code == 421
    assert httpx.get(server.url + "/", headers={"Origin": "http://evil.example"}).status_code == 403
    own = httpx.get(server.url + "/", headers={"Origin": server.url})
    assert own.status_code == 200 and "access-control-allow-origin" not in own.headers


def ask_uds(path):
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
        return client.get("http://localhost/")


@contextlib.contextmanager
def on_unix_socket(start_server, path, *options, monkeypatch):
    monkeypatch.setattr("conftest.Server.wait_until_ready", lambda server: wait_until(lambda: is_listening(path), server))
    with start_server("--uds", str(path), *options) as server:
        yield server


def is_listening(path):
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:
        s.connect(str(path))
        return True


def test_only_loopback_has_it_without_a_key(start_server, tmp_path, monkeypatch):
    path = tmp_path / "socket"
    with on_unix_socket(start_server, path, monkeypatch=monkeypatch):
        answer = ask_uds(path)
        assert answer.status_code == 403 and "--api-key-file" in answer.json()["error"]["message"]
    with on_unix_socket(start_server, path, "--api-key", "k", monkeypatch=monkeypatch):
        assert ask_uds(path).content == SOURCE


# ---- in a browser ----


@pytest.fixture
def browser():
    browser = Browser()
    yield browser
    browser.close()


def picture(browser, name):
    if os.environ.get("SCREENSHOTS"):
        browser.screenshot(pathlib.Path(os.environ["SCREENSHOTS"]) / (name + ".png"))


def text_of(selector):
    return f"(document.querySelector({selector!r})?.textContent ?? '')"


def ask(browser, text):
    browser.run("document.getElementById('text').focus()")
    browser.type(text)
    browser.press(*ENTER)


LAST_ANSWER = ".assistant:last-child .text"
LAST_NOTE = ".assistant:last-child .note"
IDLE = "document.getElementById('stop').hidden"
# An answer that is not over before a key is pressed, however slow the browser is.
ENDLESS = """const send = window.fetch; window.fetch = (path, options) => send(path, options?.body ?
             { ...options, body: JSON.stringify({ ...JSON.parse(options.body), ignore_eos: true }) } : options); true"""


@needs_browser
def test_a_chat_with_the_keyboard_alone(server, browser):
    browser.show(1280, 800, "light")
    browser.open(server.url + "/")
    browser.wait(f"{text_of('#state')} === 'ready' && document.getElementById('model').options.length === 1")
    browser.run("document.getElementById('seed').value = 1; document.getElementById('max_tokens').value = 48")
    before = server.metrics()["vllm:generation_tokens_total"]
    ask(browser, "Name three colours.")
    browser.wait(f"{IDLE} && {text_of(LAST_NOTE)}.includes('prompt tokens cached')")
    tokens = int(re.match(r"(\d+) tokens · [\d.,]+ tokens/s · first after", browser.run(text_of(LAST_NOTE))).group(1))
    assert server.wait_idle()["vllm:generation_tokens_total"] - before == tokens > 1
    first = browser.run(text_of(LAST_ANSWER))
    expected = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Name three colours."}],
                                                    "seed": 1, "max_tokens": 48})
    assert first == expected.json()["choices"][0]["message"]["content"]

    ask(browser, "And <b>three</b> more?")
    browser.wait(f"{IDLE} && document.querySelectorAll('.assistant .note').length === 2 && "
                 f"{text_of(LAST_NOTE)}.includes('prompt tokens cached')")
    assert browser.run("document.querySelectorAll('.text b').length") == 0
    assert int(re.search(r"(\d+) of \d+ prompt tokens cached", browser.run(text_of(LAST_NOTE))).group(1)) > 0
    picture(browser, "light")
    browser.show(1280, 800, "dark")
    picture(browser, "dark")
    browser.show(360, 740, "dark")
    assert browser.run("document.documentElement.scrollWidth <= 360")
    picture(browser, "narrow")
    assert browser.complaints == []


@needs_browser
def test_escape_stops_the_answer(server, browser):
    browser.show(1280, 800, "light")
    browser.open(server.url + "/")
    browser.wait("document.getElementById('model').options.length === 1")
    browser.run(ENDLESS)
    ask(browser, "Count from one to one thousand.")
    browser.wait(f"{text_of(LAST_ANSWER)}.length > 20")
    browser.press(*ESCAPE)
    browser.wait(f"{IDLE} && {text_of(LAST_NOTE)}")
    assert browser.run(f"{text_of(LAST_NOTE)}.endsWith('stopped')")
    server.wait_idle()
    browser.wait("[...document.querySelectorAll('path')].filter(p => p.getAttribute('d')).length === 9")
    picture(browser, "stopped")
    assert browser.complaints == []


@needs_browser
def test_a_key_is_asked_for(start_server, browser):
    with start_server("--api-key", "secret") as server:
        browser.show(1280, 800, "light")
        browser.open(server.url + "/")
        browser.wait("document.getElementById('key-dialog').open")
        picture(browser, "key")
        browser.type("wrong")
        browser.press(*ENTER)
        browser.wait("document.getElementById('key-dialog').open && document.getElementById('key').value === ''")
        browser.run("document.getElementById('key').focus()")
        browser.type("secret")
        browser.press(*ENTER)
        browser.wait("!document.getElementById('key-dialog').open && document.getElementById('model').options.length === 1")
        assert all("401" in text for text in browser.complaints)
