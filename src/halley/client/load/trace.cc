#include "halley/client/load/trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <optional>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr int64_t kTokensMax = 10'000'000;
constexpr size_t kColumnsMax = 64;

std::vector<std::string_view> split_line(std::string_view line, const std::string& where) {
  std::vector<std::string_view> fields;
  while (true) {
    const size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    if (fields.size() == kColumnsMax) {
      throw InputError(str(where, ": expected at most ", kColumnsMax, " columns, got more."));
    }
    line.remove_prefix(comma + 1);
  }
}

// Parses all of `text` as a number.
std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return value;
}

// "2023-11-16 18:17:03[.9799600][Z|+00:00]": nanoseconds of Unix time.
std::optional<int64_t> parse_time(std::string_view text) {
  for (const std::string_view zone : {"Z", "+00:00"}) {
    if (text.ends_with(zone)) text.remove_suffix(zone.size());
  }
  constexpr std::string_view kForm = "0000-00-00 00:00:00";
  if (text.size() < kForm.size()) return std::nullopt;
  std::array<int64_t, 6> parts{};
  size_t part = 0;
  for (size_t i = 0; i < kForm.size(); ++i) {
    if (kForm[i] == '0') {
      if (text[i] < '0' || text[i] > '9') return std::nullopt;
      parts.at(part) = 10 * parts.at(part) + (text[i] - '0');
    } else {
      if (text[i] != kForm[i] && !(kForm[i] == ' ' && text[i] == 'T')) return std::nullopt;
      ++part;
    }
  }
  const std::chrono::year_month_day date(std::chrono::year(static_cast<int>(parts[0])),
                                         std::chrono::month(static_cast<unsigned>(parts[1])),
                                         std::chrono::day(static_cast<unsigned>(parts[2])));
  if (!date.ok() || parts[0] < 1970 || parts[0] > 2200 || parts[3] > 23 || parts[4] > 59 ||
      parts[5] > 60) {
    return std::nullopt;
  }
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  const int64_t seconds = ((days * 24 + parts[3]) * 60 + parts[4]) * 60 + parts[5];
  int64_t nanoseconds = 0;
  const std::string_view fraction = text.substr(kForm.size());
  if (!fraction.empty()) {
    if (fraction.size() < 2 || fraction.size() > 10 || fraction[0] != '.') return std::nullopt;
    int64_t unit = 100'000'000;
    for (const char c : fraction.substr(1)) {
      if (c < '0' || c > '9') return std::nullopt;
      nanoseconds += unit * (c - '0');
      unit /= 10;
    }
  }
  return seconds * 1'000'000'000 + nanoseconds;
}

// The index of each column that is read.
struct Columns {
  size_t time = 0, input = 0, output = 0;
};

Columns find_columns(std::string_view line, const std::string& where) {
  const auto fields = split_line(line, where);
  const auto find = [&](std::string_view name) {
    const auto place = std::find(fields.begin(), fields.end(), name);
    if (place == fields.end()) {
      throw InputError(str(where,
                           ": expected the columns TIMESTAMP, ContextTokens and "
                           "GeneratedTokens, got ",
                           quote(line), "."));
    }
    return static_cast<size_t>(place - fields.begin());
  };
  return {find("TIMESTAMP"), find("ContextTokens"), find("GeneratedTokens")};
}

int64_t parse_tokens(std::string_view text, const char* column, const std::string& where) {
  const auto value = parse_number(text);
  if (!value || *value < 1 || *value > kTokensMax) {
    throw InputError(str(where, ": ", column, ": expected a number from 1 to ", kTokensMax,
                         ", got ", quote(text), "."));
  }
  return *value;
}

}  // namespace

std::vector<TraceEntry> parse_trace(std::string_view csv, const std::string& where) {
  std::vector<TraceEntry> entries;
  std::optional<Columns> columns;
  int64_t first = 0;
  for (int64_t line_number = 1; !csv.empty(); ++line_number) {
    const size_t end = csv.find('\n');
    std::string_view line = csv.substr(0, end);
    csv.remove_prefix(end == std::string_view::npos ? csv.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::string place = str(where, ":", line_number);
    if (!columns) {
      columns = find_columns(line, place);
      continue;
    }
    const auto fields = split_line(line, place);
    const auto field = [&](size_t index) {
      return index < fields.size() ? fields[index] : std::string_view();
    };
    const auto time = parse_time(field(columns->time));
    if (!time) {
      throw InputError(str(place,
                           ": TIMESTAMP: expected a time like 2023-11-16 18:17:03.9799600, "
                           "got ",
                           quote(field(columns->time)), "."));
    }
    if (entries.empty()) first = *time;
    const double seconds = static_cast<double>(*time - first) * 1e-9;
    if (seconds < (entries.empty() ? 0 : entries.back().seconds)) {
      throw InputError(str(place, ": TIMESTAMP: expected times in ascending order, got ",
                           quote(field(columns->time)), ". Sort the file."));
    }
    entries.push_back({seconds, parse_tokens(field(columns->input), "ContextTokens", place),
                       parse_tokens(field(columns->output), "GeneratedTokens", place)});
  }
  if (entries.empty()) throw InputError(str(where, ": expected at least one request, got none."));
  return entries;
}

std::vector<TraceEntry> trace_window(const std::vector<TraceEntry>& trace, double start,
                                     double seconds, const std::string& where) {
  std::vector<TraceEntry> window;
  for (TraceEntry entry : trace) {
    if (entry.seconds < start || entry.seconds >= start + seconds) continue;
    entry.seconds -= start;
    window.push_back(entry);
  }
  if (window.empty()) {
    throw InputError(str(where, ": expected requests from second ", start, " to ", start + seconds,
                         ", got none; the last one is at second ",
                         trace.empty() ? 0 : trace.back().seconds, ". Choose another window."));
  }
  return window;
}

}  // namespace halley
