#include "halley/engine/stop_matcher.h"

#include <utility>

#include "halley/base/check.h"

namespace halley {

StopMatcher::StopMatcher(std::vector<std::string> stops, bool includes_stop)
    : stops_(std::move(stops)), nodes_(1), includes_stop_(includes_stop) {
  size_t num_bytes = 0;
  for (const std::string& stop : stops_) {
    HALLEY_CHECK(!stop.empty());
    num_bytes += stop.size();
  }
  HALLEY_CHECK(num_bytes < UINT16_MAX, num_bytes);  // nodes and stop strings have 16-bit indices
  for (size_t i = 0; i < stops_.size(); ++i) add(i);
  link();
}

void StopMatcher::add(size_t stop_index) {
  NodeIndex node = 0;
  for (const char byte : stops_[stop_index]) {
    NodeIndex next = child(node, byte);
    if (next == 0) {
      next = static_cast<NodeIndex>(nodes_.size());
      nodes_.push_back({.next_sibling = nodes_[node].first_child,
                        .depth = static_cast<uint16_t>(nodes_[node].depth + 1),
                        .byte = byte});
      nodes_[node].first_child = next;
      if (node == 0) children_[static_cast<uint8_t>(byte)] = next;
    }
    node = next;
  }
  // The first of equal stop strings counts.
  if (nodes_[node].stop == kNoStop) nodes_[node].stop = static_cast<uint16_t>(stop_index);
}

// Sets the fallbacks by rising depth, since each depends on that of a shorter node.
void StopMatcher::link() {
  std::vector<NodeIndex> order = {0};
  for (size_t i = 0; i < order.size(); ++i) {
    const NodeIndex parent = order[i];
    for (NodeIndex n = nodes_[parent].first_child; n != 0; n = nodes_[n].next_sibling) {
      Node& node = nodes_[n];
      node.fallback = parent == 0 ? NodeIndex{0} : next(nodes_[parent].fallback, node.byte);
      if (node.stop == kNoStop) node.stop = nodes_[node.fallback].stop;
      order.push_back(n);
    }
  }
}

StopMatcher::NodeIndex StopMatcher::child(NodeIndex node, char byte) const {
  if (node == 0) return children_[static_cast<uint8_t>(byte)];
  NodeIndex n = nodes_[node].first_child;
  while (n != 0 && nodes_[n].byte != byte) n = nodes_[n].next_sibling;
  return n;
}

// The longest node that is a suffix of this one with `byte` behind it.
StopMatcher::NodeIndex StopMatcher::next(NodeIndex node, char byte) const {
  for (;;) {
    const NodeIndex n = child(node, byte);
    if (n != 0 || node == 0) return n;
    node = nodes_[node].fallback;
  }
}

StopMatcher::Piece StopMatcher::push(std::string_view text, bool may_stop) {
  Piece piece;
  if (stops_.empty()) {
    piece.text = text;
    return piece;
  }
  for (const char byte : text) {
    held_ += byte;
    node_ = next(node_, byte);
    const uint16_t stop = nodes_[node_].stop;
    if (stop == kNoStop || !may_stop) continue;
    piece.stop_index = stop;
    if (!includes_stop_) held_.resize(held_.size() - stops_[stop].size());
    piece.text = std::exchange(held_, {});
    return piece;
  }
  // A whole stop string that did not count continues as its longest suffix that can grow.
  while (node_ != 0 && nodes_[node_].first_child == 0) node_ = nodes_[node_].fallback;
  const size_t num_final = held_.size() - nodes_[node_].depth;
  piece.text = held_.substr(0, num_final);
  held_.erase(0, num_final);
  return piece;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

}  // namespace halley
