#include "halley/checkpoint/tokenizer/split_behavior.h"

#include <algorithm>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

struct Segment {
  TextRange range;
  bool is_delimiter;
};

// The whole text as delimiters and what lies between them. Empty matches stay: they keep the two
// sides apart and count as delimiters for their neighbours.
std::vector<Segment> segments_of(const std::vector<TextRange>& matches, size_t num_bytes,
                                 bool invert) {
  std::vector<Segment> segments;
  segments.reserve(matches.size() * 2 + 1);
  size_t begin = 0;
  for (const TextRange& match : matches) {
    if (begin != match.begin) segments.push_back({{begin, match.begin}, invert});
    segments.push_back({match, !invert});
    begin = match.end;
  }
  if (begin != num_bytes) segments.push_back({{begin, num_bytes}, invert});
  return segments;
}

void add_part(const TextRange& range, std::vector<TextRange>& parts) {
  if (range.begin != range.end) parts.push_back(range);
}

// Joins each segment with the one before it where `joins(is_delimiter, was_delimiter)`.
template <typename Joins>
std::vector<TextRange> join_with_previous(const std::vector<Segment>& segments, Joins joins) {
  std::vector<TextRange> ranges;
  bool was_delimiter = false;
  for (const Segment& segment : segments) {
    if (!ranges.empty() && joins(segment.is_delimiter, was_delimiter)) {
      ranges.back().end = segment.range.end;
    } else {
      ranges.push_back(segment.range);
    }
    was_delimiter = segment.is_delimiter;
  }
  return ranges;
}

// The mirror image: a delimiter joins what follows it, the last one of a run only.
std::vector<TextRange> join_with_next(const std::vector<Segment>& segments) {
  std::vector<TextRange> ranges;
  bool was_delimiter = false;
  for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
    if (!ranges.empty() && segment->is_delimiter && !was_delimiter) {
      ranges.back().begin = segment->range.begin;
    } else {
      ranges.push_back(segment->range);
    }
    was_delimiter = segment->is_delimiter;
  }
  std::reverse(ranges.begin(), ranges.end());
  return ranges;
}

}  // namespace

SplitBehavior parse_split_behavior(const std::string& name, const std::string& where) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  throw InputError(str(where,
                       ": expected Removed, Isolated, MergedWithPrevious, MergedWithNext or "
                       "Contiguous, got ",
                       quote(name), "."));
}

void cut_at_matches(const std::vector<TextRange>& matches, size_t num_bytes, SplitBehavior behavior,
                    bool invert, std::vector<TextRange>& parts) {
  const std::vector<Segment> segments = segments_of(matches, num_bytes, invert);
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Segment& segment : segments) {
        if (!segment.is_delimiter) add_part(segment.range, parts);
      }
      return;
    case SplitBehavior::kIsolated:
      for (const Segment& segment : segments) add_part(segment.range, parts);
      return;
    case SplitBehavior::kMergedWithPrevious:
      for (const TextRange& range :
           join_with_previous(segments, [](bool is, bool was) { return is && !was; })) {
        add_part(range, parts);
      }
      return;
    case SplitBehavior::kContiguous:
      for (const TextRange& range :
           join_with_previous(segments, [](bool is, bool was) { return is == was; })) {
        add_part(range, parts);
      }
      return;
    case SplitBehavior::kMergedWithNext:
      for (const TextRange& range : join_with_next(segments)) add_part(range, parts);
      return;
  }
}

}  // namespace halley
