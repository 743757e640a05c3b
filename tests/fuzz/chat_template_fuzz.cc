// Parses and renders any text as a chat template, within small limits. Only InputError may leave.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "halley/base/error.h"
#include "halley/checkpoint/chat_template/chat_template.h"

namespace {

constexpr std::string_view kContext = R"({
  "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true, "n": 3, "f": 2.5,
  "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], "none": null,
  "messages": [{"role": "system", "content": "Zürich 🙂"}, {"role": "user", "content": "hi"},
               {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "n": [1, 2]}]}]
})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const halley::OrderedJson kParsed = halley::parse_ordered_json(kContext, "context");
  const halley::TemplateLimits limits = {.source_bytes_max = 16 << 10,
                                         .num_steps_max = 20'000,
                                         .depth_max = 60,
                                         .output_bytes_max = 64 << 10,
                                         .num_frames_max = 300,
                                         .memory_bytes_max = 1 << 20};
  try {
    const std::string_view source(reinterpret_cast<const char*>(data), size);
    const halley::ChatTemplate chat_template(source, "fuzz", limits);
    chat_template.render(kParsed);
  } catch (const halley::InputError&) {
    // The answer to a bad template.
  }
  return 0;
}
