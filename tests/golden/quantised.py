"""quantised.py - the forms in which directories have quantised matrices: for make_model.py, which has the families.

Of a matrix "x.weight" a form gives the tensors that stand for it, whose bytes are a function of their place in the model's list as
all others' are, and, from these bytes and the form's description alone, the weights that they mean.
"""
import json

import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
E2M1 = np.concatenate([E2M1, -E2M1])
AWQ_ROWS = [0, 2, 4, 6, 1, 3, 5, 7]  # the row whose code is the i-th of a word


def tensor(suffix, dtype, rows, cols, low=0, count=256, center=0.0, scale=0.0):
    """rows 0: a vector. Bytes are low up to low + count; floats center +- scale; count 0: groups of low columns, in no order; low -1: the number count. TEXT: bytes, those of shape."""
    return {"suffix": suffix, "dtype": dtype, "rows": rows, "cols": cols, "low": low, "count": count, "center": center, "scale": scale}


def floats(suffix, dtype, rows, cols, size):
    return tensor(suffix, dtype, rows, cols, center=float(np.float32(size)), scale=float(np.float32(size / 2)))


def groups_of(k, size):
    return -(-k // size) if size else 1


def spread(scales, n, k, rows, cols):
    return np.repeat(np.repeat(scales, rows, 0)[:n], cols, 1)[:, :k]


def nibbles(data, rows, cols):
    """Little-endian words: the lowest four bits first."""
    data = data.reshape(rows, -1)
    return np.stack([data & 15, data >> 4], 2).reshape(rows, -1)[:, :cols].astype(np.float32)


def stream(words, bits, lines, count):
    """Codes that go on in the next word, bit by bit."""
    each = (words.reshape(lines, -1)[:, :, None] >> np.arange(32, dtype=np.uint32) & 1).reshape(lines, -1)[:, : count * bits]
    return (each.reshape(lines, count, bits) << np.arange(bits, dtype=np.uint32)).sum(2).astype(np.float32)


def e4m3(codes):
    codes = codes.astype(np.int32)
    exponent, fraction = codes >> 3 & 15, codes & 7
    value = np.where(exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10.0))
    return np.where(codes & 128, -value, value).astype(np.float32)


class Bytes:
    """FP8 or int8; where less than 128 columns have one scale, what it stands for is rounded to BF16."""

    def __init__(self, config, dtype, scale_name, scale_dtype, blocks, has_four_sides=False, has_zeros=False, names=("weight", "weight_zero_point")):
        self.has_zeros, self.names = has_zeros, names
        self.config, self.dtype, self.scale_name, self.scale_dtype, self.blocks = config, dtype, scale_name, scale_dtype, blocks
        self.has_four_sides = has_four_sides

    def sides(self, n, k):
        rows, cols = self.blocks
        return rows or n, cols or k

    def tensors(self, n, k):
        rows, cols = self.sides(n, k)
        size = 2 / np.sqrt(k) / (128 if self.dtype == "F8_E4M3" else 73)
        scale = (0, 1) if rows == n and cols == k else (-(-n // rows), -(-k // cols))
        if self.scale_dtype in ("U8", "F8_E8M0"):
            sides = tensor(self.scale_name, self.scale_dtype, *scale, 127 + int(np.log2(size)) - 2, 4)
        else:
            sides = floats(self.scale_name, self.scale_dtype, *scale, size)
        if self.has_four_sides:
            sides["shape"] = [scale[0], 1, scale[1], 1]
        return [tensor(self.names[0], self.dtype, n, k), sides] + ([tensor(self.names[1], "I8", *scale, 0, 16)] if self.has_zeros else [])

    def weights(self, n, k, data):
        codes = data[self.names[0]]
        codes = e4m3(codes.view(np.uint8)) if self.dtype == "F8_E4M3" else codes.view(np.int8).astype(np.float32)
        rows, cols = self.sides(n, k)
        scales = data[self.scale_name]
        if self.scale_dtype in ("U8", "F8_E8M0"):
            scales = np.ldexp(np.float32(1), scales.view(np.uint8).astype(int) - 127).astype(np.float32)
        shape, codes = (-(-n // rows), -(-k // cols)), codes.reshape(n, k)
        if self.has_zeros:
            codes = codes - spread(data[self.names[1]].view(np.int8).astype(np.float32).reshape(shape), n, k, rows, cols)
        weights = codes * spread(scales.reshape(shape), n, k, rows, cols)
        return as_bf16(weights) if self.has_zeros or (cols < k and cols % 128) else weights


class Stacks:
    """All experts of a layer in one tensor, as the family has them, with scales beside its name; other matrices as form has them."""

    def __init__(self, form, scale_name, scale_dtype, scales, nv=False):
        self.form, self.config = form, form.config
        self.scale_name, self.scale_dtype, self.scales, self.nv = scale_name, scale_dtype, scales, nv
        self.tensors, self.weights = form.tensors, form.weights

    def sides(self, name, num, a, b):
        """The scales' shape."""
        return {"blocks": [num, -(-a // 128), -(-b // 128)], "each": [num, 1, 1], "all": [], "rows": [num, 1, b] if "gate_up" in name else [num, b, 1],
                "halves": [num, 2 if "gate_up" in name else 1, 1], "groups": [num, a // 16, b]}[self.scales]

    def stack_tensors(self, name, num, a, b):
        """Of [num][a][b]."""
        shape, size = self.sides(name, num, a, b), 2 / np.sqrt(min(a, b))
        lines, cols = int(np.prod(shape[:-1])) if shape else 0, shape[-1] if shape else 1
        if self.nv:
            return [tensor("", "U8", num * a // 2, b) | {"shape": [num, a // 2, b]}, tensor(self.scale_name, "F8_E4M3", lines, cols, 0x08, 0x10) | {"shape": shape},
                    floats(self.scale_name + "_2", "F32", 0, 1, size / 2.4 / 0.03) | {"shape": []}]
        return [tensor("", "F8_E4M3", num * a, b) | {"shape": [num, a, b]}, floats(self.scale_name, self.scale_dtype, lines, cols, size / 128) | {"shape": shape}]

    def stack_weights(self, name, num, a, b, data):
        shape = self.sides(name, num, a, b)
        if self.nv:
            packed = data[""].view(np.uint8).reshape(num, a // 2, b)
            codes = E2M1[np.stack([packed & 15, packed >> 4], 2).reshape(num, a, b).astype(int)]
            scales = e4m3(data[self.scale_name].view(np.uint8)).reshape(shape) * data[self.scale_name + "_2"][0]
            return codes * np.repeat(scales, 16, 1)
        codes, scales = e4m3(data[""].view(np.uint8)).reshape(num, a, b), data[self.scale_name].reshape(shape)
        if self.scales == "blocks":
            scales = np.stack([spread(s, a, b, 128, 128) for s in scales])
        if self.scales == "rows":
            scales = scales.reshape(num, 1, b)
        if self.scales == "halves" and shape[1] == 2:
            scales = np.repeat(scales, a // 2, 1)
        return codes * scales


class Packed:
    """compressed-tensors: rows of codes in words."""

    def __init__(self, bits, group, zeros=False, ordered=False, scale_dtype="BF16"):
        self.bits, self.group, self.zeros, self.ordered, self.scale_dtype = bits, group, zeros, ordered, scale_dtype
        weights = {"num_bits": bits, "type": "int", "strategy": "group" if group else "channel", "group_size": group, "symmetric": not zeros}
        if ordered:
            weights["actorder"] = "group"
        self.config = compressed("pack-quantized", weights)

    def tensors(self, n, k):
        groups = groups_of(k, self.group)
        size = 2 / np.sqrt(k) / (4.6 if self.bits == 4 else 73 if self.bits == 8 else 2 ** self.bits / 3.5)
        out = [tensor("weight_packed", "I32", n, -(-k * self.bits // 32)), floats("weight_scale", self.scale_dtype, n, groups, size)]
        out += [tensor("weight_zero_point", "I32", -(-n * self.bits // 32), groups)] if self.zeros else []
        out += [tensor("weight_g_idx", "I32", 0, k, low=self.group, count=0)] if self.ordered else []
        return out

    def weights(self, n, k, data):
        packed = data["weight_packed"].view(np.uint8)
        codes = nibbles(packed, n, k) if self.bits == 4 else packed.reshape(n, k).astype(np.float32) if self.bits == 8 else stream(packed.view(np.uint32), self.bits, n, k)
        groups = groups_of(k, self.group)
        group = data["weight_g_idx"].view(np.int32) if self.ordered else np.arange(k) // (self.group or k)
        zeros = np.full((n, groups), 1 << (self.bits - 1), np.float32)
        if self.zeros and self.bits not in (4, 8):
            zeros = stream(np.ascontiguousarray(data["weight_zero_point"].view(np.uint32).reshape(-1, groups).T), self.bits, groups, n).T
        elif self.zeros:  # words of eight or four rows
            words, mask = data["weight_zero_point"].view(np.uint32).reshape(-1, groups), (1 << self.bits) - 1
            zeros = np.concatenate([np.stack([w >> i & mask for i in range(0, 32, self.bits)]) for w in words])[:n].astype(np.float32)
        weights = (codes - zeros[:, group]) * data["weight_scale"].reshape(n, groups)[:, group]
        return as_bf16(weights) if self.bits not in (4, 8) or (self.bits == 8 and (self.zeros or self.group % 128)) else weights


class Fp4:
    def __init__(self, config, nv, names=("weight_packed", "weight_global_scale")):
        self.config, self.nv, self.names = config, nv, names

    def tensors(self, n, k):
        size = 2 / np.sqrt(k) / 2.4
        out = [tensor(self.names[0], "U8", n, k // 2)]
        if not self.nv:
            middle = 127 + int(np.log2(size))
            return out + [tensor("weight_scale", "U8", n, k // 32, middle - 2, 4)]
        scale = 0.03 / size if self.names[1] == "weight_global_scale" else size / 0.03
        return out + [tensor("weight_scale", "F8_E4M3", n, k // 16, 0x08, 0x10), floats(self.names[1], "F32", 0, 1, scale)]

    def weights(self, n, k, data):
        codes = E2M1[nibbles(data[self.names[0]].view(np.uint8), n, k).astype(int)]
        if not self.nv:
            scales = np.ldexp(np.float32(1), data["weight_scale"].view(np.uint8).astype(int) - 127)
            return codes * spread(scales.reshape(n, -1).astype(np.float32), n, k, 1, 32)
        scales, own = e4m3(data["weight_scale"].view(np.uint8)).reshape(n, -1), data[self.names[1]][0]
        scales = scales / own if self.names[1] == "weight_global_scale" else scales * own
        return codes * spread(scales, n, k, 1, 16)


class Transposed:
    """GPTQ: words of eight columns; AWQ: words of eight rows."""

    def __init__(self, method, group, ordered=False, v2=False, renames=None):
        self.renames = renames or {}  # of parts of names
        self.awq, self.group, self.ordered = method == "awq", group, ordered
        self.add = 1 if not self.awq and not v2 else 0
        self.config = {"quant_method": method, "bits": 4, "group_size": group or -1}
        if self.awq:
            self.config |= {"version": "gemm", "zero_point": True}
        else:
            self.config |= {"desc_act": ordered, "sym": False, **({"checkpoint_format": "gptq_v2"} if v2 else {})}

    def tensors(self, n, k):
        groups = groups_of(k, self.group)
        words = tensor("qweight", "I32", k, n // 8) if self.awq else tensor("qweight", "I32", k // 8, n)
        out = [words, tensor("qzeros", "I32", groups, n // 8), floats("scales", "F16", groups, n, 2 / np.sqrt(k) / 4.6)]
        return out + ([tensor("g_idx", "I32", 0, k, low=self.group or k, count=0 if self.ordered else -1)] if not self.awq else [])

    def along(self, words, order=range(8)):
        """(lines, n // 8) words to (lines, n)."""
        out = np.empty((*words.shape, 8), np.float32)
        for place, row in enumerate(order):
            out[..., row] = words >> 4 * place & 15
        return out.reshape(words.shape[0], -1)

    def weights(self, n, k, data):
        order = AWQ_ROWS if self.awq else range(8)
        words = data["qweight"].view(np.uint32)
        codes = self.along(words.reshape(k, n // 8), order) if self.awq else np.stack(
            [words.reshape(k // 8, n) >> 4 * i & 15 for i in range(8)], 1).reshape(k, n).astype(np.float32)
        zeros = self.along(data["qzeros"].view(np.uint32).reshape(-1, n // 8), order) + self.add
        group = np.arange(k) // (self.group or k) if self.awq else data["g_idx"].view(np.int32)
        return np.ascontiguousarray(((codes - zeros[group]) * data["scales"].reshape(-1, n)[group]).T)


class Bits:
    """GPTQ of other than four bits: streams of bits down the columns, zero points along the rows; unpacked to BF16."""

    def __init__(self, bits, group, ordered=False):
        self.bits, self.group, self.ordered = bits, group, ordered
        self.config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": ordered, "sym": False}

    def tensors(self, n, k):
        groups = groups_of(k, self.group)
        out = [tensor("qweight", "I32", k * self.bits // 32, n), tensor("qzeros", "I32", groups, n * self.bits // 32),
               floats("scales", "F16", groups, n, 2 / np.sqrt(k) / 2**self.bits)]
        return out + [tensor("g_idx", "I32", 0, k, low=self.group, count=0 if self.ordered else -1)]

    def along(self, words):
        """(lines, words) to (lines, codes), bit by bit."""
        bits = (words[:, :, None] >> np.arange(32, dtype=np.uint32) & 1).reshape(words.shape[0], -1, self.bits)
        return (bits << np.arange(self.bits, dtype=np.uint32)).sum(2).astype(np.float32)

    def weights(self, n, k, data):
        codes = self.along(np.ascontiguousarray(data["qweight"].view(np.uint32).reshape(-1, n).T))
        zeros = self.along(data["qzeros"].view(np.uint32).reshape(groups_of(k, self.group), -1)) + 1
        group, scales = data["g_idx"].view(np.int32), data["scales"].reshape(-1, n)
        return as_bf16((codes - zeros[group].T) * scales[group].T)


class Blocks:
    """gpt-oss: of all experts of a layer."""

    config = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}

    def __init__(self, experts):
        self.experts = experts

    def tensors(self, n, k):
        middle, shape = 127 + int(np.log2(2 / np.sqrt(k) / 2.4)), [self.experts, n // self.experts, k // 32]
        return [tensor("_blocks", "U8", n, k // 2) | {"shape": shape + [16]}, tensor("_scales", "U8", n, k // 32, middle - 2, 4) | {"shape": shape}]

    def weights(self, n, k, data):
        codes = E2M1[nibbles(data["_blocks"].view(np.uint8), n, k).astype(int)]
        scales = np.ldexp(np.float32(1), data["_scales"].view(np.uint8).astype(int) - 127)
        return codes * spread(scales.reshape(n, -1).astype(np.float32), n, k, 1, 32)


def as_bf16(values):
    """Rounded, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


class Table:
    """bitsandbytes' four bits: codes of a table, whose scales may be codes as well; what they stand for is rounded to BF16, as it says."""

    def __init__(self, kind, block, nested):
        self.kind, self.block, self.nested = kind, block, nested
        self.config = bitsandbytes(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=nested)

    def state(self, n, k):
        own = {"quant_type": self.kind, "blocksize": self.block, "dtype": "bfloat16", "shape": [n, k]}
        return json.dumps(own | ({"nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.0625} if self.nested else {}))

    def tensors(self, n, k):
        scales, size = n * k // self.block, 2 / np.sqrt(k)
        out = [tensor("weight", "U8", n * k // 2, 1), tensor("weight.quant_map", "F32", 0, 16, scale=0.5)]
        if self.nested:
            out += [tensor("weight.absmax", "U8", 0, scales), floats("weight.nested_absmax", "F32", 0, -(-scales // 256), size / 2),
                    floats("weight.nested_quant_map", "F32", 0, 256, 1)]
        else:
            out += [floats("weight.absmax", "F32", 0, scales, size)]
        text = self.state(n, k)
        return out + [tensor(f"weight.quant_state.bitsandbytes__{self.kind}", "TEXT", 0, len(text)) | {"shape": text}]

    def weights(self, n, k, data):
        packed, absmax = data["weight"].reshape(-1), data["weight.absmax"]
        codes = np.stack([packed >> 4, packed & 15], 1).reshape(-1)
        if self.nested:
            units = np.repeat(data["weight.nested_absmax"], 256)[:len(absmax)]
            absmax = data["weight.nested_quant_map"][absmax] * units + np.float32(0.0625)
        return as_bf16(data["weight.quant_map"][codes] * np.repeat(absmax, self.block)).reshape(n, k)


class Rows8:
    """bitsandbytes' int8: 127 is a row's largest magnitude."""

    def __init__(self):
        self.config = bitsandbytes(load_in_8bit=True)

    def tensors(self, n, k):
        return [tensor("weight", "I8", n, k), floats("SCB", "F32", 0, n, 2 / np.sqrt(k) * 127 / 73), tensor("weight_format", "U8", 0, 1, count=1)]

    def weights(self, n, k, data):
        return data["weight"].view(np.int8).astype(np.float32).reshape(n, k) * (data["SCB"] / np.float32(127))[:, None]


class Mixed:
    """compressed-tensors with groups that differ: one form for square matrices, one for more rows than columns, and so on."""

    def __init__(self, *forms):
        self.forms = forms
        groups = {f"group_{i}": f.config["config_groups"]["group_0"] | {"format": f.config["format"]} for i, f in enumerate(forms)}
        self.config = forms[0].config | {"format": "mixed-precision", "config_groups": groups}

    def of(self, n, k):
        return self.forms[0 if n == k else 1 if n > k else 2 if 2 * n > k else 3]

    def tensors(self, n, k):
        return self.of(n, k).tensors(n, k)

    def weights(self, n, k, data):
        return self.of(n, k).weights(n, k, data)


def bitsandbytes(**own):
    return {"quant_method": "bitsandbytes", "bnb_4bit_quant_storage": "uint8", "llm_int8_skip_modules": ["lm_head"], **own}


def compressed(form, weights, activations=None):
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations, "output_activations": None}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group}, "ignore": ["lm_head"],
            "quantization_status": "compressed"}


DYNAMIC = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}
ROWS = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
MX = {"type": "float", "strategy": "group", "group_size": 32, "symmetric": True, "scale_dtype": "torch.uint8"}
FORMATS = {
    "fp8, blocks": Bytes({"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
                         "F8_E4M3", "weight_scale_inv", "F32", (128, 128)),
    "fp8, one scale": Bytes({"quant_method": "fp8", "activation_scheme": "static"}, "F8_E4M3", "weight_scale", "F32", (0, 0)),
    "fp8, rows": Bytes(compressed("float-quantized", ROWS, DYNAMIC), "F8_E4M3", "weight_scale", "BF16", (1, 0)),
    "int8, rows": Bytes(compressed("int-quantized", ROWS | {"type": "int"}, DYNAMIC | {"type": "int"}), "I8", "weight_scale", "BF16", (1, 0)),
    "packed, groups of 32": Packed(4, 32),
    "packed, groups of 128, zeros": Packed(4, 128, zeros=True),
    "packed, rows": Packed(4, 0, scale_dtype="F32"),
    "packed, groups of 64 in no order": Packed(4, 64, ordered=True),
    "packed, 8 bits": Packed(8, 128),
    "awq": Transposed("awq", 64),
    "gptq": Transposed("gptq", 32),
    "gptq, in no order": Transposed("gptq", 64, ordered=True, v2=True),
    "gptq, 8 bits": Bits(8, 64),
    "gptq, 3 bits, in no order": Bits(3, 32, ordered=True),
    "nvfp4": Fp4(compressed("nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}), True),
    "nvfp4, modelopt": Fp4({"quant_method": "modelopt", "quant_algo": "NVFP4"}, True, ("weight", "weight_scale_2")),
    "mxfp4": Fp4(compressed("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": True}), False),
    "mxfp4, blocks of experts": Blocks(6),
    "bitsandbytes, nf4, quantised scales": Table("nf4", 64, True),
    "bitsandbytes, fp4": Table("fp4", 128, False),
    "bitsandbytes, int8": Rows8(),
}
FORMATS["mixed"] = Mixed(FORMATS["fp8, rows"], FORMATS["packed, groups of 32"], Packed(8, 0), FORMATS["nvfp4"])
FORMATS |= {
    "mxfp8": Bytes(compressed("mxfp8-quantized", MX | {"num_bits": 8}), "F8_E4M3", "weight_scale", "U8", (1, 32)),
    "mxfp8, modelopt": Bytes({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "F8_E4M3", "weight_scale", "U8", (1, 32)),
    "fp8, blocks, powers of two": Bytes({"quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}, "F8_E4M3", "weight_scale_inv",
                                        "F8_E8M0", (128, 128)),
    "fp8, blocks, modelopt": Bytes({"quant_method": "modelopt", "quant_algo": "fp8_pb_wo"}, "F8_E4M3", "weight_scale", "F32", (128, 128), True),
    "int4 in bytes": Bytes(compressed("int-quantized", ROWS | {"type": "int", "num_bits": 4, "strategy": "group", "group_size": 32},
                                      DYNAMIC | {"type": "int"}), "I8", "weight_scale", "BF16", (1, 32)),
    "packed, 8 bits, zeros": Packed(8, 64, zeros=True),
    "gptq, experts by their roles": Transposed("gptq", 32, renames={".w1.": ".gate_proj.", ".w2.": ".down_proj.", ".w3.": ".up_proj."}),
}
FORMATS |= {
    "int8, rows, zeros": Bytes(compressed("int-quantized", ROWS | {"type": "int", "symmetric": False}, DYNAMIC | {"type": "int"}), "I8", "weight_scale", "BF16",
                               (1, 0), has_zeros=True),
    "packed, 3 bits": Packed(3, 32),
    "packed, 5 bits, zeros": Packed(5, 64, zeros=True),
}
class Multiplied:
    """A form whose products multiply what they have of each column by a factor: ModelOpt's AWQ and SmoothQuant."""

    def __init__(self, form, algorithm):
        self.form, self.config = form, {"quant_method": "modelopt", "quant_algo": algorithm}

    def tensors(self, n, k):
        return self.form.tensors(n, k) + [floats("pre_quant_scale", "BF16", 0, k, 1.0)]

    def weights(self, n, k, data):
        return as_bf16(self.form.weights(n, k, data) * data["pre_quant_scale"][None, :])


FORMATS |= {
    "nvfp4, modelopt's awq": Multiplied(FORMATS["nvfp4, modelopt"], "NVFP4_AWQ"),
    "int8, modelopt's smoothquant": Multiplied(Bytes({}, "I8", "weight_scale", "F32", (1, 0)), "W8A8_SQ_PER_CHANNEL"),
}
TORCHAO_NAMES = ("_weight_qdata", "_weight_zero_point")


def torchao(kind, **own):
    return {"quant_method": "torchao", "quant_type": {"default": {"_type": kind, "_version": 2, "_data": own}}, "modules_to_not_convert": ["lm_head"]}


FORMATS |= {
    "torchao, fp8": Bytes(torchao("Float8DynamicActivationFloat8WeightConfig"), "F8_E4M3", "_weight_scale", "F32", (1, 0), names=TORCHAO_NAMES),
    "torchao, int4 in bytes": Bytes(torchao("Int8DynamicActivationIntxWeightConfig"), "I8", "_weight_scale", "BF16", (1, 32), has_zeros=True,
                                    names=TORCHAO_NAMES),
}


class Ternary:
    """BitNet: rows of codes folded in four, and a scale; as TQ2_0 has it where rows are whole blocks of that, else rounded to BF16."""

    def __init__(self, linear_class):
        self.divides = linear_class == "bitlinear"
        self.config = {"quant_method": "bitnet", "linear_class": linear_class, "quantization_mode": "offline", "modules_to_not_convert": None}

    def tensors(self, n, k):
        size = 2 / np.sqrt(k) / 1.6
        return [tensor("weight", "U8", n // 4, k), floats("weight_scale", "BF16", 0, 1, 1 / size if self.divides else size)]

    def weights(self, n, k, data):
        packed, scale = data["weight"].view(np.uint8).reshape(n // 4, k), data["weight_scale"][0]
        codes = np.concatenate([packed >> 2 * i & 3 for i in range(4)]).astype(np.float32) - 1
        return times_scale(codes, 1 / scale if self.divides else scale)


class Online:
    """BitNet's master weights, in BF16."""

    config = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online", "modules_to_not_convert": ["lm_head"]}

    def tensors(self, n, k):
        return [tensor("", "BF16", n, k, scale=float(np.float32(2 / np.sqrt(k))))]

    def weights(self, n, k, data):
        values = data[""].reshape(n, k)
        mean = np.float32(np.abs(values.astype(np.float64)).mean())
        return times_scale(np.clip(np.round(values * (1 / mean)), -1, 1), as_bf16(mean))


def times_scale(codes, scale):
    return codes * np.float32(np.float16(scale)) if codes.shape[1] % 256 == 0 else as_bf16(codes * np.float32(scale))


FORMATS |= {"bitnet, autobitlinear": Ternary("autobitlinear"), "bitnet, bitlinear": Ternary("bitlinear"), "bitnet, online": Online()}
MODELOPT = Bytes({"quant_method": "modelopt", "quant_algo": "FP8"}, "F8_E4M3", "weight_scale", "F32", (0, 0))
FBGEMM = Bytes({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "F8_E4M3", "weight_scale", "F32", (1, 0))
FORMATS |= {
    "fp8, blocks, stacks of experts": Stacks(FORMATS["fp8, blocks"], "_scale_inv", "BF16", "blocks"),
    "fp8, one scale each, stacks of experts": Stacks(FORMATS["fp8, one scale"], "_scale_inv", "BF16", "each"),
    "fp8, halves, stacks of experts": Stacks(FORMATS["fp8, one scale"], "_scale_inv", "F32", "halves"),
    "fp8, rows, stacks of experts": Stacks(FBGEMM, "_scale", "F32", "rows"),
    "fp8, modelopt, stacks of experts": Stacks(MODELOPT, "_weight_scale", "F32", "all"),
    "nvfp4, modelopt, stacks of experts": Stacks(FORMATS["nvfp4, modelopt"], "_weight_scale", "F8_E4M3", "groups", nv=True),
}
FORMATS["nvfp4, modelopt, and the head"] = FORMATS["nvfp4, modelopt"]


class Mlx:
    """MLX: streams of codes in words, whose groups have a scale and an offset; MXFP4, MXFP8 and NVFP4 in words. Of all matrices, the embedding and the
    head among them. MXFP8's are rounded to BF16; so are six and eight bits, but of matrices that are larger than these."""

    is_everywhere = True

    def __init__(self, bits, group, mode="affine", scale_dtype="BF16"):
        self.bits, self.group, self.mode, self.scale_dtype = bits, group, mode, scale_dtype
        self.config = {"group_size": group, "bits": bits, "mode": mode}

    def tensors(self, n, k):
        size, groups = 2 / np.sqrt(k), k // self.group
        words = tensor("weight", "U32", n, k * self.bits // 32, count=127 if self.mode == "mxfp8" else 256)  # no NaN
        if self.mode == "nvfp4":
            return [words, tensor("scales", "U8", n, groups, 0x08, 0x10), floats("global_scale", "F32", 0, 1, size / 2.4 / 0.03 * 2688) | {"shape": []}]
        if self.mode != "affine":
            return [words, tensor("scales", "U8", n, groups, 127 + int(np.log2(size / (2.4 if self.bits == 4 else 128))) - 3, 4)]
        half = 2 ** (self.bits - 1)
        return [words, floats("scales", self.scale_dtype, n, groups, size / half),
                tensor("biases", self.scale_dtype, n, groups, center=float(np.float32(-size)), scale=float(np.float32(size / 4)))]

    def weights(self, n, k, data):
        words, groups = data["weight"].view(np.uint32), k // self.group
        if self.mode == "affine":
            return stream(words, self.bits, n, k) * spread(data["scales"].reshape(n, groups), n, k, 1, self.group) + spread(
                data["biases"].reshape(n, groups), n, k, 1, self.group)
        scales = data["scales"].view(np.uint8).reshape(n, groups)
        if self.mode == "nvfp4":
            scales = e4m3(scales) * (data["global_scale"][0] / np.float32(448 * 6))
        else:
            scales = np.ldexp(np.float32(1), scales.astype(int) - 127)
        codes = E2M1[nibbles(words.view(np.uint8), n, k).astype(int)] if self.bits == 4 else e4m3(words.view(np.uint8)).reshape(n, k)
        weights = codes * spread(scales, n, k, 1, self.group)
        return as_bf16(weights) if self.bits == 8 else weights


FORMATS |= {
    "mlx, 4 bits": Mlx(4, 64),
    "mlx, 3 bits, F16": Mlx(3, 32, scale_dtype="F16"),
    "mlx, 5 bits": Mlx(5, 32),
    "mlx, 6 bits": Mlx(6, 64),
    "mlx, mxfp4": Mlx(4, 32, "mxfp4"),
    "mlx, mxfp8": Mlx(8, 32, "mxfp8"),
    "mlx, nvfp4": Mlx(4, 16, "nvfp4"),
}


class Metal(Mlx):
    """transformers' metal: the same with another name for what is added, and scales of 32 bits."""

    def __init__(self, bits, group):
        super().__init__(bits, group, scale_dtype="F32")
        self.config = {"quant_method": "metal", "bits": bits, "group_size": group, "modules_to_not_convert": ["lm_head"]}

    def tensors(self, n, k):
        return [t | {"suffix": t["suffix"].replace("biases", "qbiases")} for t in super().tensors(n, k)]

    def weights(self, n, k, data):
        return super().weights(n, k, {name.replace("qbiases", "biases"): v for name, v in data.items()})


FORMATS |= {"metal": Metal(4, 64)}


class MlxExperts(Mlx):
    """The same of models whose experts MLX has in a tensor for each role, convolutions as [channels][taps][1], norms as what they multiply by, and
    latents' product in halves of all heads, the first one transposed. alternate: the family has gate's and up's rows in turns."""

    def __init__(self, bits, group, mode="affine", module="switch_mlp", adds_one=False, alternate=False):
        super().__init__(bits, group, mode)
        self.adds_one, self.alternate = adds_one, alternate
        self.renames = {"experts.gate_up_proj@": f"{module}.", "experts.down_proj@": f"{module}.", "experts.gate_up_proj_bias@": f"{module}.",
                        "experts.down_proj_bias@": f"{module}.", "kv_b_proj.@": ""}

    def roles(self, name):
        return ("gate_proj.", "up_proj.") if "gate_up" in name else ("down_proj.",)

    def tensors(self, n, k):
        """Rows that are no whole groups stay plain."""
        return [tensor("weight", "BF16", n, k, count=0, scale=float(np.float32(2 / np.sqrt(k))))] if k % self.group else super().tensors(n, k)

    def weights(self, n, k, data):
        return data["weight"].reshape(n, k) if k % self.group else super().weights(n, k, data)

    def join(self, parts, name):
        return np.stack(parts, 2).reshape(parts[0].shape[0], -1, *parts[0].shape[2:]) if self.alternate and len(parts) == 2 else np.concatenate(parts, 1)

    def stack_tensors(self, name, num, a, b):
        rows = a // len(self.roles(name))
        return [t | {"suffix": "@" + role + t["suffix"]} | ({"shape": [num, rows, t["cols"]]} if t["rows"] else {})
                for role in self.roles(name) for t in self.tensors(num * rows, b)]

    def stack_weights(self, name, num, a, b, data):
        roles = self.roles(name)
        parts = [self.weights(num * a // len(roles), b, {k.removeprefix("@" + r): v for k, v in data.items() if k.startswith("@" + r)}) for r in roles]
        weights = self.join([p.reshape(num, -1, b) for p in parts], name)
        return weights.reshape(-1, b) if self.alternate else weights

    def plain_tensors(self, name, n, k, center, scale, config):
        """Of what is not quantised."""
        own = tensor("", "BF16", n, k, count=0, center=center, scale=scale)
        if name.endswith("proj_bias"):
            return [own | {"suffix": f"@{role}bias", "cols": k // len(self.roles(name))} for role in self.roles(name)]
        if name.endswith("kv_b_proj.weight"):
            heads, rank, qk, v = (config[key] for key in ("num_attention_heads", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim"))
            return [own | {"suffix": "@embed_q.weight", "rows": heads * rank, "cols": qk, "shape": [heads, rank, qk]},
                    own | {"suffix": "@unembed_out.weight", "rows": heads * v, "shape": [heads, v, rank]}]
        if name.endswith("conv1d.weight"):
            own["shape"] = [n, k, 1]
        if self.adds_one and name.endswith("norm.weight") and center == 0:
            own["center"] = 1.0
        return [own]

    def plain_weights(self, name, n, k, center, data, config):
        if name.endswith("proj_bias"):
            return self.join([v.reshape(n, -1) for v in data.values()], name)
        if name.endswith("kv_b_proj.weight"):
            heads = config["num_attention_heads"]
            q, v = data["@embed_q.weight"].reshape(heads, k, -1), data["@unembed_out.weight"].reshape(heads, -1, k)
            return np.concatenate([q.swapaxes(1, 2), v], 1).reshape(n, k)
        if name.endswith("conv1d.weight"):
            return data[""].reshape(n, 1, k)
        return data[""].reshape((n, k) if n else (k,)) - np.float32(self.adds_one and name.endswith("norm.weight") and center == 0)


FORMATS |= {
    "mlx, experts": MlxExperts(4, 32),
    "mlx, experts and whole norms": MlxExperts(8, 32, adds_one=True),
    "mlx, mxfp4, experts": MlxExperts(4, 32, "mxfp4", module="experts", alternate=True),
}


class TorchaoInt4:
    """torchao's four bits: rows of signed codes in bytes, or tinygemm's tiles; what they stand for is rounded to BF16."""

    def __init__(self, group, is_tiled):
        self.group, self.is_tiled = group, is_tiled
        self.config = torchao("Int4WeightOnlyConfig", group_size=group, int4_packing_format="tile_packed_to_4d" if is_tiled else "plain")

    def tensors(self, n, k):
        size = 2 / np.sqrt(k) / 8
        if not self.is_tiled:
            return [tensor("_weight_qdata", "I8", n, k // 2), floats("_weight_scale", "BF16", k // self.group, n, size),
                    tensor("_weight_zero_point", "BF16", k // self.group, n, scale=float(np.float32(size)))]
        tiles = -(-k // 1024) * 8
        groups = tiles * 128 // self.group
        return [tensor("_weight_qdata", "I32", n // 8, tiles * 128) | {"shape": [n // 8, tiles, 32, 4]},
                floats("_weight_scale_and_zero", "BF16", groups, 2 * n, size) | {"shape": [groups, n, 2]}]

    def untiled(self, words, n):
        """As torch's tinygemm packs them: a lane has eight columns of two steps of 16."""
        tiles = words.reshape(n // 8, -1, 32, 4)
        out = np.empty((n, tiles.shape[1] * 128), np.float32)
        for lane in range(32):
            for pair in range(4):
                columns = [pair * 32 + step + lane % 4 * 2 + i for step in (0, 8, 16, 24) for i in (0, 1)]
                for column, place in zip(columns, (0, 4, 1, 5, 2, 6, 3, 7)):
                    out[lane // 4::8, column::128] = tiles[:, :, lane, pair] >> np.uint32(4 * place) & 15
        return out

    def weights(self, n, k, data):
        if self.is_tiled:
            codes = self.untiled(data["_weight_qdata"].view(np.uint32), n)[:, :k] - 8
            both = data["_weight_scale_and_zero"].reshape(-1, n, 2)
            scales, zeros = both[:, :, 0], both[:, :, 1]
        else:
            codes = (nibbles(data["_weight_qdata"].view(np.uint8) ^ 0x88, n, k)) - 8
            scales, zeros = (data[name].reshape(-1, n) for name in ("_weight_scale", "_weight_zero_point"))
        return as_bf16(codes * spread(scales.T, n, k, 1, self.group) + spread(zeros.T, n, k, 1, self.group))


FORMATS |= {"torchao's int4": TorchaoInt4(32, False), "torchao's int4, tiles": TorchaoInt4(64, True)}


class Hqq:
    """HQQ: a table of groups cut into as many parts as a byte, or of three bits a word, has codes; what they stand for is rounded to BF16."""

    def __init__(self, bits, group, axis):
        self.bits, self.group, self.axis = bits, group, axis
        self.config = {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": bits, "group_size": group, "axis": axis}}, "skip_modules": ["lm_head"]}

    def tensors(self, n, k):
        size, groups = 2 / np.sqrt(k), n * k // self.group
        lines, width = (groups, self.group) if self.axis else (self.group, groups)
        parts, half = 10 if self.bits == 3 else 8 // self.bits, 2 ** (self.bits - 1)
        shape = (groups, 1) if self.axis else (1, groups)
        return [tensor("W_q", "I32" if self.bits == 3 else "U8", -(-lines // parts), width), floats("scale", "F16", *shape, size / half),
                floats("zero", "F16", *shape, half)] + [tensor(name, "I32", 0, 1, low=-1, count=value) for name, value in (
                    ("nbits", self.bits), ("group_size", self.group), ("axis", self.axis))]

    def weights(self, n, k, data):
        packed = data["W_q"].view(np.uint32 if self.bits == 3 else np.uint8)
        groups, parts = n * k // self.group, 10 if self.bits == 3 else 8 // self.bits
        lines = groups if self.axis else self.group
        table = packed.reshape(-1, self.group if self.axis else groups)
        codes = np.concatenate([table >> table.dtype.type(self.bits * (parts - 1 - i)) & table.dtype.type((1 << self.bits) - 1) for i in range(parts)])[:lines].astype(np.float32)
        shape = (groups, 1) if self.axis else (1, groups)
        return as_bf16(((codes - data["zero"].reshape(shape)) * data["scale"].reshape(shape)).reshape(n, k))


FORMATS |= {"hqq, 4 bits": Hqq(4, 64, 1), "hqq, 3 bits, down": Hqq(3, 64, 0)}


class Paired:
    """ModelOpt's four bits: signed codes, those of two rows in a byte."""

    def __init__(self, group):
        self.group, self.config = group, {}

    def tensors(self, n, k):
        return [tensor("weight", "U8", n // 2, k), floats("weight_scale", "BF16", n, k // self.group, 2 / np.sqrt(k) / 4.6)]

    def weights(self, n, k, data):
        packed = data["weight"].view(np.uint8).reshape(n // 2, k) ^ 0x88
        codes = np.stack([packed & 15, packed >> 4], 1).reshape(n, k).astype(np.float32) - 8
        return codes * spread(data["weight_scale"].reshape(n, -1), n, k, 1, self.group)


FORMATS |= {"int4, modelopt's awq": Multiplied(Paired(64), "W4A16_AWQ")}
