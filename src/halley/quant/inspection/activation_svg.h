// Pictures of channels' magnitudes as SVG, before and after the transforms.
#pragma once

#include <span>
#include <string>

#include "halley/quant/inspection/activation_stats.h"

namespace halley {

/// A page with a row for each site, its channels before (left) and after (right): a bar of max |x|
/// and one of mean |x| for each channel, outliers of FMPQ's rule in a colour of their own, and the
/// blocks of 8 bits shaded. Each `path` of the classes `maxima`, `outliers` and `means` has one
/// subpath a channel. Both panels of a row have the same axis, logarithmic where the largest
/// channel is more than 50 times the median.
std::string render_sites(std::span<const ActivationSite* const> sites, const std::string& title);

}  // namespace halley
