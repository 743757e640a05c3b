// The memory that the process can still allocate.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace halley {

/// Bytes that can be allocated without swapping: MemAvailable of /proc/meminfo, or the free
/// physical pages without it; at most what the cgroup (version 2) of the process allows.
int64_t available_memory_bytes();

/// Parses MemAvailable, in bytes, from the text of /proc/meminfo; nothing if it is missing.
std::optional<int64_t> parse_mem_available(std::string_view meminfo);

/// The bytes between a cgroup's memory.current and its memory.max ("max" or bytes); nothing without
/// a limit.
std::optional<int64_t> parse_cgroup_room(std::string_view memory_max,
                                         std::string_view memory_current);

}  // namespace halley
