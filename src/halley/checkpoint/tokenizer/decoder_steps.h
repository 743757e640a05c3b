// The decoders that have settings, one class each.
#pragma once

#include <memory>

#include "halley/checkpoint/tokenizer/component.h"
#include "halley/checkpoint/tokenizer/decoder.h"

namespace halley {

std::unique_ptr<TokenDecoder> make_byte_level_decoder();
std::unique_ptr<TokenDecoder> make_byte_fallback_decoder();
std::unique_ptr<TokenDecoder> make_fuse_decoder();
std::unique_ptr<TokenDecoder> make_replace_decoder(const Component& config);
std::unique_ptr<TokenDecoder> make_strip_decoder(const Component& config);
std::unique_ptr<TokenDecoder> make_metaspace_decoder(const Component& config);
std::unique_ptr<TokenDecoder> make_bpe_decoder(const Component& config);
std::unique_ptr<TokenDecoder> make_word_piece_decoder(const Component& config);

}  // namespace halley
