// The pieces of which plots are drawn as SVG: the page and its style, texts, lines, axes.
#pragma once

#include <string>
#include <vector>

namespace halley {

inline constexpr double kSvgCharWidth = 6.2, kSvgLineHeight = 13;  // labels at 11 px, approximately
inline constexpr size_t kSvgColours = 6;  // of lines and areas; lines have a pattern each too

/// The whole document: title, style, background and `content`. Colours follow the reader's light or
/// dark setting. The classes of the style are `grid`, `axis`, `bar` and `limit` for lines, `point`
/// for circles, `line line0` to `line line5` for polylines, `area0` to `area5` for rectangles.
std::string svg_document(double width, double height, const std::string& title,
                         const std::string& content);

/// A coordinate: one digit behind the point.
std::string svg_number(double value);
/// The text of a tick.
std::string svg_tick(double value);
/// `text` for an element or an attribute.
std::string svg_escaped(const std::string& text);

std::string svg_line(const char* kind, double x0, double y0, double x1, double y1);
/// `points`: "x,y x,y ..."; `index` chooses the colour.
std::string svg_polyline(size_t index, const std::string& points);
/// `anchor`: start, middle or end. `more`: further attributes.
std::string svg_text(double x, double y, const char* anchor, const std::string& text,
                     const std::string& more = {});

/// Maps values to pixels.
struct SvgAxis {
  double low = 0, high = 1;  // in values
  double pixel_low = 0, pixel_high = 1;
  bool is_log = false;
  std::vector<double> ticks = {};

  double pixel(double value) const;
};

/// Sets range and ticks: about six of them, at 1, 2 or 5 times a power of ten.
void set_linear(SvgAxis& axis, double low, double high);
/// The same at powers of ten; both above 0.
void set_log(SvgAxis& axis, double low, double high);

/// The grid, the texts of its ticks and the axes. `x` goes along the bottom of the area, whose
/// height is that of `y`.
std::string svg_axes(const SvgAxis& x, const SvgAxis& y);
/// The names of the axes that `svg_axes` draws.
std::string svg_x_label(const SvgAxis& x, const SvgAxis& y, const std::string& text);
std::string svg_y_label(const SvgAxis& y, const std::string& text);

}  // namespace halley
