// How much room inputs take as digits (input_digits.cuh). Pure functions of the host and the
// device.
#pragma once

namespace halley::cuda {

inline constexpr int kDigits = 3;
inline constexpr int kDigitTokens = 2;  // at most: a product of the tensor cores has eight columns
inline constexpr int kDigitChunk = 128;
/// A digit of a chunk's inputs, and a gap, so that lanes that read them meet no bank twice.
inline constexpr int kDigitColumnBytes = kDigitChunk + 16;
/// Of a chunk: the digits of M tokens, and what they are worth.
constexpr int digit_bytes(int M) { return M * (kDigits * kDigitColumnBytes + 16); }

}  // namespace halley::cuda
