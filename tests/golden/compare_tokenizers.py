#!/usr/bin/env python3
"""Compares flashd's tokenizer with Hugging Face's `tokenizers`, token for token.

    compare_tokenizers.py --program build/tests/golden/tokenize_main [--gguf MODEL.gguf] [--tokenizers DIRECTORY]

The GGUF file is SmolLM2's; its tokenizer is rebuilt with the Python package from the file's own keys. DIRECTORY holds
one directory a tokenizer, each with a tokenizer.json (or tokenizer.json.xz). From these, and from a small
sentencepiece-like model, one of word pieces and one of scores that are trained here, variants are derived that reach every pre-tokenizer and setting. For
each: encoding of every text of a corpus with control tokens parsed and not, decoding of the ids and of random ids, the
detokenizer against decode (inside the program), and texts that are not trusted inside a template.
Exits with 1 when anything differs. Needs tokenizers (0.23.3 is what the Unicode table was made with);
with sentencepiece its rules of normalisation are compared too.
"""
import argparse
import base64
import json
import lzma
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers  # noqa: E402

ADD_SPECIAL, PARSE_SPECIAL = 1, 2

WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = WORDS + r"\p{N}{1,3}" + REST
QWEN2 = WORDS + r"\p{N}" + REST
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = TEKKEN.replace(r"\p{M}]+|", r"\p{M}]+" + CONTRACTION + "|").replace(r"\p{M}]*|\p{N}|", r"\p{M}]*" + CONTRACTION + r"|\p{N}{1,3}|")
SEED = WORDS + r"\p{N}{1}| ?[^\s\p{L}\p{N}" "\r\n" r"]+|\s*[" "\r\n" r"]+|\s+(?!\S)|\s+"
YOUTU = (
    "[\uac00-\ud7a3\u3131-\u318e]+",
    "[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+",
    "[\u3105-\u312f]+",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    O200K.replace("{1,3}", ""),
)
KIMI = (
    r"[\p{Han}]+|"
    + O200K.split(r"|\p{N}")[0].replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]")
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
EXAONE_MOE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]"
    r"|\s+(?!\S)|\s+"
)
# The line breaks stand in the models' files as they are.
DEEPSEEK_V3 = (
    r"\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    '[!"' r"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^" "\r\n" r"\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[" "\r\n"
    r"]*|\s*[" "\r\n" r"]+|\s+(?!\S)|\s+",
)
SPARK = (
    r"\p{N}",
    DEEPSEEK_V3[1],
    DEEPSEEK_V3[2].replace("+[\r\n]*|", "+|").replace(r"\s*[" "\r\n" "]+", "[\r\n]"),
)
UFAKZEKA = QWEN2.removeprefix(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|")
JAIS2 = LLAMA3.removesuffix(r"|\s+(?!\S)|\s+") + "".join(r"|\s{%d}(?!\S)" % (1 << i) for i in range(9, 1, -1)) + r"|\s{1,2}(?!\S)|\s{1}"
TINY_AYA = (r"\d{1,3}(?=(?:\d{3})*\b)", O200K)
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
FALLBACK = (
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"\p{N}+",
    "[0-9][0-9][0-9]",
)
DEEPSEEK_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK_CODER = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_CJK)
DEEPSEEK_LETTERS = (
    r"\s?["
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF"
    "\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5"
    "\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA"
    "\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45"
    "\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE"
    "\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC"
    "\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139"
    "\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3"
    "\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06"
    "\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3"
    "\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-\U000118DF"
    "\U0001E900-\U0001E943"
    "]+"
)
DEEPSEEK_LLM = (
    "[\r\n]",
    DEEPSEEK_LETTERS,
    r"\s?[!-/:-~" "\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    r"\s+$",
    DEEPSEEK_CJK,
)

SENTENCES = """The quick brown fox jumps over the lazy dog; it's 3.14159 o'clock, isn't it?
Don't WE'LL they'Re I'VE you'd he'S ſ'ſ 'ſ'T can’t ‘quoted’ “double”
Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy. Ångström naïve façade coöperate
Съешь же ещё этих мягких французских булок, да выпей чаю. Ђорђе Їжак Ґанок
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Ἐν ἀρχῇ ἦν ὁ λόγος
זה כיף סתם לשמוע איך תנצח קרפד עץ טוב בגן. שָׁלוֹם עֲלֵיכֶם
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. السَّلَامُ عَلَيْكُمْ ١٢٣٤٥ ۶۷۸
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश। नमस्ते १२३ क्षत्रिय
আমি কাঁচ খেতে পারি, তাতে আমার কোনো ক্ষতি হয় না। ਪੰਜਾਬੀ ગુજરાતી தமிழ் మీకు ಕನ್ನಡ മലയാളം සිංහල
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ສະບາຍດີ မြန်မာ ភាសាខ្មែរ བོད་ཡིག
天地玄黃,宇宙洪荒。日月盈昃,辰宿列張。我能吞下玻璃而不伤身体!你好,世界。㐀㐁𠀀𠀁𪜀
いろはにほへと ちりぬるを わかよたれそ つねならむ。カタカナ ガギグゲゴ がぎぐげご ㍿㌀ ﾊﾝｶｸ
키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. 한국어 각 갂
ლელი ქართული Հայերեն አማርኛ ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ ᠮᠣᠩᠭᠣᠯ ᚠᚢᚦᚨᚱᚲ ⴰⵎⴰⵣⵉⵖ 𐌲𐌿𐍄𐌹𐍃𐌺 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟘𝟙𝟚
Việt Nam tiếng Việt đẹp: Ăn quả nhớ kẻ trồng cây, ỗ ợ ữ ặ
👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇯🇵 🧑🏿‍🚀 ❤️‍🔥 🤷‍♂️ 1️⃣ #️⃣ 😀😃😄 🫠🫡 ☃︎ ☃️
½ ⅓ Ⅷ ① ⑳ ² ³ ₄ 三 〇 ፩ ௧ ༢ 1234567890 12 345 6789 00 0x1F 1e-9 3,000,000.00
if (x != NULL && *p++ == '\\n') { return foo->bar[i] << 2; } // TODO: fix
def f(self, *args, **kwargs) -> None:\n\t\tfor i in range(10):\n\t\t\tprint(f"{i:>08.3f}")\r\n\r\n
<div class="a b">&nbsp;<br/></div> <!-- comment --> SELECT * FROM t WHERE a>=1;
https://example.com/path?q=a%20b&c=d#frag user@example.org C:\\\\Windows\\\\System32 ~/.config/*.json
camelCaseWord XMLHttpRequest HTTPServer iPhone McDonald's snake_case_name SCREAMING_CASE kebab-case a1B2c3
∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β ≡ ¬(¬α ∨ β), ∫₀^∞ e^{-x²}dx = √π/2 → ⇒ ± × ÷ ≠ ≤
\tindented\n    four\n        eight   three  two \u00a0nbsp\u2028line\u3000wide\u180emvs\u0085nel\u200bzwsp\ufeffbom
""".strip().split("\n")

SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", "\t\t", " \n", "\n ", "\v", "\f", "\x85", "\xa0", "\u1680",
          "\u180e", "\u2000", "\u2003", "\u2009", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff"]
CONTRACTIONS = ["'s", "'S", "'t", "'T", "'re", "'RE", "'Re", "'ve", "'vE", "'m", "'M", "'ll", "'LL", "'lL", "'d", "'D",
                "'\u017f", "'k", "'", "''s", "'l", "'r", "\u2019s"]


# ---- texts ----

def code_points(rng):
    plane = rng.random()
    if plane < 0.3:
        return rng.randrange(0x80)
    if plane < 0.5:
        return rng.randrange(0x250)
    if plane < 0.8:
        return rng.randrange(0x10000)
    return rng.randrange(0x110000)


def random_char(rng):
    while True:
        c = code_points(rng)
        if not 0xD800 <= c <= 0xDFFF:
            return chr(c)


def marks_out_of_order(rng, marks):
    base = rng.choice("aeiouAEOU\u0627\u05d0\u0915\uac00\u1100\u00e9\u1e0b")
    return base + "".join(rng.choice(marks) for _ in range(rng.randrange(1, 7)))


def special_text(rng, names):
    name = rng.choice(names)
    how = rng.random()
    if how < 0.6:
        return name
    if how < 0.8:
        return name[: rng.randrange(1, len(name) + 1)]
    return name[rng.randrange(len(name)):]


def atoms(rng, names, marks, words):
    kind = rng.randrange(12)
    if kind < 3:
        return rng.choice(words)
    if kind == 3:
        return rng.choice(SPACES) * rng.choice((1, 1, 2, 3, 17))
    if kind == 4:
        return rng.choice(CONTRACTIONS)
    if kind == 5:
        return special_text(rng, names)
    if kind == 6:
        return "".join(random_char(rng) for _ in range(rng.randrange(1, 9)))
    if kind == 7:
        return bytes(rng.randrange(256) for _ in range(rng.randrange(1, 20))).decode("utf-8", "replace")
    if kind == 8:
        return marks_out_of_order(rng, marks)
    if kind == 9:
        return "".join(rng.choice("0123456789٣५三Ⅷ½²") for _ in range(rng.randrange(1, 8)))
    if kind == 10:
        return rng.choice("aZ0 \n\u4e00-\u0301\u2581é\x00😀") * rng.choice((2, 5, 30, 90))
    return "".join(rng.choice("!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\x00\x01\x1b\x7f") for _ in range(rng.randrange(1, 6)))


def long_words(rng):
    """Longer than what is merged at once: of one letter, of few, of a script, of parts of words, of bytes that are rare."""
    parts = ["the", "quick", "internationalization", "ing", "house", "tion", "er", "\u00e9", "\u2581"]
    for letters in ("a", "ab", "aab", "\u2581", "\u00e9", "\U0001f600", "=", "abcdefghijklmnopqrstuvwxyz", "eta oin".replace(" ", ""),
                    "天地玄黃宇宙洪荒", "לומשחק", "!#$%&()*+,-./:;<=>?@[]^_`{|}~", "\u0301\u0323", "01"):
        n = rng.randrange(4000, 20000)
        yield letters * (n // len(letters))
        yield "".join(rng.choices(letters, k=n))
    for n in (5000, 9000):
        yield "".join(rng.choices(parts, k=n))


def corpus(names, count, sources):
    rng = random.Random(20240607)
    marks = [chr(c) for c in range(0x300, 0x110000) if unicodedata.combining(chr(c))]
    marks += ["\u1161", "\u11a8", "\u093c", "\u0f71", "\u3099"]
    sentences = [s.encode().decode("unicode_escape").encode("latin-1", "ignore").decode("utf-8", "ignore")
                 if "\\" in s else s for s in SENTENCES]
    words = [w for s in sentences for w in s.split(" ") if w] + ["▁", "▁▁", "▁the", "<0x41>", "<0xE4>"]
    texts = [""] + sentences + [unicodedata.normalize("NFD", s) for s in sentences]
    texts += ["".join(p) for p in zip(sentences, sentences[1:])]
    lines = [source.read_text(encoding="utf-8", errors="replace").split("\n") for source in sources]
    for _ in range(count // 10):
        source = rng.choice(lines)
        at = rng.randrange(len(source))
        texts.append("\n".join(source[at : at + rng.randrange(1, 12)]))
    texts += long_words(rng)
    texts = dict.fromkeys(texts)
    while len(texts) < count:
        texts["".join(atoms(rng, names, marks, words) for _ in range(rng.randrange(1, 14)))] = None
    return list(texts)


def every_code_point():
    """Each code point alone, after an apostrophe, between letters, digits and spaces."""
    for at in range(0, 0x110000, 256):
        chars = [chr(c) for c in range(at, at + 256) if not 0xD800 <= c <= 0xDFFF]
        if chars:
            yield "".join(chars)
            yield "".join("x'" + c for c in chars)
            yield "".join("'r%s'l%se'v%s " % (c, c, c) for c in chars)
            yield "".join("a%sB 1%s  %s\n" % (c, c, c) for c in chars)
            yield "".join("%s\u0301 \u0600%sa%s\u00a9\u200d%s" % (c, c, c, c) for c in chars)


# ---- the program ----

class Program:
    def __init__(self, program, model):
        self.process = subprocess.Popen([program, str(model)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, command, *blocks):
        self.process.stdin.write(command + b"".join(blocks))
        self.process.stdin.flush()

    def answer(self, item_bytes):
        head = self.process.stdout.read(4)
        if len(head) < 4:
            raise SystemExit("the program died: see above")
        n = struct.unpack("<I", head)[0]
        return self.process.stdout.read(n * item_bytes)

    def encode(self, text, flags, untrusted=()):
        data = text.encode()
        ranges = b"".join(struct.pack("<II", *r) for r in untrusted)
        self.ask(b"e", struct.pack("<II", flags, len(untrusted)), ranges, struct.pack("<I", len(data)), data)
        answer = self.answer(4)
        return list(struct.unpack("<%di" % (len(answer) // 4), answer))

    def decode(self, ids, skip_special):
        self.ask(b"d", struct.pack("<II", skip_special, len(ids)), struct.pack("<%di" % len(ids), *ids))
        return self.answer(1).decode()

    def microseconds(self, text, flags, repetitions):
        data = text.encode()
        self.ask(b"t", struct.pack("<III", flags, repetitions, len(data)), data)
        return struct.unpack("<I", self.answer(4))[0]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# ---- tokenizers ----

def gguf_values(path):
    """The keys of a GGUF file."""
    data = path.read_bytes()
    at = 0

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values[0]

    def text():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n : at].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            item, n = take("I"), take("Q")
            return [value(item) for _ in range(n)]
        return take("BbHhIif?  QqdQ"[kind] if kind < 8 else {10: "Q", 11: "q", 12: "d"}[kind])

    at = 8
    take("Q")
    return {text(): value(take("I")) for _ in range(take("Q"))}


def smollm_from_gguf(path):
    values = gguf_values(path)
    assert values["tokenizer.ggml.model"] == "gpt2" and values["tokenizer.ggml.pre"] == "smollm"
    names, types = values["tokenizer.ggml.tokens"], values["tokenizer.ggml.token_type"]
    merges = [tuple(m.split(" ")) for m in values["tokenizer.ggml.merges"]]
    t = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(n, normalized=False, special=True) for n, k in zip(names, types) if k == 3])
    return t


def byte_level_variants(name, root):
    """The known pre-tokenizers over one byte-level vocabulary, and the name that a GGUF file has for each."""
    root = json.loads(json.dumps(root))
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}

    def split(*regexes, digits=False):
        parts = [{"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False} for regex in regexes]
        parts += [{"type": "Digits", "individual_digits": True}] * digits
        return {"type": "Sequence", "pretokenizers": parts + [byte_level]}

    falcon = [{"type": "Punctuation", "behavior": "Contiguous"}, dict(byte_level, use_regex=True)]
    falcon += [{"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": False}]
    for kind, pre_tokenizer, normalizer, ignore_merges, pre in (
        ("falcon", {"type": "Sequence", "pretokenizers": falcon}, None, False, "falcon"),
        ("punctuation", {"type": "Sequence", "pretokenizers": [{"type": "Punctuation", "behavior": "Isolated"}, byte_level]}, None, False, None),
        ("minicpm5", split(r"\p{N}{1,3}", WORDS + r"\p{N}+" + REST), None, True, "minicpm5"),
        ("llama3", split(LLAMA3), None, True, "llama-bpe"),
        ("tekken", split(TEKKEN), None, True, "tekken"),
        ("o200k", split(O200K), None, False, "gpt-4o"),
        ("qwen2", split(QWEN2), {"type": "NFC"}, False, "qwen2"),
        ("qwen35", split(QWEN35), None, False, None),
        ("seed", split(SEED), None, False, "seed-coder"),
        ("youtu", split(*YOUTU), None, True, "youtu"),
        ("exaone-moe", split(EXAONE_MOE), None, False, "exaone-moe"),
        ("kimi", split(KIMI), None, False, "kimi-k2"),
        ("ling", split(LING), None, False, "bailingmoe2"),
        ("deepseek-v3", split(*DEEPSEEK_V3), {"type": "Sequence", "normalizers": []}, False, "deepseek-v3"),
        ("deepseek-coder", split(*DEEPSEEK_CODER, digits=True), None, False, "deepseek-coder"),
        ("deepseek-llm", split(*DEEPSEEK_LLM, digits=True), None, False, "deepseek-llm"),
        ("spark", split(*SPARK), None, False, "spark2_5"),
        ("ufakzeka", split(UFAKZEKA), None, False, "ufakzeka"),
        ("jais2", split(JAIS2), None, False, "jais-2"),
        ("tiny-aya", split(*TINY_AYA), None, False, "tiny_aya"),
        ("bloom", split(BLOOM), None, False, "bloom"),
        ("viking", split(BLOOM, digits=True), None, False, "viking"),
        ("fallback", split(*FALLBACK), None, False, "default"),
        ("superbpe", split(r"\p{N}+", r"(?=(\d{3})+(?!\d))"), None, False, "superbpe"),
        ("glm4", split(LLAMA3), None, True, "glm4"),
        ("gpt2", dict(byte_level, use_regex=True), None, False, "olmo"),
        ("prefix", dict(byte_level, use_regex=True, add_prefix_space=True), None, False, None),
    ):
        root["pre_tokenizer"], root["normalizer"] = pre_tokenizer, normalizer
        root["model"]["ignore_merges"] = ignore_merges
        yield "%s+%s" % (name, kind), json.dumps(root), pre


def add_tokens(root):
    """Added tokens that strip, that stand alone, that are normalised."""
    vocab = root["model"]["vocab"]
    if isinstance(vocab, list):
        vocab = {w: i for i, (w, _) in enumerate(vocab)}
        vocab.update((t["content"], t["id"]) for t in root["added_tokens"])
    at = max(vocab.values()) + 1
    for content, alone, left, right, normalized, special in (
        ("<|x|>", False, True, True, False, True),
        ("Don't", True, False, False, False, False),
        ("a b", False, False, False, True, False),
        ("<y>", False, False, True, False, False),
        ("the", True, False, False, False, False),
    ):
        token_id = vocab.get(content, at)
        at += content not in vocab
        root["added_tokens"].append(dict(id=token_id, content=content, single_word=alone, lstrip=left, rstrip=right,
                                         normalized=normalized, special=special))


def text_variants(name, root):
    """Metaspace instead of a normalizer; added tokens of all sorts; a vocabulary with some byte tokens only."""
    added = json.loads(json.dumps(root))
    add_tokens(added)
    yield name + "+added", json.dumps(added)
    added["normalizer"] = None
    for scheme, cut in (("first", False), ("always", True), ("never", True)):
        added["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut}
        added["decoder"] = added["pre_tokenizer"]
        yield "%s+metaspace-%s" % (name, scheme), json.dumps(added)
    few = json.loads(json.dumps(root))
    few["model"]["vocab"] = {k: v for k, v in root["model"]["vocab"].items() if k not in ("<0xE4>", "<0x9F>")}
    for fuse in (True, False):
        few["model"]["fuse_unk"] = fuse
        yield "%s+few-bytes-%s" % (name, "fused" if fuse else "apart"), json.dumps(few)


def train_text_model(sources):
    """A small model of the sentencepiece kind, as a tokenizer.json."""
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=4000, special_tokens=special, limit_alphabet=300, show_progress=False)
    lines = [line for s in sources for line in s.read_text(errors="replace").split("\n")]
    t.train_from_iterator([w for line in lines + SENTENCES * 20 for w in line.split(" ")], trainer)
    root = json.loads(t.to_str())
    root["added_tokens"] = root["added_tokens"][:3]
    return root


def train_word_model(sources):
    """A small model of BERT's kind."""
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=3000, special_tokens=special, limit_alphabet=600, show_progress=False)
    lines = [line for s in sources for line in s.read_text(errors="replace").split("\n")]
    t.train_from_iterator(lines + SENTENCES * 20, trainer)
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return json.loads(t.to_str())


def word_variants(name, root):
    """Each step of the normalizer alone and missing, added tokens, the older post-processor, no clean-up."""
    steps = ("clean_text", "handle_chinese_chars", "strip_accents", "lowercase")
    for flags in ("cased", "accents", "none") + steps:
        own = dict.fromkeys(steps, flags not in steps + ("none",))
        if flags == "cased":
            own.update(strip_accents=None, lowercase=False)
        elif flags == "accents":
            own.update(strip_accents=False)
        elif flags in steps:
            own[flags] = True
        yield "%s+%s" % (name, flags), json.dumps(dict(root, normalizer=dict(own, type="BertNormalizer")))
    added = json.loads(json.dumps(root))
    add_tokens(added)
    added["post_processor"] = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
    added["decoder"]["cleanup"] = False
    yield name + "+added", json.dumps(added)


def nmt_nfkc():
    """The rules of normalisation that sentencepiece gives its models, in base64; None without the package."""
    try:
        import io

        import sentencepiece
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:
        return None
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(SENTENCES), model_writer=model, vocab_size=900,
                                             hard_vocab_limit=False, minloglevel=2)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    return base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


def train_scored_model(sources):
    """A small model of XLM-RoBERTa's kind."""
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    lines = [line for s in sources for line in s.read_text(errors="replace").split("\n")]
    trainer = trainers.UnigramTrainer(vocab_size=3000, special_tokens=special, unk_token="<unk>", show_progress=False)
    t.train_from_iterator(lines + SENTENCES * 20, trainer)
    t.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return json.loads(t.to_str())


def scored_variants(name, root):
    """With sentencepiece's normalizer as older and newer files have it, byte tokens, many equal scores, added tokens."""
    rules = nmt_nfkc()
    charsmap = [{"type": "Precompiled", "precompiled_charsmap": rules}] if rules else []
    newer = charsmap + [{"type": "Strip", "strip_left": False, "strip_right": True},
                        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}]
    words = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, root["pre_tokenizer"]]}
    if charsmap:
        yield name + "+older", json.dumps(dict(root, normalizer=charsmap[0], pre_tokenizer=words))
    yield name + "+newer", json.dumps(dict(root, normalizer={"type": "Sequence", "normalizers": newer}))
    both = charsmap + [{"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]
    yield name + "+runs", json.dumps(dict(root, normalizer={"type": "Sequence", "normalizers": both}))
    first = dict(root["pre_tokenizer"], prepend_scheme="first", split=False)
    yield name + "+whole", json.dumps(dict(root, pre_tokenizer=first))
    by_bytes = json.loads(json.dumps(root))
    by_bytes["model"].update(byte_fallback=True, vocab=root["model"]["vocab"] + [["<0x%02X>" % b, -30.0] for b in range(256)])
    by_bytes["added_tokens"] = by_bytes["added_tokens"][:4]
    by_bytes["decoder"] = {"type": "Sequence", "decoders": [root["decoder"], {"type": "ByteFallback"}, {"type": "Fuse"}]}
    yield name + "+bytes", json.dumps(by_bytes)
    equal = json.loads(json.dumps(root))
    equal["model"]["vocab"] = [[w, round(s)] for w, s in equal["model"]["vocab"]]
    add_tokens(equal)
    yield name + "+equal", json.dumps(equal)


def without_controls(text):
    """A reference whose control tokens are no words of the model, as here they are none for what a user types; its ids."""
    root = json.loads(text)
    names = {t["content"] for t in root["added_tokens"] if t["special"]}
    num = len(root["model"]["vocab"])
    root["model"]["vocab"] = [["\U0010fffe%d" % i if w in names else w, s] for i, (w, s) in enumerate(root["model"]["vocab"])]
    reference = Tokenizer.from_str(json.dumps(root))
    whole = Tokenizer.from_str(text)
    ids = {reference.token_to_id(t["content"]): whole.token_to_id(t["content"]) for t in root["added_tokens"]}
    assert all(i >= num or i == k for i, k in ids.items())
    return reference, ids


def write_gguf(path, root, model, pre):
    """The tokenizer keys of a GGUF file with the vocabulary of a tokenizer.json."""
    names = {i: n for n, i in root["model"]["vocab"].items()}
    types = dict.fromkeys(names, 1)
    types.update((i, 6) for i, n in names.items() if model == "llama" and n.startswith("<0x") and len(n) == 6)
    for t in root["added_tokens"]:
        names[t["id"]] = t["content"]
        types[t["id"]] = 3 if t["special"] else 4
    ids = range(max(names) + 1)
    merges = [m if isinstance(m, str) else " ".join(m) for m in root["model"]["merges"]]

    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def array(kind, items):
        return struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)

    keys = {
        "tokenizer.ggml.model": struct.pack("<I", 8) + text(model),
        "tokenizer.ggml.pre": struct.pack("<I", 8) + text(pre),
        "tokenizer.ggml.tokens": array(8, [text(names.get(i, "[PAD%d]" % i)) for i in ids]),
        "tokenizer.ggml.token_type": array(5, [struct.pack("<i", types.get(i, 5)) for i in ids]),
        "tokenizer.ggml.add_bos_token": struct.pack("<I?", 7, False),
    }
    if model == "llama":
        ranks = {}  # of the first merge that makes a token: what its score was made of
        for rank, merge in enumerate(merges):
            ranks.setdefault(merge.replace(" ", ""), rank)
        scores = [-float(ranks.get(names.get(i), 1e9)) for i in ids]
        keys["tokenizer.ggml.scores"] = array(6, [struct.pack("<f", x) for x in scores])
        keys["tokenizer.ggml.unknown_token_id"] = struct.pack("<II", 4, 0)
    else:
        keys["tokenizer.ggml.merges"] = array(8, [text(m) for m in merges])
    data = struct.pack("<IIQQ", 0x46554747, 3, 0, len(keys)) + b"".join(text(k) + v for k, v in keys.items())
    path.write_bytes(data + bytes(-len(data) % 32))


class Case:
    def __init__(self, name, reference, model):
        self.name, self.reference, self.model = name, reference, model
        self.encoder, self.ids = reference, {}
        if isinstance(reference.model, models.Unigram):
            self.encoder, self.ids = without_controls(reference.to_str())
        self.num_texts = self.num_decoded = self.num_differences = 0

    def differ(self, what, text, mine, theirs):
        self.num_differences += 1
        if self.num_differences <= 5:
            print("  %s differs for %r\n    flashd    %r\n    reference %r" % (what, text[:300], mine, theirs))


def special_names(reference):
    return [t.content for t in reference.get_added_tokens_decoder().values()][:400]


def compare_encoding(case, program, texts, flags):
    case.encoder.encode_special_tokens = not flags & PARSE_SPECIAL
    for at in range(0, len(texts), 1000):
        batch = texts[at : at + 1000]
        theirs = case.encoder.encode_batch(batch, add_special_tokens=bool(flags & ADD_SPECIAL))
        for text, encoding in zip(batch, theirs):
            mine = program.encode(text, flags)
            case.num_texts += 1
            ids = [case.ids.get(i, i) for i in encoding.ids]
            if mine != ids:
                case.differ("encoding with flags %d" % flags, text, mine, ids)


def compare_decoding(case, program, texts, count):
    rng = random.Random(5)
    size = max(case.reference.get_vocab().values()) + 1
    special = [i for i, t in case.reference.get_added_tokens_decoder().items() if t.special]
    added = list(case.reference.get_added_tokens_decoder())
    runs = [i for i in range(size) if (case.reference.id_to_token(i) or "").startswith("<0x")] or list(range(300))
    lists = [case.reference.encode(t).ids for t in texts[: count // 4]]
    while len(lists) < count:
        pool = rng.choice((range(size + 3), range(min(size, 600)), runs, special, added, None))
        n = rng.randrange(0, 30)
        lists.append([rng.choice(pool if pool else rng.choice((range(size), runs, special))) for _ in range(n)])
    for ids in lists:
        for skip in (False, True):
            mine, theirs = program.decode(ids, skip), case.reference.decode(ids, skip_special_tokens=skip)
            case.num_decoded += 1
            if mine != theirs:
                case.differ("decoding (skip %s)" % skip, repr(ids), mine, theirs)


def unknown_token(reference):
    if isinstance(reference.model, models.Unigram):
        model = json.loads(reference.to_str())["model"]
        return model["vocab"][model["unk_id"]][0]
    return reference.model.unk_token or ""


def check_trust(case, program, texts):
    """A text inside a template: its control tokens never count, the template's always do."""
    unk_token = unknown_token(case.reference)
    unknown = case.reference.token_to_id(unk_token)
    special = {i for i, t in case.reference.get_added_tokens_decoder().items() if t.special} - {unknown}
    names = [t.content for t in case.reference.get_added_tokens_decoder().values() if t.special and t.content != unk_token][:20]
    for k, text in enumerate(texts):
        head, tail = names[k % len(names)] + "user\n", names[(k * 7 + 3) % len(names)] + names[k % len(names)]
        begin, end = len(head.encode()), len((head + text).encode())
        ids = program.encode(head + text + tail, PARSE_SPECIAL, [(begin, end)])
        if len([i for i in ids if i in special]) != 3:
            case.differ("the number of control tokens", text, ids, 3)
        if program.encode(text, PARSE_SPECIAL, [(0, len(text.encode()))]) != program.encode(text, 0):
            case.differ("a text that is not trusted", text, None, None)


def measure(case, program, sources):
    """Megabytes a second of processor time on one thread, the Python package's cache warm."""
    prose = "\n".join(SENTENCES) * 200
    code = "\n".join(s.read_text(errors="replace") for s in sources)[:500000]
    for name, text in (("many scripts", prose), ("C code", code)):
        num_bytes = len(text.encode())
        mine = program.microseconds(text, PARSE_SPECIAL, 5) / 5
        case.reference.encode(text)
        begin = time.process_time()
        case.reference.encode(text)
        theirs = (time.process_time() - begin) * 1e6
        print("  %s: %.1f MB/s, the Python package %.1f MB/s" % (name, num_bytes / mine, num_bytes / theirs))
    slow = []
    for unit in "a 7\n'▁語\u0301😀", "aA", "\u0301\u0323", "ab ", "(":
        for run in unit if len(unit) > 5 else [unit]:
            long_text = run * ((1 << 20) // len(run.encode()))
            slow.append("%r %.2f s" % (run, program.microseconds(long_text, PARSE_SPECIAL, 1) / 1e6))
    print("  1 MiB of " + ", ".join(slow))


def compare(case, options, sources):
    names = special_names(case.reference)
    texts = corpus(names, options.count, sources)
    program = Program(options.program, case.model)
    compare_encoding(case, program, texts, PARSE_SPECIAL)
    compare_encoding(case, program, texts, 0)
    compare_encoding(case, program, texts[: options.count // 10], ADD_SPECIAL | PARSE_SPECIAL)
    if not options.quick:
        compare_encoding(case, program, list(every_code_point()), PARSE_SPECIAL)
    compare_decoding(case, program, texts, options.count // 4)
    check_trust(case, program, texts[: options.count // 4])
    print("%s: %d encodings of %d texts, %d decodings: %d differences" % (
        case.name, case.num_texts, len(texts), case.num_decoded, case.num_differences), flush=True)
    if options.measure:
        measure(case, program, sources)
    program.close()
    return case.num_differences


def directory_case(name, text, scratch, config=None):
    model = scratch / name
    model.mkdir()
    (model / "tokenizer.json").write_text(text, encoding="utf-8")
    if config and config.exists():
        (model / "tokenizer_config.json").write_bytes(config.read_bytes())
    return Case(name, Tokenizer.from_str(text), model)


def gguf_case(name, text, scratch, pre):
    path = scratch / (name + ".gguf")
    write_gguf(path, json.loads(text), "gpt2", pre)
    return Case(path.name, Tokenizer.from_str(text), path)


def own_cases(gguf, scratch, sources):
    """What the GGUF file and the sources of this project give."""
    smollm = smollm_from_gguf(gguf)
    yield Case(gguf.stem, smollm, gguf)
    for name, text, pre in byte_level_variants("smollm", json.loads(smollm.to_str())):
        yield directory_case(name, text, scratch)
        if pre:
            yield gguf_case(name, text, scratch, pre)
    trained = train_text_model(sources)
    yield directory_case("trained", json.dumps(trained), scratch)
    for name, text in text_variants("trained", trained):
        yield directory_case(name, text, scratch)
    yield from word_cases(scratch, sources)
    yield from scored_cases(scratch, sources)


def scored_cases(scratch, sources):
    scored = train_scored_model(sources)
    yield directory_case("scored", json.dumps(scored), scratch)
    for name, text in scored_variants("scored", scored):
        yield directory_case(name, text, scratch)


def word_cases(scratch, sources):
    words = train_word_model(sources)
    yield directory_case("words", json.dumps(words), scratch)
    for name, text in word_variants("words", words):
        yield directory_case(name, text, scratch)


def given_cases(directory, scratch):
    packed = directory / "tokenizer.json.xz"
    text = lzma.open(packed).read() if packed.exists() else (directory / "tokenizer.json").read_bytes()
    root = json.loads(text)
    yield directory_case(directory.name, text.decode(), scratch, directory / "tokenizer_config.json")
    reference = Tokenizer.from_str(text.decode())
    pre = {"llama3_1": ("gpt2", "llama-bpe"), "qwen3": ("gpt2", "qwen2"), "llama2": ("llama", "default")}
    if directory.name in pre:
        path = scratch / (directory.name + ".gguf")
        write_gguf(path, root, *pre[directory.name])
        reference.post_processor = None
        yield Case(path.name, reference, path)
    if root["decoder"]["type"] != "ByteLevel" and root["pre_tokenizer"] is None:
        for name, variant in text_variants(directory.name, root):
            yield directory_case(name, variant, scratch)


def cases(options, scratch, sources):
    if options.gguf:
        yield from own_cases(options.gguf, scratch, sources)
    for directory in sorted(options.tokenizers.iterdir()) if options.tokenizers else ():
        if not options.only or options.only in directory.name:
            yield from given_cases(directory, scratch)


def project_sources():
    root = pathlib.Path(__file__).resolve().parents[2]
    return [p for folder in ("base", "kernels", "model", "server") for p in sorted(root.glob(folder + "/*.[ch]"))][:60]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--gguf", type=pathlib.Path)
    parser.add_argument("--tokenizers", type=pathlib.Path, default=os.environ.get("FLASHD_TOKENIZERS"))
    parser.add_argument("--count", type=int, default=24000, help="texts a tokenizer")
    parser.add_argument("--only", help="part of the name of the tokenizers to compare")
    parser.add_argument("--quick", action="store_true", help="leave out the texts with every code point")
    parser.add_argument("--measure", action="store_true", help="print speeds")
    options = parser.parse_args()
    sources = project_sources()
    if options.tokenizers:
        options.tokenizers = pathlib.Path(options.tokenizers)
    with tempfile.TemporaryDirectory() as scratch:
        differences = sum(compare(c, options, sources) for c in cases(options, pathlib.Path(scratch), sources))
    print("%d differences in all" % differences)
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
