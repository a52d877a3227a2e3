"""What a tool has given back that is no text: the model is told that it stood there, and the answer's head that it is not
seen. A user's own is refused."""
import httpx
import pytest

from scripted import scripted_server
from test_tools import TEMPLATE

IMAGE, SOUND = "[The tool gave an image here", "[The tool gave a sound here"
URL, BLOCK = {"url": "data:image/png;base64,AAAA"}, {"type": "base64", "media_type": "image/png", "data": "AAAA"}
FUNCTION = {"name": "look", "arguments": "{}"}


def chat(parts, role="tool", **more):
    call = {"role": "assistant", "tool_calls": [{"id": "call00001", "type": "function", "function": FUNCTION}]}
    result = {"role": role, "tool_call_id": "call00001", "content": parts, **more}
    return {"messages": [{"role": "user", "content": "Look."}, call, result]}


def old_chat(parts):
    return {"messages": [{"role": "user", "content": "Look."}, {"role": "assistant", "content": None, "function_call": FUNCTION},
                         {"role": "function", "name": "look", "content": parts}]}


def messages(blocks):
    return {"max_tokens": 20, "messages": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": blocks}]}]}


def response(parts, kind="function_call"):
    call = {"type": kind, "call_id": "a", "name": "look", "arguments": "{}", "input": "x"}
    return {"input": [{"role": "user", "content": "Look."}, call, {"type": kind + "_output", "call_id": "a", "output": parts}]}


def ollama(content, images):
    return {"stream": False, "messages": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": {}}}]},
        {"role": "tool", "tool_name": "look", "content": content, "images": images}]}


TEXT = {"type": "text", "text": "Seen:"}
PDF = {"type": "document", "source": {**BLOCK, "media_type": "application/pdf"}}
GIVEN = [
    ("/v1/chat/completions", chat([TEXT, {"type": "image_url", "image_url": URL}]), IMAGE, 1),
    ("/v1/chat/completions", chat([{"type": "image_url", "image_url": URL}] * 2), IMAGE, 2),
    ("/v1/chat/completions", chat([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]), SOUND, 1),
    ("/v1/chat/completions", chat([{"type": "new_kind"}]), "[The tool gave something here", 1),
    ("/v1/chat/completions", old_chat([TEXT, {"type": "image_url", "image_url": URL}]), IMAGE, 1),
    ("/v1/messages", messages([TEXT, {"type": "image", "source": BLOCK}]), IMAGE, 1),
    ("/v1/messages", messages([PDF]), "[The tool gave a document here", 1),
    ("/v1/responses", response([{"type": "input_image", "image_url": URL["url"]}]), IMAGE, 1),
    ("/v1/responses", response([{"type": "input_file", "file_data": "AAAA"}], "custom_tool_call"), "[The tool gave a file here", 1),
    ("/api/chat", ollama("", ["AAAA"]), IMAGE, 1),
    ("/api/chat", ollama("Seen:", ["AAAA", "AAAA"]), IMAGE, 2),
]
ASKED = [
    ("/v1/chat/completions", chat([{"type": "image_url", "image_url": URL}], role="user"), "messages[2].content[0]"),
    ("/v1/chat/completions", chat([5]), "messages[2].content[0]"),
    ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": [{"type": "image", "source": BLOCK}]}]}, None),
    ("/v1/messages", messages([5]), None),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input[0].content[0]"),
    ("/v1/responses", response([{"image_url": "x"}]), "input[2].output[0]"),
    ("/api/chat", ollama("", "AAAA"), None),
]


@pytest.fixture(scope="module")
def scripted():
    with scripted_server(template=TEMPLATE) as (server, script):
        script([(f"{told} that you cannot see", "told") for _, _, told, _ in GIVEN])
        yield server


@pytest.mark.parametrize("path,body,told,num_parts", GIVEN)
def test_of_a_tool_it_is_told(scripted, path, body, told, num_parts):
    answer = httpx.post(scripted.url + path, json=body)
    assert answer.status_code == 200, answer.text
    assert '"told"' in answer.text
    assert answer.headers["x-flashd-warning"] == f"parts of tools' results that are no text are not seen: {num_parts}"


def test_text_of_another_type_is_text(scripted):
    answer = httpx.post(scripted.url + "/v1/chat/completions",
                           json=chat([{"type": "input_text", "text": "[The tool gave a sound here that you cannot see"}]))
    assert '"told"' in answer.text and "x-flashd-warning" not in answer.headers


def test_it_is_told_again_when_a_stored_response_goes_on(scripted):
    first = httpx.post(scripted.url + "/v1/responses", json=response([{"type": "input_image", "image_url": URL["url"]}])).json()
    answer = httpx.post(scripted.url + "/v1/responses", json={"previous_response_id": first["id"], "input": "And?"})
    assert '"told"' in answer.text and answer.headers["x-flashd-warning"].endswith(" are not seen: 1")


@pytest.mark.parametrize("path,body,param", ASKED)
def test_of_a_user_it_is_refused(scripted, path, body, param):
    answer = httpx.post(scripted.url + path, json=body)
    assert answer.status_code == 400, answer.text
    assert param is None or answer.json()["error"]["param"] == param
