#include "halley/quant/fp8/skip_list.h"

#include "halley/base/str.h"
#include "halley/quant/base/config_field.h"

namespace halley {
namespace {

/// Whether `part` stands in `name` between dots or ends.
bool has_components(std::string_view name, std::string_view part) {
  if (part.empty()) return false;
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const size_t end = at + part.size();
    const bool begins = at == 0 || name[at - 1] == '.';
    if (begins && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

bool matches_self_or_ancestor(const NamePattern& pattern, std::string_view name) {
  for (size_t end = name.size(); end != std::string_view::npos; end = name.rfind('.', end - 1)) {
    if (pattern.matches(name.substr(0, end))) return true;
    if (end == 0) break;
  }
  return false;
}

}  // namespace

SkipList::SkipList(const HfConfig& config, std::string_view field)
    : field_(field_path(config, field)) {
  const std::string where = str(config.where(), ": field '", field_, "'");
  for (std::string& text : config.strings(field)) {
    Entry entry;
    if (text.starts_with("re:") || text.find_first_of("*?") != std::string::npos) {
      entry.pattern = NamePattern::parse(text, where);
    }
    entry.text = std::move(text);
    entries_.push_back(std::move(entry));
  }
}

SkipList::Verdict SkipList::verdict(std::string_view layer) const {
  const Entry* partial = nullptr;
  for (const Entry& entry : entries_) {
    const bool matches = entry.pattern ? matches_self_or_ancestor(*entry.pattern, layer)
                                       : has_components(layer, entry.text);
    if (matches) {
      return {ConfigSays::kDense, str("field '", field_, "' holds ", quote(entry.text))};
    }
    const bool is_part =
        !entry.pattern && !entry.text.empty() && layer.find(entry.text) != std::string_view::npos;
    if (is_part && partial == nullptr) partial = &entry;
  }
  if (partial != nullptr) {
    return {ConfigSays::kEither, str("field '", field_, "' holds ", quote(partial->text))};
  }
  return {ConfigSays::kQuantized, str("field '", field_, "' does not name it")};
}

}  // namespace halley
