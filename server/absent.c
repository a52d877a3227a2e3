#include "server/absent.h"

#include <stddef.h>
#include <string.h>

#include "base/check.h"

#define TEXT_ALONE "the model reads and writes text alone"
#define NO_BATCHES                                                                                           \
    "requests are not kept to be answered later: send each by itself, those that are there at once are "     \
    "computed together"
#define NO_FILES "files are not kept: a request has all that its model is to read"
#define NO_THREADS                                                                                           \
    "conversations are not kept: POST /v1/responses goes on from an earlier one by previous_response_id"
#define ONE_MODEL                                                                                            \
    "models are not made, copied or removed over the network: the server has the one that it was started "   \
    "with"
#define ONLY_SCORES "vectors are POST /v1/embeddings, scores POST /v1/score and /v1/rerank"
#define OPENAIS "the protocol is OpenAI's: POST /v1/completions and /v1/chat/completions"

static const struct {
    const char *path, *reason;
} absent[] = {
    {"/v1/audio", TEXT_ALONE},         {"/v1/images", TEXT_ALONE},     {"/v1/videos", TEXT_ALONE},
    {"/v1/realtime", TEXT_ALONE},      {"/v1/batches", NO_BATCHES},    {"/v1/messages/batches", NO_BATCHES},
    {"/v1/files", NO_FILES},           {"/v1/uploads", NO_FILES},      {"/v1/vector_stores", NO_FILES},
    {"/v1/conversations", NO_THREADS}, {"/v1/threads", NO_THREADS},    {"/v1/assistants", NO_THREADS},
    {"/v1/moderations", ONLY_SCORES},  {"/v1/fine_tuning", ONE_MODEL}, {"/api/create", ONE_MODEL},
    {"/api/copy", ONE_MODEL},          {"/api/delete", ONE_MODEL},     {"/api/push", ONE_MODEL},
    {"/api/blobs", ONE_MODEL},         {"/pooling", ONLY_SCORES},      {"/classify", ONLY_SCORES},
    {"/invocations", OPENAIS},
};

const char *absent_reason(const char *path)
{
    for (size_t i = 0; i < array_length(absent); i++) {
        size_t n = strlen(absent[i].path);
        if (!strncmp(path, absent[i].path, n) && (!path[n] || path[n] == '/')) return absent[i].reason;
    }
    return NULL;
}
