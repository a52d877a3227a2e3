#!/usr/bin/env python3
"""Writes the fuzzers' seeds: tests/fuzz/seeds/TARGET/NAME. Inputs that once broke something stand beside them as
regression-*, and are not this script's."""
import base64
import json
import pathlib
import struct

SEEDS = pathlib.Path(__file__).parent / "seeds"


def seed(target, name, content):
    path = SEEDS / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def parts(**files):
    """The form of memory_files.h; __ in a name is a dot, PLUS a plus sign."""
    return "".join(f"== {name.replace('__', '.').replace('PLUS', '+')}\n{text}\n" for name, text in files.items())


# ---- HTTP ----

HEAD = "POST /v1/completions HTTP/1.1\r\nHost: a:8000\r\nContent-Type: application/json\r\n"
seed("http", "get", "GET /v1/models?x=%20y HTTP/1.1\r\nHost: localhost\r\nx-request-id: a-b.c\r\n\r\n")
seed("http", "length", HEAD + 'Content-Length: 14\r\nConnection: keep-alive\r\n\r\n{"prompt":"x"}GET / HTTP/1.1\r\nHost: a\r\n\r\n')
seed("http", "chunked", HEAD + "Transfer-Encoding: chunked\r\n\r\n4;a=b\r\nabcd\r\n0a\r\n0123456789\r\n0\r\nX-T: y\r\n\r\n"
     "\r\nHEAD / HTTP/1.0\r\n\r\n")
seed("http", "expect", HEAD + "Expect: 100-continue\r\nContent-Length: 2\r\nUpgrade: h2c\r\nConnection: close, upgrade\r\n\r\n{}")
seed("http", "absolute", "OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n\r\nDELETE http://a.b:80/x%2Fy HTTP/1.1\r\nHost: a.b\r\n\r\n")
seed("http", "extensions", "POST / HTTP/1.2\r\nHost: a%41\r\nTransfer-Encoding: , chunked ,\r\n\r\n"
     '3 ; a = "b\\"c" ;d=e\r\nabc\r\n0;f\r\nX: y\r\n\r\nHEAD /?%20 HTTP/1.0\r\nConnection: close, keep-alive\r\n\r\n')
seed("http", "smuggled", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /")

# ---- bodies ----

seed("request", "completion", json.dumps({
    "model": "m", "prompt": "hello world", "max_tokens": 5, "n": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 3,
    "min_p": 0.1, "seed": 12345678901234567, "stop": ["a", "bc"], "logprobs": 2, "echo": True, "stream": True,
    "stream_options": {"include_usage": True}, "logit_bias": {"5": -100, "7": 1.5}, "min_tokens": 1,
    "stop_token_ids": [1, 2], "presence_penalty": 1, "frequency_penalty": -1, "repetition_penalty": 1.1,
    "cache_salt": "s", "user": "u", "parse_special": False}))
seed("request", "chat", json.dumps({
    "messages": [{"role": "system", "content": "<|im_start|>"}, {"role": "user", "content": [{"type": "text", "text": "hé"}]},
                 {"role": "assistant", "content": "word"}],
    "max_completion_tokens": 5, "logprobs": True, "top_logprobs": 3, "chat_template_kwargs": {"k": 1.0},
    "add_generation_prompt": False, "continue_final_message": True, "reasoning_effort": "none",
    "response_format": {"type": "text"}, "tools": None, "tool_choice": "none"}))
for name, form in [("schema", {"response_format": {"type": "json_schema", "json_schema": {
        "name": "n", "strict": True, "schema": {"type": "object", "properties": {"a": {"enum": [1, "b"]}}}}}}),
                   ("structured", {"structured_outputs": {"regex": "[a-z]{1,3}", "disable_any_whitespace": True}}),
                   ("choice", {"guided_choice": ["a", "bc"]}), ("grammar", {"guided_grammar": 'root ::= "a" root?'}),
                   ("schema-text", {"guided_json": '{"type": "integer"}'})]:
    seed("request", name, json.dumps({"prompt": "x", **form}))
seed("request", "ids", '{"prompt":[[1,2,3],[4]],"ignore_eos":true,"best_of":1,"suffix":null}')
seed("request", "texts", '{"prompt":["a","\\ud83d\\ude00\\n"],"max_tokens":0,"echo":true,"logprobs":0}')
seed("request", "rows", json.dumps({"input": ["hello", "yes no"], "encoding_format": "base64", "dimensions": 64, "truncate": True}))
seed("request", "pairs", json.dumps({"query": "hello <|im_end|>", "documents": ["a", {"text": "no"}], "top_n": 1,
                                     "text_1": "a", "text_2": ["b", "c"], "instruction": "z"}))
seed("request", "limits", json.dumps({
    "prompt": "x", "allowed_token_ids": [1, 2, "3"], "bad_words": ["he", " wé\0"], "stream_interval": "4", "request_id": "a.b-1",
    "return_token_ids": True, "truncate_prompt_tokens": 1, "truncation_side": "right", "logit_bias": {"1": "2"}, "seed": " 7 "}))
seed("request", "llama", json.dumps({
    "prompt": "x", "messages": [{"role": "user", "content": "x"}], "logprobs": 1, "logprob_token_ids": [1, "2"], "repeat_penalty": 1.1,
    "repeat_last_n": -1, "n_predict": -1, "n_cmpl": 1, "top_n_sigma": -1, "reasoning_format": "none"}))
seed("request", "messages", json.dumps({
    "system": [{"type": "text", "text": "be"}], "max_tokens": 5, "stop_sequences": ["a"], "thinking": {"type": "enabled"},
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]},
                 {"role": "assistant", "content": [{"type": "thinking", "thinking": "h"}, {"type": "text", "text": "x"}]}],
    "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}, "effort": "low"}}))
seed("request", "responses", json.dumps({
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, {"type": "reasoning", "content": [{"text": "h"}]},
              {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
              {"type": "function_call_output", "call_id": "c", "output": "1"}],
    "instructions": "be", "max_output_tokens": 5, "store": False, "text": {"format": {"type": "json_object"}, "verbosity": "low"},
    "reasoning": {"effort": "none"}, "include": ["message.output_text.logprobs"], "top_logprobs": 2}))
seed("request", "previous", json.dumps({"input": "x", "previous_response_id": "resp_1", "tools": [{"type": "function", "name": "f"}]}))
seed("request", "ollama", json.dumps({
    "messages": [{"role": "user", "content": "hi", "images": []}, {"role": "tool", "tool_name": "f", "content": "1"}], "prompt": "x",
    "options": {"temperature": 0, "num_predict": 3, "stop": ["a"], "repeat_penalty": 1.1}, "format": "json", "think": True,
    "system": "be", "raw": False, "stream": False}))
seed("request", "cohere", json.dumps({
    "texts": ["hello", "yes"], "inputs": None, "input_type": "search_query", "embedding_types": ["float", "base64"], "truncate": "END"}))
seed("request", "infill", json.dumps({
    "input_prefix": "he", "input_suffix": "o", "prompt": "l", "input_extra": [{"filename": "a", "text": "b"}], "n_predict": 3, "n_probs": 1,
    "samplers": ["top_k", "temperature"], "response_fields": ["content", "generation_settings/n_predict"], "return_tokens": True}))
seed("request", "tokenize", json.dumps({"content": "hello <|im_end|>", "add_special": True, "parse_special": True, "with_pieces": True,
                                        "return_token_strs": True, "tokens": [1, 2, 300]}))
seed("request", "background", json.dumps({
    "input": [{"type": "message", "role": "user", "content": "x"}, {"type": "custom_tool_call", "call_id": "c", "name": "g", "input": "x"},
              {"type": "custom_tool_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "1"}]}],
    "tools": [{"type": "custom", "name": "g", "format": {"type": "grammar", "syntax": "regex", "definition": "[a-z]+"}}],
    "tool_choice": {"type": "custom", "name": "g"}, "background": True, "store": True, "metadata": {"a": "b"}, "truncation": "auto"}))
seed("request", "blocks", json.dumps({
    "max_tokens": 9, "stream": True, "thinking": {"type": "enabled", "budget_tokens": 1024}, "tool_choice": {"type": "any"},
    "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}],
    "messages": [{"role": "user", "content": [{"type": "document", "title": "t", "citations": {"enabled": False},
                                               "source": {"type": "text", "media_type": "text/plain", "data": "d"}}]},
                 {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "is_error": True, "content": [
                     {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "r"}]}]}]}]}))
seed("request", "calls", json.dumps({
    "messages": [{"role": "user", "content": "x"},
                 {"role": "assistant", "content": None, "reasoning_content": "h", "tool_calls": [
                     {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]},
                 {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "1"}]}],
    "tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}}}],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}},
    "parallel_tool_calls": False, "stream": True, "stream_options": {"include_usage": True}}))
seed("request", "nested", '{"a":[[[{"b":[1e5,-0,0.5E-3,true,false,null,""]}]]],"prompt":""}')

# ---- streams: options, body, NUL, script of three bytes an operation ----

SCRIPT = b"\x01h\x00\x03\x00\x00\x02\xc3\xa9\x00\x05\x01\x05\x00\x00\x01!\x00\x03\x00\x00\x05\x00\x00\x04\x01\x00\x03\x00\x00"
for flag, name, body in [
    (0, "completion", {"prompt": "x", "stream": True, "logprobs": 2, "echo": True, "n": 2}),
    (1, "chat", {"messages": [{"role": "user", "content": "x"}], "stream": True, "logprobs": True, "top_logprobs": 1,
                 "stream_options": {"include_usage": True, "continuous_usage_stats": True}}),
    (0, "whole", {"prompt": ["x", [1, 2]], "stop": ["!a", "he"], "max_tokens": 9}),
    (0, "best-of", {"prompt": "x", "best_of": 3, "n": 2, "max_tokens": 5}),
    (1, "tools", {"messages": [{"role": "user", "content": "x"}], "stream": True, "tool_choice": "required",
                  "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]}),
    (0, "stop", {"prompt": "x", "stream": True, "stop": ["h", "é!"], "include_stop_str_in_output": True}),
]:
    seed("stream", name, bytes([flag]) + json.dumps(body).encode() + b"\0" + SCRIPT)

# ---- GGUF ----


def text(s):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(s)) + s


def key(name, kind, value):
    return text(name) + struct.pack("<I", kind) + value


def u32(name, value):
    return key(name, 4, struct.pack("<I", value))


def array(name, kind, items):
    return key(name, 9, struct.pack("<IQ", kind, len(items)) + b"".join(items))


# A layer with a window, one without, whose V is made of K, and one that sees its K and V.
GEMMA_4_KEYS = [u32("gemma4." + name, value) for name, value in (
    ("attention.key_length", 32), ("attention.value_length", 32), ("attention.key_length_swa", 16), ("attention.value_length_swa", 16),
    ("attention.sliding_window", 8), ("attention.shared_kv_layers", 1), ("embedding_length_per_layer_input", 32), ("rope.dimension_count_swa", 16))]
GEMMA_4_KEYS.append(array("gemma4.attention.sliding_window_pattern", 7, [b"\1", b"\0", b"\0"]))


def gemma_4_shapes(hidden, inner, vocab):
    shapes = [("token_embd.weight", hidden, vocab), ("output_norm.weight", hidden, 0), ("rope_freqs.weight", 16, 0),
              ("per_layer_token_embd.weight", 96, vocab), ("per_layer_model_proj.weight", hidden, 96), ("per_layer_proj_norm.weight", 32, 0)]
    for layer, (head, q, kv, width) in enumerate(((16, 32, 32, inner), (32, 64, 32, inner), (32, 64, 0, 2 * inner))):
        own = [(f"{name}_norm.weight", hidden, 0) for name in ("attn", "post_attention", "ffn", "post_ffw", "post")]
        own += [("attn_q.weight", hidden, q), ("attn_q_norm.weight", head, 0), ("attn_output.weight", q, hidden), ("ffn_gate.weight", hidden, width),
                ("ffn_up.weight", hidden, width), ("ffn_down.weight", width, hidden), ("inp_gate.weight", hidden, 32), ("proj.weight", 32, hidden),
                ("layer_output_scale.weight", 1, 0)]
        own += [("attn_k.weight", hidden, kv), ("attn_k_norm.weight", head, 0)] if kv else []
        own += [("attn_v.weight", hidden, kv)] if layer == 0 else []
        shapes += [(f"blk.{layer}.{name}", *shape) for name, *shape in own]
    return shapes


# A layer with a window and gates that are cut, one without, and one that sees its K and V.
GEMMA_3N_KEYS = [u32("gemma3n." + name, value) for name, value in (
    ("attention.key_length", 16), ("attention.value_length", 16), ("attention.sliding_window", 8), ("attention.shared_kv_layers", 1),
    ("embedding_length_per_layer_input", 32), ("altup.num_inputs", 4), ("altup.active_idx", 0))]
GEMMA_3N_KEYS += [array("gemma3n.attention.sliding_window_pattern", 7, [b"\1", b"\0", b"\0"]),
                  array("gemma3n.activation_sparsity_scale", 6, [struct.pack("<f", n) for n in (1.64485, float("-inf"), float("-inf"))])]


def gemma_3n_shapes(hidden, inner, vocab):
    shapes = [("token_embd.weight", hidden, vocab), ("output_norm.weight", hidden, 0), ("per_layer_token_embd.weight", 96, vocab - 1),
              ("per_layer_model_proj.weight", hidden, 96), ("per_layer_proj_norm.weight", 32, 0), ("altup_proj.weight", hidden, 3 * hidden),
              ("altup_unembd_proj.weight", hidden, 3 * hidden)]
    for layer in range(3):
        own = [(f"{name}.weight", hidden, 0) for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm",
                                                           "altup_router_norm", "altup_correct_scale", "laurel_post_norm")]
        own += [("attn_q.weight", hidden, 32), ("attn_q_norm.weight", 16, 0), ("attn_output.weight", 32, hidden), ("ffn_gate.weight", hidden, inner),
                ("ffn_up.weight", hidden, inner), ("ffn_down.weight", inner, hidden), ("inp_gate.weight", hidden, 32), ("proj.weight", 32, hidden),
                ("altup_router.weight", hidden, 4), ("altup_predict_coef.weight", 4, 16), ("altup_correct_coef.weight", 4, 4),
                ("laurel_l.weight", hidden, 32), ("laurel_r.weight", 32, hidden)]
        own += [("attn_k.weight", hidden, 16), ("attn_v.weight", hidden, 16), ("attn_k_norm.weight", 16, 0)] if layer < 2 else []
        shapes += [(f"blk.{layer}.{name}", *shape) for name, *shape in own]
    return shapes


def gguf(family, model, tokens, merges, pre):
    hidden, inner, vocab = 32, 32, len(tokens)
    prefix = family + "."
    keys = [key("general.architecture", 8, text(family)), u32(prefix + "embedding_length", hidden),
            u32(prefix + "feed_forward_length", inner), u32(prefix + "block_count", 1),
            u32(prefix + "attention.head_count", 2), u32(prefix + "attention.head_count_kv", 1),
            u32(prefix + "context_length", 64), u32("general.alignment", 32),
            key(prefix + "attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
            key(prefix + "rope.freq_base", 6, struct.pack("<f", 1e4)),
            key("tokenizer.ggml.model", 8, text(model)), key("tokenizer.ggml.pre", 8, text(pre)),
            array("tokenizer.ggml.tokens", 8, [text(t) for t in tokens]),
            array("tokenizer.ggml.token_type", 5, [struct.pack("<i", 3 if t.startswith("<|") else 1) for t in tokens]),
            key("tokenizer.ggml.add_bos_token", 7, b"\1"), u32("tokenizer.ggml.bos_token_id", 1),
            u32("tokenizer.ggml.eos_token_id", 2), key("tokenizer.chat_template", 8, text("{{ messages[0].content }}"))]
    if model == "llama":
        keys.append(array("tokenizer.ggml.scores", 6, [struct.pack("<f", -i) for i in range(vocab)]))
    else:
        keys.append(array("tokenizer.ggml.merges", 8, [text(m) for m in merges]))
    shapes = [("token_embd.weight", hidden, vocab), ("output_norm.weight", hidden, 0), ("blk.0.attn_norm.weight", hidden, 0),
              ("blk.0.attn_q.weight", hidden, hidden), ("blk.0.attn_k.weight", hidden, hidden // 2),
              ("blk.0.attn_v.weight", hidden, hidden // 2), ("blk.0.attn_output.weight", hidden, hidden),
              ("blk.0.ffn_norm.weight", hidden, 0), ("blk.0.ffn_gate.weight", hidden, inner),
              ("blk.0.ffn_up.weight", hidden, inner), ("blk.0.ffn_down.weight", inner, hidden)]
    if family == "qwen2":
        shapes += [("blk.0.attn_q.bias", 32, 0), ("blk.0.attn_k.bias", 16, 0), ("blk.0.attn_v.bias", 16, 0)]
    if family == "nemotron_h":  # the MLP is a layer, and has no gate
        keys[2:4] = [array(prefix + "feed_forward_length", 4, [struct.pack("<I", n) for n in (0, inner)]), u32(prefix + "block_count", 2)]
        keys[5] = array(prefix + "attention.head_count_kv", 4, [struct.pack("<I", n) for n in (1, 0)])
        shapes = [(name.replace("blk.0.ffn_norm", "blk.1.attn_norm").replace("blk.0.ffn", "blk.1.ffn"), *shape)
                  for name, *shape in shapes if "ffn_gate" not in name]
    if family == "gemma4":
        keys[2:6] = [array(prefix + "feed_forward_length", 4, [struct.pack("<I", n) for n in (inner, inner, 2 * inner)]), u32(prefix + "block_count", 3),
                     u32(prefix + "attention.head_count", 2), array(prefix + "attention.head_count_kv", 4, [struct.pack("<I", n) for n in (2, 1, 1)])]
        keys += GEMMA_4_KEYS
        shapes = gemma_4_shapes(hidden, inner, vocab)
    if family == "gemma3n":
        keys[3] = u32(prefix + "block_count", 3)
        keys += GEMMA_3N_KEYS
        shapes = gemma_3n_shapes(hidden, inner, vocab)
    infos, offset = b"", 0
    for name, cols, rows in shapes:
        q8 = rows > 0 and cols % 32 == 0
        infos += text(name) + struct.pack("<I", 2 if rows else 1) + struct.pack("<Q", cols)
        infos += (struct.pack("<Q", rows) if rows else b"") + struct.pack("<IQ", 8 if q8 else 0, offset)
        size = cols // 32 * 34 * rows if q8 else 4 * cols * max(rows, 1)
        offset += (size + 31) // 32 * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(keys)) + b"".join(keys) + infos
    return head + b"\0" * (-len(head) % 32 + offset)


BYTE_NAMES = [chr(b) if 33 <= b <= 126 else chr(256 + b) for b in range(8, 127)]
seed("gguf", "bpe", gguf("llama", "gpt2", ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "he", "ll", "hell", "Ġw"]
                         + BYTE_NAMES[24:], ["h e", "l l", "he ll", "Ġ w"], "smollm"))
seed("gguf", "qwen", gguf("qwen2", "gpt2", ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "ab"] + BYTE_NAMES[60:], ["a b"], "qwen2"))
seed("gguf", "nemotron", gguf("nemotron_h", "gpt2", ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "ab"] + BYTE_NAMES[60:], ["a b"], "pixtral"))
seed("gguf", "gemma4", gguf("gemma4", "gemma4", ["<|pad>", "<|bos>", "<|eos>", "▁", "he", "▁w"] + list("helowrd"), ["h e", "▁ w"], "default"))
seed("gguf", "gemma3n", gguf("gemma3n", "llama", ["<pad>", "<bos>", "<eos>", "▁", "he", "▁w"] + list("helowrd"), [], "default"))
seed("gguf", "spm", gguf("llama", "llama", ["<unk>", "<s>", "</s>", "▁", "he", "▁w"] + list("helowrd"), [], "default"))

# ---- directories ----

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "intermediate_size": 16,
          "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 8,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
          "torch_dtype": "bfloat16", "eos_token_id": [1, 2], "bos_token_id": 1, "hidden_act": "silu"}
LAYER = "model.layers.0."
SHAPES = {"model.embed_tokens.weight": [8, 16], "model.norm.weight": [16], LAYER + "input_layernorm.weight": [16],
          LAYER + "self_attn.q_proj.weight": [16, 16], LAYER + "self_attn.k_proj.weight": [8, 16],
          LAYER + "self_attn.v_proj.weight": [8, 16], LAYER + "self_attn.o_proj.weight": [16, 16],
          LAYER + "post_attention_layernorm.weight": [16], LAYER + "mlp.gate_proj.weight": [16, 16],
          LAYER + "mlp.up_proj.weight": [16, 16], LAYER + "mlp.down_proj.weight": [16, 16]}


BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "U32": 4, "F8_E4M3": 1}


def safetensors(shapes):
    """A shape may begin with its type; else that is BF16."""
    header, offset = {}, 0
    for name, shape in shapes.items():
        dtype, shape = (shape[0], shape[1:]) if isinstance(shape[0], str) else ("BF16", shape)
        size = BYTES[dtype]
        for dim in shape:
            size *= dim
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    return json.dumps(header, separators=(",", ":")), offset


def directory(config, name="model.safetensors", shapes=SHAPES, **more):
    header, size = safetensors(shapes)
    return parts(config__json=json.dumps(config), **{f"{name}PLUS{size}".replace(".", "__"): header}, **more)


seed("safetensors", "llama", directory(CONFIG, generation_config__json='{"temperature":0.6,"top_p":0.9,"eos_token_id":3}'))
seed("safetensors", "rope", directory(CONFIG | {"rope_scaling": {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32}}, chat_template__jinja="{{ x }}"))
seed("safetensors", "yarn", directory(CONFIG | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "rope_scaling": {
    "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1}},
    shapes=SHAPES | {LAYER + "self_attn.q_proj.bias": [16], LAYER + "self_attn.k_proj.bias": [8], LAYER + "self_attn.v_proj.bias": [8]}))
seed("safetensors", "qwen3", directory(CONFIG | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 8,
                                               "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}},
                                     shapes=SHAPES | {LAYER + "self_attn.q_norm.weight": [8], LAYER + "self_attn.k_norm.weight": [8]}))


def quantised(parts):
    """parts(rows, cols): of each matrix of a layer."""
    out = {}
    for name, shape in SHAPES.items():
        out |= {name.removesuffix("weight") + part: own for part, own in parts(*shape).items()} if "_proj" in name else {name: shape}
    return out


seed("safetensors", "fp8", directory(CONFIG | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
                                     shapes=quantised(lambda n, k: {"weight": ["F8_E4M3", n, k], "weight_scale_inv": ["F32", 1, 1]})))
seed("safetensors", "gptq", directory(CONFIG | {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 8, "desc_act": True}},
                                      shapes=quantised(lambda n, k: {"qweight": ["I32", k // 8, n], "qzeros": ["I32", k // 8, n // 8],
                                                                     "scales": ["F16", k // 8, n]})))
seed("safetensors", "mlx", directory(CONFIG | {"quantization": {"group_size": 16, "bits": 4}},
                                     shapes=quantised(lambda n, k: {"weight": ["U32", n, k // 8], "scales": ["BF16", n, 1], "biases": ["BF16", n, 1]})))
seed("safetensors", "bitnet", directory(CONFIG | {"architectures": ["BitNetForCausalLM"], "model_type": "bitnet", "hidden_act": "relu2", "quantization_config": {
    "quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online", "modules_to_not_convert": ["lm_head"]}},
    shapes=SHAPES | {LAYER + "self_attn.attn_sub_norm.weight": [16], LAYER + "mlp.ffn_sub_norm.weight": [16]}))
# A state, an MLP, attention, experts: layers of one norm each.
MIXERS = [{"in_proj.weight": [82, 16], "conv1d.weight": [48, 1, 4], "conv1d.bias": [48], "A_log": [2], "dt_bias": [2], "D": [2],
           "norm.weight": [32], "out_proj.weight": [16, 32]},
          {"up_proj.weight": [16, 16], "down_proj.weight": [16, 16]},
          {"q_proj.weight": [16, 16], "k_proj.weight": [8, 16], "v_proj.weight": [8, 16], "o_proj.weight": [16, 16]},
          {"gate.weight": [2, 16], "gate.e_score_correction_bias": [2], "shared_experts.up_proj.weight": [8, 16],
           "shared_experts.down_proj.weight": [16, 8]}
          | {f"experts.{e}.{name}_proj.weight": shape for e in (0, 1) for name, shape in (("up", [8, 16]), ("down", [16, 8]))}]
seed("safetensors", "nemotron", directory(
    CONFIG | {"architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "hybrid_override_pattern": "M-*E", "num_hidden_layers": 4,
              "head_dim": 8, "mamba_num_heads": 2, "mamba_head_dim": 16, "n_groups": 1, "ssm_state_size": 8, "conv_kernel": 4,
              "hidden_act": "relu2", "mlp_hidden_act": "relu2", "layer_norm_epsilon": 1e-5, "time_step_limit": [0.0, float("inf")], "n_routed_experts": 2,
              "num_experts_per_tok": 1, "n_shared_experts": 1, "moe_intermediate_size": 8, "moe_shared_expert_intermediate_size": 8},
    shapes={"backbone.embeddings.weight": [8, 16], "backbone.norm_f.weight": [16]}
    | {f"backbone.layers.{i}.norm.weight": [16] for i in range(4)}
    | {f"backbone.layers.{i}.mixer.{name}": shape for i, mixer in enumerate(MIXERS) for name, shape in mixer.items()}))
header, size = safetensors(SHAPES)
seed("safetensors", "index", directory(CONFIG, "a.safetensors", model__safetensors__index__json=json.dumps(
    {"metadata": {"total_size": size}, "weight_map": dict.fromkeys(SHAPES, "a.safetensors")})))

# ---- tokenizers ----

def charsmap():
    """Of one rule: A becomes "ab"."""
    units = [0] * 66
    units[65], units[1] = 65 | 1 << 8 | 64 << 10, 1 << 31
    return base64.b64encode(struct.pack("<I66I", 264, *units) + b"ab\0").decode()


ADDED = [{"id": 20, "content": "<s>", "special": True, "lstrip": False, "rstrip": True, "single_word": False, "normalized": False}]
BYTE_LEVEL = {
    "added_tokens": ADDED, "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}]},
    "post_processor": {"type": "ByteLevel", "trim_offsets": False},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(["h", "e", "l", "o", "Ġ", "he", "ll", "hell", "Ġw", "w"])},
              "merges": ["h e", "l l", "he ll", "Ġ w"]}}
TEXT_LEVEL = {
    "added_tokens": ADDED,
    "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                                {"Sequence": {"id": "A", "type_id": 0}}],
                       "special_tokens": {"<s>": {"id": "<s>", "ids": [20], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
              "vocab": {t: i for i, t in enumerate(["<unk>", "<0x0A>", "<0xC3>", "▁", "h", "e", "l", "o", "he", "▁he"])},
              "merges": [["h", "e"], ["▁", "he"]]}}
SCORES = {
    "added_tokens": [{"id": 0, "content": "<s>", "special": True}, {"id": 1, "content": "<unk>", "special": True}],
    "normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Precompiled", "precompiled_charsmap": charsmap()}, {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}]},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "model": {"type": "Unigram", "unk_id": 1, "byte_fallback": True, "vocab": [
        ["<s>", 0], ["<unk>", 0.0], ["▁", -2.25], ["a", -3.1], ["ab", -4e0], ["<0x48>", -9], ["▁Hello", -5.5]]}}
seed("tokenizer_json", "scores", json.dumps(SCORES, ensure_ascii=False))
seed("tokenizer_json", "bytes", json.dumps(BYTE_LEVEL, ensure_ascii=False))
RUNS = [{"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
        for regex in ("[\r\n]", "\\s?[A-Za-zµÀ-Ö]+", "\\s?\\p{P}+", "\\s+$", "[一-龥ࠀ-一]+", "\\p{N}{1,3}")]
seed("tokenizer_json", "runs", json.dumps(BYTE_LEVEL | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
    *RUNS, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]}}, ensure_ascii=False))
seed("tokenizer_json", "text", json.dumps(TEXT_LEVEL, ensure_ascii=False))
seed("tokenizer_json", "config", parts(tokenizer__json=json.dumps(TEXT_LEVEL), tokenizer_config__json=json.dumps(
    {"bos_token": {"content": "<s>"}, "eos_token": "<s>"})))
seed("tokenizer", "bytes", b"\x0b\x02\x08hello world's <|im_start|>user\n\n 12345 \xc3\xa9 <mask> word")
seed("tokenizer", "text", b"\x07\x02\x08hello  world \xe2\x96\x81 \xf0\x9f\x98\x80\n<tool> aaaa <s>")
seed("tokenizer", "ids", b"\x00\xff\xff\x00\x01\x04\x01\xc5\x00\xac\x00\x85\x00\xe2\x00")

# ---- answers with calls: the first byte picks the format ----

seed("tools", "json", '\x06Let me see.\n<tool_call>\n{"name": "look", "arguments": {"city": "a}\\"b"}}\n</tool_call>')
seed("tools", "raw", "\x07<calls>\n<invoke=look>\n<parameter=city>\n17\n</parameter>\n<parameter=days>\n17\n</parameter>\n</invoke>\n</calls>")
seed("tools", "python", "\x08<|run|>[look(city=\"a, b)\", days=3, note={'k': [True, None]}), look_up()]")
seed("tools", "bare", '\x09{"name": "look", "parameters": {}}')
seed("tools", "string", '\x0a[CALL]look[ID]ab-12[ARGS]"{\\"city\\": \\"x\\"}"')
seed("tools", "numbered", "\x0b<think>\nhm\n</think>\n\n<begin><call>look:0<arguments>{}</call><finish>and so on")

# ---- events: protocol and end, then pieces ----

PIECES = b"\x10Le\x20 see\x29 it.\x02\x13{\"\x1ba\":\x141}\x02\x13{}\x28\xc3\xa9\xf0\x9f\xa6"
for number, name in enumerate(["chat", "completions", "messages", "responses", "ollama-chat", "ollama-generate",
                            "llama-completion"]):
    for end, reason in enumerate(["stop", "length", "tool_calls", "error"]):
        if end == number % 4 or number == 3:
            seed("events", f"{name}-{reason}", bytes([number * 4 + end | 0x80 * (number % 2)]) + PIECES)

# ---- templates ----

CHATML = ("{%- for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message.content | trim }}"
          "{%- if loop.last and not add_generation_prompt %}<|im_end|>{% else %}\n{% endif %}{% endfor %}")
MACRO = ("{%- macro show(x, y=1) -%}{{ x|tojson(indent=2) }}{{ caller is defined }}{%- endmacro -%}"
         "{% set ns = namespace(i=0) %}{% for k, v in {'a': [1, 2.5], 'b': none}.items() recursive %}{% set ns.i = ns.i + 1 %}"
         "{{ show(v) }}{{ loop.index0 ~ k[::-1] }}{% else %}x{% endfor %}{{ 'a b'.split(' ')|join(',') | upper }}")
FILTERS = ("{{ [3, 1, 2]|sort|list }}{{ 'x%sy%05.1f'|format(1, 2.0) }}{{ messages|map(attribute='role')|unique|join }}"
           "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{% if 'a' in 'abc' and 1 < 2 <= 3 %}{{ 7 // 2 ** 2 % 3 }}{% endif %}"
           "{{ strftime_now('%Y-%m-%d') }}{{ raise_exception('no') if messages|length > 5 }}{% generation %}{{ range(3)|sum }}{% endgeneration %}")
CONTEXT = '{"messages":[{"role":"user","content":" hi "},{"role":"user","content":[{"type":"text","text":"<|im_end|>"}]}],"add_generation_prompt":false}'
seed("template", "chatml", CHATML + "\0" + CONTEXT)
seed("template", "macro", MACRO)
seed("template", "filters", FILTERS + "\0" + CONTEXT)

# ---- histories: a template, and behind a NUL the messages of a chat ----

ONE_CALL = ("{% for m in messages %}{% if m.tool_calls and m.tool_calls|length > 1 %}{{ raise_exception('one') }}{% endif %}<|{{ m.role }}|>{{ m.content }}"
            "{% for c in m.tool_calls or [] %}<call>{\"name\": \"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments|tojson }}}</call>"
            "{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}")
TURNS = ("{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}{% endif %}"
         "<s>{{ m.role }}{% for p in m.content %}{{ p.text }}{% endfor %}</s>{% endfor %}")
CALLS = [{"id": i, "type": "function", "function": {"name": "f", "arguments": a}} for i, a in [("a", '{"x": [1]}'), ("b", ""), ("c", "[2]")]]
HISTORY = [{"role": "system", "content": "s"}, {"role": "assistant", "content": None, "tool_calls": CALLS[:2]},
           {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "2"}]}, {"role": "tool", "tool_call_id": "a", "content": "1"},
           {"role": "user", "content": "u"}, {"role": "developer", "content": "d"}, {"role": "assistant", "content": "", "tool_calls": CALLS[2:]}]
seed("history", "one_call", ONE_CALL + "\0" + json.dumps(HISTORY))
seed("history", "turns", TURNS + "\0" + json.dumps(HISTORY[1:]))
seed("history", "family", "{# List of tools: #}" + CHATML + "\0" + json.dumps(HISTORY[3:]))

# ---- options ----

seed("config", "yaml", parts(config__yaml="max-num-seqs: 8\nmodel: /m\nhost: \"0.0.0.0\"\napi-key:\n  - a\n  - 'b'\nmax_body_bytes: 4MiB\nlog-requests: no\n",
                             args="--config\n/memory/config.yaml\n--port=1\n--no-log-requests\nmodel.gguf",
                             environment="FLASHD_SEED=7\nFLASHD_API_KEY=a,b\nFLASHD_GPU_MEMORY_UTILIZATION=0.5"))
seed("config", "args", parts(args="--max-queued-tokens\n12K\n--served-model-name\na\n--served-model-name=b\n--load-format=dummy\n--enable-prefix-caching\nm"))

# ---- grammars: a letter for the notation, the text, and behind a NUL what to pick from the masks ----

seed("grammar", "object", 's{"type":"object","properties":{"name":{"type":"string","maxLength":5},"age":{"type":"integer","minimum":3,'
     '"maximum":120}},"required":["age"],"additionalProperties":{"enum":[1,"a",null]},"maxProperties":3}\0\1\2\3\4')
seed("grammar", "choices_of_schemas", 's{"oneOf":[{"type":"string","pattern":"^a+$"},{"type":"string","format":"date"},{"not":{"type":['
     '"string","object"]}}],"$defs":{"a":{"$ref":"#"}}}\0abc')
seed("grammar", "patterns", 's{"patternProperties":{"^x":{"type":"number","multipleOf":0.5},"y$":{"$ref":"#"}},"propertyNames":{"minLength":1},'
     '"if":{"required":["x"]},"then":{"properties":{"y":false}},"unevaluatedProperties":false}\0xyz')
seed("grammar", "array", 's{"type":"array","prefixItems":[true,{"const":{"a":[1]}}],"items":{"anyOf":[{"type":"boolean"},{"type":"array",'
     '"contains":{"const":1}}]},"minItems":1,"maxItems":4,"dependentRequired":{"a":["b"]}}\0\0\0')
seed("grammar", "unlike", 's{"properties":{"a":{"type":"array","items":{"type":"string"},"uniqueItems":true},"b":{"type":"array","items":{"type":'
     '"integer"},"uniqueItems":true}},"required":["a","b"],"additionalProperties":false}\0\4\27\7\0\1\10\3')
seed("grammar", "regex", "r^(?=.*\\d)(?!x)[a-z\\d\\u00e9]{2,5}(\\.[^\\s\\W]+)*?$\0\7\10")
seed("grammar", "ebnf", 'eroot ::= item ("," " "? item)* # list\nitem ::= [a-z\\u00e9]{1,3} | "\\"" . "\\"" | ( root )?\0\1')
seed("grammar", "tag", 't{"triggers":["<f","{"],"structures":[{"begin":"<f>","schema":{"uniqueItems":true,"items":{"enum":[1,12,"a",null]}},'
     '"end":"</f>"},{"begin":"{","schema":{"contains":{"type":"null"},"maxContains":2,"minItems":2},"end":""}]}\0\1\7\5\3')
seed("grammar", "spaces", "w( \\n?)?\t{0,3}\0\7\1\2")
seed("grammar", "choices", "ctrue\nfalse\ntruest\0\1")
