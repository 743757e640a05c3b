#include "halley/quant/all/formats.h"

#include <filesystem>
#include <utility>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/quant/at_load/at_load.h"
#include "halley/quant/auto_round/auto_round.h"
#include "halley/quant/awq/awq.h"
#include "halley/quant/bitsandbytes/bitsandbytes.h"
#include "halley/quant/compressed_tensors/compressed_tensors.h"
#include "halley/quant/fmpq/fmpq.h"
#include "halley/quant/fp8/fp8.h"
#include "halley/quant/gguf/gguf.h"
#include "halley/quant/gptq/gptq.h"
#include "halley/quant/nestedfp/nestedfp.h"
#include "halley/quant/none/none.h"
#include "halley/quant/qoq/qoq.h"
#include "halley/quant/unsupported/unsupported.h"

namespace halley {
namespace {

/// All formats.
const QuantFormat* const kFormats[] = {
    &kQuantNone,   &kQuantGptq,       &kQuantAwq,      &kQuantFp8,  &kQuantCompressedTensors,
    &kQuantQoq,    &kQuantFmpq,       &kQuantNestedFp, &kQuantGguf, &kQuantBitsAndBytes,
    &kQuantAtLoad, &kQuantUnsupported};

constexpr const char* kMixedMethod = "mixed";
constexpr size_t kNumOverridesMax = 1000;
constexpr size_t kOverrideBytesMax = 1 << 20;

std::string known_names() {
  std::string names;
  for (const QuantFormat* format : kFormats) {
    if (format->options.empty()) continue;  // no checkpoint is stored so, or it is unsupported
    names += str(names.empty() ? "" : ", ", format->name);
  }
  return str(names, ", ", kMixedMethod);
}

std::unique_ptr<QuantScheme> detect_one(const QuantConfig& declared, const TensorSource& source) {
  const auto translated = translate_auto_round(declared);
  const QuantConfig& config = translated ? *translated : declared;
  std::unique_ptr<QuantScheme> scheme;
  for (const QuantFormat* format : kFormats) {
    std::unique_ptr<QuantScheme> found = format->detect(config, source);
    if (!found) continue;
    if (scheme) {
      throw CheckpointError(str(config.where(), ": expected one quantization format, got ",
                                scheme->format_name(), " and ", found->format_name(),
                                ". State one in quantization_config."));
    }
    scheme = std::move(found);
  }
  if (!scheme) {
    throw UnsupportedError(
        str(config.where(), ": expected one of ", known_names(), ", got ", quote(config.method),
            ". Use another quantization of this model, or the unquantized one."));
  }
  return scheme;
}

struct Rule {
  NamePattern pattern;
  std::unique_ptr<QuantScheme> scheme;
};

/// Several formats in one model: the first rule that matches a layer's name has it.
class MixedScheme : public QuantScheme {
 public:
  MixedScheme(std::vector<Rule> rules, std::unique_ptr<QuantScheme> rest)
      : rules_(std::move(rules)), rest_(std::move(rest)) {}

  const char* format_name() const override { return kMixedMethod; }

  std::string summary() const override {
    std::string text;
    for (const Rule& rule : rules_) {
      text += str(rule.pattern.text(), " ", rule.scheme->format_name(), " (",
                  rule.scheme->summary(), "), ");
    }
    return str(text, "other layers ", rest_->format_name(), " (", rest_->summary(), ")");
  }

  std::unique_ptr<StoredWeight> open(const TensorSource& source, const LinearSpec::Part& part,
                                     int64_t in_features) const override {
    return scheme_of(part).open(source, part, in_features);
  }

  std::vector<TensorInfo> expected_tensors(const LinearSpec::Part& part,
                                           int64_t in_features) const override {
    return scheme_of(part).expected_tensors(part, in_features);
  }

  DeclaredKv declared_kv() const override {
    for (const Rule& rule : rules_) {
      if (rule.scheme->declared_kv() != DeclaredKv::kNothing) return rule.scheme->declared_kv();
    }
    return rest_->declared_kv();
  }

  std::vector<std::string> warnings() const override {
    std::vector<std::string> all = rest_->warnings();
    for (const Rule& rule : rules_) {
      for (std::string& text : rule.scheme->warnings()) all.push_back(std::move(text));
    }
    return all;
  }

 private:
  const QuantScheme& scheme_of(const LinearSpec::Part& part) const {
    for (const Rule& rule : rules_) {
      if (rule.pattern.matches(part.name)) return *rule.scheme;
    }
    return *rest_;
  }

  std::vector<Rule> rules_;
  std::unique_ptr<QuantScheme> rest_;
};

std::unique_ptr<QuantScheme> detect_override(const QuantConfig& config,
                                             const TensorSource& source) {
  return config.fields ? detect_one(config, source) : make_dense_scheme();
}

/// The rules of a "mixed" declaration.
std::vector<Rule> read_rules(const HfConfig& fields, const TensorSource& source) {
  const auto layers = fields.object("layers");
  if (!layers) {
    fields.fail("layers", "expected an object of patterns and their formats, got nothing.");
  }
  const std::vector<std::string> patterns = layers->member_names();
  if (patterns.size() > kNumOverridesMax) {
    fields.fail("layers", str("expected at most ", kNumOverridesMax, " patterns, got ",
                              patterns.size(), "."));
  }
  std::vector<Rule> rules;
  for (const std::string& pattern : patterns) {
    const auto own = layers->object(pattern);
    if (!own) layers->fail(pattern, "expected an object, got null.");
    const QuantConfig config = quant_config_of(*own);
    if (config.method == kMixedMethod) {
      own->fail("quant_method", "expected one format for these layers, got \"mixed\".");
    }
    const std::string where = str(fields.where(), ": field '", layers->prefix(), pattern, "'");
    rules.push_back({NamePattern::parse(pattern, where), detect_one(config, source)});
  }
  return rules;
}

std::unique_ptr<QuantScheme> detect_declared(const QuantConfig& config,
                                             const TensorSource& source) {
  if (config.method != kMixedMethod) return detect_one(config, source);
  return std::make_unique<MixedScheme>(read_rules(*config.fields, source), make_dense_scheme());
}

}  // namespace

std::span<const QuantFormat* const> quant_formats() { return kFormats; }

QuantOverride parse_quant_override(const std::string& text) {
  const std::string where = str("--quant-override ", quote(text));
  // A regular expression may hold '=': the value begins behind the last one before any brace.
  const size_t equals = text.rfind('=', text.find('{'));
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    throw InputError(str(where, ": expected PATTERN=none, PATTERN={...} or PATTERN=FILE.json."));
  }
  NamePattern pattern = NamePattern::parse(text.substr(0, equals), where);
  std::string value = text.substr(equals + 1);
  if (value == "none") return {std::move(pattern), {}};
  if (value.front() != '{') value = read_text_file(value, kOverrideBytesMax);
  return {std::move(pattern), quant_config_of(HfConfig::parse(value, where))};
}

std::unique_ptr<QuantScheme> detect_quant_scheme(const QuantConfig& config,
                                                 const TensorSource& source,
                                                 const std::vector<QuantOverride>& overrides) {
  if (overrides.empty()) return detect_declared(config, source);
  std::vector<Rule> rules;
  for (const QuantOverride& item : overrides) {
    rules.push_back({item.pattern, detect_override(item.config, source)});
  }
  // A checkpoint that declares nothing is in full precision where no rule matches, although layers
  // of the rules are quantized.
  return std::make_unique<MixedScheme>(
      std::move(rules), config.fields ? detect_declared(config, source) : make_dense_scheme());
}

}  // namespace halley
