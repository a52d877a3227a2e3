"""A chat of 60 words that follows the other, beside whatever else there is: what its client sees."""

import random
import time

WORDS = "the of and to in is that it was for on are with as at be this have from or by word but not what all were we when can said there use".split()


def text(rng, num):
    return " ".join(rng.choice(WORDS) for _ in range(num))


def chat(content, max_tokens, **members):
    return "/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "max_tokens": max_tokens, **members}


def quiet(ask, end, max_tokens=40, pause=0.02, **members):
    """Times of first tokens, and between tokens, in ms. ask(path, body): a connection and its response. members: of each body."""
    rng, first_tokens, gaps = random.Random(end), [], []
    while time.monotonic() < end:
        last, times = time.monotonic(), first_tokens
        connection, response = ask(*chat(text(rng, 60), max_tokens, stream=True, ignore_eos=True, temperature=0.7, **members))
        for line in response:
            if b'"content":"' in line and b'"content":""' not in line:
                now = time.monotonic()
                times.append((now - last) * 1e3)
                last, times = now, gaps
        connection.close()
        time.sleep(pause)
    return first_tokens, gaps


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")
