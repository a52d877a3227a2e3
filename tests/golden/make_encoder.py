#!/usr/bin/env python3
"""Writes encoder_goldens.json: a small model of BERT's kind, its weights by make_values, and what transformers in float32
gives for lists of ids: the first token's hidden state and the mean.

    pip install torch transformers==5.* && tests/golden/make_encoder.py > tests/golden/encoder_goldens.json
"""
import json

import torch
import transformers
from transformers import BertConfig, BertModel

from encoder import CONFIG, LISTS, make_values, tensors

model = BertModel(BertConfig(**CONFIG), add_pooling_layer=False).float().eval()
state = model.state_dict()
names = {name: shape for name, shape in tensors()}
assert set(names) == {name for name in state if "position_ids" not in name}, set(names) ^ set(state)
with torch.no_grad():
    for name, shape in tensors():
        assert tuple(state[name].shape) == shape
        state[name].copy_(torch.from_numpy(make_values(name, shape)))
    rows = [model(torch.tensor([ids])).last_hidden_state[0] for ids in LISTS]
print(json.dumps({
    "made_with": "transformers %s, torch %s" % (transformers.__version__, torch.__version__),
    "first": [[float("%.9g" % v) for v in r[0].tolist()] for r in rows],
    "mean": [[float("%.9g" % v) for v in r.mean(0).tolist()] for r in rows],
}))
