/* What programs ask of the C library: its functions run here one instruction at a time, and most of the code is its own. With SMALL each is
 * called about once, and what takes many instructions is left out. */
#define _GNU_SOURCE
#include <errno.h>
#include <fenv.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <regex.h>
#include <search.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <wchar.h>

#ifdef SMALL
#define ROUNDS 1
#define COUNT 5
#define ALL 0
#else
#define ROUNDS 4
#define COUNT 60
#define ALL 1
#endif

volatile long long sink;
static void check(int is_right) {
    if (!is_right)
        _Exit(3);
}

/* Sorting: glibc copies small elements by their size, and sorts pointers to large ones. */
static int by_byte(const void *a, const void *b) {
    return *(const unsigned char *)a - *(const unsigned char *)b;
}

static int by_word(const void *a, const void *b) {
    uint32_t x, y;
    memcpy(&x, a, 4);
    memcpy(&y, b, 4);
    return (x > y) - (x < y);
}

static int by_long(const void *a, const void *b) {
    uint64_t x, y;
    memcpy(&x, a, 8);
    memcpy(&y, b, 8);
    return (x > y) - (x < y);
}

static int by_word_of(const void *a, const void *b, void *calls) {
    ++*(int *)calls;
    return by_word(a, b);
}

static void sorts(void) {
    static const struct {
        size_t size, align;
        int (*compare)(const void *, const void *);
    } kinds[] = {{1, 0, by_byte}, {4, 0, by_word}, {8, 0, by_long}, {12, 0, by_word}, {16, 0, by_long}, {200, 0, by_word}, {6, 1, by_byte}};
    static _Alignas(16) unsigned char elements[200 * COUNT + 16];
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        size_t size = kinds[kind].size, last = size * (COUNT - 1);
        unsigned char *first = elements + kinds[kind].align;
        unsigned state = 12345;
        memset(first, 0, size * COUNT);
        for (size_t at = 0; at <= last; at += size) {
            state = state * 1103515245 + 12345;
            first[at] = state >> 16;
        }
        qsort(first, COUNT, size, kinds[kind].compare);
        for (size_t at = 0; at < last; at += size)
            check(kinds[kind].compare(first + at, first + at + size) <= 0);
        check(bsearch(first + last, first, COUNT, size, kinds[kind].compare) != NULL);
    }
    int calls = 0;
    uint32_t words[5] = {5, 3, 4, 1, 2};
    qsort_r(words, 5, 4, by_word_of, &calls);
    check(words[0] == 1 && calls > 0);
    /* Too large for the stack: sorted in memory of malloc's, or where it is. */
    unsigned char *large = calloc(6, 400);
    for (int at = 0; at < 6; at++)
        large[400 * at] = 6 - at;
    qsort(large, 6, 400, by_byte);
    check(large[0] == 1);
    free(large);
}

static void prints(void) {
    char text[600];
    wchar_t wide[40];
    check(snprintf(text, sizeof text, "%f %a %Lf", 3.14159, 0.5, (long double)1 / 3) > 0);
    check(snprintf(text, sizeof text, "%500d|%-40s|%+05.1f", 42, "left", 2.25) == 500 + 42 + 5);
    check(!ALL || snprintf(text, sizeof text, "%.3e %g", 1e-10, 123456.789) > 0);
    check(snprintf(text, 4, "%s", "cut off here") == 12);
    check(snprintf(text, sizeof text, "%2$s %1$s", "positions", "by") == 12);
    check(snprintf(text, sizeof text, "%lld %llx %'d %c %p %o", -1234567890123LL, 0xfedcba9876543210ULL, 1234567, 'x', (void *)text, 8) > 0);
    check(snprintf(text, sizeof text, "%ls", L"wide") == 4);
    check(swprintf(wide, 40, L"%d %s", 7, "narrow") == 8);
    char *made = NULL;
    check(!ALL || asprintf(&made, "%s-%d", "made", 1) == 6);
    free(made);
    printf("%d %s\n", 1, "printed");
    puts("a line");
    putchar('\n');
    fprintf(stderr, "%s", "");
    fflush(stdout);
}

static void reads(void) {
    char *end;
    check(strtol(" -123abc", &end, 10) == -123 && *end == 'a');
    check(strtoul("0xff", NULL, 0) == 255);
    check(strtoll("-9000000000", NULL, 10) == -9000000000LL);
    check(strtod("3.14159265358979e2", NULL) > 314);
    check(strtod("0x1.8p3", NULL) == 12);
    check(strtof("1e-40", NULL) < 1e-39f);
    check(strtold("1234.5", NULL) == 1234.5L);
    check(atoi("77") == 77 && atof("0.5") == 0.5);
    int number, more;
    double fraction;
    char word[8];
    check(sscanf("12 abc 3.5 ff", "%d %7s %lf %x", &number, word, &fraction, &more) == 4);
    check(sscanf("key=value", "%7[a-z]=%*s%n", word, &number) == 1 && number == 9);
}

static void copies(void) {
    static const size_t sizes[] = {0, 3, 13, 31, 65, 257};
    static unsigned char from[700], to[700];
    for (size_t kind = 0; kind < sizeof sizes / sizeof *sizes; kind++) {
        size_t size = sizes[kind];
        for (size_t shift = ALL ? 0 : kind & 3; shift < 4; shift += 3) {
            memset(from, 'a', size + 8);
            from[size + shift] = 0;
            memcpy(to + shift, from, size);
            memmove(to + shift + 1, to + shift, size);
            memmove(to + shift, to + shift + 1, size);
            sink += strlen((char *)from + shift) + memcmp(from, to, size);
            sink += memchr(from, 0, size + 8) != NULL;
        }
    }
    char text[64];
    strcpy(text, "some words");
    strcat(text, " and more");
    strncpy(text + 30, "cut off", 3);
    stpcpy(text + 40, "end");
    check(strcmp(text, "some words and more") == 0 && strncmp(text, "some thing", 5) == 0);
    check(strchr(text, 'w') == text + 5 && strrchr(text, 'e') != NULL);
    check(strstr(text, "and") == text + 11 && strcasecmp("ABC", "abc") == 0);
    check(strspn(text, "emos") == 4 && strcspn(text, "w") == 5 && strpbrk(text, "xw") == text + 5);
    char *state;
    check(strcmp(strtok_r(text, " ", &state), "some") == 0 && strtok_r(NULL, " ", &state) != NULL);
    char *copy = strdup("copied");
    check(memmem(copy, 6, "pie", 3) == copy + 2);
    free(copy);
}

static void allocates(void) {
    void *small[12];
    for (int at = 0; at < 12; at++)
        small[at] = malloc(8 + at * 24);
    for (int at = 0; at < 12; at += 2)
        free(small[at]);
    small[1] = realloc(small[1], 900);
    small[3] = realloc(small[3], 20);
    void *large = malloc(400000), *aligned = NULL;
    memset(large, 1, 64);
    large = realloc(large, 900000);
    check(posix_memalign(&aligned, 256, 1000) == 0);
    void *zeroed = calloc(10, 130);
    void *middle = malloc(70000);
    free(zeroed);
    free(aligned);
    free(middle);
    free(large);
    for (int at = 1; at < 12; at += 2)
        free(small[at]);
}

static jmp_buf buffer;

__attribute__((noinline)) static void jumps_from(int depth) {
    volatile char room[40];
    room[0] = depth;
    if (depth == 0)
        longjmp(buffer, 5);
    jumps_from(depth - 1);
    room[1] = room[0];
}

static void jumps(void) {
    if (setjmp(buffer) == 0)
        jumps_from(3);
    sigjmp_buf with_mask;
    volatile int rounds = 0;
    if (sigsetjmp(with_mask, 1) == 0 || rounds < 1) {
        rounds++;
        siglongjmp(with_mask, 1);
    }
}

static void files(void) {
    FILE *file = tmpfile();
    check(file != NULL);
    for (int at = 0; at < 3; at++)
        fprintf(file, "line %d\n", at);
    rewind(file);
    char line[40];
    int lines = 0;
    while (fgets(line, sizeof line, file))
        lines++;
    check(lines == 3 && feof(file));
    check(fseek(file, -3, SEEK_END) == 0 && getc(file) == ' ' && ftell(file) > 10);
    ungetc('u', file);
    check(fread(line, 1, 3, file) == 3 && fwrite("more", 1, 4, file) == 4);
    rewind(file);
    int number;
    check(fscanf(file, "line %d", &number) == 1);
    char *grown = NULL;
    size_t size = 0;
    check(getline(&grown, &size, file) == 1);
    free(grown);
    fclose(file);
    check(fopen("/nowhere/at/all", "r") == NULL && errno == ENOENT);
    check(strlen(strerror(errno)) > 0);
    FILE *memory = fmemopen(line, sizeof line, "w");
    fputs("in memory", memory);
    fclose(memory);
}

static void times(void) {
    setenv("TZ", ALL ? "CET-1CEST,M3.5.0,M10.5.0/3" : "CET-1", 1);
    check(getenv("TZ") != NULL && getenv("NOT_THERE") == NULL);
    time_t when = 1700000000;
    struct tm broken;
    char text[80];
    check(localtime_r(&when, &broken) != NULL && broken.tm_hour == 23);
    check(strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %Z %A %j", &broken) > 0);
    check(!ALL || mktime(&broken) == when);
    gmtime_r(&when, &broken);
    sink += time(NULL) > 0;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    unsetenv("TZ");
}

static void matches(void) {
    regex_t expression;
    regmatch_t found[3];
    check(regcomp(&expression, "^([a-z]+)=([0-9]*)$", REG_EXTENDED) == 0);
    check(regexec(&expression, "key=42", 3, found, 0) == 0 && found[2].rm_so == 4);
    check(regexec(&expression, "no match", 3, found, 0) == REG_NOMATCH);
    regfree(&expression);
}

static volatile long long dividend = -1234567890123456789LL, divisor = 1234567;
static volatile double ratio = 2.75;
static volatile long double wide_ratio = 1.25L;
static volatile float narrow = 1.5f;

static void computes(void) {
    sink += dividend / divisor + dividend % divisor;
    sink += (long long)((unsigned long long)dividend / (unsigned long long)divisor);
    sink += (long long)((unsigned long long)dividend % 1000000007ULL);
    sink += (dividend >> (divisor & 31)) + (dividend << (divisor & 31)) + dividend * divisor;
    lldiv_t parts = lldiv(dividend, divisor);
    div_t small = div(17, 5);
    sink += parts.quot + parts.rem + small.rem + abs(-5) + llabs(dividend) + labs(-9);
    long double value = wide_ratio * wide_ratio + wide_ratio / 3 - 1;
    value += (long double)dividend + (long double)ratio + (unsigned)divisor;
    sink += (long long)value + (int)wide_ratio + (value > 3) + (value == wide_ratio) + (long long)(double)value;
    ratio = (double)dividend + (float)dividend + (double)(unsigned long long)dividend;
    sink += (long long)ratio + (unsigned long long)narrow + (long long)(narrow * 2);
    ratio = 2.75;
    sink += (long long)(sin(ratio) + cos(ratio) + exp(ratio) + log(ratio) + pow(ratio, 1.5) + sqrt(ratio) + fmod(ratio, 0.7));
    sink += (long long)(floor(ratio) + ceil(ratio) + round(ratio) + atan2(ratio, 2) + ldexp(ratio, 3) + lrint(ratio));
    int exponent;
    sink += (long long)(frexp(ratio, &exponent) + fabsl(wide_ratio) + sqrtl(wide_ratio) + cbrt(ratio) + tanh(ratio));
    sink += __builtin_popcountll(dividend) + __builtin_clzll(dividend) + __builtin_ctzll(divisor) + ffs(12);
    srand(7);
    sink += rand() + (long long)(drand48() * 9);
    _Complex double product = (1.5 + 2i) * (ratio + 1i);
    product /= 1 + 1i;
    sink += (long long)__real__ product;
}

/* Trees and tables whose functions call back. */
static int visited;

static void visit(const void *node, VISIT kind, int depth) {
    visited += kind == postorder || kind == leaf;
    sink += depth + (node != NULL);
}

static void searches(void) {
    static uint32_t keys[COUNT];
    void *root = NULL;
    for (int at = 0; at < COUNT; at++) {
        keys[at] = (at * 7) % COUNT;
        check(tsearch(&keys[at], &root, by_word) != NULL);
    }
    visited = 0;
    twalk(root, visit);
    check(visited > 0 && tfind(&keys[1], &root, by_word) != NULL);
    for (int at = 0; at < COUNT; at++)
        tdelete(&keys[at], &root, by_word);
    uint32_t wanted = 1;
    size_t count = COUNT;
    check(lfind(&wanted, keys, &count, 4, by_word) != NULL);
    check(hcreate(10) != 0 && hsearch((ENTRY){"key", "value"}, ENTER) != NULL);
    hdestroy();
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int own = 5;

static void initialise(void) { check(pthread_key_create(&key, NULL) == 0); }

static void locks(void) {
    pthread_once(&once, initialise);
    pthread_once(&once, initialise);
    check(pthread_setspecific(key, &own) == 0 && pthread_getspecific(key) == &own);
    pthread_mutex_lock(&mutex);
    own++;
    pthread_mutex_unlock(&mutex);
    sink += own;
}

static void first_handler(void) { puts("first"); }
static void second_handler(void) { sink++; }
static void with_argument(int status, void *argument) {
    check(status == 0 && argument == &key);
    first_handler();
}
int on_exit(void (*function)(int, void *), void *argument);

int main(void) {
    atexit(first_handler);
    atexit(second_handler);
    on_exit(with_argument, &key);
    for (int round = 0; round < ROUNDS; round++) {
        sorts();
        prints();
        reads();
        copies();
        allocates();
        jumps();
        files();
        times();
        if (ALL)
            matches();
        computes();
        searches();
        locks();
    }
    return 0;
}
