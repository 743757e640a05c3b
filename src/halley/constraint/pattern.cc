#include "halley/constraint/pattern.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/constraint/char_set.h"
#include "halley/constraint/pattern_reader.h"

namespace halley {
namespace {

constexpr PatternLimits kLimits;

// A part of a pattern: its texts without the empty one, and whether it matches that too.
// Repetitions need parts that are not empty, or an empty text could count.
struct Part {
  ExprId nonempty = 0;
  bool is_nullable = false;
};

struct Alternative {
  std::vector<Part> parts;
  bool is_anchored_left = false;
  bool is_anchored_right = false;
};

class PatternParser {
 public:
  PatternParser(GrammarBuilder& builder, PatternReader reader, TextForm form, PatternMatch match)
      : builder_(builder), reader_(std::move(reader)), form_(form), match_(match) {}

  ExprId parse() {
    std::vector<ExprId> choices;
    const bool is_whole = match_ == PatternMatch::kWhole;
    const ExprId anything = builder_.repeat(char_of(CharSet::all()), 0, kUnbounded);
    for (Alternative& alternative : parse_alternatives(0)) {
      const ExprId body = full(join(alternative.parts));
      std::vector<ExprId> parts;
      if (!is_whole && !alternative.is_anchored_left) parts.push_back(anything);
      parts.push_back(body);
      if (!is_whole && !alternative.is_anchored_right) parts.push_back(anything);
      choices.push_back(builder_.sequence(parts));
    }
    if (!reader_.is_at_end()) reader_.reject("a ')' that closes a group, got one that closes none");
    return builder_.choice(choices);
  }

 private:
  ExprId char_of(const CharSet& chars) {
    return form_ == TextForm::kUtf8 ? utf8_char(builder_, chars) : json_char(builder_, chars);
  }

  ExprId full(const Part& part) {
    return part.is_nullable ? builder_.optional(part.nonempty) : part.nonempty;
  }

  // One part after the other. Tails come last in their sequences: they need no stack frame.
  Part join(const std::vector<Part>& parts) {
    const bool is_nullable =
        std::all_of(parts.begin(), parts.end(), [](const Part& part) { return part.is_nullable; });
    if (!is_nullable) {
      std::vector<ExprId> sequence;
      for (const Part& part : parts) sequence.push_back(full(part));
      return {builder_.sequence(sequence), false};
    }
    ExprId nonempty = builder_.nothing();
    ExprId rest = builder_.empty();
    for (size_t i = parts.size(); i-- > 0;) {
      nonempty = builder_.choice({builder_.sequence({parts[i].nonempty, rest}), nonempty});
      rest = builder_.sequence({full(parts[i]), rest});
    }
    return {nonempty, true};
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
    const std::optional<PatternCount> count = reader_.take_count();
    if (!count) return part;
    if (count->max == 0) return {builder_.nothing(), true};
    const bool is_nullable = part.is_nullable || count->min == 0;
    const int32_t min = is_nullable ? 1 : count->min;
    return {builder_.repeat(part.nonempty, min, count->max), is_nullable};
  }

  Part parse_atom(int depth) {
    if (reader_.take('(')) return parse_group(depth);
    return {char_of(reader_.take_char_set()), false};
  }

  Part parse_group(int depth) {
    if (depth >= kLimits.depth_max) {
      reader_.reject(str("at most ", kLimits.depth_max, " nested groups, got more"));
    }
    reader_.take_group_head();
    std::vector<ExprId> choices;
    bool is_nullable = false;
    for (const Alternative& alternative : parse_alternatives(depth + 1)) {
      const Part part = join(alternative.parts);
      choices.push_back(part.nonempty);
      is_nullable = is_nullable || part.is_nullable;
    }
    if (!reader_.take(')')) reader_.reject("a ')' behind each '(', got the end");
    return {builder_.choice(choices), is_nullable};
  }

  GrammarBuilder& builder_;
  PatternReader reader_;
  TextForm form_;
  PatternMatch match_;
};

}  // namespace

ExprId pattern_texts(GrammarBuilder& builder, std::string_view pattern, TextForm form,
                     const std::string& where, PatternMatch match) {
  if (pattern.size() > kLimits.bytes_max) {
    throw InputError(
        str(where, ": expected at most ", kLimits.bytes_max, " bytes, got ", pattern.size(), "."));
  }
  return PatternParser(builder, PatternReader(pattern, where), form, match).parse();
}

Grammar regex_grammar(std::string_view pattern, const std::string& where) {
  GrammarBuilder builder(where);
  return builder.finish(
      pattern_texts(builder, pattern, TextForm::kUtf8, where, PatternMatch::kWhole));
}

}  // namespace halley
