"""llama.cpp's own protocol: /completion as its clients use it, /infill as llama.vim and llama.vscode ask for it, and what fills a
gap elsewhere; the same answers alone and among others."""
import concurrent.futures
import json

import httpx
import pytest

import byte_tokenizer

MIDDLE_TEXT = "<|fim_middle|>"
PROMPT = "The capital of France is"
FIM = ("<|endoftext|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")
END, PREFIX, SUFFIX, MIDDLE, REPOSITORY, FILE = range(256, 256 + len(FIM))
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
          "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 256 + len(FIM),
          "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False,
          "bos_token_id": END, "eos_token_id": END}


@pytest.fixture(scope="module")
def coder(start_server, tmp_path_factory):
    """A model with tokens for gaps, whose weights are random: its words say nothing, its prompts are exact."""
    folder = tmp_path_factory.mktemp("coder")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    byte_tokenizer.write(folder, FIM)
    with start_server("--load-format", "dummy", "--log-format", "json", model=folder) as server:
        yield server


def ask(server, path="/completion", **body):
    reply = server.post(path, body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def complete(server, prompt=PROMPT, **body):
    return ask(server, prompt=prompt, **{"temperature": 0, **body})


def chunks(server, path="/completion", **body):
    with httpx.stream("POST", server.url + path, json={"stream": True, **body}, timeout=60) as reply:
        assert reply.status_code == 200 and reply.headers["content-type"].startswith("text/event-stream")
        frames = reply.read().decode().split("\n\n")
    assert frames.pop() == "" and all(f.startswith("data: ") for f in frames)
    return [json.loads(f.removeprefix("data: ")) for f in frames]


def refusal(server, path="/completion", **body):
    reply = server.post(path, body)
    assert reply.status_code == 400, reply.text
    assert set(reply.json()["error"]) == {"message", "type", "param", "code"}
    return reply.json()["error"]


def text_of(server, ids):
    return server.post("/detokenize", {"tokens": ids}).json()["content"]


# ---- /completion ----

def test_a_whole_answer(server, model):
    answer = complete(server, n_predict=8, return_tokens=True, seed=7)
    openais = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 8, "temperature": 0}).json()
    assert answer["content"] == openais["choices"][0]["text"] == text_of(server, answer["tokens"])
    assert (answer["stop"], answer["stop_type"], answer["stopping_word"], answer["truncated"]) == (True, "limit", "", False)
    assert (answer["tokens_predicted"], answer["tokens_evaluated"]) == (8, openais["usage"]["prompt_tokens"])
    assert (answer["prompt"], answer["model"]) == (PROMPT, model)
    assert answer["timings"]["predicted_n"] == 8 and answer["timings"]["prompt_n"] + answer["timings"]["cache_n"] == answer["tokens_evaluated"]
    settings = answer["generation_settings"]
    assert (settings["seed"], settings["temperature"], settings["n_predict"], settings["stream"]) == (7, 0, 8, False)
    assert complete(server, n_predict=8)["tokens"] == [] and ask(server, "/completions", prompt="a", n_predict=1)["stop"] is True


@pytest.mark.parametrize("n_predict, n_probs", [(12, 2), (110, 20)])  # many probabilities are written beside the loop
def test_a_stream_says_the_same(server, n_predict, n_probs):
    fields = {"prompt": PROMPT, "n_predict": n_predict, "temperature": 0.8, "seed": 3, "n_probs": n_probs, "ignore_eos": True}
    whole = ask(server, **fields, return_tokens=True)
    *parts, last = chunks(server, **fields)
    assert "".join(c["content"] for c in parts) == whole["content"] and last["content"] == ""
    assert [i for c in parts for i in c["tokens"]] == whole["tokens"] and last["tokens"] == []
    assert [p for c in parts for p in c["completion_probabilities"]] == whole["completion_probabilities"]
    assert [c["stop"] for c in parts] == [False] * len(parts) and set(last) | {"completion_probabilities"} == set(whole)
    assert {k: v for k, v in last.items() if k not in ("content", "tokens", "timings", "generation_settings", "tokens_cached")} == {
        k: v for k, v in whole.items() if k not in ("content", "tokens", "timings", "generation_settings", "tokens_cached",
                                                    "completion_probabilities")}


def test_probabilities(server):
    answer = complete(server, n_predict=3, n_probs=3, return_tokens=True)
    openais = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 3, "temperature": 0, "logprobs": 3}).json()["choices"][0]["logprobs"]
    told = answer["completion_probabilities"]
    assert [p["id"] for p in told] == answer["tokens"] and [p["logprob"] for p in told] == openais["token_logprobs"]
    for p, top in zip(told, openais["top_logprobs"]):
        assert {t["token"]: t["logprob"] for t in p["top_logprobs"]} == top and p["top_logprobs"][0]["id"] == p["id"]
        assert bytes(p["bytes"]).decode() == p["token"]
    assert "completion_probabilities" not in complete(server, n_predict=1, n_probs=0)


def test_several_prompts(server):
    ids = server.post("/tokenize", {"content": PROMPT}).json()["tokens"]
    mixed = [*ids[:2], text_of(server, ids[2:4]), *ids[4:]]
    alone, other = complete(server, n_predict=5)["content"], complete(server, "One two three", n_predict=5)["content"]
    answers = complete(server, [PROMPT, "One two three", ids, mixed, {"prompt_string": PROMPT}], n_predict=5)
    assert [a["index"] for a in answers] == [0, 1, 2, 3, 4] and [a["content"] for a in answers] == [alone, other, alone, alone, alone]
    assert complete(server, [PROMPT], n_predict=5)["content"] == complete(server, mixed, n_predict=5)["content"] == alone
    said = {0: "", 1: ""}
    for c in chunks(server, prompt=[PROMPT, "One two three"], n_predict=5, temperature=0):
        said[c["index"]] += c["content"]
    assert said == {0: alone, 1: other}
    pair = ask(server, prompt=PROMPT, n_predict=5, n_cmpl=2, seed=5)
    assert len(pair) == 2 and pair[0]["content"] != pair[1]["content"]


def test_why_it_stops(server):
    word = complete(server, n_predict=20, stop=["\n", " Paris"])
    assert (word["content"], word["stop_type"], word["stopping_word"]) == ("", "word", " Paris")
    chat = server.post("/apply-template", {"messages": [{"role": "user", "content": "Say hi."}]}).json()["prompt"]
    assert complete(server, chat, n_predict=200)["stop_type"] == "eos"
    assert complete(server, chat, n_predict=200, ignore_eos=True)["stop_type"] == "limit"
    never = [[i, False] for i in complete(server, n_predict=1, return_tokens=True)["tokens"]]
    assert complete(server, n_predict=1, logit_bias=never)["content"] != complete(server, n_predict=1)["content"]
    assert complete(server, n_predict=1, logit_bias=[[" Lyon", 100]])["content"] in " Lyon"
    one = complete(server, n_predict=4, grammar='root ::= "a"', logit_bias=[["a", False]])
    assert (one["content"], one["stop_type"]) == ("a", "eos")  # there is nothing else to draw


def test_lines_that_begin_too_far_left(server):
    """n_indent ends an answer in front of what stands to the left of it; a stream says the same."""
    code = "def f(a):\n    if a:\n        return 1\n    return"
    free = complete(server, code, n_predict=60)["content"]
    lines = free.split("\n")
    assert len(lines) > 2
    least = complete(server, code, n_predict=60, n_indent=1)
    assert free.startswith(least["content"]) and len(least["content"]) < len(free)
    assert all(line.startswith((" ", "\t")) or not line for line in least["content"].split("\n")[1:])
    assert least["stop_type"] == "limit" and least["stopping_word"] == ""
    assert "".join(c["content"] for c in chunks(server, prompt=code, n_predict=60, n_indent=1, temperature=0)) == least["content"]


def test_a_prompt_that_is_only_computed(server):
    """What begins alike afterwards finds it in the prefix cache."""
    text = "All happy families are alike; each unhappy one is unhappy in its own way. " * 6
    warm = complete(server, text, n_predict=0, cache_prompt=True, response_fields=["content", "tokens_evaluated", "stop_type"])
    assert warm == {"content": "", "tokens_evaluated": warm["tokens_evaluated"], "stop_type": "limit"}
    assert complete(server, text + "And", n_predict=1)["tokens_cached"] >= warm["tokens_evaluated"] - 16
    assert [c["stop"] for c in chunks(server, prompt=text, n_predict=0)] == [True]


def test_fields_that_a_client_picks(server):
    names = ["content", "timings/predicted_n", "generation_settings/n_predict", "generation_settings/none", "x", ""]
    picked = complete(server, n_predict=2, response_fields=names)
    assert set(picked) == set(names[:3]) and picked["timings/predicted_n"] == picked["generation_settings/n_predict"] == 2
    *parts, last = chunks(server, prompt=PROMPT, n_predict=2, temperature=0, response_fields=names[1:])
    assert "".join(c["content"] for c in parts) == picked["content"] and set(last) == set(names[1:3])
    assert complete(server, n_predict=1, response_fields=[""]) == {}
    twice = server.post("/completion", {"prompt": PROMPT, "n_predict": 1, "response_fields": ["prompt", "model"] * 100}).text
    assert twice.count('"prompt":') == twice.count('"model":') == 1, "an object has a key once"


def test_forms(server):
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], "additionalProperties": False}
    assert json.loads(complete(server, n_predict=60, json_schema=schema)["content"])["a"] in "xy"
    grammar = '# a comment\nroot ::= word (", " word){2} "."\nword ::= [a-c]+ | "z"\n'
    said = complete(server, n_predict=80, grammar=grammar, temperature=1.5, seed=1)
    assert said["stop_type"] == "limit" or (said["content"].endswith(".") and said["content"].count(", ") == 2)
    assert refusal(server, prompt="a", grammar="root ::= nobody")["param"] == "grammar"


def test_samplers(server):
    greedy = complete(server, n_predict=8)["content"]
    fields = {"prompt": PROMPT, "n_predict": 8, "seed": 11, "temperature": 2.0, "top_k": 1}
    assert ask(server, **fields, samplers=["top_k"])["content"] == greedy
    assert ask(server, **fields, samplers=["temperature"])["content"] != greedy
    assert ask(server, **{**fields, "top_k": 40}, samplers=["top_k", "top_p", "infill"])["content"] == greedy
    assert refusal(server, prompt="a", samplers=["best"])["param"] == "samplers"


def test_what_is_refused(server):
    for field in ("mirostat", "dynatemp_range", "xtc_probability", "dry_multiplier", "post_sampling_probs"):
        error = refusal(server, prompt="a", **{field: 1})
        assert (error["param"], error["code"]) == (field, "unsupported_parameter")
    assert refusal(server, prompt="a", repeat_penalty=1.1, repeat_last_n=64)["param"] == "repeat_last_n"
    assert refusal(server, prompt="a", n_probs=50)["param"] == "n_probs"
    assert refusal(server, prompt={"prompt_string": "a", "multimodal_data": ["x"]})["param"] == "prompt"


def test_one_line_and_one_count_for_each(server):
    before = server.wait_idle()
    reply = server.post("/completion", {"prompt": "a", "n_predict": 2, "ignore_eos": True, "t_max_predict_ms": 1, "id_slot": 0})
    line = server.log_line(reply)
    assert (line["path"], line["completion_tokens"], line["ignored_fields"]) == ("/completion", 2, "t_max_predict_ms,id_slot")
    after = server.wait_idle()
    assert after["flashd_requests_admitted_total"] == before["flashd_requests_admitted_total"] + 1


def test_the_same_bytes_among_others(server):
    bodies = [{"prompt": f"{PROMPT} {i}", "n_predict": 24, "temperature": 0.9, "seed": i, "n_probs": 1, "return_tokens": True} for i in range(12)]

    def told(body):
        answer = ask(server, **body)
        return answer["content"], answer["tokens"], answer["completion_probabilities"]

    alone = [told(body) for body in bodies]
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        assert list(pool.map(told, bodies)) == alone


# ---- gaps ----

def expected(before, behind, *extra, begun=""):
    chunks = [[FILE, *f"{name}\n{text}".encode()] for name, text in extra]
    head = [REPOSITORY, *b"project\n", *sum(chunks, []), FILE, *b"file\n"] if extra else []
    return [*head, PREFIX, *before.encode(), SUFFIX, *behind.encode(), MIDDLE, *begun.encode()]


def told_prompt(server, ids):
    """The prompt's text as an answer has it."""
    return ask(server, prompt=ids, n_predict=0)["prompt"]


# As llama.vim's documentation has its requests: one that fills a gap, and one that only warms up what stands beside it.
VIM = {"id_slot": 0, "input_prefix": "def f(a):\n", "input_suffix": "\n    return b\n", "input_extra": [
           {"text": "import os\n", "time": [0, 1], "filename": "a.py"}, {"text": "x = 1\n", "filename": "b.py"}],
       "prompt": "    b = ", "n_predict": 16, "n_indent": 4, "top_k": 40, "top_p": 0.9, "stream": False,
       "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True, "t_max_prompt_ms": 500, "t_max_predict_ms": 1000, "stop": [],
       "response_fields": ["content", "timings/prompt_n", "timings/prompt_ms", "timings/predicted_n", "timings/predicted_ms",
                           "truncated", "tokens_cached"]}


def test_llama_vim(coder):
    answer = ask(coder, "/infill", **VIM)
    assert set(answer) == set(VIM["response_fields"]) and answer["truncated"] is False
    whole = ask(coder, "/infill", **{**VIM, "response_fields": []})
    ids = expected(VIM["input_prefix"], VIM["input_suffix"], ("a.py", "import os\n"), ("b.py", "x = 1\n"), begun=VIM["prompt"])
    assert whole["content"] == answer["content"] and whole["prompt"] == told_prompt(coder, ids)
    assert whole["tokens_evaluated"] == len(ids) and whole["generation_settings"]["temperature"] == 0
    same = ask(coder, prompt=ids, n_predict=16, n_indent=4, temperature=0, stop_token_ids=list(range(END, END + len(FIM))))
    assert same["content"] == whole["content"]
    warm = {**VIM, "input_prefix": "", "input_suffix": "", "prompt": "", "n_predict": 0, "t_max_prompt_ms": 1, "t_max_predict_ms": 1,
            "samplers": [], "response_fields": [""]}
    assert ask(coder, "/infill", **warm) == {}
    assert "".join(c["content"] for c in chunks(coder, "/infill", **{**VIM, "stream": True, "response_fields": []})) == whole["content"]


def test_gaps_elsewhere(coder):
    """OpenAI's suffix, and Ollama's; control tokens that a client types are plain text."""
    before, behind = "a = <|fim_middle|>", " + c"
    ids = expected(before, behind)
    fields = {"max_tokens": 8, "temperature": 0, "return_token_ids": True}
    answer = coder.post("/v1/completions", {"prompt": before, "suffix": behind, **fields}).json()
    assert answer["choices"][0]["prompt_token_ids"] == ids
    same = coder.post("/v1/completions", {"prompt": ids, "stop_token_ids": list(range(END, END + len(FIM))), **fields}).json()
    assert same["choices"][0]["token_ids"] == answer["choices"][0]["token_ids"]
    ollama = coder.post("/api/generate", {"prompt": before, "suffix": behind, "stream": False, "options": {"num_predict": 8, "temperature": 0}})
    assert ollama.json()["response"] == answer["choices"][0]["text"] and ollama.json()["prompt_eval_count"] == len(ids)
    assert refusal(coder, "/v1/completions", prompt=["a"], suffix="b")["param"] == "suffix"
    assert refusal(coder, "/infill", input_suffix="b")["param"] == "input_prefix"


def test_long_files_are_cut_around_the_gap(coder):
    before, behind = "".join(f"line {i}\n" for i in range(200)), "".join(f"end {i}\n" for i in range(200))
    extra = [{"filename": "old.py", "text": "o" * 300}, {"filename": "new.py", "text": "n" * 10}]
    answer = ask(coder, "/infill", input_prefix=before, input_suffix=behind, input_extra=extra, n_predict=100)
    assert answer["tokens_evaluated"] <= 412 and answer["prompt"].endswith(MIDDLE_TEXT)
    head, _, rest = answer["prompt"].partition("<|fim_prefix|>")
    kept, _, tail = rest.partition("<|fim_suffix|>")
    assert before.endswith(kept) and behind.startswith(tail.removesuffix(MIDDLE_TEXT)) and 3 * len(tail) < len(rest) + 64
    short = ask(coder, "/infill", input_prefix="a", input_suffix="b", input_extra=extra, n_predict=100)["prompt"]
    assert "new.py\n" in short and "old.py\n" in short
    longer = [{"filename": "older.py", "text": "o" * 400}, extra[1]]
    assert "older.py" not in ask(coder, "/infill", input_prefix="a", input_suffix="b", input_extra=longer, n_predict=100)["prompt"]





def test_models_without_tokens_for_gaps(server):
    for path, body in (("/infill", {"input_prefix": "a", "input_suffix": "b"}), ("/v1/completions", {"prompt": "a", "suffix": "b"})):
        error = refusal(server, path, **body)
        assert error["code"] == "unsupported_value" and "no token for the prefix suffix middle" in error["message"]


def test_a_client_that_leaves(coder):
    """Few tokens of this model take no time: an answer is as long as it may be, and asked for until one was left."""
    body = {**VIM, "stream": True, "n_predict": 400, "ignore_eos": True, "n_indent": 0, "response_fields": []}
    for _ in range(50):
        with httpx.stream("POST", coder.url + "/infill", json=body, timeout=60) as reply:
            next(reply.iter_lines())
        coder.wait_idle()
        if '"client_gone"' in coder.log():
            return
    pytest.fail("no answer lasted until its client had left")
