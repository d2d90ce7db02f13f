#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

/// Counts words of the arguments by length, with what the library of C++ inlines.
static std::map<std::size_t, std::vector<std::string>> by_length(const std::string &text) {
    static const std::regex word("[[:alpha:]]+('[a-z]+)?", std::regex::icase | std::regex::optimize);
    std::map<std::size_t, std::vector<std::string>> found;
    for (std::sregex_iterator at(text.begin(), text.end(), word), end; at != end; ++at)
        found[at->str().size()].push_back(at->str());
    for (auto &[length, words] : found) {
        std::sort(words.begin(), words.end(), [](const auto &a, const auto &b) { return a > b; });
        words.erase(std::unique(words.begin(), words.end()), words.end());
    }
    return found;
}

int main(int argc, char **argv) {
    std::ostringstream all;
    for (int i = 0; i < argc; i++) all << argv[i] << ' ';
    for (const auto &[length, words] : by_length(std::regex_replace(all.str(), std::regex("-+"), " ")))
        std::cout << length << ": " << words.size() << ' ' << words.front() << '\n';
}
