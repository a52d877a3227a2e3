/* response_items.h - the output of a response of OpenAI's: messages, reasoning and calls.
 *
 * A stream adds an item when it is complete, a whole answer all at its end; both keep beside them what the
 * next turn of the conversation sees. Owner: the answer's codec. Failures are the buffers' own and stay. */
#ifndef SERVER_API_CODECS_RESPONSE_ITEMS_H
#define SERVER_API_CODECS_RESPONSE_ITEMS_H

#include "server/api/codec.h"

struct response_item {
    enum piece_kind kind; /* that of a call is ARGUMENTS */
    int index;            /* in the output */
    struct call call;     /* of ARGUMENTS: a copy, since further calls move those of the choice */
};

struct response_output {
    struct buffer items;                  /* as JSON, with commas */
    struct buffer said, reasoning, calls; /* of all of them; calls: as in a canonical message */
    int num_items;
};

void response_output_init(struct response_output *o);
void response_output_deinit(struct response_output *o);
bool response_output_failed(const struct response_output *o);

/* As the id of the response, so that it is unique and the same in all events. */
void response_item_append_id(struct buffer *out, const struct answer *a, const struct response_item *item);
/* Of what is called, and the namespace that it is of, as members behind others. */
void response_item_append_name(struct buffer *out, const struct answer *a, const struct call *call,
                               bool tells_space);
/* Log probabilities, here and below: an array of JSON; without bytes where there are none. */
void response_logprobs_add(struct buffer *logprobs, const struct logprobs_part *part);
void response_logprobs_append(struct buffer *out, const struct buffer *logprobs);

/* Of an item that has ended, status where nothing is against it: a call that has broken off is incomplete. */
const char *response_item_status(const struct answer *a, const struct response_item *item,
                                 const char *status);
/* text: the arguments of a call. NULL: the item as it begins, in progress and empty. */
void response_item_append(struct buffer *out, const struct answer *a, const struct response_item *item,
                          const char *status, const struct buffer *text, const struct buffer *logprobs);
/* The one part of a message or of reasoning. */
void response_item_append_part(struct buffer *out, const struct response_item *item, const char *text,
                               size_t n, const struct buffer *logprobs);

void response_output_add(struct response_output *o, const struct answer *a, const struct response_item *item,
                         const char *status, const struct buffer *text, const struct buffer *logprobs);
/* All items of an answer that has ended, in their order. status: of the last one; the others are complete. */
void response_output_add_all(struct response_output *o, const struct answer *a, const char *status,
                             const struct buffer *logprobs);

/* The canonical message of an assistant who said all this. */
void response_output_append_message(struct buffer *out, const struct response_output *o);

#endif
