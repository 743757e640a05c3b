#include "halley/checkpoint/tokenizer/sentencepiece_model.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/checkpoint/tokenizer/protobuf.h"
#include "halley/checkpoint/tokenizer/token_table.h"
#include "halley/checkpoint/tokenizer/utf8.h"

namespace halley {
namespace {

constexpr size_t kPieceBytesMax = 1024;
constexpr uint64_t kUnigram = 1;
constexpr uint64_t kBpe = 2;
constexpr std::string_view kUnkSurface = " \xE2\x81\x87 ";  // " ⁇ "

[[noreturn]] void fail(const std::string& where, const std::string& text) {
  throw InputError(str(where, ": ", text, " The file is damaged or no SentencePiece model."));
}

// One unit of a Darts-clone double array: the trie of the character map.
struct DartsUnit {
  uint32_t word;
  bool has_leaf() const { return (word >> 8 & 1) == 1; }
  bool is_leaf() const { return word >> 31 == 1; }
  uint32_t value() const { return word & 0x7FFFFFFF; }
  uint32_t offset() const { return (word >> 10) << ((word & (1u << 9)) >> 6); }
};

DartsUnit unit_at(std::string_view trie, size_t index) {
  uint32_t word = 0;
  std::memcpy(&word, trie.data() + index * 4, 4);
  return {word};
}

// The library walks this trie without bounds checks: from unit i by byte c to unit i ^ offset ^ c,
// where the root is unit 0. Only what can be reached counts: unused units hold anything.
void check_trie(std::string_view trie, size_t num_text_bytes, const std::string& where) {
  const size_t num_units = trie.size() / 4;
  std::vector<bool> is_seen(num_units, false);
  std::vector<uint32_t> to_visit = {0};
  is_seen[0] = true;
  while (!to_visit.empty()) {
    const uint32_t index = to_visit.back();
    to_visit.pop_back();
    const DartsUnit unit = unit_at(trie, index);
    const uint32_t base = index ^ unit.offset();
    if ((base | 0xFF) >= num_units) {
      fail(where, str("normalizer_spec.precompiled_charsmap: expected offsets below ", num_units,
                      ", got ", base | 0xFF, " in unit ", index, "."));
    }
    if (unit.has_leaf() && unit_at(trie, base).value() >= num_text_bytes) {
      fail(where, str("normalizer_spec.precompiled_charsmap: expected a text position below ",
                      num_text_bytes, ", got ", unit_at(trie, base).value(), "."));
    }
    for (uint32_t byte = 1; byte < 256; ++byte) {
      const uint32_t child = base ^ byte;
      const uint32_t label = unit_at(trie, child).word & (1u << 31 | 0xFF);
      if (label == byte && !is_seen[child]) {
        is_seen[child] = true;
        to_visit.push_back(child);
      }
    }
  }
}

// Layout: u32 bytes of the trie, the trie, texts that each end with a zero byte.
void check_charsmap(std::string_view map, const std::string& where) {
  if (map.empty()) return;
  static_assert(std::endian::native == std::endian::little, "the file is little-endian");
  uint32_t num_trie_bytes = 0;
  if (map.size() > 4) std::memcpy(&num_trie_bytes, map.data(), 4);
  const bool is_fit = num_trie_bytes >= 1024 && num_trie_bytes % 4 == 0 &&
                      num_trie_bytes < map.size() - 4 && map.back() == '\0';
  if (!is_fit) {
    fail(where, str("normalizer_spec.precompiled_charsmap: expected a trie of at least 1024 bytes "
                    "and texts that end with a zero byte in ",
                    map.size(), " bytes, got a trie of ", num_trie_bytes, " bytes."));
  }
  check_trie(map.substr(4, num_trie_bytes), map.size() - 4 - num_trie_bytes, where);
}

SpmPiece parse_piece(std::string_view message, size_t id, const std::string& where) {
  SpmPiece piece;
  ProtobufReader reader(message, where);
  ProtobufField field;
  float score = 0.0f;
  uint64_t type = 1;
  while (reader.next(field)) {
    if (field.number == 1 && field.is_bytes) piece.text = field.bytes;
    if (field.number == 2) score = std::bit_cast<float>(static_cast<uint32_t>(field.integer));
    if (field.number == 3) type = field.integer;
  }
  const bool is_text = !piece.text.empty() && piece.text.size() <= kPieceBytesMax &&
                       is_valid_utf8(piece.text) && piece.text.find('\0') == std::string::npos;
  if (!is_text) {
    fail(where,
         str("pieces[", id, "]: expected a text of 1 to ", kPieceBytesMax, " bytes of UTF-8, got ",
             piece.text.size(), " bytes: ", quote(piece.text, 40), "."));
  }
  if (!std::isfinite(score)) fail(where, str("pieces[", id, "]: expected a finite score."));
  if (type < 1 || type > 6) {
    fail(where, str("pieces[", id, "]: expected a type from 1 to 6, got ", type, "."));
  }
  piece.type = static_cast<SpmPieceType>(type);
  if (piece.type == SpmPieceType::kByte && byte_of_spm_piece(piece.text) < 0) {
    fail(where, str("pieces[", id, "]: expected <0xNN> for a byte, got ", quote(piece.text), "."));
  }
  return piece;
}

void parse_trainer_spec(std::string_view message, SpmModel& model, const std::string& where) {
  ProtobufReader reader(message, where);
  ProtobufField field;
  while (reader.next(field)) {
    if (field.number == 3 && field.integer != kUnigram && field.integer != kBpe) {
      throw UnsupportedError(str(where,
                                 ": trainer_spec.model_type: expected 1 (Unigram) or 2 (BPE), "
                                 "got ",
                                 field.integer,
                                 ". Other SentencePiece models are not "
                                 "supported."));
    }
    if (field.number == 44 && field.is_bytes) model.unk_surface = field.bytes;
  }
  if (!is_valid_utf8(model.unk_surface)) {
    fail(where, "trainer_spec.unk_surface: expected valid UTF-8.");
  }
}

void parse_normalizer_spec(std::string_view message, SpmModel& model, const std::string& where) {
  ProtobufReader reader(message, where);
  ProtobufField field;
  while (reader.next(field)) {
    if (field.number == 2 && field.is_bytes) check_charsmap(field.bytes, where);
    if (field.number == 3) model.add_dummy_prefix = field.integer != 0;
    if (field.number == 4) model.remove_extra_whitespaces = field.integer != 0;
  }
}

void reject_denormalizer(std::string_view message, const std::string& where) {
  ProtobufReader reader(message, where);
  ProtobufField field;
  while (reader.next(field)) {
    if (field.number == 2 && field.is_bytes && !field.bytes.empty()) {
      throw UnsupportedError(str(where,
                                 ": a SentencePiece model with a denormalizer is not "
                                 "supported."));
    }
  }
}

void check_pieces(const SpmModel& model, const std::string& where) {
  std::unordered_set<std::string_view> texts;
  size_t num_unknown = 0;
  for (const SpmPiece& piece : model.pieces) {
    if (piece.type == SpmPieceType::kUnknown) ++num_unknown;
    if (!texts.insert(piece.text).second) {
      fail(where, str("expected each piece once, got ", quote(piece.text), " twice."));
    }
  }
  if (num_unknown != 1) {
    fail(where, str("expected one piece of type unknown, got ", num_unknown, "."));
  }
}

}  // namespace

int byte_of_spm_piece(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const size_t high = kDigits.find(text[3]);
  const size_t low = kDigits.find(text[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return -1;
  return static_cast<int>(high * 16 + low);
}

SpmModel parse_spm_model(std::string_view bytes, const std::string& where) {
  SpmModel model;
  model.unk_surface = kUnkSurface;
  ProtobufReader reader(bytes, where);
  ProtobufField field;
  while (reader.next(field)) {
    if (!field.is_bytes) continue;
    if (field.number == 1) {
      if (model.pieces.size() >= static_cast<size_t>(kNumIdsMax)) {
        fail(where, str("expected at most ", kNumIdsMax, " pieces."));
      }
      model.pieces.push_back(parse_piece(field.bytes, model.pieces.size(), where));
    }
    if (field.number == 2) parse_trainer_spec(field.bytes, model, where);
    if (field.number == 3) parse_normalizer_spec(field.bytes, model, where);
    if (field.number == 5) reject_denormalizer(field.bytes, where);
  }
  check_pieces(model, where);
  return model;
}

}  // namespace halley
