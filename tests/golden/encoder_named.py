"""Small models of BERT's layers under other names (CamemBERT, DistilBERT, ELECTRA, MPNet), with a head that scores pairs or without, as a directory: encoder.py has the way of it."""
import json

import encoder
from encoder import CONFIG, HIDDEN, ROBERTA, make_values, write_safetensors


def camembert_tokenizer():
    """The first ids are of no use: what begins and ends a text comes behind them."""
    root = encoder.roberta_tokenizer()
    unused = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>", "<mask>"]
    words = [w for w, _ in root["model"]["vocab"] if w not in unused][:len(encoder.WORDS) - len(unused)]
    root["added_tokens"] = [dict(id=i, content=w, single_word=False, lstrip=w == "<mask>", rstrip=False, normalized=False, special=True)
                            for i, w in enumerate(unused)]
    root["post_processor"]["special_tokens"] = {w: {"id": w, "ids": [i], "tokens": [w]} for i, w in ((5, "<s>"), (6, "</s>"))}
    root["model"]["vocab"] = [[w, 0] for w in unused] + [[w, -0.37 * i] for i, w in enumerate(words)]
    return root


def lists(first, last, words):
    """As encoder's, of a model whose texts begin and end otherwise; words: ids that texts may have."""
    return [[first, last], [first, words[0], last]] + [
        [first] + [words[(i * i * 7 + 5 * i + n) % len(words)] for i in range(n)] + [last] for n in (5, 62, 63, 190, 298)]


def mpnet_tokenizer():
    """Of word pieces, between what RoBERTa has around a text."""
    root = encoder.tokenizer()
    special = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    for token, word in zip(root["added_tokens"], special):
        token["content"] = word
    root["post_processor"] = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": False}
    root["model"]["vocab"] = {w: i for i, w in enumerate(special + encoder.WORDS[len(special):])}
    return root


DISTILBERT = {"vocab_size": len(encoder.WORDS), "dim": HIDDEN, "n_layers": encoder.LAYERS, "n_heads": encoder.HEADS, "hidden_dim": encoder.INNER,
              "max_position_embeddings": encoder.POSITIONS, "activation": "gelu", "sinusoidal_pos_embds": False, "pad_token_id": 0}
DISTILBERT_NAMES = (
    ("encoder.layer.", "transformer.layer."), ("attention.self.query", "attention.q_lin"), ("attention.self.key", "attention.k_lin"),
    ("attention.self.value", "attention.v_lin"), ("attention.output.dense", "attention.out_lin"), ("attention.output.LayerNorm", "sa_layer_norm"),
    ("intermediate.dense", "ffn.lin1"), ("output.LayerNorm", "output_layer_norm"), ("output.dense", "ffn.lin2"))
MPNET = dict({key: value for key, value in ROBERTA.items() if key != "type_vocab_size"}, relative_attention_num_buckets=32)
MPNET_NAMES = (
    ("attention.self.query", "attention.attn.q"), ("attention.self.key", "attention.attn.k"), ("attention.self.value", "attention.attn.v"),
    ("attention.output.dense", "attention.attn.o"), ("attention.output.LayerNorm", "attention.LayerNorm"))
# model: a class without what it is for; names: what stands in BERT's names and what then does; options: of transformers' class
KINDS = {
    "camembert": dict(config=dict(ROBERTA, bos_token_id=5, eos_token_id=6), model="Camembert", type="camembert", prefix="roberta.",
                      names=(), head=("classifier.dense", "classifier.out_proj"), tokenizer=camembert_tokenizer, ends=("<s>", "</s>"),
                      lists=lists(5, 6, range(8, len(encoder.WORDS))), options={"add_pooling_layer": False}),
    "distilbert": dict(config=DISTILBERT, model="DistilBert", type="distilbert", prefix="distilbert.", names=DISTILBERT_NAMES,
                       head=("pre_classifier", "classifier"), tokenizer=encoder.tokenizer, ends=("[CLS]", "[SEP]"), lists=encoder.LISTS, options={}),
    "electra": dict(config=dict(CONFIG, embedding_size=HIDDEN), model="Electra", type="electra", prefix="electra.", names=(),
                    head=("classifier.dense", "classifier.out_proj"), tokenizer=encoder.tokenizer, ends=("[CLS]", "[SEP]"), lists=encoder.LISTS, options={}),
    "mpnet": dict(config=MPNET, model="MPNet", type="mpnet", prefix="mpnet.", names=MPNET_NAMES, head=("classifier.dense", "classifier.out_proj"),
                  tokenizer=mpnet_tokenizer, ends=("<s>", "</s>"), lists=lists(0, 2, range(4, len(encoder.WORDS))), options={"add_pooling_layer": False}),
}


def tensors(kind):
    """(name, shape), without the prefix."""
    own = KINDS[kind]
    for name, shape in encoder.tensors(ROBERTA if own["config"].get("pad_token_id") == 1 else CONFIG):
        if "type_vocab_size" in own["config"] or "token_type" not in name:
            yield encoder.gguf_name(name, own["names"]), shape
    if kind == "mpnet":
        yield "encoder.relative_attention_bias.weight", (32, encoder.HEADS)


def head_tensors(kind):
    for name, rows in zip(KINDS[kind]["head"], (HIDDEN, 1)):
        yield name + ".weight", (rows, HIDDEN)
        yield name + ".bias", (rows,)


def write(path, kind, what="Model", pooling=None, prefix=None, change=lambda values: None, **changes):
    """what: Model, ForMaskedLM, ForSequenceClassification and so on; change: of the tensors, in place; changes: of config.json."""
    own, has_head = KINDS[kind], what == "ForSequenceClassification"
    path.mkdir(parents=True, exist_ok=True)
    prefix = prefix if prefix is not None else "" if what == "Model" else own["prefix"]
    labels = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}} if has_head else {}
    config = dict(own["config"], architectures=[own["model"] + what], model_type=own["type"], **labels)
    (path / "config.json").write_text(json.dumps(dict(config, **changes)))
    values = {prefix + name: make_values(name, shape) for name, shape in tensors(kind)}
    values.update((name, make_values(name, shape)) for name, shape in (head_tensors(kind) if has_head else ()))
    change(values)
    write_safetensors(path / "model.safetensors", values)
    (path / "tokenizer.json").write_text(json.dumps(own["tokenizer"]()))
    (path / "tokenizer_config.json").write_text(json.dumps(dict(zip(("cls_token", "sep_token"), own["ends"]))))
    if pooling:
        encoder.write_pooling(path, pooling)
