"""compare_gguf_types.py [TYPE ...] - logits of a small random model in one packed type of GGUF, beside llama.cpp's.

Prints, for 256 positions, by how much of their size (root mean square) flashd's portable set differs from llama.cpp over the same values
as F32 (gguf-py unpacks them), and flashd's best set and llama.cpp over the packed file from those: activations of 8 bits cost both the same.
With the Python packages gguf and llama-cpp-python; needs build/tests/golden/logits. Run by hand.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from llama_cpp import Llama

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPES = ["Q2_K", "Q4_K", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ1_S", "IQ1_M", "TQ1_0", "TQ2_0"]
SHAPE = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}
VOCAB, IDS = 256, [(i * 37 + 11) % 256 for i in range(256)]


def write_packed(kind, folder):
    (folder / "config.json").write_text(json.dumps(SHAPE))
    path = folder / f"{kind}.gguf"
    subprocess.run([sys.executable, ROOT / "tests/gpu/random_gguf.py", folder, path, "--type", kind, "--vocab", str(VOCAB)], check=True)
    return path


def write_unpacked(packed, path):
    """The same keys and values, each as F32."""
    reader, writer = gguf.GGUFReader(packed), gguf.GGUFWriter(path, "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = field.contents()
        {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}[type(value)](key, value)
    for t in reader.tensors:
        writer.add_tensor(t.name, gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32).reshape([int(n) for n in t.shape[::-1]]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def of_llama(path):
    model = Llama(str(path), n_ctx=512, n_batch=512, n_ubatch=512, logits_all=True, type_k=0, type_v=0, flash_attn=False, verbose=False)
    model.eval(IDS)
    return model.scores[:len(IDS), :VOCAB].copy()


def of_flashd(path, isa):
    text = " ".join(map(str, IDS)) + "\n"
    out = subprocess.run([ROOT / "build/tests/golden/logits", path, "--isa", isa, "--kv", "f32"], input=text.encode(), stdout=subprocess.PIPE, check=True).stdout
    return np.frombuffer(out, np.float32).reshape(len(IDS), -1)


def off(logits, expected):
    return np.sqrt(((logits - expected) ** 2).mean() / (expected ** 2).mean())


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for kind in sys.argv[1:] or TYPES:
            packed, plain = write_packed(kind, folder), folder / "plain.gguf"
            write_unpacked(packed, plain)
            expected = of_llama(plain)
            print(f"{kind:8s} portable {off(of_flashd(packed, 'portable'), expected):.1e}  best set {off(of_flashd(packed, 'auto'), expected):.1e}  "
                  f"llama.cpp {off(of_llama(packed), expected):.1e}")


main()
