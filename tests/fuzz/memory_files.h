/* memory_files.h - the files of a fuzzer's input, in memory: the program's few functions that open files see
 * these and nothing of the disk (linked with --wrap).
 *
 * Each file's bytes are a heap block of exactly their size, so that AddressSanitizer sees a read beyond the
 * end, where a mapping's last page would hide it. Thread: one. */
#ifndef TESTS_FUZZ_MEMORY_FILES_H
#define TESTS_FUZZ_MEMORY_FILES_H

#include <stddef.h>
#include <stdint.h>

/* The directory that holds every file given to memory_files_add. */
#define MEMORY_DIRECTORY "/memory"

enum { MEMORY_FILES_MAX = 8 };

/* Replaces the file of that name. bytes are copied; zeros follow them. */
void memory_files_add(const char *name, const void *bytes, size_t num_bytes, size_t num_zeros);
void memory_files_clear(void);

/* Adds the files of an input that reads
 *
 *   == config.json
 *   {...}
 *   == model.safetensors+1024
 *   {...}
 *
 * "+N": the text is a safetensors header; eight bytes with its size go before it, N zero bytes behind it. */
void memory_files_add_parts(const uint8_t *data, size_t size);

#endif
