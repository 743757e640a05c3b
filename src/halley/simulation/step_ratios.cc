#include "halley/simulation/step_ratios.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/json/json.h"

namespace halley {
namespace {

constexpr int64_t kRowsMax = int64_t{1} << 20;
constexpr double kRatioMax = 1000;
constexpr size_t kEntriesMax = 10'000;
constexpr size_t kNameBytesMax = 64;

[[noreturn]] void throw_wrong(const std::string& place, const std::string& expected,
                              const Json& got) {
  throw InputError(str(place, ": expected ", expected, ", got ", quote(got.dump()), "."));
}

const Json& member(const Json& entry, const char* name, const std::string& place) {
  const auto it = entry.find(name);
  if (it == entry.end()) {
    throw InputError(
        str(place, ": expected the members precision, rows and ratio, got no ", name, "."));
  }
  return *it;
}

void check_members(const Json& entry, const std::string& place) {
  if (!entry.is_object()) throw_wrong(place, "an object", entry);
  for (const auto& [name, value] : entry.items()) {
    if (name != "precision" && name != "rows" && name != "ratio" && name != "source") {
      throw InputError(str(place, ": expected the members precision, rows, ratio and source, got ",
                           quote(name), "."));
    }
  }
}

std::string precision_of(const Json& entry, const std::string& place) {
  const Json& name = member(entry, "precision", place);
  const bool is_text = name.is_string();
  if (!is_text || name.get_ref<const std::string&>().empty() ||
      name.get_ref<const std::string&>().size() > kNameBytesMax) {
    throw_wrong(str(place, ".precision"), str("a text of 1 to ", kNameBytesMax, " bytes"), name);
  }
  return name.get<std::string>();
}

int64_t rows_of(const Json& entry, const std::string& place) {
  const Json& rows = member(entry, "rows", place);
  if (!rows.is_number_unsigned() || rows.get<uint64_t>() < 1 ||
      rows.get<uint64_t>() > uint64_t{kRowsMax}) {
    throw_wrong(str(place, ".rows"), str("a number of 1 to ", kRowsMax), rows);
  }
  return rows.get<int64_t>();
}

double ratio_of(const Json& entry, const std::string& place) {
  const Json& ratio = member(entry, "ratio", place);
  if (!ratio.is_number() || !(ratio.get<double>() > 0 && ratio.get<double>() <= kRatioMax)) {
    throw_wrong(str(place, ".ratio"), str("a number above 0 and at most ", kRatioMax), ratio);
  }
  return ratio.get<double>();
}

}  // namespace

StepRatio::StepRatio(std::vector<RatioPoint> points) : points_(std::move(points)) {
  HALLEY_CHECK(!points_.empty());
  for (size_t i = 0; i < points_.size(); ++i) {
    HALLEY_CHECK(points_[i].num_rows > (i == 0 ? 0 : points_[i - 1].num_rows), i);
    HALLEY_CHECK(points_[i].ratio > 0, i, points_[i].ratio);
  }
}

double StepRatio::at(int64_t num_rows) const {
  const auto above =
      std::lower_bound(points_.begin(), points_.end(), num_rows,
                       [](const RatioPoint& point, int64_t rows) { return point.num_rows < rows; });
  if (above == points_.end()) return points_.back().ratio;
  if (above == points_.begin()) return above->ratio;
  const RatioPoint& below = *std::prev(above);
  const auto log_of = [](int64_t rows) { return std::log2(static_cast<double>(rows)); };
  const double part = (log_of(num_rows) - log_of(below.num_rows)) /
                      (log_of(above->num_rows) - log_of(below.num_rows));
  return below.ratio + part * (above->ratio - below.ratio);
}

RatioTable::RatioTable(const Points& points, std::string where) : where_(std::move(where)) {
  for (const auto& [precision, ratios] : points) {
    std::vector<RatioPoint> sorted;
    for (const auto& [rows, ratio] : ratios) sorted.push_back({rows, ratio});
    ratios_.emplace(precision, StepRatio(std::move(sorted)));
  }
}

RatioTable RatioTable::built_in() {
  Points points;
  for (const MeasuredRatio& row : measured_ratios()) {
    points[row.precision][row.num_rows] = row.ratio;
  }
  return {points, "the built-in table"};
}

RatioTable RatioTable::parse(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  const auto entries = json.is_object() ? json.find("ratios") : json.end();
  if (entries == json.end() || !entries->is_array() || entries->empty() ||
      entries->size() > kEntriesMax || json.size() != 1) {
    throw InputError(str(where, ": expected an object with the member ratios alone, an array of 1 ",
                         "to ", kEntriesMax, " objects of precision, rows and ratio."));
  }
  Points points;
  for (size_t i = 0; i < entries->size(); ++i) {
    const Json& entry = (*entries)[i];
    const std::string place = str(where, ": ratios[", i, "]");
    check_members(entry, place);
    const int64_t num_rows = rows_of(entry, place);
    const std::string precision = precision_of(entry, place);
    const auto [it, is_new] = points[precision].emplace(num_rows, ratio_of(entry, place));
    if (!is_new) {
      throw InputError(str(place, ": expected one entry for ", num_rows, " rows of ",
                           quote(precision), ", got a second one."));
    }
  }
  return {points, where};
}

const StepRatio& RatioTable::of(const std::string& precision) const {
  const auto it = ratios_.find(precision);
  if (it != ratios_.end()) return it->second;
  std::string names;
  for (const auto& [name, ratio] : ratios_) names += (names.empty() ? "" : ", ") + name;
  throw InputError(str("ratios: expected measured step times of ", precision, ", got those of ",
                       names, " in ", where_,
                       ". Measure with `halley bench latency` and give the file with --ratios."));
}

}  // namespace halley
