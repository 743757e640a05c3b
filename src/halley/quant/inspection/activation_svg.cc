#include "halley/quant/inspection/activation_svg.h"

#include <algorithm>

#include "halley/base/str.h"
#include "halley/quant/fmpq/plan_blocks.h"
#include "halley/svg/svg_drawing.h"

namespace halley {
namespace {

constexpr double kWidth = 1180, kTop = 76, kRowHeight = 262, kPanelHeight = 170;
constexpr double kPanelWidth = 480, kLeft[2] = {84, 664};
// Beyond this ratio to the median a linear axis shows nothing but the largest channel.
constexpr double kLinearRatioMax = 50;

// Bars are strokes, which keep their width where the picture is enlarged.
constexpr const char* kStyle = R"(<style>
  .maxima, .outliers, .means { fill: none; stroke-width: 1 }
  .maxima { stroke: #54aeff } .outliers { stroke: #cf222e; stroke-width: 1.6 }
  .means { stroke: #0a3069 } .s8 { fill: #fff8c5 }
  @media (prefers-color-scheme: dark) {
    .maxima { stroke: #388bfd } .outliers { stroke: #ff7b72 } .means { stroke: #cae8ff }
    .s8 { fill: #4b3a05 }
  }
</style>
)";

std::string rectangle(const char* kind, double x, double y, double width, double height) {
  return str("<rect class=\"", kind, "\" x=\"", svg_number(x), "\" y=\"", svg_number(y),
             "\" width=\"", svg_number(width), "\" height=\"", svg_number(height), "\"/>\n");
}

std::string legend() {
  std::string svg;
  const auto entry = [&](double x, const char* kind, const std::string& text) {
    svg += str("<path class=\"", kind, "\" style=\"stroke-width:5\" d=\"M", svg_number(x), " 44H",
               svg_number(x + 18), "\"/>\n");
    svg += svg_text(x + 24, 48, "start", text);
  };
  entry(84, "maxima", "max |x| of a channel");
  entry(234, "means", "mean |x|");
  entry(324, "outliers",
        str("max |x| of an outlier: ", BlockOptions().outlier_ratio,
            " times the median channel and more (inputs)"));
  svg += rectangle("s8", 820, 38, 18, 12) + svg_text(844, 48, "start", "blocks of 8 bits");
  return svg;
}

SvgAxis y_axis(const ActivationSite& site, double top) {
  SvgAxis axis{.pixel_low = top + kPanelHeight, .pixel_high = top};
  double largest = 0;
  for (const auto* values : {&site.before.abs_max, &site.after.abs_max}) {
    for (const float value : *values) largest = std::max(largest, double{value});
  }
  const double median = outlier_limit(site.before.abs_max, 1);
  if (largest == 0) {
    set_linear(axis, 0, 1);
  } else if (median > 0 && largest > kLinearRatioMax * median) {
    set_log(axis, median / 10, largest);
  } else {
    set_linear(axis, 0, largest);
  }
  return axis;
}

std::string bars(const std::vector<float>& values, const char* kind, const SvgAxis& x,
                 const SvgAxis& y, double low, double high) {
  std::string path;
  for (size_t k = 0; k < values.size(); ++k) {
    if (double{values[k]} < low || double{values[k]} >= high) continue;
    path += str("M", svg_number(x.pixel(static_cast<double>(k) + 0.5)), " ",
                svg_number(y.pixel_low), "V", svg_number(y.pixel(double{values[k]})));
  }
  return path.empty() ? path : str("<path class=\"", kind, "\" d=\"", path, "\"/>\n");
}

SvgAxis x_axis(size_t num_channels, size_t side) {
  SvgAxis axis{.pixel_low = kLeft[side], .pixel_high = kLeft[side] + kPanelWidth};
  const auto count = static_cast<double>(std::max<size_t>(1, num_channels));
  set_linear(axis, 0, count);
  // The axis ends with the channels.
  axis.high = count;
  std::erase_if(axis.ticks, [&](double tick) { return tick > count; });
  return axis;
}

std::string render_panel(const ActivationSite& site, size_t side, const SvgAxis& y) {
  const bool is_after = side == 1, is_head = site.is_head_site();
  const ChannelMagnitudes& shown = is_after ? site.after : site.before;
  const SvgAxis x = x_axis(shown.abs_max.size(), side);
  std::string svg;
  if (is_after && site.num_s8_inputs > 0) {
    const double end = x.pixel(static_cast<double>(site.num_s8_inputs));
    svg += rectangle("s8", x.pixel_low, y.pixel_high, end - x.pixel_low, kPanelHeight);
  }
  svg += svg_axes(x, y);
  constexpr double kNone = 1e300;
  const double rule = outlier_limit(shown.abs_max);
  const double limit = is_head || rule == 0 ? kNone : rule;
  svg += bars(shown.abs_max, "maxima", x, y, 0, limit);
  svg += bars(shown.abs_max, "outliers", x, y, limit, kNone);
  svg += bars(shown.abs_mean, "means", x, y, 0, kNone);
  const char* channels = is_head    ? "head channel (head after head)"
                         : is_after ? "channel in the order of FMPQ's blocks"
                                    : "input channel";
  svg += svg_x_label(x, y, channels);
  if (!is_after) svg += svg_y_label(y, y.is_log ? "|x|, logarithmic" : "|x|");
  const char* state = !is_after ? "as it is"
                      : is_head ? "after smoothing"
                                : "after smoothing and permutation";
  return svg + svg_text(x.pixel_low, y.pixel_high - 8, "start", str(site.name, ", ", state));
}

}  // namespace

std::string render_sites(std::span<const ActivationSite* const> sites, const std::string& title) {
  std::string svg = kStyle + svg_text(kWidth / 2, 22, "middle", title) + legend();
  for (size_t i = 0; i < sites.size(); ++i) {
    const double top = kTop + 10 + static_cast<double>(i) * kRowHeight;
    const SvgAxis y = y_axis(*sites[i], top);
    for (size_t side = 0; side < 2; ++side) svg += render_panel(*sites[i], side, y);
  }
  return svg_document(kWidth, kTop + static_cast<double>(sites.size()) * kRowHeight, title, svg);
}

}  // namespace halley
