/* test_places.c - who gets a place when connections or memory are used up: idle ones make room, one address
 * has its share, probes get through, and what is held for all clients together is bounded. */
#include "server/connection_move.h"
#include "tests/unit/server/http_rig.h"

#define OK "GET /ok HTTP/1.1\r\nHost: a\r\n\r\n"
#define OK_CLOSE "GET /ok HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
#define LATER "GET /later HTTP/1.1\r\nHost: a\r\n\r\n"

static void expect(const struct rig *rig, const char *request, int status, const char *text)
{
    char *answer = client_ask_text(rig, request);
    if (status_of(answer) != status || (text && !strstr(answer, text)))
        fail_msg("expected %d and \"%s\" for:\n%s\ngot:\n%s", status, text ? text : "", request, answer);
    free(answer);
}

/* A client that has had its answer and stays. */
static int connect_idle(const struct rig *rig)
{
    int fd = client_connect(rig);
    client_send_text(fd, OK);
    free(client_read(fd, "\r\n\r\nok"));
    return fd;
}

/* A client whose request is being worked on. */
static int connect_busy(const struct rig *rig)
{
    int before = num_handled, fd = client_connect(rig);
    client_send_text(fd, LATER);
    wait_for(&num_handled, before + 1);
    return fd;
}

static bool is_closed(int fd)
{
    char byte;
    return recv(fd, &byte, 1, 0) <= 0;
}

static bool is_open(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* ---- connections ---- */

static void test_the_longest_idle_one_makes_room(void **state)
{
    (void)state;
    enum { PLACES = 16 };
    struct rig rig;
    rig_init(&rig);
    rig.config.max_connections = PLACES;
    rig_start(&rig);
    int idle[PLACES];
    for (int i = 0; i < PLACES; i++) idle[i] = connect_idle(&rig);
    client_send_text(idle[0], OK); /* it is the last one now */
    free(client_read(idle[0], "\r\n\r\nok"));
    expect(&rig, OK_CLOSE, 200, "\r\n\r\nok");
    assert_true(is_closed(idle[1]));
    for (int i = 0; i < PLACES; i++)
        if (i != 1) assert_true(is_open(idle[i]));
    for (int i = 0; i < PLACES; i++) close(idle[i]);
    rig_end(&rig);
}

/* Clients that say nothing, or never all of it, are idle, too. */
static void test_silent_clients_make_room(void **state)
{
    (void)state;
    static const char *const beginnings[] = {"", "GET /ok HT", "\r\n"};
    struct rig rig;
    rig_init(&rig);
    rig.config.max_connections = 4;
    rig_start(&rig);
    for (size_t k = 0; k < array_length(beginnings); k++) {
        int silent[4];
        for (int i = 0; i < 4; i++) {
            silent[i] = client_connect(&rig);
            client_send_text(silent[i], beginnings[k]);
        }
        for (int i = 0; i < 8; i++) expect(&rig, OK_CLOSE, 200, "\r\n\r\nok");
        for (int i = 0; i < 4; i++) close(silent[i]);
    }
    rig_end(&rig);
}

static void test_work_is_not_displaced(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.config.max_connections = 2;
    rig_start(&rig);
    int busy[] = {connect_busy(&rig), connect_busy(&rig)};
    expect(&rig, OK_CLOSE, 503, "--max-connections");
    expect(&rig, OK, 503, "Connection: close\r\n"); /* not kept */
    expect(&rig, "GET /none HTTP/1.1\r\nHost: a\r\n\r\n", 404, "Connection: close\r\n");
    expect(&rig, "HEAD /ok HTTP/1.1\r\nHost: a\r\n\r\n", 503, "Retry-After: ");
    assert_true(is_open(busy[0]) && is_open(busy[1]));
    close(busy[0]);
    wait_for(&num_closed, 1);
    expect(&rig, OK_CLOSE, 200, NULL);
    close(busy[1]);
    rig_end(&rig);
}

/* All places are at work and silent clients lie in the reserve: probes still get their answer. */
static void test_probes_get_through(void **state)
{
    (void)state;
    enum { SILENT = 100 };
    struct rig rig;
    rig_init(&rig);
    rig.config.max_connections = 2;
    rig_start(&rig);
    int busy[] = {connect_busy(&rig), connect_busy(&rig)}, silent[SILENT];
    for (int i = 0; i < SILENT; i++) silent[i] = client_connect(&rig);
    for (int i = 0; i < 20; i++)
        expect(&rig, "GET /open HTTP/1.1\r\nHost: a\r\n\r\n", 200, "Connection: close\r\n");
    expect(&rig, OK_CLOSE, 503, "--max-connections");
    assert_true(is_open(busy[0]) && is_open(busy[1]));
    for (int i = 0; i < SILENT; i++) close(silent[i]);
    close(busy[0]);
    close(busy[1]);
    rig_end(&rig);
}

/* A place that was in reserve is an ordinary one once there is room. */
static void test_a_place_in_reserve_becomes_an_ordinary_one(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.config.max_connections = 1;
    rig_start(&rig);
    int busy = connect_busy(&rig), waiting = client_connect(&rig);
    client_send_text(waiting, "GET /ok HTTP/1.1\r\n");
    usleep(10000);
    close(busy);
    wait_for(&num_closed, 1);
    client_send_text(waiting, "Host: a\r\n\r\n");
    char *answer = client_read(waiting, "\r\n\r\nok");
    assert_int_equal(status_of(answer), 200);
    assert_null(strstr(answer, "Connection: close"));
    free(answer);
    close(waiting);
    rig_end(&rig);
}

static int connect_from(const struct rig *rig, const char *source)
{
    struct sockaddr_in from = {.sin_family = AF_INET};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)rig->listener.port)};
    inet_pton(AF_INET, source, &from.sin_addr);
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    client_set_timeouts(fd);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static void expect_from(const struct rig *rig, const char *source, int status, const char *text)
{
    int fd = connect_from(rig, source);
    client_send_text(fd, OK_CLOSE);
    char *answer = client_read(fd, NULL);
    assert_int_equal(status_of(answer), status);
    assert_non_null(strstr(answer, text));
    free(answer);
    close(fd);
}

static void test_an_address_has_its_share(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.config.max_connections = 8;
    rig.config.max_connections_per_address = 3;
    rig_start(&rig);
    int idle = connect_idle(&rig), busy[] = {connect_busy(&rig), connect_busy(&rig)};
    expect_from(&rig, "127.0.0.1", 200, "\r\n\r\nok"); /* its own idle one made room */
    assert_true(is_closed(idle));
    int third = connect_busy(&rig);
    expect_from(&rig, "127.0.0.1", 429, "--max-connections-per-address");
    int other = connect_from(&rig, "127.0.0.2");
    client_send_text(other, OK);
    free(client_read(other, "\r\n\r\nok"));
    expect_from(&rig, "127.0.0.1", 429, "rate_limit_error");
    assert_true(is_open(other)); /* another's idle one does not make room for it */
    close(third);
    wait_for(&num_closed, 1);
    expect_from(&rig, "127.0.0.1", 200, "\r\n\r\nok");
    close(idle);
    close(other);
    close(busy[0]);
    close(busy[1]);
    rig_end(&rig);
}

#define BODY_BEGUN "POST /raw HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nx"

/* Two addresses have all places with bodies that do not come: another one takes one of them, of which the client is told. */
static void test_slow_bodies_leave_places(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.config.max_connections = 4;
    rig.config.max_connections_per_address = 2;
    rig_start(&rig);
    int slow[4];
    for (int i = 0; i < 4; i++) {
        slow[i] = connect_from(&rig, i % 2 ? "127.0.0.3" : "127.0.0.2");
        client_send_text(slow[i], BODY_BEGUN);
        usleep(20000);
    }
    expect_from(&rig, "127.0.0.4", 503, "--max-connections"); /* they are not slow yet */
    usleep(1100000);
    int guest = connect_from(&rig, "127.0.0.4");
    client_send_text(guest, LATER);
    wait_for(&num_handled, 1);
    char *answer = client_read(slow[0], NULL);
    assert_int_equal(status_of(answer), 408);
    assert_non_null(strstr(answer, "--max-connections"));
    free(answer);
    for (int i = 1; i < 4; i++) assert_true(is_open(slow[i]));
    expect_from(&rig, "127.0.0.2", 503, "--max-connections"); /* who has as many as the others */
    expect_from(&rig, "127.0.0.3", 429, "--max-connections-per-address");
    for (int i = 0; i < 4; i++) close(slow[i]);
    close(guest);
    rig_end(&rig);
}

static void test_a_trusted_proxy_has_all(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.config.max_connections = 8;
    rig.config.max_connections_per_address = 3;
    assert_int_equal(text_list_append(&rig.config.trusted_proxies, "127.0.0.1", strlen("127.0.0.1")), 0);
    rig_start(&rig);
    int busy[6];
    for (int i = 0; i < 6; i++) busy[i] = connect_busy(&rig);
    expect_from(&rig, "127.0.0.1", 200, "\r\n\r\nok");
    for (int i = 0; i < 6; i++) close(busy[i]);
    rig_end(&rig);
}

/* By default a proxy on this machine may take every place. */
static void test_loopback_is_exempt_by_default(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.config.max_connections = 4;
    rig_start(&rig);
    int busy[4];
    for (int i = 0; i < 4; i++) busy[i] = connect_busy(&rig);
    for (int i = 0; i < 4; i++) close(busy[i]);
    rig_end(&rig);
}

static void test_peers(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool same, loopback;
    } cases[] = {
        {"1.2.3.4", "1.2.3.4", true, false},
        {"1.2.3.4", "1.2.3.5", false, false},
        {"127.0.0.1", "127.0.0.2", false, true},
        {"::ffff:1.2.3.4", "1.2.3.4", true, false},
        {"::ffff:127.0.0.1", "127.0.0.1", true, true},
        {"::1", "::1", true, true},
        {"2001:db8::1", "2001:db8::ffff:1", true, false},
        {"2001:db8:0:1::1", "2001:db8:0:2::1", false, false},
    };
    struct peers peers;
    struct error err;
    assert_int_equal(peers_init(&peers, 4, 1, &err), 0);
    for (size_t i = 0; i < array_length(cases); i++) {
        const char *texts[] = {cases[i].a, cases[i].b};
        struct peer *found[2];
        for (int k = 0; k < 2; k++) {
            struct ip_address address;
            assert_true(ip_address_parse(texts[k], strlen(texts[k]), &address));
            found[k] = peers_add(&peers, &address);
        }
        assert_int_equal(found[0] == found[1], cases[i].same);
        assert_int_equal(found[0]->num_connections, cases[i].same ? 2 : 1);
        assert_int_equal(found[0]->is_loopback, cases[i].loopback);
        peers_drop(&peers, found[0]);
        peers_drop(&peers, found[1]);
    }
    for (uint32_t i = 0; i < peers.num_buckets; i++) assert_null(peers.buckets[i]);
    peers_drop(&peers, NULL);
    peers_deinit(&peers);
}

/* ---- memory ---- */

enum { MAX_BUFFERED = 4 << 20 };

static void start_small(struct rig *rig)
{
    rig_init(rig);
    rig->config.max_body_bytes = 1 << 20;
    rig->config.max_buffered_bytes = MAX_BUFFERED;
    rig_start(rig);
}

/* Bodies that are never finished. */
static void test_held_bodies_are_bounded(void **state)
{
    (void)state;
    enum { CLIENTS = 20, SENT_BYTES = 900 << 10 };
    static char body[SENT_BYTES];
    struct rig rig;
    start_small(&rig);
    int fds[CLIENTS], num_refused = 0;
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = client_connect(&rig);
        client_send_text(fds[i], "POST /raw HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
        client_send(fds[i], body, sizeof body);
    }
    for (int i = 0; i < CLIENTS; i++) { /* refused, or still waiting for the rest */
        struct pollfd p = {.fd = fds[i], .events = POLLIN};
        if (poll(&p, 1, 100) != 1) continue;
        char *answer = client_read(fds[i], "}}");
        assert_int_equal(status_of(answer), 503);
        assert_non_null(strstr(answer, "--max-buffered-bytes"));
        assert_non_null(strstr(answer, "Retry-After: "));
        free(answer);
        num_refused++;
    }
    assert_in_range(num_refused, CLIENTS - MAX_BUFFERED / SENT_BYTES, CLIENTS - 1);
    for (int i = 0; i < CLIENTS; i++) close(fds[i]);
    for (int i = 0, status = 0; status != 200; i++) { /* room again */
        char *answer = client_ask_text(
            &rig, "POST /raw HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc");
        status = status_of(answer);
        free(answer);
        assert_true(i < 1000);
    }
    rig_end(&rig);
}

/* Another address has room for its body beside those that one address never finishes. */
static void test_bodies_of_one_address_leave_room(void **state)
{
    (void)state;
    enum { CLIENTS = 8, BODY_BYTES = 1000000 };
    static char body[BODY_BYTES];
    struct rig rig;
    rig_init(&rig);
    rig.config.max_body_bytes = 1 << 20;
    rig.config.max_buffered_bytes = MAX_BUFFERED;
    rig.config.max_connections_per_address = 100; /* this machine's addresses count, too */
    rig_start(&rig);
    int fds[CLIENTS], num_refused = 0;
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = client_connect(&rig);
        client_send_text(fds[i], "POST /raw HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
        client_send(fds[i], body, sizeof body - 1);
    }
    for (int i = 0; i < CLIENTS; i++) {
        struct pollfd p = {.fd = fds[i], .events = POLLIN};
        num_refused += poll(&p, 1, 100) == 1;
    }
    assert_in_range(num_refused, 1, CLIENTS - 1);
    int other = connect_from(&rig, "127.0.0.2");
    client_send_text(other,
                     "POST /raw HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n");
    client_send(other, body, sizeof body);
    char *answer = client_read(other, "\r\n\r\n");
    assert_int_equal(status_of(answer), 200);
    free(answer);
    close(other);
    for (int i = 0; i < CLIENTS; i++) close(fds[i]);
    rig_end(&rig);
}

/* So has another key, where all come from one proxy. */
static void test_bodies_of_one_key_leave_room(void **state)
{
    (void)state;
    enum { CLIENTS = 8, BODY_BYTES = 1000000 };
    static char body[BODY_BYTES];
    struct rig rig;
    struct error err = {0};
    rig_init(&rig);
    assert_int_equal(config_set(&rig.config, "api-key", "one", "test", &err), 0);
    assert_int_equal(config_set(&rig.config, "api-key", "two", "test", &err), 0);
    rig.config.max_body_bytes = 1 << 20;
    rig.config.max_buffered_bytes = MAX_BUFFERED;
    rig_start(&rig);
    int fds[CLIENTS], num_refused = 0;
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = client_connect(&rig);
        client_send_text(
            fds[i], "POST /raw HTTP/1.1\r\nHost: a\r\nx-api-key: one\r\nContent-Length: 1000000\r\n\r\n");
        client_send(fds[i], body, sizeof body - 1);
    }
    for (int i = 0; i < CLIENTS; i++) {
        struct pollfd p = {.fd = fds[i], .events = POLLIN};
        num_refused += poll(&p, 1, 100) == 1;
    }
    assert_in_range(num_refused, 1, CLIENTS - 1);
    int other = client_connect(&rig);
    client_send_text(other, "POST /raw HTTP/1.1\r\nHost: a\r\nx-api-key: two\r\nConnection: close\r\n"
                            "Content-Length: 500000\r\n\r\n");
    client_send(other, body, sizeof body / 2);
    char *answer = client_read(other, "\r\n\r\n");
    assert_int_equal(status_of(answer), 200);
    free(answer);
    close(other);
    for (int i = 0; i < CLIENTS; i++) close(fds[i]);
    rig_end(&rig);
}

/* What came with a stream from another process is its key's, as what came over the socket would be. */
static void test_a_moved_stream_counts_for_its_key(void **state)
{
    (void)state;
    static const struct moved_connection moved = {.request_id = "req-moved", .version_minor = 1};
    struct rig rig;
    struct error err = {0};
    int ends[2];
    rig_init(&rig);
    assert_int_equal(config_set(&rig.config, "api-key", "one", "test", &err), 0);
    assert_int_equal(config_set(&rig.config, "api-key", "two", "test", &err), 0);
    rig_open(&rig);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    struct exchange *x = connection_adopt(&rig.listener, ends[0], &moved, OK, strlen(OK), "/later", 1);
    assert_non_null(x);
    assert_true(rig.listener.num_buffered_bytes >= strlen(OK));
    assert_int_equal(rig.listener.key_buffered_bytes[1], rig.listener.num_buffered_bytes);
    exchange_let_go(x);
    rig_run(&rig);
    close(ends[1]);
    rig_end(&rig);
}

/* Answers of 16 MB that nobody reads: the second finds no room. */
static void test_unread_answers_are_bounded(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.config.max_buffered_bytes = 24 << 20;
    rig_start(&rig);
    int first = client_connect(&rig);
    client_send_text(first, "GET /big HTTP/1.1\r\nHost: a\r\n\r\n");
    char byte;
    assert_int_equal(recv(first, &byte, 1, MSG_PEEK), 1);
    expect(&rig, "GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 503, "--max-buffered-bytes");
    expect(&rig, OK_CLOSE, 200, "\r\n\r\nok"); /* small ones always do */
    close(first);
    for (int i = 0, status = 0; status != 200; i++) {
        char *answer = client_ask_text(&rig, "GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        status = status_of(answer);
        free(answer);
        assert_true(i < 1000);
    }
    rig_end(&rig);
}

/* Two addresses hold everything with answers that they hardly read: another one's finds room, since one has more than that. */
static void test_unread_answers_leave_room(void **state)
{
    (void)state;
    enum { SLOW = 3 };
    static const char *const addresses[SLOW] = {"127.0.0.2", "127.0.0.2", "127.0.0.3"};
    struct rig rig;
    rig_init(&rig);
    rig.config.max_body_bytes = 16 << 20;
    rig.config.max_buffered_bytes = 44 << 20;
    rig.config.max_connections_per_address = 100; /* this machine's addresses count, too */
    rig_start(&rig);
    int slow[SLOW];
    char byte;
    for (int i = 0; i < SLOW; i++) {
        slow[i] = connect_from(&rig, addresses[i]);
        client_send_text(slow[i], "GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert_int_equal(recv(slow[i], &byte, 1, MSG_PEEK), 1);
    }
    for (int i = 0; i < 12; i++) {
        assert_int_equal(recv(slow[i % SLOW], &byte, 1, 0), 1);
        usleep(100000);
    }
    int guest = connect_from(&rig, "127.0.0.4"), num_whole = 0;
    client_send_text(guest, "GET /big HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    char *answer = client_read(guest, NULL);
    assert_int_equal(status_of(answer), 200);
    assert_true(strlen(answer) > BIG_BYTES);
    free(answer);
    for (int i = SLOW - 1; i >= 0; i--) {
        answer = client_read(slow[i], NULL);
        num_whole += strlen(answer) >= BIG_BYTES;
        free(answer);
        close(slow[i]);
        if (i == SLOW - 1) assert_int_equal(num_whole, 1); /* whose client has less */
    }
    assert_int_equal(num_whole, SLOW - 1);
    close(guest);
    rig_end(&rig);
}

/* Beyond the bound a stream is written to only when its client has taken everything; and goes on after that.
 */
static void test_streams_go_on_beyond_the_bound(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.config.max_body_bytes = 1 << 10;
    rig.config.max_buffered_bytes = 1 << 20;
    rig.config.stream_buffer_soft = rig.config.stream_buffer_hard = 2 << 20;
    rig_start(&rig);
    int slow = client_connect(&rig), other = client_connect(&rig);
    client_send_text(slow, "GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
    client_send_text(other, "GET /flood HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    char *answer = client_read(other, NULL);
    assert_string_equal(answer + strlen(answer) - 5, "0\r\n\r\n");
    free(answer);
    answer = client_read(slow, "\r\n0\r\n\r\n");
    assert_int_equal(num_events, 2 * FLOOD_EVENTS);
    free(answer);
    close(slow);
    close(other);
    rig_end(&rig);
}

/* Heads that are never finished, and requests behind one that is not answered. */
/* A descriptor that has answered is not waited for any more. */
static bool take_refusal(struct pollfd *p)
{
    if (p->fd < 0 || !p->revents) return false;
    char *answer = client_read(p->fd, "}}");
    assert_int_equal(status_of(answer), 503);
    free(answer);
    p->fd = -1;
    return true;
}

static void test_held_heads_are_bounded(void **state)
{
    (void)state;
    enum { CLIENTS = 150 };
    static char head[15 << 10];
    struct rig rig;
    rig_init(&rig);
    rig.config.max_body_bytes = 1 << 10;
    rig.config.max_buffered_bytes = 1 << 20;
    rig_start(&rig);
    int fds[CLIENTS], num_refused = 0;
    memset(head, 'x', sizeof head);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = client_connect(&rig);
        client_send_text(fds[i], "GET /ok HTTP/1.1\r\nX: ");
        client_send(fds[i], head, sizeof head);
    }
    struct pollfd waiting[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) waiting[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    while (num_refused < CLIENTS / 2 - 10) {
        assert_true(poll(waiting, CLIENTS, 30000) > 0);
        for (int i = 0; i < CLIENTS; i++) num_refused += take_refusal(&waiting[i]);
    }
    assert_true(num_refused < CLIENTS);
    for (int i = 0; i < CLIENTS; i++) close(fds[i]);
    rig_end(&rig);
}

/* Neither descriptors nor what the kernel watches for a user may run out at a connection. */
static void test_as_many_as_the_system_allows(void **state)
{
    (void)state;
    assert_true(listener_num_places(UINT64_MAX, UINT64_MAX) > 1000000);
    assert_int_equal(listener_num_places(1024, UINT64_MAX), 960);
    assert_int_equal(listener_num_places(64, UINT64_MAX), 32);
    assert_int_equal(listener_num_places(20000, 4 * 4096 + 64), 4096);
    assert_int_equal(listener_num_places(20000, 100), 12);
    assert_int_equal(listener_num_places(20000, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_longest_idle_one_makes_room),
        cmocka_unit_test(test_as_many_as_the_system_allows),
        cmocka_unit_test(test_silent_clients_make_room),
        cmocka_unit_test(test_work_is_not_displaced),
        cmocka_unit_test(test_probes_get_through),
        cmocka_unit_test(test_a_place_in_reserve_becomes_an_ordinary_one),
        cmocka_unit_test(test_an_address_has_its_share),
        cmocka_unit_test(test_slow_bodies_leave_places),
        cmocka_unit_test(test_a_trusted_proxy_has_all),
        cmocka_unit_test(test_loopback_is_exempt_by_default),
        cmocka_unit_test(test_peers),
        cmocka_unit_test(test_held_bodies_are_bounded),
        cmocka_unit_test(test_bodies_of_one_address_leave_room),
        cmocka_unit_test(test_bodies_of_one_key_leave_room),
        cmocka_unit_test(test_a_moved_stream_counts_for_its_key),
        cmocka_unit_test(test_unread_answers_are_bounded),
        cmocka_unit_test(test_unread_answers_leave_room),
        cmocka_unit_test(test_streams_go_on_beyond_the_bound),
        cmocka_unit_test(test_held_heads_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
