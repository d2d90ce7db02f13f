/* The modules of a process, from /proc/PID/maps. */
#ifndef MAPS_H
#define MAPS_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "dwunw.h"

struct mapping {
    uint64_t start, end;
    char permissions[8];
    char path[4096];
};

/* Reads the next line; 0 at the end. */
static inline int next_mapping(FILE *maps, struct mapping *mapping) {
    char line[4300];
    while (fgets(line, sizeof line, maps)) {
        mapping->path[0] = 0;
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*s %*s %*s %4095[^\n]", &mapping->start, &mapping->end, mapping->permissions,
                   mapping->path) >= 3)
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

/* Adds a range of addresses without a file, if there is code: what was made at run time is unwound by its frame pointers. */
static inline int add_code(dwunw_context *context, const struct mapping *mapping) {
    dwunw_module module = {.struct_size = sizeof module, .start = mapping->start, .end = mapping->end};
    return strchr(mapping->permissions, 'x') && mapping->start >> 63 == 0 && dwunw_module_add(context, &module, NULL) == DWUNW_STATUS_OK;
}

/* Adds each file that is mapped, once, from its first to its last mapping, and memory with code that no file has. Files that are no ELF files
 * are left out. Gives how many modules there are. */
static inline int add_modules(dwunw_context *context, pid_t pid) {
    struct mapping mapping, file = {0};
    int added = 0, more = 1;
    FILE *maps = open_maps(pid);
    if (!maps)
        return 0;
    while (more) {
        more = next_mapping(maps, &mapping);
        if (more && file.path[0] && strcmp(mapping.path, file.path) == 0) {
            file.end = mapping.end;
            continue;
        }
        if (more && mapping.path[0] != '/')
            added += add_code(context, &mapping);
        if (more && file.path[0] && mapping.path[0] == 0)
            continue; /* memory between two mappings of a file, such as its .bss */
        if (file.path[0] == '/') {
            dwunw_module module = {.struct_size = sizeof module, .start = file.start, .end = file.end, .elf_path = file.path};
            added += dwunw_module_add(context, &module, NULL) == DWUNW_STATUS_OK;
        }
        file = mapping;
    }
    fclose(maps);
    return added;
}

#endif
