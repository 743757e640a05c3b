#include "halley/constraint/pattern.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/constraint/char_set.h"
#include "halley/constraint/intersection.h"
#include "halley/constraint/pattern_reader.h"

namespace halley {
namespace {

constexpr PatternLimits kLimits;
constexpr size_t kLookAheadsMax = 16;

// A part of a pattern: its texts without the empty one, and whether it matches that too.
// Repetitions need parts that are not empty, or an empty text could count.
struct Part {
  ExprId nonempty = 0;
  bool is_nullable = false;
  CharCounts counts = {};  // with the empty text
};

int32_t bounded(int64_t count) {
  return static_cast<int32_t>(std::min<int64_t>(count, kUnbounded));
}
CharCounts sum(CharCounts a, CharCounts b) {
  return {bounded(int64_t{a.min} + b.min), bounded(int64_t{a.max} + b.max)};
}
CharCounts repeated(CharCounts a, const RepeatCount& count) {
  return {bounded(int64_t{a.min} * count.min), bounded(int64_t{a.max} * count.max)};
}
CharCounts either(CharCounts a, CharCounts b) {
  return {std::min(a.min, b.min), std::max(a.max, b.max)};
}
constexpr CharCounts kNoChars = {kUnbounded, 0};  // of no text at all

struct Alternative {
  std::vector<Part> parts;
  bool is_anchored_left = false;
  bool is_anchored_right = false;
};

class PatternParser {
 public:
  PatternParser(GrammarBuilder& builder, PatternReader reader, TextForm form, PatternMatch match)
      : builder_(builder), reader_(std::move(reader)), form_(form), match_(match) {}

  ExprId parse(CharCounts& counts) {
    counts = kNoChars;
    std::vector<ExprId> choices;
    const ExprId anything = builder_.repeat(char_of(CharSet::all()), 0, kUnbounded);
    for (const Alternative& alternative : parse_alternatives(0)) {
      const Part body = join(alternative.parts);
      const bool is_open_left = match_ == PatternMatch::kFound && !alternative.is_anchored_left;
      const bool is_open_right = match_ != PatternMatch::kWhole && !alternative.is_anchored_right;
      std::vector<ExprId> parts;
      if (is_open_left) parts.push_back(anything);
      parts.push_back(full(body));
      if (is_open_right) parts.push_back(anything);
      choices.push_back(builder_.sequence(parts));
      const bool is_open = is_open_left || is_open_right;
      counts = either(counts, {body.counts.min, is_open ? kUnbounded : body.counts.max});
    }
    check_is_at_end();
    return builder_.choice(choices);
  }

  void ignore_case() { ignores_case_ = true; }

  PatternPart parse_part() {
    std::vector<ExprId> choices;
    bool is_nullable = false;
    for (const Alternative& alternative : parse_alternatives(0)) {
      if (alternative.is_anchored_left || alternative.is_anchored_right) reader_.reject_anchor();
      const Part part = join(alternative.parts);
      choices.push_back(part.nonempty);
      is_nullable = is_nullable || part.is_nullable;
    }
    check_is_at_end();
    return {builder_.choice(choices), is_nullable};
  }

 private:
  void check_is_at_end() const {
    if (!reader_.is_at_end()) reader_.reject("a ')' that closes a group, got one that closes none");
  }

  ExprId char_of(const CharSet& set) {
    const CharSet& chars = ignores_case_ ? with_other_case(set) : set;
    return form_ == TextForm::kUtf8 ? utf8_char(builder_, chars) : json_char(builder_, chars);
  }

  ExprId full(const Part& part) {
    return part.is_nullable ? builder_.optional(part.nonempty) : part.nonempty;
  }

  // One part after the other. Tails come last in their sequences: they need no stack frame.
  Part join(const std::vector<Part>& parts) {
    const bool is_nullable =
        std::all_of(parts.begin(), parts.end(), [](const Part& part) { return part.is_nullable; });
    CharCounts counts;
    for (const Part& part : parts) counts = sum(counts, part.counts);
    if (!is_nullable) {
      std::vector<ExprId> sequence;
      for (const Part& part : parts) sequence.push_back(full(part));
      return {builder_.sequence(sequence), false, counts};
    }
    ExprId nonempty = builder_.nothing();
    ExprId rest = builder_.empty();
    for (size_t i = parts.size(); i-- > 0;) {
      nonempty = builder_.choice({builder_.sequence({parts[i].nonempty, rest}), nonempty});
      rest = builder_.sequence({full(parts[i]), rest});
    }
    return {nonempty, true, counts};
  }

  std::vector<Alternative> parse_alternatives(int depth) {
    std::vector<Alternative> alternatives;
    do {
      alternatives.push_back(parse_alternative(depth));
    } while (reader_.take('|'));
    return alternatives;
  }

  Alternative parse_alternative(int depth) {
    Alternative alternative;
    const bool may_be_anchored = depth == 0;
    if (may_be_anchored) alternative.is_anchored_left = reader_.take('^');
    while (!reader_.is_at_end() && reader_.peek() != '|' && reader_.peek() != ')') {
      if (may_be_anchored && reader_.peek() == '$') {
        reader_.take('$');
        if (!reader_.is_at_end() && reader_.peek() != '|') reader_.reject_anchor();
        alternative.is_anchored_right = true;
        break;
      }
      alternative.parts.push_back(parse_quantified(depth));
    }
    return alternative;
  }

  Part parse_quantified(int depth) {
    Part part = parse_atom(depth);
    const std::optional<RepeatCount> count = reader_.take_count();
    if (!count) return part;
    if (count->max == 0) return {builder_.nothing(), true};
    const bool is_nullable = part.is_nullable || count->min == 0;
    const int32_t min = is_nullable ? 1 : count->min;
    return {builder_.repeat(part.nonempty, min, count->max), is_nullable,
            repeated(part.counts, *count)};
  }

  Part parse_atom(int depth) {
    if (reader_.take('(')) return parse_group(depth);
    return {char_of(reader_.take_char_set()), false, {1, 1}};
  }

  Part parse_group(int depth) {
    if (depth >= kLimits.depth_max) {
      reader_.reject(str("at most ", kLimits.depth_max, " nested groups, got more"));
    }
    reader_.take_group_head();
    std::vector<ExprId> choices;
    bool is_nullable = false;
    CharCounts counts = kNoChars;
    for (const Alternative& alternative : parse_alternatives(depth + 1)) {
      const Part part = join(alternative.parts);
      counts = either(counts, part.counts);
      choices.push_back(part.nonempty);
      is_nullable = is_nullable || part.is_nullable;
    }
    if (!reader_.take(')')) reader_.reject("a ')' behind each '(', got the end");
    return {builder_.choice(choices), is_nullable, counts};
  }

  GrammarBuilder& builder_;
  PatternReader reader_;
  TextForm form_;
  PatternMatch match_;
  bool ignores_case_ = false;
};

struct LookAhead {
  std::string_view pattern;
  bool is_negative = false;
};

// The index of the first `sign`, ')' or '|', outside of classes and escapes that stands in `depth`
// groups; the pattern's size where there is none.
size_t find_outside(std::string_view pattern, char sign, size_t depth) {
  size_t num_open = 0;
  bool is_in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i];
    if (next == '\\') {
      ++i;
    } else if (is_in_class) {
      is_in_class = next != ']';
    } else if (next == sign && num_open == depth) {
      return i;
    } else if (next == '[') {
      is_in_class = true;
    } else if (next == '(') {
      ++num_open;
    } else if (next == ')' && num_open > 0) {
      --num_open;
    }
  }
  return pattern.size();
}

// Takes (?=...) and (?!...) off the beginning of a pattern.
std::vector<LookAhead> take_look_aheads(std::string_view& pattern) {
  std::vector<LookAhead> look_aheads;
  while (pattern.starts_with("(?=") || pattern.starts_with("(?!")) {
    const size_t end = find_outside(pattern, ')', 1);
    if (end == pattern.size()) break;  // the parser says what is wrong
    look_aheads.push_back({pattern.substr(3, end - 3), pattern[2] == '!'});
    pattern.remove_prefix(end + 1);
  }
  return look_aheads;
}

class PatternLanguage {
 public:
  PatternLanguage(GrammarBuilder& builder, TextForm form, const std::string& where)
      : builder_(builder), form_(form), where_(where) {}

  ExprId texts(std::string_view pattern, PatternMatch match, CharCounts& counts) {
    std::string_view rest = pattern;
    // An anchor and what looks ahead behind it belong to one alternative.
    const bool is_anchored = (rest.starts_with('^') || match != PatternMatch::kFound) &&
                             find_outside(rest, '|', 0) == rest.size();
    if (rest.starts_with('^')) rest.remove_prefix(1);
    const std::vector<LookAhead> look_aheads =
        is_anchored ? take_look_aheads(rest) : std::vector<LookAhead>{};
    if (look_aheads.empty()) return parse(builder_, pattern, match, counts);
    if (look_aheads.size() > kLookAheadsMax) {
      throw InputError(str(where_, ": expected at most ", kLookAheadsMax, " look-aheads, got ",
                           look_aheads.size(), "."));
    }
    CharCounts ignored;
    std::vector<Grammar> in, not_in;
    in.push_back(
        grammar_of(rest, match == PatternMatch::kFound ? PatternMatch::kBegin : match, counts));
    for (const LookAhead& look_ahead : look_aheads) {
      (look_ahead.is_negative ? not_in : in)
          .push_back(grammar_of(look_ahead.pattern, PatternMatch::kBegin, ignored));
    }
    return intersection_of(builder_, in, not_in);
  }

 private:
  ExprId parse(GrammarBuilder& builder, std::string_view pattern, PatternMatch match,
               CharCounts& counts) const {
    return PatternParser(builder, PatternReader(pattern, where_), form_, match).parse(counts);
  }

  Grammar grammar_of(std::string_view pattern, PatternMatch match, CharCounts& counts) const {
    GrammarBuilder part(where_, builder_);
    return part.finish(parse(part, pattern, match, counts));
  }

  GrammarBuilder& builder_;
  TextForm form_;
  const std::string& where_;
};

void check_size(std::string_view pattern, const std::string& where) {
  if (pattern.size() <= kLimits.bytes_max) return;
  throw InputError(
      str(where, ": expected at most ", kLimits.bytes_max, " bytes, got ", pattern.size(), "."));
}

}  // namespace

ExprId pattern_texts(GrammarBuilder& builder, std::string_view pattern, TextForm form,
                     const std::string& where, PatternMatch match, CharCounts* counts) {
  check_size(pattern, where);
  CharCounts found;
  const ExprId texts = PatternLanguage(builder, form, where).texts(pattern, match, found);
  if (counts != nullptr) *counts = found;
  return texts;
}

PatternPart pattern_part(GrammarBuilder& builder, std::string_view pattern,
                         const PatternFlags& flags, const std::string& where) {
  check_size(pattern, where);
  PatternParser parser(builder, PatternReader(pattern, where, flags.dot_is_any_char),
                       TextForm::kUtf8, PatternMatch::kWhole);
  if (flags.ignores_case) parser.ignore_case();
  return parser.parse_part();
}

Grammar regex_grammar(std::string_view pattern, const std::string& where) {
  GrammarBuilder builder(where);
  return builder.finish(
      pattern_texts(builder, pattern, TextForm::kUtf8, where, PatternMatch::kWhole));
}

}  // namespace halley
