#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
namespace shapes {
struct Shape { virtual ~Shape() = default; virtual double area() const = 0; };
struct Square final : Shape { double side; explicit Square(double s) : side(s) {} double area() const override { return side * side; } };
struct Circle final : Shape { double r; explicit Circle(double x) : r(x) {} double area() const override { return 3.14 * r * r; } };
namespace { template <typename T> T clamp(T x, T low, T high) { return x < low ? low : x > high ? high : x; } }
double total(const std::vector<std::unique_ptr<Shape>> &all) {
    double sum = 0;
    for (const auto &shape : all) sum += clamp(shape->area(), 0.0, 1e6);
    return sum;
}
}
__attribute__((noinline)) int first(int x) { return x * 17 + 3; }
__attribute__((noinline)) int second(int x) { return x * 17 + 3; }
static __attribute__((noinline)) std::string words(int count) {
    std::map<std::string, int> seen;
    for (int i = 0; i < count; i++) seen["word" + std::to_string(i % 7)] += i;
    std::vector<std::pair<int, std::string>> order;
    for (const auto &[word, number] : seen) order.emplace_back(number, word);
    std::sort(order.begin(), order.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
    std::string text;
    for (const auto &entry : order) text += entry.second + "=" + std::to_string(entry.first) + " ";
    if (text.empty()) throw std::runtime_error("no words");
    return text;
}
int main(int argc, char **argv) {
    std::vector<std::unique_ptr<shapes::Shape>> all;
    for (int i = 0; i < argc * 10; i++) {
        if (i % 2) all.push_back(std::make_unique<shapes::Square>(i));
        else all.push_back(std::make_unique<shapes::Circle>(i));
    }
    std::function<int(int)> pick = argc > 3 ? first : second;
    try { std::printf("%s %f %d\n", words(argc * 20).c_str(), shapes::total(all), pick(argc) + first(argc)); }
    catch (const std::exception &error) { std::fprintf(stderr, "%s %s\n", argv[0], error.what()); return 1; }
}
