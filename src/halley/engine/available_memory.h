// How much memory the process may still take.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace halley {

/// Bytes that can be allocated without swapping: MemAvailable of /proc/meminfo, or the free
/// physical pages where there is none; less where the control group (version 2) of the process
/// allows less.
int64_t available_memory_bytes();

/// MemAvailable of the text of /proc/meminfo, in bytes; nothing where it is not there.
std::optional<int64_t> parse_mem_available(std::string_view meminfo);

/// What a control group's memory.max ("max" or bytes) leaves beyond memory.current; nothing where
/// there is no limit.
std::optional<int64_t> parse_cgroup_room(std::string_view memory_max,
                                         std::string_view memory_current);

}  // namespace halley
