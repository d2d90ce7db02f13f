/* What every test uses. A check that does not hold says where, and ends the test. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>

#include "dwunw.h"

#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) {                                                                   \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                   \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

#define CHECK_STATUS(call, expected)                                                          \
    do {                                                                                      \
        dwunw_status found_ = (call);                                                         \
        if (found_ != (expected)) {                                                           \
            fprintf(stderr, "%s:%d: %s: expected %s, found %s\n", __FILE__, __LINE__, #call,  \
                    dwunw_strerror(expected), dwunw_strerror(found_));                        \
            exit(1);                                                                          \
        }                                                                                     \
    } while (0)

/* The whole of a file. */
static inline void *whole_file(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    CHECK(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    void *bytes = malloc(*size);
    CHECK(bytes && fread(bytes, 1, *size, file) == *size);
    fclose(file);
    return bytes;
}

#endif
