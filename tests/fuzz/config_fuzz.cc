// Any bytes as config.json and generation_config.json. Only InputError may come out; numbers that
// are accepted must be ones that models can calculate with.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/checkpoint/config/hf_config.h"

namespace {

void check_rope(const halley::RopeConfig& rope) {
  for (const double value : {rope.theta, rope.factor, rope.partial_rotary_factor,
                             rope.low_freq_factor, rope.high_freq_factor, rope.beta_fast,
                             rope.beta_slow, rope.attention_factor.value_or(1.0)}) {
    HALLEY_CHECK(std::isfinite(value) && value > 0.0, value);
  }
  HALLEY_CHECK(rope.original_max_position_embeddings.value_or(1) > 0);
  for (const std::vector<double>* factors : {&rope.short_factor, &rope.long_factor}) {
    HALLEY_CHECK(factors->size() <= 1024, factors->size());
    for (const double value : *factors) HALLEY_CHECK(std::isfinite(value) && value > 0.0, value);
  }
}

void read_fields(const halley::HfConfig& config) {
  const auto attempt = [](const auto& read) {
    try {
      read();
    } catch (const halley::InputError&) {
    }
  };
  for (const auto& [field, value] : config.json().items()) {
    const std::string_view name = field;
    attempt([&] { static_cast<void>(config.integer(name, 1, 1'000'000)); });
    attempt([&] { static_cast<void>(config.number(name)); });
    attempt([&] { static_cast<void>(config.string(name)); });
    attempt([&] { static_cast<void>(config.boolean_or(name, true)); });
    attempt([&] { static_cast<void>(config.numbers(name)); });
    attempt([&] { static_cast<void>(config.integers(name)); });
    attempt([&] { static_cast<void>(config.strings(name)); });
  }
  for (const char* layer_type : {"", "full_attention", "sliding_attention"}) {
    attempt([&] { check_rope(halley::read_rope_config(config, layer_type, 10000.0)); });
  }
  attempt([&] {
    for (const int32_t id : halley::read_generation_config(&config, config).eos_token_ids) {
      HALLEY_CHECK(id >= 0, id);
    }
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto config =
        halley::HfConfig::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    read_fields(config);
    if (const auto text_config = config.object("text_config")) read_fields(*text_config);
  } catch (const halley::InputError&) {
  }
  return 0;
}
