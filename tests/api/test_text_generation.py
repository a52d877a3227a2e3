"""Text Generation Inference's protocol, by huggingface_hub's client and by hand: the same texts as those of /v1/completions."""
import json

import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import ValidationError

PROMPT = "Once upon a"
SMILES = "Say \U0001f642 then \U0001f642\U0001f642"
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}


@pytest.fixture
def hub(server):
    return InferenceClient(base_url=server.url, api_key="none")


def post(server, path, inputs=PROMPT, stream=None, **parameters):
    answer = server.post(path, {"inputs": inputs, "parameters": parameters, **({} if stream is None else {"stream": stream})})
    assert answer.status_code == 200, answer.text
    return answer


def events(answer):
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


def completion(server, prompt=PROMPT, **fields):
    answer = server.post("/v1/completions", {"prompt": prompt, "logprobs": 0, "return_token_ids": True, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def test_client(server, hub):
    expected = completion(server, max_tokens=8, temperature=0)
    assert hub.text_generation(PROMPT, max_new_tokens=8) == expected["text"]
    assert hub.text_generation(PROMPT, max_new_tokens=8, return_full_text=True) == PROMPT + expected["text"]
    whole = hub.text_generation(PROMPT, max_new_tokens=8, details=True, watermark=False, decoder_input_details=False, do_sample=False)
    assert whole.generated_text == expected["text"] and whole.details.finish_reason == "length" and whole.details.generated_tokens == 8
    assert [t.id for t in whole.details.tokens] == expected["token_ids"] and "".join(t.text for t in whole.details.tokens) == expected["text"]
    assert [t.logprob for t in whole.details.tokens] == expected["logprobs"]["token_logprobs"]
    assert "".join(hub.text_generation(PROMPT, max_new_tokens=8, stream=True)) == expected["text"]
    streamed = list(hub.text_generation(PROMPT, max_new_tokens=8, stream=True, details=True))
    without_text = [[{**vars(t), "text": ""} for t in tokens] for tokens in ([e.token for e in streamed], whole.details.tokens)]
    assert [e.index for e in streamed] == list(range(8)) and without_text[0] == without_text[1]
    assert "".join(e.token.text for e in streamed) == expected["text"]  # of tokens that come together the last one has it
    assert [e.generated_text for e in streamed] == [None] * 7 + [expected["text"]]
    assert streamed[-1].details.finish_reason == "length" and streamed[-1].details.input_length == 3


def test_client_sees_what_is_refused(hub):
    with pytest.raises(ValidationError, match="temperature must be a number from 0 to 100"):
        hub.text_generation(PROMPT, temperature=-1)


def test_shapes(server):
    """/ has a list of one, or a stream; the two others have what their names say, whatever stream does."""
    text = completion(server, max_tokens=3, temperature=0)["text"]
    for stream in (None, False, True):
        assert post(server, "/generate", stream=stream, max_new_tokens=3).json() == {"generated_text": text}
        assert events(post(server, "/generate_stream", stream=stream, max_new_tokens=3))[-1]["generated_text"] == text
    assert post(server, "/", max_new_tokens=3).json() == [{"generated_text": text}]
    assert events(post(server, "/", stream=True, max_new_tokens=3))[-1]["details"] is None


def test_sampling(server):
    """The likeliest token unless something is said of it; 100 tokens unless a number is, as many as there is room for."""
    assert post(server, "/generate", max_new_tokens=8, seed=1).json() == post(server, "/generate", max_new_tokens=8, seed=2).json()
    for said, meant in (({"do_sample": True}, {"temperature": 1}), ({"top_k": 5}, {"temperature": 1, "top_k": 5}),
                        ({"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.1},) * 2):
        answer = post(server, "/generate", max_new_tokens=8, seed=7, **said).json()
        assert answer["generated_text"] == completion(server, max_tokens=8, seed=7, **meant)["text"]
    assert post(server, "/generate", details=True, ignore_eos=True).json()["details"]["generated_tokens"] == 100
    answer = post(server, "/generate", inputs="a " * 8180, details=True, ignore_eos=True).json()
    assert answer["details"]["generated_tokens"] == 8192 - 8181
    assert post(server, "/generate", typical_p=0.95, max_new_tokens=1).headers["x-flashd-warning"] == "typical_p does nothing"


def test_ends(server):
    """A stop string stays in the text; the end token is told, and has no text in a stream."""
    text = completion(server, max_tokens=8, temperature=0)["text"]
    stop = text[-4:-1]
    answer = post(server, "/generate", max_new_tokens=8, stop=[stop], details=True).json()
    assert answer["details"]["finish_reason"] == "stop_sequence" and answer["generated_text"] == text[:text.index(stop) + len(stop)]
    ended = dict(max_new_tokens=8, details=True, logit_bias={"2": 100})
    details = post(server, "/generate", **ended).json()["details"]
    assert details["finish_reason"] == "eos_token" and [(t["id"], t["special"]) for t in details["tokens"]] == [(2, True)]
    (event,) = events(post(server, "/generate_stream", **ended))
    assert event["token"]["text"] == event["generated_text"] == "" and event["details"]["finish_reason"] == "eos_token"


def test_top_tokens_and_characters(server):
    """Characters of several tokens come whole."""
    streamed = events(post(server, "/generate_stream", inputs=SMILES, max_new_tokens=9, top_n_tokens=2))
    whole = post(server, "/generate", inputs=SMILES, max_new_tokens=9, top_n_tokens=2, details=True).json()
    assert "".join(e["token"]["text"] for e in streamed) == whole["generated_text"] == streamed[-1]["generated_text"]
    assert [e["top_tokens"] for e in streamed] == whole["details"]["top_tokens"]
    assert all(e["top_tokens"][0]["id"] == e["token"]["id"] and len(e["top_tokens"]) == 2 for e in streamed)


def test_grammar(server):
    for grammar in ({"type": "json", "value": SCHEMA}, {"type": "json_schema", "value": {"name": "x", "schema": SCHEMA}}):
        answer = post(server, "/generate", grammar=grammar, max_new_tokens=60).json()
        assert set(json.loads(answer["generated_text"])) == {"a"}
    answer = post(server, "/generate", grammar={"type": "regex", "value": "[0-9]{3}x"}, do_sample=True).json()
    assert answer["generated_text"][:3].isdigit() and answer["generated_text"][3:] == "x"


def test_nul_in_a_text(server):
    assert post(server, "/generate", inputs="a\0b", return_full_text=True, max_new_tokens=1).json()["generated_text"][:3] == "a\0b"


@pytest.mark.parametrize("body, status, what", [
    ({}, 400, "inputs is missing"), ({"inputs": ["a"]}, 400, "inputs must be a string"), ({"inputs": "a", "parameters": 1}, 400, "parameters must be"),
    ({"inputs": "a " * 9000}, 400, "inputs is too long"), ({"inputs": "a", "parameters": {"max_new_tokens": 0}}, 400, "max_new_tokens must be"),
    ({"inputs": "a", "parameters": {"watermark": True}}, 400, "watermark is not supported"),
    ({"inputs": "a", "parameters": {"decoder_input_details": True}}, 400, "decoder_input_details is not supported"),
    ({"inputs": "a", "parameters": {"details": 1}}, 400, "details must be a boolean"),
    ({"inputs": "a", "parameters": {"top_n_tokens": 21}}, 400, "top_n_tokens must be"),
    ({"inputs": "a", "parameters": {"grammar": "a"}}, 400, "grammar must be an object"),
    ({"inputs": "a", "parameters": {"grammar": {"type": "regex", "value": "("}}}, 400, "grammar.value: the pattern"),
    ({"inputs": "a", "parameters": {"grammar": {"type": "json", "value": {"type": "x"}}}}, 400, "grammar.value: \"type\""),
    ({"inputs": "a", "parameters": {"adapter_id": "nobody"}}, 404, "does not exist"),
])
def test_refusals(server, body, status, what):
    answer = server.post("/generate", body)
    assert answer.status_code == status and what in answer.json()["error"] and answer.json()["error_type"] == "validation", answer.text
