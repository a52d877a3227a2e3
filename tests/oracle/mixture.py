"""mixture.py - requests of every kind the API takes, each a function of its number alone.

A request is (path, body). Every prompt carries a word that no other prompt has (its canary), so that text which leaks from one
request into another can be seen; requests of one family share a long beginning, so that they meet in the prefix cache.
"""
import random

NUM_FAMILIES = 8
WORDS = """the a river mountain code python list number seven prime music sky blue why how what is of in on under model server
token cache stream paris france station winter bread violin thunder copper garden letter window silver harbour""".split()
SCRIPTS = ["naïve café", "Съешь же ещё", "天地玄黃", "👍🏽 👨‍👩‍👧", "नमस्ते", "한국어", "def f(x):\n\treturn x**2\n", "1,234.5 + 6e-7 ="]
STOPS = ["\n\n", ".", " and", "the ", "?", "is", "</", "zzz"]


def canary(number):
    return "k%08x" % random.Random(number * 2654435761 % 2**32).getrandbits(32)


def words(rng, count):
    return " ".join(rng.choice(WORDS if rng.random() < 0.95 else SCRIPTS) for _ in range(count))


def beginning(rng):
    """A shared beginning of some blocks, or nothing."""
    if rng.random() < 0.5:
        return ""
    family = random.Random("family %d" % rng.randrange(NUM_FAMILIES))
    return words(family, family.choice([15, 40, 60])) + "\n"


def text_of(rng, number):
    return "%s%s: %s" % (beginning(rng), canary(number), words(rng, rng.choice([0, 1, 3, 10, 20, 50])))


def set_sampling(rng, body):
    body["seed"] = rng.choice([0, 1, rng.getrandbits(40), -rng.getrandbits(20)])
    body["temperature"] = rng.choice([0, 0, 0.3, 0.7, 1.0, 1.5])
    for name, chance, values in (
        ("top_p", 0.3, [0.1, 0.5, 0.9, 1]),
        ("top_k", 0.3, [1, 2, 40, 0]),
        ("min_p", 0.2, [0.02, 0.2]),
        ("presence_penalty", 0.2, [-1, 0.5, 2]),
        ("frequency_penalty", 0.2, [-0.5, 0.3, 1.5]),
        ("repetition_penalty", 0.2, [0.9, 1.1, 1.5]),
        ("logit_bias", 0.15, [{"260": 5, "28": -100}, {str(i): -2 for i in range(200, 260)}]),
    ):
        if rng.random() < chance:
            body[name] = rng.choice(values)


def set_ending(rng, body):
    body["max_tokens"] = rng.choice([1, 2, 8, 16, 16, 24, 40]) if rng.random() < 0.95 else 120
    if rng.random() < 0.3:
        body["stop"] = rng.choice([rng.choice(STOPS), rng.sample(STOPS, 3)])
        body["include_stop_str_in_output"] = rng.random() < 0.3
    if rng.random() < 0.15:
        body["stop_token_ids"] = [rng.choice([28, 30, 198, 253])]
    if rng.random() < 0.3:
        body["ignore_eos"] = True
    if rng.random() < 0.2:
        body["min_tokens"] = rng.randrange(0, body["max_tokens"] + 1)
    if rng.random() < 0.25:
        body["n"] = rng.choice([2, 3])


def set_stream(rng, body):
    if rng.random() < 0.5:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}


def completion(rng, number):
    body = {}
    kind = rng.random()
    if kind < 0.7:
        body["prompt"] = text_of(rng, number)
    elif kind < 0.85:
        body["prompt"] = [text_of(rng, number), canary(number) + " and " + words(rng, 5)]
    else:
        family = random.Random("ids %d" % rng.randrange(NUM_FAMILIES))
        shared = [family.randrange(20, 49000) for _ in range(100)][: rng.choice([0, 16, 48, 100])]
        body["prompt"] = shared + [rng.randrange(20, 49000) for _ in range(rng.choice([1, 15, 16, 17, 70]))]
    if rng.random() < 0.3:
        body["logprobs"] = rng.choice([0, 1, 5])
    if rng.random() < 0.1:
        body["echo"] = True
    return "/v1/completions", body


def chat(rng, number):
    messages = [{"role": "system", "content": beginning(rng) + "Be brief."}] if rng.random() < 0.5 else []
    for _ in range(rng.choice([0, 0, 1, 2])):
        messages += [{"role": "user", "content": words(rng, 6)}, {"role": "assistant", "content": words(rng, 12)}]
    content = text_of(rng, number)
    messages.append({"role": "user", "content": [{"type": "text", "text": content}] if rng.random() < 0.2 else content})
    body = {"messages": messages}
    if rng.random() < 0.3:
        body["logprobs"] = True
        body["top_logprobs"] = rng.choice([0, 2, 5])
    return "/v1/chat/completions", body


def calling(rng, number):
    """A chat with tools, which must be called or may be; perhaps one has been."""
    parameters = {"type": "object", "required": ["city"], "additionalProperties": False,
                  "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer"}}}
    tools = [{"type": "function", "function": {"name": name, "parameters": parameters, "strict": rng.random() < 0.5}}
             for name in ("weather", "time")]
    messages = [{"role": "user", "content": canary(number) + " " + words(rng, 5)}]
    if rng.random() < 0.3:
        call = {"id": "call_1", "type": "function", "function": {"name": "time", "arguments": '{"city": "Zürich"}'}}
        messages = [{"role": "user", "content": words(rng, 3)}, {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "call_1", "content": words(rng, 3)}, *messages]
    named = {"type": "function", "function": {"name": "weather"}}
    return "/v1/chat/completions", {"messages": messages, "tools": tools, "tool_choice": rng.choice(["auto", "required", "required", named]),
                                    "parallel_tool_calls": rng.random() < 0.5}


def set_form(rng, body):
    """The answer must have a form."""
    schema = {"type": "object", "required": ["a"], "additionalProperties": False,
              "properties": {"a": {"type": "string", "maxLength": 12}, "b": {"enum": [1, "two", None]},
                             "c": {"type": "array", "items": {"type": "integer"}, "maxItems": 3}}}
    body.update(rng.choice([
        {"response_format": {"type": "json_schema", "json_schema": {"name": "form", "schema": schema}}},
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"json": schema, "disable_any_whitespace": True}},
        {"structured_outputs": {"choice": rng.sample(WORDS, 3)}},
        {"structured_outputs": {"regex": rng.choice([r"[a-z]+( [a-z]+){2,9}[.?!]", r"\d{1,3}(,\d{3})*", "(yes|no)+ ?"])}},
        {"guided_grammar": 'root ::= item (", " item)* "."\nitem ::= [a-z]+ | "\\"" [^"]* "\\""'},
    ]))


def has_form(body):
    """Then an answer may be whole before min_tokens."""
    return any(name in body for name in ("response_format", "structured_outputs", "guided_grammar", "tools"))


def embedding(rng, number):
    """Texts, or ids that share a beginning, so that they meet in the prefix cache."""
    body = {"encoding_format": rng.choice(["float", "base64"])}
    if rng.random() < 0.7:
        body["input"] = [text_of(rng, number) for _ in range(rng.choice([1, 1, 2, 5]))]
    else:
        body["input"] = [completion(rng, number)[1]["prompt"] for _ in range(2)]
        body["input"] = [ids for ids in body["input"] if isinstance(ids, list) and isinstance(ids[0], int)] or canary(number)
    if rng.random() < 0.2:
        body["dimensions"] = rng.choice([1, 16, 64])
    return "/v1/embeddings", body


def crowding(number):
    """A short prompt with a long answer: a few of them at once outgrow a small pool, whatever the machine's speed."""
    rng = random.Random("crowding %d" % number)
    body = {"prompt": canary(number) + ": " + words(rng, 10), "max_tokens": 112, "ignore_eos": True}
    set_sampling(rng, body)
    set_stream(rng, body)
    return "/v1/completions", body


def request(number):
    rng = random.Random("request %d" % number)
    if rng.random() < 0.1:
        return embedding(rng, number)
    path, body = rng.choices([completion, chat, calling], [0.55, 0.35, 0.1])[0](rng, number)
    set_sampling(rng, body)
    set_ending(rng, body)
    set_stream(rng, body)
    if rng.random() < 0.1:
        body["cache_salt"] = "tenant %d" % rng.randrange(3)
    if rng.random() < 0.2 and "tools" not in body:
        set_form(rng, body)
    return path, body
