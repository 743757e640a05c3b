#include "halley/engine/available_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

#include <unistd.h>

#include "halley/base/checked_math.h"

namespace halley {
namespace {

// Reads a file as a stream, since files of /proc and /sys have no size; empty if it does not exist.
std::string read_system_file(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Parses the number at the beginning of `text`, after spaces.
std::optional<int64_t> parse_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> parse_mem_available(std::string_view meminfo) {
  constexpr std::string_view kField = "MemAvailable:";
  const size_t begin = meminfo.find(kField);
  if (begin == std::string_view::npos) return std::nullopt;
  const auto num_kibibytes = parse_number(meminfo.substr(begin + kField.size()));
  if (!num_kibibytes) return std::nullopt;
  return checked_mul(*num_kibibytes, int64_t{1024});
}

std::optional<int64_t> parse_cgroup_room(std::string_view memory_max,
                                         std::string_view memory_current) {
  const auto max = parse_number(memory_max);
  const auto current = parse_number(memory_current);
  if (!max || !current) return std::nullopt;
  return std::max(*max - *current, int64_t{0});
}

int64_t available_memory_bytes() {
  int64_t num_bytes = parse_mem_available(read_system_file("/proc/meminfo"))
                          .value_or(int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE));
  const auto remaining = parse_cgroup_room(read_system_file("/sys/fs/cgroup/memory.max"),
                                           read_system_file("/sys/fs/cgroup/memory.current"));
  if (remaining) num_bytes = std::min(num_bytes, *remaining);
  return num_bytes;
}

}  // namespace halley
