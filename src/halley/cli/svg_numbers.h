// Reads coordinates back from SVG, for the tests of plots.
#pragma once

#include <regex>
#include <string>
#include <vector>

namespace halley::cli {

constexpr double kPixel = 0.11;  // coordinates have one digit behind the point

/// All groups of all matches, each read as a number.
inline std::vector<std::vector<double>> numbers_of(const std::string& svg,
                                                   const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::vector<double>> found;
  for (std::sregex_iterator it(svg.begin(), svg.end(), regex), end; it != end; ++it) {
    std::vector<double> numbers;
    for (size_t i = 1; i < it->size(); ++i) numbers.push_back(std::stod((*it)[i]));
    found.push_back(numbers);
  }
  return found;
}

}  // namespace halley::cli
