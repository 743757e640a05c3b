// The text model inside of a model with more parts, such as one for images: its part of config.json
// and the names of its tensors.
#pragma once

#include <string>
#include <vector>

#include "halley/models/base/family.h"

namespace halley {

/// The names by which one layout of a checkpoint knows what a text model alone calls "model." and
/// "lm_head".
struct TextNames {
  const char* body = "";  // "language_model.model."
  const char* head = "";  // "language_model.lm_head"
};

/// One family's layouts.
struct TextPart {
  std::vector<TextNames> layouts;  // the published one first
  /// Prefixes of the tensors of the other parts: "vision_tower.".
  std::vector<std::string> other_prefixes;
};

/// The layouts of models whose images go through a vision tower and a projector (Gemma 3, Mistral
/// 3).
TextPart vision_tower_part();

/// Reads `text_config` (absent: the fields stand in config.json itself) with the mapping of a text
/// model alone; the decoder has the names of the layout that `input.tensors` has. The type of the
/// weights may be declared outside. tie_word_embeddings too; where the two declarations differ, or
/// there is none, the embedding is tied unless the checkpoint has an output matrix.
DecoderConfig read_text_part(const FamilyInput& input, const TextPart& part,
                             DecoderConfig (*read_text)(const FamilyInput& input));

}  // namespace halley
