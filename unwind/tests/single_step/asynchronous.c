/* Tasks in Swift's asynchronous calling convention: no function that waits is on the stack. What the contexts lead to, the program notes in
   `waiting` by itself, so that a test knows it. */
#include <stdlib.h>

#define ASYNC __attribute__((swiftasynccall, noinline))
#define CONTEXT __attribute__((swift_async_context))
#define GO_ON __attribute__((musttail)) return

struct context {
    struct context *parent;
    void (*resume)(CONTEXT struct context *) __attribute__((swiftasynccall));
    long level;
};

/* The functions that wait, the outermost first; of two tasks, one within the other. */
struct task {
    unsigned long count;
    void *waiting[64];
} tasks[2], *current = tasks;

static struct context pool[2][64];
volatile long sink;

static int compare(const void *left, const void *right) {
    sink++;
    return *(const int *)left - *(const int *)right;
}

__attribute__((noinline)) long work(long n) {
    int numbers[] = {5, 3, (int)n, 1};
    volatile char room[n % 3 * 16 + 8];
    room[0] = (char)n;
    qsort(numbers, 4, sizeof *numbers, compare);
    return n > 0 ? numbers[0] + work(n / 2) : room[0];
}

static struct context *call(struct context *parent, void (*resume)(CONTEXT struct context *) __attribute__((swiftasynccall)), long level) {
    struct context *context = &pool[current - tasks][current->count];
    *context = (struct context){parent, resume, level};
    current->waiting[current->count++] = (void *)resume;
    return context;
}

static void run_inner(void);

ASYNC void finish(CONTEXT struct context *context) {
    sink += work(1);
}

ASYNC void descend_resume(CONTEXT struct context *context) {
    sink += work(context->level);
    current->count--;
    GO_ON context->resume(context->parent);
}

ASYNC void other_resume(CONTEXT struct context *context) {
    if (context->level == 2 && current == tasks)
        run_inner();
    sink += work(context->level) + work(context->level + 1);
    current->count--;
    GO_ON context->resume(context->parent);
}

ASYNC void descend(CONTEXT struct context *context);
/* Not known to be itself: else the compiler makes a loop of it, with the next context in a register alone. */
void (*volatile further)(CONTEXT struct context *) __attribute__((swiftasynccall)) = descend;

ASYNC void descend(CONTEXT struct context *context) {
    long level = context->level;
    sink += work(level);
    if (level == 0) {
        current->count--;
        GO_ON context->resume(context->parent);
    }
    GO_ON further(call(context, level % 2 ? descend_resume : other_resume, level - 1));
}

__attribute__((noinline)) void run(long level) {
    struct context *root = call(0, finish, level);
    descend(root);
    current->count = 0;
}

/* A task that another one's function waits for on the stack. */
static void run_inner(void) {
    current = tasks + 1;
    run(3);
    current = tasks;
}

int main(int count, char **arguments) {
    for (int rounds = count > 1 ? atoi(arguments[1]) : 1; rounds > 0; rounds--)
        run(9);
    return 0;
}
