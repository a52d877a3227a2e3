"""Random schemas and values that tend to be valid, for test_grammar.py. What Python's patterns and floats do otherwise is left out."""
import itertools
import json
import random

NAMES = ["a", "b", "ab", "c", "a b", "ü", "x-1"]
TEXTS = ["", "a", "b", "ab", "abc", "aa", "ü", "🦜", "a\"b", "a\\b", "\t", "2020-01-31", "aaaa", "x1", "A", "17"]
NUMBERS = [0, 1, -1, 2, 3, 5, 7, 10, -10, 0.5, 1.5, -0.25, 2.5, 100, 1000, 0.1, 0.01, 99.99]
PATTERNS = ["^a", "b$", "^[a-c]*$", "a|b", "[0-9]", "^.{2}$", "^(ab)+$", "\\S", "^[a-z]+$", "^(?!a)", "^$", "ü", "^((?!ab).)*$",
            "(?<=a)b", "(?<!a)b", "^(?=.*[a-c])(?!.*aa).+$", "^(?=.{2})\\S+(?<!b)$"]
TYPES = ["string", "integer", "number", "boolean", "null", "array", "object"]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def maybe(self, share):
        return self.random.random() < share

    def value(self, depth):
        kind = self.random.random()
        if depth <= 0 or kind < 0.6:
            return self.random.choice([None, True, False, *NUMBERS, *TEXTS])
        if kind < 0.8:
            return [self.value(depth - 1) for _ in range(self.random.randint(0, 3))]
        return {name: self.value(depth - 1) for name in self.random.sample(NAMES, self.random.randint(0, 3))}

    def schema(self, depth):
        """Each keyword with a share of its own."""
        choose, count = self.random.choice, self.random.randint
        one = lambda: self.schema(depth - 1)  # noqa: E731
        some = lambda least, most: [one() for _ in range(count(least, most))]  # noqa: E731
        if self.maybe(0.06):
            return self.maybe(0.6)
        kinds = [choose([*TYPES, "array", "object", "object"])]
        schema = {"type": kinds[0]}
        if self.maybe(0.2):
            kinds = [*TYPES]
            del schema["type"]
        elif self.maybe(0.15):
            kinds = schema["type"] = self.random.sample(TYPES, 3)
        if self.maybe(0.12):
            return {**schema, "enum": [self.value(2) for _ in range(count(1, 5))]}
        keywords = []
        if "string" in kinds:
            keywords += [("minLength", 0.25, lambda: count(0, 3)), ("maxLength", 0.25, lambda: count(0, 5)),
                         ("pattern", 0.25, lambda: choose(PATTERNS)), ("format", 0.06, lambda: choose(["date", "uuid", "ipv4"]))]
        if "integer" in kinds or "number" in kinds:
            keywords += [(name, 0.15, lambda: choose(NUMBERS))
                         for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")]
            keywords += [("multipleOf", 0.15, lambda: choose([1, 2, 3, 5, 7, 0.5, 0.1, 0.25, 10]))]
        if "array" in kinds and depth > 0:
            keywords += [("items", 0.5, one), ("prefixItems", 0.25, lambda: some(1, 3)), ("minItems", 0.3, lambda: count(0, 3)),
                         ("maxItems", 0.3, lambda: count(0, 4)), ("contains", 0.12, one), ("uniqueItems", 0.1, lambda: True)]
        if "object" in kinds and depth > 0:
            keywords += [("properties", 0.7, lambda: {n: one() for n in self.random.sample(NAMES, count(1, 4))}),
                         ("required", 0.5, lambda: self.random.sample(NAMES, count(0, 3))),
                         ("additionalProperties", 0.35, lambda: one() if self.maybe(0.6) else False),
                         ("patternProperties", 0.15, lambda: {choose(PATTERNS): one()}),
                         ("propertyNames", 0.1, lambda: choose([{"pattern": choose(PATTERNS)}, {"maxLength": 2}, {"enum": NAMES[:4]}])),
                         ("minProperties", 0.15, lambda: count(0, 3)), ("maxProperties", 0.15, lambda: count(0, 4)),
                         ("dependentRequired", 0.08, lambda: {choose(NAMES): self.random.sample(NAMES, count(1, 2))})]
        if depth > 0:
            keywords += [("anyOf", 0.12, lambda: some(1, 3)), ("allOf", 0.08, lambda: some(1, 2)), ("oneOf", 0.1, lambda: some(1, 3)),
                         ("not", 0.06, one), ("if", 0.05, one), ("then", 0.05, one), ("else", 0.05, one)]
        for name, share, make in keywords:
            if self.maybe(share):
                schema[name] = make()
        return schema

    def fitting(self, schema, depth=3):
        """A value that tends to be valid."""
        if not isinstance(schema, dict) or depth < 0 or self.maybe(0.04):
            return self.value(2)
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        for name in ("anyOf", "oneOf", "allOf"):
            part = self.random.choice(schema.get(name, [True]))
            if isinstance(part, dict) and self.maybe(0.5):
                return self.fitting({**{k: v for k, v in schema.items() if k != name}, **part}, depth - 1)
        kind = schema.get("type", TYPES)
        kind = kind if isinstance(kind, str) else self.random.choice(kind)
        if kind == "array":
            least = schema.get("minItems", 0)
            prefix, rest = schema.get("prefixItems", []), schema.get("items", True)
            rest = schema["contains"] if "contains" in schema and self.maybe(0.4) else rest
            number = self.random.randint(least, max(least, min(schema.get("maxItems", 3), 3)))
            return [self.fitting(prefix[i] if i < len(prefix) else rest, depth - 1) for i in range(number)]
        if kind == "object":
            listed = schema.get("properties", {})
            names = [*schema.get("required", []), *(n for n in listed if self.maybe(0.5)), *(n for n in NAMES if self.maybe(0.08))]
            return {n: self.fitting(listed.get(n, schema.get("additionalProperties", True)), depth - 1) for n in dict.fromkeys(names)}
        return self.random.choice({"string": TEXTS, "integer": [n for n in NUMBERS if n == int(n)], "number": NUMBERS,
                                   "boolean": [True, False], "null": [None]}[kind])


def orders(value, most=120):
    """Its text with properties in any order."""
    if isinstance(value, dict):
        inner = {name: [f"{json.dumps(name, ensure_ascii=False)}: {text}" for text in orders(v, 6)] for name, v in value.items()}
        texts = (parts for names in itertools.permutations(value)
                 for parts in itertools.islice(itertools.product(*(inner[n] for n in names)), 6))
        return ["{" + ", ".join(parts) + "}" for parts in itertools.islice(texts, most)]
    if isinstance(value, list):
        return ["[" + ", ".join(parts) + "]" for parts in itertools.islice(itertools.product(*(orders(v, 4) for v in value)), most)]
    return [json.dumps(value, ensure_ascii=False)]
