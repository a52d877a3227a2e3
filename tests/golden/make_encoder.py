#!/usr/bin/env python3
"""Writes encoder_goldens.json: small models of BERT's and of XLM-RoBERTa's kind, their weights by make_values, and what
transformers in float32 gives for lists of ids: the first token's hidden state and the mean.

    pip install torch transformers==5.* && tests/golden/make_encoder.py > tests/golden/encoder_goldens.json
"""
import json

import torch
import transformers
from transformers import BertConfig, BertModel, XLMRobertaConfig, XLMRobertaModel

from encoder import CONFIG, LISTS, ROBERTA, ROBERTA_LISTS, make_values, tensors


def last_states(model, config, lists):
    state = model.state_dict()
    names = {name: shape for name, shape in tensors(config)}
    assert set(names) == {name for name in state if "position_ids" not in name}, set(names) ^ set(state)
    with torch.no_grad():
        for name, shape in names.items():
            assert tuple(state[name].shape) == shape
            state[name].copy_(torch.from_numpy(make_values(name, shape)))
        return [model(torch.tensor([ids])).last_hidden_state[0] for ids in lists]


rows = last_states(BertModel(BertConfig(**CONFIG), add_pooling_layer=False).float().eval(), CONFIG, LISTS)
roberta = last_states(XLMRobertaModel(XLMRobertaConfig(**ROBERTA), add_pooling_layer=False).float().eval(), ROBERTA, ROBERTA_LISTS)
print(json.dumps({
    "made_with": "transformers %s, torch %s" % (transformers.__version__, torch.__version__),
    "first": [[float("%.9g" % v) for v in r[0].tolist()] for r in rows],
    "mean": [[float("%.9g" % v) for v in r.mean(0).tolist()] for r in rows],
    "roberta": [[float("%.9g" % v) for v in r.mean(0).tolist()] for r in roberta],
}))
