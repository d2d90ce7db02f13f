/* What the tests of Windows and Mach-O images step through, without any library: every way in which one function comes to run below
   another and in which compilers make and take down frames. `entry` is where it begins; its return address is 0. */
#define NOINLINE __attribute__((noinline))

typedef unsigned long long u64;
typedef int (*compare)(const void *, const void *);

volatile int sink;
volatile u64 wide_sink;

#ifdef NO_SHAPES
static int shapes(int n) { return n; }
#else
int shapes(int n); /* of shapes.cpp */
#endif

/* Compilers call these two by themselves. */
void *memset(void *to, int byte, u64 n) {
    volatile char *at = to;
    while (n--) *at++ = (char)byte;
    return to;
}
void *memcpy(void *to, const void *from, u64 n) {
    volatile char *at = to;
    const volatile char *source = from;
    while (n--) *at++ = *source++;
    return to;
}

static int ascending(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Calls through a pointer, at the end of a loop. */
NOINLINE static void sort(int *numbers, int n, compare order) {
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && order(&numbers[j - 1], &numbers[j]) > 0; j--) {
            int kept = numbers[j];
            numbers[j] = numbers[j - 1];
            numbers[j - 1] = kept;
        }
}

/* Recursion with registers that calls keep. */
NOINLINE static int depth_first(int n, int left, int right) {
    if (n == 0) return left ^ right;
    int a = depth_first(n - 1, right, left + n);
    return a + depth_first(n / 3, left, right - n) + n;
}

NOINLINE static int odd(int n);
NOINLINE static int even(int n) {
    volatile int kept = n;
    return n == 0 ? kept : odd(n - 1) + kept;
}
NOINLINE static int odd(int n) { return n == 0 ? 1 : even(n - 1) + 3; }

/* Tail calls: a jump where a call would be, with and without a frame to take down before. */
NOINLINE static int tail_end(int x) {
    sink = x;
    return x * 3;
}
NOINLINE static int tail_middle(int x) { return tail_end(x + 1); }
NOINLINE static int tail_start(int x) {
    int kept = depth_first(2, x, 1);
    return tail_middle(x * 2 + kept);
}
static int (*volatile through)(int) = tail_middle;
NOINLINE static int tail_through_pointer(int x) {
    int kept = tail_end(x);
    return through(x + kept);
}

/* A frame of unknown size. */
NOINLINE static int variable(int n) {
    volatile char *text = __builtin_alloca(n + 1);
    for (int i = 0; i < n; i++) text[i] = (char)i;
    return depth_first(3, text[n / 2], n);
}

/* The same twice, with many live values. */
NOINLINE static int variable_twice(int n, int a, int b, int c, int d, int e, int f) {
    volatile char *first = __builtin_alloca(n + 1);
    int kept = tail_end(a + b);
    first[0] = (char)kept;
    volatile char *second = __builtin_alloca(n * 2 + 1);
    second[1] = first[0];
    return tail_end(c + d) + a * b + c * d + e * f + second[1] + kept;
}

/* A frame that is aligned beyond what the caller gives, with a variable part besides. */
NOINLINE static int aligned(int n) {
    int numbers[16] __attribute__((aligned(64)));
    volatile char *text = __builtin_alloca(n + 16);
    for (int i = 0; i < 16; i++) numbers[i] = n * (16 - i) % 7;
    text[0] = 1;
    sort(numbers, 16, ascending);
    return numbers[15] + text[0];
}

/* Larger than a page, so that Windows wants each page touched. */
NOINLINE static int large(int n) {
    volatile int numbers[3000];
    numbers[n & 1023] = depth_first(3, n, 2);
    return numbers[n & 1023] + tail_end(n);
}

/* Larger than the short forms of offsets. */
NOINLINE static int huge(int n) {
    volatile char bytes[600000];
    bytes[n & 4095] = 3;
    return tail_end(bytes[n & 4095]) + depth_first(1, n, 1);
}

/* Frames that the short forms of instructions just reach, and just do not. */
#define FRAME(name, size) \
    NOINLINE static int name(int n) { \
        volatile char bytes[size]; \
        bytes[n & 7] = 3; \
        return tail_end(bytes[n & 7]) + n; \
    }
FRAME(frame_16, 16)
FRAME(frame_104, 104)
FRAME(frame_128, 128)
FRAME(frame_248, 248)
FRAME(frame_500, 500)
FRAME(frame_1024, 1024)
FRAME(frame_4000, 4000)

/* Many arguments on the stack, and all registers in use over a call. */
NOINLINE static u64 many(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, u64 g, u64 h, u64 i, u64 j) {
    u64 x = a * b, y = c * d, z = e * f, w = g * h, v = i * j;
    sink = depth_first(2, (int)x, (int)y);
    wide_sink = a ^ b ^ c ^ d ^ e ^ f ^ g ^ h ^ i ^ j;
    return x + y + z + w + v + (u64)tail_end((int)v) * a + b * c + d * e + f * g + h * i + j;
}

/* Floating point values over a call. */
NOINLINE static double floating(double a, double b, double c, double d) {
    double x = a * b, y = c * d, z = a / d, w = b - c;
    sink = depth_first(2, (int)x, 1);
    return x + y * z - w + a + b + c + d;
}

NOINLINE static int varying(int n, ...) {
    __builtin_va_list arguments;
    __builtin_va_start(arguments, n);
    int sum = 0;
    for (int i = 0; i < n; i++) sum += tail_end(__builtin_va_arg(arguments, int));
    __builtin_va_end(arguments);
    return sum;
}

/* A table of jumps, with calls in its cases, early returns and a tail call. */
NOINLINE static int chosen(int n, int value) {
    switch (n) {
    case 0: return tail_end(value) + 1;
    case 1: return depth_first(2, value, n) * 2;
    case 2: sink = value; break;
    case 3: return even(value & 3) - 7;
    case 4: return tail_end(value * 3);
    case 5: sink = tail_end(5) ^ value; break;
    case 6: value += depth_first(1, 2, 3); break;
    case 7: return 11;
    case 8: value = varying(2, value, 4); break;
    default: return tail_middle(n);
    }
    return value + tail_end(value);
}

/* Several ways out, some of which need no frame. */
NOINLINE static int early(int n) {
    if (n < 2) return n;
    int a = depth_first(2, n, 1);
    if (a & 1) return a + tail_end(n);
    return depth_first(1, a, n) + a;
}

/* What follows the call is another function. The call of nothing ends the program. */
static void (*volatile nowhere)(void);
__attribute__((noreturn, noinline)) static void never_returns(int n) {
    sink = depth_first(4, n, n);
    nowhere();
    for (;;) sink = n;
}
NOINLINE static int ends_with_a_call(int n) {
    volatile int kept = tail_end(n);
    if (kept == -12345) return 1;
    never_returns(kept);
}

NOINLINE static int loops(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        sum += chosen(i, sum) + early(i);
        if (i & 1) sum ^= tail_start(i);
    }
    return sum;
}

NOINLINE static void faults(int n) {
#if defined(_WIN32) && defined(__x86_64__)
    volatile int kept = n;
    __asm__ volatile("ud2" ::: "memory");
    sink = kept;
#else
    sink = n;
#endif
}

#if defined(_WIN32) && defined(__x86_64__)
/* What the processor runs on a fault: it has pushed the machine frame. The handler steps over the instruction. */
__asm__(".text\n.globl on_fault\n.def on_fault\n.scl 2\n.type 32\n.endef\n.seh_proc on_fault\non_fault:\n.seh_pushframe\n"
        "pushq %rbp\n.seh_pushreg %rbp\npushq %rbx\n.seh_pushreg %rbx\npushq %rsi\n.seh_pushreg %rsi\npushq %rdi\n.seh_pushreg %rdi\n"
        "subq $40, %rsp\n.seh_stackalloc 40\nmovaps %xmm6, 16(%rsp)\n.seh_savexmm %xmm6, 16\n.seh_endprologue\n"
        "movq $77, %rbp\nmovq $78, %rbx\nmovq $5, %rcx\ncall handled\naddq $2, 72(%rsp)\nmovaps 16(%rsp), %xmm6\n"
        "addq $40, %rsp\npopq %rdi\npopq %rsi\npopq %rbx\npopq %rbp\niretq\n.seh_endproc\n");
/* Touches each page of a frame that is about to be made; its size is in rax. */
__asm__(".text\n.globl __chkstk\n.def __chkstk\n.scl 2\n.type 32\n.endef\n.globl ___chkstk_ms\n.set ___chkstk_ms, __chkstk\n.seh_proc __chkstk\n__chkstk:\n"
        "pushq %rcx\n.seh_pushreg %rcx\npushq %rax\n.seh_pushreg %rax\n.seh_endprologue\n"
        "leaq 24(%rsp), %rcx\n1: cmpq $4096, %rax\njb 2f\nsubq $4096, %rcx\norq $0, (%rcx)\nsubq $4096, %rax\njmp 1b\n2: subq %rax, %rcx\norq $0, (%rcx)\n"
        "popq %rax\npopq %rcx\nret\n.seh_endproc\n");
int handled(int n) {
    sink = depth_first(2, n, n);
    return early(n);
}
#elif defined(_WIN32)
/* The same with the size in units of 16 bytes in x15. */
__asm__(".text\n.globl __chkstk\n.def __chkstk\n.scl 2\n.type 32\n.endef\n__chkstk:\nlsl x16, x15, #4\nmov x17, sp\n"
        "1: sub x17, x17, #4096\nsubs x16, x16, #4096\nldr xzr, [x17]\nb.gt 1b\nret\n");
/* Of parts.S, and what it calls. */
int in_parts(int n, int is_long);
int called_by_parts(int n) { return early(n) + 1; }
#endif

/* Switches without a frame: it is made only in front of a call that does not return. */
__attribute__((noreturn)) NOINLINE static void dies(int n) {
    for (;;) sink = n;
}
NOINLINE static int late(int n, int a, int b) {
    switch (n) {
    case 0: return a + b;
    case 1: sink = a; return a * b;
    case 2: return a - b * 3;
    case 3: sink = b; sink = a; return b;
    case 4: return a ^ b;
    case 5: sink = a + 7; return a << 3;
    case 6: return (a | b) + 11;
    case 7: sink = b; return a / 5;
    default: dies(n);
    }
}

/* Cases that begin by making room for the arguments of a call: no function begins there. */
NOINLINE static int of_room(int a, int b, int c, int d, int e, int f, int g, int h, long i, long j, long k) {
    return tail_end(a) + b + c + d + e + f + g + h + (int)(i + j + k);
}
NOINLINE static int with_room(int n) {
    switch (n) {
    case 0: sink += 3; break;
    case 1: sink = of_room(n, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2); break;
    case 2: sink = of_room(3, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2); break;
    case 3: sink = tail_end(2) - tail_end(3); break;
    case 4: sink += of_room(n, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2); break;
    case 5: sink += tail_end(9) ^ of_room(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11); break;
    }
    return tail_end(sink);
}
NOINLINE static int with_room_below_a_variable_frame(int n) {
    volatile char *room = __builtin_alloca(n * 16 + 32);
    room[n] = (char)n;
    switch (n) {
    case 0: return tail_end(n) + room[1];
    case 1: return of_room(n, room[n], 3, 4, 5, 6, 7, 8, 9, 10, 11) + room[n];
    case 2: return of_room(3, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2);
    case 3: return 7 + tail_end(2);
    case 4: return of_room(n, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2) + 1;
    case 5: return tail_end(9) - of_room(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
    default: return tail_end(n);
    }
}

static volatile int below_eight = 8;

int _fltused;

int entry(void) {
    int numbers[12];
    for (int i = 0; i < 12; i++) numbers[i] = (i * 7919 + 3) % 101;
    sort(numbers, 12, ascending);
    sink = depth_first(8, numbers[0], numbers[11]);
    sink = even(40);
    sink = tail_start(5) + tail_through_pointer(4);
    sink = variable(100) + variable(1) + aligned(20) + variable_twice(9, 1, 2, 3, 4, 5, 6);
    sink = large(7) + huge(7);
    sink = frame_16(1) + frame_104(1) + frame_128(2) + frame_248(3) + frame_500(4) + frame_1024(5) + frame_4000(6);
    wide_sink = many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
    sink = (int)floating(1.5, 2.5, 3.5, 4.5) + varying(5, 1, 2, 3, 4, 5);
    sink = loops(12);
    for (int i = 0; i < below_eight; i++) sink = late(i, i * 3, sink);
    for (int i = 0; i < below_eight; i++) sink = with_room(i) + with_room_below_a_variable_frame(i);
    faults(3);
#if defined(_WIN32) && defined(__aarch64__)
    sink = in_parts(3, 1) + in_parts(4, 0);
#endif
    sink = shapes(6);
    sink = ends_with_a_call(9);
    return sink;
}
