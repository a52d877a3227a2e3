/* options.h - the one table of options. From it come struct config, the command line, FLASHD_ environment
 * variables, the YAML file, --help and deploy/flashd.example.yaml.
 *
 * X(TYPE, field, "name", default, min, max, "unit", "help")
 *   TEXT   one string of printable UTF-8; default NULL means unset
 *   LIST   may have several values, or be given several times; the values in order
 *   INT    int64 in [min, max]
 *   REAL   double in [min, max]
 *   BYTES  uint64 in [min, max]; accepts KiB, MiB, GiB, K, M, G suffixes (powers of 1024)
 *   FLAG   bool: --name, --no-name
 * SECTION("title") starts a group in the help. Names follow vLLM where it has one. */
#ifndef CONFIG_OPTIONS_H
#define CONFIG_OPTIONS_H

#define KIB 1024LL
#define MIB (1024LL * KIB)
#define GIB (1024LL * MIB)

/* clang-format off */
#define OPTION_TABLE(SECTION, X) \
SECTION("Model") \
X(LIST,  served_model_name, "served-model-name", NULL, 0, 0, "name", "name(s) of the model in the API, such as claude-*; the first is echoed in answers (default: the last part of MODEL)") \
X(LIST,  lora_modules, "lora-modules", NULL, 0, 0, "name=path", "LoRA adapter(s) served beside the model: the name that requests ask for as their model, and a directory as PEFT saves it, with adapter_config.json and adapter_model.safetensors") \
X(TEXT,  lora_dir, "lora-dir", NULL, 0, 0, "folder", "LoRA adapters in this folder may be loaded and unloaded while the server runs: POST /v1/load_lora_adapter and /v1/unload_lora_adapter, for API keys marked admin, without keys on a loopback address; unset: none may") \
X(INT,   max_loras, "max-loras", 8, 1, 64, "adapters", "with --lora-dir: adapters that there may be at once, those of --lora-modules among them; a GPU sets memory for as many aside") \
X(INT,   max_lora_rank, "max-lora-rank", 16, 1, 512, "rank", "with --lora-dir: highest rank of an adapter that is loaded while the server runs") \
X(TEXT,  load_format, "load-format", "auto", 0, 0, "auto|dummy", "dummy: random weights from config.json alone") \
X(INT,   max_model_len, "max-model-len", 0, 0, 16777216, "tokens", "longest prompt and answer together; 0: what the model says, or what fits") \
X(TEXT,  generation_config, "generation-config", "auto", 0, 0, "auto|vllm", "auto: sampling defaults from the model's generation_config.json, or its GGUF file's general.sampling; vllm: none") \
X(TEXT,  chat_template, "chat-template", NULL, 0, 0, "file", "Jinja template to use instead of the model's own") \
X(TEXT,  pooling, "pooling", "auto", 0, 0, "auto|first|last|mean", "hidden states that an embedding is made of; auto: what the model's files say, else the last token's, or the mean of an encoder's") \
X(TEXT,  rerank_template, "rerank-template", "auto", 0, 0, "file", "how /v1/rerank asks about a pair: a text with {query} and {document}, perhaps {instruction}, that yes or no answers, or a decoder's head scores; auto: as Qwen3-Reranker was trained, where the model's file or name says reranker; off: not at all") \
X(INT,   seed, "seed", -1, -1, 9223372036854775807LL, "number", "seeds requests that bring no seed of their own; -1: another at each start, which is logged") \
SECTION("Device and memory") \
X(TEXT,  device, "device", "auto", 0, 0, "auto|cpu|cuda", "where the model runs") \
X(INT,   threads, "threads", 0, 0, 1024, "threads", "CPU device: compute threads; 0: as many as the process may use") \
X(TEXT,  cpu_isa, "cpu-isa", "auto", 0, 0, "auto|portable|avx2|avxvnni|avx512|avx512vnni|amx", "CPU device: instruction set; portable is the f32 reference") \
X(INT,   cuda_device, "cuda-device", 0, 0, 255, "ordinal", "CUDA device: which GPU, of several the first") \
X(INT,   tensor_parallel_size, "tensor-parallel-size", 1, 1, 8, "devices", "tensor parallelism: GPUs that compute one model together, from --cuda-device on, each with a share of the weights and of the K/V cache; the same bytes as with one") \
X(TEXT,  cuda_path, "cuda-path", "auto", 0, 0, "auto|portable", "CUDA device: portable: the kernels for every GPU from sm_80 on, even on a Hopper") \
X(TEXT,  kv_cache_dtype, "kv-cache-dtype", "auto", 0, 0, "auto|bf16|f32|fp8|int8", "element type of the K/V cache; auto: bf16, of encoders f32; fp8: e4m3; f32 and int8: CPU only") \
X(BYTES, kv_cache_memory_bytes, "kv-cache-memory-bytes", 0, 0, 1LL << 46, "bytes", "K/V cache size, of each GPU; 0: a CPU takes what max-num-seqs sequences of typical length need, a GPU what is left") \
X(REAL,  gpu_memory_utilization, "gpu-memory-utilization", 0.92, 0.05, 1.0, "ratio", "share of the GPU's memory that flashd may use") \
X(INT,   block_size, "block-size", 16, 16, 16, "tokens", "tokens in a K/V block (16 is what the kernels are made for)") \
X(BYTES, kv_offload_bytes, "kv-offload-bytes", 4 * GIB, 0, 1LL << 46, "bytes", "host memory for the K/V blocks of preempted sequences, at most as much as the K/V cache, touched when it is needed; 0: they are computed again") \
SECTION("Scheduling") \
X(INT,   max_num_seqs, "max-num-seqs", 0, 0, 4096, "sequences", "most sequences in one step; 0: 64 on a CPU, 256 on a GPU, fewer where states of as many have no room") \
X(INT,   max_num_batched_tokens, "max-num-batched-tokens", 0, 0, 65536, "tokens", "most tokens in one step; 0: 512 on a CPU, 512 to 8192 on a GPU, by the model's size") \
X(INT,   target_itl, "target-itl", 0, 0, 60000, "ms", "time between a running stream's tokens that prefill chunks are sized for; 0: 50 on a CPU, 25 on a GPU") \
X(FLAG,  enable_prefix_caching, "enable-prefix-caching", true, 0, 0, "", "reuse K/V blocks of finished prompts for prompts with the same beginning") \
X(FLAG,  share_answers, "share-answers", true, 0, 0, "", "prefix caching of answers on a GPU, too: earlier answers in a prompt go through the decode kernels, as when they were generated, so that their blocks have the same bits") \
X(INT,   num_speculative_tokens, "num-speculative-tokens", 7, 0, 32, "tokens", "speculative decoding without a draft model: most draft tokens that a step verifies of a sequence, found by prompt lookup, given as the client's prediction, or forced by a schema or grammar (up to 7); answers have the same bytes; 0: none") \
X(INT,   max_queued_requests, "max-queued-requests", 8192, 0, 65536, "sequences", "sequences that may wait beyond the running ones; more get 429; 0: no limit") \
X(INT,   max_queued_tokens, "max-queued-tokens", 33554432, 0, 1LL << 40, "tokens", "prompt tokens that may wait, 4 bytes each; more get 429; 0: no limit") \
SECTION("Engine") \
X(TEXT,  engine, "engine", "process", 0, 0, "process|thread", "process: a process of its own, whose death no request notices; thread: a thread of this one") \
X(INT,   max_engine_deaths, "max-engine-deaths", 5, 0, 64, "deaths", "of the engine in ten minutes, after which the server ends with code 70; 0: never") \
X(INT,   step_timeout, "step-timeout", 0, 0, 86400, "seconds", "a step that takes longer ends the engine; 0: as long as ten of its longest steps take, 30 to 600 seconds") \
SECTION("API") \
X(FLAG,  separate_reasoning, "separate-reasoning", true, 0, 0, "", "a chat model's reasoning comes in reasoning_content, beside the content, unless a request says separate_reasoning: false") \
X(FLAG,  tenant_header, "tenant-header", false, 0, 0, "", "the header x-tenant, which a proxy sets, says whose turn a request takes among those of its key, instead of the client's address") \
X(FLAG,  completions_parse_special, "completions-parse-special", true, 0, 0, "", "control tokens in the texts of /v1/completions and /tokenize count as such, unless a request says parse_special: false") \
X(FLAG,  report_cached_tokens, "report-cached-tokens", true, 0, 0, "", "usage says how many prompt tokens the prefix cache held, which tells a client what others with its key and salt have asked") \
X(FLAG,  report_energy, "report-energy", false, 0, 0, "", "usage says how many joules an answer took (energy_joules): its share, by tokens, of what the device used meanwhile; RAPL on a CPU, NVML on a GPU") \
X(TEXT,  powercap, "powercap", "/sys/class/powercap", 0, 0, "folder", "where the kernel shows what a CPU uses, for --report-energy; its energy_uj are often root's alone") \
X(FLAG,  receipts, "receipts", false, 0, 0, "", "each answer carries a receipt: digests of model, tokenizer, template, request and text, its tokens and its seed, chained by API key; flashd verify computes it again") \
X(BYTES, response_store_bytes, "response-store-bytes", 64 * MIB, 0, 1LL << 40, "bytes", "finished /v1/responses kept for previous_response_id and GET, the newest; 0: none. As by default it is at most a 32nd of the memory") \
SECTION("Listening") \
X(TEXT,  host, "host", "127.0.0.1", 0, 0, "address", "IP address to listen on") \
X(INT,   port, "port", 8000, 0, 65535, "port", "TCP port; 0: the system picks one, which is logged") \
X(TEXT,  uds, "uds", NULL, 0, 0, "path", "listen on this Unix socket instead") \
X(LIST,  api_key, "api-key", NULL, 0, 0, "key", "client key(s); when any is given every route but health, version and metrics needs one; behind each may stand name=, weight=, max-seqs= (in flight), max-tokens= (of prompts in flight, not of answers), admin") \
X(TEXT,  api_key_file, "api-key-file", NULL, 0, 0, "file", "more client keys, one a line; `ps` and the environment do not show them") \
X(LIST,  allowed_origin, "allowed-origin", NULL, 0, 0, "origin", "web page(s) that may ask, as scheme://host[:port], or *; by default any with --api-key, else none but this server's own") \
X(LIST,  allowed_host, "allowed-host", NULL, 0, 0, "name", "further name(s), without a port, that a server without --api-key on a loopback address answers to (against DNS rebinding); *: any") \
X(INT,   max_connections, "max-connections", 4096, 1, 1000000, "connections", "open connections; when all are in use the longest idle one is closed for a new one") \
X(INT,   max_connections_per_address, "max-connections-per-address", 0, 0, 1000000, "connections", "those of one client (an IPv4 address, an IPv6 /64); 0: half of max-connections, loopback exempt; Unix sockets are never counted") \
X(BYTES, max_buffered_bytes, "max-buffered-bytes", 256 * MIB, 1 * MIB, 1LL << 40, "bytes", "request bodies and unsent answers held for all clients together; more get 503. As by default it is at most an eighth of the memory") \
X(LIST,  trusted_proxies, "trusted-proxies", NULL, 0, 0, "network", "proxies whose X-Forwarded-For says from which address a request comes: their addresses, networks (10.0.0.0/8), unix for whoever connects over a Unix socket; by default nobody's does") \
X(INT,   drain_delay, "drain-delay", -1, -1, 3600, "seconds", "after SIGTERM: how long requests are still taken while health says no, for balancers to see it; -1: 5 under a service manager or in a container, else 0") \
X(INT,   drain_timeout, "drain-timeout", 60, 0, 86400, "seconds", "after SIGTERM and drain-delay: how long running answers may take to finish") \
SECTION("Limits of a request") \
X(BYTES, max_header_bytes, "max-header-bytes", 16 * KIB, 1 * KIB, 1 * MIB, "bytes", "request line and headers together (431)") \
X(INT,   max_headers, "max-headers", 100, 8, 1000, "headers", "header lines (431)") \
X(BYTES, max_url_bytes, "max-url-bytes", 8 * KIB, 64, 64 * KIB, "bytes", "request target (414)") \
X(BYTES, max_body_bytes, "max-body-bytes", 8 * MIB, 1 * KIB, 1 * GIB, "bytes", "request body (413)") \
X(INT,   max_json_depth, "max-json-depth", 64, 4, 512, "levels", "nesting of arrays and objects (400)") \
X(INT,   max_json_nodes, "max-json-nodes", 1000000, 100, 100000000, "values", "values in a body (400). As by default a machine with less than 16 GiB allows fewer: one of a chat takes half a KiB for a while") \
X(INT,   max_json_keys, "max-json-keys", 4096, 16, 1000000, "keys", "keys of one object (400)") \
X(INT,   max_n, "max-n", 16, 1, 128, "choices", "n of one request (400)") \
X(INT,   max_prompts, "max-prompts", 2048, 1, 4096, "prompts", "prompts of one request (400)") \
X(INT,   max_stop_strings, "max-stop-strings", 64, 1, 256, "strings", "stop strings of one request (400)") \
X(INT,   max_stop_bytes, "max-stop-bytes", 256, 1, 4096, "bytes", "length of one stop string (400)") \
X(INT,   max_tokenize_tokens, "max-tokenize-tokens", 1048576, 1, 1LL << 30, "tokens", "of one /tokenize or /detokenize, unless the context is longer (413)") \
X(INT,   max_logprobs, "max-logprobs", 20, 0, 20, "tokens", "top_logprobs of one request (400)") \
X(INT,   max_requests_per_connection, "max-requests-per-connection", 10000, 1, 1000000000, "requests", "then the connection is closed") \
SECTION("Timeouts") \
X(INT,   header_timeout, "header-timeout", 10, 1, 3600, "seconds", "for the whole request head (408)") \
X(INT,   body_timeout, "body-timeout", 60, 1, 3600, "seconds", "for the whole body (408)") \
X(BYTES, body_min_rate, "body-min-rate", 1 * KIB, 0, 1 * GIB, "bytes/s", "slowest body after 5 seconds (408); 0: any") \
X(INT,   idle_timeout, "idle-timeout", 75, 1, 86400, "seconds", "keep-alive connection without a request") \
X(INT,   write_timeout, "write-timeout", 30, 1, 86400, "seconds", "a client that reads nothing for this long is cut off") \
X(INT,   ping_interval, "ping-interval", 5, 1, 3600, "seconds", "a sign of life, as the protocol has one, while a stream has nothing else to send") \
X(BYTES, stream_buffer_soft, "stream-buffer-soft", 64 * KIB, 4 * KIB, 64 * MIB, "bytes", "unsent bytes of a stream after which it pauses") \
X(BYTES, stream_buffer_hard, "stream-buffer-hard", 256 * KIB, 16 * KIB, 256 * MIB, "bytes", "unsent bytes of a connection after which it is cut off") \
SECTION("Logs") \
X(TEXT,  log_level, "log-level", "info", 0, 0, "debug|info|warning|error", "least severe line that is written") \
X(TEXT,  log_format, "log-format", "text", 0, 0, "text|json", "json: one object a line") \
X(FLAG,  log_requests, "log-requests", true, 0, 0, "", "one line a finished request (never its text)") \
X(TEXT,  journal, "journal", NULL, 0, 0, "file", "keep each request, prompts included, and its answer's receipt in this file, for flashd replay; API keys are not in it") \
X(BYTES, journal_bytes, "journal-bytes", 1 * GIB, 64 * KIB, 1LL << 50, "bytes", "of the journal's file and the one before it, FILE.1, together; older requests are forgotten") \
X(TEXT,  otlp_endpoint, "otlp-endpoint", NULL, 0, 0, "URL", "send a span of each generation request to this OpenTelemetry collector, as JSON over HTTP: http://host[:4318][/v1/traces]")
/* clang-format on */

#endif
