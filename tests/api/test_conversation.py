"""A long conversation: each turn computes what is new, because the blocks of earlier answers are in the prefix cache, too."""

import pytest

BLOCK, TURNS, ANSWER = 16, 20, 24
QUESTIONS = ["Tell me about the sea.", "Why is it salty?", "What lives in it?", "And sharks?"]


def question(turn):
    return {"role": "user", "content": f"{QUESTIONS[turn % len(QUESTIONS)]} ({turn})"}


def ask(server, messages, turn, cache_salt):
    """The answer, and the tokens of the prompt, of what was computed of it, and of the answer."""
    reply = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": ANSWER, "seed": turn, "cache_salt": cache_salt}).json()
    usage = reply["usage"]
    computed = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    return reply["choices"][0]["message"], (usage["prompt_tokens"], computed, usage["completion_tokens"])


@pytest.mark.slow  # 100 s under the sanitizers, of code that all of tests/api runs there
def test_a_turn_computes_what_is_new(server):
    messages, known = [], 0
    for turn in range(TURNS):
        messages.append(question(turn))
        answer, (prompt, computed, generated) = ask(server, messages, turn, cache_salt="a conversation")
        messages.append(answer)
        assert computed <= prompt - known + BLOCK  # what is new, and the block in which it begins
        known = prompt + generated

    cold, (prompt, computed, _) = ask(server, messages[:-1], TURNS - 1, cache_salt="the same, cold")
    assert computed == prompt
    assert cold == messages[-1]
