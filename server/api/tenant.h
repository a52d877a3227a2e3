/* tenant.h - whose a request is, and what its key may have in flight.
 *
 * A tenant is a client's address or, with --tenant-header, what x-tenant says. Tenants take turns, which is the scheduler's: those
 * of one API key within what the key gets by its weight; without keys each has a part of its own. What a tenant asks for in
 * bulk is a tenant beside the rest of it, and leaves places: answers in the background, and those of a request that has many.
 * With --tenant-header a tenant has named itself, and is one.
 *
 * What a key may have in flight is looked at here, before a request is admitted: its own quotas and, where there are
 * several keys, three quarters of all places and of the prompt tokens that may wait, so that one key alone never makes
 * the server full for the others. No more does what is asked for in bulk. A tenant alone may have all that its key may; when
 * another one has been refused for want of room it is held to three quarters of that, for a minute. Of the grammars that may be held
 * (grammars.h) a tenant has at most half, and one of several keys three quarters. Thread: the loop's. */
#ifndef SERVER_API_TENANT_H
#define SERVER_API_TENANT_H

#include "base/digest.h"
#include "link/request_slots.h"
#include "server/api/admission.h"

struct api;
struct exchange;
struct generation;

/* Of receipts (receipt.h): how many there are, and the digest of the last; "" before the first. */
struct receipt_chain {
    uint64_t number;
    struct digest_text last;
};

struct refused_tenant {
    uint64_t tenant; /* 0: none */
    uint64_t at_ns;  /* monotonic */
};

/* Sequences admitted and not freed yet, and the tokens of their prompts. */
struct key_use {
    int64_t num_sequences;
    uint64_t num_prompt_tokens;
    struct receipt_chain chain;
    struct room_estimate room;
    struct refused_tenant refused[2]; /* the last two that found no room, the newest first */
};

/* Whose a request is among those of its key; not 0. */
uint64_t tenant_read(const struct exchange *x);

/* 0, or 429 in err. */
int tenant_check(const struct generation *g, int32_t num_sequences, uint64_t num_prompt_tokens,
                 struct api_error *err) must_check;
/* A tenant of this key (-1: none) found no room. */
void tenant_note_refused(struct api *api, int api_key_idx, uint64_t tenant);
/* Whose turn it is in when it gets one. */
void tenant_fill(const struct generation *g, struct request_slot_input *out);
/* Once the generation's slots are filled in, and when it is freed. */
void tenant_count(struct generation *g);
void tenant_forget(struct generation *g);

#endif
