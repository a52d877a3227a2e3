#!/usr/bin/env python3
"""Writes encoder_goldens.json: small models of BERT's and of XLM-RoBERTa's kind, their weights by make_values, and what
transformers in float32 gives for lists of ids: the first token's hidden state and the mean; and what those with a head for one
label give for a query with each document.

    pip install torch transformers==5.* && tests/golden/make_encoder.py > tests/golden/encoder_goldens.json
"""
import json

import tokenizers
import torch
import transformers
from transformers import (BertConfig, BertForSequenceClassification, BertModel, XLMRobertaConfig,
                          XLMRobertaForSequenceClassification, XLMRobertaModel)

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
}))
