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


UNEQUAL = {"FLASHD_CPU_UNEQUAL_HALVES": "1"}  # as on a GPU, though the bits are those of an equal server
# A step for each token: drafts would bring several in one.
OPTIONS = ("--target-itl", "10000", "--max-num-seqs", "8", "--max-num-batched-tokens", "1024", "--num-speculative-tokens", "0")


def converse(server, num_turns):
    """The conversation, what of each prompt was computed, and which of its tokens were new."""
    messages, computed, new, known = [], [], [], 0
    for turn in range(num_turns):
        messages.append(question(turn))
        answer, (prompt, count, generated) = ask(server, messages, turn, cache_salt="told")
        messages.append(answer)
        computed.append(count)
        new.append(prompt - known)
        known = prompt + generated
    return messages, computed, new


def test_answers_are_shared_where_halves_differ(server, start_server):
    messages, _, _ = converse(server, 5)
    with start_server(*OPTIONS, env=UNEQUAL) as sharing:
        shared, computed, new = converse(sharing, 5)
        assert shared == messages
        assert all(c <= n + BLOCK for c, n in zip(computed, new, strict=True))
        steps = sharing.wait_idle()["flashd_engine_steps_total"]
        cold, (prompt, count, generated) = ask(sharing, messages[:-1], 4, cache_salt="cold")
        assert cold == messages[-1] and count == prompt
        assert sharing.wait_idle()["flashd_engine_steps_total"] - steps == generated  # one for the prompt, runs of both kinds in it
    with start_server(*OPTIONS, "--no-share-answers", env=UNEQUAL) as other:
        unshared, computed, new = converse(other, 5)
        assert unshared == messages
        assert all(c > n + BLOCK for c, n in zip(computed[2:], new[2:], strict=True))
