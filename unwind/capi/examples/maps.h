/* The modules of a process, from /proc/PID/maps. Wants _GNU_SOURCE. */
#ifndef MAPS_H
#define MAPS_H

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "dwunw.h"

struct mapping {
    uint64_t start, end, offset, inode;
    unsigned major, minor;
    char permissions[8];
    char path[4096];
};

/* Reads the next line; 0 at the end. */
static inline int next_mapping(FILE *maps, struct mapping *mapping) {
    char line[4300];
    while (fgets(line, sizeof line, maps)) {
        mapping->path[0] = 0;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %x:%x %" SCNu64 " %4095[^\n]", &mapping->start, &mapping->end,
                   mapping->permissions, &mapping->offset, &mapping->major, &mapping->minor, &mapping->inode, mapping->path) >= 7)
            return 1;
    }
    return 0;
}

static inline FILE *open_maps(pid_t pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    return fopen(path, "r");
}

/* The address after the mapping that holds address; 0 if none does. */
static inline uint64_t end_of_mapping(pid_t pid, uint64_t address) {
    struct mapping mapping;
    uint64_t end = 0;
    FILE *maps = open_maps(pid);
    while (maps && !end && next_mapping(maps, &mapping))
        if (mapping.start <= address && address < mapping.end)
            end = mapping.end;
    if (maps)
        fclose(maps);
    return end;
}

static inline int is_code(const struct mapping *mapping) { return strchr(mapping->permissions, 'x') && mapping->start >> 63 == 0; }

static inline int is_same_file(const struct mapping *one, const struct mapping *other) {
    return one->inode == other->inode && one->major == other->major && one->minor == other->minor && strcmp(one->path, other->path) == 0;
}

/* Whether a file is the one that is mapped, by what maps says of a page of it in this process: on overlayfs and btrfs stat has other numbers. */
static inline int is_mapped_file(int file, const struct mapping *mapping) {
    struct mapping own;
    int is_same = 0;
    void *page = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, file, 0);
    FILE *maps = page == MAP_FAILED ? NULL : open_maps(getpid());
    while (maps && next_mapping(maps, &own))
        if (own.start <= (uint64_t)(uintptr_t)page && (uint64_t)(uintptr_t)page < own.end)
            is_same = own.inode == mapping->inode && own.major == mapping->major && own.minor == mapping->minor;
    if (maps)
        fclose(maps);
    if (page != MAP_FAILED)
        munmap(page, 1);
    return is_same;
}

/* Opens the file at path if it is the one that is mapped, or if the path cannot lead to another. */
static inline int open_if_mapped(const char *path, const struct mapping *mapping, int is_exact) {
    struct stat found;
    if (stat(path, &found) != 0 || !S_ISREG(found.st_mode))
        return -1; /* before it is opened: a device may do something then */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file >= 0 && (fstat(file, &found) != 0 || !S_ISREG(found.st_mode) || !(is_exact || is_mapped_file(file, mapping)))) {
        close(file);
        file = -1;
    }
    return file;
}

/* Opens the file of a mapping as the process has it; -1 where it is not to be had. The path in maps is one of the mount namespace of the process: what
 * lies there in one's own may be another file. The kernel's link in map_files leads to the very file, deleted ones included, but takes CAP_SYS_ADMIN
 * or CAP_CHECKPOINT_RESTORE. The others take the right to trace the process, and may lead to a file that has replaced it. */
static inline int open_mapped(pid_t pid, const struct mapping *mapping) {
    char path[4200];
    snprintf(path, sizeof path, "/proc/%d/map_files/%" PRIx64 "-%" PRIx64, (int)pid, mapping->start, mapping->end);
    int file = open_if_mapped(path, mapping, 1);
    if (file < 0) {
        snprintf(path, sizeof path, "/proc/%d/root%s", (int)pid, mapping->path);
        file = open_if_mapped(path, mapping, 0);
    }
    if (file < 0) {
        snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
        file = open_if_mapped(path, mapping, 0);
    }
    return file;
}

/* What is to be passed for a file that is open. */
struct path_of_file {
    char text[32];
};

static inline struct path_of_file path_of(int file) {
    struct path_of_file path;
    snprintf(path.text, sizeof path.text, "/proc/self/fd/%d", file);
    return path;
}

/* Modules on the way into a context: adding one takes time for each that there is, adding many takes it once. */
enum { BATCH = 256 };

struct batch {
    dwunw_context *context;
    uint32_t count;
    int added;
    dwunw_module modules[BATCH];
    int has_code[BATCH], files[BATCH];
    struct path_of_file paths[BATCH];
};

static inline dwunw_module range_of(uint64_t start, uint64_t end) {
    return (dwunw_module){.struct_size = sizeof(dwunw_module), .start = start, .end = end};
}

static inline void add_batch(struct batch *batch) {
    int32_t statuses[BATCH];
    uint32_t again = 0;
    dwunw_modules_add(batch->context, batch->modules, batch->count, NULL, statuses);
    for (uint32_t at = 0; at < batch->count; at++) {
        if (batch->files[at] >= 0)
            close(batch->files[at]);
        if (statuses[at] == DWUNW_STATUS_OK)
            batch->added++;
        else if ((batch->modules[at].elf_path || batch->modules[at].elf) && batch->has_code[at]) {
            /* No ELF file, or a damaged one: the range alone. */
            batch->modules[again++] = range_of(batch->modules[at].start, batch->modules[at].end);
        }
    }
    if (again)
        dwunw_modules_add(batch->context, batch->modules, again, NULL, statuses);
    for (uint32_t at = 0; at < again; at++)
        batch->added += statuses[at] == DWUNW_STATUS_OK;
    batch->count = 0;
}

/* Puts a module into a batch, with a file that is open, or -1: code that no file has, or none that can be had, is unwound by its frame pointers. */
static inline void put(struct batch *batch, dwunw_module module, int file, int has_code) {
    if (file < 0 && !has_code)
        return;
    uint32_t at = batch->count++;
    batch->modules[at] = module;
    batch->files[at] = file;
    batch->has_code[at] = has_code;
    if (file >= 0) {
        batch->paths[at] = path_of(file);
        batch->modules[at].elf_path = batch->paths[at].text;
    }
    if (batch->count == BATCH)
        add_batch(batch);
}

/* Puts the kernel's own code into a batch, which lies in no file: signal handlers return there on some processors, and system calls go through it. All
 * processes of one kind have the same, so that it is read where this one has it; of another kind it is no module, and becomes a range. */
static inline void put_vdso(struct batch *batch, const struct mapping *mapping) {
    uint64_t own = getauxval(AT_SYSINFO_EHDR), own_end = own ? end_of_mapping(getpid(), own) : 0;
    dwunw_module module = range_of(mapping->start, mapping->end);
    if (own_end > own && own_end - own == mapping->end - mapping->start) {
        module.elf = (const void *)(uintptr_t)own;
        module.elf_size = (size_t)(own_end - own);
    }
    put(batch, module, -1, is_code(mapping));
}

/* Whether two mappings are of a page of the file that both their segments have a part of, as LLD lays out small programs: each maps the page anew, one
 * behind the other, no further than the largest pages that the program was linked for, and no two that are neighbours have the same permissions. */
static inline int share_a_page(const struct mapping *mapping, const struct mapping *before) {
    const uint64_t largest_page = 65536;
    return mapping->start - before->end < largest_page && before->end - before->start == (uint64_t)sysconf(_SC_PAGESIZE) &&
           strcmp(mapping->permissions, before->permissions) != 0;
}

/* Memory of a file that nobody may touch: loaders leave it between the segments of a library that lie apart, with an offset that means nothing. */
static inline int is_hole(const struct mapping *mapping) { return strncmp(mapping->permissions, "---", 3) == 0; }

/* Whether a mapping goes on with the file of the one before. A file that is mapped once more begins anew: loaders map what lies further behind in a file
 * further up. The program headers lie at offset 0; what is written there again is the data of a file of one page. */
static inline int goes_on(const struct mapping *mapping, const struct mapping *before) {
    if (!is_same_file(mapping, before))
        return 0;
    if (is_hole(mapping))
        return 1;
    return mapping->offset >= before->offset &&
           (mapping->offset > 0 || strchr(mapping->permissions, 'w') || share_a_page(mapping, before));
}

/* Adds each file that is mapped with code, once for each time that it is, from its first to its last mapping, and memory with code that has no file. Files that
 * are not to be had and those that are no ELF files are ranges. What is mapped to be read alone is no module, such as the files that the library itself
 * has mapped for its modules, in maps of the process that it runs in. Gives how many modules there are. */
static inline int add_modules(dwunw_context *context, pid_t pid) {
    struct mapping next, first = {0}, last = {0}, code[8];
    uint64_t end = 0;
    struct batch batch = {.context = context};
    int has_code = 0, more, codes = 0;
    FILE *maps = open_maps(pid);
    if (!maps)
        return 0;
    do {
        more = next_mapping(maps, &next);
        if (more && first.path[0] == '/' && goes_on(&next, &last)) {
            /* Memory without a file between two mappings of one is its .bss, or its code that was moved to large pages. */
            if (!is_hole(&next))
                last = next;
            end = next.end;
            has_code |= is_code(&next) || codes > 0;
            codes = 0;
            continue;
        }
        if (more && (next.path[0] == 0 || strncmp(next.path, "[anon", 5) == 0) && codes < 8) {
            if (is_code(&next))
                code[codes++] = next;
            continue;
        }
        if (first.path[0] == '/' && has_code)
            put(&batch, range_of(first.start, end), open_mapped(pid, &first), has_code);
        for (int at = 0; at < codes; at++)
            put(&batch, range_of(code[at].start, code[at].end), -1, 1);
        codes = 0;
        if (more && strcmp(next.path, "[vdso]") == 0)
            put_vdso(&batch, &next);
        else if (more && next.path[0] != '/')
            put(&batch, range_of(next.start, next.end), -1, is_code(&next));
        first = last = next;
        end = next.end;
        has_code = is_code(&next);
    } while (more);
    add_batch(&batch);
    fclose(maps);
    return batch.added;
}

#endif
