// Recorded loads: arrival times and lengths of requests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace halley {

struct TraceEntry {
  double seconds = 0;                     // since the first entry
  int64_t input_len = 0, output_len = 0;  // tokens
};

/// CSV with the columns TIMESTAMP ("2023-11-16 18:17:03.9799600", in UTC), ContextTokens and
/// GeneratedTokens, in any order and among others, as in the Azure LLM inference traces of 2023 and
/// 2024 (github.com/Azure/AzurePublicDataset). Throws InputError with the line if a
/// field is missing, is no integer from 1 to 10,000,000, or if time runs backwards.
std::vector<TraceEntry> parse_trace(std::string_view csv, const std::string& where);

/// The requests of [start, start + seconds), their times counted from `start`. `seconds` may be
/// infinite. Throws InputError if there are none.
std::vector<TraceEntry> trace_window(const std::vector<TraceEntry>& trace, double start,
                                     double seconds, const std::string& where);

}  // namespace halley
