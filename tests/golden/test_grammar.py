"""JSON schemas: the official test suite as a ratchet, MaskBench's instances, and random answers against jsonschema.

FLASHD_SCHEMA_SUITE names a folder (or .tar.xz) of the suite's draft2020-12 tests, FLASHD_MASKBENCH one of MaskBench's
files (those of ../shared/data if they are there); without them those tests say that they were skipped. FLASHD_UPDATE=1 writes schema_suite.json anew."""
import collections
import decimal
import glob
import itertools
import json
import os
import pathlib
import random
import re
import sys
import tarfile

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PROGRAM = ROOT / "build/tests/golden/grammar_main"
RATCHET = HERE / "schema_suite.json"
SCHEMAS = HERE / "schemas.json"
SHARED = {"FLASHD_SCHEMA_SUITE": ROOT / "../shared/data/json_schema_suite/draft2020-12.tar.xz",
          "FLASHD_MASKBENCH": ROOT / "../shared/data/maskbench/sample.tar.xz"}
# What MaskBench's sample passes at least.
PASSING = 0.92


def read_files(variable):
    source = os.environ.get(variable, SHARED[variable])
    if not os.path.exists(source):
        pytest.skip(f"{variable} names no folder or archive")
    if os.path.isdir(source):
        for path in sorted(glob.glob(source + "/**/*.json", recursive=True)):
            yield os.path.relpath(path, source), json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    else:
        with tarfile.open(source) as archive:
            for member in sorted(archive.getmembers(), key=lambda m: m.name):
                if member.name.endswith(".json"):
                    yield member.name, json.load(archive.extractfile(member))


def dump(data):
    return json.dumps(data, ensure_ascii=False)


def has_nul(data):
    return "\\u0000" in json.dumps(data)


def test_official_suite(run):
    """Per file: passed, rejected though valid, refused. Nothing that is not valid is accepted; formats are enforced, so the
    tests that want them ignored do not count."""
    counts, wrong = collections.OrderedDict(), []
    for name, groups in read_files("FLASHD_SCHEMA_SUITE"):
        name = name.split("draft2020-12/")[-1]
        groups = [g for g in groups if not has_nul(g)]
        lines = [{"schema": dump(g["schema"]), "texts": [dump(t["data"]) for t in g["tests"]]} for g in groups]
        count = {"passed": 0, "rejected": 0, "refused": 0}
        for group, answer in zip(groups, run(lines)):
            for i, test in enumerate(group["tests"]):
                if "accepted" not in answer:
                    count["refused"] += 1
                elif answer["accepted"][i] == test["valid"]:
                    count["passed"] += 1
                elif test["valid"]:
                    count["rejected"] += 1
                else:
                    wrong.append(f"{name}: {group['description']}: {test['description']}")
        counts[name] = count
    assert not wrong, f"{len(wrong)} accepted though not valid:\n" + "\n".join(wrong)
    if os.environ.get("FLASHD_UPDATE"):
        RATCHET.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    total = {k: sum(c[k] for c in counts.values()) for k in ("passed", "rejected", "refused")}
    print(f"official suite: {total}, 0 accepted though not valid")
    assert dict(counts) == json.loads(RATCHET.read_text(encoding="utf-8")), "the ratchet moved: FLASHD_UPDATE=1 writes it"


def test_maskbench(run):
    items = [(name, item) for name, item in read_files("FLASHD_MASKBENCH") if "tests" in item]
    answers = run([{"schema": dump(i["schema"]), "texts": [dump(t["data"]) for t in i["tests"]]} for _, i in items])
    passing, wrong = 0, []
    for (name, item), answer in zip(items, answers):
        if "accepted" not in answer:
            continue
        valid = [t["valid"] for t in item["tests"]]
        passing += valid == answer["accepted"]
        wrong += [f"{name}#{i}" for i, (v, a) in enumerate(zip(valid, answer["accepted"])) if a and not v]
    print(f"MaskBench: {passing} of {len(items)} schemas pass")
    assert not wrong
    assert passing >= PASSING * len(items)


def test_random_answers_of_maskbench_are_valid(run):
    """The same of schemas that others wrote. Left out: U+FEFF, which is white space for ECMA-262's patterns and not for Python's."""
    jsonschema = pytest.importorskip("jsonschema")
    sys.path.insert(0, str(ROOT / "tests/oracle"))
    import structured  # numbers as they are written; schemas that the checker can use
    schemas = [item["schema"] for _, item in read_files("FLASHD_MASKBENCH") if "tests" in item]
    schemas = [s for s in schemas if len(dump(s)) < 20000 and structured.is_usable(s)]
    answers = run([{"schema": dump(s), "texts": [], "samples": 4, "seed": i + 1} for i, s in enumerate(schemas)])
    count = 0
    for schema, answer in zip(schemas, answers):
        validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(structured.exact(dump(schema)))
        for text in answer.get("samples", []):
            if "\ufeff" in text:
                continue
            error = next(validator.iter_errors(structured.exact(text)), None)
            assert error is None, f"{dump(schema)}\n{text}\n{error}"
            count += 1
    print(f"{count} random answers of MaskBench's schemas are valid")
    assert count > 1000


def test_random_answers_are_valid(run):
    """Whatever a grammar lets through is valid, says another implementation."""
    jsonschema = pytest.importorskip("jsonschema")
    schemas = json.loads(SCHEMAS.read_text(encoding="utf-8"))
    answers = run([{"schema": dump(s), "texts": [], "samples": 60, "seed": i + 1} for i, s in enumerate(schemas)])
    count = 0
    for schema, answer in zip(schemas, answers):
        assert "samples" in answer, (schema, answer)
        assert answer["samples"], schema
        validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
        for text in answer["samples"]:
            error = next(validator.iter_errors(json.loads(text)), None)
            assert error is None, f"{dump(schema)}\n{text}\n{error}"
            count += 1
    print(f"{count} random answers of {len(schemas)} schemas are valid")


def test_random_schemas(run):
    """Of random schemas nothing that is not valid is accepted, in any order of its properties, random answers are valid, and what
    is valid is accepted in one of the orders. Not so: what one of several negations would have to allow, and objects of many
    properties, whose orders are not all tried."""
    jsonschema = pytest.importorskip("jsonschema")
    sys.path.insert(0, str(ROOT / "tests/oracle"))
    import random_schemas
    import structured
    decimal.getcontext().prec = decimal.DefaultContext.prec  # as structured has it for new threads
    first, count = int(os.environ.get("FLASHD_RANDOM_SCHEMAS_FROM", "0")), int(os.environ.get("FLASHD_RANDOM_SCHEMAS", "600"))
    items = []
    for seed in range(first, first + count):
        g = random_schemas.Generator(seed)
        schema = g.schema(2 + seed % 2)
        values = [g.fitting(schema) for _ in range(8)] + [g.value(2) for _ in range(2)]
        items.append((schema, values, [random_schemas.orders(v) for v in values]))
    answers = run([{"schema": dump(s), "texts": sum(texts, []), "samples": 4, "seed": i + 1} for i, (s, _, texts) in enumerate(items)])
    num = collections.Counter()
    for (schema, values, texts), answer in zip(items, answers):
        validator = jsonschema.Draft202012Validator(structured.exact(dump(schema)), format_checker=jsonschema.FormatChecker())
        valid = [validator.is_valid(structured.exact(dump(v))) for v in values]
        if "accepted" not in answer:
            assert not any(valid) or "no value fulfils" not in answer["error"], (schema, answer)
            num["refused"] += 1
            continue
        accepted = iter(answer["accepted"])
        for value, is_valid, own in zip(values, valid, texts):
            in_some_order = any([next(accepted) for _ in own])
            assert is_valid or not in_some_order, (dump(schema), dump(value))
            num["valid"] += is_valid
            num["rejected"] += is_valid and not in_some_order
        for text in answer["samples"]:
            if re.search(r"[0-9][eE]\+?[0-9]{3}", text):  # beyond what the checker computes with
                continue
            error = next(validator.iter_errors(structured.exact(text)), None)
            assert error is None, f"{dump(schema)}\n{text}\n{error}"
            num["samples"] += 1
    print(f"{count} random schemas: {dict(num)}")
    assert num["rejected"] <= 0.005 * num["valid"] and num["valid"] > count and num["refused"] < count / 2


def test_several_contains(run):
    """Of all arrays of up to four of five elements those are accepted that are valid, whatever their elements must contain."""
    jsonschema = pytest.importorskip("jsonschema")
    rng, elements = random.Random(1), [1, 2, 3, "a", None]
    arrays = [list(a) for n in range(5) for a in itertools.product(elements, repeat=n)]
    schemas = []
    for _ in range(30):
        one = {"type": "array", "allOf": [{"contains": {"enum": rng.sample(elements, rng.randint(1, 4))}} for _ in range(rng.randint(2, 3))]}
        for name, share, make in (("minItems", 0.4, lambda: rng.randint(0, 4)), ("maxItems", 0.6, lambda: rng.randint(1, 4)),
                                  ("items", 0.4, lambda: {"type": rng.sample(["integer", "string", "null"], 2)})):
            if rng.random() < share:
                one[name] = make()
        schemas.append(one)
    num_valid = 0
    for schema, answer in zip(schemas, run([{"schema": dump(s), "texts": [dump(a) for a in arrays]} for s in schemas])):
        validator = jsonschema.Draft202012Validator(schema)
        valid = [validator.is_valid(a) for a in arrays]
        assert answer.get("accepted", [False] * len(arrays)) == valid, (schema, answer.get("error"))
        num_valid += sum(valid)
    assert num_valid > 1500


def test_own_schemas(run):
    """Examples that must and must not be accepted stand in the schemas themselves."""
    schemas = json.loads(SCHEMAS.read_text(encoding="utf-8"))
    lines = [{"schema": dump(s), "texts": [dump(t) for t in s.get("examples", []) + s.get("x-invalid", [])]} for s in schemas]
    for schema, answer in zip(schemas, run(lines)):
        expected = [True] * len(schema.get("examples", [])) + [False] * len(schema.get("x-invalid", []))
        assert answer.get("accepted") == expected, (schema, answer)
