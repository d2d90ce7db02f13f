/* What the single-step test walks through of the loader: libraries that come and go, and functions whose addresses are looked up at the
   first call. Linked with -z lazy. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static volatile double sink;

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int main(int count, char **arguments) {
    int rounds = atoi(arguments[1]);
    (void)count;
    for (int round = 0; round < rounds; round++) {
        void *library = dlopen("libm.so.6", RTLD_LAZY);
        if (!library) return 1;
        double (*function)(double) = (double (*)(double))dlsym(library, "cos");
        if (!function || dlsym(library, "no such function")) return 2;
        sink = function(round);
        Dl_info info;
        if (!dladdr((void *)function, &info)) return 3;
        dlclose(library);

        char *texts[24];
        for (int at = 0; at < 24; at++) {
            texts[at] = malloc(100 + at * 40);
            snprintf(texts[at], 100, "%x %s %g", at * 7919 % 23, info.dli_sname, at / 3.0);
        }
        qsort(texts, 24, sizeof *texts, by_text);
        for (int at = 0; at < 24; at++) texts[at] = realloc(texts[at], 5000);
        for (int at = 0; at < 24; at++) free(texts[at]);
        time_t now = 1000000000 + round;
        char date[100];
        strftime(date, sizeof date, "%c", gmtime(&now));
        sink = strtod("1.25e3", NULL) + strlen(getenv("LC_ALL")) + date[0];
    }
    return 0;
}
