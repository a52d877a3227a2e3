"""requantize.py MODEL.gguf TYPE OUT.gguf - the same model with its matrices as TYPE (BF16, F16, Q8_0): dequantised, then packed.

Needs the Python packages gguf and numpy.
"""
import sys

import gguf
import numpy as np


def copy_keys(reader, writer):
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)


def main():
    source, kind, target = sys.argv[1], gguf.GGMLQuantizationType[sys.argv[2]], sys.argv[3]
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    copy_keys(reader, writer)
    writer.add_file_type(gguf.LlamaFileType["MOSTLY_" + sys.argv[2]])
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        wanted = kind if values.ndim > 1 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
