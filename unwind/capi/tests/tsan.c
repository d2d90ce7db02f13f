/* What newer compilers call for copies in instrumented code, for the runtime of an older one: its own functions notice the same accesses. */
#include <stddef.h>
#include <string.h>

__attribute__((weak)) void *__tsan_memcpy(void *to, const void *from, size_t size) { return memcpy(to, from, size); }
__attribute__((weak)) void *__tsan_memmove(void *to, const void *from, size_t size) { return memmove(to, from, size); }
__attribute__((weak)) void *__tsan_memset(void *to, int value, size_t size) { return memset(to, value, size); }
