// What the single-step test walks through in C++: exceptions through several frames with destructors, caught by type, rethrown and
// nested, beside what the standard library calls back.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone))

static volatile int sink;

struct Guard {
    int value;
    explicit Guard(int value) : value(value) {}
    NOINLINE ~Guard() { sink = sink + value; }
};

struct Shape {
    virtual ~Shape() = default;
    virtual int area(int depth) const = 0;
};
struct Square : Shape {
    int side;
    explicit Square(int side) : side(side) {}
    NOINLINE int area(int depth) const override {
        Guard guard(depth);
        if (depth == 0 && side % 2) throw std::runtime_error("an odd side: " + std::to_string(side));
        if (depth == 0) throw side;
        return area(depth - 1) + side;
    }
};

NOINLINE static int cleaned(const Shape &shape, int depth) {
    Guard guard(depth);
    std::string text(40, 'x');
    return shape.area(depth) + static_cast<int>(text.size());
}

NOINLINE static int caught(int side) {
    auto shape = std::make_unique<Square>(side);
    try {
        return cleaned(*shape, 4);
    } catch (const std::exception &error) {
        return error.what()[0];
    } catch (int number) {
        return number;
    }
}

NOINLINE static int rethrown(int side) {
    try {
        try {
            return cleaned(Square(side), 2);
        } catch (int number) {
            Guard guard(number);
            throw;
        }
    } catch (...) {
        // One exception while another is being handled.
        return caught(side + 1);
    }
}

NOINLINE static int promised(int number) noexcept {
    try {
        std::vector<int> none;
        return none.at(number);
    } catch (const std::out_of_range &) {
        return -1;
    }
}

NOINLINE static int called_back(int rounds) {
    std::map<std::string, int> counts;
    for (int i = 0; i < rounds; i++) counts["key " + std::to_string(i * 7919 % 13)] += i;
    std::vector<int> numbers;
    for (int i = 0; i < 3 * rounds; i++) numbers.push_back(i * 37 % 101);
    std::sort(numbers.begin(), numbers.end(), [](int a, int b) { return a % 10 < b % 10 || (a % 10 == b % 10 && a < b); });
    std::function<int(int)> descend = [&](int n) { return n == 0 ? numbers[0] : descend(n - 1) + counts.size(); };
    return descend(6);
}

int main(int, char **arguments) {
    int rounds = atoi(arguments[1]);
    for (int i = 0; i < rounds; i++) {
        for (int side = 2; side < 4; side++) sink = caught(side) + rethrown(side);
        sink = promised(3);
        sink = called_back(30);
    }
    std::printf("%d\n", sink);
    return 0;
}
