/* model_identity.h - which model a path holds, as digests (SHA-256, in hexadecimal).
 *
 * weights: of config.json and the *.safetensors of a directory, or of a GGUF file: each file's size, its first MiB
 * (names, shapes and types of tensors) and 4 KiB at each of 1,024 places that are spread evenly over it. A model that
 * was trained further, quantized otherwise or cut differs; a few bytes that changed between the places do not show.
 * The name of a GGUF file does not count. It takes milliseconds, whatever the model's size.
 *
 * tokenizer: of a directory's tokenizer.json and tokenizer_config.json, of a GGUF file's tokens, their types, scores
 * and merges, and of what it says of its own tokenizer: all of it. Thread: none of its own; it reads files. */
#ifndef TEXT_MODEL_IDENTITY_H
#define TEXT_MODEL_IDENTITY_H

#include "base/digest.h"
#include "base/status.h"

struct model_identity {
    struct digest_text weights, tokenizer;
};

/* Of an adapter (a folder of PEFT's) on top of weights: of both. */
int model_identity_read_lora(const char *path, const struct digest_text *weights, struct digest_text *out,
                             struct error *err) must_check;
int model_identity_read(const char *path, struct model_identity *out, struct error *err) must_check;

#endif
