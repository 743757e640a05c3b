// Reads and checks a tokenizer.model (a SentencePiece ModelProto) before the library sees the
// bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace halley {

// The numbers are those of the file format, sentencepiece_model.proto.
enum class SpmPieceType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct SpmPiece {
  std::string text;
  SpmPieceType type = SpmPieceType::kNormal;
};

struct SpmModel {
  std::vector<SpmPiece> pieces;  // by id
  std::string unk_surface;       // what decoding writes for an unknown piece
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
};

/// Reads `bytes`. Throws InputError for what is no such model or would make the library read
/// outside its memory (a character map with wild offsets), UnsupportedError for a model that is
/// neither BPE nor Unigram and for one with a denormalizer.
SpmModel parse_spm_model(std::string_view bytes, const std::string& where);

/// The byte of a piece like <0x0A>, or -1.
int byte_of_spm_piece(std::string_view text);

}  // namespace halley
