#!/usr/bin/env python3
"""Writes encoder_goldens.json: small models of BERT's, RoBERTa's, XLM-RoBERTa's, ModernBERT's, Nomic BERT's, GTE's, Jina's, EmbeddingGemma's, EuroBERT's, CamemBERT's, DistilBERT's, ELECTRA's, MPNet's and Jina's XLM-RoBERTa's kind, decoders with a head, their weights by make_values, and what
transformers in float32 gives for lists of ids: the first token's hidden state and the mean; and what those with a head for one
label give for a query with each document.

    pip install torch transformers==5.* && tests/golden/make_encoder.py > tests/golden/encoder_goldens.json
"""
import json
import tempfile
from pathlib import Path

import tokenizers
import torch
import transformers
from transformers import (BertConfig, BertForSequenceClassification, BertModel, GteForSequenceClassification, GteModel, XLMRobertaConfig,
                          ModernBertConfig, ModernBertForSequenceClassification, ModernBertModel, NomicBertModel,
                          EuroBertModel, Gemma3TextModel, JinaEmbeddingsV3Config, JinaEmbeddingsV3Model, LlamaModel, Qwen2Model, RobertaForSequenceClassification, RobertaModel,
                          XLMRobertaForSequenceClassification, XLMRobertaModel)

import decoder_scores
import encoder_flash as flash
import encoder_gemma
import encoder_jina
import encoder_llama
import encoder_mixture
import encoder_named
import encoder_roberta
import encoder_rotating as rotating
from encoder import (CONFIG, DOCUMENTS, LISTS, QUERY, ROBERTA, ROBERTA_LISTS, head_tensors, make_values, roberta_tokenizer,
                     score_config, tensors, tokenizer)


def last_states(model, config, lists):
    state = model.state_dict()
    names = {name: shape for name, shape in tensors(config)}
    assert set(names) == {name for name in state if "position_ids" not in name}, set(names) ^ set(state)
    with torch.no_grad():
        for name, shape in names.items():
            assert tuple(state[name].shape) == shape
            state[name].copy_(torch.from_numpy(make_values(name, shape)))
        return [model(torch.tensor([ids])).last_hidden_state[0] for ids in lists]


def scores(model, roberta):
    """The pairs' ids by the tokenizers library, with types where the model has two; control tokens in texts are text."""
    config, prefix = (ROBERTA, "roberta.") if roberta else (CONFIG, "bert.")
    values = {prefix + name: make_values(name, shape) for name, shape in tensors(config)}
    values.update((name, make_values(name, shape)) for name, shape in head_tensors(roberta))
    model.load_state_dict({name: torch.from_numpy(array) for name, array in values.items()}, strict=False)
    left = {name for name in model.state_dict() if "position_ids" not in name and "token_type_ids" not in name} ^ set(values)
    assert not left, left
    encoder = tokenizers.Tokenizer.from_str(json.dumps(roberta_tokenizer() if roberta else tokenizer()))
    encoder.encode_special_tokens = True
    with torch.no_grad():
        for document in DOCUMENTS:
            pair = encoder.encode(QUERY, document)
            types = {} if roberta else {"token_type_ids": torch.tensor([pair.type_ids])}
            yield len(pair.ids), model(torch.tensor([pair.ids]), **types).logits[0, 0].item()


def fill(model, named):
    """named: of what the model has, all."""
    model.load_state_dict({name: torch.from_numpy(make_values(bare, shape)) for name, bare, shape in named})
    return model.float().eval()


def states(model, lists):
    with torch.no_grad():
        return [model(torch.tensor([ids])).last_hidden_state[0] for ids in lists]


def modern_scores(pooling):
    config = ModernBertConfig(num_labels=1, **dict(rotating.modern_config(), classifier_pooling=pooling))
    named = [("model." + n, n, s) for n, s in rotating.modern_tensors()] + [(n, n, s) for n, s in rotating.modern_head_tensors()]
    model = fill(ModernBertForSequenceClassification(config), named)
    reader = tokenizers.Tokenizer.from_str(json.dumps(rotating.modern_tokenizer()))
    reader.encode_special_tokens = True
    with torch.no_grad():
        for document in DOCUMENTS:
            ids = reader.encode(QUERY, document).ids
            yield len(ids), model(torch.tensor([ids])).logits[0, 0].item()


def from_directory(kind, write, **options):
    """transformers renames what it reads of a directory as published."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "m")
        model, told = kind.from_pretrained(Path(folder) / "m", output_loading_info=True, **options)
    assert not any(told[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), told
    return model.float().eval()


def stretch(rope):
    """The rotation "ntk" of GTE's published files, which transformers does not have: 20,000 times the factor, and then some."""
    dim = rotating.HIDDEN // rotating.HEADS
    exponents = torch.arange(0, dim, 2, dtype=torch.float) / dim
    rope.inv_freq.copy_(1 / (20000 * rotating.NTK) ** exponents / rotating.NTK ** (2 / dim))


def reader_of(own_tokenizer):
    """Control tokens in texts are text."""
    reader = tokenizers.Tokenizer.from_str(json.dumps(own_tokenizer))
    reader.encode_special_tokens = True
    return reader


def read_scores(model, own_tokenizer, has_types=False):
    reader = reader_of(own_tokenizer)
    with torch.no_grad():
        for document in DOCUMENTS:
            pair = reader.encode(QUERY, document)
            types = {"token_type_ids": torch.tensor([pair.type_ids])} if has_types else {}
            yield len(pair.ids), model(torch.tensor([pair.ids]), **types).logits[0, 0].item()


def numbers(row):
    return [float("%.9g" % v) for v in row.tolist()]


def named_goldens(kind, own):
    def read(what, **options):
        return from_directory(getattr(transformers, own["model"] + what), lambda path: encoder_named.write(path, kind, what), **options)

    rows = states(read("Model", **own["options"]), own["lists"])
    found = read_scores(read("ForSequenceClassification"), own["tokenizer"](), own["config"].get("type_vocab_size") == 2)
    reader = reader_of(own["tokenizer"]())
    return {kind + "_mean": [numbers(r.mean(0)) for r in rows], kind + "_scores": [[n, float("%.9g" % v)] for n, v in found],
            kind + "_ids": [reader.encode(text).ids for text in DOCUMENTS]}


def flash_rows(task=None):
    """Of jina-embeddings-v3 with a task's adapters in its matrices, as saved: transformers has other names, which it makes of these."""
    with tempfile.TemporaryDirectory() as folder:
        flash.write(Path(folder), "saved", change=lambda values: values.update(flash.merged(task)))
        model = JinaEmbeddingsV3Model.from_pretrained(folder, add_pooling_layer=False).float().eval()
    assert isinstance(model.config, JinaEmbeddingsV3Config) and model.config.rope_parameters["rope_theta"] == flash.THETA
    return [numbers(r.mean(0)) for r in states(model, flash.LISTS)]


def flash_scores():
    model = XLMRobertaForSequenceClassification(XLMRobertaConfig(**score_config(True))).float().eval()
    values = {name: torch.from_numpy(array) for name, array in flash.transformers_roberta()}
    told = model.load_state_dict(values, strict=False)
    assert not told.unexpected_keys and not [k for k in told.missing_keys if "position_ids" not in k and "token_type_ids" not in k], told
    return [[n, float("%.9g" % v)] for n, v in read_scores(model, roberta_tokenizer())]


def decoder_goldens(kind):
    model = from_directory(getattr(transformers, kind + "ForSequenceClassification"), lambda path: decoder_scores.write(path, kind))
    found = read_scores(model, decoder_scores.tokenizer(kind))
    return {kind.lower() + "_scores": [[n, float("%.9g" % v)] for n, v in found]}


modern = states(fill(ModernBertModel(ModernBertConfig(**rotating.modern_config())), [(n, n, s) for n, s in rotating.modern_tensors()]),
                rotating.MODERN_LISTS)
nomic = states(from_directory(NomicBertModel, lambda path: rotating.write_nomic(path, "mean", saved=True)), LISTS)
gte_model = from_directory(GteModel, lambda path: rotating.write_gte(path, "mean", saved=True))
gte = states(gte_model, LISTS)
stretch(gte_model.rotary_emb)
stretched_gte = states(gte_model, LISTS)
gte_scorer = from_directory(GteForSequenceClassification, lambda path: rotating.write_gte_scorer(path, saved=True))
stretch(gte_scorer.gte.rotary_emb)
bpe = states(from_directory(RobertaModel, encoder_roberta.write, add_pooling_layer=False), encoder_roberta.LISTS)
bpe_scorer = from_directory(RobertaForSequenceClassification, lambda path: encoder_roberta.write(path, head=True))
gemma = states(from_directory(Gemma3TextModel, encoder_gemma.write), encoder_gemma.LISTS)
mixture = [encoder_mixture.states(ids) for ids in encoder_mixture.LISTS]
plain_mixture = [encoder_mixture.states(ids, has_bias=False) for ids in encoder_mixture.LISTS]
jina = {kind: [encoder_jina.states(ids, kind) for ids in encoder_jina.LISTS] for kind in encoder_jina.KINDS}
both_sides = {kind: states(from_directory(model, lambda path, kind=kind, own=own: encoder_llama.write(path, kind, **own)), encoder_llama.LISTS)
              for kind, model, own in (("eurobert", EuroBertModel, {}), ("llama", LlamaModel, {"model_type": "llama", "is_causal": False}), ("qwen2", Qwen2Model, {}))}
rows = last_states(BertModel(BertConfig(**CONFIG), add_pooling_layer=False).float().eval(), CONFIG, LISTS)
roberta = last_states(XLMRobertaModel(XLMRobertaConfig(**ROBERTA), add_pooling_layer=False).float().eval(), ROBERTA, ROBERTA_LISTS)
bert_scores = scores(BertForSequenceClassification(BertConfig(**score_config(False))).float().eval(), False)
roberta_scores = scores(XLMRobertaForSequenceClassification(XLMRobertaConfig(**score_config(True))).float().eval(), True)
print(json.dumps({
    "made_with": "transformers %s, torch %s" % (transformers.__version__, torch.__version__),
    "first": [[float("%.9g" % v) for v in r[0].tolist()] for r in rows],
    "mean": [[float("%.9g" % v) for v in r.mean(0).tolist()] for r in rows],
    "roberta": [[float("%.9g" % v) for v in r.mean(0).tolist()] for r in roberta],
    "bert_scores": [[n, float("%.9g" % v)] for n, v in bert_scores],
    "roberta_scores": [[n, float("%.9g" % v)] for n, v in roberta_scores],
    "modern_first": [numbers(r[0]) for r in modern],
    "modern_mean": [numbers(r.mean(0)) for r in modern],
    "modern_scores_first": [[n, float("%.9g" % v)] for n, v in modern_scores("cls")],
    "modern_scores_mean": [[n, float("%.9g" % v)] for n, v in modern_scores("mean")],
    "nomic_first": [numbers(r[0]) for r in nomic],
    "nomic_mean": [numbers(r.mean(0)) for r in nomic],
    "gte_first": [numbers(r[0]) for r in gte],
    "stretched_gte_first": [numbers(r[0]) for r in stretched_gte],
    **{kind + "_mean": [numbers(r.mean(0)) for r in rows] for kind, rows in jina.items()},
    "mixture_mean": [numbers(r.mean(0)) for r in mixture],
    "mixture_plain_first": [numbers(r[0]) for r in plain_mixture],
    "bpe_mean": [numbers(r.mean(0)) for r in bpe],
    "bpe_scores": [[n, float("%.9g" % v)] for n, v in read_scores(bpe_scorer, encoder_roberta.tokenizer())],
    "gemma_first": [numbers(r[0]) for r in gemma],
    "gemma_mean": [numbers(r.mean(0)) for r in gemma],
    **{kind + "_mean": [numbers(r.mean(0)) for r in rows] for kind, rows in both_sides.items()},
    "qwen2_last": [numbers(r[-1]) for r in both_sides["qwen2"]],
    **{key: value for kind, own in encoder_named.KINDS.items() for key, value in named_goldens(kind, own).items()},
    **{key: value for kind in decoder_scores.KINDS for key, value in decoder_goldens(kind).items()},
    "flash_mean": flash_rows(),
    **{"flash_" + task: flash_rows(task) for task in flash.TASKS},
    "flash_scores": flash_scores(),
    "gte_scores": [[n, float("%.9g" % v)] for n, v in read_scores(gte_scorer, tokenizer())],
}))
