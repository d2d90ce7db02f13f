// Coroutines that wait for each other in the ways that libraries have. Each one that is awaited is noted with who awaits it, and so is the one that runs.
#include <coroutine>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <utility>

// Who waits for whom, by the addresses of their frames. The test reads these.
struct Wait {
    void *awaited;
    void *awaiting;
};
extern "C" {
Wait waits[256];
volatile unsigned long wait_count;
void *volatile running;
volatile unsigned long busy;
}

static void wait_begins(std::coroutine_handle<> awaited, std::coroutine_handle<> awaiting) {
    unsigned long at = wait_count;
    waits[at] = {awaited.address(), awaiting.address()};
    wait_count = at + 1;
}

static void wait_ends(void *awaited) {
    for (unsigned long at = wait_count; at-- > 0;) {
        if (waits[at].awaited == awaited) {
            unsigned long last = wait_count - 1;
            waits[at] = waits[last];
            wait_count = last;
            return;
        }
    }
}

// GCC keeps values over a call in registers that it knows the called function to leave alone, whatever calls may do.
#ifdef __clang__
#define OPAQUE __attribute__((noinline))
#else
#define OPAQUE __attribute__((noipa))
#endif

// What the coroutines do. `busy` says that everything is noted.
extern "C" OPAQUE int work(void *frame, int value) {
    running = frame;
    busy = 1;
    int sum = 0;
    for (int round = 0; round < 3; round++) {
        sum += value ^ round;
        __asm__ volatile("" : "+r"(sum));
    }
    busy = 0;
    return sum;
}

// The frame of the coroutine that asks.
struct Self {
    void *frame = nullptr;
    bool await_ready() noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> self) noexcept {
        frame = self.address();
        return false;
    }
    void *await_resume() noexcept { return frame; }
};

// The handle in a base of the promise, with the result in a union before it; passed on without a call.
struct Result {
    union {
        int value;
        char bytes[24];
    };
};
struct PromiseBase {
    struct Final {
        bool await_ready() noexcept { return false; }
        template <class Promise>
        std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) noexcept {
            std::coroutine_handle<> next = self.promise().continuation;
            return next ? next : std::noop_coroutine();
        }
        void await_resume() noexcept {}
    };
    std::suspend_always initial_suspend() noexcept { return {}; }
    Final final_suspend() noexcept { return {}; }
    void unhandled_exception() noexcept { std::terminate(); }
    std::coroutine_handle<> continuation = nullptr;
};
template <class Of> struct Task {
    struct promise_type : Result, PromiseBase {
        Task get_return_object() { return Task{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        void return_value(Of result) { value = result; }
    };
    std::coroutine_handle<promise_type> handle;
    explicit Task(std::coroutine_handle<promise_type> handle) : handle(handle) {}
    Task(Task &&other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
    ~Task() {
        if (handle) {
            handle.destroy();
        }
    }
    bool await_ready() noexcept { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) noexcept {
        wait_begins(handle, awaiting);
        handle.promise().continuation = awaiting;
        return handle;
    }
    Of await_resume() noexcept {
        wait_ends(handle.address());
        return handle.promise().value;
    }
};

// The handle in a member of a member, of a promise that is aligned, beside one that leads to what was awaited last; resumed by a call.
struct Nested {
    struct alignas(64) promise_type {
        struct Waiter {
            int kind = 7;
            std::coroutine_handle<> who = nullptr;
        };
        int value = 0;
        struct {
            char pad[12] = {};
            Waiter waiter;
        } inner;
        std::coroutine_handle<> last = nullptr;
        Nested get_return_object() { return Nested{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() noexcept { return {}; }
        struct Final {
            bool await_ready() noexcept { return false; }
            void await_suspend(std::coroutine_handle<promise_type> self) noexcept {
                if (auto who = self.promise().inner.waiter.who) {
                    who.resume();
                }
            }
            void await_resume() noexcept {}
        };
        Final final_suspend() noexcept { return {}; }
        void return_value(int result) { value = result; }
        void unhandled_exception() noexcept { std::terminate(); }
    };
    std::coroutine_handle<promise_type> handle;
    explicit Nested(std::coroutine_handle<promise_type> handle) : handle(handle) {}
    Nested(Nested &&other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
    ~Nested() {
        if (handle) {
            handle.destroy();
        }
    }
    bool await_ready() noexcept { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept {
        wait_begins(handle, awaiting);
        handle.promise().inner.waiter.who = awaiting;
        handle.resume();
    }
    int await_resume() noexcept {
        wait_ends(handle.address());
        return handle.promise().value;
    }
};

// What waits until the loop in `main` goes on with it, on another stack than it was left on.
static std::coroutine_handle<> ready[64];
static int ready_count;
struct Later {
    bool await_ready() noexcept { return false; }
    void await_suspend(std::coroutine_handle<> self) noexcept { ready[ready_count++] = self; }
    void await_resume() noexcept {}
};

static Task<int> leaf(int value) {
    void *self = co_await Self{};
    int result = work(self, value);
    co_return result + work(self, result);
}

// One function, many frames.
static Task<int> recursive(int depth) {
    void *self = co_await Self{};
    int sum = work(self, depth);
    if (depth > 0) {
        sum += co_await recursive(depth - 1);
        sum += work(self, sum);
        if (depth == 2) {
            sum += co_await recursive(1);
        }
    } else {
        co_await Later{};
        sum += work(self, sum);
    }
    co_return sum + work(self, depth);
}

static Nested by_call(int value) {
    void *self = co_await Self{};
    int sum = work(self, value);
    if (value > 1) {
        sum += co_await by_call(value - 1);
    } else {
        sum += co_await leaf(value);
    }
    co_await Later{};
    co_return sum + work(self, sum);
}

static Task<long> mixed(int rounds) {
    void *self = co_await Self{};
    long sum = 0;
    for (int round = 0; round < rounds; round++) {
        sum += co_await leaf(round);
        sum += co_await by_call(round + 1);
        sum += work(self, round);
        auto lambda = [&sum](int value) -> Task<int> {
            void *own = co_await Self{};
            co_await Later{};
            co_return value + work(own, static_cast<int>(sum));
        };
        sum += co_await lambda(round);
        sum += co_await recursive(round);
    }
    co_return sum;
}

// Nobody awaits it, and it destroys what it awaits before it ends.
static Task<int> outermost() {
    void *self = co_await Self{};
    int sum = work(self, 1);
    {
        Task<int> kept = recursive(3);
        sum += co_await kept;
        sum += work(self, sum);
    }
    sum += static_cast<int>(co_await mixed(2));
    co_return sum + work(self, sum);
}

int main() {
    Task<int> first = outermost();
    Task<int> second = recursive(2);
    first.handle.resume();
    second.handle.resume();
    while (ready_count > 0) {
        std::coroutine_handle<> next = ready[0];
        for (int at = 1; at < ready_count; at++) {
            ready[at - 1] = ready[at];
        }
        ready_count--;
        next.resume();
    }
    std::printf("%d %d\n", first.handle.promise().value, second.handle.promise().value);
    return wait_count == 0 && first.handle.done() && second.handle.done() ? 0 : 1;
}
