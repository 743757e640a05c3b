// The table of all model families.
#include <array>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/models/all/load_model.h"
#include "halley/models/base/family.h"
#include "halley/models/gemma/gemma.h"
#include "halley/models/glm/glm.h"
#include "halley/models/granite/granite.h"
#include "halley/models/llama/llama.h"
#include "halley/models/mixtral/mixtral.h"
#include "halley/models/olmo/olmo.h"
#include "halley/models/opt/opt.h"
#include "halley/models/phi/phi.h"
#include "halley/models/qwen/qwen.h"

namespace halley {
namespace {

constexpr std::array kFamilies = {
    &kLlama,      &kMistral, &kSmolLm3, &kQwen2,    &kQwen3,   &kQwen3Moe, &kMixtral, &kGemma2,
    &kGemma3Text, &kPhi3,    &kOpt,     &kOlmo2,    &kOlmo3,   &kOlmoe,    &kGranite, &kGraniteMoe,
    &kGlm,        &kGlm4,    &kGemma3,  &kMistral3, &kQwen2Vl, &kQwen25Vl, &kQwen3Vl};

DecoderConfig read_family(const FamilyInput& input) {
  const std::string type = input.config.model_type();
  std::string known;
  for (const ModelFamily* family : kFamilies) {
    if (type == family->model_type) return family->read(input);
    known += str(known.empty() ? "" : ", ", family->model_type);
  }
  throw UnsupportedError(str(input.config.where(), ": field 'model_type': expected one of ", known,
                             ", got ", quote(type), ". This model family is not supported."));
}

}  // namespace

DecoderConfig read_decoder_config(const HfConfig& config) { return read_family({config}); }

DecoderConfig read_decoder_config(const HfConfig& config, const TensorSource& source,
                                  int64_t max_length) {
  return read_family({.config = config, .tensors = &source, .max_length = max_length});
}

}  // namespace halley
