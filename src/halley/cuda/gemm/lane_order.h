// An order of inputs in which what one thread feeds to the tensor cores lies side by side. Pure
// functions of the host and the device.
#pragma once

#include <cstdint>

namespace halley::cuda {

/// Inputs that are in an order of their own.
inline constexpr int kLaneInputs = 128;

/// Where an input of kLaneInputs lies. Of a fragment of 16 inputs (PTX ISA, wgmma, "m64k16") the
/// thread of column c has inputs 2 c, 2 c + 1, 2 c + 8 and 2 c + 9: here it has 32 places in a row,
/// four of each of eight fragments. Sums over all inputs do not care, where both operands have it.
constexpr int lane_place(int input) {
  const int step = input / 16, k = input % 16;
  return k % 8 / 2 * 32 + step * 4 + k / 8 * 2 + k % 2;
}

/// The input of a place.
constexpr int lane_input(int place) {
  const int column = place / 32, step = place % 32 / 4, element = place % 4;
  return step * 16 + column * 2 + element / 2 * 8 + element % 2;
}

}  // namespace halley::cuda
