/* Modules come and go, and no rule of one outlives it. The files are of x86_64, whatever runs this.
 *
 *   modules SHALLOW DEEP WITHOUT SCENE [LARGE]    WITHOUT: a file without a build-id; LARGE: a file for which there is no memory
 */
#define _GNU_SOURCE
#include <endian.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* A function at the same address in two files, with frames of different sizes: see shallow.s and deep.s. */
#define BASE 0x10000000ull
enum { WORDS = 64 };

static dwunw_scratch *scratch;
static char memory[DWUNW_SCRATCH_SIZE];
static uint64_t stack[WORDS];

/* The caller's frame, found from inside the function: the word that the rule says is the return address. */
static uint64_t return_address(dwunw_context *context, uint64_t pc) {
    dwunw_frame frames[2];
    dwunw_registers registers = {.struct_size = sizeof registers, .version = DWUNW_REGISTERS_VERSION, .arch = DWUNW_ARCH_X86_64,
                                 .valid = 1 << 7, .pc = pc};
    registers.regs[7] = 0x7000;
    for (int at = 0; at < WORDS; at++)
        stack[at] = htole64(0x5000 + (uint64_t)at);
    dwunw_window window = {.struct_size = sizeof window, .start = 0x7000, .bytes = stack, .size = sizeof stack};
    dwunw_capture_request request = {.struct_size = sizeof request, .registers = &registers, .windows = &window, .window_count = 1,
                                     .frames = frames, .frame_size = sizeof frames[0], .max_frames = 2, .scratch = scratch};
    dwunw_capture_result result = {.struct_size = sizeof result};
    dwunw_capture(context, &request, &result);
    return result.written < 2 ? 0 : frames[1].pc - 0x5000;
}

static void copy(const char *from, const char *to) {
    size_t size;
    void *bytes = whole_file(from, &size);
    FILE *file = fopen(to, "wb");
    CHECK(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    free(bytes);
}

static dwunw_statistics statistics(dwunw_context *context) {
    dwunw_statistics found = {.struct_size = sizeof found};
    CHECK_STATUS(dwunw_context_statistics(context, &found), DWUNW_STATUS_OK);
    return found;
}

/* Many at once: each has its answer, and all are there. One after the other, so many take half a minute. */
static void many(const char *shallow) {
    enum { MANY = 20000 };
    dwunw_options options = {.struct_size = sizeof options, .max_modules = MANY};
    dwunw_context *context;
    CHECK_STATUS(dwunw_init(&options, &context), DWUNW_STATUS_OK);
    dwunw_module *modules = calloc(MANY, sizeof *modules);
    dwunw_module_info *infos = calloc(MANY, sizeof *infos);
    int32_t *statuses = calloc(MANY, sizeof *statuses);
    CHECK(modules && infos && statuses);
    for (int at = 0; at < MANY; at++)
        modules[at] = (dwunw_module){.struct_size = sizeof *modules, .start = 9 * BASE + 4096ull * (unsigned)at, .end = 9 * BASE + 4096ull * (unsigned)at + 4096};
    modules[3].start = modules[2].start;
    modules[4].elf_path = "/nowhere";
    modules[5].struct_size = 8;
    modules[6].start = BASE;
    modules[6].end = 0;
    modules[6].elf_path = shallow;
    CHECK_STATUS(dwunw_modules_add(context, modules, MANY, infos, statuses), DWUNW_STATUS_STRUCT_TOO_SMALL);
    CHECK(statistics(context).modules == 0);
    infos->struct_size = sizeof *infos;
    clock_t before = clock();
    CHECK_STATUS(dwunw_modules_add(context, modules, MANY, infos, statuses), DWUNW_STATUS_ADDRESS_IN_USE);
    CHECK((clock() - before) / CLOCKS_PER_SEC < 5);
    CHECK(statuses[3] == DWUNW_STATUS_ADDRESS_IN_USE && statuses[4] == DWUNW_STATUS_FILE_NOT_FOUND && statuses[5] == DWUNW_STATUS_STRUCT_TOO_SMALL);
    CHECK(infos[3].struct_size == 0 && infos[2].module == 2 && infos[6].module == 3 && infos[6].unwind == DWUNW_STATUS_OK && infos[MANY - 1].module == MANY - 4);
    CHECK(infos[7].struct_size == sizeof *infos && infos[7].start == modules[7].start && infos[7].unwind == DWUNW_STATUS_NO_UNWIND_DATA);
    CHECK(statistics(context).modules == MANY - 3 && return_address(context, BASE + 0x1010) == 1);
    modules[4].elf_path = NULL;
    CHECK_STATUS(dwunw_modules_add(context, modules + 4, 1, NULL, NULL), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_modules_add(context, modules + 4, 0, NULL, NULL), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_modules_add(context, NULL, 1, NULL, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    /* Room for two more. */
    for (int at = 0; at < 3; at++)
        modules[at].start = modules[at].end = (20 + (unsigned)at) * BASE, modules[at].end++;
    CHECK_STATUS(dwunw_modules_add(context, modules, 3, NULL, statuses), DWUNW_STATUS_CACHE_FULL);
    CHECK(statuses[0] == DWUNW_STATUS_OK && statuses[1] == DWUNW_STATUS_OK && statuses[2] == DWUNW_STATUS_CACHE_FULL);
    dwunw_shutdown(context);
    free(modules);
    free(infos);
    free(statuses);
}

/* A build-id that is expected: the file has it, has another one, or none. */
static void expected_ids(const char *shallow, const char *deep, const char *without) {
    static const char note[] = "\4\0\0\0\24\0\0\0\3\0\0\0GNU"; /* with its end: the name's */
    size_t size;
    char *bytes = whole_file(shallow, &size), *id = memmem(bytes, size, note, sizeof note);
    dwunw_context *context;
    CHECK(id);
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    dwunw_module module = {.struct_size = sizeof module, .start = BASE, .elf_path = deep, .build_id = id + sizeof note, .build_id_size = 20};
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_ID_MISMATCH);
    module.elf_path = without;
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_ID_MISMATCH);
    module.elf_path = shallow;
    module.build_id_size = 0;
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_BAD_ARGUMENT);
    module.build_id_size = 19;
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_ID_MISMATCH);
    module.build_id_size = 20;
    CHECK_STATUS(dwunw_module_add(context, &module, NULL), DWUNW_STATUS_OK);
    dwunw_shutdown(context);
    free(bytes);
}

int main(int argc, char **argv) {
    CHECK(argc >= 5);
    const char *shallow = argv[1], *deep = argv[2], *without = argv[3], *scene = argv[4], *large = argv[5];
    dwunw_context *context;
    CHECK_STATUS(dwunw_scratch_init(memory, sizeof memory, NULL, &scratch), DWUNW_STATUS_OK);
    many(shallow);
    expected_ids(shallow, deep, without);
    dwunw_options options = {.struct_size = sizeof options, .max_modules = 3, .max_warm_files = 2};
    CHECK_STATUS(dwunw_init(&options, &context), DWUNW_STATUS_OK);

    /* The rules of a file that is loaded where another was are its own, whatever the scratch memory remembers. */
    dwunw_module module = {.struct_size = sizeof module, .start = BASE, .elf_path = scene};
    dwunw_module_info info = {.struct_size = sizeof info};
    uint64_t pc = 0;
    for (int round = 0; round < 200; round++) {
        int is_deep = round % 2;
        copy(is_deep ? deep : shallow, scene);
        CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OK);
        CHECK(info.module == (uint32_t)round && info.unwind == DWUNW_STATUS_OK && info.symbols == DWUNW_STATUS_OK);
        pc = info.start + 0x1010;
        uint64_t found = return_address(context, pc);
        if (found != (is_deep ? 5 : 1)) {
            fprintf(stderr, "round %d: the return address is word %lu\n", round, (unsigned long)found);
            return 1;
        }
        CHECK(return_address(context, pc) == found);
        CHECK_STATUS(dwunw_module_remove(context, info.module), DWUNW_STATUS_OK);
        CHECK(return_address(context, pc) == 0);
    }
    CHECK(statistics(context).warm_files <= 2 && statistics(context).active_files == 0);

    /* Two files at two addresses; the same file twice is read once; what was removed is warm for a while. */
    module.elf_path = shallow;
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OK);
    uint32_t first = info.module;
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_ADDRESS_IN_USE);
    module.start = 2 * BASE;
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OK);
    CHECK(info.known_files == 1 && statistics(context).active_files == 1 && statistics(context).modules == 2);
    module.start = 3 * BASE;
    module.elf_path = deep;
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OK);
    CHECK(return_address(context, BASE + 0x1010) == 1 && return_address(context, 2 * BASE + 0x1010) == 1);
    CHECK(return_address(context, 3 * BASE + 0x1010) == 5);
    module.start = 4 * BASE;
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_CACHE_FULL);
    CHECK_STATUS(dwunw_module_remove(context, first), DWUNW_STATUS_OK);
    CHECK_STATUS(dwunw_module_remove(context, first), DWUNW_STATUS_NO_SUCH_MODULE);
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OK);

    /* A second context shares the files and not the modules, and outlives the first. */
    dwunw_context *other;
    options = (dwunw_options){.struct_size = sizeof options, .share_files_of = context};
    CHECK_STATUS(dwunw_init(&options, &other), DWUNW_STATUS_OK);
    CHECK(statistics(other).modules == 0 && statistics(other).active_files == 2);
    CHECK(return_address(other, 3 * BASE + 0x1010) == 0);
    module.start = 5 * BASE;
    CHECK_STATUS(dwunw_module_add(other, &module, &info), DWUNW_STATUS_OK);
    CHECK(info.known_files == 1);
    dwunw_shutdown(context);
    CHECK(return_address(other, 5 * BASE + 0x1010) == 5 && statistics(other).warm_files == 2);
    dwunw_shutdown(other);

    /* Memory that is lent may go as soon as the module is removed; memory that is not lent, at once. */
    CHECK_STATUS(dwunw_init(NULL, &context), DWUNW_STATUS_OK);
    size_t size;
    void *bytes = whole_file(deep, &size);
    void *lent = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(lent != MAP_FAILED);
    memcpy(lent, bytes, size);
    module = (dwunw_module){.struct_size = sizeof module, .flags = DWUNW_MODULE_LENT, .start = BASE, .elf = lent, .elf_size = size};
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OK);
    CHECK(return_address(context, BASE + 0x1010) == 5);
    CHECK_STATUS(dwunw_module_remove(context, info.module), DWUNW_STATUS_OK);
    munmap(lent, size);
    CHECK(return_address(context, BASE + 0x1010) == 0);
    module = (dwunw_module){.struct_size = sizeof module, .start = BASE, .elf = bytes, .elf_size = size};
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OK);
    memset(bytes, 0xff, size);
    free(bytes);
    CHECK(return_address(context, BASE + 0x1010) == 5);

    /* A range without a file: its frames have a number, and nothing more is known of them. */
    module = (dwunw_module){.struct_size = sizeof module, .start = 7 * BASE, .end = 7 * BASE + 4096};
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OK);
    CHECK(info.unwind == DWUNW_STATUS_NO_UNWIND_DATA && info.symbols == DWUNW_STATUS_NO_SYMBOLS);

    if (!large) {
        dwunw_shutdown(context);
        puts("no rule outlives its module");
        return 0;
    }
    /* No memory: a status, and everything else goes on. */
    struct rlimit limit, before;
    CHECK(getrlimit(RLIMIT_AS, &before) == 0);
    limit = before;
    struct stat facts;
    CHECK(stat(large, &facts) == 0);
    FILE *status = fopen("/proc/self/statm", "r");
    unsigned long pages;
    CHECK(status && fscanf(status, "%lu", &pages) == 1);
    fclose(status);
    limit.rlim_cur = pages * 4096 + (rlim_t)facts.st_size + (1 << 20);
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    module = (dwunw_module){.struct_size = sizeof module, .start = 8 * BASE, .elf_path = large};
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OUT_OF_MEMORY);
    limit.rlim_cur = pages * 4096 + (1 << 18);
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OUT_OF_MEMORY);
    CHECK(return_address(context, BASE + 0x1010) == 5);
    CHECK(setrlimit(RLIMIT_AS, &before) == 0);
    CHECK_STATUS(dwunw_module_add(context, &module, &info), DWUNW_STATUS_OK);
    dwunw_shutdown(context);
    puts("no rule outlives its module");
    return 0;
}
