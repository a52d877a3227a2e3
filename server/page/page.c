#include "server/page/page.h"

#include <stdio.h>
#include <string.h>

#include <nettle/base64.h>
#include <nettle/sha2.h>

#include "server/connection.h"

/* page.html as it is; a NUL behind it. */
__asm__(".pushsection .rodata\n"
        "page_text: .incbin \"server/page/page.html\"\n"
        "page_text_end: .byte 0\n"
        ".popsection\n");
extern const char page_text[], page_text_end[];

enum { HASH_BYTES = BASE64_ENCODE_RAW_LENGTH(SHA256_DIGEST_SIZE) + 1 };

/* Of the text between two tags, as a Content-Security-Policy names it. */
static void hash_between(const char *begin_tag, const char *end_tag, char hash[HASH_BYTES])
{
    struct sha256_ctx sha;
    uint8_t digest[SHA256_DIGEST_SIZE];
    const char *begin = strstr(page_text, begin_tag) + strlen(begin_tag);
    sha256_init(&sha);
    sha256_update(&sha, (size_t)(strstr(begin, end_tag) - begin), (const uint8_t *)begin);
    sha256_digest(&sha, sizeof digest, digest);
    base64_encode_raw(hash, sizeof digest, digest);
    hash[HASH_BYTES - 1] = '\0';
}

/* Nothing but the page's own script and style runs, and it talks to this server only. */
static const char *security_policy(void)
{
    static char policy[512];
    char script[HASH_BYTES], style[HASH_BYTES];
    if (policy[0]) return policy;
    hash_between("<script type=\"module\">", "</script>", script);
    hash_between("<style>", "</style>", style);
    snprintf(policy, sizeof policy,
             "default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; connect-src 'self'; "
             "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
             script, style);
    return policy;
}

void endpoint_page(struct exchange *x)
{
    exchange_add_header(x, "Cache-Control", "no-store");
    if (!x->connection->listener->browsers.shows_page) {
        exchange_error(
            x, 403, "invalid_request_error", NULL, NULL, 0,
            "the page is there on a loopback address, or when the server has keys (--api-key-file)");
        return;
    }
    exchange_add_header(x, "Content-Security-Policy", security_policy());
    exchange_add_header(x, "X-Content-Type-Options", "nosniff");
    exchange_add_header(x, "Referrer-Policy", "no-referrer");
    exchange_add_header(x, "Cross-Origin-Opener-Policy", "same-origin");
    exchange_reply(x, 200, "text/html; charset=utf-8", page_text, (size_t)(page_text_end - page_text));
}
