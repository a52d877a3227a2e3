# flashd: bare `make` builds build/flashd; `make help` lists the rest.
#
#   SANITIZE=1   another build in build-san/ with AddressSanitizer, UBSan and debug asserts
#   SANITIZE=thread  another build in build-tsan/ with ThreadSanitizer
#   DEBUG=1      another build in build-debug/ with debug asserts
#   FUZZ=1       another build in build-fuzz/ for clang's libFuzzer, with AddressSanitizer, UBSan and debug asserts
#   CC=...       compiler

SHELL := /bin/bash
.DEFAULT_GOAL := all

ifeq ($(SANITIZE),thread)
BUILD := build-tsan
MODE_FLAGS := -O1 -fsanitize=thread -fno-omit-frame-pointer -DFLASHD_DEBUG
else ifdef SANITIZE
BUILD := build-san
# Lines are enough for a sanitizer's report, and compile in two thirds of the time.
MODE_FLAGS := -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -DFLASHD_DEBUG
else ifdef FUZZ
BUILD := build-fuzz
CC := clang
# NULL + 0 for empty arrays is left alone: C2y allows it, and no compiler minds.
MODE_FLAGS := -O1 -g1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize=pointer-overflow -fno-sanitize-recover=undefined \
	-fno-omit-frame-pointer -DFLASHD_DEBUG
else ifdef DEBUG
BUILD := build-debug
MODE_FLAGS := -O1 -DFLASHD_DEBUG
else
BUILD := build
MODE_FLAGS := -O3 -fno-plt
endif

VERSION := $(shell cat VERSION)

WARNINGS := -Wall -Wextra -Wshadow -Wvla -Walloca -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Werror
# Contraction is off so that the same source line gives the same bits in every loop it is compiled into;
# kernels that want a fused multiply-add say so.
CFLAGS ?=
ALL_CFLAGS := -std=gnu11 -g $(MODE_FLAGS) -ffp-contract=off -fno-math-errno -fvisibility=hidden -I. -Ibuild/llhttp/include \
	-D_GNU_SOURCE $(WARNINGS) $(CFLAGS)
LIBS := -luv -lcjson -lyaml -lutf8proc -lnettle -lm -lpthread -ldl

# Instruction sets: one folder each, chosen at run time.
ISA_FLAGS_avx2 := -mavx2 -mfma -mf16c
ISA_FLAGS_avx2vnni := $(ISA_FLAGS_avx2) -mavxvnni
ISA_FLAGS_avx512 := -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mprefer-vector-width=512
ISA_FLAGS_avx512vnni := $(ISA_FLAGS_avx512) -mavx512vnni
ISA_FLAGS_avx512amx := $(ISA_FLAGS_avx512vnni) -mamx-tile -mamx-int8

FOLDERS := base config files kernels kernels/group kernels/cpu kernels/cpu/avx2 kernels/cpu/avx2vnni kernels/cpu/avx512 \
	kernels/cpu/avx512vnni kernels/cpu/avx512amx lab/attention kvcache link model scheduler engine text text/grammar text/jinja text/tokenizer text/tools \
	server server/life server/api server/api/codecs server/openapi server/page cli

# What the program is made of, by which an upgrade knows the same one: FLASHD_COMMIT=..., git's or, as in a container's build, where there
# is no git, a digest of what is compiled.
ifneq ($(FLASHD_COMMIT),)
COMMIT := $(shell printf '%.12s' '$(FLASHD_COMMIT)')
else ifneq ($(wildcard .git),)
COMMIT := $(shell git rev-parse --short=12 HEAD 2>/dev/null)
endif
ifeq ($(COMMIT),)
COMPILED := $(sort $(foreach f,$(FOLDERS),$(firstword $(subst /, ,$f)))) Makefile VERSION
COMMIT := src-$(shell find $(COMPILED) -regex '.*\.\(c\|h\|cu\|cuh\|html\|json\)\|Makefile\|VERSION' | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c 1-12)
endif

SOURCES := $(filter-out cli/main.c,$(wildcard $(addsuffix /*.c,$(FOLDERS))))
LLHTTP_SOURCES := build/llhttp/src/api.c build/llhttp/src/http.c build/llhttp/src/llhttp.c
ifdef FUZZ # no fuzzer computes
SOURCES := $(filter-out kernels/cpu/% lab/% cli/inspect.c,$(SOURCES))
endif
OBJECTS := $(SOURCES:%.c=$(BUILD)/%.o) $(BUILD)/llhttp/api.o $(BUILD)/llhttp/http.o $(BUILD)/llhttp/llhttp.o
LIBRARY := $(BUILD)/libflashd.a

comma := ,
# Those that take the longest begin first.
UNIT_TESTS := $(patsubst %.c,$(BUILD)/%,tests/unit/model/test_families.c $(wildcard tests/kernels/test_*.c) \
	$(filter-out %/test_families.c,$(wildcard tests/unit/*/test_*.c)))
# FLASHD_TEST_PART=n: a random one in n of the programs, and of the shapes of those that have many (tests/kernels/fixture.h).
ifdef FLASHD_TEST_PART
part_of = $(filter $(shell printf '%s\n' $(1) | shuf -n $$((($(words $(1)) + $(FLASHD_TEST_PART) - 1) / $(FLASHD_TEST_PART)))),$(1))
UNIT_TESTS := $(call part_of,$(UNIT_TESTS))
else
part_of = $(1)
endif

.PHONY: all
all: $(BUILD)/flashd cuda

# A sanitized server computes with the plain micro-kernels, 18 times as fast, and so do the tests of what lies above kernels: they meet
# the sanitizers in the kernels' own tests.
ifdef SANITIZE
PLAIN_KERNELS := $(patsubst %.c,build/%.o,$(wildcard kernels/cpu/avx*/*.c))
.PHONY: plain-kernels
plain-kernels:
	@$(MAKE) --no-print-directory -s SANITIZE= BUILD=build $(PLAIN_KERNELS)
PLAIN_TESTS := $(filter $(BUILD)/tests/unit/% %/test_layers,$(UNIT_TESTS))
$(BUILD)/flashd $(PLAIN_TESTS): | plain-kernels
$(PLAIN_TESTS): private TEST_KERNELS := $(PLAIN_KERNELS)
endif

$(BUILD)/flashd: $(BUILD)/cli/main.o $(LIBRARY)
	@mkdir -p $(@D)
	$(CC) $(MODE_FLAGS) -rdynamic -o $@ $< $(PLAIN_KERNELS) $(LIBRARY) $(LIBS)

$(LIBRARY): $(OBJECTS)
	@rm -f $@
	ar rcs $@ $^

$(BUILD)/llhttp/%.o: build/llhttp/src/%.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -g $(MODE_FLAGS) -DLLHTTP_STRICT_MODE=1 -Ibuild/llhttp/include -c -o $@ $<

$(BUILD)/%.o: %.c | build/llhttp/include/llhttp.h
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(ISA_FLAGS_$(notdir $(patsubst %/,%,$(dir $<)))) -MMD -MP -c -o $@ $<

# Lines are enough of kernels that are a thousand inlined ones: two thirds of the time, and the same instructions. Sanitized, checks of
# memory are calls, and those that each access would have a second time are left out: a quarter of the time.
$(BUILD)/kernels/cpu/avx%.o: ALL_CFLAGS += -g1
ifeq ($(BUILD),build-san)
$(BUILD)/kernels/cpu/avx%.o: ALL_CFLAGS += -fno-sanitize=null,alignment,object-size,pointer-overflow,bounds \
	--param=asan-instrumentation-with-call-threshold=0
endif

$(BUILD)/base/version.o: ALL_CFLAGS += -DFLASHD_VERSION='"$(VERSION)"' -DFLASHD_COMMIT='"$(COMMIT)"'
$(BUILD)/base/version.o: VERSION $(BUILD)/commit
# Written when it is another one than that of the last build.
.PHONY: always
$(BUILD)/commit: always
	@mkdir -p $(@D)
	@echo '$(COMMIT)' | cmp -s - $@ || echo '$(COMMIT)' > $@

$(BUILD)/server/page/page.o: server/page/page.html
$(BUILD)/server/openapi/openapi.o: server/openapi/openapi.json

# ---- CUDA: built whenever nvcc is there ----

NVCC := $(shell command -v nvcc 2>/dev/null || ls /usr/local/cuda/bin/nvcc 2>/dev/null)
CUDA_SOURCES := $(wildcard kernels/cuda/*.cu)
# Code of sm_80 runs on 8.6, 8.7 and 8.9 as it is; what is newer than 9.0 compiles it when it is first loaded. CUDA_ARCHS=all: code for each.
CUDA_ARCHS ?= -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_80,code=compute_80
ifeq ($(CUDA_ARCHS),all)
override CUDA_ARCHS := $(foreach a,80 86 89 90a 100 120,-gencode=arch=compute_$a,code=sm_$a) -gencode=arch=compute_80,code=compute_80
endif
# CUDA_ARCHS=here: for the GPUs of this machine alone, in half the time; nothing is built where there is none.
ifeq ($(CUDA_ARCHS),here)
GPUS := $(sort $(shell PATH="$$PATH:/usr/lib/wsl/lib" nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -dc '0-9.\n'))
override CUDA_ARCHS := $(sort $(foreach g,$(GPUS),$(if $(filter 9.0,$g),-gencode=arch=compute_90a$(comma)code=sm_90a,$(if $(filter 8.%,$g),\
	-gencode=arch=compute_80$(comma)code=sm_80,-gencode=arch=compute_80$(comma)code=compute_80))))
ifeq ($(GPUS),)
override NVCC :=
NO_CUDA := there is no GPU here
endif
endif
# CUDA_QUICK=1: all is compiled, in a third of the time, to kernels that are slower, where no GPU will run them (.ci/run), those of 8.0 as
# far as PTX. ptxas says of hundreds of places that it has not optimised them.
ifdef CUDA_QUICK
CUDA_ARCHS := $(filter-out %code=sm_80,$(CUDA_ARCHS))
NVCC_QUICK := $(shell test "$(NVCC)" && $(NVCC) -Ofc=max --version >/dev/null 2>&1 && echo -Ofc=max)
NVCC_QUIET := 2> >(grep -v '^ptxas info' >&2)
endif
NVCC_FLAGS := -std=c++17 -O3 -lineinfo -Xcompiler -fPIC,-fvisibility=hidden -I. $(CUDA_ARCHS) $(NVCC_QUICK)
# Written when the flags are others than those of the last build: then all is compiled anew.
NVCC_FLAGS_FILE := build/nvcc-flags
$(NVCC_FLAGS_FILE): always
	@mkdir -p $(@D)
	@echo '$(NVCC_FLAGS)' | cmp -s - $@ || echo '$(NVCC_FLAGS)' > $@

.PHONY: cuda
ifneq ($(and $(NVCC),$(CUDA_SOURCES)),)
cuda: build/libflashd_cuda.so build/libflashd_lab.so
# The few C files that the shared object needs itself, built for it.
CUDA_C_SOURCES := files/dtype.c files/dtype_grids.c files/weight_codes.c files/weight_view.c base/status.c kernels/delta_desc.c
build/libflashd_cuda.so: $(CUDA_SOURCES:%.cu=build/%.o) $(CUDA_C_SOURCES:%.c=build/cuda-c/%.o)
	$(NVCC) -shared -o $@ $^ -lcublasLt -Xlinker --no-undefined -Xlinker -rpath,'$$ORIGIN'
	@echo "built $@ (CUDA device)"
build/cuda-c/%.o: %.c $(wildcard base/*.h files/*.h kernels/*.h)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -fPIC -c -o $@ $<
build/kernels/cuda/%.o: kernels/cuda/%.cu $(wildcard kernels/cuda/*.cuh kernels/*.h files/*.h) $(NVCC_FLAGS_FILE)
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) -c -o $@ $< $(NVCC_QUIET)
# What `flashd bench attention --device cuda` loads, and no server. A GPU other than a Hopper compiles it then.
LAB_CUDA_OBJECTS := $(patsubst %.cu,build/%.o,$(wildcard lab/attention/cuda/*.cu))
build/libflashd_lab.so: $(LAB_CUDA_OBJECTS) build/cuda-c/base/status.o
	$(NVCC) -shared -o $@ $^
build/lab/attention/cuda/%.o: lab/attention/cuda/%.cu $(wildcard lab/attention/cuda/*.cuh lab/attention/*.h kernels/cuda/*.cuh) $(NVCC_FLAGS_FILE)
	@mkdir -p $(@D)
	$(NVCC) $(filter-out %code=sm_80,$(NVCC_FLAGS)) -c -o $@ $< $(NVCC_QUIET)

# The CUDA device compiled for this machine's own processor, and a driver that says that there is a GPU (tests/emulator).
CUDA_HOME ?= $(patsubst %/bin/,%,$(dir $(shell command -v $(lastword $(NVCC)))))
EMULATED_FLAGS := -std=c++20 -O2 -g1 -mavx2 -mfma -mf16c -fPIC -fvisibility=hidden -ffp-contract=off -fno-strict-aliasing -w -Wno-psabi \
	-fsanitize=alignment,bounds -fno-sanitize-recover=alignment,bounds -Ibuild/emulator -I. -isystem $(CUDA_HOME)/include
# What every translated file begins with, read by the compiler once for all of them.
EMULATED_HEADER := build/emulator/machine.h.gch
EMULATED_MACHINE := build/emulator/machine.o build/emulator/memory.o build/emulator/runtime.o build/emulator/streams.o
EMULATED_OBJECTS := $(CUDA_SOURCES:%.cu=build/emulator/%.o) $(EMULATED_MACHINE)
EMULATED_SOURCES := $(patsubst %,build/emulator/%,$(wildcard kernels/cuda/*.cu kernels/cuda/*.cuh tests/emulator/*.cu))
.PHONY: emulator emulated
emulator: build/emulator/libflashd_cuda.so build/emulator/libcuda.so.1
build/emulator/libflashd_cuda.so: $(EMULATED_OBJECTS) $(CUDA_C_SOURCES:%.c=build/cuda-c/%.o)
	$(CXX) -shared -Wl,--no-undefined -o $@ $^
build/emulator/libcuda.so.1: tests/emulator/driver.c
	@mkdir -p $(@D)
	$(CC) -shared -fPIC -o $@ $<
$(EMULATED_SOURCES): build/emulator/%: % tests/emulator/translate.py
	@mkdir -p $(@D)
	python3 tests/emulator/translate.py $< $@
$(EMULATED_HEADER): tests/emulator/machine.h $(wildcard tests/emulator/*.h)
	@mkdir -p $(@D)
	$(CXX) $(EMULATED_FLAGS) -x c++-header -o $@ $<
build/emulator/%.o: build/emulator/%.cu $(EMULATED_HEADER) $(filter %.cuh,$(EMULATED_SOURCES)) $(wildcard kernels/*.h files/*.h)
	$(CXX) $(EMULATED_FLAGS) -x c++ -include $(EMULATED_HEADER:.gch=) -c -o $@ $<
build/emulator/%.o: tests/emulator/%.cc $(wildcard tests/emulator/*.h)
	@mkdir -p $(@D)
	$(CXX) $(EMULATED_FLAGS) -c -o $@ $<
build/emulator/test_emulator: build/emulator/tests/emulator/test_emulator.o $(EMULATED_MACHINE)
	$(CXX) -o $@ $^ -lcmocka
EMULATED_FAMILIES := qwen3.5|apertus|refact
# Of two Hoppers that compute as one, beside one
EMULATED_GROUP_FAMILIES := gemma3|apertus|qwen3-moe
EMULATED_TESTS := $(call part_of,kernels/test_altup kernels/test_delta_net kernels/test_kept_blocks kernels/test_kv_groups kernels/test_lora kernels/test_masks kernels/test_latent kernels/test_norm_rope kernels/test_pool unit/model/test_families)
EMULATED_HOPPER_TESTS := $(call part_of,kernels/test_kept_blocks kernels/test_latent kernels/test_lora kernels/test_memory kernels/test_moe kernels/test_norm_linear unit/engine/test_load)
# Decoding, on a Hopper with as many SMs as it has, where a step of few sequences is one
EMULATED_DECODES := $(call part_of,alibi stale_blocks sinks decodes_among_others mixed_lengths saved_blocks soft_caps)
emulated: emulator build/emulator/test_emulator $(EMULATED_TESTS:%=build/tests/%) $(EMULATED_HOPPER_TESTS:%=build/tests/%) build/tests/kernels/test_attention build/tests/kernels/test_step build/tests/unit/model/test_families ## the CUDA kernels' tests on a GPU that is emulated
	@LD_LIBRARY_PATH=build/emulator FLASHD_TEST_DEVICE=cuda FLASHD_TEST_FAMILIES='$(EMULATED_FAMILIES)' \
		tests/run-unit build/emulator/test_emulator $(EMULATED_TESTS:%=build/tests/%)
	@LD_LIBRARY_PATH=build/emulator FLASHD_TEST_DEVICE=cuda EMULATED_GPU=90 tests/run-unit $(EMULATED_HOPPER_TESTS:%=build/tests/%)
	@for name in $(EMULATED_DECODES); do \
		LD_LIBRARY_PATH=build/emulator FLASHD_TEST_DEVICE=cuda EMULATED_GPU=90 EMULATED_SMS=132 \
			build/tests/kernels/test_attention test_$$name || exit 1; \
	done
	@LD_LIBRARY_PATH=build/emulator FLASHD_TEST_DEVICE=cuda build/tests/kernels/test_step test_slots_change_hands
	@LD_LIBRARY_PATH=build/emulator FLASHD_TEST_DEVICE=cuda EMULATED_GPU=90 FLASHD_TEST_MEMBERS=2 FLASHD_TEST_ONE_GPU=1 \
		FLASHD_TEST_FAMILIES='$(EMULATED_GROUP_FAMILIES)' build/tests/unit/model/test_families the_same_bits_on_several_devices
else
emulator emulated:
	@echo "no CUDA headers: the CUDA kernels are not emulated"
cuda:
	@echo "no CUDA device built: $(or $(NO_CUDA),$(if $(NVCC),no CUDA sources,nvcc was not found))"
endif

# ---- dependencies, model, run ----

build/llhttp/include/llhttp.h $(LLHTTP_SOURCES):
	@deploy/install-deps build

.PHONY: deps
deps: ## install what is missing from Debian packages
	@deploy/install-deps build

MODEL := models/SmolLM2-135M-Instruct.Q4_1.gguf

.PHONY: model
model: $(MODEL) ## fetch SmolLM2-135M-Instruct (98 MB)
$(MODEL):
	@deploy/fetch-model $@

.PHONY: run
run: RUN_PORT = $(or $(shell printf '%s' '$(ARGS)' | sed -n 's/.*--port[= ]\([0-9]*\).*/\1/p'),8000)
run: ## install what is missing, build, fetch the model, serve it on 127.0.0.1:8000
	@deploy/install-deps build
	@$(MAKE) --no-print-directory -s -j$$(nproc) CUDA_ARCHS=here all
	@$(MAKE) --no-print-directory -s model
	@printf '\nTry, in another terminal:\n\n  curl -N http://127.0.0.1:$(RUN_PORT)/v1/chat/completions -H "Content-Type: application/json" \\\n    -d '"'"'{"messages":[{"role":"user","content":"Why is the sky blue?"}],"stream":true,"max_tokens":128,"temperature":0.2}'"'"'\n\n'
	@exec $(BUILD)/flashd serve $(MODEL) $(ARGS)

# ---- tests ----

$(BUILD)/tests/%: tests/%.c $(LIBRARY)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -Itests -MMD -MP $(TEST_LINK) -o $@ $< $(TEST_OBJECTS) $(TEST_KERNELS) $(LIBRARY) $(LIBS) -lcmocka

# Each compiles a set's products anew, with its instructions in plain C: at -O3 for half a minute, to run for two seconds.
$(patsubst %,$(BUILD)/tests/kernels/test_linear_%,amx avxvnni vnni): private ALL_CFLAGS += -O1 -g1

.PHONY: unit
unit: $(UNIT_TESTS) ## build and run the C tests
	@tests/run-unit $(UNIT_TESTS)

# Fuzzers and tests of damaged files read files from memory (tests/fuzz/memory_files.c), so that a read beyond a file's
# end is found.
FUZZERS := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/fuzz/fuzz_*.c))
MEMORY_FILES := $(BUILD)/tests/fuzz/memory_files.o
MEMORY_FILES_LINK := $(patsubst %,-Wl$(comma)--wrap=%,file_map_open file_map_close file_map_drop_pages file_map_prefetch \
	file_read_text fopen stat)
$(FUZZERS): $(BUILD)/%: %.c $(MEMORY_FILES) $(LIBRARY)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) -Itests -MMD -MP -fsanitize=fuzzer $(MEMORY_FILES_LINK) -o $@ $< $(MEMORY_FILES) $(LIBRARY) $(LIBS) -lcmocka
FIELD_TESTS := $(BUILD)/tests/unit/model/test_gguf_fields $(BUILD)/tests/unit/model/test_safetensors_fields
$(FIELD_TESTS): $(MEMORY_FILES)
$(FIELD_TESTS): private TEST_OBJECTS := $(MEMORY_FILES)
$(FIELD_TESTS): private TEST_LINK := $(MEMORY_FILES_LINK)

.PHONY: pairs
PAIRS ?= 20000
pairs: $(BUILD)/flashd ## PAIRS=20000 pairs of hostile fields of each route, or PAIRS=all
	@FLASHD_PAIRS=$(PAIRS) .venv/bin/python -m pytest -q -s tests/api/test_pairwise.py

.PHONY: fuzz fuzzers
fuzzers: $(FUZZERS)
fuzz: ## build every fuzzer and run each for FUZZ_SECONDS (60)
	@tests/fuzz/run

# The simulator (tests/sim/README.md): the whole server on simulated sockets, threads, memory, time and device.
SIM_OBJECTS := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/sim/*.c))
SIM_WRAPS := malloc calloc realloc aligned_alloc free strdup strndup pthread_create pthread_join pthread_setname_np \
	pthread_mutex_lock pthread_mutex_unlock link_want_mask syscall getrandom _exit api_on_loaded api_abort_all engine_step link_submit request_slots_get \
	request_slots_acquire request_slots_release request_log_write metrics_reset exchange_write \
	http_metrics_count_cut_off http_metrics_count_displaced listener_open scheduler_add scheduler_plan scheduler_finish \
	scheduler_append_token block_manager_on_evict engine_publish_entry recovery_on_death recovery_deinit \
	mask_maker_work mask_turns_take link_hand_over link_let_through link_finish_waiting link_sleep_at_most drafter_num_worth drafter_write drafter_found forecast_text
$(SIM_OBJECTS): ALL_CFLAGS += -Itests
$(BUILD)/tests/sim/sim: $(SIM_OBJECTS) $(LIBRARY)
	$(CC) $(MODE_FLAGS) $(SIM_WRAPS:%=-Wl,--wrap=%) -o $@ $(SIM_OBJECTS) $(LIBRARY) $(filter-out -luv,$(LIBS))

STEPS ?= 1000000
FIRST ?= 1
.PHONY: sim mutants
sim: $(BUILD)/tests/sim/sim ## simulate the server: STEPS=1000000 FIRST=1, or one SEED=n, told line by line
	@$< $(if $(SEED),--seed $(SEED) $(if $(ONLY),--only $(ONLY)) $(if $(WITHOUT),--without $(WITHOUT)),--steps $(STEPS) --first $(FIRST))

mutants: $(BUILD)/tests/sim/sim ## plant known bugs one at a time; the simulator must find each
	@BUILD=$(BUILD) tests/mutants/run

# The tests that have threads, and the server under clients: streams, disconnects, signals, overload, drains.
TSAN_TESTS := unit/engine/test_engine_thread kernels/test_thread_pool unit/server/test_connection
.PHONY: tsan
tsan: ## ThreadSanitizer over the engine, the link, the thread pool and the server under load
	@$(MAKE) -s SANITIZE=thread NVCC= unit UNIT_TESTS="$(TSAN_TESTS:%=build-tsan/tests/%)"
	@$(MAKE) -s SANITIZE=thread NVCC= build-tsan/flashd
	@FLASHD_BIN=build-tsan/flashd TSAN_OPTIONS=exitcode=66 .venv/bin/python -m pytest -q --tb=short \
		-k "(streams or signals or full_queue or queued_tokens or drain or beside) and not storm" tests/api

DRAINS ?= 1000
.PHONY: faults
faults: all ## fail every allocation and system call in turn; DRAINS (1000) drains under load
	@TEST_SECONDS=7200 START_ALLOCATIONS=200 DRAINS=$(DRAINS) .venv/bin/python -m pytest -q tests/api/test_faults.py tests/api/test_signals.py

.PHONY: test
test: ## everything, from nothing: C tests (plain and sanitized), golden, API
	@tests/run-all

.PHONY: check
check: ## format, include arrows, clang-tidy
	@tests/check/run

.PHONY: oracle
oracle: all model ## mixed requests alone, then together: every answer equal byte for byte (ARGS="--requests 10000")
	@python3 tests/oracle/oracle.py $(ARGS)

N ?= 10000
.PHONY: structured
structured: all model ## N (10000) answers that must have a form: each that ends by itself is valid (ARGS="--maskbench DIRECTORY")
	@.venv/bin/python tests/oracle/structured.py --requests $(N) $(ARGS)

.PHONY: test-clients
test-clients: all model ## the newest client programs from the Python package index against real servers (ARGS="openai_sdk codex")
	@tests/python-packages
	@.venv/bin/python tests/clients/run $(ARGS)

.PHONY: test-all
test-all: test ## make test, then every client program: gigabytes to install (aiperf, guidellm, Open WebUI, transformers, vLLM)
	@$(MAKE) --no-print-directory test-clients ARGS=--all

KILLS ?= 1000
.PHONY: kills
kills: all ## kill the engine KILLS (1000) times under 64 mixed streams: every answer equal byte for byte
	@python3 tests/oracle/kills.py --kills $(KILLS) $(ARGS)

DISCONNECTS ?= 10000
.PHONY: storm
storm: all ## DISCONNECTS (10000) clients that leave at random moments: nothing is left behind, every request counted
	@TEST_SECONDS=7200 DISCONNECTS=$(DISCONNECTS) .venv/bin/python -m pytest -q tests/api/test_streams.py -k storm

UPGRADES ?= 100
.PHONY: upgrades
upgrades: all ## replace the server's process UPGRADES (100) times under load: 0 refused connections, 0 cut streams
	@TEST_SECONDS=7200 UPGRADES=$(UPGRADES) .venv/bin/python -m pytest -q -s tests/api/test_upgrade.py -k "under_load and False"

BENCHES := $(patsubst %.c,$(BUILD)/%,$(wildcard tests/bench/*.c tests/gpu/*.c))
.PHONY: benches
benches: $(BENCHES) ## build the programs that measure

.PHONY: bench
bench: ## tables against llama.cpp on this machine
	@tests/bench/run

# ---- install ----

PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: install uninstall
install: all ## into PREFIX (/usr/local)
	install -D -m 755 build/flashd $(DESTDIR)$(PREFIX)/bin/flashd
	if [ -f build/libflashd_cuda.so ]; then install -D -m 755 build/libflashd_cuda.so $(DESTDIR)$(PREFIX)/lib/flashd/libflashd_cuda.so; fi
	if [ -f build/libflashd_lab.so ]; then install -D -m 755 build/libflashd_lab.so $(DESTDIR)$(PREFIX)/lib/flashd/libflashd_lab.so; fi
	install -D -m 644 deploy/flashd.service $(DESTDIR)$(PREFIX)/lib/systemd/system/flashd.service
	install -D -m 644 deploy/flashd.socket $(DESTDIR)$(PREFIX)/lib/systemd/system/flashd.socket
	install -D -m 644 deploy/flashd.example.yaml $(DESTDIR)$(PREFIX)/share/doc/flashd/flashd.example.yaml
	build/flashd --print-man | install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/man/man1/flashd.1
	build/flashd --print-completion bash | install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/bash-completion/completions/flashd
	build/flashd --print-completion zsh | install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_flashd
	build/flashd --print-completion fish | install -D -m 644 /dev/stdin $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/flashd.fish

uninstall: ## what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/flashd $(DESTDIR)$(PREFIX)/lib/flashd/libflashd_cuda.so $(DESTDIR)$(PREFIX)/lib/flashd/libflashd_lab.so \
		$(DESTDIR)$(PREFIX)/lib/systemd/system/flashd.service $(DESTDIR)$(PREFIX)/lib/systemd/system/flashd.socket $(DESTDIR)$(PREFIX)/share/doc/flashd/flashd.example.yaml \
		$(DESTDIR)$(PREFIX)/share/man/man1/flashd.1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions/flashd \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_flashd $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/flashd.fish

.PHONY: deb
deb: all ## a Debian package in build/
	@deploy/make-deb build

.PHONY: prove-deploy
prove-deploy: deb model ## the Dockerfile's steps and the package under systemd in roots of Debian 12 (as root, 15 minutes)
	@python3 tests/deploy/booted.py
	@python3 tests/deploy/image.py

.PHONY: clean help
clean: ## remove what was built
	rm -rf build build-san build-tsan build-fuzz build-debug build-mutants

help: ## this list
	@echo "make                 build build/flashd"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | awk -F'\t' '{printf "make %-15s %s\n", $$1, $$2}'

-include $(shell find $(BUILD) -type f -name '*.d' 2>/dev/null)
