/* receipt.h - what says how an answer came about, so that anybody can compute it again (--receipts, --journal).
 *
 *   {"answer": sha256 of what the choices are,
 *    "chain": "6f0c...",                                    16 hexadecimal digits, of this process
 *    "created": 1700000000, "id": "chatcmpl-...",           the answer's
 *    "kernels": "fp_0.1.0_1f902a1b2c3d_cpu_avx512",         system_fingerprint; _kv_TYPE behind it where it is not bf16
 *    "model": sha256, "number": 3, "path": "/v1/chat/completions",
 *    "previous": digest of the receipt before it, or null,
 *    "request": sha256 of prompts, sampling and form, "seed": "17", "template": sha256 or null,
 *    "tokenizer": sha256, "tokens": [[ids], ...], "version": 1, "digest": sha256}
 *
 * digest is of the object without it, its members sorted by name and nothing between them (RFC 8785). model, which is of the adapter,
 * too, where the answer has one, and tokenizer: text/model_identity.h. answer: of each choice its finish reason, its tokens, 4 bytes each, and all that they
 * became, reasoning, marks and calls with it. tokens only tell where another answer differs: null where there are more
 * than 4,096 together, so that a receipt stays small.
 *
 * Receipts of an API key (or of all requests without one) are a chain: numbered from 1, each names the one before it, in
 * the order in which answers ended, whatever order their requests came in. A process begins new chains. Only an answer
 * that is complete gets a receipt; embeddings and scores get none. Thread: the loop's; the request's digest any. */
#ifndef SERVER_API_RECEIPT_H
#define SERVER_API_RECEIPT_H

#include "server/api/generation.h"

/* SHA-256 of what the answers depend on, seed and model apart. body: canonical. In the arena; NULL: no memory. */
const struct digest_text *receipt_digest_request(const struct params *params, const struct prompts *prompts,
                                                 const cJSON *body, struct arena *arena);

/* Writes g->receipt, once each choice's finish and text are known, and lengthens its key's chain. */
void receipt_make(struct generation *g);

/* What x-flashd-replay says, so that a request gives the same bytes again: the answer's id, its time, which templates may
 * print, and its seed, as "ID SECONDS SEED". Looked at where answers have receipts. */
struct replay {
    char id[40];
    int64_t created;
    uint64_t seed;
};

/* In the arena; NULL: not asked for. */
int receipt_read_replay(const struct exchange *x, struct arena *arena, const struct replay **out,
                        struct api_error *err) must_check;

#endif
