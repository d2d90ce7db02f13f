/* A file that is mapped more than once is as many modules, and code that was moved to memory without a file is still its file's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "maps.h"
#include "registers.h"

enum { MAX_FRAMES = 64, PAGE = 4096 };

static char scratch_memory[DWUNW_SCRATCH_SIZE], text[1 << 16];
static dwunw_context *context;
static int captures, passes;

/* From here the stack leads through the library that called to main, with their names. */
__attribute__((noinline)) static void capture(void) {
    static dwunw_frame frames[MAX_FRAMES];
    static dwunw_symbol symbols[4 * MAX_FRAMES];
    dwunw_scratch *scratch;
    dwunw_registers registers;
    registers_here(&registers);
    CHECK_STATUS(dwunw_scratch_init(scratch_memory, sizeof scratch_memory, NULL, &scratch), DWUNW_STATUS_OK);
    dwunw_capture_request request = {.struct_size = sizeof request, .flags = DWUNW_CAPTURE_READ_TARGET, .pid = getpid(), .registers = &registers, .frames = frames,
                                     .frame_size = sizeof frames[0], .max_frames = MAX_FRAMES, .scratch = scratch};
    dwunw_capture_result result = {.struct_size = sizeof result};
    CHECK_STATUS(dwunw_capture(context, &request, &result), DWUNW_STATUS_OK);
    dwunw_resolve_request names = {.struct_size = sizeof names, .frames = frames, .frame_size = sizeof frames[0], .frame_count = result.written, .symbols = symbols,
                                   .symbol_size = sizeof symbols[0], .max_symbols = 4 * MAX_FRAMES, .text = text, .text_size = sizeof text};
    dwunw_resolve_result named = {.struct_size = sizeof named};
    CHECK_STATUS(dwunw_symbol_resolve_batch(context, &names, &named), DWUNW_STATUS_OK);
    const char *expected[] = {"capture", "order", "qsort", "main"};
    size_t found = 0;
    for (uint32_t at = 0; at < named.written && found < 4; at++) {
        /* By rules, none by guess. */
        CHECK(frames[symbols[at].frame].method != DWUNW_METHOD_FRAME_POINTER);
        found += symbols[at].function && strncmp(symbols[at].function, expected[found], strlen(expected[found])) == 0;
    }
    CHECK(found == 4);
    captures++;
}

static int order(const void *a, const void *b) {
    if (passes++ == 0)
        capture();
    return *(const int *)a - *(const int *)b;
}

/* With the modules that are mapped now. */
__attribute__((noinline)) static void sort_by(void (*sort)(void *, size_t, size_t, int (*)(const void *, const void *))) {
    int numbers[] = {3, 1, 2};
    passes = 0;
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    CHECK(add_modules(context, getpid()) >= 2);
    sort(numbers, 3, sizeof numbers[0], order);
    CHECK(numbers[0] == 1 && numbers[2] == 3);
    dwunw_shutdown(context);
}

struct image {
    uintptr_t start, code;
    size_t size;
};

/* The first one is the program. */
static int find_image(struct dl_phdr_info *info, size_t size, void *to) {
    struct image *image = to;
    (void)size;
    image->start = UINTPTR_MAX;
    for (int at = 0; at < info->dlpi_phnum; at++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[at];
        uintptr_t start = (info->dlpi_addr + segment->p_vaddr) & ~(uintptr_t)(PAGE - 1);
        if (segment->p_type != PT_LOAD)
            continue;
        image->start = start < image->start ? start : image->start;
        if (segment->p_flags & PF_X) {
            image->code = start;
            image->size = (info->dlpi_addr + segment->p_vaddr + segment->p_memsz - start + PAGE - 1) & ~(size_t)(PAGE - 1);
        }
    }
    return 1;
}

int main(void) {
    struct image image;
    sort_by(qsort);

    /* Another copy of the C library, as plugins get one; the loader puts it beside the first. */
    void *copy = dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW);
    CHECK(copy);
    void (*sort)(void *, size_t, size_t, int (*)(const void *, const void *));
    *(void **)&sort = dlsym(copy, "qsort");
    CHECK(sort && sort != qsort);
    sort_by(sort);
    sort_by(qsort);

    /* The program's own file once more, right below: as who reads its symbols has it. */
    dl_iterate_phdr(find_image, &image);
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    for (int pages = 1; pages <= 2; pages++) {
        char *below = (char *)image.start - pages * PAGE;
        CHECK(mmap(below, (size_t)pages * PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0) == below);
        sort_by(sort);
    }

    /* Its code moved to memory without a file, as for large pages. */
    void *moved = mmap(NULL, image.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(moved != MAP_FAILED);
    memcpy(moved, (void *)image.code, image.size);
    CHECK(mprotect(moved, image.size, PROT_READ | PROT_EXEC) == 0);
    CHECK(mremap(moved, image.size, image.size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)image.code) == (void *)image.code);
    sort_by(sort);
    CHECK(captures == 6);
    printf("%d stacks through what is mapped twice or moved\n", captures);
    return 0;
}
