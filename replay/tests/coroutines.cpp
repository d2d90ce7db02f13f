// Three coroutines, each of which waits for the next one; the innermost stands still.
#include <coroutine>
#include <cstdio>
#include <exception>
#include <unistd.h>
#include <utility>

struct Task {
    struct promise_type {
        std::coroutine_handle<> continuation = std::noop_coroutine();
        int result = 0;
        struct Final {
            bool await_ready() noexcept { return false; }
            std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> self) noexcept {
                return self.promise().continuation;
            }
            void await_resume() noexcept {}
        };
        Task get_return_object() { return Task{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() noexcept { return {}; }
        Final final_suspend() noexcept { return {}; }
        void return_value(int value) { result = value; }
        void unhandled_exception() { std::terminate(); }
    };
    std::coroutine_handle<promise_type> self;
    explicit Task(std::coroutine_handle<promise_type> self) : self(self) {}
    Task(Task &&other) : self(std::exchange(other.self, nullptr)) {}
    ~Task() {
        if (self) self.destroy();
    }
    bool await_ready() { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) {
        self.promise().continuation = awaiting;
        return self;
    }
    int await_resume() { return self.promise().result; }
};

__attribute__((noinline)) static void stands_still() {
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}

__attribute__((noinline)) static Task innermost(int value) {
    stands_still();
    co_return value;
}

__attribute__((noinline)) static Task middle(int value) {
    int found = co_await innermost(value + 1);
    co_return found + 1;
}

__attribute__((noinline)) static Task outermost() {
    int found = co_await middle(1);
    co_return found + 1;
}

int main() {
    Task task = outermost();
    task.self.resume();
    return task.self.promise().result == 0;
}
