// A grammar that was written as text, as rules whose references are resolved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "halley/constraint/char_set.h"

namespace halley {

/// A part of a rule's right side. `parts` are indices of nodes.
struct RuleNode {
  enum class Kind : uint8_t { kChars, kText, kPattern, kRule, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kSequence;
  CharSet chars = {};              // kChars
  std::string text = {};           // kText: UTF-8, may be empty; kPattern: a regular expression
  bool ignores_case = false;       // kPattern
  bool dot_is_any_char = false;    // kPattern: '.' matches line ends too
  size_t at = 0;                   // kPattern: the byte at which it stands
  size_t rule = 0;                 // kRule: an index of rules
  std::vector<size_t> parts = {};  // kSequence, kChoice: any number; kRepeat: one
  int32_t min = 0;                 // kRepeat
  int32_t max = 0;
};

struct TextRule {
  std::string name;
  size_t first_at = 0;  // the byte at which it is first defined or used
  bool is_defined = false;
  size_t body = 0;  // a node
};

struct TextRules {
  std::vector<TextRule> rules;
  std::vector<RuleNode> nodes;
  size_t root = 0;  // a rule
};

}  // namespace halley
