// Frames that C++ makes: virtual calls, thunks of multiple inheritance, destructors on every way out, templates, lambdas. Nothing is thrown,
// but functions have the landing pads and funclets for it; what would be called then is declared below.
#define NOINLINE __attribute__((noinline))

extern "C" {
extern volatile int sink;
#ifdef _WIN32
int __CxxFrameHandler3(...) { return 1; }
void *type_info_vftable[4];
#else
int __gxx_personality_v0(...) { return 1; }
[[noreturn]] void _Unwind_Resume(void *) { for (;;) {} }
#endif
}
void operator delete(void *) noexcept {}
void operator delete(void *, decltype(sizeof 0)) noexcept {}
extern "C" void __cxa_pure_virtual() {}
extern "C" void _purecall() {}

struct Shape {
    virtual int area(int n) = 0;
    virtual ~Shape() { sink = 1; }
};
struct Named {
    int name = 3;
    virtual int length(int n) {
        sink = n;
        return n + name;
    }
};
struct Square : Shape, Named {
    int side;
    explicit Square(int side) : side(side) {}
    NOINLINE int area(int n) override { return n <= 0 ? side : area(n - 1) + side * n; }
    NOINLINE int length(int n) override { return Named::length(n) + area(n & 3); }
};

NOINLINE static void note(int n) { sink = n; }

struct Guard {
    int n;
    explicit Guard(int n) : n(n) { note(n); }
    NOINLINE ~Guard() { note(-n); }
};

NOINLINE static int guarded(Shape &shape, Named &named, int n) {
    Guard first(n);
    int sum = shape.area(n);
    if (sum & 1) {
        Guard second(sum);
        sum += named.length(n);
        if (n > 4) return sum;
    }
    Guard third(sum);
    return sum + shape.area(1);
}

template <typename F> NOINLINE static int apply(F function, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += function(i);
    return sum;
}

template <int DEPTH> struct Tower {
    NOINLINE static int climb(int n) {
        volatile int kept = n + DEPTH;
        return Tower<DEPTH - 1>::climb(n + 1) + kept;
    }
};
template <> struct Tower<0> {
    NOINLINE static int climb(int n) { return n; }
};

extern "C" int shapes(int n) {
    Square square(n);
    int sum = 0;
    for (int i = 0; i < n; i++) sum += guarded(square, square, i);
    sum += apply([&](int i) { return square.area(i) + sum; }, n);
    sum += apply([=](int i) { return i * n; }, 3);
    int (Square::*member)(int) = n > 100 ? &Square::length : &Square::area;
    return sum + Tower<12>::climb(n) + (square.*member)(3);
}
