"""Formats of tool calls: for each template what was derived, and two laws over generated conversations:
parse(render(x)) == x and render(parse(y)) == y, however the text is cut.

FLASHD_TEMPLATES names a folder of chat templates (../shared/data/chat_templates if it is there); without it only those
of tool_templates/ are looked at. FLASHD_MORE_TEMPLATES names those of gather_templates.py. tool_formats.json is the ratchet; FLASHD_UPDATE=1 writes it anew."""
import copy
import json
import os
import pathlib
import random
import re

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAM = ROOT / "build/tests/golden/tools_main"
RATCHET = HERE / "tool_formats.json"
OWN = HERE / "tool_templates"
GIVEN = pathlib.Path(os.environ.get("FLASHD_TEMPLATES", ROOT / "../shared/data/chat_templates"))
MORE = os.environ.get("FLASHD_MORE_TEMPLATES")
CONVERSATIONS = 75
VARIABLES = {"bos_token": "<bos>", "eos_token": "<eos>"}
USER = "Qu3stion"
REASONING = ("reasoning_content", "reasoning", "thinking")

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather", "parameters": {
            "type": "object", "required": ["city"], "properties": {
                "city": {"type": "string", "description": "City"},
                "days": {"type": "integer", "description": "Days"},
                "ratio": {"type": "number", "description": "Ratio"},
                "exact": {"type": "boolean", "description": "Exact"},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "Note"},
                "where": {"type": "object", "description": "Where", "additionalProperties": {"type": "number"}},
                "tags": {"type": "array", "description": "Tags", "items": {"type": "string"}}}}}},
    {"type": "function", "function": {
        "name": "write-file_2", "description": "Writes", "parameters": {
            "type": "object", "required": ["path", "text"], "properties": {
                "path": {"type": "string", "description": "Path"},
                "text": {"type": "string", "description": "Text"}}}}},
    {"type": "function", "function": {
        "name": "ping", "description": "Nothing", "parameters": {"type": "object", "properties": {}, "required": []}}},
]
WORDS = ["sun", "Zürich", "日本語", "🦜", "a\"b", "it's", "x < y > z", "back\\slash", "{curly}", "[1, 2]", "f(a=1)", "tab\there",
         "17", "true", "null", "-1.5", "C:\\new", "50%", "e\u0301", "a, b: c", "</b>", "&amp;", "$(x)", "# no"]


KEYS = ["k", "a key ", "Content-Type", "src/é.c", "$x.y@z (1)"]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def text(self, most=5):
        return " ".join(self.random.choice(WORDS) for _ in range(self.random.randint(1, most)))

    def lines(self):
        return "\n".join(self.text() for _ in range(self.random.randint(1, 4)))

    def value(self, depth=2):
        kinds = ["text", "integer", "float", "boolean", "null", "list", "object"][:7 if depth else 5]
        kind = self.random.choice(kinds)
        if kind == "list":
            return [self.value(depth - 1) for _ in range(self.random.randint(0, 3))]
        if kind == "object":
            return {f"{self.random.choice(KEYS)}{i}": self.value(depth - 1) for i in range(self.random.randint(0, 3))}
        return {"text": self.text(), "integer": self.random.randint(-9, 10**6), "float": self.random.choice([0.5, -2.25, 3.125]),
                "boolean": self.random.random() < 0.5, "null": None}[kind]

    def arguments(self, function):
        properties, required = function["parameters"]["properties"], function["parameters"]["required"]
        make = {"string": self.lines, "integer": lambda: self.random.randint(-5, 99), "boolean": lambda: self.random.random() < 0.5,
                "number": lambda: self.random.choice([0.5, 7, -1.25]),
                "object": lambda: {f"k{i}": self.value() for i in range(self.random.randint(0, 3))},
                "array": lambda: [self.value() for _ in range(self.random.randint(0, 3))]}
        names = [n for n in properties if n in required or self.random.random() < 0.5]
        if len(names) > 1 and self.random.random() < 0.2:
            names = names[:1]
        values = {}
        for name in names:
            kind = properties[name].get("type")
            values[name] = make[kind]() if kind else self.random.choice([None, "some note"])
        return values

    def message(self, most_calls):
        calls = []
        for i in range(self.random.randint(0, most_calls)):
            function = self.random.choice(TOOLS)["function"]
            calls.append({"id": f"id{i}ABCDE9", "type": "function",
                          "function": {"name": function["name"], "arguments": self.arguments(function)}})
        message = {"role": "assistant", "content": self.lines() if not calls or self.random.random() < 0.5 else ""}
        if self.random.random() < 0.4:
            message |= dict.fromkeys(REASONING, "thinking of it\n\nand of " + self.text())
        if calls:
            message["tool_calls"] = calls
        return message


def reasoning_of(message):
    return message.get("reasoning_content", "")


class Model:
    """A template with its format: renders answers alone and parses them."""

    def __init__(self, run, source):
        self.run = run
        self.load = {"template": source, "variables": VARIABLES}
        self.format = run([self.load])[0]

    def jobs(self, jobs):
        return self.run([self.load] + jobs)[1:]

    def context(self, messages, thinks, **more):
        context = {"messages": messages, **VARIABLES, **more}
        if thinks:
            context |= {"enable_thinking": True, "thinking": True, "thinking_mode": "enabled", "reasoning_effort": "high"}
        return {"prompt": context, "list": TOOLS}

    def prepared(self, messages):
        """As the server hands them to the template: calls as it wants them, or within the content."""
        messages = copy.deepcopy(messages)
        writes = [{"write": m["tool_calls"]} for m in messages if m.get("tool_calls") and not self.format["renders_calls"]]
        written = iter(self.jobs(writes)) if writes else iter(())
        for m in messages:
            if not m.get("tool_calls"):
                continue
            if not self.format["renders_calls"]:
                kept = m["content"] if self.format["content_beside_calls"] == "kept" else ""
                m["content"] = (kept + "\n" if kept else "") + next(written)["text"]
                del m["tool_calls"]
                continue
            if self.format["wants_argument_text"]:
                for call in m["tool_calls"]:
                    call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
            if self.format["content_beside_calls"] != "kept":
                m["content"] = None if self.format["content_beside_calls"] == "null" else ""
        return messages

    def answers(self, messages, thinks):
        """-> for each answer its text alone, or None where the template refuses."""
        user = {"role": "user", "content": USER}
        rendered = self.jobs([self.context([user, m], thinks, add_generation_prompt=False) for m in self.prepared(messages)])
        return [self.alone(r["text"], m) if "text" in r else None for r, m in zip(rendered, messages)]

    def alone(self, text, message):
        text = text[text.rindex(USER) + len(USER):]
        header = self.format["header"]
        loosely = re.match(r"\s*".join(["", *map(re.escape, "".join(header.split())), ""]), text)
        if loosely and not text.startswith(header):  # templates are careless with white space
            header = loosely[0]
        while not text.startswith(header):
            header = header[:-1]
        if header != self.format["header"] and header.rfind("<") > header.rfind(">"):
            header = header[:header.rfind("<")]
        end = self.format["calls_end" if message.get("tool_calls") else "answer_end"]
        return text[len(header):].removesuffix(end)

    def parse(self, texts, opened, cuts=None):
        jobs = [{"parse": t, "tools": TOOLS, "in_reasoning": o, "cuts": cuts or []} for t, o in zip(texts, opened)]
        return self.jobs(jobs)


def expected(model, message, text):
    """What the text can hold of the message: a template may leave content or reasoning out."""
    has_calls = bool(message.get("tool_calls"))
    content = message["content"] if not has_calls or model.format["content_beside_calls"] == "kept" else ""
    reasoning = reasoning_of(message) if reasoning_of(message) and reasoning_of(message) in text else ""
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", [])]
    return content, reasoning, calls


def got(answer):
    return answer["content"], answer["reasoning"], [(c["name"], json.loads(c["arguments"])) for c in answer["calls"]]


def message_of(answer, like):
    message = {"role": "assistant", "content": answer["content"]}
    if answer["reasoning"]:
        message |= dict.fromkeys(REASONING, answer["reasoning"])
    if answer["calls"]:
        message["tool_calls"] = [
            {"id": old["id"], "type": "function", "function": {"name": c["name"], "arguments": json.loads(c["arguments"])}}
            for c, old in zip(answer["calls"], like["tool_calls"])]
    return message


def check(run, source, seed):
    """-> (what the table says of the template, the first thing that was wrong or None)."""
    model = Model(run, source)
    generator = Generator(seed)
    entry = {"result": model.format["origin"], "arguments": model.format["arguments"]}
    most = 3 if model.format["is_parallel"] else 1
    thinks = bool(model.format.get("think_close"))
    messages = [generator.message(most) for _ in range(CONVERSATIONS)]
    texts = model.answers(messages, thinks)
    pairs = [(m, t) for m, t in zip(messages, texts) if t is not None]
    # A template that ends the turn within three calls cannot say them.
    end = model.format["calls_end"]
    pairs = [(m, t) for m, t in pairs if not (len(m.get("tool_calls", [])) > 1 and end.strip() and end in t)]
    entry["conversations"] = len(pairs)
    opened = [bool(reasoning_of(m)) and reasoning_of(m) in t and model.format.get("think_open", "") not in t for m, t in pairs]
    parsed = model.parse([t for _, t in pairs], opened)
    again = model.answers([message_of(a, m) for a, (m, _) in zip(parsed, pairs)], thinks)
    bytewise = model.parse([t for _, t in pairs], opened, list(range(1, 4000)))
    for (m, t), a, b, r in zip(pairs, parsed, bytewise, again):
        if got(a) != expected(model, m, t):
            return entry, ("parse(render(x)) is not x", t, got(a), expected(model, m, t))
        if a != b:
            return entry, ("a cut text is parsed otherwise", t, a, b)
        if r != t:
            return entry, ("render(parse(y)) is not y", t, r)
    return entry, None


def check_all(run, folder):
    table = {}
    for number, path in enumerate(sorted(folder.glob("*.jinja"))):
        entry, wrong = check(run, path.read_text(encoding="utf-8"), number)
        if wrong:
            entry["result"] = "fails"
            print(path.name, *wrong, sep="\n    ")
        table[path.stem] = entry
    return table


def compare(name, table):
    """The ratchet: nothing gets worse than what is written down."""
    ranks = ["fails", "generic", "family", "derived"]
    kept = json.loads(RATCHET.read_text(encoding="utf-8")) if RATCHET.exists() else {}
    if os.environ.get("FLASHD_UPDATE"):
        kept[name] = table
        RATCHET.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for template, entry in table.items():
        old = kept[name].get(template, {"result": "fails"})
        assert ranks.index(entry["result"]) >= ranks.index(old["result"]), (template, entry, old)
        assert entry.get("conversations", 0) >= old.get("conversations", 0), (template, entry, old)


def test_own_templates(run):
    compare("own", check_all(run, OWN))


def test_templates_of_packages(run):
    if not MORE:
        pytest.skip("FLASHD_MORE_TEMPLATES names no folder of chat templates (gather_templates.py makes one)")
    compare("packages", check_all(run, pathlib.Path(MORE)))


def test_given_templates(run):
    if not GIVEN.is_dir():
        pytest.skip("FLASHD_TEMPLATES names no folder of chat templates")
    compare("given", check_all(run, GIVEN))
