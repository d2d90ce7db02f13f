/* Stands still in an asynchronous function of Swift's convention, for which others wait that are on no stack: what they need lies on the heap. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ASYNC __attribute__((swiftasynccall, noinline))
#define CONTEXT __attribute__((swift_async_context))
#define GO_ON __attribute__((musttail)) return

struct context {
    struct context *parent;
    void (*resume)(CONTEXT struct context *) __attribute__((swiftasynccall));
    long level;
};

static struct context *call(struct context *parent, void (*resume)(CONTEXT struct context *) __attribute__((swiftasynccall)), long level) {
    struct context *context = malloc(sizeof *context);
    *context = (struct context){parent, resume, level};
    printf("%p\n", (void *)resume);
    return context;
}

volatile long sink;

__attribute__((noinline)) static void waits(void) {
    puts("ready");
    fflush(stdout);
    for (;;)
        pause();
}

ASYNC static void finishes(CONTEXT struct context *context) {
    sink++;
}

ASYNC static void goes_on(CONTEXT struct context *context) {
    sink += context->level;
    GO_ON context->resume(context->parent);
}

ASYNC static void innermost(CONTEXT struct context *context) {
    waits();
    sink++;
    GO_ON context->resume(context->parent);
}

ASYNC static void outer(CONTEXT struct context *context) {
    sink += context->level;
    if (context->level == 0)
        GO_ON innermost(call(context, goes_on, 0));
    struct context *next = call(context, goes_on, context->level - 1);
    void (*volatile again)(CONTEXT struct context *) __attribute__((swiftasynccall)) = outer;
    GO_ON again(next);
}

__attribute__((noinline)) static void runs(void) {
    outer(call(0, finishes, 3));
    sink++;
}

int main(void) {
    runs();
    return 0;
}
